//! Parquet files read back as text, for comparison.

use std::fs::File;
use std::path::Path;

use posse_data::parquet_file::{Kind, Reader, Values};
use serde_json::Value;

use crate::command::{directory_with, posse};

/// Columns with their values as text; numbers to the last bit.
pub(crate) type Columns = Vec<(String, Vec<String>)>;

/// Everything in a Parquet file.
pub(crate) fn read(path: &Path) -> Columns {
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let mut columns: Columns =
        (0..reader.width()).map(|column| (reader.name(column).to_owned(), Vec::new())).collect();
    while let Some(rows) = reader.next_rows(1000).unwrap() {
        for ((_, texts), values) in columns.iter_mut().zip(rows) {
            let values = values.expect("a type that posse writes");
            texts.extend((0..values.len()).map(|row| value(&values, row)));
        }
    }
    columns
}

/// The same without the clock.
pub(crate) fn read_timeless(path: &Path) -> Columns {
    let mut columns = read(path);
    columns.retain(|(name, _)| name != "seconds");
    columns
}

/// The values of a column.
pub(crate) fn column<'c>(columns: &'c Columns, name: &str) -> &'c [String] {
    &columns.iter().find(|(own, _)| own == name).unwrap_or_else(|| panic!("no column {name}")).1
}

fn value(values: &Values, row: usize) -> String {
    let text = match values {
        Values::Text(values) => values[row].clone(),
        Values::Whole(values) => values[row].map(|value| value.to_string()),
        Values::Number(values) => values[row].map(|value| format!("{value:?}")),
        Values::Switch(values) => values[row].map(|value| value.to_string()),
    };
    text.unwrap_or_default()
}

const MIXED: &str = r#"
horizon = 500
agents = 6
repetitions = 2
[environment]
dimension = 3
[arrival]
kind = ["uniform", "zipf"]
[[algorithm]]
name = "async-lin-ucb"
threshold = [2, inf]
[[algorithm]]
name = "sync-lin-ucb"
"#;

#[test]
fn agents_and_kinds_of_messages_add_up_to_the_summary() {
    let directory = directory_with(MIXED);
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]).code, 0);
    let [summary, agents, messages] = ["summary", "agents", "messages"]
        .map(|name| read(&directory.path().join(format!("r/{name}.parquet"))));
    let number =
        |columns: &Columns, name: &str, row: usize| column(columns, name)[row].parse::<f64>().unwrap();
    for (cell, id) in column(&summary, "id").iter().enumerate() {
        let rows = |columns: &Columns| -> Vec<usize> {
            let ids = column(columns, "id");
            (0..ids.len()).filter(|row| ids[*row] == *id).collect()
        };
        for row in rows(&agents).into_iter().filter(|row| column(&agents, "metric")[*row] == "regret") {
            let total = 6.0 * number(&agents, "mean", row);
            assert!((total - number(&summary, "regret", cell)).abs() < 1e-9 * total);
            let names = ["min", "q05", "q10", "q25", "median", "q75", "q90", "q95", "max"];
            let quantiles = names.map(|name| number(&agents, name, row));
            assert!(quantiles.is_sorted());
        }
        for (way, total) in [("up", "bytes_up"), ("down", "bytes_down")] {
            let own = rows(&messages).into_iter().filter(|row| column(&messages, "direction")[*row] == way);
            let sum: f64 = own.map(|row| number(&messages, "bytes", row)).sum();
            assert_eq!(sum, number(&summary, total, cell));
        }
    }
}

