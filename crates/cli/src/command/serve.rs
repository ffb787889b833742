//! `posse serve`: runs a coordinator until it is asked to end.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use posse_net::Tracer;
use posse_net::coordinator::{Options, Running, ServeConfig, serve};
use tracing::{info, warn};

use super::runtime::{Asked, LogFormat, Signals, log_to_stderr, runtime};
use super::{Ending, print};
use crate::federation;

/// How often it is looked whether the file has changed.
const LOOK: Duration = Duration::from_secs(1);

/// Run a coordinator for the federations in a file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse serve --config federation.toml

The first line on stdout is the address. SIGTERM finishes what was begun, saves, and ends. SIGHUP reads the tokens, the
certificates and [limits] again at once; otherwise changes are noticed within a second.
docs/guides/run-a-federation.md goes through it step by step.")]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Use a PostgreSQL database without synchronous standbys, which may lose what it confirmed: for development
    #[arg(long)]
    allow_unreplicated: bool,
}

/// What coordinators and relays are told alike.
#[derive(Debug, clap::Args)]
pub(super) struct Common {
    /// The federations, where to listen and where to keep what they learn
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// Only check the file, the certificates and tokens that it names, and whether logs were begun with these settings
    #[arg(long)]
    pub(super) check: bool,
    /// Listen beyond loopback without TLS or tokens
    #[arg(long)]
    pub(super) insecure: bool,
    /// Send traces of uploads to an OpenTelemetry collector (OTLP over HTTP), for example http://127.0.0.1:4318
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// How logs are written, to stderr
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
    /// Also log details that help to find faults
    #[arg(long, short)]
    verbose: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let config = federation::read(&args.common.config, args.common.insecure)?;
    if args.common.check {
        config.check_files()?;
        let names: Vec<&str> = config.federations.iter().map(|own| own.name.as_str()).collect();
        print(&format!("{} is in order: {}\n", args.common.config.display(), names.join(", ")))?;
        return Ok(Ending::Done);
    }
    serve_until_asked(&args.common, config, args.allow_unreplicated)
}

/// Runs a coordinator or a relay until the process is asked to end.
pub(super) fn serve_until_asked(
    args: &Common,
    mut config: ServeConfig,
    allow_unreplicated: bool,
) -> anyhow::Result<Ending> {
    log_to_stderr(args.log_format, args.verbose);
    runtime()?.block_on(async {
        let mut signals = Signals::listen()?;
        let mut read = identity(&args.config);
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let tracer = args.otlp.as_deref().map(|url| Tracer::new(url, "posse-coordinator")).transpose()?;
        let options = Options {
            insecure: args.insecure,
            allow_unreplicated,
            commit: commit(),
            tracer: tracer.clone(),
            ..Options::default()
        };
        let running = tokio::select! {
            running = serve(config.clone(), options) => running?,
            // A relay that was never there waits for its parent.
            () = signals.asked_to_end() => return Ok(Ending::Done),
        };
        print(&format!("{scheme}://{}\n", running.address))?;
        if let Some(admin) = running.admin {
            print(&format!("http://{admin}/metrics\n"))?;
        }
        let mut look = tokio::time::interval(LOOK);
        loop {
            let asked = tokio::select! {
                asked = signals.next() => Some(asked),
                _ = look.tick() => None,
            };
            let found = identity(&args.config);
            match asked {
                Some(Asked::ToEnd) => break,
                Some(Asked::ToReload) => running.reload().await,
                None if found == read => continue,
                None => {}
            }
            read = found;
            read_again(args, &running, &mut config);
        }
        running.drain().await;
        if let Some(tracer) = tracer {
            tracer.flush();
        }
        Ok(Ending::Done)
    })
}

/// Takes the limits that are in the file now. Whatever else has changed needs a restart, and is named.
fn read_again(args: &Common, running: &Running, config: &mut ServeConfig) {
    let found = match federation::read(&args.config, args.insecure) {
        Ok(found) => found,
        Err(error) => {
            warn!(%error, "the file cannot be used: everything stays as it is");
            return;
        }
    };
    if found.limits != config.limits {
        match running.set_limits(&found.limits) {
            Ok(later) if later.is_empty() => info!("the limits were read again"),
            Ok(later) => info!(after_a_restart = later.join(", "), "the limits were read again"),
            Err(error) => warn!(%error, "the limits stay as they are"),
        }
    }
    config.limits = found.limits.clone();
    if found != *config {
        warn!("the file has changed in more than [limits]: restart the coordinator for the rest");
    }
}

/// The commit that this program was built from, if that is known.
fn commit() -> Option<String> {
    option_env!("POSSE_COMMIT").filter(|commit| !commit.is_empty()).map(String::from)
}

/// When the file was written, and which one it is.
fn identity(path: &Path) -> Option<(SystemTime, u64)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.ino()))
}
