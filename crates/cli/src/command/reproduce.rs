//! `posse reproduce`: the published figures and tables, by id.

use std::path::Path;

use super::algorithms::check_name;
use super::execute::{Options, execute};
use super::{Ending, print, print_json};
use crate::experiment::Experiment;
use crate::figures::{self, Figure, Status};

/// List the published figures and tables, or run one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse reproduce                                          what there is
  posse reproduce async-fig3 --quick                       a first look, in seconds
  posse reproduce async-fig3 --out results/async-fig3      the real thing")]
pub(crate) struct Args {
    /// Run this one
    id: Option<String>,
    #[command(flatten)]
    options: Options,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let all = figures::all();
    let Some(id) = &args.id else {
        if args.options.json {
            print_json(&all)?;
        } else {
            print(&listing(&all))?;
        }
        return Ok(Ending::Done);
    };
    check_name(id, "figure", all.iter().map(|figure| figure.id.as_str()))?;
    let Some(text) = figures::text(id) else {
        let figure = all.iter().find(|figure| figure.id == *id);
        let status = figure.map_or("not known", |figure| figure.status.words());
        anyhow::bail!("{id} cannot be run: {status}. `posse reproduce` lists what can");
    };
    let path = Path::new("experiments").join(format!("{id}.toml"));
    let experiment = Experiment::from_text(&path, text.to_owned(), args.options.quick)?;
    execute(&experiment, &args.options)
}

/// All figures with their status, paper by paper.
fn listing(all: &[Figure]) -> String {
    let width = all.iter().map(|figure| figure.id.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut paper = "";
    for figure in all {
        if figure.paper != paper {
            paper = figure.paper;
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}{paper}\n"));
        }
        let Figure { id, shows, status, .. } = figure;
        text.push_str(&format!("  {id:<width$}  {:<10}  {shows}\n", status.words()));
    }
    let available = all.iter().filter(|figure| figure.status == Status::Available).count();
    text + &format!("\n{available} of {} can be run: posse reproduce ID --quick\n", all.len())
}
