//! Agents that lie: what they report is possible, and false.

use posse_core::settings::Described;
use posse_core::{
    Agent, AgentView, Arms, Choice, ConfigError, DecodeError, Downlink, Evidence, Incarnation, InputError,
    LocalCluster, NoiseSource, Parcel, PrivacyReport, ProtocolError, Seed, Tick, Uplink, UserId,
};
use serde::{Deserialize, Serialize};

/// The `[adversaries]` table of an experiment: which agents lie about their rewards, and how.
///
/// Liars act and learn as the others do. Only what they upload is false: the same arms with other rewards, none of
/// them larger than `reward_bound`, so that a coordinator cannot refuse it as impossible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default, deny_unknown_fields)]
pub struct AdversaryConfig {
    /// in [0, 1]: the share of agents that lie. The seed decides which. Default 0.
    pub share: f64,
    /// Agents that lie besides, by their numbers from 0 on, such as `0 3 17`. Not set: none.
    pub liars: String,
    /// What liars make of the rewards they report. Default `sign-flip`.
    pub lie: Lie,
    /// > 0: how many times larger than the truth the rewards of `scaled` and `targeted` liars are. Default 3.
    pub factor: f64,
    /// ≥ 1: how often each observation is reported, as if it had been made so many times. Default 1.
    pub repeat: u64,
    /// ≥ 1: observations after which a `drifting` liar has turned from the truth to its opposite. Default 50.
    pub turning: u64,
    /// > 0: no reported reward is larger than this, either way. Default 1.
    pub reward_bound: f64,
}

/// What a liar makes of a reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Lie {
    /// The opposite.
    #[default]
    SignFlip,
    /// The opposite, `factor` times as large.
    Scaled,
    /// The truth, but arms that resemble one that the liars prefer are praised: `factor` times how much they do.
    Targeted,
    /// What a model would say that all liars have agreed on. It has nothing to do with the truth.
    Colluding,
    /// The truth at first, then less and less of it, and the opposite in the end.
    Drifting,
}

impl Default for AdversaryConfig {
    fn default() -> Self {
        Self {
            share: 0.0,
            liars: String::new(),
            lie: Lie::default(),
            factor: 3.0,
            repeat: 1,
            turning: 50,
            reward_bound: 1.0,
        }
    }
}

impl AdversaryConfig {
    /// Whether all agents are honest.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.share == 0.0 && self.liars.trim().is_empty()
    }

    pub(crate) fn check(&self, agents: u64) -> Result<(), ConfigError> {
        let require = ConfigError::require;
        require((0.0..=1.0).contains(&self.share), "share", self.share, "it must lie between 0 and 1")?;
        let positive = |v: f64| v > 0.0 && v.is_finite();
        require(positive(self.factor), "factor", self.factor, "it must be positive")?;
        require(positive(self.reward_bound), "reward_bound", self.reward_bound, "it must be positive")?;
        require(self.repeat >= 1, "repeat", self.repeat as f64, "it must be at least 1")?;
        require(self.turning >= 1, "turning", self.turning as f64, "it must be at least 1")?;
        if self.listed().any(|agent| agent.is_none_or(|agent| agent >= agents)) {
            let allowed = "numbers of agents, from 0 on, with spaces between";
            return Err(ConfigError::new("liars", &self.liars, allowed));
        }
        Ok(())
    }

    fn listed(&self) -> impl Iterator<Item = Option<u64>> {
        self.liars.split_whitespace().map(|word| word.parse().ok())
    }

    /// For each agent, whether it lies.
    pub(crate) fn who_lies(&self, agents: u64, seed: Seed) -> Vec<bool> {
        let count = usize::try_from(agents).expect("agents fit in memory");
        let mut liars = vec![false; count];
        if self.is_empty() {
            return liars;
        }
        let domain = seed.domain("adversaries");
        // As many as the share says, whichever they are: a share drawn agent by agent would differ between seeds.
        let mut order: Vec<(u64, usize)> =
            (0..count).map(|agent| (domain.stream(agent as u64, 0).below(u64::MAX), agent)).collect();
        order.sort_unstable();
        let drawn = libm::round(self.share * agents as f64) as usize;
        order[..drawn.min(count)].iter().for_each(|(_, agent)| liars[*agent] = true);
        self.listed().flatten().for_each(|agent| liars[agent as usize] = true);
        liars
    }

    /// Makes a liar of `agent`, which has `dimension` features.
    pub(crate) fn corrupt(&self, agent: Box<dyn Agent>, dimension: usize, seed: Seed) -> Box<dyn Agent> {
        // One direction for all liars, of length one.
        let mut stream = seed.domain("adversaries").stream(0, 1);
        let mut direction: Vec<f64> = (0..dimension).map(|_| stream.normal()).collect();
        let length = direction.iter().map(|v| v * v).sum::<f64>().sqrt();
        direction.iter_mut().for_each(|v| *v /= length);
        let nothing = Evidence::none(dimension);
        Box::new(Liar {
            agent,
            config: self.clone(),
            direction,
            told: 0,
            buffer: nothing.clone(),
            in_flight: nothing,
        })
    }
}

/// An agent whose uploads say something else than it has learned.
struct Liar {
    agent: Box<dyn Agent>,
    config: AdversaryConfig,
    /// What colluding and targeted liars have agreed on.
    direction: Vec<f64>,
    /// Observations that it has lied about.
    told: u64,
    /// What it will say instead of what the agent has not sent, and said instead of what was sent last.
    buffer: Evidence,
    in_flight: Evidence,
}

