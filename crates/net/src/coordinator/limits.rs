//! How much one agent, and all of them, may ask of a coordinator.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, TimeSpan};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What agents may ask of a coordinator before it refuses or slows them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// in [1, 1000000]: connections at a time. Default 20 000.
    pub connections: u64,
    /// in [1, 1000000]: connections at a time from one address. Default 2000.
    pub connections_per_address: u64,
    /// in [1, 1000000]: calls that may be open at a time on one connection; a proxy carries many agents over one. Default 2000.
    pub streams_per_connection: u64,
    /// in [1, 1000000]: frames, joins and leaves a second that an agent may send on average; twice as many at once. Default 1000.
    pub frames_per_second: u64,
    /// in [1, 2048]: megabytes of frames that may wait for the log; links wait beyond it. Default 256.
    pub waiting_megabytes: u64,
    /// How long a connection may take to say anything sensible, and a link to answer a ping; 1s to 1h. Default 20 s.
    pub patience: TimeSpan,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            connections_per_address: 2000,
            streams_per_connection: 2000,
            frames_per_second: 1000,
            waiting_megabytes: 256,
            patience: TimeSpan::from_secs(20),
        }
    }
}

impl Limits {
    /// `Ok` if every limit is in its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let all = [
            ("connections", self.connections, 1_000_000),
            ("connections_per_address", self.connections_per_address, 1_000_000),
            ("streams_per_connection", self.streams_per_connection, 1_000_000),
            ("frames_per_second", self.frames_per_second, 1_000_000),
            // All of it may become one batch of the log, whose length has 32 bits.
            ("waiting_megabytes", self.waiting_megabytes, 2048),
        ];
        for (name, value, most) in all {
            if value == 0 || value > most {
                let allowed = if most == 2048 {
                    "it must be between 1 and 2048"
                } else {
                    "it must be between 1 and 1000000"
                };
                return Err(ConfigError::new(name, value, allowed));
            }
        }
        let patience = (TimeSpan::from_secs(1)..=TimeSpan::from_secs(3600)).contains(&self.patience);
        if !patience {
            return Err(ConfigError::new("patience", self.patience, "it must be between 1s and 1h"));
        }
        Ok(())
    }
}

/// Bytes of frames that may wait for the log.
#[derive(Debug)]
pub(super) struct Room {
    left: Arc<Semaphore>,
    all: AtomicU64,
}

impl Room {
    pub(super) fn new(megabytes: u64) -> Self {
        let all = megabytes << 20;
        Self { left: Arc::new(Semaphore::new(all as usize)), all: AtomicU64::new(all) }
    }

    /// Makes so much room from now on. What waits already is waited for.
    pub(super) fn set(&self, megabytes: u64) {
        let all = megabytes << 20;
        let before = self.all.swap(all, Ordering::Relaxed);
        if all > before {
            self.left.add_permits((all - before) as usize);
            return;
        }
        let left = Arc::clone(&self.left);
        let fewer = u32::try_from(before - all).unwrap_or(u32::MAX);
        tokio::spawn(async move {
            if let Ok(taken) = left.acquire_many_owned(fewer).await {
                taken.forget();
            }
        });
    }

    /// Room for a frame, when there is some. A frame that is longer than all the room there is gets all of it.
    pub(super) async fn take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let bytes = bytes.min(self.all.load(Ordering::Relaxed));
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::clone(&self.left).acquire_many_owned(bytes).await.ok()
    }
}

/// Counts frames by agent: a bucket that fills at the allowed rate and holds two seconds of it.
#[derive(Debug)]
pub(super) struct Rates {
    per_second: AtomicU64,
    buckets: Mutex<BTreeMap<(usize, AgentId), (f64, Instant)>>,
}

impl Rates {
    pub(super) fn new(per_second: u64) -> Self {
        Self { per_second: AtomicU64::new(per_second), buckets: Mutex::default() }
    }

    /// Allows so many frames a second from now on.
    pub(super) fn set(&self, per_second: u64) {
        self.per_second.store(per_second, Ordering::Relaxed);
    }

    /// Whether an agent of a federation may send another frame now.
    pub(super) fn allow(&self, federation: usize, agent: AgentId) -> bool {
        let now = Instant::now();
        let per_second = self.per_second.load(Ordering::Relaxed) as f64;
        let most = 2.0 * per_second;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since) = buckets.entry((federation, agent)).or_insert((most, now));
        *left = (*left + now.duration_since(*since).as_secs_f64() * per_second).min(most);
        *since = now;
        let allowed = *left >= 1.0;
        if allowed {
            *left -= 1.0;
        }
        allowed
    }
}
