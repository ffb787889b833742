//! Appending to the tables and saving states in them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Database;
use super::lease::Lease;
use super::session::Session;
use crate::log::record::{join, mark, read_mark};
use crate::log::{KeptLife, Leadership, Log, LogError, Replay};

/// Bytes of a row of entries, about. Longer batches are several rows of one statement.
const ROW_BYTES: usize = 8 << 20;
/// Bytes of a row of a saved state.
const CHUNK_BYTES: usize = 1 << 20;
/// How many saved states are kept.
const KEPT_SNAPSHOTS: i64 = 2;
/// Bytes that a probe writes at most.
const LONGEST_PROBE: u64 = 16 << 20;

/// One statement: the row of the federation says whether this process may append, and is locked until the entries are
/// committed. It renews the lease as well.
const APPEND: &str = "
WITH mine AS (
    UPDATE posse_federation
    SET next = next + $4, epoch = greatest(epoch, $5), lease_until = clock_timestamp() + $6 * interval '1 second'
    WHERE name = $1 AND term = $2 AND next = $3
        AND ($7 OR current_setting('synchronous_standby_names') <> '')
    RETURNING name
)
INSERT INTO posse_batch (federation, first, count, term, crc, bytes)
SELECT mine.name, batch.first, batch.count, $2, batch.crc, batch.bytes
FROM mine, unnest($8::bigint[], $9::bigint[], $10::bigint[], $11::bytea[]) AS batch (first, count, crc, bytes)";

const KEEP_LIVES: &str = "
WITH mine AS (
    UPDATE posse_federation SET lease_until = clock_timestamp() + $3 * interval '1 second'
    WHERE name = $1 AND term = $2 AND ($4 OR current_setting('synchronous_standby_names') <> '')
    RETURNING name
)
INSERT INTO posse_life AS known (federation, agent, life, instance)
SELECT mine.name, given.agent, given.life, given.instance
FROM mine, unnest($5::bigint[], $6::bigint[], $7::bigint[]) AS given (agent, life, instance)
ON CONFLICT (federation, agent)
DO UPDATE SET life = greatest(known.life, excluded.life), instance = excluded.instance";

const KEEP_CHUNK: &str = "
WITH mine AS (
    UPDATE posse_federation SET lease_until = clock_timestamp() + $3 * interval '1 second'
    WHERE name = $1 AND term = $2 RETURNING name
)
INSERT INTO posse_snapshot_chunk (federation, first, number, bytes)
SELECT mine.name, $4, $5, $6 FROM mine
ON CONFLICT (federation, first, number) DO UPDATE SET bytes = excluded.bytes";

const KEEP_SNAPSHOT: &str = "
WITH mine AS (
    UPDATE posse_federation SET lease_until = clock_timestamp() + $3 * interval '1 second'
    WHERE name = $1 AND term = $2 RETURNING name
)
INSERT INTO posse_snapshot (federation, first, term, chunks, crc)
SELECT mine.name, $4, $2, $5, $6 FROM mine
ON CONFLICT (federation, first)
DO UPDATE SET term = excluded.term, chunks = excluded.chunks, crc = excluded.crc";

const KEEP_DOCUMENT: &str = "
WITH mine AS (
    UPDATE posse_federation SET lease_until = clock_timestamp() + $3 * interval '1 second'
    WHERE name = $1 AND term = $2 RETURNING name
)
INSERT INTO posse_document (federation, name, bytes) SELECT mine.name, $4, $5 FROM mine
ON CONFLICT (federation, name) DO UPDATE SET bytes = excluded.bytes";

/// A federation's log in PostgreSQL. Not to be used inside of an async task: its methods wait.
pub struct PostgresLog {
    pub(super) database: Database,
    pub(super) federation: String,
    session: Option<(usize, Session)>,
    pub(super) lease: Lease,
    /// The last row of entries that was read or written.
    pub(super) last: Option<BatchId>,
    pub(super) next: u64,
    /// The highest number of entries that this process has seen in any of the servers.
    pub(super) seen: u64,
    pub(super) since_snapshot: u64,
    pub(super) bytes: u64,
    pending: Vec<Row>,
    /// How many entries of this process were confirmed, noted beside where the files would be.
    mark: Option<File>,
}

