//! `posse log`: what a coordinator has kept.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use posse_core::session::{LogEntry, LogEvent};
use posse_net::federation::FederationConfig;
use posse_net::log::{self, Contents, LogError, Replay, read};
use serde_json::{Value, json};

use super::{Ending, print, print_json};

/// Look into a coordinator's log
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse log verify posse-data/federations/shop

Nothing is changed. Exit codes: 0 in order, 1 damaged, 2 could not look.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show what is in the log
    Inspect {
        /// The directory of a federation
        directory: PathBuf,
        /// Show so many of the last entries
        #[arg(long, value_name = "NUMBER", default_value_t = 10)]
        entries: usize,
    },
    /// Check that every byte is what was written
    Verify {
        /// The directory of a federation
        directory: PathBuf,
    },
    /// Replay the log and show what the coordinator holds after it
    Replay {
        /// The directory of a federation
        directory: PathBuf,
        /// Stop the replay before this entry
        #[arg(long, value_name = "ENTRY")]
        until: Option<u64>,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let (Action::Inspect { directory, .. } | Action::Verify { directory } | Action::Replay { directory, .. }) =
        &args.action;
    let contents = match read(directory) {
        Ok(contents) => contents,
        Err(error @ LogError::Io { .. }) => return Err(error.into()),
        Err(error) => return damaged(args, &error.to_string()),
    };
    if contents.segments.is_empty() && contents.state.is_none() {
        bail!("{} holds no log: a federation's is in DATA/federations/NAME", directory.display());
    }
    if let (Action::Verify { .. }, Some(lost)) = (&args.action, lost(&contents)) {
        return damaged(args, &lost);
    }
    let document = match &args.action {
        Action::Inspect { entries, .. } => inspect(&contents, *entries)?,
        Action::Verify { .. } => match verify(directory, &contents) {
            Ok(document) => document,
            Err(Unsound(why)) => return damaged(args, &why),
        },
        Action::Replay { until, .. } => replay(directory, contents, *until)?,
    };
    if args.json {
        print_json(&document)?;
    } else {
        let mut text = String::new();
        show(&document, "", &mut text);
        print(&text)?;
    }
    Ok(Ending::Done)
}

fn damaged(args: &Args, why: &str) -> anyhow::Result<Ending> {
    if args.json {
        print_json(&json!({ "sound": false, "why": why }))?;
    } else {
        print(&format!("damaged: {why}\n"))?;
    }
    Ok(Ending::Failed)
}

/// What is missing at the end, if it is known that something was there.
fn lost(contents: &Contents) -> Option<String> {
    let next = contents.first + contents.entries.len() as u64;
    let (durable, _) = contents.mark.filter(|(durable, _)| *durable > next)?;
    Some(format!(
        "entries {next} to {} were durable and are gone: restore the files from a copy, or a new epoch begins \
         at the next start",
        durable - 1
    ))
}

/// Why a log is not sound.
struct Unsound(String);

impl From<LogError> for Unsound {
    fn from(error: LogError) -> Self {
        Self(error.to_string())
    }
}

/// Looks at every file, also those that a restart would not read, and whether every entry is one.
fn verify(directory: &Path, contents: &Contents) -> Result<Value, Unsound> {
    let seen = log::verify(directory, |number, bytes| {
        LogEntry::decode(bytes).map(drop).map_err(|error| Unsound(format!("entry {number}: {error}")))
    })?;
    let mut document = summary(contents);
    document["saved states"] = seen.snapshots.into();
    document["files of entries"] = seen.segments.into();
    document["entries in all files"] = seen.entries.into();
    Ok(document)
}

fn summary(contents: &Contents) -> Value {
    let segments = contents.segments.iter();
    json!({
        "sound": true,
        "state": contents.state.as_ref().map(|(first, state)| format!("{} bytes, before entry {first}", state.len())),
        "entries": contents.entries.len(),
        "next entry": contents.first + contents.entries.len() as u64,
        "bytes": segments.map(|segment| segment.bytes).sum::<u64>(),
        "unfinished write": contents.damage.as_ref().map(|damage| {
            format!("{} bytes at byte {} of {}: dropped at the next start", damage.bytes, damage.offset, damage.path.display())
        }),
    })
}

