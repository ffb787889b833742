//! A replicated log: the tables of PostgreSQL, with synchronous standbys, in place of files.
//!
//! One coordinator process leads a federation and appends; others follow what it appends and take over when its lease is
//! over. Which one leads is decided by the number `term` in the federation's row: a process that takes over increments
//! it, and every append is one statement that matches it. So a process that was paused, or that believes in a lease that
//! is over, changes nothing and is told so. Clocks only decide when another process tries. See decision 0140.

mod lease;
mod replaying;
mod schema;
mod session;
mod store;
mod tls;
mod unhurried;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Handle;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tracing::warn;

use self::session::{Session, servers};
use self::tls::Tls;
use super::LogError;
use super::storage::StorageConfig;
use crate::federation::{FederationConfig, FederationError};

pub use self::store::PostgresLog;

/// How long servers may take for what is long: making tables, reading a part of a log.
const SLOW: Duration = Duration::from_secs(20);

/// A PostgreSQL database that keeps what coordinators accepted. Cheap to clone.
#[derive(Clone)]
pub struct Database(Arc<Shared>);

struct Shared {
    servers: Vec<Config>,
    tls: Tls,
    /// Where connections run; calls from outside of it wait for them.
    runtime: Handle,
    lease: Duration,
    /// Drawn at the start of the process: tells it from all others.
    holder: String,
    /// Where agents reach this process.
    address: String,
    allow_unreplicated: bool,
    /// Which server was the primary when one was last found.
    primary: AtomicUsize,
    /// A session for what is not urgent: tokens and the audit log.
    idle: tokio::sync::Mutex<Option<Session>>,
}

/// What a database knows of a federation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FederationStatus {
    /// The name of the federation.
    pub name: String,
    /// How often the leading process has changed.
    pub term: u64,
    /// The number of the next entry.
    pub next: u64,
    /// The newest epoch that was used.
    pub epoch: u64,
    /// Where agents reach the process that led last; empty after it stepped down.
    pub leader: String,
    /// How many seconds its lease goes on.
    pub lease_seconds: f64,
    /// Bytes of entries.
    pub bytes: u64,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("holder", &self.0.holder).finish_non_exhaustive()
    }
}

impl Database {
    /// The database that the settings name, for a process that agents reach at `address`. Nothing is connected yet;
    /// connections will run on the current tokio runtime, so this must be called inside of one. Fails if the settings
    /// cannot be used.
    pub fn new(config: &StorageConfig, address: String, allow_unreplicated: bool) -> Result<Self, LogError> {
        let wrong = |why: String| LogError::Database { server: "[storage]".into(), why };
        let text = config.connection.as_deref().unwrap_or_default();
        let mut parsed: Config = text.parse().map_err(|error| wrong(format!("connection: {error}")))?;
        if let Some(path) = &config.password_file {
            let password = std::fs::read_to_string(path).map_err(LogError::io(path))?;
            parsed.password(password.trim());
        }
        let tls = Tls::new(config.authority.as_deref())
            .map_err(|error| LogError::Io { path: config.authority.clone().unwrap_or_default(), error })?;
        match (&config.authority, parsed.get_ssl_mode()) {
            (Some(_), _) => parsed.ssl_mode(SslMode::Require),
            (None, SslMode::Prefer) => parsed.ssl_mode(SslMode::Disable),
            _ => &mut parsed,
        };
        let servers = servers(&parsed);
        if servers.is_empty() {
            return Err(wrong("connection: it names no host".into()));
        }
        let shared = Shared {
            servers,
            tls,
            runtime: Handle::current(),
            lease: config.lease.into(),
            holder: crate::coordinator::secret(),
            address,
            allow_unreplicated,
            primary: AtomicUsize::new(0),
            idle: tokio::sync::Mutex::new(None),
        };
        Ok(Self(Arc::new(shared)))
    }

    /// Where its connections run.
    pub(crate) fn runtime(&self) -> Handle {
        self.0.runtime.clone()
    }

    /// Brings the tables to the version of this build. Returns the versions before and after.
    pub async fn migrate(&self) -> Result<(i64, i64), LogError> {
        let session = self.any_primary(SLOW).await?.1;
        schema::migrate(&session).await
    }

