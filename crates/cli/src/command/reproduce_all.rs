//! `posse reproduce --all`: every figure that can be run, with its cost stated before and counted on the way.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::execute::{Options, execute};
use super::{Ending, print};
use crate::calibrate;
use crate::experiment::Experiment;
use crate::figures::{self, Figure, Status};
use crate::gallery;
use crate::results::{MANIFEST, Made};
use crate::table::align;

/// One figure of the plan.
struct Item {
    figure: Figure,
    experiment: Experiment,
    cost: Cost,
    directory: PathBuf,
}

/// What a figure takes, in minutes of one processor of the machine on which experiments were measured.
struct Cost {
    minutes: f64,
    /// Whether the minutes were measured on a run of the whole figure. If not, they are estimated from the sizes of its cells.
    measured: bool,
}

impl Cost {
    fn of(text: &str, experiment: &Experiment, quick: bool) -> Self {
        // What was measured is of the whole experiment.
        match figures::minutes(text).filter(|_| !quick) {
            Some(minutes) => Self { minutes, measured: true },
            None => Self { minutes: calibrate::processor_minutes(experiment), measured: false },
        }
    }
}

/// What was decided about all figures.
struct Plan {
    items: Vec<Item>,
    /// Figures that are not run, and why.
    left_out: Vec<(String, String)>,
}

/// Runs all figures, or those that take at most so many processor-minutes each.
pub(super) fn run(
    options: &Options,
    out: &Path,
    most: Option<f64>,
    gallery: Option<&Path>,
) -> anyhow::Result<Ending> {
    let plan = plan(options, out, most)?;
    let _ = write!(std::io::stderr(), "{}", statement(&plan, out));
    let cells: usize = plan.items.iter().map(|item| item.experiment.cells().len()).sum();
    let expected: f64 = plan.items.iter().map(|item| item.cost.minutes).sum::<f64>() / 60.0;
    let (mut done, mut hours, mut worst) = (0, 0.0, Ending::Done);
    let mut lines = vec![
        ["figure", "cells", "processor-minutes", "by the clock", "PASS", "DEVIATES", "FAIL"]
            .map(String::from),
    ];
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
            made.manifest.clock.map_or_else(String::new, |clock| format!("{:.2}", clock.seconds / 60.0)),
            count("PASS").to_string(),
            count("DEVIATES").to_string(),
            count("FAIL").to_string(),
        ]);
        if let Some(directory) = gallery {
            let text = figures::text(id).unwrap_or_default();
            gallery::write_page(directory, (&item.figure, text), &made)?;
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

/// Makes the pages of all figures whose results are complete, under the words that their experiments have today. Runs nothing.
pub(super) fn write_pages(out: &Path, pages: &Path) -> anyhow::Result<Ending> {
    let mut lines = vec![["figure", "cells", "processor-minutes", "page"].map(String::from)];
    for figure in figures::all() {
        let directory = out.join(&figure.id);
        let Some(text) = figures::current_text(&figure.id).filter(|_| directory.join(MANIFEST).exists())
        else {
            continue;
        };
        let made = Made::read(&directory)?.with_words_of(&figure.id, &text)?;
        let missing = made.outcomes.iter().filter(|outcome| outcome.is_none()).count();
        let whole = missing == 0 && !made.manifest.quick && made.manifest.shard.is_none();
        if whole {
            gallery::write_page(pages, (&figure, &text), &made)?;
        }
        let said = if whole { "written".into() } else { format!("left out: {missing} cells have not run") };
        lines.push([figure.id, made.cells.len().to_string(), format!("{:.2}", minutes(&made)), said]);
    }
    gallery::write_index(pages)?;
    print(&align(&lines))?;
    Ok(Ending::Done)
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
        if figure.status == Status::NeedsData {
            let set = figures::data_set(text).unwrap_or("its data");
            plan.left_out
                .push((figure.id.clone(), format!("needs {set}: posse reproduce {} --fetch", figure.id)));
            continue;
        }
        let path = Path::new("experiments").join(format!("{}.toml", figure.id));
        let experiment = Experiment::from_text(&path, text.to_owned(), options.quick)?;
        let cost = Cost::of(text, &experiment, options.quick);
        if let Some(most) = most.filter(|most| cost.minutes > *most) {
            let why = format!("takes about {:.1} processor-minutes, more than {most}", cost.minutes);
            plan.left_out.push((figure.id.clone(), why));
            continue;
        }
        let directory = out.join(&figure.id);
        plan.items.push(Item { figure, experiment, cost, directory });
    }
    // The shortest first: after an interruption most figures are there.
    plan.items.sort_by(|a, b| a.cost.minutes.total_cmp(&b.cost.minutes));
    Ok(plan)
}

/// What is going to be run, and what it will cost.
fn statement(plan: &Plan, out: &Path) -> String {
    let mut lines = vec![["figure", "cells", "processor-minutes"].map(String::from)];
    let (mut cells, mut minutes, mut guessed) = (0, 0.0, 0);
    for Item { figure, experiment, cost, .. } in &plan.items {
        let own = experiment.cells().len();
        cells += own;
        minutes += cost.minutes;
        guessed += usize::from(!cost.measured);
        let about = if cost.measured { "" } else { "about " };
        lines.push([figure.id.clone(), own.to_string(), format!("{about}{:.1}", cost.minutes)]);
    }
    let left_out: String = plan.left_out.iter().map(|(id, why)| format!("not run: {id}: {why}\n")).collect();
    let besides = if guessed > 0 {
        format!(" ({guessed} figures were never measured: a guess from their size)")
    } else {
        String::new()
    };
    format!(
        "{}\n{left_out}\nbudget: {} figures, {cells} cells, about {:.2} processor-hours{besides}; cells that several figures share run \
         once.\nresults go to {}; an interrupted run goes on with the same command.\n\n",
        align(&lines),
        plan.items.len(),
        minutes / 60.0,
        out.display()
    )
}
