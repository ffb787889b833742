//! `posse reproduce`.

use std::path::Path;

use serde_json::Value;

use crate::command::posse;
use crate::frames::{column, read};

#[test]
fn every_experiment_is_listed_as_available_or_in_need_of_data() {
    let list = posse(Path::new("."), &["reproduce"]);
    assert_eq!(list.code, 0);
    let all = posse(Path::new("."), &["reproduce", "--json"]).json();
    let all = all.as_array().unwrap();
    let find = |id: &str| all.iter().find(|figure| figure["id"] == id).unwrap();
    let mut ids = Vec::new();
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for file in std::fs::read_dir(experiments).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let id = path.file_stem().unwrap().to_str().unwrap();
            let names_data =
                std::fs::read_to_string(&path).unwrap().lines().any(|line| line.starts_with("data ="));
            let expected = if names_data { "needs-data" } else { "available" };
            assert_eq!(find(id)["status"], expected, "{id}");
            ids.push(id.to_owned());
        }
    }
    assert!(ids.len() >= 47, "{} experiments", ids.len());
    assert!(all.iter().all(|figure| list.stdout.contains(&format!("  {} ", figure["id"].as_str().unwrap()))));
    // The one figure that shows data and not an experiment.
    let missing = all.iter().filter(|figure| !ids.iter().any(|id| figure["id"] == **id));
    let word = |figure: &Value, key: &str| figure[key].as_str().unwrap().to_owned();
    let missing: Vec<_> = missing.map(|figure| (word(figure, "id"), word(figure, "status"))).collect();
    assert_eq!(missing, [("async-fig5".to_owned(), "needs-data".to_owned())]);
    assert!(list.stdout.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn an_unknown_figure_is_corrected_and_one_of_data_alone_says_what_it_needs() {
    let ran = posse(Path::new("."), &["reproduce", "async-fig2"]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stderr, "error: unknown figure \"async-fig2\": did you mean `async-fig2a`?\n");
    let ran = posse(Path::new("."), &["reproduce", "async-fig5"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("posse data fetch delicious --out data/delicious"), "{}", ran.stderr);
}

#[test]
fn a_figure_whose_data_is_not_here_says_how_to_prepare_it() {
    let directory = tempfile::tempdir().unwrap();
    let ran = posse(directory.path(), &["reproduce", "async-fig4b", "--quick"]);
    assert_eq!(ran.code, 2);
    let command = "posse data prepare delicious --raw RAW --out data/delicious";
    assert!(ran.stderr.contains(&format!("help: prepare it: {command}")), "{}", ran.stderr);
    assert!(ran.stderr.contains("posse data fetch delicious"), "{}", ran.stderr);
}

#[test]
fn a_quick_look_is_labelled_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let ran = posse(directory.path(), &["reproduce", "async-fig3", "--quick", "--out", "r", "-q"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.starts_with("QUICK: ")
            && ran.stdout.contains("\nchecks\n")
            && !ran.stdout.contains("FAIL")
    );
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(directory.path().join("r/manifest.json")).unwrap())
            .unwrap();
    assert_eq!((&manifest["quick"], &manifest["experiment"]), (&true.into(), &"async-fig3".into()));
    assert!(!manifest["checks"].as_array().unwrap().is_empty());
    for name in ["summary", "curves"] {
        let columns = read(&directory.path().join(format!("r/{name}.parquet")));
        assert!(column(&columns, "quick").iter().all(|quick| quick == "true"));
    }
    let refused = posse(directory.path(), &["reproduce", "async-fig3", "--out", "r", "-q"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("the run is QUICK, not full"), "{}", refused.stderr);
}

#[test]
fn a_figure_fetches_and_prepares_the_data_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    let refused =
        posse(directory.path(), &["reproduce", "fedglb-fig2d-mushroom", "--quick", "-q", "--fetch"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--accept-licence"), "{}", refused.stderr);
    std::fs::create_dir(directory.path().join("mine")).unwrap();
    std::fs::write(directory.path().join("mine/agaricus-lepiota.data"), "e,x\n").unwrap();
    let arguments = [
        "reproduce",
        "fedglb-fig2d-mushroom",
        "--quick",
        "-q",
        "--fetch",
        "--accept-licence",
        "--from",
        "mine",
    ];
    let wrong = posse(directory.path(), &arguments);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("another file than the one we know"), "{}", wrong.stderr);
}

#[test]
fn all_figures_state_their_budget_and_go_on_where_they_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let arguments =
        ["reproduce", "--all", "--out", "r", "--gallery", "g", "--at-most", "0.01", "--quick", "-q"];
    let ran = posse(directory.path(), &arguments);
    assert!(ran.code < 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("budget: "), "{}", ran.stderr);
    assert!(ran.stderr.contains(" processor-hours"), "{}", ran.stderr);
    assert!(ran.stdout.contains("not run: async-fig4a: needs lastfm"), "{}", ran.stdout);
    let index = std::fs::read_to_string(directory.path().join("g/README.md")).unwrap();
    let pages: Vec<_> = std::fs::read_dir(directory.path().join("g")).unwrap().collect();
    assert!(pages.len() > 1 && index.contains("## "), "{index}");
    let costs: Vec<&str> = index.lines().filter(|line| line.contains(" processor-minutes, ")).collect();
    assert!(!costs.is_empty() && costs.iter().all(|line| line.contains(" minutes by the clock")), "{index}");
    let again = posse(directory.path(), &arguments);
    assert_eq!(again.stdout, ran.stdout, "the same cells, the same minutes: nothing ran again");
}
