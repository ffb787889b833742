//! `posse storage`: the tables of coordinators that share a database.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use posse_net::log::postgres::Database;
use posse_net::log::{StorageConfig, StorageKind};
use serde_json::json;

use super::runtime::runtime;
use super::{Ending, print, print_json};
use crate::federation;

/// Make the tables of a PostgreSQL database, and show what is in them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse storage migrate --config federation.toml

The database is that of [storage] in the file. docs/guides/fail-over.md goes through it step by step.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The coordinator's configuration file
    #[arg(long, value_name = "FILE", global = true, default_value = "federation.toml")]
    config: PathBuf,
    /// Use a database without synchronous standbys, which may lose what it confirmed: for development
    #[arg(long, global = true)]
    allow_unreplicated: bool,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make the tables, or bring those of an earlier version up to date
    Migrate,
    /// Show every federation in the database, who leads it, and whether the database replicates
    Status,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let config = federation::read(&args.config, true)?;
    let runtime = runtime()?;
    let _inside = runtime.enter();
    let database = database(&config.storage, args.allow_unreplicated)?;
    match args.action {
        Action::Migrate => {
            let (before, after) = runtime.block_on(database.migrate())?;
            if args.json {
                print_json(&json!({ "before": before, "after": after }))?;
            } else if before == after {
                print(&format!("the tables are of version {after} already\n"))?;
            } else {
                print(&format!("the tables are of version {after} now, and were of version {before}\n"))?;
            }
        }
        Action::Status => {
            let federations = runtime.block_on(database.status())?;
            if args.json {
                print_json(&federations)?;
                return Ok(Ending::Done);
            }
            let mut text = String::from("federation            entries     term  lease  leader\n");
            for own in federations {
                let leader = if own.leader.is_empty() { "nobody" } else { &own.leader };
                let _ = writeln!(
                    text,
                    "{:<20} {:>8} {:>8} {:>5.1}s  {leader}",
                    own.name, own.next, own.term, own.lease_seconds
                );
            }
            print(&text)?;
        }
    }
    Ok(Ending::Done)
}

/// The database that the settings name. Must be called inside of a runtime.
pub(super) fn database(storage: &StorageConfig, allow_unreplicated: bool) -> anyhow::Result<Database> {
    if storage.kind != StorageKind::Postgres {
        bail!("there is no database: the file has no [storage] with kind = \"postgres\"");
    }
    Ok(Database::new(storage, String::new(), allow_unreplicated)?)
}
