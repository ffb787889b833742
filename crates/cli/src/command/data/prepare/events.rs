//! Events of the caller's own.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use posse_core::Seed;
use posse_data::recommender::{EventFiles, EventFormat, RecommenderSettings, prepare_events};
use posse_data::store::Manifest;

use super::recommenders::settings;
use super::{Args, length, separator};
use crate::progress::Bytes;

/// Events of the caller's own.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Your own events (`events`)")]
pub(super) struct Own {
    /// The column with the items that were on offer, separated by |, ; or spaces; without it, offers are drawn
    #[arg(long, value_name = "COLUMN")]
    pool: Option<String>,
    /// Columns of the items' file with words, which become features; without it, its other columns are features
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', requires = "items")]
    words: Vec<String>,
    /// The column of the items' file that tells items apart [default: the name of the column in the events]
    #[arg(long, value_name = "COLUMN", requires = "items")]
    item_id: Option<String>,
    /// A file with features of users, which multiply those of items: numbers, and a switch for each word of another column
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// The column of the users' file that tells users apart [default: the name of the column in the events]
    #[arg(long, value_name = "COLUMN", requires = "users")]
    user_id: Option<String>,
}

/// Prepares a recommender from events of the caller's own.
pub(super) fn prepare(args: &Args) -> anyhow::Result<Manifest> {
    let own = &args.events;
    let (format, user, item) = if args.name == "banditlib" {
        if own.users.is_some() {
            bail!("--users is for `events`: the published event files have no features of users");
        }
        (EventFormat::BanditLib, String::new(), String::new())
    } else {
        let ([user], Some(item)) = (args.logs.user.as_slice(), &args.logs.item) else {
            bail!("which columns are the user and the item? Say it with --user and --item");
        };
        let format = EventFormat::Table {
            user: user.clone(),
            item: item.clone(),
            time: args.logs.time.clone(),
            rating: args.recommenders.rating.clone(),
            pool: own.pool.clone(),
        };
        (format, user.clone(), item.clone())
    };
    // Every file has its own, unless one was given for all.
    let separator = match &format {
        EventFormat::BanditLib => None,
        EventFormat::Table { .. } => Some(separator(args)?).filter(|_| args.tables.separator.is_some()),
    };
    let files = EventFiles {
        file: args.raw.clone(),
        vectors: format == EventFormat::BanditLib,
        format,
        separator,
        items: args.logs.items.clone(),
        item_id: own.item_id.clone().unwrap_or(item),
        words: own.words.clone(),
        users: own.users.clone(),
        user_id: own.user_id.clone().unwrap_or(user),
        latin1: args.latin1,
    };
    let settings = RecommenderSettings { seed: Seed(args.seed), ..settings(args)? };
    let others = [&files.items, &files.users].into_iter().flatten();
    let bytes = length(&args.raw) + others.map(|path| length(path)).sum::<u64>();
    let progress = Bytes::new(bytes, args.quiet);
    let result = prepare_events(
        &files,
        &settings,
        &args.out,
        args.force,
        &mut |bytes| progress.advance(bytes),
        &mut |stage| {
            if !args.quiet {
                let _ = writeln!(std::io::stderr(), "{stage}");
            }
        },
    );
    progress.done();
    let manifest = result?;
    report(&manifest);
    Ok(manifest)
}

/// Says on stderr what was done to the events on the way.
fn report(manifest: &Manifest) {
    let count = |what: &str| manifest.counts.get(what).copied().unwrap_or(0);
    let mut stderr = std::io::stderr();
    let sorted = count("events out of order, sorted");
    if sorted > 0 {
        let events = if sorted == 1 { "event was" } else { "events were" };
        let _ = writeln!(stderr, "{sorted} {events} earlier than the one before: all are sorted by time now");
    }
    let repeated = count("repeated pairs");
    if repeated > 0 {
        let events = count("events");
        let _ = writeln!(stderr, "{repeated} of {events} events repeat a user with an item: each counts");
    }
    let (described, items) = (count("items with features"), count("items"));
    if described < items {
        let _ = writeln!(stderr, "warning: {} of {items} items have no features", items - described);
    }
    let (known, users) = (count("users with features"), count("users"));
    if known > 0 && known < users {
        let _ = writeln!(stderr, "warning: {} of {users} users have no features", users - known);
    }
    if manifest.settings.get("features").is_some_and(|from| from == "events") {
        let _ = writeln!(
            stderr,
            "features are made from who took what, which knows the future: --items FILE gives features of your own"
        );
    }
}
