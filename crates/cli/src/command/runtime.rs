//! What the commands that talk over a network share: a runtime, logs, and the wish to stop.

use std::io::IsTerminal;

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

/// How logs are written, to stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON document a line.
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

/// Returns when the process is asked to end.
pub(crate) async fn asked_to_end() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
