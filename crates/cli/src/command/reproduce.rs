//! `posse reproduce`: the published figures and tables, by id.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::algorithms::check_name;
use super::data::fetch::prepare_with;
use super::data::users::draw_users;
use super::execute::{Options, execute};
use super::{Ending, print, print_json, reproduce_all};
use crate::calibrate;
use crate::experiment::Experiment;
use crate::fetch::{Request, default_directory};
use crate::figures::{self, Figure, Status};
use crate::progress::duration;

/// List the published figures and tables, or run one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse reproduce                                          what there is
  posse reproduce async-fig3 --quick                       a first look, in seconds
  posse reproduce async-fig3 --out results/async-fig3      the real thing
  posse reproduce fnucb-fig2b --fetch                      with its data from the publisher
  posse reproduce --all --out results                      everything that can be run here")]
pub(crate) struct Args {
    /// The figure or table to run; without it, all are listed
    id: Option<String>,
    /// Run every figure that can be run here, the shortest first; states cells and processor-hours before
    #[arg(long, requires = "out", conflicts_with_all = ["id", "shard", "json", "csv"])]
    all: bool,
    /// With --all: leave out figures that take more processor-minutes than this
    #[arg(long, value_name = "MINUTES", requires = "all")]
    at_most: Option<f64>,
    /// With --all: write a page of each figure into this directory, and an index of them
    #[arg(long, value_name = "DIR", requires = "all")]
    gallery: Option<PathBuf>,
    /// With --gallery: run nothing, and write the pages of figures whose results are complete
    #[arg(long, requires = "gallery")]
    pages_only: bool,
    /// Fetch and prepare the data that the figure needs, if it is not here
    #[arg(long, requires = "id")]
    fetch: bool,
    /// With --fetch: a directory or https address to take the data from instead of its publisher
    #[arg(long, value_name = "DIR|URL", requires = "fetch")]
    from: Option<String>,
    /// With --fetch: accept the publisher's terms, which are shown
    #[arg(long, requires = "fetch")]
    accept_licence: bool,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    if let (true, Some(out), Some(pages)) = (args.pages_only, &args.options.out, &args.gallery) {
        return reproduce_all::write_pages(out, pages);
    }
    if let (true, Some(out)) = (args.all, &args.options.out) {
        return reproduce_all::run(&args.options, out, args.at_most, args.gallery.as_deref());
    }
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
    if let Some(data) = figures::drawn(id) {
        return draw(id, data, &args.options);
    }
    let Some(text) = figures::text(id) else {
        let figure = all.iter().find(|figure| figure.id == *id);
        let status = figure.map_or("not known", |figure| figure.status.words());
        anyhow::bail!("{id} cannot be run: {status}. `posse reproduce` lists what can");
    };
    if args.fetch {
        fetch(args, text)?;
    }
    let experiment = read(id, text, args.options.quick)?;
    if !args.options.quiet {
        let speed = calibrate::seconds_of_an_interaction();
        // What was measured is of the whole experiment.
        let measured = figures::minutes(text).filter(|_| !args.options.quick);
        let seconds = measured
            .map_or_else(|| calibrate::seconds_of(&experiment, speed), |own| calibrate::scaled(own, speed));
        let cells = experiment.cells().len();
        let _ = writeln!(std::io::stderr(), "{cells} cells, about {} on this machine", duration(seconds));
    }
    execute(&experiment, &args.options)
}

fn read(id: &str, text: &str, quick: bool) -> anyhow::Result<Experiment> {
    let path = Path::new("experiments").join(format!("{id}.toml"));
    Experiment::from_text(&path, text.to_owned(), quick)
}

/// Draws a figure of prepared data, which is no experiment: nothing in it is run.
fn draw(id: &str, data: &str, options: &Options) -> anyhow::Result<Ending> {
    let directory = options.out.clone().unwrap_or_else(|| PathBuf::from("."));
    std::fs::create_dir_all(&directory)?;
    let drawn = draw_users(Path::new(data), &directory.join(format!("{id}.svg")));
    let help = || format!("prepare it: posse data fetch delicious --out {data}");
    print(&drawn.with_context(help)?)?;
    Ok(Ending::Done)
}

/// Fetches and prepares the data of an experiment, unless that is done.
fn fetch(args: &Args, text: &str) -> anyhow::Result<()> {
    if figures::status_of(text) != Status::NeedsData {
        return Ok(());
    }
    let (Some(command), Some(set)) = (figures::prepare(text), figures::data_set(text)) else {
        anyhow::bail!("this experiment does not say which data set it needs");
    };
    let Some(set) = posse_data::catalogue::find(set) else { anyhow::bail!("there is no data set {set}") };
    let directory = default_directory(set.name);
    let request = Request {
        set,
        directory: directory.clone(),
        from: args.from.as_deref(),
        accepted: args.accept_licence,
        timeout: Duration::from_secs(120),
        authorities: None,
        quiet: args.options.quiet,
    };
    request.run()?;
    // `posse data prepare NAME --raw RAW …`, as the experiment writes it.
    let raw = directory.display().to_string();
    let words = command
        .split_whitespace()
        .skip(3)
        .map(|word| if word == "RAW" { raw.clone() } else { word.to_owned() });
    prepare_with(words).map(drop)
}

/// All figures with their status and how long they take here, paper by paper.
fn listing(all: &[Figure]) -> String {
    let of_an_interaction = calibrate::seconds_of_an_interaction();
    let time = |figure: &Figure| {
        let text = figures::text(&figure.id)?;
        let measured = figures::minutes(text).map(|minutes| calibrate::scaled(minutes, of_an_interaction));
        let guess = || {
            // Without its data an experiment has no cells to count.
            let experiment =
                read(&figure.id, text, false).ok().filter(|_| figure.status == Status::Available)?;
            Some(calibrate::seconds_of(&experiment, of_an_interaction))
        };
        Some(duration(measured.or_else(guess)?))
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
        "\n{available} of {} can be run: posse reproduce ID --quick. Times are for the whole of it, here and now:\n\
         measured, or by the number of interactions, and scaled by a second of calibration.\n",
        all.len()
    )
}