#[test]
fn curves_of_groups_of_agents_are_there_when_asked_for() {
    let directory = directory_with(
        &MIXED
            .replace("[[algorithm]]\nname = \"async", "[curves]\ngroups = 3\n[[algorithm]]\nname = \"async"),
    );
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]).code, 0);
    let curves = read(&directory.path().join("r/curves.parquet"));
    let mut names: Vec<&str> = column(&curves, "agents").iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["1 of 3 by activity", "2 of 3 by activity", "3 of 3 by activity", "all"]);
    let place = |agents: &str| {
        let mut rows = 0..column(&curves, "id").len();
        let last =
            |row: &usize| column(&curves, "agents")[*row] == agents && column(&curves, "step")[*row] == "500";
        rows.find(last).unwrap()
    };
    let whole: f64 = column(&curves, "regret")[place("all")].parse().unwrap();
    let parts = names[..3].iter().map(|name| column(&curves, "regret")[place(name)].parse::<f64>().unwrap());
    assert!((parts.sum::<f64>() - whole).abs() < 1e-9);
    assert_eq!(column(&curves, "rounds")[place("1 of 3 by activity")], "");
}

#[test]
fn the_summary_has_every_setting_and_metric_in_columns_of_their_own() {
    let directory = directory_with(MIXED);
    let rows = posse(directory.path(), &["run", "x.toml", "--out", "r", "--json", "-q"]).json();
    let rows = rows["rows"].as_array().unwrap();
    let summary = read(&directory.path().join("r/summary.parquet"));
    let names: Vec<&str> = summary.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..8], ["id", "group", "experiment", "quick", "algorithm", "seed", "agents", "horizon"]);
    assert_eq!(names.last(), Some(&"seconds"));
    assert_eq!(column(&summary, "algorithm.upload_threshold")[..3], ["2.0", "2.0", "inf"]);
    assert_eq!(column(&summary, "algorithm.round_threshold")[0], "");
    assert_eq!(column(&summary, "environment.drift.period")[0], "");
    assert_eq!(column(&summary, "environment.kind")[0], "linear");
    assert!(column(&summary, "arrival.kind").contains(&"zipf".to_owned()));
    assert_eq!(rows.len(), column(&summary, "id").len());
    for (index, row) in rows.iter().enumerate() {
        let mut metrics = 0;
        for (key, value) in row.as_object().unwrap().iter().filter(|(key, _)| names.contains(&key.as_str())) {
            let written = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) if number.is_f64() => format!("{:?}", number.as_f64().unwrap()),
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            assert_eq!(column(&summary, key)[index], written, "{key}");
            metrics += usize::from(value.is_number());
        }
        assert!(metrics > 15, "{metrics} numbers of {row}");
    }
    for row in rows {
        let name = row["algorithm"].as_str().unwrap();
        let listed = posse(directory.path(), &["algorithms", name, "--json"]).json();
        let keys: Vec<&str> = listed["settings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|setting| setting["key"].as_str().unwrap())
            .collect();
        // A table has a column for each setting in it, and none of its own; `threshold` is a shorthand.
        let is_table = |key: &str| keys.iter().any(|other| other.starts_with(&format!("{key}.")));
        for key in keys.iter().filter(|key| **key != "threshold" && !is_table(key)) {
            assert!(names.contains(&format!("algorithm.{key}").as_str()), "{name} {key}");
        }
    }
}

#[test]
fn curves_end_where_the_summary_is() {
    let directory = directory_with(MIXED);
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]).code, 0);
    let summary = read(&directory.path().join("r/summary.parquet"));
    let curves = read(&directory.path().join("r/curves.parquet"));
    let (ids, steps) = (column(&curves, "id"), column(&curves, "step"));
    for (index, id) in column(&summary, "id").iter().enumerate() {
        let own: Vec<usize> = (0..ids.len()).filter(|row| ids[*row] == *id).collect();
        assert!((30..=61).contains(&own.len()));
        let last = own[own.len() - 1];
        assert_eq!((steps[own[0]].as_str(), steps[last].as_str()), ("1", "500"));
        for metric in ["regret", "reward", "messages", "scalars_down", "bytes_up", "lost_observations"] {
            assert_eq!(column(&curves, metric)[last], column(&summary, metric)[index]);
        }
    }
}

