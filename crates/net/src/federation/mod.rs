//! One federation on this coordinator: its rules, its log, and the one thread that owns its hub.

mod owner;
mod refusal;
mod validate;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posse_core::session::{DownFrame, Hub, LogEntry, UpFrame};
use posse_core::{
    AgentId, AgentStanding, Algorithm, ConfigError, Cost, Epoch, Federation, Incarnation, Seed, Shape,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tonic::Status;

pub use refusal::{Reason, Refusal};

use crate::clock::Clock;
use crate::log::{Log, LogError, Replay};
use crate::metrics::Metrics;

/// Commands that may wait for the owner. More wait at their links.
const QUEUE: usize = 4096;

/// What is agreed on in a federation. Agents learn it when they join.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederationConfig {
    /// Its name, in metadata and in the data directory: letters, digits, `-` and `_`.
    pub name: String,
    /// How agents choose and share.
    pub algorithm: Algorithm,
    /// Features of an arm that mean the same to everybody (d).
    pub dimension: u64,
    /// How many agents the algorithm may assume (N); only some use it. Default 100.
    #[serde(default = "default_agents")]
    pub agents: u64,
    /// How many interactions the algorithm may assume (T); only some use it. Default 1 000 000.
    #[serde(default = "default_horizon")]
    pub horizon: u64,
    /// Where randomised rules draw from. Default 0.
    #[serde(default)]
    pub seed: u64,
    /// Largest norm of an arm's features (L). Uploads that need larger ones are refused. Default: not checked.
    #[serde(default)]
    pub feature_bound: Option<f64>,
    /// Largest absolute reward (Y). Uploads that need larger ones are refused. Default: not checked.
    #[serde(default)]
    pub reward_bound: Option<f64>,
    /// Milliseconds after which an unanswered frame is sent again. Default 2000.
    #[serde(default = "default_resend")]
    pub resend_after: u64,
    /// Megabytes of log after which the state is saved and the log cut. Default 64.
    #[serde(default = "default_snapshot")]
    pub snapshot_every: u64,
    /// Refused messages in a row after which an agent is quarantined. Default 10.
    #[serde(default = "default_quarantine_after")]
    pub quarantine_after: u64,
    /// Seconds an agent stays in quarantine. Default 600.
    #[serde(default = "default_quarantine")]
    pub quarantine: u64,
}

const fn default_agents() -> u64 {
    100
}
const fn default_horizon() -> u64 {
    1_000_000
}
const fn default_resend() -> u64 {
    2_000
}
const fn default_snapshot() -> u64 {
    64
}
const fn default_quarantine_after() -> u64 {
    10
}
const fn default_quarantine() -> u64 {
    600
}

impl FederationConfig {
    /// A federation with every other setting at its default.
    #[must_use]
    pub fn new(name: impl Into<String>, algorithm: Algorithm, dimension: u64) -> Self {
        Self {
            name: name.into(),
            algorithm,
            dimension,
            agents: default_agents(),
            horizon: default_horizon(),
            seed: 0,
            feature_bound: None,
            reward_bound: None,
            resend_after: default_resend(),
            snapshot_every: default_snapshot(),
            quarantine_after: default_quarantine_after(),
            quarantine: default_quarantine(),
        }
    }

