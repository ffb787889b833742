//! `posse report`: what it writes, and what it refuses.

use std::fs;
use std::path::Path;

use crate::command::{Ran, directory_with, posse};

const SMALL: &str = r#"
title = "small"
repetitions = 2
horizon = 60
agents = 4
[environment]
dimension = 3
[[algorithm]]
name = "lin-ucb"
[[algorithm]]
name = "async-lin-ucb"
threshold = [2, 5]
[[check]]
says = "regret is small"
kind = "range"
metric = "regret"
high = 1000
"#;

fn run(directory: &Path) -> Ran {
    posse(directory, &["run", "x.toml", "--out", "r", "-q"])
}

#[test]
fn a_report_is_one_page_and_a_summary_on_the_terminal() {
    let directory = directory_with(SMALL);
    let shown = run(directory.path());
    let report = posse(directory.path(), &["report", "r"]);
    assert_eq!((report.code, report.stderr.as_str()), (0, ""));
    // The same table and verdicts as the run itself.
    assert_eq!(report.stdout, shown.stdout + "\nwrote r/report.html\n");
    let page = fs::read_to_string(directory.path().join("r/report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<h1>small</h1>"));
    for address in ["http://", "https://"] {
        let rest = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains(address), "nothing is fetched from anywhere");
    }
    // The same results make the same page.
    assert_eq!(posse(directory.path(), &["report", "r", "--out", "again.html", "-q"]).code, 0);
    assert_eq!(fs::read_to_string(directory.path().join("again.html")).unwrap(), page);
}

