//! Async-LinUCB-AM: agents that agree on some features and differ in others.
//!
//! Rewards are x_gᵀθ_g + x_lᵀθ_i plus noise. The shared block (x_g) is learned together, by the protocol
//! of [`async_lin_ucb`](super::async_lin_ucb); the local block (x_l) stays at home. An observation is
//! split between the two by alternating minimisation ([`alternating`](super::alternating)).

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, AgentView, Choice, Shape};
use crate::arms::{Arms, best};
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::exchange::belief::Belief;
use crate::ids::{AgentId, UserId, Version};
use crate::linear::alternating::{Block, UnsplitHistory, dot, has_full_rank, span_of, split_one};
use crate::linear::async_lin_ucb::{ProtocolConfig, receive_into, upload_if_due};
use crate::linear::exchange::Exchange;
use crate::message::{Downlink, Uplink};
use crate::ridge::Ridge;
use crate::scoring::{check_arms, upper_confidence};
use crate::trigger::UploadTrigger;
use crate::width::{ModelConfig, NOT_NEGATIVE, Width};
use crate::wire::{self, v1};

const NAME: &str = "async-lin-ucb-am";

/// Settings of `async-lin-ucb-am`: a model with a shared and a personal block, fitted by alternating
/// minimisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct AsyncLinUcbAm {
    /// The models of both blocks and their widths.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// When to speak about the shared block.
    #[serde(flatten)]
    pub protocol: ProtocolConfig,
    /// Begin with a model of the agent's own, until it has seen enough to tell the blocks apart (Algorithm 5).
    /// It ends, too, when more observations bring nothing new: features that are always zero, or that
    /// depend on each other, never reach full rank. Without it both blocks start from nothing. Default true.
    pub cold_start: bool,
    /// Use every feature in both blocks. Default false.
    pub duplicated: bool,
    /// ≥ 1: the most alternations per observation. Default 100.
    pub iterations: u32,
    /// ≥ 0: added to the noise in the widths of the blocks, for the error of splitting; the paper has 2.
    /// Default 0.
    pub extra_noise: f64,
}

impl Default for AsyncLinUcbAm {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            protocol: ProtocolConfig::default(),
            cold_start: true,
            duplicated: false,
            iterations: 100,
            extra_noise: 0.0,
        }
    }
}

impl AsyncLinUcbAm {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.protocol.check()?;
        if self.iterations == 0 {
            return Err(ConfigError::new("iterations", 0, "it must be at least 1"));
        }
        let extra = self.extra_noise;
        ConfigError::require(extra >= 0.0 && extra.is_finite(), "extra_noise", extra, NOT_NEGATIVE)
    }

    /// The dimension of the shared block: all features if they are duplicated.
    pub(crate) fn shared_dimension(&self, shape: Shape) -> usize {
        if self.duplicated { shape.dimension() } else { shape.shared }
    }

    pub(crate) fn agent(&self, id: AgentId, shape: Shape) -> AmAgent {
        let shared = self.shared_dimension(shape);
        let local = if self.duplicated { shape.dimension() } else { shape.local };
        let dimension = shape.dimension();
        let cold = || Cold { history: UnsplitHistory::new(dimension), model: self.model.model(dimension) };
        let width = self.model.width();
        AmAgent {
            shape,
            duplicated: self.duplicated,
            iterations: self.iterations,
            radius: self.model.norm_bound,
            view: Belief::new(self.model.model(shared)),
            local: Block::new(self.model.model(local)),
            cold: self.cold_start.then(cold),
            checked: Version(0),
            block_width: width.clone().with_extra_noise(self.extra_noise),
            cold_width: width,
            trigger: self.protocol.trigger(id),
            bounds: Vec::new(),
            choices: 0,
        }
    }

    pub(crate) fn coordinator(&self, shape: Shape) -> Exchange {
        self.protocol.coordinator(NAME, &self.model, self.shared_dimension(shape))
    }
}

/// An agent with a shared and a local block.
#[derive(Clone, Debug)]
pub(crate) struct AmAgent {
    shape: Shape,
    duplicated: bool,
    iterations: u32,
    /// S: alternations keep each block's parameters within this norm.
    radius: f64,
    view: Belief,
    local: Block,
    /// Present until the blocks can be told apart.
    cold: Option<Cold>,
    /// The version at which the shared evidence was last found too thin to start from.
    checked: Version,
    block_width: Width,
    cold_width: Width,
    trigger: UploadTrigger,
    bounds: Vec<f64>,
    choices: u64,
}