    /// `Ok` if every setting is in its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let named = !self.name.is_empty()
            && self.name.len() <= 64
            && self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if !named {
            let allowed = "it must have 1 to 64 letters, digits, `-` or `_`";
            return Err(ConfigError::new("name", &self.name, allowed));
        }
        let largest = posse_core::wire::MAX_DIMENSION as u64;
        if self.dimension == 0 || self.dimension > largest {
            return Err(ConfigError::new("dimension", self.dimension, "it must be between 1 and 16384"));
        }
        for (name, bound) in [("feature_bound", self.feature_bound), ("reward_bound", self.reward_bound)] {
            if let Some(bound) = bound {
                ConfigError::require(bound > 0.0 && bound.is_finite(), name, bound, "it must be above 0")?;
            }
        }
        let at_least_one = [
            ("agents", self.agents),
            ("horizon", self.horizon),
            ("resend_after", self.resend_after),
            ("snapshot_every", self.snapshot_every),
            ("quarantine_after", self.quarantine_after),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(ConfigError::new(name, value, "it must be at least 1"));
            }
        }
        self.algorithm.check(self.shape())
    }

    /// The arms' shape as the coordinator sees it.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        Shape::shared(self.dimension as usize)
    }

    /// What the algorithm may assume.
    #[must_use]
    pub const fn federation(&self) -> Federation {
        Federation { agents: self.agents, horizon: self.horizon, seed: Seed(self.seed) }
    }

    /// Bytes of the longest frame that can be right: a whole matrix, a few vectors, and what is around them.
    #[must_use]
    pub const fn longest_frame(&self) -> u64 {
        let d = self.dimension;
        8 * (d * (d + 1) / 2 + 4 * d) + 4096
    }

    /// A hub at the beginning of its history.
    pub fn hub(&self) -> Result<Hub, ConfigError> {
        Ok(Hub::new(self.algorithm.coordinator(self.shape())?, self.resend_after.saturating_mul(1000)))
    }

    /// The hub that a log leads to. Entries that the hub refuses are damage or of other settings.
    pub fn replay(&self, replay: &Replay) -> Result<Hub, FederationError> {
        let mut hub = self.hub()?;
        let broken = |entry: usize| move |why: String| FederationError::Replay { entry, why };
        if let Some(state) = &replay.state {
            hub.restore(state).map_err(|error| broken(0)(error.to_string()))?;
        }
        for (index, bytes) in replay.entries.iter().enumerate() {
            let entry = LogEntry::decode(bytes).map_err(|error| broken(index)(error.to_string()))?;
            hub.replay(entry).map_err(|error| broken(index)(error.to_string()))?;
        }
        Ok(hub)
    }
}

/// A federation that cannot be brought back from its log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FederationError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log does not fit the settings.
    #[error("entry {entry} after the last saved state cannot be replayed: {why}")]
    Replay {
        /// Which one.
        entry: usize,
        /// Why.
        why: String,
    },
    /// Settings that may not change have changed.
    #[error(
        "federation \"{name}\" was begun with {setting} {was} and is now configured with {is}: \
         change it back, or give the federation a new name"
    )]
    Changed {
        /// The federation.
        name: String,
        /// Which setting.
        setting: &'static str,
        /// What it was.
        was: String,
        /// What it is now.
        is: String,
    },
}

/// How an owner opens its log, at the start and again after a failure.
pub type OpenLog = Box<dyn Fn() -> Result<Box<dyn Log>, LogError> + Send>;

/// A federation that runs: cheap to clone, usable from anywhere.
#[derive(Clone, Debug)]
pub struct FederationHandle {
    config: Arc<FederationConfig>,
    commands: mpsc::Sender<Command>,
    standing: Arc<Mutex<Standing>>,
}

/// How a federation is doing, for health and metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Why it does not serve, if it does not.
    pub trouble: Option<String>,
    /// Agents whose messages are not taken for now.
    pub quarantined: Vec<AgentId>,
    /// Agents with a link.
    pub connected: usize,
    /// What agents have sent since the start.
    pub up: Cost,
    /// What agents were sent since the start.
    pub down: Cost,
}

/// What a coordinator holds at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The history this is.
    pub epoch: Epoch,
    /// How many changes the evidence has seen.
    pub version: u64,
    /// Observations in the evidence.
    pub observations: u64,
    /// Information of the evidence.
    pub information: f64,
    /// Agents that have joined.
    pub agents: usize,
    /// By how much the agent that is furthest behind is behind, in information.
    pub staleness: f64,
    /// The next entry of the log.
    pub next_entry: u64,
    /// Everything the coordinator inside holds, encoded.
    pub state: Vec<u8>,
}

/// What can be asked of an owner.
pub(crate) enum Command {
    Attach {
        agent: AgentId,
        link: u64,
        sink: Sink,
    },
    Detach {
        agent: AgentId,
        link: u64,
    },
    Frame {
        agent: AgentId,
        frame: UpFrame,
        answer: Answer,
        permit: Option<OwnedSemaphorePermit>,
    },
    /// Something was refused before it got here.
    Refused {
        agent: AgentId,
        reason: Reason,
    },
    Join {
        agent: AgentId,
        resumes: bool,
        reply: Reply<Incarnation>,
    },
    Leave {
        agent: AgentId,
        reply: Reply<()>,
    },
    Evict {
        agent: AgentId,
    },
    Look {
        reply: oneshot::Sender<Option<View>>,
    },
    LookAt {
        agent: AgentId,
        reply: oneshot::Sender<Option<AgentStanding>>,
    },
    Waiting {
        reply: oneshot::Sender<Vec<AgentId>>,
    },
    Drain {
        reply: oneshot::Sender<()>,
    },
    /// Stop at once, as if the power had failed.
    Abort,
}

