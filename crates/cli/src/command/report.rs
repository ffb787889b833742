//! `posse report`: one page that shows what came of an experiment.

use std::io::Write;
use std::path::PathBuf;

use super::execute::{ending, show};
use super::{Ending, print};
use crate::report::{Material, write_page, write_png, write_svg};
use crate::results::{Made, REPORT};

/// Show results as one HTML page, and its figures as SVG or PNG
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse report results/async-fig2a                      writes results/async-fig2a/report.html
  posse report results/async-fig2a --svg figures        and each figure as a file for a paper

The page needs no network and nothing but itself. Results that are not complete are shown as far as they are
there, and labelled.")]
pub(crate) struct Args {
    /// The directory of results to report on
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Write the page here instead of to DIR/report.html
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write each figure as SVG into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Also write each figure as PNG into this directory
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,
    /// Draw the figures of --svg and --png light on black
    #[arg(long)]
    dark: bool,
    /// Say only where things were written
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let (made, broken) = Made::read_what_is_there(&args.directory)?;
    let mut stderr = std::io::stderr();
    for line in &broken {
        let _ = writeln!(stderr, "warning: {line}");
    }
    let material = Material::new(&made);
    if material.rows.is_empty() {
        anyhow::bail!("{} holds no finished cell yet: there is nothing to report", args.directory.display());
    }
    made.refuse_other_tables(&args.directory, &material.rows)?;
    let page = args.out.clone().unwrap_or_else(|| args.directory.join(REPORT));
    write_page(&material, &page)?;
    let mut written = vec![page];
    if let Some(directory) = &args.svg {
        written.extend(write_svg(&material, directory, args.dark)?);
    }
    if let Some(directory) = &args.png {
        written.extend(write_png(&material, directory, args.dark)?);
    }
    let verdicts = material.verdicts.as_deref().unwrap_or_default();
    let mut text = String::new();
    if !args.quiet {
        let quick = |warning: &&String| !warning.starts_with("QUICK");
        for warning in material.warnings().iter().filter(quick) {
            text.push_str(&format!("{warning}\n"));
        }
        text.push_str(&show(&made.experiment, &material.rows, verdicts));
        text.push('\n');
    }
    for path in written {
        text.push_str(&format!("wrote {}\n", path.display()));
    }
    print(&text)?;
    for (id, error) in &material.failures {
        let _ = writeln!(stderr, "error: {id}: {error}");
    }
    Ok(ending(&material.failures, verdicts))
}
