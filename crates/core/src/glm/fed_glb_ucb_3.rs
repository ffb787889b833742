//! FedGLB-UCB₃: online Newton steps within agents *and* between them, so that a round is one exchange.
//! Its coordinator is in [`model_rounds`](super::model_rounds) and [`online`](super::online).

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::config::{Constants, GlmConfig};
use super::fed_glb_ucb::{Schedule, check_schedule};
use super::model_relay::ModelRelay;
use super::model_rounds::{ModelRounds, ModelUpdate};
use super::online::{Online, bent, newton_step};
use super::projection::dot;
use super::record::Record;
use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation, packed};
use crate::exchange::RoundConfig;
use crate::exchange::belief::Belief;
use crate::federation::Federation;
use crate::ids::{RoundId, UserId};
use crate::message::{Downlink, Fit, Model, Uplink};
use crate::parcel::Parcel;
use crate::relay::UpperLink;
use crate::ridge::Ridge;
use crate::scoring::{check_arms, upper_confidence};
use crate::wire::{self, v1};

const NAME: &str = "fed-glb-ucb-3";

/// Settings of `fed-glb-ucb-3`: scheduled rounds, in each of which the coordinator takes one online Newton
/// step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct FedGlbUcb3 {
    /// The model and its width.
    #[serde(flatten)]
    pub model: GlmConfig,
    /// ≥ 1: how many observations of all agents together lie between two rounds (NT/B for B rounds); steps get
    /// smaller with it. Default 30.
    pub round_every: u64,
    /// Which agents take part in a round, how long it waits for them and how many must answer.
    #[serde(flatten)]
    pub rounds: RoundConfig,
}

impl Default for FedGlbUcb3 {
    fn default() -> Self {
        Self { model: GlmConfig::default(), round_every: 30, rounds: RoundConfig::default() }
    }
}

impl FedGlbUcb3 {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.rounds.check()?;
        check_schedule(self.round_every)
    }

    /// γ = ½·min(1/(4Z√(k_μ²Z² + R²)), c_μ/((k_μ²Z² + R²)·n)) with Z = S·X̄ and n the observations of a round
    /// (Lemma 12). R bounds the noise, not its sub-Gaussian scale: a click differs from its mean by up to 1,
    /// whatever `noise` says. Links whose rewards have no bound are given `noise` in its place.
    fn step(&self) -> f64 {
        let constants = self.model.constants();
        let reach = constants.radius * constants.feature_bound;
        let bound = constants.link.largest_error().unwrap_or(constants.noise);
        let steepest = constants.largest * reach;
        let square = steepest * steepest + bound * bound;
        let small = 1.0 / (4.0 * reach * square.sqrt());
        0.5 * small.min(constants.smallest / (square * self.round_every as f64))
    }

    /// 2γλS²: what is known of the regret before any step.
    fn potential(&self) -> f64 {
        let constants = self.model.constants();
        2.0 * self.step() * constants.lambda * constants.radius * constants.radius
    }

    pub(crate) fn agent(&self, dimension: usize, federation: &Federation) -> OnlineAgent {
        let constants = self.model.constants();
        OnlineAgent {
            constants,
            delta: constants.confidence / federation.agents.max(1) as f64,
            schedule: Schedule::new(self.round_every, federation),
            step: self.step(),
            view: Belief::new(Ridge::new(dimension, constants.lambda)),
            record: Record::new(dimension),
            anchor: vec![0.0; dimension],
            iterate: vec![0.0; dimension],
            shared: Evidence::none(dimension),
            own: Evidence::none(dimension),
            potential: self.potential(),
            squares: 0.0,
        }
    }

    pub(crate) fn coordinator(&self, dimension: usize) -> ModelRounds {
        let constants = self.model.constants();
        let update = ModelUpdate::Online(Online::new(dimension, self.step(), self.potential()));
        let model = Ridge::new(dimension, constants.lambda);
        ModelRounds::new(NAME, constants, &self.rounds, update, model).on_schedule(self.round_every)
    }

    pub(crate) fn relay(&self, dimension: usize, above: UpperLink) -> ModelRelay {
        ModelRelay::new(&self.coordinator(dimension), &self.rounds, above)
    }
}