/// Which row of entries it is. Two rows with the same first entry and term are the same row, on whichever server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchId {
    pub(super) first: i64,
    pub(super) term: i64,
    pub(super) crc: i64,
}

/// Entries that will be one row.
struct Row {
    first: u64,
    count: u64,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for PostgresLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresLog").field("federation", &self.federation).finish_non_exhaustive()
    }
}

impl PostgresLog {
    /// The log of a federation that [`Database::begin`] has begun. In `directory` this process notes how much was
    /// confirmed to it, so that a database that has lost some of it is noticed. Nothing is connected yet.
    pub fn open(database: &Database, federation: &str, directory: &Path) -> Result<Self, LogError> {
        crate::log::private_directory(directory)?;
        let seen = read_mark(directory).map_or(0, |(entries, _)| entries);
        let path = directory.join("mark");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        Ok(Self {
            database: database.clone(),
            federation: federation.into(),
            session: None,
            lease: Lease::none(database.0.lease),
            last: None,
            next: 0,
            seen,
            since_snapshot: 0,
            bytes: 0,
            pending: Vec::new(),
            mark: Some(file.map_err(LogError::io(path))?),
        })
    }

    /// Waits for `work`. After an error the connection is closed, and the next one begins with another server.
    pub(super) fn wait<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Self) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let runtime = self.database.0.runtime.clone();
        let done = runtime.block_on(work(self));
        if done.is_err() {
            self.pending.clear();
            self.lease.lose();
            if let Some((index, _)) = self.session.take()
                && !matches!(done, Err(LogError::Deposed { .. }))
            {
                self.database.distrust(index);
            }
        }
        done
    }

    /// The session, which is connected if it is not yet.
    pub(super) async fn session(&mut self) -> Result<&Session, LogError> {
        if self.session.is_none() {
            self.session = Some(self.database.connect().await?);
        }
        Ok(&self.session.as_ref().expect("it was just connected").1)
    }

    async fn append_pending(&mut self, epoch: u64) -> Result<(), LogError> {
        let rows = std::mem::take(&mut self.pending);
        let Some(first) = rows.first().map(|row| row.first) else { return Ok(()) };
        let term = self.lease.term()?;
        let began = Instant::now();
        let count: u64 = rows.iter().map(|row| row.count).sum();
        let firsts: Vec<i64> = rows.iter().map(|row| row.first as i64).collect();
        let counts: Vec<i64> = rows.iter().map(|row| row.count as i64).collect();
        let bytes: Vec<&[u8]> = rows.iter().map(|row| row.bytes.as_slice()).collect();
        let crcs: Vec<i64> =
            rows.iter().map(|row| checksum(row.first, row.count, term, &row.bytes)).collect();
        let (lease, weak) = (self.database.lease_seconds(), self.database.0.allow_unreplicated);
        let name = self.federation.clone();
        let values: super::session::Values<'_> = &[
            &name,
            &term,
            &(first as i64),
            &(count as i64),
            &(epoch as i64),
            &lease,
            &weak,
            &firsts,
            &counts,
            &crcs,
            &bytes,
        ];
        let kept = self.session().await?.commit(APPEND, values).await?;
        if kept != rows.len() as u64 {
            return Err(self.deposed().await);
        }
        self.lease.renew(began);
        let last = rows.len() - 1;
        self.last = Some(BatchId { first: firsts[last], term, crc: crcs[last] });
        self.seen = self.seen.max(first + count);
        if let Some(file) = &self.mark {
            // As beside files: not synced, it only has to outlive the process.
            let _ = file.write_all_at(&mark(first + count, epoch), 0);
        }
        Ok(())
    }

    async fn save(&mut self, state: &[u8]) -> Result<(), LogError> {
        let (name, first) = (self.federation.clone(), self.next as i64);
        let lease = self.database.lease_seconds();
        let mut chunks = 0_i64;
        for chunk in state.chunks(CHUNK_BYTES) {
            // One commit each: between them the lease is renewed, and a long state does not end it.
            let (term, began) = (self.lease.term()?, Instant::now());
            let session = self.session().await?;
            let kept = session.commit(KEEP_CHUNK, &[&name, &term, &lease, &first, &chunks, &chunk]).await?;
            if kept != 1 {
                return Err(self.deposed().await);
            }
            self.lease.renew(began);
            chunks += 1;
        }
        let (term, began) = (self.lease.term()?, Instant::now());
        let crc = checksum(self.next, chunks as u64, 0, state);
        let session = self.session().await?;
        let kept = session.commit(KEEP_SNAPSHOT, &[&name, &term, &lease, &first, &chunks, &crc]).await?;
        if kept != 1 {
            return Err(self.deposed().await);
        }
        self.lease.renew(began);
        Ok(())
    }

    async fn drop_superfluous(&mut self, keep_entries: bool) -> Result<(), LogError> {
        let name = self.federation.clone();
        let session = self.session().await?;
        let kept = "SELECT first FROM posse_snapshot WHERE federation = $1 ORDER BY first DESC LIMIT $2";
        let kept = session.read(kept, &[&name, &KEPT_SNAPSHOTS]).await?;
        // With one saved state there is nothing to fall back to: every entry is needed.
        let Some(oldest) = kept.get(KEPT_SNAPSHOTS as usize - 1).map(|row| row.get::<_, i64>(0)) else {
            return Ok(());
        };
        for table in ["posse_snapshot", "posse_snapshot_chunk"] {
            let drop = format!("DELETE FROM {table} WHERE federation = $1 AND first < $2");
            session.commit(&drop, &[&name, &oldest]).await?;
        }
        if keep_entries {
            return Ok(());
        }
        let drop = "
            WITH gone AS (DELETE FROM posse_batch WHERE federation = $1 AND first < $2 RETURNING length(bytes) AS bytes)
            SELECT coalesce(sum(bytes), 0)::bigint FROM gone";
        let rows = session.commit_rows(drop, &[&name, &oldest]).await?;
        let gone: i64 = rows.first().map_or(0, |row| row.get(0));
        self.bytes = self.bytes.saturating_sub(gone as u64);
        Ok(())
    }

    async fn keep_lives_now(&mut self, lives: &[KeptLife]) -> Result<(), LogError> {
        let (name, term, began) = (self.federation.clone(), self.lease.term()?, Instant::now());
        let (lease, weak) = (self.database.lease_seconds(), self.database.0.allow_unreplicated);
        let column = |of: fn(&KeptLife) -> u64| lives.iter().map(|life| of(life) as i64).collect::<Vec<_>>();
        let agents = column(|life| life.agent);
        let numbers = column(|life| life.life);
        let instances = column(|life| life.instance);
        let values: super::session::Values<'_> =
            &[&name, &term, &lease, &weak, &agents, &numbers, &instances];
        let kept = self.session().await?.commit(KEEP_LIVES, values).await?;
        if kept != lives.len() as u64 {
            return Err(self.deposed().await);
        }
        self.lease.renew(began);
        Ok(())
    }

    async fn keep_document(&mut self, document: &str, bytes: &[u8]) -> Result<(), LogError> {
        let (name, term, began) = (self.federation.clone(), self.lease.term()?, Instant::now());
        let lease = self.database.lease_seconds();
        let session = self.session().await?;
        let kept = session.commit(KEEP_DOCUMENT, &[&name, &term, &lease, &document, &bytes]).await?;
        if kept != 1 {
            return Err(self.deposed().await);
        }
        self.lease.renew(began);
        Ok(())
    }

    async fn probe_now(&mut self, bytes: u64) -> Result<(), LogError> {
        let zeros = vec![0_u8; bytes.min(LONGEST_PROBE) as usize];
        let name = self.federation.clone();
        let session = self.session().await?;
        session.run("BEGIN").await?;
        let write = "INSERT INTO posse_document (federation, name, bytes) VALUES ($1, 'probe', $2)";
        session.read(write, &[&name, &zeros]).await?;
        session.run("ROLLBACK").await
    }
}