/// Where frames for an agent go.
pub(crate) type Sink = mpsc::Sender<Result<Box<DownFrame>, Status>>;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Who waits for the outcome of a frame.
pub(crate) enum Answer {
    /// A link: refusals end it.
    Link(u64),
    /// An exchange: everything that waits for the agent is the answer.
    Exchange(Reply<Vec<DownFrame>>),
}

impl FederationHandle {
    /// Brings a federation back from its log, or begins it. Its settings are kept in `directory` and may
    /// not change.
    pub fn open(
        config: FederationConfig,
        directory: &Path,
        log: OpenLog,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<Self, FederationError> {
        config.check()?;
        check_unchanged(&config, directory)?;
        let (commands, queue) = mpsc::channel(QUEUE);
        let standing = Arc::new(Mutex::new(Standing::default()));
        let config = Arc::new(config);
        owner::spawn(Arc::clone(&config), log, clock, metrics, Arc::clone(&standing), queue)?;
        Ok(Self { config, commands, standing })
    }

    /// What is agreed on.
    #[must_use]
    pub fn config(&self) -> &FederationConfig {
        &self.config
    }

    /// How it is doing.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the coordinator holds; `None` while it cannot use its log.
    pub async fn look(&self) -> Option<View> {
        self.ask(|reply| Command::Look { reply }).await.flatten()
    }

    /// What the coordinator knows of an agent.
    pub async fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        self.ask(|reply| Command::LookAt { agent, reply }).await.flatten()
    }

    /// Agents behind proxies for which frames wait, in the order in which they began to wait.
    pub async fn waiting(&self) -> Vec<AgentId> {
        self.ask(|reply| Command::Waiting { reply }).await.unwrap_or_default()
    }

    /// Finishes what was begun, saves the state and stops.
    pub async fn drain(&self) {
        let _: Option<()> = self.ask(|reply| Command::Drain { reply }).await;
        self.commands.closed().await;
    }

    /// Stops at once, without finishing or saving anything: what a power failure leaves is what is left.
    pub async fn abort(&self) {
        self.send(Command::Abort).await;
        self.commands.closed().await;
    }

    /// Returns when nobody owns the federation any more.
    pub(crate) async fn closed(&self) {
        self.commands.closed().await;
    }

    pub(crate) async fn send(&self, command: Command) -> bool {
        self.commands.send(command).await.is_ok()
    }

    pub(crate) async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        if self.send(command(reply)).await { answer.await.ok() } else { None }
    }
}

/// Settings that decide what the bytes of a log mean are kept beside it and may not change.
fn check_unchanged(config: &FederationConfig, directory: &Path) -> Result<(), FederationError> {
    let path = directory.join("federation.json");
    let io = || LogError::io(&path);
    std::fs::create_dir_all(directory).map_err(LogError::io(directory))?;
    let text = serde_json::to_string_pretty(config).expect("settings have string keys");
    let Ok(written) = std::fs::read_to_string(&path) else {
        std::fs::write(&path, text).map_err(io())?;
        return Ok(());
    };
    let Ok(before) = serde_json::from_str::<FederationConfig>(&written) else { return Ok(()) };
    let json = |algorithm: &Algorithm| serde_json::to_string(algorithm).expect("settings have string keys");
    let fixed = [
        ("algorithm", json(&before.algorithm), json(&config.algorithm)),
        ("dimension", before.dimension.to_string(), config.dimension.to_string()),
        ("agents", before.agents.to_string(), config.agents.to_string()),
        ("horizon", before.horizon.to_string(), config.horizon.to_string()),
        ("seed", before.seed.to_string(), config.seed.to_string()),
    ];
    match fixed.into_iter().find(|(_, was, is)| was != is) {
        Some((setting, was, is)) => {
            Err(FederationError::Changed { name: config.name.clone(), setting, was, is })
        }
        None => Ok(()),
    }
}

pub(crate) const RETRY: Duration = Duration::from_millis(200);