#[test]
fn figures_are_written_as_svg_and_png() {
    let directory = directory_with(SMALL);
    run(directory.path());
    let report = posse(directory.path(), &["report", "r", "-q", "--svg", "s", "--png", "p/q"]);
    assert_eq!(report.code, 0, "{}", report.stderr);
    let names = |place: &str| -> Vec<String> {
        let files = fs::read_dir(directory.path().join(place)).unwrap();
        let mut names: Vec<String> =
            files.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names("s"), names("p/q"));
    assert!(names("s").contains(&"trade-off-messages".to_owned()));
    for name in names("s") {
        let svg = fs::read_to_string(directory.path().join(format!("s/{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        let png = fs::read(directory.path().join(format!("p/q/{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        // Without its letters and lines a picture would compress to almost nothing.
        assert!(png.len() > 8_000, "{name}: {}", png.len());
        assert!(report.stdout.contains(&format!("wrote s/{name}.svg\n")));
    }
}

#[test]
fn numbers_of_agents_are_compared_per_agent() {
    let swept = SMALL.replace("horizon = 60", "horizon_each = 30").replace("agents = 4", "agents = [1, 4]");
    let directory = directory_with(&swept);
    let shown = run(directory.path());
    let header = shown.stdout.lines().next().unwrap();
    assert_eq!(header.split_whitespace().take(3).collect::<Vec<_>>(), ["cell", "regret", "each"]);
    assert_eq!(posse(directory.path(), &["report", "r", "-q", "--svg", "s"]).code, 0);
    let page = fs::read_to_string(directory.path().join("r/report.html")).unwrap();
    assert!(page.contains("<dt>interactions</dt><dd>30 of each agent</dd>"));
    assert!(page.contains(">regret each</button>"));
    // Over time, and in the end by the number of agents: both begin with what can be compared.
    for figure in ["over-time", "by-number-of-agents"] {
        let first = page.find(&format!("data-figure=\"{figure}\"")).unwrap();
        assert!(
            page[first..].starts_with(&format!("data-figure=\"{figure}\" data-view=\"each\">")),
            "{figure}"
        );
        assert!(directory.path().join(format!("s/{figure}-each.svg")).exists());
    }
    // Regret against communication joins numbers of agents, too.
    let trade = fs::read_to_string(directory.path().join("s/trade-off-messages.svg")).unwrap();
    assert!(trade.contains("async-lin-ucb/threshold=5") && !trade.contains("async-lin-ucb/agents=4"));
    let picture = fs::read_to_string(directory.path().join("s/over-time-each.svg")).unwrap();
    assert!(picture.contains("interactions of each agent"));
    // With as many agents everywhere, sums can be compared as they are.
    let same = directory_with(SMALL);
    run(same.path());
    assert_eq!(posse(same.path(), &["report", "r", "-q"]).code, 0);
    let page = fs::read_to_string(same.path().join("r/report.html")).unwrap();
    assert!(!page.contains("data-view=\"each\"") && !page.contains("by-number-of-agents"));
}

#[test]
fn results_are_found_again_whatever_the_order_of_sweeps_and_however_namesakes_differ() {
    let text = "horizon = 20\nagents = 2\n[environment]\nnoise = [0.1, 0.2]\ndimension = [3, 4]\n\
                [[algorithm]]\nname = \"lin-ucb\"\nwidth_scale = 2\n[[algorithm]]\nname = \"lin-ucb\"\nconfidence = 0.2\n";
    let directory = directory_with(text);
    let shown = run(directory.path());
    let report = posse(directory.path(), &["report", "r"]);
    assert_eq!((report.code, report.stderr.as_str()), (0, ""));
    assert_eq!(report.stdout, shown.stdout + "\nwrote r/report.html\n");
}

#[test]
fn what_is_there_of_a_sweep_is_reported_and_labelled() {
    let directory = directory_with(SMALL);
    run(directory.path());
    let cells = directory.path().join("r/cells");
    fs::remove_file(cells.join("000001.json")).unwrap();
    fs::write(cells.join("000003.json"), "half a li").unwrap();
    let report = posse(directory.path(), &["report", "r"]);
    assert_eq!(report.code, 0);
    assert_eq!(report.stderr, "warning: r/cells/000003.json does not have two lines\n");
    let label = "PARTIAL: 2 of 6 cells have not run, and the checks are not judged";
    assert!(report.stdout.starts_with(label), "{}", report.stdout);
    assert!(!report.stdout.contains("PASS"));
    let page = fs::read_to_string(directory.path().join("r/report.html")).unwrap();
    assert!(page.contains(label) && page.contains("4 of 6"));
}

#[test]
fn a_quick_run_is_labelled() {
    let directory = directory_with(SMALL);
    posse(directory.path(), &["run", "x.toml", "--out", "r", "-q", "--quick"]);
    let report = posse(directory.path(), &["report", "r"]);
    assert_eq!(report.stdout.matches("QUICK: fewer").count(), 1);
    assert!(fs::read_to_string(directory.path().join("r/report.html")).unwrap().contains("QUICK: fewer"));
}

/// The command, what it says, and that it leaves nothing behind.
fn refused(directory: &Path, arguments: &[&str]) -> String {
    let listing = || -> Vec<_> {
        let mut all: Vec<_> =
            fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name()).collect();
        all.sort_unstable();
        all
    };
    let before = listing();
    let ran = posse(directory, arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert_eq!(listing(), before);
    assert!(!directory.join("r/report.html").exists());
    ran.stderr
}

#[test]
fn what_is_no_result_is_refused() {
    let directory = directory_with(SMALL);
    let say = |arguments: &[&str]| refused(directory.path(), arguments);
    assert_eq!(
        say(&["report", "nowhere"]),
        "error: nowhere holds no results: there is no manifest.json in it\n"
    );
    assert_eq!(say(&["report", "."]), "error: . holds no results: there is no manifest.json in it\n");
    assert!(say(&["report", "x.toml"]).starts_with("error: cannot read x.toml/manifest.json"));
}

#[test]
fn corrupt_results_are_refused() {
    let directory = directory_with(SMALL);
    run(directory.path());
    let spoil = |name: &str, content: &[u8]| {
        let path = directory.path().join("r").join(name);
        let good = fs::read(&path).unwrap();
        fs::write(&path, content).unwrap();
        let said = refused(directory.path(), &["report", "r"]);
        fs::write(&path, good).unwrap();
        said
    };
    assert!(spoil("manifest.json", b"{").starts_with("error: r/manifest.json is corrupt: "));
    assert!(spoil("curves.parquet", b"PAR1 and no more").starts_with("error: r/curves.parquet is corrupt: "));
    assert!(spoil("experiment.toml", b"horizon = ").contains("r/experiment.toml"));
    let other = fs::read(directory.path().join("r/agents.parquet")).unwrap();
    assert_eq!(
        spoil("messages.parquet", &other),
        "error: r/messages.parquet does not say what the cells say: the command that made these results writes it anew\n"
    );
}

#[test]
fn a_sweep_without_a_finished_cell_is_refused() {
    let directory = directory_with(SMALL);
    run(directory.path());
    for cell in 0..6 {
        fs::remove_file(directory.path().join(format!("r/cells/{cell:06}.json"))).unwrap();
    }
    let said = refused(directory.path(), &["report", "r"]);
    assert_eq!(said, "error: r holds no finished cell yet: there is nothing to report\n");
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let directory = directory_with(SMALL);
    run(directory.path());
    let said = refused(directory.path(), &["report", "r", "--out", "no/such/place.html"]);
    assert!(said.starts_with("error: cannot write no/such/place.html: "), "{said}");
    let taken = posse(directory.path(), &["report", "r", "--svg", "x.toml"]);
    assert_eq!(taken.code, 2);
    assert!(taken.stderr.starts_with("error: cannot create the directory x.toml"), "{}", taken.stderr);
}

#[test]
fn a_run_says_how_to_get_the_report() {
    let directory = directory_with(SMALL);
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "r"]);
    assert!(ran.stderr.ends_with("plots and tables: posse report r\n"), "{}", ran.stderr);
    let ran = posse(directory.path(), &["run", "x.toml"]);
    assert!(ran.stderr.contains("`posse report DIR` plots them"), "{}", ran.stderr);
}