impl Log for PostgresLog {
    fn append(&mut self, entries: &[Vec<u8>]) -> Result<(), LogError> {
        let mut rest = entries;
        while !rest.is_empty() {
            let mut length = 0;
            let fits = rest.iter().take_while(|entry| {
                let begins = length == 0;
                length += entry.len();
                begins || length <= ROW_BYTES
            });
            let (row, after) = rest.split_at(fits.count());
            let mut bytes = Vec::new();
            join(&mut bytes, row);
            self.since_snapshot += bytes.len() as u64;
            self.bytes += bytes.len() as u64;
            self.pending.push(Row { first: self.next, count: row.len() as u64, bytes });
            self.next += row.len() as u64;
            rest = after;
        }
        Ok(())
    }

    fn sync(&mut self, epoch: u64) -> Result<(), LogError> {
        self.wait(async |log| log.append_pending(epoch).await)
    }

    fn replay(&mut self) -> Result<Replay, LogError> {
        self.wait(async |log| log.replay_now().await)
    }

    fn snapshot(&mut self, state: &[u8]) -> Result<(), LogError> {
        self.wait(async |log| log.save(state).await)?;
        self.since_snapshot = 0;
        Ok(())
    }

    fn truncate(&mut self, keep_entries: bool) -> Result<(), LogError> {
        self.wait(async |log| log.drop_superfluous(keep_entries).await)
    }

