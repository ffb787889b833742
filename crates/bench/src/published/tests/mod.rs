//! Clones of our own with the names of the authors', and shells that play Python.

use std::fs;

use tempfile::TempDir;

use super::*;

const BOTH: [Suite; 2] = [Suite::Simulation, Suite::Families];
const SIZE: Size =
    Size { agents: 4, users: 8, clusters: 2, arms: 3, features: 5, shared: 2, interactions: 12 };

/// What stands for the scripts of Async-LinUCB.
const LINEAR: &str = include_str!("linear.py");

/// What stands for the script of FedGLB-UCB.
const CLICKS: &str = include_str!("clicks.py");

/// What stands for the scripts of Federated-Clustering-of-Bandits, and for its world.
const CLUSTERED: &str = include_str!("clustered.py");

/// A directory with all clones.
fn clones() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for repository in Repository::ALL {
        let clone = directory.path().join(repository.name());
        fs::create_dir(&clone).unwrap();
        fs::write(clone.join("conf.py"), "save_address = \"/there/is/no/such/place\"\n").unwrap();
        let text = match repository {
            Repository::AsyncLinUcb => LINEAR,
            Repository::FedGlbUcb => CLICKS,
            Repository::FederatedClustering => CLUSTERED,
        };
        for script in repository.scripts() {
            let file = clone.join(format!("{script}.py"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
    }
    directory
}

fn with_numpy() -> Option<OsString> {
    posse_testing::python("numpy").map(OsString::from)
}

#[test]
fn a_clone_runs_with_the_sizes_and_the_setting_of_the_row() {
    let Some(python) = with_numpy() else { return };
    let directory = clones();
    let published = Published::with(python, directory.path(), &BOTH).unwrap();
    assert!(!published.versions().numpy.is_empty() && published.versions().python.starts_with("3."));
    let (linear, clicks, clustered) = (Program::linear, Program::clicks, Program::clustered);
    for (program, regret, messages, scalars) in [
        (linear("AsyncLinUCB", 2.5), 2.5, Some(12), None),
        (linear("SyncLinUCB", 0.125), 0.125, Some(12), None),
        (linear("AsyncLinUCB_AM", 7.0), 7.0, Some(12), None),
        (clicks("FedGLB_UCB", 0.5), 0.5, None, Some(1200)),
        (clicks("FedGLB_UCB_v1", 63.0), 63.0, None, Some(1200)),
        (clicks("One_UCB_GLM", 0.0), 5.0, None, Some(1200)),
        (clustered("FCLUB", 0.0), 3.0, Some(12), None),
        (clustered("LDP_FCLUB_DC", 1.25), 1.25, Some(25), None),
    ] {
        let run = published.run(&program, &SIZE, 2.0).unwrap();
        assert_eq!((run.regret, run.interactions), (regret, 12), "{program:?}");
        assert_eq!((run.messages, run.scalars), (messages, scalars), "{program:?}");
        assert!(run.micros > 0.0 && run.algorithm_micros <= run.micros, "{run:?}");
        assert!((run.algorithm_ratio - run.algorithm_micros / 2.0).abs() < 1e-12, "{run:?}");
    }
    // A threshold without limit has to reach a program through JSON; as a regret it is refused.
    let error = published.run(&linear("AsyncLinUCB", f64::INFINITY), &SIZE, 2.0).unwrap_err().to_string();
    assert!(error.contains("Infinity") || error.contains("inf"), "{error}");
}

#[test]
fn what_the_world_of_clustered_users_takes_is_not_the_algorithms() {
    let Some(python) = with_numpy() else { return };
    let directory = clones();
    let published = Published::with(python, directory.path(), &BOTH).unwrap();
    let run = published.run(&Program::clustered("LDP_FCLUB_DC", 1.25), &SIZE, 2.0).unwrap();
    // Of three seconds of each step that the play says, two are the world's.
    assert!((run.micros - 3e6).abs() < 1e-3 && (run.algorithm_micros - 1e6).abs() < 1e-3, "{run:?}");
}

#[test]
fn a_package_that_python_lacks_is_named_before_anything_is_measured() {
    let Some(python) = with_numpy() else { return };
    let directory = clones();
    let script = directory.path().join("FedGLB-UCB/RunSyntheticDataset.py");
    fs::write(script, "from nosuchpackage import solvers\n").unwrap();
    let error = Published::with(python, directory.path(), &BOTH).unwrap_err().to_string();
    assert!(error.contains("FedGLB-UCB") && error.contains("No module named 'nosuchpackage'"), "{error}");
    assert!(error.ends_with("install it for this Python, or name another in the variable PYTHON"), "{error}");
}

#[test]
fn a_directory_that_is_not_there_or_has_no_clone_is_refused_with_what_to_clone() {
    let empty = tempfile::tempdir().unwrap();
    let open = |path: &Path, suites: &[Suite]| {
        format!("{:#}", Published::with("/there/is/no/python".into(), path, suites).unwrap_err())
    };
    let absent = open(&empty.path().join("nowhere"), &BOTH);
    assert!(absent.contains("cannot find") && absent.contains("nowhere"), "{absent}");
    let none = open(empty.path(), &BOTH);
    for url in Repository::ALL.map(Repository::url) {
        assert!(absent.contains(url) && none.contains(url), "{absent}\n{none}");
    }
    // A repository whose rows were not asked for is of no use.
    fs::create_dir(empty.path().join("Async-LinUCB")).unwrap();
    let other = open(empty.path(), &[Suite::Families]);
    assert!(other.contains("nothing to run") && !other.contains("Async-LinUCB"), "{other}");
    let without_script = open(empty.path(), &BOTH);
    assert!(without_script.contains("has no SimulationHomogeneousClients.py"), "{without_script}");
}

#[test]
fn a_python_that_is_not_there_is_an_error_that_names_the_variable() {
    let directory = clones();
    let error = Published::with("/there/is/no/python".into(), directory.path(), &BOTH).unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("cannot start /there/is/no/python") && text.contains("variable PYTHON"), "{text}");
}

#[test]
fn only_clones_that_are_there_have_programs() {
    let Some(python) = with_numpy() else { return };
    let directory = clones();
    fs::remove_dir_all(directory.path().join("FedGLB-UCB")).unwrap();
    let published = Published::with(python, directory.path(), &BOTH).unwrap();
    assert!(published.has(&Program::linear("AsyncLinUCB", 2.0)));
    assert!(!published.has(&Program::clicks("FedGLB_UCB", 2.0)));
}

/// Shells that play Python: what becomes of answers that no program should give.
#[cfg(unix)]
mod answers {
    use super::*;
    use crate::{Effort, Origin, clustered, simulated, simulated_clicks};

    /// What `run` says of a Python that answers every row with these commands of a shell.
    fn said(commands: &str) -> anyhow::Result<PublishedRun> {
        let directory = clones();
        played(&directory, commands).run(&Program::linear("AsyncLinUCB", 2.0), &SIZE, 1.0)
    }

    /// A script of a shell beside the clones.
    fn script(directory: &TempDir, text: &str) -> OsString {
        let path = directory.path().join("python");
        // Written by another process: while this one has a file open to write, no child of another test's may run it.
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod +x "$0""#;
        let written = Command::new("sh").args(["-c", write]).arg(&path).arg(text).status().unwrap();
        assert!(written.success());
        path.into()
    }

    /// The clones in `directory` with such a Python.
    fn played(directory: &TempDir, commands: &str) -> Published {
        // The fourth argument is the row; one that only asks for versions has no algorithm.
        let versions =
            r#"case "$4" in *algorithm*) ;; *) echo '{"python": "3.0", "numpy": "9.9"}'; exit;; esac"#;
        let python = script(directory, &format!("{versions}\n{commands}"));
        Published::with(python, directory.path(), &BOTH).unwrap()
    }

    fn answer(seconds: &str, algorithm: &str, interactions: u64) -> String {
        let numbers = format!(r#""interactions": {interactions}, "regret": 3.5, "communication": 7"#);
        format!(r#"echo '{{"seconds": {seconds}, "algorithm_seconds": {algorithm}, {numbers}}}'"#)
    }

    /// Commands that answer every row with as many interactions as it asks for.
    fn obedient() -> String {
        let interactions = r#"n=$(printf %s "$4" | sed 's/.*"interactions":\([0-9]*\).*/\1/')"#;
        let numbers = r#""interactions": '$n', "regret": 3.5, "communication": 7"#;
        let answer = format!(r#"echo '{{"seconds": 6.0, "algorithm_seconds": 3.0, {numbers}}}'"#);
        format!("{interactions}\n{answer}")
    }

    #[test]
    fn rows_are_from_this_run_where_there_is_a_clone_and_from_elsewhere_where_there_is_none() {
        let directory = clones();
        fs::remove_dir_all(directory.path().join("FedGLB-UCB")).unwrap();
        let published = played(&directory, &obedient());
        let rows = simulated(Effort::Quick, Some(&published)).unwrap();
        let (own, theirs): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.published_from.is_none());
        assert!(own.len() == 1 && own[0].name.starts_with("exchange") && own[0].ratio.is_none(), "{own:?}");
        assert_eq!(theirs.len(), 6);
        for row in theirs {
            let run = row.published_run.as_ref().unwrap();
            assert_eq!((row.published_from, run.interactions), (Some(Origin::ThisRun), row.interactions));
            let micros = 6e6 / row.interactions as f64;
            assert!(
                (run.micros - micros).abs() < 1e-9 && row.published_micros == Some(run.micros),
                "{row:?}"
            );
            assert!((row.ratio.unwrap() - micros / row.micros).abs() < 1e-9, "{row:?}");
            // Fewer interactions than in other rows are in the name.
            let short = row.name.starts_with("async-lin-ucb-am");
            assert_eq!(
                (row.interactions, row.name.ends_with(", 300")),
                (if short { 300 } else { 6000 }, short)
            );
        }
        for row in simulated_clicks(Effort::Quick, Some(&published)).unwrap() {
            assert_eq!((row.published_from, row.interactions), (Some(Origin::Elsewhere), 4000), "{row:?}");
            assert!(row.published_run.is_none() && row.ratio.is_some(), "{row:?}");
        }
    }

    #[test]
    fn rows_of_clustered_users_are_short_only_where_a_program_that_takes_long_is_there() {
        let directory = clones();
        let rows = clustered(Effort::Quick, Some(&played(&directory, &obedient()))).unwrap();
        for (row, (name, interactions)) in
            rows.iter().zip([("fclub-dc, threshold 1.01", 20_000), ("fclub, 2000", 2_000)])
        {
            let run = row.published_run.as_ref().unwrap();
            assert_eq!((row.name.as_str(), row.interactions), (name, interactions));
            assert_eq!((row.published_from, run.interactions), (Some(Origin::ThisRun), interactions));
            assert_eq!((run.messages, run.scalars), (Some(7), None), "{row:?}");
        }
        fs::remove_dir_all(directory.path().join(Repository::FederatedClustering.name())).unwrap();
        let without = played(&directory, &obedient());
        for published in [Some(&without), None] {
            let rows = clustered(Effort::Quick, published).unwrap();
            let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
            assert_eq!(names, ["fclub-dc, threshold 1.01", "fclub"]);
            for row in rows {
                assert_eq!((row.published_from, row.interactions), (Some(Origin::Elsewhere), 20_000));
                assert!(row.published_run.is_none() && row.ratio.is_some(), "{row:?}");
            }
        }
    }

    #[test]
    fn a_clone_is_left_as_it_was() {
        let Some(python) = with_numpy() else { return };
        let directory = clones();
        // The variable would keep Python from writing compiled files whatever its arguments say.
        let own = format!("exec env -u PYTHONDONTWRITEBYTECODE '{}' \"$@\"", python.display());
        let published = Published::with(script(&directory, &own), directory.path(), &BOTH).unwrap();
        let files = |path: &str| {
            let entries = fs::read_dir(directory.path().join(path)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort_unstable();
            names
        };
        published.run(&Program::linear("AsyncLinUCB", 2.0), &SIZE, 1.0).unwrap();
        assert_eq!(
            files("Async-LinUCB"),
            ["SimulationHeterogeneousClients.py", "SimulationHomogeneousClients.py", "conf.py"]
        );
        published.run(&Program::clustered("FCLUB", 0.0), &SIZE, 1.0).unwrap();
        let clone = "Federated-Clustering-of-Bandits";
        assert_eq!(files(clone), ["conf.py", "environment", "experiment"]);
        assert_eq!(files(&format!("{clone}/experiment")), ["FCLUB.py", "LDP_FCLUB_DC.py"]);
        assert_eq!(files(&format!("{clone}/environment")), ["Environment.py"]);
    }

    #[test]
    fn seconds_become_microseconds_of_an_interaction() {
        let run = said(&answer("0.000024", "0.000012", 12)).unwrap();
        assert!((run.micros - 2.0).abs() < 1e-12 && (run.algorithm_micros - 1.0).abs() < 1e-12, "{run:?}");
        assert_eq!((run.regret, run.messages), (3.5, Some(7)));
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_its_last_words() {
        let error =
            said("echo Traceback >&2; echo 'ValueError: singular' >&2; exit 1").unwrap_err().to_string();
        assert!(error.contains("AsyncLinUCB of ") && error.ends_with("ValueError: singular"), "{error}");
        let silent = said("exit 3").unwrap_err().to_string();
        assert!(silent.contains("exit status: 3") && silent.ends_with("no reason given"), "{silent}");
    }

    #[test]
    fn a_program_that_ends_without_an_answer_is_an_error() {
        let error = said("exit 0").unwrap_err().to_string();
        assert!(error.contains("is not what was asked for: ``"), "{error}");
    }

    #[test]
    fn nonsense_is_an_error_and_not_a_time() {
        let error = said("echo fast").unwrap_err().to_string();
        assert!(error.contains("is not what was asked for: `fast`"), "{error}");
        for (seconds, algorithm) in [("0.0", "0.0"), ("-1.0", "0.5"), ("1.0", "2.0"), ("1.0", "-1.0")] {
            let error = said(&answer(seconds, algorithm, 12)).unwrap_err().to_string();
            assert!(error.contains("that cannot be"), "{error}");
        }
    }

    #[test]
    fn a_program_that_did_less_work_is_an_error() {
        let error = said(&answer("1.0", "0.5", 11)).unwrap_err().to_string();
        assert!(error.ends_with("had 11 interactions instead of 12"), "{error}");
    }
}
