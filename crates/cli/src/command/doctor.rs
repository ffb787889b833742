//! `posse doctor`: what this machine has.

use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::{Ending, print, print_json};
use crate::calibrate;
use crate::processor::{Stopwatch, Work};
use crate::results::{Build, Host};

/// Say what this machine has, and what posse could not do here
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse doctor

The exit code is 1 if something is missing that a command needs.")]
pub(crate) struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Look {
    what: &'static str,
    found: String,
    /// What to do about it; nothing if all is well.
    advice: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let looks = looks();
    if args.json {
        print_json(&looks)?;
    } else {
        let width = looks.iter().map(|look| look.what.len()).max().unwrap_or(0);
        let mut text = String::new();
        for Look { what, found, advice } in &looks {
            let mark = if advice.is_some() { "!" } else { " " };
            text.push_str(&format!("{mark} {what:<width$}  {found}\n"));
            if let Some(advice) = advice {
                text.push_str(&format!("  {:<width$}  {advice}\n", ""));
            }
        }
        print(&text)?;
    }
    Ok(if looks.iter().any(|look| look.advice.is_some()) { Ending::Failed } else { Ending::Done })
}

fn looks() -> Vec<Look> {
    let fine = |what, found: String| Look { what, found, advice: None };
    let build = Build::this();
    let kind = if cfg!(debug_assertions) { "debug build" } else { "optimised build" };
    let mut all = vec![fine("posse", format!("{build}, {kind}")), fine("machine", Host::this().to_string())];
    if let Some(megabytes) = memory() {
        let advice = (megabytes < 1024).then(|| "under 1 GB: give --jobs 1, and take fewer agents".into());
        all.push(Look { what: "memory", found: format!("{:.1} GB", megabytes as f64 / 1024.0), advice });
    }
    all.push(fine("speed", speed()));
    all.push(here());
    all.push(loopback());
    all.push(fine("prepared data", prepared()));
    all
}

/// How fast a run goes here, and whether other programs hold it up.
fn speed() -> String {
    let (began, watch) = (Instant::now(), Stopwatch::start(Work::OfThread));
    let micros = 1e6 * calibrate::seconds_of_an_interaction();
    let waited = began.elapsed().as_secs_f64() / watch.seconds();
    let busy = if waited > 1.5 {
        format!(" (the machine is busy: {:.1} µs if it were not)", micros / waited)
    } else {
        String::new()
    };
    format!(
        "{micros:.1} µs an interaction of 25 arms with 25 features{busy}; times in the documentation are from a machine with {:.1} µs",
        1e6 * calibrate::REFERENCE
    )
}

/// Whether results can be written where we are.
fn here() -> Look {
    let place = std::env::current_dir().map_or_else(|_| "here".into(), |path| path.display().to_string());
    let file = Path::new(".posse-doctor");
    let written = std::fs::write(file, b"x").and_then(|()| std::fs::remove_file(file));
    let advice = written.err().map(|error| format!("{error}: give --out a directory that can be written"));
    Look {
        what: "directory",
        found: format!("{place} can{} be written", if advice.is_some() { "not" } else { "" }),
        advice,
    }
}

/// Whether a coordinator could listen.
fn loopback() -> Look {
    match TcpListener::bind("127.0.0.1:0") {
        Ok(_) => Look { what: "loopback", found: "a coordinator can listen".into(), advice: None },
        Err(error) => Look {
            what: "loopback",
            found: error.to_string(),
            advice: Some("`posse demo`, `serve` and `agent` need it".into()),
        },
    }
}

/// Prepared data in `data/`, where experiments look for it.
fn prepared() -> String {
    let Ok(entries) = std::fs::read_dir("data") else { return "no directory data/ here".into() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().join(posse_data::store::MANIFEST).exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    if names.is_empty() { "nothing in data/".into() } else { format!("data/: {}", names.join(", ")) }
}

/// Memory in megabytes, where the system says it in a file.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}
