//! `posse new`: a file or a crate to begin with.

mod algorithm;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{Ending, print};

/// Write a commented start that works: an experiment, a coordinator's file, or a crate with an algorithm
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse new experiment latency       writes latency.toml, which runs in seconds
  posse new federation shop          writes shop.toml, which `posse serve` takes
  posse new algorithm my-rule        writes my-rule/, a crate whose tests pass

An algorithm is written in Rust against a clone of posse, which is looked for above the current directory; --posse
names it elsewhere. docs/guides/add-an-algorithm.md says what the parts of an algorithm do.")]
pub(crate) struct Args {
    /// What to write: an experiment, a federation or a crate with an algorithm
    #[arg(value_enum)]
    what: What,
    /// The name of the experiment, federation or crate
    #[arg(value_parser = name)]
    name: String,
    /// Where to write it [default: NAME.toml, or the directory NAME for an algorithm]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// `algorithm`: a clone of posse's repository [default: the one above the current directory]
    #[arg(long, value_name = "DIR")]
    posse: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// An experiment for `posse run`
    Experiment,
    /// A coordinator's file for `posse serve`
    Federation,
    /// A crate with an algorithm of your own
    Algorithm,
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
    let Args { what, name, out, posse } = args;
    if posse.is_some() && !matches!(what, What::Algorithm) {
        bail!("--posse is for algorithms: experiments and federations need no source");
    }
    let usual = match what {
        What::Experiment | What::Federation => Path::new(name).with_extension("toml"),
        What::Algorithm => PathBuf::from(name),
    };
    let path = out.clone().unwrap_or(usual);
    let shown = path.display();
    if path.exists() {
        bail!("{shown} is there already: choose another name, or --out another place");
    }
    let write = |text: &str| {
        std::fs::write(&path, text.replace("{name}", name)).with_context(|| format!("cannot write {shown}"))
    };
    let next = match what {
        What::Experiment => {
            write(EXPERIMENT)?;
            format!("posse run {shown} --out results/{name}")
        }
        What::Federation => {
            write(FEDERATION)?;
            format!("posse serve --config {shown}")
        }
        What::Algorithm => {
            algorithm::write(name, &path, posse.as_deref())?;
            format!("cd {shown} && cargo test && cargo run --example regret")
        }
    };
    print(&format!("wrote {shown}\nnext: {next}\n"))?;
    Ok(Ending::Done)
}
