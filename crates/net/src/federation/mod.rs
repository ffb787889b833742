//! One federation on this coordinator: its rules, its log, and the one thread that owns its hub.

mod accounts;
mod conduct;
mod config;
mod credit;
mod deadline;
mod last_words;
mod levels;
mod lives;
mod outbox;
mod owner;
mod parent;
mod possible;
mod presence;
mod refusal;
mod stopwatch;
mod threads;
mod validate;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use posse_core::session::{DownFrame, UpFrame};
use posse_core::{AgentId, AgentStanding, ConfigError, Cost, Epoch, Incarnation};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

pub use accounts::{AgentInfo, KeptInfo, SuspicionInfo};
pub use config::FederationConfig;
pub(crate) use last_words::LastWord;
pub(crate) use outbox::{FrameStream, Outbox, gone, outbox};
pub use parent::ParentConfig;
#[cfg(feature = "agent")]
pub(crate) use parent::RelayIdentity;
pub use refusal::{Reason, Refusal};

use crate::audit::Audit;
use crate::clock::Clock;
use crate::log::{Log, LogError};
use crate::metrics::Metrics;
use crate::trace::Tracer;

/// Commands that may wait for the owner. More wait at their links.
const QUEUE: usize = 4096;
/// How long to wait before a log that failed is opened again: twice as long each time, up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

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
        /// The position of the entry after the saved state, from 0.
        entry: usize,
        /// What the hub said about the entry.
        why: String,
    },
    /// The settings that were kept beside the log cannot be read.
    #[error("{} is not what was written there: {why}. Restore it from a copy", path.display())]
    Settings {
        /// The file with the settings.
        path: PathBuf,
        /// What is wrong with its contents.
        why: String,
    },
    /// Something has to be computed from the first entry on, and that is gone.
    #[error(
        "the first entries of the log are gone, so that what an agent had shared cannot be left out: it needs \
         keep_history = true from the beginning, or a log of fewer than two saved states"
    )]
    HistoryGone,
    /// Settings that may not change have changed.
    #[error(
        "federation \"{name}\" was begun with {setting} {was} and is now configured with {is}: \
         change it back, or give the federation a new name"
    )]
    Changed {
        /// The name of the federation.
        name: String,
        /// The name of the setting that differs.
        setting: &'static str,
        /// The value with which the federation was begun.
        was: String,
        /// The value in the configuration now.
        is: String,
    },
}

/// How an owner opens its log, at the start and again after a failure.
pub type OpenLog = Box<dyn Fn() -> Result<Box<dyn Log>, LogError> + Send>;

/// What a federation keeps, and where.
pub(crate) struct Kept {
    open: OpenLog,
    /// Whether several processes share the log.
    shared: bool,
    audit: Audit,
}

/// Where a federation reads the time, and where it says what it does.
#[derive(Clone, Debug)]
pub struct Watching {
    /// The clock that deadlines and leases go by.
    pub clock: Clock,
    /// The counters of the coordinator process.
    pub metrics: Metrics,
    /// Where traces of uploads are sent.
    pub tracer: Option<Tracer>,
}

/// A federation that runs: cheap to clone, usable from anywhere.
#[derive(Clone, Debug)]
pub struct FederationHandle {
    config: Arc<FederationConfig>,
    commands: mpsc::Sender<Command>,
    standing: Arc<Mutex<Standing>>,
    /// [`FederationConfig::longest_frame`], which every frame is compared with.
    longest_frame: u64,
}

/// How a federation is doing, for health and metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Why it does not serve, if it does not.
    pub trouble: Option<String>,
    /// Whether this coordinator leads the federation. If it does not and there is no trouble, another one does.
    pub leads: bool,
    /// Until when that is certain, for a federation that another coordinator may lead after a pause of this one.
    pub leads_until: Option<Instant>,
    /// Why a relay has no link to its parent, if it has none.
    pub parent: Option<String>,
    /// Agents whose messages are not taken for now.
    pub quarantined: Vec<AgentId>,
    /// How many agents have an open link.
    pub connected: usize,
    /// How many agents were away for longer than their lease, so that rounds do not wait for them.
    pub away: usize,
    /// What agents have sent since the start.
    pub up: Cost,
    /// What agents were sent since the start.
    pub down: Cost,
}

impl Standing {
    /// What is certain of it at this time. A process that was paused for longer than its lease wakes up with the belief that it
    /// leads, and the first to ask must not hear so.
    fn at(self, now: Instant) -> Self {
        let leads = self.leads && self.leads_until.is_none_or(|until| now < until);
        Self { leads, ..self }
    }
}

/// What became of a federation when an agent's part was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Retraction {
    /// How many observations the coordinator held before.
    pub before: u64,
    /// How many it holds now.
    pub after: u64,
    /// The epoch that began with it.
    pub epoch: u64,
}

