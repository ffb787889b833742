//! An agent beside its service: chooses locally and offline, learns whenever a reward comes, and speaks with
//! the coordinator when there is something to say and a way to say it.

mod batch;
mod carrier;
mod config;
mod journal;
mod life;
mod link;
mod noise;
mod policy;
mod rules;
mod set_aside;
#[cfg(feature = "sidecar")]
mod sidecar;

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posse_core::{AgentId, Arms, ConfigError, Incarnation, InputError, UserId};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub use batch::Batch;
pub use config::{AgentConfig, AgentTls, Carriage, NoiseOrigin};
pub use life::AgentStatus;
pub use rules::Rules;
#[cfg(feature = "sidecar")]
pub use sidecar::{Sidecar, SidecarAccess, UnixSidecar, sidecar, sidecar_for, sidecar_on_socket};

use crate::log::LogError;
use crate::trace::Traced;
use carrier::Carrier;
use life::Life;

/// What a relay needs to speak to its parent as an agent does.
#[cfg(feature = "coordinator")]
pub(crate) mod carriage {
    pub(crate) use super::carrier::{Carrier, in_time};
}
#[cfg(feature = "coordinator")]
pub(crate) use noise::instance;

/// An agent. Cheap to clone; all clones are the same agent, usable from any thread.
///
/// When the last clone is dropped, the agent stops carrying messages. With a state it can go on from there, as after a
/// crash; [`close`](Self::close) ends it in order.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<AgentInner>,
    /// Stops the tasks, which hold `shared` too, when the last clone is gone.
    _running: Arc<StopOnDrop>,
}

struct StopOnDrop(watch::Sender<bool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

pub(crate) struct AgentInner {
    config: AgentConfig,
    life: Mutex<Life>,
    /// There is something to send.
    wake: Notify,
    /// The journal is long: the state should be saved.
    save: Notify,
    /// Something came in, or a link was cut.
    changed: watch::Sender<()>,
    stop: watch::Sender<bool>,
    /// A superseded agent was asked to take a new life.
    asked_to_live: Notify,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    carrier: tokio::sync::Mutex<Carrier>,
    /// The upload on its way, where uploads are traced.
    traced: Mutex<Option<Traced>>,
}

/// A choice that waits for its reward. As text it is `life-number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChoiceId {
    /// The agent's life in which it was made.
    pub life: Incarnation,
    /// The number of the choice in that life.
    pub number: u64,
}

/// An arm that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Chosen {
    /// The name of the choice, by which its reward is told later.
    pub id: ChoiceId,
    /// The index of the arm in the offer.
    pub arm: usize,
    /// The probability of this choice, where it is known.
    pub propensity: Option<f64>,
}

/// A choice that was not made. Nothing has changed.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ChooseError {
    /// The arms cannot be used, or are beyond the federation's bound.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The agent was closed before the choice.
    #[error("the agent was closed")]
    Closed,
}

/// A reward that was not taken. Nothing has changed.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum RewardError {
    /// The choice was never made, was rewarded before or has expired.
    #[error("choice {0} does not wait for a reward: it was never made, was rewarded before or has expired")]
    Unknown(ChoiceId),
    /// The reward is no number, or beyond the federation's bound.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The agent was closed before the reward.
    #[error("the agent was closed")]
    Closed,
    /// What this agent learns does not reach the coordinator: another process speaks for it, or its life has
    /// ended.
    #[error("{0}: this agent learns nothing until it is given a new life")]
    Superseded(String),
}

/// An agent that cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The state cannot be read or written.
    #[error(transparent)]
    State(#[from] LogError),
    /// What was read is not a state of this agent.
    #[error("the state cannot be used: {0}. Remove it to begin a new life")]
    Foreign(String),
    /// The federation is not private enough for this agent's policy.
    #[error("this agent's privacy policy refuses the federation: {0}")]
    Policy(String),
    /// The coordinator refused the agent, for the reason that it gives.
    #[error("the coordinator refused: {message}")]
    Refused {
        /// The kind of refusal in one word, as the coordinator's metrics count it, if it named one.
        reason: Option<String>,
        /// The coordinator's explanation, for the operator.
        message: String,
    },
    /// The coordinator does not answer at its address.
    #[error("the coordinator cannot be reached: {0}")]
    Unreachable(String),
}