    /// Begins a federation, or compares its settings with those that it was begun with. Fails if they differ in what may
    /// not change.
    pub async fn begin(&self, federation: &FederationConfig) -> Result<(), FederationError> {
        let session = self.connect().await?.1;
        let begin = "
            INSERT INTO posse_federation (name, settings, format, term, next, epoch, holder, address, lease_until)
            VALUES ($1, $2, 0, 0, 0, 0, '', '', clock_timestamp()) ON CONFLICT (name) DO NOTHING";
        session.commit(begin, &[&federation.name, &federation.to_keep()]).await?;
        let asked = "SELECT settings FROM posse_federation WHERE name = $1";
        let rows = session.read(asked, &[&federation.name]).await?;
        let written: &str = rows.first().map_or("", |row| row.get(0));
        federation.check_kept(written, Path::new("posse_federation.settings"))
    }

    /// Federations in the database, each with what `posse storage status` shows of it.
    pub async fn status(&self) -> Result<Vec<FederationStatus>, LogError> {
        let session = self.connect().await?.1;
        let asked = "
            SELECT name, term, next, epoch, address,
                greatest(extract(epoch FROM lease_until - clock_timestamp()), 0)::float8,
                (SELECT coalesce(sum(length(bytes)), 0)::bigint FROM posse_batch WHERE federation = name)
            FROM posse_federation ORDER BY name";
        let number = |row: &tokio_postgres::Row, index| row.get::<_, i64>(index) as u64;
        let status = |row: &tokio_postgres::Row| FederationStatus {
            name: row.get(0),
            term: number(row, 1),
            next: number(row, 2),
            epoch: number(row, 3),
            leader: row.get(4),
            lease_seconds: row.get(5),
            bytes: number(row, 6),
        };
        Ok(session.read(asked, &[]).await?.iter().map(status).collect())
    }

    /// `Ok` if there is a primary with the right tables that replicates synchronously.
    pub async fn check(&self) -> Result<(), LogError> {
        self.connect().await.map(drop)
    }

    /// A session with the primary, whose tables and replication are in order, and the index of its server.
    async fn connect(&self) -> Result<(usize, Session), LogError> {
        let (index, session) = self.any_primary(self.0.lease).await?;
        schema::check(&session).await?;
        self.check_replication(&session).await?;
        Ok((index, session))
    }

    /// The next search for the primary begins after this server: something was wrong with it.
    fn distrust(&self, index: usize) {
        self.0.primary.store((index + 1) % self.0.servers.len(), Ordering::Relaxed);
    }

    /// A session with a server that takes writes, whatever is in it.
    async fn any_primary(&self, patience: Duration) -> Result<(usize, Session), LogError> {
        let Shared { servers, tls, primary, .. } = &*self.0;
        let (count, start) = (servers.len(), primary.load(Ordering::Relaxed));
        let mut failed = Vec::new();
        for index in (start..start + count).map(|index| index % count) {
            let connected = async {
                // A server that is gone should not use up the time in which another could be asked.
                let session = Session::connect(&servers[index], tls, patience).await?;
                let rows = session.read("SELECT pg_is_in_recovery()", &[]).await?;
                if rows.first().is_some_and(|row| row.get(0)) {
                    return Err(session.error("it is a standby"));
                }
                Ok(session)
            };
            match connected.await {
                Ok(session) => {
                    primary.store(index, Ordering::Relaxed);
                    return Ok((index, session));
                }
                Err(error) => failed.push(error),
            }
        }
        let why: Vec<String> = failed.iter().map(ToString::to_string).collect();
        Err(LogError::Database { server: "PostgreSQL".into(), why: why.join("; ") })
    }

    /// Refuses a server that would confirm what could still be lost, unless that was allowed.
    async fn check_replication(&self, session: &Session) -> Result<(), LogError> {
        let names = ["synchronous_commit", "synchronous_standby_names", "fsync"];
        let asked = "SELECT current_setting($1), current_setting($2), current_setting($3)";
        let rows = session.read(asked, &[&names[0], &names[1], &names[2]]).await?;
        let Some(row) = rows.first() else { return Err(session.error("no settings")) };
        let (commit, standbys, sync): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let weak = if !matches!(commit.as_str(), "on" | "remote_apply") {
            Some(format!("synchronous_commit is {commit}: it must be on or remote_apply"))
        } else if standbys.is_empty() {
            Some("synchronous_standby_names is empty: no standby has what is confirmed".to_owned())
        } else if sync != "on" {
            Some("fsync is off: a crash loses what was confirmed".to_owned())
        } else {
            None
        };
        match weak {
            None => {
                // Held for the session, whatever is made the default meanwhile.
                session.run(&format!("SET synchronous_commit TO {commit}")).await
            }
            Some(why) if self.0.allow_unreplicated => {
                warn!(server = session.server(), why, "NOT REPLICATED: what is confirmed can be lost");
                Ok(())
            }
            Some(why) => Err(LogError::Unreplicated { server: session.server().to_owned(), why }),
        }
    }
}
