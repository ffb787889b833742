//! `posse new`: a file to begin with.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{Ending, print};

/// Write a commented file to begin with: an experiment, or a coordinator's file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse new experiment latency       writes latency.toml, which runs in seconds
  posse new federation shop          writes shop.toml, which `posse serve` takes

Algorithms are written in Rust: docs/guides/add-an-algorithm.md says how.")]
pub(crate) struct Args {
    /// What kind of file to write
    #[arg(value_enum)]
    what: What,
    /// The name of the experiment or federation
    #[arg(value_parser = name)]
    name: String,
    /// Where to write it [default: NAME.toml]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// An experiment for `posse run`
    Experiment,
    /// A coordinator's file for `posse serve`
    Federation,
}

/// Names become parts of paths and of federations.
fn name(text: &str) -> Result<String, String> {
    let proper = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if text.is_empty() || text.len() > 60 || !text.chars().all(proper) {
        return Err("letters, digits, - and _, at most 60".into());
    }
    Ok(text.into())
}

const EXPERIMENT: &str = include_str!("experiment.toml");
const FEDERATION: &str = include_str!("federation.toml");

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let (text, next) = match args.what {
        What::Experiment => (EXPERIMENT, "posse run"),
        What::Federation => (FEDERATION, "posse serve --config"),
    };
    let path = args.out.clone().unwrap_or_else(|| Path::new(&args.name).with_extension("toml"));
    let shown = path.display();
    if path.exists() {
        bail!("{shown} is there already: choose another name, or --out another place");
    }
    std::fs::write(&path, text.replace("{name}", &args.name))
        .with_context(|| format!("cannot write {shown}"))?;
    let next = match args.what {
        What::Experiment => format!("{next} {shown} --out results/{}", args.name),
        What::Federation => format!("{next} {shown}"),
    };
    print(&format!("wrote {shown}\nnext: {next}\n"))?;
    Ok(Ending::Done)
}
