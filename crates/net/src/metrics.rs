//! What is counted, in the form that Prometheus reads.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

use crate::federation::{AgentInfo, Reason};

/// A coordinator's counters. Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    registry: Registry,
    connected: Family<Of, Gauge>,
    quarantined: Family<Of, Gauge>,
    away: Family<Of, Gauge>,
    set_aside: Family<Of, Gauge>,
    uploads: Family<Of, Counter>,
    downloads: Family<Of, Counter>,
    bytes: Family<Direction, Counter>,
    refused: Family<Refused, Counter>,
    leads: Family<Of, Gauge>,
    log_bytes: Family<Of, Gauge>,
    sync: Family<Of, Histogram, fn() -> Histogram>,
    round: Family<Of, Histogram, fn() -> Histogram>,
    staleness: Family<Of, Gauge<f64, AtomicU64>>,
    observations: Family<Of, Gauge>,
    agent_up: Family<OfAgent, Gauge>,
    agent_last_seen: Family<OfAgent, Gauge>,
    agent_observations: Family<OfAgent, Gauge>,
    build: Family<Build, Gauge>,
}

/// How many agents of a federation have metrics of their own. Each costs Prometheus three series.
const AGENTS: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAgent {
    federation: String,
    agent: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
    commit: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    federation: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    federation: String,
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refused {
    federation: String,
    reason: &'static str,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-4, 2.0, 18))
}

fn of(federation: &str) -> Of {
    Of { federation: federation.into() }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("posse");
        let mut counters = Counters {
            connected: Family::default(),
            quarantined: Family::default(),
            away: Family::default(),
            set_aside: Family::default(),
            uploads: Family::default(),
            downloads: Family::default(),
            bytes: Family::default(),
            refused: Family::default(),
            leads: Family::default(),
            log_bytes: Family::default(),
            sync: Family::new_with_constructor(seconds),
            round: Family::new_with_constructor(seconds),
            staleness: Family::default(),
            observations: Family::default(),
            agent_up: Family::default(),
            agent_last_seen: Family::default(),
            agent_observations: Family::default(),
            build: Family::default(),
            registry: Registry::default(),
        };
        registry.register("agents_connected", "Agents with a link", counters.connected.clone());
        registry.register(
            "agents_quarantined",
            "Agents whose messages are not taken",
            counters.quarantined.clone(),
        );
        registry.register("agents_away", "Agents away for longer than their lease", counters.away.clone());
        let set_aside = "Agents that are not believed, those below relays too (robust)";
        registry.register("agents_set_aside", set_aside, counters.set_aside.clone());
        registry.register("uploads", "Messages from agents that were kept", counters.uploads.clone());
        registry.register("downloads", "Messages sent to agents", counters.downloads.clone());
        registry.register("frame_bytes", "Bytes of frames", counters.bytes.clone());
        registry.register("refused", "What was refused, by reason", counters.refused.clone());
        let leads = "1 where this coordinator leads the federation, 0 where another does or none can";
        registry.register("leads", leads, counters.leads.clone());
        registry.register("log_bytes", "Bytes of the log on the disk", counters.log_bytes.clone());
        registry.register("sync_seconds", "Writing and syncing a batch", counters.sync.clone());
        registry.register("round_seconds", "From the call for a round to its end", counters.round.clone());
        let staleness = "Information that the connected agent furthest behind lacks (log-determinant gap)";
        registry.register("staleness", staleness, counters.staleness.clone());
        registry.register("observations", "Observations in the evidence", counters.observations.clone());
        registry.register("agent_up", "Whether the agent has a link", counters.agent_up.clone());
        let last_seen = "When a frame of the agent last came, in seconds since 1970";
        registry.register("agent_last_seen_seconds", last_seen, counters.agent_last_seen.clone());
        let shared = "Observations taken from the agent since the coordinator started; \
                      0 if its uploads replace earlier ones (users in clusters)";
        registry.register("agent_observations", shared, counters.agent_observations.clone());
        registry.register("build_info", "Version of the program", counters.build.clone());
        counters.registry = registry;
        Self(Arc::new(counters))
    }
}

impl Metrics {
    /// Returns every metric in the text format of Prometheus.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.registry).expect("a string takes everything");
        text
    }

    /// How many agents have a link, are in quarantine, are away and are not believed.
    pub(crate) fn agents(&self, federation: &str, counts: [usize; 4]) {
        let gauges = [&self.0.connected, &self.0.quarantined, &self.0.away, &self.0.set_aside];
        for (gauge, count) in gauges.into_iter().zip(counts) {
            gauge.get_or_create(&of(federation)).set(count as i64);
        }
    }

    pub(crate) fn uploads(&self, federation: &str, count: u64) {
        self.0.uploads.get_or_create(&of(federation)).inc_by(count);
    }

    /// Bytes up and down, and messages down.
    pub(crate) fn sent(&self, federation: &str, (up, down): (u64, u64), downloads: u64) {
        for (direction, bytes) in [("up", up), ("down", down)] {
            let label = Direction { federation: federation.into(), direction };
            self.0.bytes.get_or_create(&label).inc_by(bytes);
        }
        self.0.downloads.get_or_create(&of(federation)).inc_by(downloads);
    }

    pub(crate) fn refused(&self, federation: &str, reason: Reason) {
        let label = Refused { federation: federation.into(), reason: reason.word() };
        self.0.refused.get_or_create(&label).inc();
    }

    pub(crate) fn leads(&self, federation: &str, leads: bool) {
        self.0.leads.get_or_create(&of(federation)).set(leads.into());
    }

    pub(crate) fn log_bytes(&self, federation: &str, bytes: u64) {
        self.0.log_bytes.get_or_create(&of(federation)).set(bytes as i64);
    }

    pub(crate) fn synced(&self, federation: &str, took: Duration, bytes: u64) {
        self.0.sync.get_or_create(&of(federation)).observe(took.as_secs_f64());
        self.log_bytes(federation, bytes);
    }

    pub(crate) fn round(&self, federation: &str, took: Duration) {
        self.0.round.get_or_create(&of(federation)).observe(took.as_secs_f64());
    }

    /// Shows the agents with the lowest numbers by themselves: all of a small federation, and a bounded number of series
    /// of a large one. `known` is in order.
    pub(crate) fn each_agent(&self, federation: &str, known: &[AgentInfo]) {
        for known in known.iter().take(AGENTS) {
            let label = OfAgent { federation: federation.into(), agent: known.agent };
            self.0.agent_up.get_or_create(&label).set(i64::from(known.connected));
            self.0.agent_last_seen.get_or_create(&label).set(known.last_seen.unwrap_or(0) as i64);
            self.0.agent_observations.get_or_create(&label).set(known.observations as i64);
        }
    }

    /// Names the program in `posse_build_info`.
    pub(crate) fn build(&self, commit: Option<&str>) {
        let build =
            Build { version: env!("CARGO_PKG_VERSION"), commit: commit.unwrap_or("unknown").to_owned() };
        self.0.build.get_or_create(&build).set(1);
    }

    pub(crate) fn measured(&self, federation: &str, staleness: f64, observations: u64) {
        self.0.staleness.get_or_create(&of(federation)).set(staleness);
        self.0.observations.get_or_create(&of(federation)).set(observations as i64);
    }
}
