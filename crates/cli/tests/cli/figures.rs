//! `[[figure]]`: the report and the terminal show what the experiment says.

use std::fs;

use crate::command::{directory_with, posse};

const SWEEP: &str = r#"
repetitions = 2
horizon = 80
agents = 4
[environment]
dimension = 3
[[algorithm]]
name = "lin-ucb"
[[algorithm]]
name = "async-lin-ucb"
threshold = [1.5, 2, 5]
"#;

fn with_figure(figure: &str) -> tempfile::TempDir {
    directory_with(&format!("{SWEEP}[[figure]]\n{figure}"))
}

#[test]
fn the_report_begins_with_the_figure_of_the_experiment() {
    let directory = with_figure(
        "title = \"Reward\"\nx = \"messages\"\ny = \"normalised_reward\"\nx_scale = \"log\"\ny_scale = \"linear\"\n\
         published = [{ name = \"them\", points = [[30, 1.5], [60, 1.25]] }]\n",
    );
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.lines().next().unwrap().contains("normalised reward"), "{}", ran.stdout);
    assert_eq!(posse(directory.path(), &["report", "r", "-q", "--svg", "s"]).code, 0);
    let page = fs::read_to_string(directory.path().join("r/report.html")).unwrap();
    let (first, usual) = (page.find("id=\"figure-1\"").unwrap(), page.find("id=\"over-time\"").unwrap());
    assert!(first < usual && page.contains("<h2>Reward</h2>"));
    let svg = fs::read_to_string(directory.path().join("s/figure-1-messages.svg")).unwrap();
    assert!(
        svg.contains("reward, as a multiple of choosing at random") && svg.contains("published: them"),
        "{svg}"
    );
    assert!(svg.contains("data-x-log=\"true\"") && svg.contains("data-y-log=\"false\""));
    // The same in other units of communication, where the published numbers have no place.
    let bytes = fs::read_to_string(directory.path().join("s/figure-1-bytes.svg")).unwrap();
    assert!(bytes.contains("bytes sent, both ways") && !bytes.contains("published"));
}

#[test]
fn a_figure_may_run_along_a_setting_or_over_time() {
    for (figure, file, axis) in [
        ("x = \"threshold\"\ny = \"messages\"\n", "figure-1-messages", ">threshold<"),
        ("x = \"interactions\"\ny = \"bytes\"\n", "figure-1-bytes", "interactions, all agents together"),
        (
            "x = \"rounds\"\ny = \"regret\"\nwhere = { algorithm = \"async-lin-ucb\" }\n",
            "figure-1-rounds",
            ">rounds<",
        ),
    ] {
        let directory = with_figure(figure);
        assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]).code, 0);
        assert_eq!(posse(directory.path(), &["report", "r", "-q", "--svg", "s", "--dark"]).code, 0);
        let svg = fs::read_to_string(directory.path().join(format!("s/{file}.svg"))).unwrap();
        assert!(svg.contains(axis), "{figure}: {svg}");
        assert!(svg.contains("fill=\"#14171b\""), "on black");
    }
}

/// One of two worlds: what is the same all over the figure does not stand in its names.
#[test]
fn a_figure_may_show_one_value_of_a_swept_setting() {
    let sweep = SWEEP.replace("dimension = 3", "dimension = [3, 4]");
    let figure = "[[figure]]\nx = \"messages\"\ny = \"regret\"\nwhere = { dimension = 4 }\n";
    let directory = directory_with(&format!("{sweep}{figure}"));
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]).code, 0);
    assert_eq!(posse(directory.path(), &["report", "r", "-q", "--svg", "s"]).code, 0);
    let svg = fs::read_to_string(directory.path().join("s/figure-1-messages.svg")).unwrap();
    assert!(svg.contains(">async-lin-ucb<") && !svg.contains("dimension"), "{svg}");
    // Three thresholds of one world, and the mark in the legend.
    assert_eq!(svg.matches("class=\"mark\"").count(), 4, "{svg}");
    for (wrong, expected) in [
        ("where = { dimensions = 4 }", "no group is told apart by `dimensions`"),
        ("where = { dimension = 5 }", "`dimension` is 5: expected a value that the setting takes here"),
    ] {
        let directory =
            directory_with(&format!("{sweep}{}", figure.replace("where = { dimension = 4 }", wrong)));
        let ran = posse(directory.path(), &["run", "x.toml"]);
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{}", ran.stderr);
    }
}

#[test]
fn a_figure_along_a_setting_shows_algorithms_without_it_as_levels() {
    let directory = with_figure("x = \"threshold\"\ny = \"regret\"\n");
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]).code, 0);
    assert_eq!(posse(directory.path(), &["report", "r", "-q", "--svg", "s"]).code, 0);
    let svg = fs::read_to_string(directory.path().join("s/figure-1-regret.svg")).unwrap();
    assert!(svg.contains(">async-lin-ucb<") && svg.contains(">lin-ucb<"), "{svg}");
}

#[test]
fn a_figure_can_be_added_to_results_that_are_there() {
    let directory = directory_with(SWEEP);
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]).code, 0);
    let more = format!("{SWEEP}[[figure]]\nx = \"messages\"\ny = \"reward\"\n");
    fs::write(directory.path().join("x.toml"), more).unwrap();
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "r"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("8 of 8 cells are there already"), "{}", ran.stderr);
}

#[test]
fn mistakes_of_all_steps_are_shown_together() {
    let text = "agents = 3\nhorizon = 0\nrepetition = 2\n[environment]\nnoise = -1\n[[algorithm]]\nname = \"lin-ucb\"\n\
                [[check]]\nkind = \"range\"\nmetric = \"regrets\"\nlow = 0\n[[figure]]\nx = \"messages\"\ny = \"rewards\"\n";
    let directory = directory_with(text);
    let ran = posse(directory.path(), &["run", "x.toml"]);
    assert_eq!(ran.code, 2);
    for expected in [
        "unknown key `repetition`",
        "`horizon` is 0",
        "`noise` is -1",
        "`metric` is \"regrets\"",
        "`y` is \"rewards\"",
    ] {
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    }
    assert_eq!(ran.stderr.matches("error: ").count(), 5, "{}", ran.stderr);
}
