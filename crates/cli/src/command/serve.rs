//! `posse serve`: runs a coordinator until it is asked to end.

use std::path::PathBuf;

use posse_net::coordinator::{Options, serve};

use super::runtime::{Asked, LogFormat, Signals, log_to_stderr, runtime};
use super::{Ending, print};
use crate::federation;

/// Run a coordinator for the federations in a file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse serve --config federation.toml

The first line on stdout is the address. SIGTERM finishes what was begun, saves, and ends. SIGHUP reads the tokens
again at once; otherwise changes are noticed within a second.
docs/guides/run-a-federation.md goes through it step by step.")]
pub(crate) struct Args {
    /// The federations, where to listen and where to keep what they learn
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only check the file, the certificates that it names, and whether logs were begun with these settings
    #[arg(long)]
    check: bool,
    /// Listen beyond loopback without TLS or tokens
    #[arg(long)]
    insecure: bool,
    /// How logs are written, to stderr
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
    /// Also log details that help to find faults
    #[arg(long, short)]
    verbose: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let config = federation::read(&args.config, args.insecure)?;
    if args.check {
        config.check_files()?;
        let names: Vec<&str> = config.federations.iter().map(|own| own.name.as_str()).collect();
        print(&format!("{} is in order: {}\n", args.config.display(), names.join(", ")))?;
        return Ok(Ending::Done);
    }
    log_to_stderr(args.log_format, args.verbose);
    runtime()?.block_on(async {
        let mut signals = Signals::listen()?;
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let running = serve(config, Options { insecure: args.insecure, ..Options::default() }).await?;
        print(&format!("{scheme}://{}\n", running.address))?;
        if let Some(admin) = running.admin {
            print(&format!("http://{admin}/metrics\n"))?;
        }
        while signals.next().await == Asked::ToReload {
            running.reload().await;
        }
        running.drain().await;
        Ok(Ending::Done)
    })
}