impl Agent {
    /// Starts an agent. With a state it goes on at once, coordinator or not; without one it asks the
    /// coordinator for the rules of the federation first, again and again until there is an answer.
    ///
    /// Must be called in a tokio runtime, in which it goes on to carry messages.
    pub fn start(config: AgentConfig) -> Pin<Box<dyn Future<Output = Result<Self, AgentError>> + Send>> {
        // An object, so that the link is translated with the optimisation of this crate, whatever that of the program is.
        Box::pin(Self::begin(config))
    }

    async fn begin(config: AgentConfig) -> Result<Self, AgentError> {
        config.check()?;
        let config = AgentConfig { clock: config.clock.clone().steady(), ..config };
        let mut carrier = Carrier::new(&config)?;
        let instance = noise::instance();
        carrier.set_instances(&[instance]);
        let life = match Life::resume(&config, instance)? {
            Some(life) => {
                carrier.set_instances(life.instances());
                life
            }
            None => {
                let (rules, incarnation) = carrier.join_patiently(&config).await?;
                policy::admit(config.policy.as_ref(), &rules, config.noise)?;
                Life::begin(&config, rules, incarnation, instance)?
            }
        };
        let (stop, _) = watch::channel(false);
        let running = StopOnDrop(stop.clone());
        let shared = Arc::new(AgentInner {
            life: Mutex::new(life),
            wake: Notify::new(),
            save: Notify::new(),
            changed: watch::channel(()).0,
            stop,
            asked_to_live: Notify::new(),
            tasks: Mutex::default(),
            carrier: tokio::sync::Mutex::new(carrier),
            traced: Mutex::default(),
            config,
        });
        let mut tasks = Vec::new();
        if shared.config.carriage != Carriage::ByHand {
            tasks.push(tokio::spawn(link::drive(Arc::clone(&shared))));
        }
        if shared.config.state.is_some() {
            tasks.push(tokio::spawn(link::keep_saving(Arc::clone(&shared))));
        }
        *shared.tasks.lock().unwrap_or_else(PoisonError::into_inner) = tasks;
        Ok(Self { shared, _running: Arc::new(running) })
    }

    /// Looks at an offer before the choice, and asks the coordinator if the algorithm wants to hear news first.
    /// Returns whether there is a new question without an answer; waiting for it is up to the caller. It returns `false`
    /// for a question that an earlier call told of, so that an unreachable coordinator delays one choice and not all.
    /// The next [`choose`](Self::choose) must be for the same offer.
    pub fn prepare(&self, user: UserId, arms: &Arms) -> Result<bool, ChooseError> {
        let now = self.shared.config.clock.now();
        let mut life = self.life();
        let is_asking = life.prepare(user, arms, now);
        self.shared.wake_for_mail(life);
        is_asking
    }

    /// Like [`choose`](Self::choose), but if the algorithm wants to hear news first, waits for them up to
    /// `limit`. When they do not come in time, the choice is made without them and they count for the next.
    pub async fn choose_after_news(
        &self,
        user: UserId,
        arms: &Arms,
        limit: std::time::Duration,
    ) -> Result<Chosen, ChooseError> {
        if self.prepare(user, arms)? && !limit.is_zero() {
            let mut changed = self.shared.changed.subscribe();
            let answered =
                async { while self.life().machine().is_asking() && changed.changed().await.is_ok() {} };
            let _ = tokio::time::timeout(limit, answered).await;
        }
        self.choose(user, arms)
    }

    /// Chooses one of `arms` for `user`. Never waits for the network: if the algorithm asks for news, they
    /// count for the choices after this one.
    pub fn choose(&self, user: UserId, arms: &Arms) -> Result<Chosen, ChooseError> {
        self.choose_in(false, user, arms)
    }

    fn choose_in(&self, batch: bool, user: UserId, arms: &Arms) -> Result<Chosen, ChooseError> {
        let now = self.shared.config.clock.now();
        let mut life = self.life();
        let before = life.next_expiry();
        let chosen = life.noting(batch, |life| life.choose(user, arms, now, &self.shared.config));
        if self.shared.config.carriage == Carriage::Link && life.next_expiry() != before {
            // The task that carries messages sleeps until the expiry that it knew of.
            self.shared.wake.notify_one();
        }
        // What expired meanwhile may have been worth a message.
        self.shared.wake_for_mail(life);
        chosen
    }

