//! Who did what to a federation: one JSON document a line in `audit.jsonl`, appended and never rewritten.
//!
//! It records what decides who is heard: lives that begin and end, processes that are refused, quarantines, what the
//! operator did, and tokens. It is for people and never read back. A line that cannot be written is a warning and
//! nothing else: the log of the federation decides what happened.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::warn;

/// A file of events, and a database that holds those of all coordinators that share it.
#[derive(Debug)]
pub(crate) struct Audit {
    file: Option<File>,
    database: Option<(String, mpsc::Sender<AuditLine>)>,
}

/// An event on its way to a database.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only a database reads it"))]
pub(crate) struct AuditLine {
    pub(crate) federation: String,
    pub(crate) text: String,
}

impl Audit {
    /// Appends to `audit.jsonl` in a directory, a file that only its owner may read.
    pub(crate) fn open(directory: &Path) -> Self {
        let path = directory.join("audit.jsonl");
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        if let Err(error) = &file {
            warn!(path = %path.display(), %error, "nothing will be written to the audit log");
        }
        crate::coordinator::files::give_to_owner_of_directory(&path);
        Self { file: file.ok(), database: None }
    }

    /// The same, and every line goes to a database too.
    #[cfg(feature = "postgres")]
    pub(crate) fn shared(directory: &Path, federation: &str, lines: mpsc::Sender<AuditLine>) -> Self {
        Self { database: Some((federation.to_owned(), lines)), ..Self::open(directory) }
    }

    /// Writes down that `event` happened, with its details.
    pub(crate) fn note(&mut self, event: &str, details: Value) {
        if self.file.is_none() && self.database.is_none() {
            return;
        }
        let line = line(event, details);
        // One write a line, so that processes that append to the same file do not mix theirs.
        let written =
            self.file.as_mut().map_or(Ok(()), |file| file.write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            warn!(%error, "the audit log cannot be written");
        }
        if let Some((federation, lines)) = &self.database {
            let line = AuditLine { federation: federation.clone(), text: line.to_string() };
            // A database that is slower than the events is behind by them; the file has them all.
            let _ = lines.try_send(line);
        }
    }
}

/// An event with its time and details.
pub(crate) fn line(event: &str, details: Value) -> Value {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut line = json!({ "time": time, "event": event });
    if let (Value::Object(line), Value::Object(details)) = (&mut line, details) {
        line.extend(details);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_appended_one_a_line_and_others_may_not_read_them() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        Audit::open(directory.path()).note("joined", json!({ "agent": 7, "life": 1 }));
        Audit::open(directory.path()).note("evicted", json!({ "agent": 7 }));
        let path = directory.path().join("audit.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["event"], &lines[0]["life"]), (&json!("joined"), &json!(1)));
        assert_eq!((lines.len(), &lines[1]["event"]), (2, &json!("evicted")));
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
