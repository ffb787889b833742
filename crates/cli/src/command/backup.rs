//! `posse backup` and `posse restore`: a copy of everything that a coordinator keeps, and the way back.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use posse_net::coordinator::ServeConfig;
use posse_net::log::{self, StorageKind};

use super::{Ending, print};
use crate::federation;

/// Copy the logs and tokens of a coordinator, which may be running
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse backup --config federation.toml --to backups/2026-11-16

The copy holds everything that was durable when it began, and every byte of it was checked.")]
pub(crate) struct BackupArgs {
    /// The coordinator's configuration file
    #[arg(long, value_name = "FILE", default_value = "federation.toml")]
    config: PathBuf,
    /// A directory that is empty or not there yet
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

/// Put a copy back in place of logs that are lost
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  mv /var/lib/posse /var/lib/posse.lost
  posse restore --config federation.toml --from backups/2026-11-16

Nothing that is there is overwritten. The coordinator must be stopped. It then begins a new epoch: agents are told what
is left, and say again what they know and the copy does not have; what was confirmed after the copy was made is lost.")]
pub(crate) struct RestoreArgs {
    /// The coordinator's configuration file
    #[arg(long, value_name = "FILE", default_value = "federation.toml")]
    config: PathBuf,
    /// A copy that `posse backup` made
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
}

/// Copies the logs of every federation of the coordinator, and its tokens, to a directory.
pub(crate) fn backup(args: &BackupArgs) -> anyhow::Result<Ending> {
    let config = federation::read(&args.config, true)?;
    refuse_database(&config)?;
    for name in names(&config) {
        let to = place(&args.to, name);
        let seen = log::backup(&config.log_directory(name), &to)
            .with_context(|| format!("cannot copy federation \"{name}\""))?;
        print(&format!(
            "{name}: {} saved states and {} entries in {}\n",
            seen.snapshots,
            seen.entries,
            to.display()
        ))?;
    }
    let tokens = config.token_file();
    if tokens.exists() {
        copy_private(&tokens, &args.to.join("tokens.json"))?;
    }
    Ok(Ending::Done)
}

/// Puts a copy that [`backup`] made in its place. Fails if the copy lacks a federation, or if there is state
/// already.
pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<Ending> {
    let config = federation::read(&args.config, true)?;
    refuse_database(&config)?;
    for name in names(&config) {
        let from = place(&args.from, name);
        if !from.exists() {
            bail!("{} is not there: the copy has no federation \"{name}\"", from.display());
        }
        let seen = log::restore(&from, &config.log_directory(name)).with_context(|| {
            format!("cannot restore federation \"{name}\": move what is there away first")
        })?;
        print(&format!("{name}: {} saved states and {} entries\n", seen.snapshots, seen.entries))?;
    }
    let tokens = args.from.join("tokens.json");
    if tokens.exists() && !config.token_file().exists() {
        copy_private(&tokens, &config.token_file())?;
    }
    Ok(Ending::Done)
}

/// Files are copied here, databases by their own means.
fn refuse_database(config: &ServeConfig) -> anyhow::Result<()> {
    if config.storage.kind == StorageKind::Postgres {
        bail!(
            "this coordinator keeps everything in PostgreSQL: copy and restore that, for example with pg_basebackup"
        );
    }
    Ok(())
}

fn names(config: &ServeConfig) -> impl Iterator<Item = &str> {
    config.federations.iter().map(|federation| federation.name.as_str())
}

fn place(copy: &Path, federation: &str) -> PathBuf {
    copy.join("federations").join(federation)
}

/// Copies a file together with its mode: only its owner may read it.
fn copy_private(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}