/// An agent that takes online Newton steps of its own between the steps that rounds take for all agents.
#[derive(Clone, Debug)]
pub(crate) struct OnlineAgent {
    constants: Constants,
    delta: f64,
    schedule: Schedule,
    step: f64,
    view: Belief,
    /// Own observations that are not in the shared model.
    record: Record,
    /// Where the last round led: gradients of the next one are taken there.
    anchor: Vec<f64>,
    iterate: Vec<f64>,
    /// Outer products of the rounds' gradients, and of own ones since.
    shared: Evidence,
    own: Evidence,
    potential: f64,
    squares: f64,
}

impl OnlineAgent {
    fn observe(&mut self, x: &[f64], y: f64) {
        let z = dot(x, &self.iterate);
        self.view.observe(x, z);
        self.squares += z * z;
        let error = self.constants.link.mean(z) - y;
        let gradient: Vec<f64> = x.iter().map(|x| error * x).collect();
        self.own.add_observation(&gradient, 0.0);
        let parts = [&self.shared, &self.own].into_iter();
        self.iterate =
            newton_step(&self.constants, self.step, parts, &gradient, &self.iterate, &mut self.potential);
    }

    fn adopt(&mut self, model: &Model) -> Result<(), ProtocolError> {
        let Fit::Online { curvature, potential, squares } = &model.fit else {
            return Err(ProtocolError::Model("it was minimised"));
        };
        let (expected, got) = (self.view.dimension(), model.estimate.len());
        if expected != got || curvature.len() != packed(expected) {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let own = self.record.contained + self.record.history.len() as u64;
        if model.contains > own {
            return Err(ProtocolError::Sequence { expected: own, got: model.contains });
        }
        let numbers = model.estimate.iter().chain(&**curvature).chain([potential, squares]);
        let shared = bent(curvature.to_vec(), expected);
        let mut factor = Ridge::new(expected, self.constants.lambda);
        if !numbers.clone().all(|v| v.is_finite()) || factor.refresh([&shared].into_iter()).is_err() {
            return Err(ProtocolError::Model("its numbers do not fit together"));
        }
        self.view.start_over(model.version, &model.evidence)?;
        // What the coordinator has lost was forgotten here; what it did not have, is still here.
        let arrived = model.contains.saturating_sub(self.record.contained);
        self.record.history.forget(usize::try_from(arrived).expect("no more than are stored"));
        self.record.contain(model.contains);
        self.record.settle();
        if model.authoritative {
            self.record.round = RoundId(0);
        }
        self.shared = shared;
        self.own.clear();
        self.anchor = model.estimate.to_vec();
        self.iterate = model.estimate.to_vec();
        (self.potential, self.squares) = (*potential, *squares);
        let mut x = vec![0.0; expected];
        for index in 0..self.record.history.len() {
            let y = self.record.history.read(index, &mut x);
            self.observe(&x, y);
        }
        Ok(())
    }

    /// What a round collects: the matrix of new observations, and their gradient where the last one ended.
    fn part(&mut self, round: RoundId) -> Parcel {
        let count = self.record.history.len();
        let mut evidence = self.record.whole(self.view.dimension());
        let link = self.constants.link;
        evidence.set_moment(&self.record.history.gradient(link, &self.anchor, count));
        self.view.freeze();
        self.record.freeze(round);
        Parcel::wrap(&evidence)
    }
}

impl Agent for OnlineAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.view.dimension(), arms)?;
        let prior = self.constants.lambda * self.constants.radius * self.constants.radius;
        let radius = self.constants.online_radius(self.potential, self.delta);
        let squared = prior + radius + self.view.model().explained() - self.squares;
        upper_confidence(self.view.model(), self.constants.practical(squared.max(0.0).sqrt()), arms)
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.view.dimension(), arm, reward)?;
        self.constants.link.check_reward(reward)?;
        self.record.history.push(arm, reward);
        self.observe(arm, reward);
        let unshared = self.record.history.len() as u64;
        Ok(self.schedule.report(unshared, &mut self.record.reported))
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        match message {
            Downlink::Collect { round, .. } => {
                if round <= self.record.round {
                    return Ok(None);
                }
                Ok(Some(Uplink::RoundEvidence { round, evidence: self.part(round) }))
            }
            Downlink::Model(model) => {
                if model.authoritative || model.version > self.view.version() {
                    self.adopt(&model)?;
                }
                Ok(None)
            }
            Downlink::Abort { round } => {
                if round >= self.record.round {
                    self.record.settle();
                    self.view.thaw();
                }
                Ok(None)
            }
            _ => Err(ProtocolError::Unexpected { algorithm: NAME, message: message.kind() }),
        }
    }

    fn inspect(&self) -> AgentView<'_> {
        self.view.inspect()
    }

    fn save(&self) -> Vec<u8> {
        v1::GlmAgentState {
            view: Some(self.view.save()),
            iterate: self.iterate.clone(),
            anchor: self.anchor.clone(),
            curvature: Some(v1::Packed { entries: self.shared.gram().to_vec() }),
            bent: Some(wire::evidence_to_wire(&self.own)),
            potential: self.potential,
            squares: self.squares,
            ..self.record.save()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::GlmAgentState = wire::decode(state)?;
        let d = self.view.dimension();
        let record = Record::restored(&state, d)?;
        let own = wire::evidence_from_wire(state.bent.unwrap_or_default())?;
        let shared = state.curvature.unwrap_or_default().entries;
        let lengths = [state.iterate.len(), state.anchor.len(), own.dimension()] == [d; 3];
        let numbers = state.iterate.iter().chain(&state.anchor).chain(&shared);
        let finite = numbers.chain([&state.potential, &state.squares]).all(|v| v.is_finite());
        if !lengths || shared.len() != packed(d) || !finite {
            return Err(DecodeError::invalid("iterate", "it does not fit this federation"));
        }
        self.view = self.view.restored(state.view.unwrap_or_default())?;
        self.record = record;
        (self.iterate, self.anchor) = (state.iterate, state.anchor);
        (self.shared, self.own) = (bent(shared, d), own);
        (self.potential, self.squares) = (state.potential, state.squares);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glm::LinkFunction;

    /// γ by the formula of Lemma 12, for features no longer than one.
    fn printed(k: f64, c: f64, s: f64, largest_noise: f64, batch: f64) -> f64 {
        let square = k * k * s * s + largest_noise * largest_noise;
        0.5 * f64::min(1.0 / (4.0 * s * square.sqrt()), c / (square * batch))
    }

    #[test]
    fn the_step_is_that_of_lemma_12() {
        let config = |link, norm_bound, noise, round_every| FedGlbUcb3 {
            model: GlmConfig { link, norm_bound, noise, ..GlmConfig::default() },
            round_every,
            ..FedGlbUcb3::default()
        };
        let slope = LinkFunction::Logistic.slope(1.0);
        // Clicks are off by up to one, whatever their sub-Gaussian scale is.
        for noise in [0.5, 0.1] {
            let step = config(LinkFunction::Logistic, 1.0, noise, 632).step();
            assert!((step - printed(0.25, slope, 1.0, 1.0, 632.0)).abs() < 1e-15);
        }
        let step = config(LinkFunction::Logistic, 1.0, 0.5, 1).step();
        assert!((step - printed(0.25, slope, 1.0, 1.0, 1.0)).abs() < 1e-15);
        // Numbers have no bound of their own: the setting stands in for it.
        let step = config(LinkFunction::Identity, 2.0, 0.3, 10).step();
        assert!((step - printed(1.0, 1.0, 2.0, 0.3, 10.0)).abs() < 1e-15);
    }

    /// Twice as long features with half as long parameters are the same problem.
    #[test]
    fn the_step_knows_how_long_features_are() {
        let model = |norm_bound, feature_bound| GlmConfig { norm_bound, feature_bound, ..Default::default() };
        for round_every in [1, 80] {
            let step = |model| FedGlbUcb3 { model, round_every, ..FedGlbUcb3::default() }.step();
            assert_eq!(step(model(1.0, 2.0)), step(model(2.0, 1.0)));
            assert!(step(model(1.0, 2.0)) < step(model(1.0, 1.0)));
        }
    }
}