    fn history(&mut self) -> Result<Option<Vec<Vec<u8>>>, LogError> {
        self.wait(async |log| log.history_now().await)
    }

    fn probe(&mut self, bytes: u64) -> Result<(), LogError> {
        self.wait(async |log| log.probe_now(bytes).await)
    }

    fn next(&self) -> u64 {
        self.next
    }

    fn bytes_since_snapshot(&self) -> u64 {
        self.since_snapshot
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn keep_beside(&mut self, name: &str, bytes: &[u8]) -> Result<(), LogError> {
        self.wait(async |log| log.keep_document(name, bytes).await)
    }

    fn beside(&mut self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        let federation = self.federation.clone();
        self.wait(async |log| {
            let asked = "SELECT bytes FROM posse_document WHERE federation = $1 AND name = $2";
            let rows = log.session().await?.read(asked, &[&federation, &name]).await?;
            Ok(rows.first().map(|row| row.get(0)))
        })
    }

    fn lead(&mut self) -> Result<Leadership, LogError> {
        self.wait(async |log| log.lead_now().await)
    }

    fn leads_until(&self) -> Option<Instant> {
        Some(self.lease.until())
    }

    fn tend(&mut self) -> Result<Option<Duration>, LogError> {
        if self.lease.due().is_zero() {
            self.wait(async |log| log.renew_now().await)?;
        }
        Ok(Some(self.lease.due()))
    }

    fn resign(&mut self) {
        let _ = self.wait(async |log| log.resign_now().await);
    }

    fn follow(&mut self) -> Result<Option<Vec<Vec<u8>>>, LogError> {
        self.wait(async |log| log.follow_now().await)
    }

    fn patience(&self) -> Duration {
        self.database.0.lease / 6
    }

    fn keep_lives(&mut self, lives: &[KeptLife]) -> Result<(), LogError> {
        self.wait(async |log| log.keep_lives_now(lives).await)
    }

    fn lives(&mut self) -> Result<Option<Vec<KeptLife>>, LogError> {
        self.wait(async |log| log.lives_now().await.map(Some))
    }
}

/// CRC-32C over a row of entries, or a whole saved state, and its place.
pub(super) fn checksum(first: u64, count: u64, term: i64, bytes: &[u8]) -> i64 {
    let mut head = [0; 24];
    head[..8].copy_from_slice(&first.to_le_bytes());
    head[8..16].copy_from_slice(&count.to_le_bytes());
    head[16..].copy_from_slice(&term.to_le_bytes());
    i64::from(crc32c::crc32c_append(crc32c::crc32c(&head), bytes))
}
