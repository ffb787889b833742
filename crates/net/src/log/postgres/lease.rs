//! Who leads: taking over, staying, and stepping down.

use std::time::{Duration, Instant};

use super::Database;
use super::store::PostgresLog;
use crate::log::record::VERSION;
use crate::log::{Leadership, LogError};

/// The format of entries that this build writes: that of files.
const FORMAT: i64 = VERSION as i64;

/// Takes over if the lease of the process that leads is over, or was ours. The commit is replicated before it returns,
/// and with it everything that was committed before; the row stays locked until then, so no append of the former leader
/// can slip in between.
const TAKE_OVER: &str = "
UPDATE posse_federation
SET term = term + 1, holder = $2, address = $3, lease_until = clock_timestamp() + $4 * interval '1 second', format = $6
WHERE name = $1 AND format <= $6 AND (holder = $2 OR lease_until < clock_timestamp())
    AND ($5 OR current_setting('synchronous_standby_names') <> '')
RETURNING term, next";

const RENEW: &str = "
UPDATE posse_federation SET lease_until = clock_timestamp() + $3 * interval '1 second'
WHERE name = $1 AND term = $2 AND ($4 OR current_setting('synchronous_standby_names') <> '')";

const RESIGN: &str = "
UPDATE posse_federation SET lease_until = clock_timestamp(), holder = '', address = '' WHERE name = $1 AND term = $2";

/// The term in which this process leads, and until when it may answer without asking.
#[derive(Debug)]
pub(super) struct Lease {
    term: Option<i64>,
    length: Duration,
    /// When the statement that renewed the lease was sent. The database counts from a later moment.
    since: Option<Instant>,
}

impl Lease {
    pub(super) const fn none(length: Duration) -> Self {
        Self { term: None, length, since: None }
    }

    /// The term in which this process leads; an error if it does not.
    pub(super) fn term(&self) -> Result<i64, LogError> {
        self.term.ok_or_else(|| LogError::Deposed { leader: String::new() })
    }

    pub(super) fn renew(&mut self, since: Instant) {
        self.since = Some(since);
    }

    pub(super) fn lose(&mut self) {
        (self.term, self.since) = (None, None);
    }

    /// Until when this process leads for certain; not any more, if it does not lead.
    pub(super) fn until(&self) -> Instant {
        let led = self.term.and(self.since).and_then(|since| since.checked_add(self.length));
        led.unwrap_or_else(Instant::now)
    }

    pub(super) fn is_valid(&self) -> bool {
        Instant::now() < self.until()
    }

    /// How long it is until the lease should be renewed: when a third of it is over.
    pub(super) fn due(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| (self.length / 3).saturating_sub(since.elapsed()))
    }
}

/// `Ok` if this build understands entries of this format. The process that leads writes its own, so that a newer one is not
/// followed by an older one.
fn readable(format: i64) -> Result<(), LogError> {
    if format <= FORMAT {
        return Ok(());
    }
    let version = u32::try_from(format).unwrap_or(u32::MAX);
    Err(LogError::Version { path: "posse_federation".into(), version, newest: VERSION })
}

impl Database {
    pub(super) fn lease_seconds(&self) -> f64 {
        self.0.lease.as_secs_f64()
    }
}

impl PostgresLog {
    pub(super) async fn lead_now(&mut self) -> Result<Leadership, LogError> {
        self.lease.lose();
        let database = self.database.clone();
        let (holder, address, weak) =
            (&database.0.holder, &database.0.address, database.0.allow_unreplicated);
        let (name, lease) = (self.federation.clone(), database.lease_seconds());
        let session = self.session().await?;
        // Read first: a write for each look of a process that waits would cost the one that leads.
        let asked = "
            SELECT lease_until < clock_timestamp() OR holder = $2, address, format
            FROM posse_federation WHERE name = $1";
        let rows = session.read(asked, &[&name, holder]).await?;
        let Some(row) = rows.first() else {
            return Err(session.error(format!("federation \"{name}\" was not begun in it")));
        };
        let leader: String = row.get(1);
        readable(row.get(2))?;
        if !row.get::<_, bool>(0) {
            return Ok(Leadership::Other(leader));
        }
        let began = Instant::now();
        let rows = session.commit_rows(TAKE_OVER, &[&name, holder, address, &lease, &weak, &FORMAT]).await?;
        // Another process was faster.
        let Some(row) = rows.first() else { return Ok(Leadership::Other(leader)) };
        self.lease.term = Some(row.get(0));
        self.lease.renew(began);
        Ok(Leadership::Ours)
    }

    pub(super) async fn renew_now(&mut self) -> Result<(), LogError> {
        let (name, term, began) = (self.federation.clone(), self.lease.term()?, Instant::now());
        let (lease, weak) = (self.database.lease_seconds(), self.database.0.allow_unreplicated);
        let session = self.session().await?;
        if session.commit(RENEW, &[&name, &term, &lease, &weak]).await? != 1 {
            return Err(self.deposed().await);
        }
        self.lease.renew(began);
        Ok(())
    }

    pub(super) async fn resign_now(&mut self) -> Result<(), LogError> {
        let Ok(term) = self.lease.term() else { return Ok(()) };
        self.lease.lose();
        let name = self.federation.clone();
        self.session().await?.commit(RESIGN, &[&name, &term]).await.map(drop)
    }

    /// Why a statement of ours changed nothing: another process leads, or the database does not replicate any more.
    pub(super) async fn deposed(&mut self) -> LogError {
        let name = self.federation.clone();
        let term = self.lease.term().unwrap_or_default();
        let asked = "
            SELECT address, term <> $2, current_setting('synchronous_standby_names') = ''
            FROM posse_federation WHERE name = $1";
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return error,
        };
        match session.read(asked, &[&name, &term]).await {
            Ok(rows) => match rows.first() {
                Some(row) if !row.get::<_, bool>(1) && row.get::<_, bool>(2) => LogError::Unreplicated {
                    server: session.server().to_owned(),
                    why: "synchronous_standby_names was made empty".into(),
                },
                Some(row) => LogError::Deposed { leader: row.get(0) },
                None => session.error(format!("federation \"{name}\" is gone from it")),
            },
            Err(error) => error,
        }
    }
}
