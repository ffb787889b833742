//! The tables, and the steps by which older ones become them.

use super::session::Session;
use crate::log::LogError;

/// Every step that tables have gone through, in order. A step that was released is never changed.
const STEPS: [&str; 1] = [FIRST];

/// Numbers of agents, lives and processes are unsigned: the columns hold the same 64 bits.
const FIRST: &str = "
CREATE TABLE posse_federation (
    name text PRIMARY KEY,
    settings text NOT NULL,
    format bigint NOT NULL,
    term bigint NOT NULL,
    next bigint NOT NULL,
    epoch bigint NOT NULL,
    holder text NOT NULL,
    address text NOT NULL,
    lease_until timestamptz NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE posse_batch (
    federation text NOT NULL,
    first bigint NOT NULL,
    count bigint NOT NULL,
    term bigint NOT NULL,
    crc bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (federation, first)
);
CREATE TABLE posse_snapshot (
    federation text NOT NULL,
    first bigint NOT NULL,
    term bigint NOT NULL,
    chunks bigint NOT NULL,
    crc bigint NOT NULL,
    PRIMARY KEY (federation, first)
);
CREATE TABLE posse_snapshot_chunk (
    federation text NOT NULL,
    first bigint NOT NULL,
    number bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (federation, first, number)
);
CREATE TABLE posse_document (
    federation text NOT NULL,
    name text NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (federation, name)
);
CREATE TABLE posse_life (
    federation text NOT NULL,
    agent bigint NOT NULL,
    life bigint NOT NULL,
    instance bigint NOT NULL,
    PRIMARY KEY (federation, agent)
);
CREATE TABLE posse_token (
    id text PRIMARY KEY,
    document text NOT NULL
);
CREATE TABLE posse_audit (
    number bigserial PRIMARY KEY,
    federation text NOT NULL,
    line text NOT NULL
);
ALTER TABLE posse_batch ALTER COLUMN bytes SET STORAGE EXTERNAL;
ALTER TABLE posse_snapshot_chunk ALTER COLUMN bytes SET STORAGE EXTERNAL;
";

/// How often tokens have changed is counted, so that looking for changes does not read them all.
const BEGINNING: &str = "
CREATE TABLE posse_schema (version bigint NOT NULL, tokens bigint NOT NULL);
INSERT INTO posse_schema VALUES (0, 0)";

/// The version of the tables that this build reads and writes.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// A number of ours, so that two migrations wait for each other.
const LOCK: i64 = 0x706f_7373;

/// Brings the tables to [`VERSION`]; returns the versions before and after. Tables of a newer version are refused.
pub(super) async fn migrate(session: &Session) -> Result<(i64, i64), LogError> {
    session.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})")).await?;
    let found = version(session).await?;
    if found.is_none() {
        session.run(BEGINNING).await?;
    }
    let before = found.unwrap_or(0);
    let Some(steps) = usize::try_from(before).ok().and_then(|done| STEPS.get(done..)) else {
        return Err(newer(session, before));
    };
    for step in steps {
        session.run(step).await?;
    }
    session.run(&format!("UPDATE posse_schema SET version = {VERSION}")).await?;
    session.end().await?;
    Ok((before, VERSION))
}

/// `Ok` if the tables are those that this build knows.
pub(super) async fn check(session: &Session) -> Result<(), LogError> {
    match version(session).await? {
        Some(VERSION) => Ok(()),
        Some(newer_one) if newer_one > VERSION => Err(newer(session, newer_one)),
        found => Err(session.error(format!(
            "its tables are of version {}, and this version of posse needs {VERSION}: run `posse storage migrate`",
            found.unwrap_or(0)
        ))),
    }
}

fn newer(session: &Session, found: i64) -> LogError {
    session.error(format!(
        "its tables are of version {found}, and this version of posse knows versions up to {VERSION}: they were made by a \
         newer one"
    ))
}

/// The version of the tables; nothing if there are none.
async fn version(session: &Session) -> Result<Option<i64>, LogError> {
    let there = session.read("SELECT to_regclass('posse_schema') IS NOT NULL", &[]).await?;
    if !there.first().is_some_and(|row| row.get(0)) {
        return Ok(None);
    }
    let rows = session.read("SELECT version FROM posse_schema", &[]).await?;
    Ok(rows.first().map(|row| row.get(0)))
}
