//! `posse data prepare`: from raw files to a prepared directory.

mod events;
mod logs;
mod recommenders;
mod tables;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;
use posse_data::catalogue::{self, KnownSet};
use posse_data::health::Severity;
use posse_data::recommender::Ratings;
use posse_data::store::Manifest;

use super::{Ending, print};
use crate::command::algorithms::check_name;

/// Make a world of raw files: streams them, checks every value, writes Parquet with a manifest
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse data prepare shuttle --raw downloads/shuttle --out data/shuttle
  posse data prepare covertype --raw downloads/covertype --out data/covertype-arms --clusters 32
  posse data prepare ml-20m --raw downloads/ml-20m --out data/ml-20m --more-events-than 3000 --min-rating 1
  posse data prepare ml-latest-small --raw downloads/ml --out data/ml-users --user-clusters 10
  posse data prepare events --raw plays.csv --user who --item song --time when --items songs.csv --out data/plays
  posse data prepare banditlib --raw processed_events.dat --items Arm_FeatureVectors.dat --out data/published
  posse data prepare ratings --raw likes.csv --user who --item what --rating stars --out data/likes
  posse data prepare table --raw loans.csv --label repaid --categorical purpose,region --out data/loans")]
pub(super) struct Args {
    /// A data set that `posse data list` knows, or of your own: `table` with labels, `log` of decisions, `events` of
    /// users who took items, the same as `banditlib` writes them, `ratings` of items by users
    name: String,
    /// The directory with the publisher's files; for data of your own a file (text; Parquet for events and logs)
    #[arg(long, value_name = "PATH")]
    raw: PathBuf,
    /// The directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace prepared data that is there already
    #[arg(long)]
    force: bool,
    /// Say nothing about progress, and no more than what would make results mislead
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    tables: tables::Tables,
    #[command(flatten)]
    recommenders: recommenders::Recommenders,
    #[command(flatten)]
    logs: logs::Logs,
    #[command(flatten)]
    events: events::Own,
    /// Texts are in Latin-1, where é is one byte
    #[arg(long)]
    latin1: bool,
    /// Find N groups of similar rows or users, for experiments that divide them by cluster [default: 0 for tables,
    /// 10 for recommenders]
    #[arg(long, value_name = "N")]
    groups: Option<usize>,
    /// Where clusters, groups and projections start
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Ending> {
    let known = catalogue::all().into_iter().map(|set| set.name);
    check_name(&args.name, "data set", known.chain(["table", "log", "ratings", "events", "banditlib"]))?;
    let set = catalogue::find(&args.name);
    let manifest = match set {
        Some(set) => match (set.labelled(&args.raw), set.recommender(&args.raw), set.log(&args.raw)) {
            (Some(files), _, _) => tables::prepare(args, files?, Some(set))?,
            (_, Some(files), _) if args.recommenders.user_clusters.is_some() => {
                let files = recommenders::with_events(args, files?)?;
                recommenders::prepare_users(args, &Ratings::Published(files))?
            }
            (_, Some(files), _) => recommenders::prepare(args, &recommenders::with_events(args, files?)?)?,
            (_, _, Some(files)) => logs::prepare(args, &files?)?,
            _ => bail!("{} cannot be prepared by this command", set.name),
        },
        None if args.name == "events" || args.name == "banditlib" => events::prepare(args)?,
        None if args.name == "ratings" => recommenders::prepare_users(args, &recommenders::own(args)?)?,
        None if args.name == "log" => logs::prepare(args, &logs::own(args)?)?,
        None => tables::prepare(args, tables::own(args)?, None)?,
    };
    if let Some(set) = set {
        warn_about_differences(set, &manifest);
    }
    say_what_misleads(&args.out, args.quiet)?;
    if manifest.kind == "log" {
        let (counts, out) = (counts(&manifest), args.out.display());
        print(&format!("{counts}\nhash {}\n\nposse evaluate {out} --algorithm lin-ucb\n", manifest.hash))?;
        return Ok(Ending::Done);
    }
    print(&format!(
        "{}\n\n[environment]\nkind = \"{}\"\ndata = \"{}\"\nhash = \"{}\"\n",
        counts(&manifest),
        world(&manifest.kind),
        args.out.display(),
        manifest.hash
    ))?;
    Ok(Ending::Done)
}

/// The world that a kind of prepared data is for.
fn world(kind: &str) -> &str {
    match kind {
        "table" => "classification",
        "clusters" => "clustered-arms",
        "users" => "clustered-users",
        other => other,
    }
}

/// What is in it, in a line.
fn counts(manifest: &Manifest) -> String {
    let counts: Vec<String> = manifest
        .counts
        .iter()
        .filter(|(what, count)| !what.starts_with("class ") && **count > 0)
        .map(|(what, count)| match what.split_once(", ") {
            // Some counts have a comma of their own.
            Some((what, done)) => format!("{count} {what} ({done})"),
            None => format!("{count} {what}"),
        })
        .collect();
    format!("{} ({}): {}", manifest.name, manifest.kind, counts.join(", "))
}

/// Says on stderr what would make results on this data mislead.
fn say_what_misleads(directory: &Path, quiet: bool) -> anyhow::Result<()> {
    let health = posse_data::health::examine(directory)?;
    let problems = health.findings.iter().filter(|finding| finding.level == Severity::Problem);
    let mut stderr = std::io::stderr();
    for finding in problems {
        let _ = writeln!(stderr, "warning: {}. {}", finding.what, finding.advice);
    }
    if !quiet {
        let _ = writeln!(stderr, "more about it: posse data health {}", directory.display());
    }
    Ok(())
}

/// Says on stderr where files or counts are not those that are known.
fn warn_about_differences(set: &KnownSet, manifest: &Manifest) {
    let mut stderr = std::io::stderr();
    for source in &manifest.sources {
        let known = set.files.iter().find(|file| file.name == source.file).and_then(|file| file.sha256);
        if known.is_some_and(|known| known != source.sha256) {
            let _ = writeln!(
                stderr,
                "warning: {} is not the file we know: its sha256 is {}",
                source.file, source.sha256
            );
        }
    }
    for (what, expected) in set.counts {
        // Clusters may be made of some features only.
        let chosen = match manifest.kind.as_str() {
            "clusters" => *what == "features",
            // Only the busiest users and items are in it.
            "users" => true,
            // Events and users may have been filtered.
            "recommender" => {
                ["min_rating", "more_events_than"].iter().any(|key| manifest.settings[*key] != "0")
                    || manifest.settings.get("events").is_some_and(|events| events == "tagging")
            }
            _ => false,
        };
        match manifest.counts.get(*what) {
            Some(count) if count != expected && !chosen => {
                let _ = writeln!(stderr, "warning: {count} {what}, published are {expected}");
            }
            _ => {}
        }
    }
}

/// What separates fields in a file of the caller's own: what was said, or what its first line has most of.
fn separator(args: &Args) -> anyhow::Result<String> {
    match args.tables.separator.as_deref() {
        None if args.raw.extension().is_some_and(|extension| extension == "parquet") => Ok(",".into()),
        None => {
            let found = posse_data::records::detect_separator(&args.raw);
            if found != "," && !args.quiet {
                let shown = if found == "\t" { "\\t" } else { found };
                let _ = writeln!(
                    std::io::stderr(),
                    "fields are separated by {shown:?}, by the look of the first line; --separator says otherwise"
                );
            }
            Ok(found.into())
        }
        Some("") => bail!("--separator is empty"),
        Some("\\t") => Ok("\t".into()),
        Some(separator) => Ok(separator.into()),
    }
}

/// How many bytes a file has. 0 if it cannot be read: the error then comes from reading it.
fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}
