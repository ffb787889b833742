//! What agents do not wait for: tokens, and who did what.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tracing::warn;

use super::session::Session;
use super::{Database, SLOW};
use crate::audit::AuditLine;
use crate::log::LogError;

/// Lines of the audit log that may wait to be written.
const LINES: usize = 10_000;

impl Database {
    /// How often tokens have changed.
    pub(crate) async fn token_changes(&self) -> Result<i64, LogError> {
        self.with_idle(async |session| {
            let rows = session.read("SELECT tokens FROM posse_schema", &[]).await?;
            Ok(rows.first().map_or(0, |row| row.get(0)))
        })
        .await
    }

    /// Every token, as a document with its id.
    pub(crate) async fn tokens(&self) -> Result<BTreeMap<String, String>, LogError> {
        self.with_idle(async |session| read_tokens(session).await).await
    }

    /// Lets `edit` say which documents are put in place of those that are there. No other process changes them meanwhile.
    pub(crate) async fn change_tokens(
        &self,
        edit: impl FnOnce(&BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String>,
    ) -> Result<(), LogError> {
        let session = self.connect().await?.1;
        session.run("BEGIN; LOCK TABLE posse_token IN EXCLUSIVE MODE").await?;
        let changed = edit(&read_tokens(&session).await?).map_err(|why| session.error(why))?;
        let keep = "
            INSERT INTO posse_token (id, document) VALUES ($1, $2)
            ON CONFLICT (id) DO UPDATE SET document = excluded.document";
        for (id, document) in &changed {
            session.read(keep, &[id, document]).await?;
        }
        session.run("UPDATE posse_schema SET tokens = tokens + 1").await?;
        session.end().await
    }

    /// Where lines of the audit log are sent, to be written a moment later. Must be called inside of a runtime.
    pub(crate) fn audit(&self) -> mpsc::Sender<AuditLine> {
        let (sender, mut lines) = mpsc::channel::<AuditLine>(LINES);
        let database = self.clone();
        tokio::spawn(async move {
            let mut some = Vec::new();
            while lines.recv_many(&mut some, LINES).await > 0 {
                let (federations, texts): (Vec<String>, Vec<String>) =
                    some.drain(..).map(|line| (line.federation, line.text)).unzip();
                if let Err(error) = database.write_audit(&federations, &texts).await {
                    warn!(%error, lines = texts.len(), "lines of the audit log are only in this coordinator's file");
                }
            }
        });
        sender
    }

    /// Writes one line to the audit log; `federation` is empty for what concerns all of them.
    pub(crate) async fn note(&self, federation: &str, line: &str) -> Result<(), LogError> {
        self.write_audit(&[federation.to_owned()], &[line.to_owned()]).await
    }

    async fn write_audit(&self, federations: &[String], lines: &[String]) -> Result<(), LogError> {
        let write = "
            INSERT INTO posse_audit (federation, line)
            SELECT line.federation, line.text FROM unnest($1::text[], $2::text[]) AS line (federation, text)";
        self.with_idle(async |session| session.commit(write, &[&federations, &lines]).await.map(drop)).await
    }

    /// Works with a session that is kept for the next time, unless something goes wrong.
    async fn with_idle<T>(
        &self,
        work: impl AsyncFnOnce(&Session) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let mut idle = self.0.idle.lock().await;
        let session = match idle.take() {
            Some(session) => session,
            None => {
                tokio::time::timeout(SLOW, self.connect())
                    .await
                    .map_err(|_| LogError::Database {
                        server: "PostgreSQL".into(),
                        why: "no answer".into(),
                    })??
                    .1
            }
        };
        let done = work(&session).await?;
        *idle = Some(session);
        Ok(done)
    }
}

async fn read_tokens(session: &Session) -> Result<BTreeMap<String, String>, LogError> {
    let rows = session.read("SELECT id, document FROM posse_token", &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
