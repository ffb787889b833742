//! `posse data`, and experiments with what it makes.

use std::path::Path;

use crate::command::{Ran, posse};

/// A made-up table: the class says on which side of 5 the first number lies.
fn table() -> String {
    let rows = (0..600).map(|row| {
        let (x, colour) = (row % 10, ["red", "green"][row % 2]);
        format!("{x},{colour},{}\r\n", if x < 5 { "low" } else { "high" })
    });
    format!("x,colour,side\r\n{}", rows.collect::<String>())
}

fn prepared() -> (tempfile::TempDir, Ran) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("own.csv"), table()).unwrap();
    let ran = prepare(directory.path(), &[]);
    (directory, ran)
}

fn prepare(directory: &Path, more: &[&str]) -> Ran {
    let mut arguments = vec!["data", "prepare", "table", "--raw", "own.csv", "--out", "own"];
    arguments.extend(["--label", "side", "--categorical", "colour"]);
    arguments.extend(more);
    posse(directory, &arguments)
}

/// What preparing printed to be put into an experiment.
fn environment(ran: &Ran) -> &str {
    &ran.stdout[ran.stdout.find("[environment]").unwrap()..]
}

fn run(directory: &Path, environment: &str) -> Ran {
    let text = format!("horizon = 500\nagents = 3\n{environment}[[algorithm]]\nname = \"async-lin-ucb\"\n");
    std::fs::write(directory.join("x.toml"), text).unwrap();
    posse(directory, &["run", "x.toml", "--json", "--quiet"])
}

#[test]
fn what_prepare_prints_is_an_environment_that_runs() {
    let (directory, ran) = prepared();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("own (table): 2 classes, 3 features, 600 rows\n"), "{}", ran.stdout);
    let ran = run(directory.path(), environment(&ran));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document = ran.json();
    let row = &document["rows"][0];
    assert_eq!(row["environment"]["data"], "own");
    // Guessing would be right about 250 times of 500.
    assert!(row["reward"].as_f64().unwrap() > 350.0, "{}", row["reward"]);
}