/// What an agent knows before it can tell the blocks apart: everything, in one model of its own.
#[derive(Clone, Debug)]
struct Cold {
    history: UnsplitHistory,
    model: Ridge,
}

impl AmAgent {
    fn blocks<'x>(&self, arm: &'x [f64]) -> (&'x [f64], &'x [f64]) {
        if self.duplicated { (arm, arm) } else { arm.split_at(self.shape.shared) }
    }

    fn choose_warm(&mut self, arms: &Arms) -> Result<Choice, InputError> {
        let (shared, local) = (self.view.dimension(), self.local.model.dimension());
        let first_local = if self.duplicated { 0 } else { shared };
        let shared_width = self.block_width.of(self.view.model(), self.view.count());
        let local_width = self.block_width.of(&self.local.model, self.local.evidence.count());
        self.view.model().score(arms.columns(0, shared), |scores| {
            self.bounds.clear();
            let scores = scores.means.iter().zip(scores.widths);
            self.bounds.extend(scores.map(|(mean, width)| mean + shared_width * width));
        });
        let arm = self.local.model.score(arms.columns(first_local, local), |scores| {
            let bounds = self.bounds.iter().zip(scores.means.iter().zip(scores.widths));
            best(bounds.map(|(bound, (mean, width))| bound + (mean + local_width * width)))
        })?;
        Ok(Choice { arm, propensity: Some(1.0) })
    }

    /// Whether own history or downloads suffice to tell the blocks apart, or cannot come to suffice.
    fn can_warm_up(&mut self) -> bool {
        let cold = self.cold.as_ref().expect("asked while cold");
        if self.view.version() > self.checked {
            self.checked = self.view.version();
            if has_full_rank(self.view.base()) || self.base_covers(&cold.history) {
                return true;
            }
        }
        let needed = if self.duplicated { self.view.dimension() } else { self.shape.dimension() } as u64;
        let own = cold.history.evidence();
        // As many observations as there are features, none of them in a new direction: full rank will not come.
        let exhausted = own.count() >= 2 * needed && cold.history.without_news() >= needed;
        own.count() >= needed && (exhausted || has_full_rank(own))
    }

    /// Whether downloads of many observations span every shared direction that this agent has met, although not
    /// all that could be. Two observations for each feature would have full rank if the features had.
    fn base_covers(&self, history: &UnsplitHistory) -> bool {
        let base = self.view.base();
        if base.count() < 2 * base.dimension() as u64 {
            return false;
        }
        let known = span_of(base);
        history.rows().all(|(arm, _)| known.contains(self.blocks(arm).0))
    }

    /// Splits the whole history and goes on with two blocks.
    fn warm_up(&mut self) {
        let Some(Cold { history, model }) = self.cold.take() else { return };
        let shared_start = if has_full_rank(self.view.base()) || self.base_covers(&history) {
            self.view.model().estimate()
        } else {
            model.estimate()[..self.view.dimension()].to_vec()
        };
        let split = |arm| self.blocks(arm);
        let (theta_shared, theta_local) = history.split(
            split,
            self.view.base(),
            shared_start,
            self.local.model.dimension(),
            self.view.regularization(),
            self.radius,
            self.iterations,
        );
        for (arm, reward) in history.rows() {
            let (shared, local) = self.blocks(arm);
            self.view.observe(shared, reward - dot(local, &theta_local));
            self.local.observe(local, reward - dot(shared, &theta_shared));
        }
    }
}

