//! `posse reproduce`: the published figures and tables, by id.

use std::io::Write;
use std::path::Path;

use super::algorithms::check_name;
use super::execute::{Options, execute};
use super::{Ending, print, print_json};
use crate::calibrate;
use crate::experiment::Experiment;
use crate::figures::{self, Figure, Status};
use crate::progress::duration;

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
    let experiment = read(id, text, args.options.quick)?;
    if !args.options.quiet {
        let seconds = calibrate::seconds_of(&experiment, calibrate::seconds_of_an_interaction());
        let cells = experiment.cells().len();
        let _ = writeln!(std::io::stderr(), "{cells} cells, about {} on this machine", duration(seconds));
    }
    execute(&experiment, &args.options)
}

fn read(id: &str, text: &str, quick: bool) -> anyhow::Result<Experiment> {
    let path = Path::new("experiments").join(format!("{id}.toml"));
    Experiment::from_text(&path, text.to_owned(), quick)
}

/// All figures with their status and how long they take here, paper by paper.
fn listing(all: &[Figure]) -> String {
    let of_an_interaction = calibrate::seconds_of_an_interaction();
    let time = |figure: &Figure| {
        let text = figures::text(&figure.id).filter(|_| figure.status == Status::Available)?;
        Some(duration(calibrate::seconds_of(&read(&figure.id, text, false).ok()?, of_an_interaction)))
    };
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
        let time = time(figure).unwrap_or_default();
        text.push_str(&format!("  {id:<width$}  {:<10} {time:>7}  {shows}\n", status.words()));
    }
    let available = all.iter().filter(|figure| figure.status == Status::Available).count();
    text + &format!(
        "\n{available} of {} can be run: posse reproduce ID --quick. Times are for the whole of it, here and now,\n\
         by the number of interactions and a second of calibration.\n",
        all.len()
    )
}