#[test]
fn clusters_are_arms() {
    let (directory, _) = prepared();
    let ran = prepare(directory.path(), &["--clusters", "4", "--target", "low", "--force"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ran = run(directory.path(), environment(&ran));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.json()["rows"][0]["reward"].as_f64().unwrap() > 300.0);
}

#[test]
fn prepared_data_can_be_inspected_and_verified() {
    let (directory, _) = prepared();
    let ran = posse(directory.path(), &["data", "inspect", "own"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("\nrows by class\n  high  300  ####"), "{}", ran.stdout);
    let document = posse(directory.path(), &["data", "inspect", "own", "--json"]).json();
    assert_eq!(document["manifest"]["counts"]["rows"], 600);
    assert_eq!(posse(directory.path(), &["data", "verify", "own"]).code, 0);
    std::fs::write(directory.path().join("own/rows.parquet"), "damage").unwrap();
    let ran = posse(directory.path(), &["data", "verify", "own"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.starts_with("BROKEN  own/rows.parquet: "), "{}", ran.stdout);
}

#[test]
fn prepared_data_is_not_overwritten_by_accident() {
    let (directory, _) = prepared();
    let ran = prepare(directory.path(), &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error: own: there is something already"), "{}", ran.stderr);
    assert_eq!(prepare(directory.path(), &["--force"]).code, 0);
}

#[test]
fn a_bad_file_is_shown_where_it_is_bad_and_leaves_nothing() {
    let word = table().replacen("\r\n7,", "\r\nseven,", 1);
    let unlabelled = table().replacen("8,red,high", "8,red,", 1);
    let all_high = table().replace("low", "high");
    let remedy = "correct it, or name a column of words in --categorical";
    for (text, expected) in [
        (word, format!("own.csv, line 9, column 1 (x): \"seven\" is not a finite number: {remedy}")),
        (
            table().replacen("\r\n7,", "\r\n,", 1),
            "own.csv, line 9, column 1 (x): \"\" is not a finite number: fill it in, or say with --missing what \
             stands for it"
                .into(),
        ),
        (
            unlabelled,
            "own.csv, line 10, column 3 (side): \"\" is not a class: fill it in, or leave the row out".into(),
        ),
        (
            table().replacen("side", "half", 1),
            "own.csv, line 1: there is no column `side`; there are x, colour, half".into(),
        ),
        (all_high, "own.csv: all rows are of class \"high\": there is nothing to choose; is --label right?".into()),
    ] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("own.csv"), text).unwrap();
        let ran = prepare(directory.path(), &[]);
        assert_eq!((ran.code, ran.stderr), (2, format!("error: {expected}\n")));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

/// Networks take what tables give: any number of classes, and features of words.
#[test]
fn a_table_of_ones_own_can_be_learned_by_networks() {
    let (directory, ran) = prepared();
    let learners = ["fn-ucb", "neural-ucb", "neural-ts", "kernel-ucb", "kernel-ts"];
    let algorithms = learners.map(|name| format!("[[algorithm]]\nname = \"{name}\"\n")).concat();
    let text = format!("horizon_each = 60\nagents = 2\n{}{algorithms}", environment(&ran));
    std::fs::write(directory.path().join("x.toml"), text).unwrap();
    let ran = posse(directory.path(), &["run", "x.toml", "--json", "--quiet"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for row in ran.json()["rows"].as_array().unwrap() {
        let (regret, reward) = (row["regret"].as_f64().unwrap(), row["reward"].as_f64().unwrap());
        assert_eq!(regret + reward, 120.0, "{}: one arm pays 1, the others nothing", row["id"]);
        assert_eq!(row["failed_trainings"], 0);
    }
}

#[test]
fn every_known_set_is_listed_with_its_terms() {
    let directory = tempfile::tempdir().unwrap();
    let sets = posse(directory.path(), &["data", "list", "--json"]).json();
    let list = posse(directory.path(), &["data", "list"]).stdout;
    for set in sets.as_array().unwrap() {
        let name = set["name"].as_str().unwrap();
        assert!(list.contains(&format!("  {name} ")), "{name}");
        let one = posse(directory.path(), &["data", "list", name]).stdout;
        for key in ["licence", "address"] {
            assert!(one.contains(set[key].as_str().unwrap()), "{name} {key}");
        }
        let ran = posse(directory.path(), &["data", "prepare", name, "--raw", ".", "--out", "x"]);
        assert_eq!(ran.code, 2, "{name}");
        assert!(ran.stderr.contains(&format!("{name} comes from https://")), "{}", ran.stderr);
    }
    let ran = posse(directory.path(), &["data", "list", "shutle"]);
    assert_eq!(ran.stderr, "error: unknown data set \"shutle\": did you mean `shuttle`?\n");
}

#[test]
fn an_experiment_without_its_data_says_what_is_missing() {
    let (directory, ran) = prepared();
    let good = environment(&ran);
    let hash = good.lines().find(|line| line.starts_with("hash")).unwrap();
    for (environment, expected) in [
        (
            good.replace("\"own\"", "\"nowhere\""),
            "nowhere: this is no prepared data: there is no such directory",
        ),
        (good.replace(hash, "hash = \"0123456789abcdef\""), "own: the content hash is "),
        (good.replace(hash, ""), "own: add hash = \""),
        (good.replace("classification", "clustered-arms"), "data that was prepared for this kind of world"),
        ("[environment]\nkind = \"classification\"\n".into(), "`data` is not set"),
    ] {
        let ran = run(directory.path(), &environment);
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}

/// The repository's made-up log, prepared as the guide says.
fn shop() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let guides = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/data");
    for file in ["shop.csv", "items.csv"] {
        std::fs::copy(guides.join(file), directory.path().join(file)).unwrap();
    }
    let columns = ["--action", "item", "--reward", "bought", "--propensity", "propensity"];
    let more = ["--user", "customer", "--agent", "region", "--time", "time", "--context", "age"];
    let mut arguments = vec!["data", "prepare", "log", "--raw", "shop.csv", "--out", "shop"];
    arguments.extend(columns.iter().chain(&more));
    let ran = posse(directory.path(), &arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.starts_with("shop (log): 3 agents, 5 items, 5 items taken, 2000 rows, 120 users\n"),
        "{}",
        ran.stdout
    );
    directory
}

#[test]
fn the_log_of_the_guide_can_be_evaluated_and_learning_pays() {
    let directory = shop();
    let evaluate =
        ["evaluate", "shop", "--algorithm", "async-lin-ucb", "--set", "threshold=2", "--agents", "3"];
    let by = ["--by", "agent"];
    let ran = posse(directory.path(), &[&evaluate[..], &by].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // The guide shows the table that is printed; the line before it counts bytes, which the wire format decides.
    let (_, table) = ran.stdout.trim_end().split_once("\n\n").unwrap();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/bring-your-own-data.md");
    assert!(std::fs::read_to_string(guide).unwrap().contains(table), "{}", ran.stdout);
    let found = posse(directory.path(), &[&evaluate[..], &by, &["--json"]].concat()).json();
    let value = |name: &str| found["estimates"][name]["value"].as_f64().unwrap();
    let logged = found["logged"].as_f64().unwrap();
    for name in ["ips", "snips", "dr"] {
        assert!(value(name) > 1.2 * logged, "{name}: {found}");
    }
    let bootstrap =
        posse(directory.path(), &[&evaluate[..], &["--bootstrap", "200", "--json"]].concat()).json();
    assert!(bootstrap["estimates"]["dr"]["low"].as_f64() < bootstrap["estimates"]["dr"]["value"].as_f64());
    let replayed = posse(directory.path(), &[&evaluate[..], &["--replay", "--json"]].concat()).json();
    assert!(replayed["matched"].as_u64().unwrap() > 100);
}

#[test]
fn a_log_that_says_little_is_a_warning_and_wrong_arguments_are_errors() {
    let directory = shop();
    let evaluate = |more: &[&str]| {
        posse(directory.path(), &[&["evaluate", "shop", "--algorithm", "lin-ucb"], more].concat())
    };
    let ran = evaluate(&["--learn", "0.97"]);
    assert_eq!(ran.code, 0);
    assert!(ran.stderr.starts_with("warning: only "), "{}", ran.stderr);
    for (arguments, expected) in [
        (["--by", "moon"], "error: --by moon: one of user, agent, row\n"),
        (["--level", "1.5"], "error: --level 1.5: between 0 and 1\n"),
        (["--agents", "0"], "error: there must be at least one agent\n"),
        (
            ["--learn", "1"],
            "error: the share to learn from must be from 0 to below 1, exploration from 0 to 1\n",
        ),
        (
            ["--set", "gamma=1"],
            "error: --set gamma: lin-ucb has no such setting; `posse algorithms lin-ucb` lists them\n",
        ),
        (["--set", "noise"], "error: --set noise: write KEY=VALUE\n"),
    ] {
        let ran = evaluate(&arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (2, expected));
    }
    let ran = posse(directory.path(), &["evaluate", "nowhere", "--algorithm", "lin-ucb"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (2, "error: nowhere: this is no prepared data: there is no such directory\n")
    );
}

#[test]
fn arms_of_a_log_can_have_the_features_of_their_items() {
    let directory = shop();
    let columns = ["--action", "item", "--reward", "bought", "--items", "items.csv"];
    let ran = posse(
        directory.path(),
        &[&["data", "prepare", "log", "--raw", "shop.csv", "--out", "plain"], &columns[..]].concat(),
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let inspected = posse(directory.path(), &["data", "inspect", "plain"]).stdout;
    assert!(
        inspected.contains("rows by reward") && inspected.contains("items.parquet: 5 rows, 6 columns"),
        "{inspected}"
    );
    assert_eq!(
        posse(directory.path(), &["evaluate", "plain", "--algorithm", "async-lin-ts", "--agents", "2"]).code,
        0
    );
}

#[test]
fn ratings_become_a_world_that_runs() {
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("raw");
    std::fs::create_dir(&raw).unwrap();
    let ratings: String =
        (0..600u32).map(|at| format!("{},{},4.0,{at}\n", at / 30, (at * 7 + at / 30) % 90)).collect();
    std::fs::write(raw.join("ratings.csv"), format!("userId,movieId,rating,timestamp\n{ratings}")).unwrap();
    let films: String = (0..90)
        .map(|film| format!("{film},Film {film},{}\n", ["Drama|War", "Comedy", "Horror"][film % 3]))
        .collect();
    std::fs::write(raw.join("movies.csv"), format!("movieId,title,genres\n{films}")).unwrap();
    std::fs::write(raw.join("tags.csv"), "userId,movieId,tag,timestamp\n1,2,slow,0\n").unwrap();
    let ran = posse(
        directory.path(),
        &["data", "prepare", "ml-20m", "--raw", "raw", "--out", "ml", "--dimension", "3"],
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: 20 users, published are 138493"), "{}", ran.stderr);
    let experiment = |horizon: u32, more: &str| {
        let text = format!(
            "horizon = {horizon}\nagents = 20\n{}arms = 5\n{more}[[algorithm]]\nname = \"lin-ucb\"\n",
            environment(&ran)
        );
        std::fs::write(directory.path().join("x.toml"), text).unwrap();
        posse(directory.path(), &["run", "x.toml", "--json", "--quiet"])
    };
    let row = experiment(600, "").json()["rows"][0].clone();
    let random = row["random_reward"].as_f64().unwrap();
    assert!((random - 120.0).abs() < 1e-9, "{row}");
    assert_eq!(row["normalised_reward"], row["reward"].as_f64().unwrap() / random);
    let too_long = experiment(601, "");
    assert!(too_long.stderr.contains("the data has fewer interactions"), "{}", too_long.stderr);
    let arrival = experiment(600, "[arrival]\nkind = \"zipf\"\n");
    assert!(arrival.stderr.contains("arrivals of their own"), "{}", arrival.stderr);
}

#[test]
fn users_come_from_who_liked_what() {
    let directory = tempfile::tempdir().unwrap();
    let likes = (0..30).flat_map(|user| {
        (0..8).filter(move |item| item % 2 == user % 2).map(move |item| format!("u{user},i{item}\n"))
    });
    std::fs::write(directory.path().join("likes.csv"), format!("who,what\n{}", likes.collect::<String>()))
        .unwrap();
    let prepare = |more: &[&str]| {
        let mut arguments =
            vec!["data", "prepare", "ratings", "--raw", "likes.csv", "--out", "likes", "--quiet"];
        arguments.extend(more);
        posse(directory.path(), &arguments)
    };
    let ran = prepare(&["--user", "who"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("--user and --item"), "{}", ran.stderr);
    let ran = prepare(&["--user", "who", "--item", "what", "--user-clusters", "2", "--dimension", "3"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.starts_with("likes (users): 2 clusters, 8 items, 120 pairs, 30 users\n"),
        "{}",
        ran.stdout
    );
    let text = format!(
        "horizon = 3000\nagents = 3\n{}[[algorithm]]\nname = \"fclub-dc\"\nnoise = 0.5\n",
        environment(&ran)
    );
    std::fs::write(directory.path().join("x.toml"), text).unwrap();
    let ran = posse(directory.path(), &["run", "x.toml", "--json", "--quiet"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document = ran.json();
    let row = &document["rows"][0];
    assert_eq!(
        (&row["environment"]["kind"], &row["environment"]["users"]),
        (&"clustered-users".into(), &serde_json::Value::Null)
    );
    assert!(row["regret"].as_f64().unwrap() > 0.0 && row["rand_index"].is_number());
}

/// Cells of an interrupted run keep the hash of what they read; another content under the same path is refused.
#[test]
fn a_run_does_not_go_on_with_other_data_and_a_report_needs_none() {
    let (directory, _) = prepared();
    let text = "horizon = 60\nagents = 2\nrepetitions = 3\n[environment]\nkind = \"classification\"\n\
                data = \"own\"\nhash = \"any\"\n[[algorithm]]\nname = \"lin-ucb\"\n";
    std::fs::write(directory.path().join("x.toml"), text).unwrap();
    let run = ["run", "x.toml", "--out", "r", "-q"];
    assert_eq!(posse(directory.path(), &run).code, 0);
    let manifest = |file: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(directory.path().join(file)).unwrap()).unwrap()
    };
    let hash = manifest("own/manifest.json")["hash"].as_str().unwrap().to_owned();
    let kept = manifest("r/manifest.json");
    assert_eq!(kept["data"][0]["hash"], hash.as_str());
    assert_eq!(kept["data"][0]["files"][0]["file"], "own.csv");
    assert_eq!(
        kept["config"]["environment"]["hash"],
        hash.as_str(),
        "the kept experiment names what was read"
    );
    let cell = directory.path().join("r/cells/000001.json");
    let stored = std::fs::read_to_string(&cell).unwrap();
    assert!(stored.contains(&format!("\"data\":\"{hash}\"")), "{stored}");

    // Other content under the same path, with a cell still to be run.
    std::fs::remove_file(&cell).unwrap();
    std::fs::write(directory.path().join("own.csv"), table().replace("9,green,high", "9,green,low")).unwrap();
    assert_eq!(prepare(directory.path(), &["--force"]).code, 0);
    let other = manifest("own/manifest.json")["hash"].as_str().unwrap().to_owned();
    let ran = posse(directory.path(), &run);
    assert_eq!(ran.code, 2);
    let changed = format!("the data in own had the hash {}, now {}", &hash[..12], &other[..12]);
    assert!(ran.stderr.contains(&changed), "{}", ran.stderr);

    // A report speaks of what was read, also when the data is another or gone.
    std::fs::remove_dir_all(directory.path().join("own")).unwrap();
    std::fs::write(&cell, &stored).unwrap();
    let ran = posse(directory.path(), &["report", "r"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let page = std::fs::read_to_string(directory.path().join("r/report.html")).unwrap();
    assert!(page.contains(&hash) && !page.contains(&other));

    // A cell that was put there from another run is not believed.
    std::fs::write(&cell, resealed(&stored.replace(&hash, &other))).unwrap();
    let ran = posse(directory.path(), &["report", "r"]);
    assert!(ran.stderr.contains("was made from other data, with the hash"), "{}", ran.stderr);
}

/// A file of a cell with the checksum that its document has.
fn resealed(stored: &str) -> String {
    let document = stored.lines().next().unwrap();
    let sum = document.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{document}\n{sum:016x}\n")
}