/// What a coordinator holds at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct FederationView {
    /// The epoch of the coordinator's history. A new one begins when the end of the log was lost.
    pub epoch: Epoch,
    /// How many changes the evidence has seen.
    pub version: u64,
    /// How many observations the evidence is over.
    pub observations: u64,
    /// [Information](posse_core::Ridge) of the evidence.
    pub information: f64,
    /// How many agents have joined.
    pub agents: usize,
    /// By how much the agent that is furthest behind is behind, in information.
    pub staleness: f64,
    /// The next entry of the log.
    pub next_entry: u64,
    /// Of a relay: observations that are not known to have reached its parent. 0 at the root.
    pub unsent: u64,
    /// Everything the coordinator inside holds, encoded.
    pub state: Vec<u8>,
}

/// What can be asked of an owner.
pub(crate) enum Command {
    /// An agent has a new link, which is the only one from here on, unless another process has joined meanwhile.
    Attach {
        agent: AgentId,
        instance: Option<u64>,
        link: Attached,
    },
    Detach {
        agent: AgentId,
        link: u64,
    },
    Frame {
        agent: AgentId,
        frame: Box<UpFrame>,
        /// The frame as it came, for the log.
        bytes: Bytes,
        answer: ReplyTo,
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
        process: Process,
        reply: Reply<Joined>,
    },
    Leave {
        agent: AgentId,
        instance: Option<u64>,
        reply: Reply<()>,
    },
    /// Ends the agent's link; it may come back at once.
    CutLink {
        agent: AgentId,
        why: &'static str,
    },
    /// What is known of every agent.
    Agents {
        reply: oneshot::Sender<Vec<AgentInfo>>,
    },
    /// Ends the agent's life, whether it is there or not; `false` if it has none.
    Evict {
        agent: AgentId,
        reply: Reply<bool>,
    },
    /// Takes out what the agent has shared; `None` if it is not known.
    Retract {
        agent: AgentId,
        reply: Reply<Option<Retraction>>,
    },
    /// Ends the agent's quarantine; `false` if it is in none.
    Pardon {
        agent: AgentId,
        reply: Reply<bool>,
    },
    Look {
        reply: oneshot::Sender<Option<FederationView>>,
    },
    /// How far agents are behind, and how many observations there are.
    Measure {
        reply: oneshot::Sender<Option<(f64, u64)>>,
    },
    LookAt {
        agent: AgentId,
        reply: oneshot::Sender<Option<AgentStanding>>,
    },
    Waiting {
        reply: oneshot::Sender<Vec<AgentId>>,
    },
    /// A relay has a new link to its parent; frames for the parent go there from here on.
    #[cfg_attr(not(feature = "agent"), expect(dead_code, reason = "relays need the feature `agent`"))]
    AttachParent {
        outbox: mpsc::Sender<UpFrame>,
    },
    /// A frame by which a relay asks its parent for what waits there; `None` while the log cannot be used.
    #[cfg_attr(not(feature = "agent"), expect(dead_code, reason = "relays need the feature `agent`"))]
    AskParent {
        reply: oneshot::Sender<Option<UpFrame>>,
    },
    /// A relay's parent is not the one that it has joined.
    #[cfg_attr(not(feature = "agent"), expect(dead_code, reason = "relays need the feature `agent`"))]
    LoseParent {
        why: String,
    },
    /// A frame of a relay's parent.
    #[cfg_attr(not(feature = "agent"), expect(dead_code, reason = "relays need the feature `agent`"))]
    Heard {
        frame: Box<DownFrame>,
        reply: Reply<()>,
    },
    Drain {
        reply: oneshot::Sender<()>,
    },
    /// Stop at once, as if the power had failed.
    Abort,
}

/// The answer to a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// The number of a new life; 0 for an agent that goes on with one.
    pub(crate) life: Incarnation,
    /// The newest message that was accepted of the life that goes on.
    pub(crate) last_word: Option<LastWord>,
    /// The newest message that the life that goes on has said to have received, if there is one.
    pub(crate) last_heard: Option<(Epoch, u64)>,
    /// The number of this coordinator's history.
    pub(crate) history: u64,
}

/// The process that speaks for an agent, as it names itself in a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Drawn at its start; 0 from agents that do not draw one.
    pub(crate) instance: u64,
    /// Processes that used the agent's state before it; none without a state.
    pub(crate) previous: Vec<u64>,
    /// The life that it goes on with, or that ends with this join; 0 if it does not say.
    pub(crate) life: Incarnation,
}

/// A link as the owner thread holds it. The task that brings the agent's frames stops when this is dropped.
pub(crate) struct Attached {
    /// The number of the link, which no other link of this process has.
    pub(crate) number: u64,
    /// The agent's end has named the process that it is, and that process was told at its join what the coordinator
    /// knows of its life.
    pub(crate) is_bound: bool,
    pub(crate) outbox: Outbox,
}

/// Where the owner thread sends the answer to a command.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Who waits for the outcome of a frame.
pub(crate) enum ReplyTo {
    /// A link: refusals end it.
    Link(u64),
    /// An exchange, by the process that names this instance: everything that waits for the agent is the answer.
    Exchange(Option<u64>, Reply<Vec<DownFrame>>),
}