#[test]
fn a_horizon_of_each_agent_is_stored_as_that_of_all_and_regret_per_agent_beside_it() {
    let text = "repetitions = 2\nhorizon_each = 40\nagents = [1, 3]\n[curves]\ngroups = 3\n\
                [[algorithm]]\nname = \"sync-lin-ucb\"\n[[algorithm]]\nname = \"lin-ucb\"\nagents = 2\n";
    let directory = directory_with(text);
    let ran = posse(directory.path(), &["run", "x.toml", "--out", "r", "-q"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let summary = read(&directory.path().join("r/summary.parquet"));
    assert_eq!(column(&summary, "agents"), ["1", "1", "3", "3", "2", "2"]);
    assert_eq!(column(&summary, "horizon"), ["40", "40", "120", "120", "80", "80"]);
    assert_eq!(column(&summary, "group")[4], "lin-ucb/agents=2");
    for row in 0..6 {
        let number = |key: &str| column(&summary, key)[row].parse::<f64>().unwrap();
        assert_eq!(number("regret_each"), number("regret") / number("agents"));
    }
    // A part of the agents is divided by its own number.
    let curves = read(&directory.path().join("r/curves.parquet"));
    let parts = column(&curves, "agents");
    let row = parts.iter().rposition(|part| part == "3 of 3 by activity").unwrap();
    assert_eq!(column(&curves, "regret_each")[row], column(&curves, "regret")[row]);
    // The experiment that is kept runs again, and finds that nothing is left to do.
    std::fs::copy(directory.path().join("r/experiment.toml"), directory.path().join("x.toml")).unwrap();
    let again = posse(directory.path(), &["run", "x.toml", "--out", "r"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stderr.contains("6 of 6"), "{}", again.stderr);
}

#[test]
fn python_reads_the_same_numbers() {
    let Some(python) = posse_testing::python("pyarrow.parquet") else { return };
    let directory = directory_with(MIXED);
    assert_eq!(posse(directory.path(), &["run", "x.toml", "--out", "r", "-q", "--csv"]).code, 0);
    let script = "import sys, pyarrow.parquet as pq\n\
                  for name in ['summary', 'curves', 'agents', 'messages']:\n    \
                      t = pq.read_table(f'r/{name}.parquet')\n    \
                      for column in t.column_names:\n        \
                          print(name, column, t.schema.field(column).type, '|'.join('' if v is None else repr(v) \
                          if isinstance(v, float) else str(v).lower() if isinstance(v, bool) else str(v) \
                          for v in t[column].to_pylist()))\n";
    let output =
        std::process::Command::new(&python).args(["-c", script]).current_dir(&directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs = String::from_utf8(output.stdout).unwrap();
    let mut lines = theirs.lines();
    for name in ["summary", "curves", "agents", "messages"] {
        let path = directory.path().join(format!("r/{name}.parquet"));
        let kinds = Reader::new(File::open(&path).unwrap()).unwrap();
        for (place, (column, values)) in read(&path).into_iter().enumerate() {
            let kind = match kinds.kind(place).unwrap() {
                Kind::Text => "string",
                Kind::Whole => "int64",
                Kind::Number => "double",
                Kind::Switch => "bool",
            };
            let line = lines.next().unwrap();
            let found = line.strip_prefix(&format!("{name} {column} {kind} ")).unwrap_or_else(|| {
                panic!("{name} {column} is of type {kind}, not {line}");
            });
            let found: Vec<&str> = found.split('|').collect();
            assert_eq!(found.len(), values.len(), "{name} {column}");
            for (theirs, ours) in found.iter().zip(&values) {
                // Both write the shortest digits that mean a number, with exponents in other forms.
                let same_number = kind == "double" && theirs.parse::<f64>() == ours.parse::<f64>();
                assert!(*theirs == ours || same_number, "{name} {column}: {theirs} is not {ours}");
            }
        }
    }
    assert_eq!(lines.next(), None);
}
