//! An agent beside its service: chooses locally and offline, learns whenever a reward comes, and speaks with
//! the coordinator when there is something to say and a way to say it.

mod config;
mod life;
mod link;
mod noise;
mod sidecar;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posse_core::{AgentId, Arms, ConfigError, Incarnation, InputError, UserId};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tonic::Status;

pub use config::{AgentConfig, AgentTls, Carriage, NoiseOrigin};
pub use life::{AgentStatus, Rules};
pub use sidecar::{Sidecar, sidecar};

use crate::clock::Clock;
use crate::log::LogError;
use life::Life;
use link::Carrier;

/// An agent. Cheap to clone; all clones are the same agent, usable from any thread.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    config: AgentConfig,
    clock: Clock,
    life: Mutex<Life>,
    /// There is something to send.
    wake: Notify,
    /// Something came in, or a link was cut.
    changed: watch::Sender<()>,
    stop: watch::Sender<bool>,
    driver: Mutex<Option<JoinHandle<()>>>,
    carrier: tokio::sync::Mutex<Carrier>,
}

/// A choice that waits for its reward. As text it is `life-number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChoiceId {
    /// The agent's life in which it was made.
    pub life: Incarnation,
    /// Its number there.
    pub number: u64,
}

/// An arm that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// What to name when the reward comes.
    pub id: ChoiceId,
    /// The index of the arm in the offer.
    pub arm: usize,
    /// The probability of this choice, where it is known.
    pub propensity: Option<f64>,
}

/// A reward that was not taken. Nothing has changed.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum RewardError {
    /// The choice was never made, was rewarded before or has expired.
    #[error("choice {0} does not wait for a reward: it was never made, was rewarded before or has expired")]
    Unknown(ChoiceId),
    /// The reward is no number.
    #[error(transparent)]
    Input(#[from] InputError),
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
    /// The coordinator said no.
    #[error("the coordinator refused: {}", .0.message())]
    Refused(Box<Status>),
    /// The coordinator cannot be asked.
    #[error("the coordinator cannot be reached: {0}")]
    Unreachable(String),
}

impl Agent {
    /// Starts an agent. With a state it goes on at once, coordinator or not; without one it asks the
    /// coordinator for the rules of the federation first, again and again until there is an answer.
    ///
    /// Must be called in a tokio runtime, in which it goes on to carry messages.
    pub async fn start(config: AgentConfig, clock: Clock) -> Result<Self, AgentError> {
        config.check()?;
        let mut carrier = Carrier::new(&config)?;
        let life = match Life::resume(&config, &clock)? {
            Some(life) => life,
            None => {
                let (rules, incarnation) = carrier.join_patiently(&config).await?;
                Life::begin(&config, rules, incarnation)?
            }
        };
        let (stop, _) = watch::channel(false);
        let shared = Arc::new(Shared {
            clock,
            life: Mutex::new(life),
            wake: Notify::new(),
            changed: watch::channel(()).0,
            stop,
            driver: Mutex::new(None),
            carrier: tokio::sync::Mutex::new(carrier),
            config,
        });
        if shared.config.carriage != Carriage::ByHand {
            let driver = tokio::spawn(link::drive(Arc::clone(&shared)));
            *shared.driver.lock().unwrap_or_else(PoisonError::into_inner) = Some(driver);
        }
        Ok(Self { shared })
    }

    /// Looks at an offer before the choice, and asks the coordinator if the algorithm wants to hear news first.
    /// Returns whether there is a question without an answer; waiting for it is up to the caller. The next
    /// [`choose`](Self::choose) must be for the same offer.
    pub fn prepare(&self, user: UserId, arms: &Arms) -> Result<bool, InputError> {
        let now = self.shared.clock.now();
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
    ) -> Result<Chosen, InputError> {
        let mut changed = self.shared.changed.subscribe();
        if self.prepare(user, arms)? && !limit.is_zero() {
            let answered =
                async { while self.life().machine().is_asking() && changed.changed().await.is_ok() {} };
            let _ = tokio::time::timeout(limit, answered).await;
        }
        self.choose(user, arms)
    }

    /// Chooses one of `arms` for `user`. Never waits for the network: if the algorithm asks for news, they
    /// count for the choices after this one.
    pub fn choose(&self, user: UserId, arms: &Arms) -> Result<Chosen, InputError> {
        let now = self.shared.clock.now();
        let mut life = self.life();
        let chosen = life.choose(user, arms, now, &self.shared.config);
        // What expired meanwhile may have been worth a message.
        self.shared.wake_for_mail(life);
        chosen
    }

    /// Learns the reward of a choice, at any time after it.
    pub fn reward(&self, id: ChoiceId, reward: f64) -> Result<(), RewardError> {
        let now = self.shared.clock.now();
        let mut life = self.life();
        life.reward(id, reward, now)?;
        self.shared.wake_for_mail(life);
        Ok(())
    }

    /// Whose agent it is.
    #[must_use]
    pub fn id(&self) -> AgentId {
        self.life().id()
    }

    /// How long a choice through the sidecar may wait for news.
    #[must_use]
    pub fn wait(&self) -> std::time::Duration {
        self.shared.config.wait
    }

    /// Features of an arm.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.life().dimension()
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.life().status()
    }

    /// Looks at the machine inside.
    pub fn inspect<T>(&self, look: impl FnOnce(&dyn posse_core::Agent) -> T) -> T {
        look(self.life().machine())
    }

    /// One exchange with the coordinator: sends what waits, if anything does, and takes in what waits there.
    /// For agents whose messages are carried by hand. Returns whether there is more to send.
    pub async fn exchange(&self) -> Result<bool, AgentError> {
        let mut carrier = self.shared.carrier.lock().await;
        link::exchange_once(&self.shared, &mut carrier).await
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

    /// Stops carrying messages and saves the state.
    pub async fn close(&self) -> Result<(), AgentError> {
        let _ = self.shared.stop.send(true);
        let driver = self.shared.driver.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(driver) = driver {
            let _ = driver.await;
        }
        Ok(self.life().close()?)
    }

    /// Stops at once, saving nothing: what a crash leaves is what is left.
    pub async fn abort(self) {
        let driver = self.shared.driver.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(driver) = driver {
            driver.abort();
            let _ = driver.await;
        }
        self.life().forget_journal();
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.shared.life()
    }
}

impl Shared {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever carries messages has to know if there are any.
    fn wake_for_mail(&self, life: MutexGuard<'_, Life>) {
        let has_mail = life.has_mail();
        drop(life);
        if has_mail {
            self.wake.notify_one();
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
