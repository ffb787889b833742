//! Reading the tables back: a saved state, the entries after it, and whatever has been appended since.

use super::store::{BatchId, PostgresLog, checksum};
use crate::log::record::split;
use crate::log::{KeptLife, LogError, Replay};

/// Rows of entries that are asked for at a time.
const PAGE: i64 = 16;

impl PostgresLog {
    /// The newest saved state that is sound and every entry after it.
    pub(super) async fn replay_now(&mut self) -> Result<Replay, LogError> {
        let name = self.federation.clone();
        self.last = None;
        let mut replay = Replay::default();
        let saved = "SELECT first, chunks, crc FROM posse_snapshot WHERE federation = $1 ORDER BY first DESC";
        let mut first = 0_u64;
        let states = self.session().await?.read(saved, &[&name]).await?;
        let had_states = !states.is_empty();
        for row in states {
            let (from, chunks, crc): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            let state = self.state_at(from, chunks).await?;
            if checksum(from as u64, chunks as u64, 0, &state) == crc {
                (replay.state, first) = (Some(state), from as u64);
                break;
            }
        }
        let Some(entries) = self.entries_from(first).await? else {
            let from = if had_states { first } else { 0 };
            return Err(LogError::Rows { federation: name, entry: from });
        };
        self.since_snapshot = entries.iter().map(|entry| entry.len() as u64).sum();
        self.next = first + entries.len() as u64;
        replay.entries = entries;
        let asked = "
            SELECT next, epoch, (SELECT coalesce(sum(length(bytes)), 0)::bigint FROM posse_batch WHERE federation = name)
            FROM posse_federation WHERE name = $1";
        let rows = self.session().await?.read_long(asked, &[&name]).await?;
        let Some(row) = rows.first() else {
            return Err(LogError::Rows { federation: name, entry: self.next });
        };
        let (next, epoch, bytes): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if self.lease.is_valid() && next as u64 != self.next {
            // Nobody else may append, so the rows must reach as far as the federation's row says.
            return Err(LogError::Rows { federation: name, entry: self.next });
        }
        (replay.epoch, self.bytes) = (epoch as u64, bytes as u64);
        replay.lost_entries = self.seen.saturating_sub(self.next);
        if self.lease.term().is_ok() {
            // The loss is answered by a new epoch, once.
            self.seen = self.next;
        }
        Ok(replay)
    }

    async fn state_at(&mut self, first: i64, chunks: i64) -> Result<Vec<u8>, LogError> {
        let name = self.federation.clone();
        let asked =
            "SELECT bytes FROM posse_snapshot_chunk WHERE federation = $1 AND first = $2 AND number = $3";
        let mut state = Vec::new();
        for number in 0..chunks {
            let rows = self.session().await?.read_long(asked, &[&name, &first, &number]).await?;
            if let Some(row) = rows.first() {
                state.extend_from_slice(row.get(0));
            }
        }
        Ok(state)
    }

    /// Every entry from `first` on; nothing if the first of them is not there.
    async fn entries_from(&mut self, first: u64) -> Result<Option<Vec<Vec<u8>>>, LogError> {
        let name = self.federation.clone();
        let asked = "
            SELECT first, count, term, crc, bytes FROM posse_batch
            WHERE federation = $1 AND first >= $2 ORDER BY first LIMIT $3";
        let (mut entries, mut expected) = (Vec::new(), first);
        loop {
            let rows = self.session().await?.read_long(asked, &[&name, &(expected as i64), &PAGE]).await?;
            for row in &rows {
                let id = BatchId { first: row.get(0), term: row.get(2), crc: row.get(3) };
                if id.first as u64 != expected {
                    if entries.is_empty() {
                        return Ok(None);
                    }
                    return Err(LogError::Rows { federation: name, entry: expected });
                }
                let (count, bytes): (i64, &[u8]) = (row.get(1), row.get(4));
                let sound = checksum(expected, count as u64, id.term, bytes) == id.crc;
                let Some(batch) = split(bytes, count as u64).filter(|_| sound) else {
                    return Err(LogError::Rows { federation: name, entry: expected });
                };
                entries.extend(batch.into_iter().map(<[u8]>::to_vec));
                expected += count as u64;
                self.last = Some(id);
            }
            if (rows.len() as i64) < PAGE {
                return Ok(Some(entries));
            }
        }
    }

    /// Entries that were appended since the last look; nothing if what was read before is not what is there now.
    pub(super) async fn follow_now(&mut self) -> Result<Option<Vec<Vec<u8>>>, LogError> {
        if let Some(last) = self.last {
            // What was read from a primary that has since been replaced may never have happened.
            let name = self.federation.clone();
            let asked = "SELECT term, crc FROM posse_batch WHERE federation = $1 AND first = $2";
            let rows = self.session().await?.read(asked, &[&name, &last.first]).await?;
            let same = rows.first().is_some_and(|row| (row.get(0), row.get(1)) == (last.term, last.crc));
            if !same {
                return Ok(None);
            }
        }
        let Some(entries) = self.entries_from(self.next).await? else { return Ok(None) };
        self.next += entries.len() as u64;
        if self.lease.term().is_ok() && self.seen > self.next {
            // Something that was confirmed is gone. Reading everything again says how much.
            return Ok(None);
        }
        self.seen = self.seen.max(self.next);
        let bytes: u64 = entries.iter().map(|entry| entry.len() as u64).sum();
        self.since_snapshot += bytes;
        self.bytes += bytes;
        Ok(Some(entries))
    }

    pub(super) async fn history_now(&mut self) -> Result<Option<Vec<Vec<u8>>>, LogError> {
        let last = self.last;
        let entries = self.entries_from(0).await;
        self.last = last;
        let entries = entries?;
        // Without a row there is nothing that could be gone, unless a state was saved.
        Ok(entries.filter(|entries| entries.len() as u64 == self.next))
    }

    pub(super) async fn lives_now(&mut self) -> Result<Vec<KeptLife>, LogError> {
        let name = self.federation.clone();
        let asked = "SELECT agent, life, instance FROM posse_life WHERE federation = $1";
        let rows = self.session().await?.read(asked, &[&name]).await?;
        let life = |row: &tokio_postgres::Row| KeptLife {
            agent: row.get::<_, i64>(0) as u64,
            life: row.get::<_, i64>(1) as u64,
            instance: row.get::<_, i64>(2) as u64,
        };
        Ok(rows.iter().map(life).collect())
    }
}
