//! `posse reproduce --all`: every figure that can be run, with its cost stated before and counted on the way.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::execute::{Options, execute};
use super::{Ending, print};
use crate::experiment::Experiment;
use crate::figures::{self, Figure, Status};
use crate::gallery;
use crate::results::Made;
use crate::table::align;

/// One figure of the plan.
struct Item {
    figure: Figure,
    experiment: Experiment,
    /// Minutes of one processor that the figure took when it was last measured; `None` if it never was.
    minutes: Option<f64>,
    directory: PathBuf,
}

/// What was decided about all figures.
struct Plan {
    items: Vec<Item>,
    /// Figures that are not run, and why.
    left_out: Vec<(String, String)>,
}

/// Runs all figures, or those whose known cost is at most so many processor-minutes each.
pub(super) fn run(
    options: &Options,
    out: &Path,
    most: Option<f64>,
    gallery: Option<&Path>,
) -> anyhow::Result<Ending> {
    let plan = plan(options, out, most)?;
    let _ = write!(std::io::stderr(), "{}", statement(&plan, out));
    let cells: usize = plan.items.iter().map(|item| item.experiment.cells().len()).sum();
    let expected: f64 = plan.items.iter().filter_map(|item| item.minutes).sum::<f64>() / 60.0;
    let (mut done, mut hours, mut worst) = (0, 0.0, Ending::Done);
    let mut lines =
        vec![["figure", "cells", "processor-minutes", "PASS", "DEVIATES", "FAIL"].map(String::from)];
    for (place, item) in plan.items.iter().enumerate() {
        let id = &item.figure.id;
        let own = options.with_directories(item.directory.clone(), out.join("cells"));
        let ending = execute(&item.experiment, &own)?;
        if matches!(ending, Ending::Interrupted) {
            return Ok(ending);
        }
        if matches!(ending, Ending::Failed) {
            worst = Ending::Failed;
        }
        let made = Made::read(&item.directory)?;
        let minutes = minutes(&made);
        done += made.cells.len();
        hours += minutes / 60.0;
        let count =
            |word: &str| made.manifest.checks.iter().filter(|check| check.result.word() == word).count();
        lines.push([
            id.clone(),
            made.cells.len().to_string(),
            format!("{minutes:.2}"),
            count("PASS").to_string(),
            count("DEVIATES").to_string(),
            count("FAIL").to_string(),
        ]);
        if let Some(directory) = gallery {
            gallery::write_page(directory, &item.figure, &made, &item.directory)?;
        }
        let _ = writeln!(
            std::io::stderr(),
            "{} of {} figures, {done} of {cells} cells, {hours:.2} of about {expected:.2} processor-hours\n",
            place + 1,
            plan.items.len()
        );
    }
    if let Some(directory) = gallery {
        gallery::write_index(directory)?;
    }
    let left_out: String = plan.left_out.iter().map(|(id, why)| format!("not run: {id}: {why}\n")).collect();
    print(&format!("{}\n{left_out}", align(&lines)))?;
    Ok(worst)
}

/// How long all cells of some results took, in minutes of one processor.
pub(crate) fn minutes(made: &Made) -> f64 {
    let seconds = made.outcomes.iter().flatten().filter_map(|outcome| Some(outcome.as_ref().ok()?.seconds));
    seconds.sum::<f64>() / 60.0
}

fn plan(options: &Options, out: &Path, most: Option<f64>) -> anyhow::Result<Plan> {
    let mut plan = Plan { items: Vec::new(), left_out: Vec::new() };
    for figure in figures::all() {
        let Some(text) = figures::text(&figure.id) else {
            let why = match figures::drawn(&figure.id) {
                Some(_) => format!("a picture of data alone: posse reproduce {}", figure.id),
                None => figure.status.words().into(),
            };
            plan.left_out.push((figure.id.clone(), why));
            continue;
        };
        let minutes = figures::minutes(text);
        if figure.status == Status::NeedsData {
            let set = figures::data_set(text).unwrap_or("its data");
            plan.left_out
                .push((figure.id.clone(), format!("needs {set}: posse reproduce {} --fetch", figure.id)));
            continue;
        }
        let too_long = match (minutes, most) {
            (Some(minutes), Some(most)) if minutes > most => {
                Some(format!("takes about {minutes:.0} processor-minutes, more than {most}"))
            }
            (None, Some(_)) => Some("nobody has measured what it takes".into()),
            _ => None,
        };
        if let Some(why) = too_long {
            plan.left_out.push((figure.id.clone(), why));
            continue;
        }
        let path = Path::new("experiments").join(format!("{}.toml", figure.id));
        let experiment = Experiment::from_text(&path, text.to_owned(), options.quick)?;
        let directory = out.join(&figure.id);
        plan.items.push(Item { figure, experiment, minutes, directory });
    }
    // The shortest first: after an interruption most figures are there.
    plan.items.sort_by(|a, b| a.minutes.unwrap_or(0.0).total_cmp(&b.minutes.unwrap_or(0.0)));
    Ok(plan)
}

/// What is going to be run, and what it will cost.
fn statement(plan: &Plan, out: &Path) -> String {
    let mut lines = vec![["figure", "cells", "processor-minutes"].map(String::from)];
    let (mut cells, mut minutes, mut unknown) = (0, 0.0, 0);
    for item in &plan.items {
        let own = item.experiment.cells().len();
        cells += own;
        let shown = item.minutes.map_or_else(|| "not measured".into(), |own| format!("{own:.1}"));
        minutes += item.minutes.unwrap_or(0.0);
        unknown += usize::from(item.minutes.is_none());
        lines.push([item.figure.id.clone(), own.to_string(), shown]);
    }
    let left_out: String = plan.left_out.iter().map(|(id, why)| format!("not run: {id}: {why}\n")).collect();
    let besides =
        if unknown > 0 { format!(", and {unknown} figures that nobody has measured") } else { String::new() };
    format!(
        "{}\n{left_out}\nbudget: {} figures, {cells} cells, about {:.2} processor-hours{besides}; cells that several figures share run \
         once.\nresults go to {}; an interrupted run goes on with the same command.\n\n",
        align(&lines),
        plan.items.len(),
        minutes / 60.0,
        out.display()
    )
}
