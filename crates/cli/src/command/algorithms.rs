//! `posse algorithms`: what can be run.

use anyhow::anyhow;

use super::{Ending, listing, print, print_json};
use crate::settings::{Section, Variant};
use crate::suggest::closest;

/// List the algorithms, or the settings of one
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  posse algorithms async-lin-ucb")]
pub(crate) struct Args {
    /// Show the settings of this one
    name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let mut variants = Section::Algorithm.variants();
    if let Some(name) = &args.name {
        check_name(name, "algorithm", variants.iter().map(|variant| variant.name.as_str()))?;
        variants.retain(|variant| variant.name == *name);
    }
    if args.json {
        let all: Vec<_> = variants.iter().map(listing::to_json).collect();
        match (&args.name, all.as_slice()) {
            (Some(_), [one]) => print_json(one)?,
            _ => print_json(&all)?,
        }
    } else if args.name.is_some() {
        print(&variants.iter().map(listing::settings).collect::<String>())?;
    } else {
        let names = variants.iter().map(|Variant { name, summary, .. }| (name.as_str(), summary.as_str()));
        print(&(listing::names(names) + "\n`posse algorithms NAME` shows the settings of one.\n"))?;
    }
    Ok(Ending::Done)
}

/// `Ok` if `name` is one of `known`.
pub(super) fn check_name<'k>(
    name: &str,
    noun: &str,
    known: impl Iterator<Item = &'k str>,
) -> anyhow::Result<()> {
    let known: Vec<&str> = known.collect();
    if known.contains(&name) {
        return Ok(());
    }
    let help = match closest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", known.join(", ")),
    };
    Err(anyhow!("unknown {noun} \"{name}\": {help}"))
}
