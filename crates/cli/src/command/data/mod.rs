//! `posse data`: data sets from their publishers' files, as worlds that experiments can name.

pub(crate) mod fetch;
mod health;
mod inspect;
mod list;
mod prepare;
pub(crate) mod users;

use std::path::PathBuf;

use super::{Ending, print, print_json};

/// List, fetch, prepare, inspect, examine and verify data sets
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse data list
  posse data fetch shuttle --out data/shuttle
  posse data inspect data/shuttle
  posse data health data/shuttle --html health.html

Only fetch speaks to the network; prepare reads what is on the disk. List, inspect and verify take --json.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    List(list::Args),
    Fetch(fetch::Args),
    Prepare(Box<prepare::Args>),
    Inspect(inspect::Args),
    Health(health::Args),
    Verify(Verify),
    Users(users::Args),
}

/// Read everything in prepared directories and compare it with their manifests
#[derive(Debug, clap::Args)]
struct Verify {
    /// The directories with prepared data
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    match &args.action {
        Action::List(args) => list::run(args),
        Action::Fetch(args) => fetch::run(args),
        Action::Prepare(args) => prepare::run(args),
        Action::Inspect(args) => inspect::run(args),
        Action::Health(args) => health::run(args),
        Action::Verify(args) => verify(args),
        Action::Users(args) => users::run(args),
    }
}

fn verify(args: &Verify) -> anyhow::Result<Ending> {
    let verdicts: Vec<(String, Result<String, String>)> = args
        .directories
        .iter()
        .map(|directory| {
            let verdict = posse_data::store::verify(directory).map(|manifest| manifest.hash);
            (directory.display().to_string(), verdict.map_err(|error| error.to_string()))
        })
        .collect();
    if args.json {
        let document: Vec<_> = verdicts
            .iter()
            .map(|(directory, verdict)| {
                serde_json::json!({ "directory": directory, "hash": verdict.as_ref().ok(), "error": verdict.as_ref().err() })
            })
            .collect();
        print_json(&document)?;
    } else {
        let line = |(directory, verdict): &(String, Result<String, String>)| match verdict {
            Ok(hash) => format!("whole   {directory}  {hash}\n"),
            Err(error) => format!("BROKEN  {error}\n"),
        };
        print(&verdicts.iter().map(line).collect::<String>())?;
    }
    Ok(if verdicts.iter().all(|(_, verdict)| verdict.is_ok()) { Ending::Done } else { Ending::Failed })
}