    /// Learns the reward of a choice, at any time after it.
    pub fn reward(&self, id: ChoiceId, reward: f64) -> Result<(), RewardError> {
        self.reward_in(false, id, reward)
    }

    fn reward_in(&self, batch: bool, id: ChoiceId, reward: f64) -> Result<(), RewardError> {
        let now = self.shared.config.clock.now();
        let mut life = self.life();
        life.noting(batch, |life| life.reward(id, reward, now))?;
        self.shared.wake_for_mail(life);
        Ok(())
    }

    /// Returns the number that the federation knows this agent by.
    #[must_use]
    pub fn id(&self) -> AgentId {
        self.life().id()
    }

    /// How long a choice through the sidecar may wait for news.
    #[must_use]
    pub fn wait(&self) -> std::time::Duration {
        self.shared.config.wait
    }

    /// Returns how many features an arm has, shared and own together.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.life().dimension()
    }

    /// Returns counts and the state of the link at this moment.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.life().status()
    }

    /// What the agent may claim about privacy, if it is private: without anything that was computed from raw observations,
    /// so that it may be published.
    #[must_use]
    pub fn privacy(&self) -> Option<posse_core::PrivacyReport> {
        let report = self.inspect(|machine| machine.privacy())?;
        Some(policy::statement(&report, &self.shared.config))
    }

    /// Calls `look` with the agent's machine, under the lock that choosing needs, and returns its result.
    pub fn inspect<T>(&self, look: impl FnOnce(&dyn posse_core::Agent) -> T) -> T {
        look(self.life().machine())
    }

    /// One exchange with the coordinator: sends what waits, if anything does, and takes in what waits there.
    /// For agents whose messages are carried by hand. Returns whether there is more to send.
    pub async fn exchange(&self) -> Result<bool, AgentError> {
        let mut carrier = self.shared.carrier.lock().await;
        link::exchange_once(&self.shared, &mut carrier).await
    }

    /// Gives an agent that was superseded a new life, in which its rewards count again. What its old life had
    /// learned and not shared stays behind; choices go on waiting for their rewards. If the other process still
    /// runs, that one is superseded in turn. Does nothing to an agent that was not superseded.
    pub fn take_new_life(&self) {
        let mut life = self.life();
        if life.status.superseded.is_some() {
            life.live_again();
            drop(life);
            self.shared.asked_to_live.notify_one();
        }
    }

    /// Whether the coordinator has answered everything that was said so far.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.life().is_settled()
    }

    /// Everything that its session and its machine hold, encoded.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        self.life().session()
    }

    /// Returns when the coordinator has answered everything that was said so far.
    pub async fn settled(&self) {
        let mut changed = self.shared.changed.subscribe();
        while !self.is_settled() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns when `happened` is true of the agent's status. It is asked now, and again whenever something came in
    /// or a link was cut.
    pub async fn until(&self, happened: impl Fn(&AgentStatus) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        while !happened(&self.status()) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Stops carrying messages and saves the state. Other clones of this agent do not choose or learn any more, but
    /// can still be asked how it ended.
    pub async fn close(self) -> Result<(), AgentError> {
        // `send` would do nothing while no task has begun to listen.
        self.shared.stop.send_replace(true);
        let tasks = std::mem::take(&mut *self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            let _ = task.await;
        }
        Ok(self.life().close()?)
    }

    /// Stops at once, saving nothing: what a crash leaves is what is left.
    pub async fn abort(self) {
        let tasks = std::mem::take(&mut *self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        self.life().forget_journal();
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.shared.life()
    }
}

impl AgentInner {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task that carries messages if there are any, and the one that saves the state if the journal
    /// is long.
    fn wake_for_mail(&self, life: MutexGuard<'_, Life>) {
        let (has_mail, wants_save) = (life.has_mail(), life.wants_save());
        drop(life);
        if has_mail {
            self.wake.notify_one();
        }
        if wants_save {
            self.save.notify_one();
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl fmt::Display for ChoiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.life.0, self.number)
    }
}

impl FromStr for ChoiceId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |part: &str| part.parse::<u64>().ok();
        let (life, number) = text.split_once('-').ok_or("a choice is named like 3-17")?;
        match (parse(life), parse(number)) {
            (Some(life), Some(number)) => Ok(Self { life: Incarnation(life), number }),
            _ => Err("a choice is named like 3-17"),
        }
    }
}
