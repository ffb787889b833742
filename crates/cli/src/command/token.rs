//! `posse token`: who may speak for which agent.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use posse_core::AgentId;
use posse_net::coordinator::Tokens;
use posse_net::log::StorageKind;
use serde_json::json;

use super::runtime::runtime;
use super::storage::database;
use super::{Ending, print, print_json};
use crate::federation;

/// Create, list, revoke and rotate agents' tokens
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse token create --config federation.toml --agent 7 --federation shop --out agent-7.token

A token is shown once; only its hash is kept. A running coordinator notices changes within a second.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The coordinator's configuration file
    #[arg(long, value_name = "FILE", global = true, default_value = "federation.toml")]
    config: PathBuf,
    /// Use a PostgreSQL database without synchronous standbys, which may lose what it confirmed: for development
    #[arg(long, global = true)]
    allow_unreplicated: bool,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a token and print it
    Create {
        /// The number of the agent that the token is for
        #[arg(long, value_name = "NUMBER")]
        agent: u64,
        /// The federation in which the token is valid; repeat it for several
        #[arg(long, value_name = "NAME", required = true)]
        federation: Vec<String>,
        /// Write the token to a file that only its owner may read, instead of printing it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// List all tokens, without their secrets
    List,
    /// Make a token void; its links are cut
    Revoke {
        /// The token's id, as `posse token list` shows it
        id: String,
    },
    /// Give a token a new secret and print it; the old one stays valid for a while
    Rotate {
        /// The token's id, as `posse token list` shows it
        id: String,
        /// Seconds that the old secret stays valid; 0 makes it void at once
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        grace: u64,
        /// Write the token to a file that only its owner may read, instead of printing it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let config = federation::read(&args.config, true)?;
    // A database is asked from inside of a runtime, which must live as long as its connections.
    let runtime = runtime()?;
    let tokens = match config.storage.kind {
        StorageKind::Files => Tokens::open(&config.token_file())?,
        StorageKind::Postgres => {
            let _inside = runtime.enter();
            Tokens::in_database(&database(&config.storage, args.allow_unreplicated)?)?
        }
    };
    match &args.action {
        Action::Create { agent, federation, out } => {
            if let Some(unknown) =
                federation.iter().find(|name| config.federations.iter().all(|own| own.name != **name))
            {
                let names: Vec<&str> = config.federations.iter().map(|own| own.name.as_str()).collect();
                bail!(
                    "{} has no federation \"{unknown}\": it has {}",
                    args.config.display(),
                    names.join(", ")
                );
            }
            let (text, info) = tokens.create(AgentId(*agent), federation.clone())?;
            hand_out(args, &text, &info.id, out.as_deref())?;
        }
        Action::Rotate { id, grace, out } => {
            let text = tokens.rotate(id, Duration::from_secs(*grace))?;
            hand_out(args, &text, id, out.as_deref())?;
        }
        Action::Revoke { id } => {
            tokens.revoke(id)?;
            if args.json {
                print_json(&json!({ "revoked": id }))?;
            } else {
                print(&format!("{id} is revoked\n"))?;
            }
        }
        Action::List if args.json => print_json(&tokens.list())?,
        Action::List => {
            let mut text = String::from("id        agent  state    federations\n");
            for token in tokens.list() {
                let state = if token.revoked { "revoked" } else { "valid" };
                let _ = writeln!(
                    text,
                    "{:<8} {:>6}  {state:<7}  {}",
                    token.id,
                    token.agent,
                    token.federations.join(", ")
                );
            }
            print(&text)?;
        }
    }
    Ok(Ending::Done)
}

/// Prints a token, or writes it to a file that only its owner may read.
fn hand_out(args: &Args, text: &str, id: &str, out: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = out else {
        return if args.json {
            print_json(&json!({ "id": id, "token": text }))
        } else {
            print(&format!("{text}\n"))
        };
    };
    // A draft beside it, then a rename: an agent that reads the file meanwhile finds a whole token.
    let draft = path.with_extension("draft");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(format!("{text}\n").as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    if args.json {
        print_json(&json!({ "id": id, "file": path }))
    } else {
        print(&format!("{id} is in {}\n", path.display()))
    }
}