impl Liar {
    fn lie(&self, arm: &[f64], reward: f64) -> f64 {
        let liked: f64 = arm.iter().zip(&self.direction).map(|(x, v)| x * v).sum();
        let AdversaryConfig { lie, factor, turning, reward_bound, .. } = self.config;
        let said = match lie {
            Lie::SignFlip => -reward,
            Lie::Scaled => -factor * reward,
            Lie::Targeted => reward + factor * liked.max(0.0),
            Lie::Colluding => liked,
            Lie::Drifting => reward * (1.0 - 2.0 * (self.told as f64 / turning as f64).min(1.0)),
        };
        said.clamp(-reward_bound, reward_bound)
    }

    /// Replaces the evidence of an upload. A repeated upload is replaced by the same lie as before.
    fn corrupt(&mut self, evidence: &mut Parcel) {
        let kept_back = self.agent.inspect().unsent * self.config.repeat;
        if kept_back < self.buffer.count() {
            let nothing = Evidence::none(self.direction.len());
            self.in_flight = std::mem::replace(&mut self.buffer, nothing);
        }
        if !self.in_flight.is_empty() {
            *evidence = Parcel::wrap(&self.in_flight);
        }
    }

    /// Replaces the agent's part of a round. What a round did not take in is in the next part again.
    fn corrupt_part(&mut self, evidence: &mut Parcel) {
        let nothing = Evidence::none(self.direction.len());
        let fresh = std::mem::replace(&mut self.buffer, nothing);
        if evidence.count() * self.config.repeat == fresh.count() {
            self.in_flight = fresh;
        } else {
            self.in_flight.add(&fresh);
        }
        *evidence = Parcel::wrap(&self.in_flight);
    }

    fn tamper(&mut self, mut message: Option<Uplink>) -> Option<Uplink> {
        match &mut message {
            Some(Uplink::Evidence(upload)) => self.corrupt(&mut upload.evidence),
            Some(Uplink::RoundEvidence { evidence, .. }) => self.corrupt_part(evidence),
            Some(Uplink::Pull(pull)) => {
                if let Some(upload) = &mut pull.upload {
                    self.corrupt(&mut upload.evidence);
                }
            }
            _ => {}
        }
        message
    }
}

impl Agent for Liar {
    fn prepare(&mut self, now: Tick, user: UserId, arms: &Arms) -> Result<Option<Uplink>, InputError> {
        let message = self.agent.prepare(now, user, arms)?;
        Ok(self.tamper(message))
    }

    fn prepare_again(&mut self, said: &Uplink) {
        self.agent.prepare_again(said);
        self.tamper(Some(said.clone()));
    }

    fn is_asking(&self) -> bool {
        self.agent.is_asking()
    }

    fn choose(&mut self, user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        self.agent.choose(user, arms)
    }

    fn learn(&mut self, user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        let message = self.agent.learn(user, arm, reward)?;
        let said = self.lie(arm, reward);
        self.told += 1;
        for _ in 0..self.config.repeat {
            self.buffer.observe(arm, said)?;
        }
        Ok(self.tamper(message))
    }

    fn give_up(&mut self, user: UserId) -> Option<Uplink> {
        let message = self.agent.give_up(user);
        self.tamper(message)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        let answer = self.agent.receive(message)?;
        Ok(self.tamper(answer))
    }

    fn inspect(&self) -> AgentView<'_> {
        self.agent.inspect()
    }

    fn clusters(&self) -> Vec<LocalCluster> {
        self.agent.clusters()
    }

    fn privacy(&self) -> Option<PrivacyReport> {
        self.agent.privacy()
    }

    fn failed_trainings(&self) -> u64 {
        self.agent.failed_trainings()
    }

    fn use_noise(&mut self, noise: Box<dyn NoiseSource>) {
        self.agent.use_noise(noise);
    }

    fn begin_life(&mut self, life: Incarnation) {
        self.agent.begin_life(life);
    }

    fn save(&self) -> Vec<u8> {
        let mut state = self.told.to_le_bytes().to_vec();
        for evidence in [&self.buffer, &self.in_flight] {
            state.extend(evidence.count().to_le_bytes());
            let numbers = evidence.gram().iter().chain(evidence.moment());
            numbers.for_each(|number| state.extend(number.to_le_bytes()));
        }
        state.extend(self.agent.save());
        state
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let mut words = state.chunks_exact(8).map(|word| <[u8; 8]>::try_from(word).expect("eight bytes"));
        let dimension = self.direction.len();
        let matrix = dimension * (dimension + 1) / 2;
        let mut word = || words.next().ok_or_else(|| DecodeError::invalid("liar", "it is too short"));
        let told = u64::from_le_bytes(word()?);
        let mut evidence = || {
            let count = u64::from_le_bytes(word()?);
            let mut numbers =
                |count| (0..count).map(|_| word().map(f64::from_le_bytes)).collect::<Result<Vec<_>, _>>();
            let (gram, moment) = (numbers(matrix)?, numbers(dimension)?);
            Evidence::from_parts(gram, moment, count)
                .map_err(|_| DecodeError::invalid("liar", "impossible sums"))
        };
        let (buffer, in_flight) = (evidence()?, evidence()?);
        self.agent.restore(&state[8 * (1 + 2 * (1 + matrix + dimension))..])?;
        (self.told, self.buffer, self.in_flight) = (told, buffer, in_flight);
        Ok(())
    }
}
