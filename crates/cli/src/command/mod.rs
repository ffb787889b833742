//! The commands, one file each.

pub(crate) mod agent;
pub(crate) mod agents;
pub(crate) mod algorithms;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod data;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod evaluate;
pub(crate) mod execute;
pub(crate) mod init;
mod listing;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod merge;
pub(crate) mod privacy;
pub(crate) mod relay;
pub(crate) mod report;
pub(crate) mod reproduce;
mod reproduce_all;
pub(crate) mod run;
mod runtime;
pub(crate) mod serve;
pub(crate) mod start;
pub(crate) mod storage;
pub(crate) mod token;
pub(crate) mod worlds;

use std::cell::RefCell;
use std::io::Write;

use serde::Serialize;

pub(crate) use reproduce_all::minutes;

/// How a command that could do its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The command did everything, and nothing failed.
    Done,
    /// It ran, but something in it failed.
    Failed,
    /// It was stopped before its end, and can go on.
    Interrupted,
}

thread_local! {
    /// What commands on this thread print, while an embedding program wants it for itself.
    static PRINTED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `command` and returns what it printed instead of printing it.
pub(crate) fn printed(command: impl FnOnce() -> anyhow::Result<Ending>) -> (anyhow::Result<Ending>, String) {
    PRINTED.set(Some(String::new()));
    let ending = command();
    (ending, PRINTED.take().unwrap_or_default())
}

/// Writes `text` to stdout and flushes it. Fails if stdout is closed.
fn print(text: &str) -> anyhow::Result<()> {
    let kept = PRINTED.with_borrow_mut(|printed| printed.as_mut().map(|all| all.push_str(text)).is_some());
    if kept {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a document to stdout.
fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(document)? + "\n"))
}