impl Agent for AmAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.shape.dimension(), arms)?;
        let choice = match &self.cold {
            Some(cold) => {
                let width = self.cold_width.of(&cold.model, cold.history.evidence().count());
                upper_confidence(&cold.model, width, arms)?
            }
            None => self.choose_warm(arms)?,
        };
        self.choices += 1;
        Ok(choice)
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.shape.dimension(), arm, reward)?;
        if let Some(cold) = &mut self.cold {
            cold.history.push(arm, reward);
            cold.model.learn(arm, reward, [cold.history.evidence()].into_iter());
            if !self.can_warm_up() {
                return Ok(None);
            }
            self.warm_up();
        } else {
            let (shared, local) = self.blocks(arm);
            let (model, own) = (self.view.model(), &self.local.model);
            let (to_shared, to_local) =
                split_one(model, shared, own, local, reward, self.radius, self.iterations);
            self.view.observe(shared, to_shared);
            self.local.observe(local, to_local);
        }
        Ok(upload_if_due(&mut self.view, self.trigger))
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        Ok(receive_into(&mut self.view, self.trigger, NAME, message)?.1)
    }

    fn inspect(&self) -> AgentView<'_> {
        let withheld = self.cold.as_ref().map_or(0, |cold| cold.history.evidence().count());
        AgentView { withheld, ..self.view.inspect() }
    }

    fn save(&self) -> Vec<u8> {
        let cold = self.cold.as_ref();
        v1::LinearAgentState {
            choices: self.choices,
            view: Some(self.view.save()),
            local_model: Some(self.local.model.save()),
            local_evidence: Some(wire::evidence_to_wire(&self.local.evidence)),
            warm: cold.is_none(),
            cold_model: cold.map(|cold| cold.model.save()),
            history_features: cold.map(|cold| cold.history.features().to_vec()).unwrap_or_default(),
            history_rewards: cold.map(|cold| cold.history.rewards().to_vec()).unwrap_or_default(),
            round: self.checked.0,
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::LinearAgentState = wire::decode(state)?;
        let mut restored = self.clone();
        restored.view = self.view.restored(state.view.unwrap_or_default())?;
        restored.local.model.restore(&state.local_model.unwrap_or_default())?;
        restored.local.evidence = wire::evidence_from_wire(state.local_evidence.unwrap_or_default())?;
        if restored.local.evidence.dimension() != self.local.model.dimension() {
            return Err(DecodeError::invalid("evidence", "it has another dimension"));
        }
        restored.cold = if state.warm {
            None
        } else {
            let dimension = self.shape.dimension();
            let mut model = Ridge::new(dimension, self.view.regularization());
            model.restore(&state.cold_model.unwrap_or_default())?;
            let history =
                UnsplitHistory::from_parts(dimension, &state.history_features, &state.history_rewards)?;
            Some(Cold { history, model })
        };
        restored.checked = Version(state.round);
        restored.choices = state.choices;
        *self = restored;
        Ok(())
    }
}

impl Block {
    fn observe(&mut self, x: &[f64], y: f64) {
        self.evidence.add_observation(x, y);
        self.model.learn(x, y, [&self.evidence].into_iter());
    }

    fn new(model: Ridge) -> Self {
        Self { evidence: Evidence::none(model.dimension()), model }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    /// How many observations an agent needs until it shares, if only the first `rank` of its features are ever used.
    fn observations_until_shared(dimension: usize, rank: usize, most: usize) -> Option<usize> {
        let config = AsyncLinUcbAm { duplicated: true, ..AsyncLinUcbAm::default() };
        let mut agent = config.agent(AgentId(0), Shape::shared(dimension));
        let mut stream = Seed(3).stream("arms", 0, 0);
        (1..=most).find(|_| {
            let mut arm = vec![0.0; dimension];
            arm[..rank].iter_mut().for_each(|x| *x = stream.normal());
            let reward = arm.iter().sum::<f64>() / dimension as f64;
            agent.learn(UserId(0), &arm, reward).unwrap().is_some()
        })
    }

    #[test]
    fn a_cold_start_ends_with_full_rank_or_when_more_observations_bring_nothing_new() {
        assert_eq!(observations_until_shared(25, 25, 100), Some(25));
        // 18 directions after 18 observations, and none in the 25 after them.
        assert_eq!(observations_until_shared(25, 18, 100), Some(50));
        assert_eq!(observations_until_shared(25, 1, 100), Some(50));
    }

    #[test]
    fn a_cold_start_goes_on_the_same_after_a_restart() {
        let config = AsyncLinUcbAm { duplicated: true, ..AsyncLinUcbAm::default() };
        let shape = Shape::shared(6);
        let mut agent = config.agent(AgentId(0), shape);
        let mut stream = Seed(4).stream("arms", 0, 0);
        let mut shared = Vec::new();
        for step in 0..20 {
            let arm = [stream.normal(), stream.normal(), stream.normal(), 0.0, 0.0, 0.0];
            if step == 9 {
                let mut restored = config.agent(AgentId(0), shape);
                restored.restore(&agent.save()).unwrap();
                agent = restored;
            }
            if agent.learn(UserId(0), &arm, 0.1).unwrap().is_some() {
                shared.push(step);
            }
        }
        assert_eq!(shared.first(), Some(&11), "twice six observations, whatever happened on the way");
    }
}
