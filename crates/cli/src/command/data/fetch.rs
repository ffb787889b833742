//! `posse data fetch`: a data set from its publisher, checked, and prepared if a directory for that is named.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use posse_data::catalogue;

use super::{Ending, prepare, print};
use crate::command::algorithms::check_name;
use crate::fetch::{Request, default_directory};

/// Download a data set from its publisher, or take it from a mirror or a directory, and prepare it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse data fetch magic --accept-licence
  posse data fetch magic --out data/magic-arms -- --clusters 20 --target g
  posse data fetch lastfm --from downloads-of-mine
  posse data fetch shuttle --from https://mirror.example.org/uci/shuttle

The publisher's terms are shown first and have to be accepted, by an answer or by --accept-licence. An interrupted
download goes on where it stopped. Hashes of files we know are pinned; those of others are recorded at the first download
and checked ever after. Nothing is fetched but over HTTPS.")]
pub(super) struct Args {
    /// A data set that `posse data list` knows
    name: String,
    /// Where its files go [default: downloads/NAME]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// A directory that has the files or their archive, the https address of such an archive, or of a directory with the
    /// files
    #[arg(long, value_name = "DIR|URL")]
    from: Option<String>,
    /// Accept the publisher's terms, which are shown
    #[arg(long)]
    accept_licence: bool,
    /// How many seconds one attempt may last; an attempt that brought some bytes is followed by another
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Trust this certificate authority (PEM) instead of the usual ones
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Prepare the files into this directory afterwards
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Say nothing about progress
    #[arg(long, short)]
    quiet: bool,
    /// Options of `posse data prepare`, after --
    #[arg(last = true, value_name = "OPTIONS", requires = "out")]
    prepare: Vec<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Ending> {
    let sets = catalogue::all();
    check_name(&args.name, "data set", sets.iter().map(|set| set.name))?;
    let Some(set) = catalogue::find(&args.name) else { bail!("there is no data set {}", args.name) };
    let directory = args.to.clone().unwrap_or_else(|| default_directory(set.name));
    let request = Request {
        set,
        directory: directory.clone(),
        from: args.from.as_deref(),
        accepted: args.accept_licence,
        timeout: Duration::from_secs(args.timeout),
        authorities: args.ca.as_deref(),
        quiet: args.quiet,
    };
    request.run()?;
    let raw = directory.display().to_string();
    match &args.out {
        Some(out) => {
            let out = out.display().to_string();
            let words = [&args.name, "--raw", &raw, "--out", &out].into_iter().map(str::to_owned);
            prepare_with(words.chain(args.prepare.iter().cloned()))
        }
        None => {
            print(&format!("posse data prepare {} --raw {raw} --out data/{}\n", set.name, set.name))?;
            Ok(Ending::Done)
        }
    }
}

/// `posse data prepare` as a command of its own.
#[derive(Debug, Parser)]
#[command(name = "posse data prepare", no_binary_name = true)]
struct Prepare {
    #[command(flatten)]
    args: prepare::Args,
}

/// Runs `posse data prepare` with these words behind it.
pub(crate) fn prepare_with(words: impl Iterator<Item = String>) -> anyhow::Result<Ending> {
    prepare::run(&Prepare::try_parse_from(words)?.args)
}