fn inspect(contents: &Contents, shown: usize) -> anyhow::Result<Value> {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    let mut last = Vec::new();
    let skip = contents.entries.len().saturating_sub(shown);
    for (index, bytes) in contents.entries.iter().enumerate() {
        let number = contents.first + index as u64;
        let entry = LogEntry::decode(bytes).with_context(|| format!("entry {number}"))?;
        let (kind, what) = describe(&entry);
        *kinds.entry(kind).or_default() += 1;
        if index >= skip {
            last.push(format!("{number} at {} {what}", entry.tick.0));
        }
    }
    let mut document = summary(contents);
    document["kinds"] = json!(kinds);
    document["segments"] = contents
        .segments
        .iter()
        .map(|own| json!(own.path.file_name().map(|n| n.to_string_lossy())))
        .collect();
    document["last"] = json!(last);
    Ok(document)
}

fn describe(entry: &LogEntry) -> (&'static str, String) {
    match &entry.event {
        LogEvent::Joined(agent, life) => ("joined", format!("{agent} began life {}", life.0)),
        LogEvent::Returned(agent) => ("returned", format!("{agent} returned")),
        LogEvent::Left(agent) => ("left", format!("{agent} left")),
        LogEvent::Accepted(agent, frame) => {
            let message = frame.message.as_ref().map_or("nothing", |message| message.kind());
            (
                "accepted",
                format!("{agent} sent {message}, frame {} of life {}", frame.sequence, frame.incarnation.0),
            )
        }
        LogEvent::Ticked => ("ticked", "time passed".into()),
        LogEvent::TickedWithout(absent) => {
            ("ticked", format!("time passed; {} agents were away", absent.len()))
        }
        LogEvent::EpochBegan(epoch) => ("epoch began", format!("epoch {} began", epoch.0)),
        LogEvent::Heard(frame) => {
            let message = frame.message.as_ref().map_or("nothing", posse_core::Downlink::kind);
            ("heard", format!("its parent said {message}"))
        }
        LogEvent::Retracted(agent) => ("retracted", format!("what {agent} had shared before was taken out")),
    }
}

fn replay(directory: &Path, contents: Contents, until: Option<u64>) -> anyhow::Result<Value> {
    let path = directory.join("federation.json");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = FederationConfig::from_kept(&text).with_context(|| format!("{}", path.display()))?;
    let config = config.with_identity_of(directory)?;
    let Contents { first, mut entries, state, .. } = contents;
    if let Some(until) = until {
        let kept = until.checked_sub(first);
        let kept = kept
            .with_context(|| format!("entries before {first} are gone: --until must be at least {first}"))?;
        if kept > entries.len() as u64 {
            bail!("entry {until} is not there yet: --until must be at most {}", first + entries.len() as u64);
        }
        entries.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
    }
    let next = first + entries.len() as u64;
    let hub =
        config.replay(&Replay { state: state.map(|(_, state)| state), entries, ..Replay::default() })?;
    let view = hub.coordinator().inspect();
    let saved = hub.coordinator().save();
    let hash = saved.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Ok(json!({
        "federation": config.name,
        "algorithm": config.algorithm.name(),
        "next entry": next,
        "epoch": hub.epoch().0,
        "version": view.version.0,
        "observations": view.observations,
        "information": view.information,
        "agents": view.agents,
        "fingerprint": format!("{hash:016x}"),
    }))
}

/// Appends a JSON object to `text` as indented lines, one key a line; null values are left out.
fn show(value: &Value, indent: &str, text: &mut String) {
    let Value::Object(map) = value else { return };
    for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        match value {
            Value::Object(_) => {
                let _ = writeln!(text, "{indent}{key}:");
                show(value, &format!("{indent}  "), text);
            }
            Value::Array(items) => {
                let _ = writeln!(text, "{indent}{key}:");
                for item in items {
                    let _ = writeln!(text, "{indent}  {}", item.as_str().unwrap_or_default());
                }
            }
            Value::String(word) => drop(writeln!(text, "{indent}{key}: {word}")),
            other => drop(writeln!(text, "{indent}{key}: {other}")),
        }
    }
}
