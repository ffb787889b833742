//! Privacy on the command line: the accountant's statement wherever results are shown, and plans.

use std::fs;

use serde_json::{Value, json};

use crate::command::{directory_with, posse};

const PRIVATE: &str = r#"
repetitions = 2
horizon = 400
agents = 2
[environment]
kind = "clustered"
users = 4
clusters = 2
dimension = 3
[[algorithm]]
name = "cdp-fclub-dc"
first_release = 20
epsilon = [1, 4]
[[algorithm]]
name = "fclub-dc"
"#;

#[test]
fn the_statement_is_on_the_terminal_in_the_json_in_the_results_and_in_the_report() {
    let directory = directory_with(PRIVATE);
    let at = directory.path();
    let shown = posse(at, &["run", "x.toml", "--out", "r", "-q"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let document = posse(at, &["run", "x.toml", "--json", "-q"]).json();
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(at.join("r/manifest.json")).unwrap()).unwrap();
    let statements = document["privacy"].as_array().unwrap();
    assert_eq!(statements.len(), 2, "a statement for each private setting and for no other");
    assert_eq!(manifest["privacy"], document["privacy"]);
    assert_eq!(posse(at, &["report", "r", "-q"]).code, 0);
    let page = fs::read_to_string(at.join("r/report.html")).unwrap();
    for (statement, budget) in statements.iter().zip([1.0, 4.0]) {
        assert_eq!((&statement["epsilon_budget"], &statement["runs"]), (&json!(budget), &json!(2)));
        let epsilon = statement["epsilon"].as_f64().unwrap();
        assert!(epsilon > 0.0 && epsilon <= budget, "{epsilon}");
        // The worst of its runs, in the words that people read.
        let of_rows = document["rows"].as_array().unwrap().iter().filter_map(|row| {
            let own = row["privacy"]["epsilon_budget"] == statement["epsilon_budget"];
            own.then(|| row["privacy"]["epsilon"].as_f64().unwrap())
        });
        assert_eq!(of_rows.fold(0.0, f64::max), epsilon);
        let line = format!("one interaction: ε = {epsilon:.3} of {budget} at δ = 1e-5");
        for text in [&shown.stdout, &page] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        let setting = statement["setting"].as_str().unwrap();
        assert!(shown.stdout.contains(&format!("\nprivacy of {setting}\n")) && page.contains(setting));
        for channel in statement["uncovered"].as_array().unwrap() {
            let escaped = channel.as_str().unwrap().replace('\'', "&#39;");
            assert!(page.contains(&format!("not covered: {escaped}")), "{channel}");
        }
    }
}

#[test]
fn where_nothing_is_private_nothing_is_claimed() {
    let public =
        PRIVATE.replace("cdp-fclub-dc", "homo-dc").replace("first_release = 20\nepsilon = [1, 4]\n", "");
    let directory = directory_with(&public);
    let at = directory.path();
    let shown = posse(at, &["run", "x.toml", "--out", "r", "-q"]);
    assert!(shown.code == 0 && !shown.stdout.contains("privacy of"), "{}", shown.stderr);
    assert_eq!(posse(at, &["run", "x.toml", "--json", "-q"]).json()["privacy"], json!([]));
    assert!(!fs::read_to_string(at.join("r/manifest.json")).unwrap().contains("\"guarantee\""));
    assert_eq!(posse(at, &["report", "r", "-q"]).code, 0);
    assert!(!fs::read_to_string(at.join("r/report.html")).unwrap().contains("id=\"privacy\""));
}

const PLAN: [&str; 10] =
    ["privacy", "plan", "--dimension", "10", "--agents", "50", "--interactions", "1e6", "--delta", "1e-5"];

#[test]
fn a_plan_says_what_a_promise_costs_before_anything_runs() {
    let directory = directory_with("");
    let plan = |more: &[&str]| posse(directory.path(), &[&PLAN[..], more].concat());
    let words = plan(&["--epsilon", "1"]);
    assert_eq!((words.code, words.stderr.as_str()), (0, ""));
    for line in [
        "promise ",
        "who adds ",
        "clusters ",
        "users ",
        "needed ",
        "verdict ",
        "suggested ",
        "what would help",
    ] {
        assert!(words.stdout.contains(&format!("\n{line}")) || words.stdout.starts_with(line), "{line}");
    }
    let noise = |more: &[&str]| {
        let document = plan(&[&["--json"], more].concat()).json();
        document["plan"]["calibration"]["cluster_noise"].as_f64().unwrap()
    };
    let usual = noise(&[]);
    assert!(usual > 1.5 * noise(&["--epsilon", "2"]), "more privacy, more noise");
    assert!(noise(&["--tree"]) > 2.0 * usual && noise(&["--splits"]) > 1.05 * usual);
    assert!((noise(&["--user-cap", "20"]) / usual - 20.0).abs() < 1e-6, "a user is that many interactions");
    let together = noise(&["--survivors", "26", "--colluders", "1"]);
    assert!((usual / together - 5.0).abs() < 1e-6, "25 agents add a fifth of the noise each");
    assert!(
        plan(&["--survivors", "26"]).stdout.contains("who adds    26 agents or more add the noise together")
    );
}

/// One function from settings to noise: what is planned is what the statement of the run has.
#[test]
fn a_plan_of_an_experiment_has_the_numbers_of_its_run() {
    let text = PRIVATE.replace(
        "[[algorithm]]\nname = \"fclub-dc\"",
        "[[algorithm]]\nname = \"async-lin-ucb\"\n[algorithm.privacy]\nmechanism = \"tree\"\nmax_releases = 7\nunit = \"user\"\n\
         [[algorithm]]\nname = \"sync-lin-ucb\"\n[algorithm.privacy]\nfirst_release = 20\n\
         [algorithm.secure_aggregation]\nsurvivors = 2\ncolluders = 0\n\
         [[algorithm]]\nname = \"fn-ucb\"\nhidden_width = 3\ntraining_steps = 2\n\
         privacy = { unit = \"agent\", max_releases = 2, epsilon = 3 }",
    );
    let directory = directory_with(&text);
    let at = directory.path();
    let plans = posse(at, &["privacy", "plan", "x.toml", "--json"]).json();
    let ran = posse(at, &["run", "x.toml", "--json", "-q"]).json();
    let (plans, statements) = (plans.as_array().unwrap(), ran["privacy"].as_array().unwrap());
    assert_eq!((plans.len(), statements.len()), (5, 5));
    for (plan, statement) in plans.iter().zip(statements) {
        assert_eq!(plan["setting"], statement["setting"]);
        assert_eq!(plan["plan"]["calibration"], statement["calibration"], "{}", plan["setting"]);
        assert_eq!(
            (&plan["request"]["unit"], &plan["request"]["epsilon"]),
            (&statement["unit"], &statement["epsilon_budget"])
        );
    }
    let who = |statement: &Value| statement["guarantee"].as_str().unwrap().to_owned();
    assert!(who(&statements[2]).ends_with("every agent adds all its noise before anything leaves it"));
    assert!(who(&statements[3]).contains("only sums of 2 agents or more, which add the noise together"));
    assert!(statements[3]["epsilon"].as_f64().unwrap() > 0.0, "sums were opened");
    let updates = (&statements[4]["unit"], &statements[4]["releases"]);
    assert_eq!(updates, (&json!("agent"), &json!(8)), "two updates of two agents in two runs");
    assert!((statements[4]["epsilon"].as_f64().unwrap() - 3.0).abs() < 1e-6, "all of it is spent");
    let words = posse(at, &["privacy", "plan", "x.toml"]).stdout;
    assert!(
        words.contains("for everything that one agent saw") && words.contains("the mean update is noise"),
        "{words}"
    );
    let words = posse(at, &["run", "x.toml", "-q"]).stdout;
    assert!(
        words.contains("one agent: ε = 3.000 of 3") && words.contains("8 updates of 4 agents over 2 runs"),
        "{words}"
    );
    assert!(plans[0]["plan"]["calibration"]["user_noise"].as_f64().unwrap() > 0.0, "clusters may split");
    assert_eq!(plans[2]["plan"]["calibration"]["user_noise"], json!(0.0), "they never do");
    let none = posse(
        directory_with(
            &PRIVATE.replace("cdp-fclub-dc", "homo-dc").replace("first_release = 20\nepsilon = [1, 4]\n", ""),
        )
        .path(),
        &["privacy", "plan", "x.toml"],
    );
    assert_eq!(none.code, 2);
    assert!(none.stderr.contains("is private"), "{}", none.stderr);
}

/// Three seeds of a small federation, with five ε, beside the algorithm without privacy.
#[test]
fn a_simulated_plan_shows_regret_against_epsilon() {
    let directory = directory_with(&PRIVATE.replace("epsilon = [1, 4]", "epsilon = 1"));
    let simulated = ["privacy", "plan", "x.toml", "--simulate", "--seeds", "2"];
    let plans = posse(directory.path(), &[&simulated[..], &["--json"]].concat()).json();
    let points = plans[0]["simulated"].as_array().unwrap().clone();
    let epsilons: Vec<Option<f64>> = points.iter().map(|point| point["epsilon"].as_f64()).collect();
    assert_eq!(epsilons, [Some(0.5), Some(1.0), Some(2.0), Some(4.0), Some(8.0), None]);
    let ran = posse(directory.path(), &["run", "x.toml", "--json", "-q"]).json();
    let mean = |name: &str| {
        let rows = ran["rows"].as_array().unwrap().iter().filter(|row| row["algorithm"] == name);
        rows.map(|row| row["regret"].as_f64().unwrap()).sum::<f64>() / 2.0
    };
    for (point, name) in [(&points[1], "cdp-fclub-dc"), (&points[5], "fclub-dc")] {
        let off = point["regret"].as_f64().unwrap() - mean(name);
        assert!(off.abs() < 1e-6, "{point} is not the mean of the runs of the experiment");
    }
    let without_a_file = posse(directory.path(), &[&PLAN[..], &["--simulate"]].concat());
    assert_eq!(without_a_file.code, 2);
    assert!(without_a_file.stderr.contains("name one"), "{}", without_a_file.stderr);
    let words = posse(directory.path(), &simulated);
    assert!(words.stdout.contains("regret by simulation, 2 seeds") && words.stdout.contains("ε = 8"));
}

#[test]
fn impossible_promises_are_refused_by_name() {
    let directory = directory_with("");
    for (flag, value) in
        [("--epsilon", "0"), ("--epsilon", "-1"), ("--delta", "0"), ("--delta", "1"), ("--releases", "0")]
    {
        let mut arguments: Vec<&str> = PLAN[..8].to_vec();
        let pair = format!("{flag}={value}");
        arguments.push(&pair);
        let ran = posse(directory.path(), &arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{pair}");
        let name = if flag == "--releases" { "max_releases" } else { &flag[2..] };
        assert!(ran.stderr.contains(name), "{pair}: {}", ran.stderr);
    }
    for (name, value) in [("epsilon", "0"), ("delta", "1.5"), ("reward_bound", "-1")] {
        let text = PRIVATE.replace("epsilon = [1, 4]", &format!("{name} = {value}"));
        let directory = directory_with(&text);
        let ran = posse(directory.path(), &["run", "x.toml", "-q"]);
        assert_eq!(ran.code, 2, "{name}");
        assert!(ran.stderr.contains(name) && ran.stderr.contains("x.toml"), "{name}: {}", ran.stderr);
    }
}
