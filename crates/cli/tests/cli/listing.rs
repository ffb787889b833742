//! `posse algorithms`, `posse worlds` and the help texts.

use std::path::Path;

use posse_core::Algorithm;
use posse_sim::world::{ArrivalConfig, WorldConfig};
use serde_json::Value;

use crate::command::posse;

fn here(arguments: &[&str]) -> crate::command::Ran {
    posse(Path::new("."), arguments)
}

#[test]
fn every_algorithm_is_listed_with_all_its_settings() {
    let list = here(&["algorithms"]).stdout;
    let all = here(&["algorithms", "--json"]).json();
    assert_eq!(all.as_array().unwrap().len(), Algorithm::all().len());
    for (algorithm, listed) in Algorithm::all().iter().zip(all.as_array().unwrap()) {
        let name = algorithm.name();
        assert!(list.contains(&format!("  {name} ")) && list.contains(algorithm.summary()));
        assert_eq!(listed["name"], name);
        assert_eq!(here(&["algorithms", name, "--json"]).json(), *listed);
        let text = here(&["algorithms", name]).stdout;
        let Value::Object(defaults) = serde_json::to_value(algorithm).unwrap() else { unreachable!() };
        for key in defaults.keys().filter(|key| *key != "name") {
            assert!(text.contains(&format!("\n  {key} ")), "{name} {key}");
            let settings = listed["settings"].as_array().unwrap();
            let setting = settings.iter().find(|setting| setting["key"] == **key).unwrap();
            assert!(!setting["meaning"].as_str().unwrap().is_empty());
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

#[test]
fn every_world_arrival_and_network_is_listed() {
    let list = here(&["worlds"]).stdout;
    let all = here(&["worlds", "--json"]).json();
    let worlds = WorldConfig::kinds().into_iter().map(|(name, summary, _)| ("environments", name, summary));
    let arrivals = ArrivalConfig::kinds().into_iter().map(|(name, summary, _)| ("arrivals", name, summary));
    for (family, name, summary) in worlds.chain(arrivals) {
        assert!(list.contains(&format!("  {name} ")) && list.contains(summary), "{name}");
        let listed = all[family].as_array().unwrap().iter().find(|kind| kind["name"] == name).unwrap();
        assert_eq!(here(&["worlds", name, "--json"]).json(), *listed);
        assert!(here(&["worlds", name]).stdout.starts_with(&format!("{name}: {summary}\n")));
    }
    for preset in ["ideal", "wifi", "cellular", "satellite", "hostile"] {
        assert!(list.contains(&format!("  {preset} ")), "{preset}");
        assert!(all["presets"].as_array().unwrap().iter().any(|listed| listed["name"] == preset));
    }
    assert_eq!(here(&["worlds", "wifi"]).stdout, "wifi: 3ms one way, up to 5ms more, 0.5 % lost\n");
    for table in ["network", "faults", "adversaries", "topology"] {
        assert_eq!(here(&["worlds", table, "--json"]).json(), all[table]);
    }
}

#[test]
fn an_unknown_name_is_corrected() {
    let ran = here(&["algorithms", "async-linucb"]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stderr, "error: unknown algorithm \"async-linucb\": did you mean `async-lin-ucb`?\n");
    let ran = here(&["worlds", "wify"]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stderr, "error: unknown world \"wify\": did you mean `wifi`?\n");
}

/// Commands whose results a program may want to read.
const WITH_JSON: [&str; 15] = [
    "storage",
    "agents",
    "doctor",
    "run",
    "reproduce",
    "compare",
    "algorithms",
    "worlds",
    "data",
    "evaluate",
    "privacy",
    "bench",
    "token",
    "log",
    "load",
];
/// Commands that run until they are stopped, or write files.
const WITHOUT_JSON: [&str; 12] = [
    "merge",
    "report",
    "demo",
    "init",
    "serve",
    "relay",
    "agent",
    "completions",
    "manual",
    "backup",
    "restore",
    "new",
];

#[test]
fn help_names_every_command_and_gives_an_example() {
    let help = here(&["--help"]);
    assert_eq!(help.code, 0);
    let (_, commands) = help.stdout.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let commands: Vec<&str> = commands.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    let mut expected: Vec<&str> = WITH_JSON.into_iter().chain(WITHOUT_JSON).collect();
    let mut listed: Vec<&str> = commands.iter().copied().filter(|command| *command != "help").collect();
    expected.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, expected);
    for command in commands.into_iter().filter(|command| *command != "help") {
        let own = here(&[command, "--help"]).stdout;
        assert!(own.contains("Example"), "{command} has no example:\n{own}");
        assert_eq!(own.contains("--json"), WITH_JSON.contains(&command), "{command}:\n{own}");
    }
    assert!(help.stdout.contains("posse run experiments/"));
    assert!(help.stdout.contains("Exit codes: 0 done"));
    assert_eq!(here(&["--version"]).stdout, format!("posse {}\n", env!("CARGO_PKG_VERSION")));
}
