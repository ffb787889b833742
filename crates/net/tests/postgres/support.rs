//! A database for each test, and logs in it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use posse_core::{Algorithm, AsyncLinUcb, TimeSpan};
use posse_net::federation::FederationConfig;
use posse_net::log::postgres::{Database, PostgresLog};
use posse_net::log::{Leadership, Log, StorageConfig, StorageKind};
use posse_testing::postgres::Cluster;

pub(crate) const DIMENSION: u64 = 4;

/// One server without standbys that tests share as long as one of them runs.
static SINGLE: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());

/// A database of a test's own, on servers that may be others' too.
pub(crate) struct Place {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) name: String,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) runtime: tokio::runtime::Runtime,
    replicated: bool,
}

impl Place {
    /// A database on a server without standbys, for what does not depend on replication.
    pub(crate) fn single(name: &str) -> Option<Self> {
        let mut shared = SINGLE.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = match shared.upgrade() {
            Some(cluster) => cluster,
            None => {
                let started = Arc::new(Cluster::start(0)?);
                *shared = Arc::downgrade(&started);
                started
            }
        };
        drop(shared);
        Some(Self::on(cluster, name, false))
    }

    /// A database on a primary with two standbys, one of which must have what is confirmed.
    pub(crate) fn replicated(name: &str) -> Option<Self> {
        Some(Self::on(Arc::new(Cluster::start(2)?), name, true))
    }

    fn on(cluster: Arc<Cluster>, name: &str, replicated: bool) -> Self {
        cluster.make_database(name);
        let place = Self {
            cluster,
            name: name.into(),
            directory: tempfile::tempdir().unwrap(),
            runtime: tokio::runtime::Runtime::new().unwrap(),
            replicated,
        };
        place.runtime.block_on(place.database().migrate()).unwrap();
        place.runtime.block_on(place.database().begin(&federation())).unwrap();
        place
    }

    pub(crate) fn storage(&self) -> StorageConfig {
        StorageConfig {
            kind: StorageKind::Postgres,
            connection: Some(self.cluster.connection(&self.name)),
            lease: TimeSpan::from_secs(3600),
            ..StorageConfig::default()
        }
    }

    /// The database as another process sees it.
    pub(crate) fn database(&self) -> Database {
        self.database_with(&self.storage())
    }

    pub(crate) fn database_with(&self, storage: &StorageConfig) -> Database {
        let _inside = self.runtime.enter();
        Database::new(storage, "http://127.0.0.1:1".into(), !self.replicated).unwrap()
    }

    /// The log as another process sees it, with a data directory of that process.
    pub(crate) fn log(&self, process: &str) -> PostgresLog {
        let directory = self.directory.path().join(process);
        PostgresLog::open(&self.database(), &federation().name, &directory).unwrap()
    }

    /// A log that leads and has read everything.
    pub(crate) fn leader(&self, process: &str) -> PostgresLog {
        let mut log = self.log(process);
        assert_eq!(log.lead().unwrap(), Leadership::Ours);
        log.replay().unwrap();
        log
    }

    /// The lease of whoever leads is over.
    pub(crate) fn end_lease(&self) {
        self.ask("UPDATE posse_federation SET lease_until = now() - interval '1 hour'");
    }

    pub(crate) fn ask(&self, sql: &str) -> String {
        self.cluster.ask(0, &self.name, sql)
    }
}

/// A federation that shares often.
pub(crate) fn federation() -> FederationConfig {
    let mut algorithm = AsyncLinUcb::default();
    algorithm.protocol.upload_threshold = posse_core::Threshold(1.05);
    algorithm.protocol.download_threshold = posse_core::Threshold(1.05);
    FederationConfig {
        resend_after: TimeSpan::from_millis(50),
        ..FederationConfig::new("test", Algorithm::AsyncLinUcb(algorithm), DIMENSION)
    }
}

/// Entries that tell their number.
pub(crate) fn entries(from: u64, to: u64) -> Vec<Vec<u8>> {
    (from..to)
        .map(|number| format!("entry {number} {}", "x".repeat(number as usize % 40)).into_bytes())
        .collect()
}

pub(crate) fn keep(log: &mut dyn Log, from: u64, to: u64) {
    log.append(&entries(from, to)).unwrap();
    log.sync(0).unwrap();
}