impl FederationHandle {
    /// Brings a federation back from its log, or begins it. Its settings are kept in `directory` and may
    /// not change.
    pub fn open(
        config: FederationConfig,
        directory: &Path,
        log: OpenLog,
        watching: Watching,
    ) -> Result<Self, FederationError> {
        config.check()?;
        config::check_unchanged(&config, directory)?;
        Self::begin(config, Kept { open: log, shared: false, audit: Audit::open(directory) }, watching)
    }

    /// The same for a log that several processes share: another one may lead, and this one then waits for its turn. The
    /// settings were compared with those that the log was begun with.
    #[cfg(feature = "postgres")]
    pub(crate) fn open_shared(
        config: FederationConfig,
        log: OpenLog,
        audit: Audit,
        watching: Watching,
    ) -> Result<Self, FederationError> {
        config.check()?;
        Self::begin(config, Kept { open: log, shared: true, audit }, watching)
    }

    fn begin(config: FederationConfig, kept: Kept, watching: Watching) -> Result<Self, FederationError> {
        let (commands, queue) = mpsc::channel(QUEUE);
        let standing = Arc::new(Mutex::new(Standing::default()));
        let config = Arc::new(config);
        owner::spawn(Arc::clone(&config), kept, watching, Arc::clone(&standing), queue)?;
        let longest_frame = config.longest_frame();
        Ok(Self { config, commands, standing, longest_frame })
    }

    /// Returns the settings that all members of the federation agree on.
    #[must_use]
    pub fn config(&self) -> &FederationConfig {
        &self.config
    }

    /// Bytes of the longest frame that is taken.
    pub(crate) const fn longest_frame(&self) -> u64 {
        self.longest_frame
    }

    /// Returns a copy of the counters for health and metrics, as the owner thread last wrote them.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        standing.at(Instant::now())
    }

    /// Takes note that a relay's link to its parent ended for this reason, or that there is one.
    #[cfg(feature = "agent")]
    pub(crate) fn note_parent(&self, trouble: Option<String>) {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).parent = trouble;
    }

    /// What the coordinator holds; `None` while it cannot use its log.
    pub async fn look(&self) -> Option<FederationView> {
        self.ask(|reply| Command::Look { reply }).await.flatten()
    }

    /// By how much information the connected agent that is furthest behind is behind, and how many
    /// observations there are; `None` while the log cannot be used.
    pub async fn measure(&self) -> Option<(f64, u64)> {
        self.ask(|reply| Command::Measure { reply }).await.flatten()
    }

    /// What the coordinator knows of an agent.
    pub async fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        self.ask(|reply| Command::LookAt { agent, reply }).await.flatten()
    }

    /// What is known of every agent, by number.
    pub async fn agents(&self) -> Vec<AgentInfo> {
        self.ask(|reply| Command::Agents { reply }).await.unwrap_or_default()
    }

    /// Ends the life of an agent: rounds do not wait for it, its link is cut, and it is told that it was evicted.
    /// What it has shared stays. It can come back in a new life if it is asked to; revoke its token to prevent that.
    /// `false` if the agent is not known, or gone already.
    pub async fn evict(&self, agent: AgentId) -> Result<bool, Refusal> {
        self.ask(|reply| Command::Evict { agent, reply }).await.unwrap_or(Ok(false))
    }

    /// Takes out everything that an agent has ever shared, by replaying the log without it, ends its life and begins a
    /// new epoch, so that the other agents hear what is left. `None` if the agent is not known. Refused if the log
    /// does not reach back to its beginning, or if the algorithm's messages cannot be taken apart.
    ///
    /// It takes as long as reading the whole log, during which the federation does nothing else.
    pub async fn retract(&self, agent: AgentId) -> Result<Option<Retraction>, Refusal> {
        self.ask(|reply| Command::Retract { agent, reply }).await.unwrap_or(Ok(None))
    }

    /// Hears an agent again that is in quarantine, and forgets what it was refused. `false` if it is in none.
    pub async fn pardon(&self, agent: AgentId) -> Result<bool, Refusal> {
        self.ask(|reply| Command::Pardon { agent, reply }).await.unwrap_or(Ok(false))
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

    pub(crate) async fn send(&self, command: Command) -> bool {
        self.commands.send(command).await.is_ok()
    }

    pub(crate) async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        if self.send(command(reply)).await { answer.await.ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_slept_through_its_lease_does_not_say_that_it_leads() {
        let now = Instant::now();
        let leader = Standing { leads: true, leads_until: Some(now), ..Standing::default() };
        assert!(!leader.clone().at(now).leads);
        assert!(!leader.clone().at(now + Duration::from_secs(1)).leads);
        let awake = Standing { leads_until: Some(now + Duration::from_secs(1)), ..leader.clone() };
        assert!(awake.at(now).leads);
        // A log in a file is led by the one process that has it open.
        assert!(Standing { leads_until: None, ..leader }.at(now).leads);
    }
}
