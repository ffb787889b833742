//! What the commands that talk over a network share: a runtime, logs, and the wish to stop.

use std::io::IsTerminal;

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

/// How logs are written, to stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text for each event
    #[default]
    Text,
    /// One JSON document a line
    Json,
}

/// Writes logs to stderr from here on.
pub(crate) fn log_to_stderr(format: LogFormat, verbose: bool) {
    let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
}

/// A runtime on all processors.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the runtime")
}

/// The signals that the process listens to. Created before the first line is printed, because a parent
/// process that has read that line may send a signal at once.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What the process is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To end in good order, by SIGTERM or SIGINT.
    ToEnd,
    /// To read its files again, by SIGHUP.
    ToReload,
}

impl Signals {
    /// Listens from here on. Must be called in a runtime.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The next thing that the process is asked to do.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::ToEnd,
            _ = self.interrupt.recv() => Asked::ToEnd,
            _ = self.hangup.recv() => Asked::ToReload,
        }
    }

    /// Returns when the process is asked to end.
    pub(crate) async fn asked_to_end(&mut self) {
        while self.next().await != Asked::ToEnd {}
    }
}
