//! What an agent's runtime needs to know.

use std::path::PathBuf;
use std::time::Duration;

use posse_core::privacy::PrivacyPolicy;
use posse_core::{ConfigError, Registry};

use crate::clock::Clock;
use crate::trace::Tracer;

/// Settings of an agent's runtime. Later versions may add some: write `..AgentConfig::default()`.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Where the coordinator is: `http://host:port`, or `https://` with TLS. Several addresses, with commas between them, are
    /// those of coordinators that take over from each other: the agent finds the one that leads.
    pub coordinator: String,
    /// Which federation; may be left out where there is only one.
    pub federation: Option<String>,
    /// The secret that proves to the coordinator which agent this is.
    pub token: Option<String>,
    /// A file with the agent's token, in place of `token`. It is read again for every connection, so that a rotated
    /// token takes effect without a restart.
    pub token_file: Option<PathBuf>,
    /// Who the agent is, where no tokens are asked for.
    pub agent: Option<u64>,
    /// A directory for the state. Without one, a restart is a new life.
    pub state: Option<PathBuf>,
    /// Features that only this agent has, after the shared ones. Default 0.
    pub local_features: usize,
    /// How long a choice waits for its reward. Default: for ever.
    pub expire_after: Option<Duration>,
    /// What a choice is taken to have brought when it expires. Default: nothing is learned from it.
    pub default_reward: Option<f64>,
    /// How long a choice through the sidecar may wait for news, with algorithms that ask for them. Default 0:
    /// it does not wait.
    pub wait: Duration,
    /// How many choices may wait; beyond it the oldest expire early. Default 100 000.
    pub max_pending: usize,
    /// How messages travel between the agent and the coordinator. Default: over a link that stays open.
    pub carriage: Carriage,
    /// The first pause after a failure; it doubles up to `longest_pause`. Default 100 ms.
    pub first_pause: Duration,
    /// The longest pause between attempts. Default 30 s.
    pub longest_pause: Duration,
    /// Where the noise of private federations comes from.
    pub noise: NoiseOrigin,
    /// The privacy that this agent requires of a federation, whatever the coordinator says. Not set: that of its state, and
    /// without one any federation is joined.
    pub policy: Option<PrivacyPolicy>,
    /// Take a new life when another process has spoken for this agent, instead of taking no more rewards
    /// until an operator has looked. With two processes that both do so, each supersedes the other for ever.
    /// Default: no.
    pub new_life_if_superseded: bool,
    /// Certificates of the connection, for `https://` addresses.
    pub tls: AgentTls,
    /// Algorithms from outside of posse that the agent knows. Default: none.
    pub registry: Registry,
    /// Where traces of uploads are sent. Default: nowhere.
    pub tracer: Option<Tracer>,
    /// Where the agent reads the time. Default: the system's clock. If it is set back, time goes on from where it was.
    pub clock: Clock,
}

/// How messages travel between an agent and its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carriage {
    /// Over a stream that stays open.
    Link,
    /// One call after another, at least once in this time: for proxies that cut streams.
    Exchange(Duration),
    /// Only when [`Agent::exchange`](super::Agent::exchange) is called.
    ByHand,
}

/// Where the noise of private federations comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoiseOrigin {
    /// The operating system's random generator. Only this process knows what it drew.
    #[default]
    System,
    /// The seed of the federation, as in a simulation that it is compared with. The coordinator knows that seed and
    /// could take the noise away: nothing is private.
    Seed,
}

/// Certificates of an agent's connection, in PEM form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentTls {
    /// The certificate authority that vouches for the coordinator. Default: those that the operating system trusts.
    pub authority: Option<Vec<u8>>,
    /// The agent's own certificate and key, where the coordinator asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The coordinator's name in its certificate, if it is not the one in its address.
    pub name: Option<String>,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            coordinator: "http://127.0.0.1:7447".into(),
            federation: None,
            token: None,
            token_file: None,
            agent: None,
            state: None,
            local_features: 0,
            expire_after: None,
            default_reward: None,
            wait: Duration::ZERO,
            max_pending: 100_000,
            carriage: Carriage::Link,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(30),
            noise: NoiseOrigin::System,
            policy: None,
            new_life_if_superseded: false,
            tls: AgentTls::default(),
            registry: Registry::default(),
            tracer: None,
            clock: Clock::system(),
        }
    }
}

impl AgentConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.policy.as_ref().map_or(Ok(()), PrivacyPolicy::check)?;
        if self.max_pending == 0 {
            return Err(ConfigError::new("max_pending", 0, "it must be at least 1"));
        }
        if let Some(reward) = self.default_reward.filter(|reward| !reward.is_finite()) {
            return Err(ConfigError::new("default_reward", reward, "it must be finite"));
        }
        if self.carriage == Carriage::Exchange(Duration::ZERO) {
            return Err(ConfigError::new("carriage", "0s", "the time between calls must be above 0"));
        }
        if self.first_pause.is_zero() || self.longest_pause < self.first_pause {
            let value = format!("{:?}", self.first_pause);
            return Err(ConfigError::new(
                "first_pause",
                value,
                "it must be above 0 and at most longest_pause",
            ));
        }
        Ok(())
    }
}
