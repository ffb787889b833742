//! FN-UCB: settings. The agent is in [`fn_agent`](super::fn_agent), the coordinator in
//! [`network_rounds`](super::network_rounds).

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use super::config::{NeuralConfig, check_not_negative};
use super::fn_agent::FnAgent;
use super::network_rounds::NetworkRounds;
use super::pooled::PooledAgent;
use super::update_agent::UpdateAgent;
use crate::error::ConfigError;
use crate::exchange::RoundConfig;
use crate::federation::Federation;
use crate::ids::AgentId;
use crate::privacy::{Budget, PrivacyConfig, Unit};
use crate::trigger::Threshold;
use crate::width::POSITIVE;

/// Settings of `fn-ucb`: agents share gradient statistics and the average of their networks in rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct FnUcb {
    /// The network and its training.
    #[serde(flatten)]
    pub neural: NeuralConfig,
    /// ν_a ≥ 0: the width of the linear model of gradients is ν_a·√λ·‖φ‖. Default 0.1.
    pub linear_width: f64,
    /// ν_b ≥ 0: the width of the network is ν_b·√λ·‖φ‖ in the agents' own matrices. Default 0.1.
    pub network_width: f64,
    /// D in [0, ∞]: an agent asks for a round when its observations since the last one, times the information they
    /// brought, exceed this. 0 asks after every observation, ∞ never. Default 0.
    pub round_threshold: Threshold,
    /// Which determinant that information is measured by. Default whole, as printed; published code takes the
    /// diagonal throughout.
    pub trigger: Trigger,
    /// Which agents take part in a round, how long it waits for them and how many must answer.
    #[serde(flatten)]
    pub rounds: RoundConfig,
    /// Answer a round only after as many observations since the last one as the agent had that asked for it:
    /// the end of an iteration, if agents take turns. The others wait at most until an agent that has answered
    /// observes something new: then the others answer with what they have. Default true; false answers
    /// at once, with a round for every observation if `round_threshold` is 0.
    pub lockstep: bool,
    /// How the network is trained. Default fedavg; independent is the algorithm as printed.
    pub training: TrainingMode,
    /// Which observations networks are trained on. Default all.
    pub training_data: TrainingData,
    /// r ≥ 1: averages a round, with J/r steps between them (fedavg-rounds). Default 10.
    pub averaging_rounds: u64,
    /// Whether agents use the average of their networks. Without it each predicts with its own, which is an
    /// ablation of the paper. Default true.
    pub averaging: bool,
    /// Where the network's gradient is taken. Default start, as printed.
    pub features_at: FeaturePoint,
    /// How far the network is trusted (α). Default schedule.
    pub alpha: AlphaRule,
    /// The schedule is 0 for so many observations of an agent. Default 3.
    pub alpha_delay: u64,
    /// After that the schedule grows to 1 over so many observations. Default 200; published 700.
    pub alpha_ramp: u64,
    /// Arms that uncertainties are compared on (alpha = "ratio"). Default 1000.
    pub probes: usize,
    /// Send the mean of the agents' inverse matrices instead of all of them. Default true.
    pub less_communication: bool,
    /// With a diagonal statistic, move the linear means of an offer to between 0 and 1. Default false.
    pub rescale: bool,
    /// Promise differential privacy for everything that an agent saw (`unit = "agent"`): agents keep their statistics, and only
    /// updates of the network leave them, cut to `update_bound` and with noise. Not set: nothing is promised.
    pub privacy: Option<PrivacyConfig>,
    /// C > 0: with `privacy`, the longest update of an agent; longer ones are shortened. Noise is in proportion. Default 1.
    pub update_bound: f64,
    /// With `privacy`, steps of gradient descent from the shared network that make an update. Default 300.
    pub update_steps: u64,
}

/// How agents train their networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum TrainingMode {
    /// Each trains its own on and on; the average only predicts. This is the algorithm as it is printed.
    Independent,
    /// Each begins every round from the average.
    #[default]
    Fedavg,
    /// The same in several short rounds each time.
    FedavgRounds,
    /// One network is trained on the data of all agents in one place: the reference that moves all raw data.
    Pooled,
}

/// Which determinant measures the information that makes a round due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// That of the statistic as it is kept: whole, or diagonal where only the diagonal is kept.
    #[default]
    Whole,
    /// That of the diagonal part of the matrix, as in published code. A whole statistic is inverted for it
    /// after every round.
    Diagonal,
}

/// Which observations an agent trains its network on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum TrainingData {
    /// All observations that the agent has made.
    #[default]
    All,
    /// The newest one of each round it answers, as in published code: observations of iterations without a round are
    /// never trained on.
    Rounds,
}

/// Parameters at which gradients are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum FeaturePoint {
    /// θ₀, as the theory wants it: features never change.
    #[default]
    Start,
    /// The shared network as it is: features follow what is learned.
    Current,
}

/// How far the network is trusted over the linear model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum AlphaRule {
    /// 0 at first, then growing to 1.
    #[default]
    Schedule,
    /// The smallest over the largest uncertainty among probe arms.
    Ratio,
    /// 0: the linear model alone.
    Zero,
    /// 1: the choice follows the network alone.
    One,
}

impl Default for FnUcb {
    fn default() -> Self {
        Self {
            neural: NeuralConfig::default(),
            linear_width: 0.1,
            network_width: 0.1,
            round_threshold: Threshold(0.0),
            trigger: Trigger::Whole,
            rounds: RoundConfig::default(),
            lockstep: true,
            training: TrainingMode::Fedavg,
            training_data: TrainingData::All,
            averaging_rounds: 10,
            averaging: true,
            features_at: FeaturePoint::Start,
            alpha: AlphaRule::Schedule,
            alpha_delay: 3,
            alpha_ramp: 200,
            probes: 1000,
            less_communication: true,
            rescale: false,
            privacy: None,
            update_bound: 1.0,
            update_steps: 300,
        }
    }
}

impl FnUcb {
    pub(crate) fn check(&self, dimension: usize) -> Result<(), ConfigError> {
        self.neural.check(dimension)?;
        self.rounds.check()?;
        check_not_negative("linear_width", self.linear_width)?;
        check_not_negative("network_width", self.network_width)?;
        self.round_threshold.check_not_negative("round_threshold")?;
        if self.averaging_rounds == 0 {
            return Err(ConfigError::new("averaging_rounds", 0, "it must be at least 1"));
        }
        if self.alpha == AlphaRule::Ratio && self.probes == 0 {
            return Err(ConfigError::new("probes", 0, "alpha = \"ratio\" needs at least 1"));
        }
        if self.training == TrainingMode::Pooled && self.round_threshold.0 > 0.0 {
            let allowed = "pooled training shares every iteration: it must be 0";
            return Err(ConfigError::new("round_threshold", self.round_threshold.0, allowed));
        }
        let bound = self.update_bound;
        ConfigError::require((1e-60..=1e60).contains(&bound), "update_bound", bound, POSITIVE)?;
        self.privacy.as_ref().map_or(Ok(()), |privacy| self.check_privacy(privacy))
    }

    /// `Ok` if updates can keep this promise, and nothing else is set that would need to leave an agent.
    fn check_privacy(&self, privacy: &PrivacyConfig) -> Result<(), ConfigError> {
        privacy.check()?;
        let refused = |name, value: &str, allowed| Err(ConfigError::new(name, value, allowed));
        if privacy.unit != Unit::Agent {
            let allowed = "networks protect everything that an agent saw: set unit = \"agent\"";
            return refused("unit", privacy.unit.name(), allowed);
        }
        if privacy.raw_buffer {
            return refused(
                "raw_buffer",
                "true",
                "agents of fn-ucb always choose with all they saw: leave it out",
            );
        }
        if self.training != TrainingMode::Fedavg {
            return refused(
                "training",
                "not fedavg",
                "with privacy, updates begin from the shared network: use fedavg",
            );
        }
        if self.alpha == AlphaRule::Ratio {
            return refused("alpha", "ratio", "with privacy, α follows counts: use schedule, zero or one");
        }
        if self.features_at != FeaturePoint::Start {
            return refused("features_at", "current", "with privacy, gradients are taken at the start");
        }
        Ok(())
    }

    /// The noise that keeps the promise for networks over arms of so many features, if there is a promise.
    pub(crate) fn update_budget(&self, dimension: usize) -> Option<Budget> {
        let parameters = self.neural.parameters(dimension);
        self.privacy.as_ref().map(|privacy| Budget::of_updates(privacy, parameters, self.update_bound))
    }

    pub(crate) const fn is_pooled(&self) -> bool {
        matches!(self.training, TrainingMode::Pooled)
    }

    /// The agent that shares updates with noise, if privacy is promised.
    pub(crate) fn private_agent(
        &self,
        dimension: usize,
        id: AgentId,
        federation: &Federation,
    ) -> Option<UpdateAgent> {
        let privacy = self.privacy.as_ref()?;
        Some(UpdateAgent::new(self, privacy, dimension, id, federation.seed))
    }

    pub(crate) fn agent(&self, dimension: usize, federation: &Federation) -> FnAgent {
        FnAgent::new(self, dimension, federation.seed)
    }

    pub(crate) fn pooled(&self, dimension: usize, federation: &Federation) -> PooledAgent {
        PooledAgent::new(self, dimension, federation)
    }

    pub(crate) fn coordinator(&self, dimension: usize) -> NetworkRounds {
        NetworkRounds::new(self, dimension)
    }

    /// α after an agent has made so many observations; of the rules that need no more than that.
    pub(crate) fn scheduled_alpha(&self, made: u64) -> f64 {
        match self.alpha {
            AlphaRule::Zero | AlphaRule::Ratio => 0.0,
            AlphaRule::One => 1.0,
            AlphaRule::Schedule => {
                let past = made.saturating_sub(self.alpha_delay) as f64;
                (past / self.alpha_ramp.max(1) as f64).min(1.0)
            }
        }
    }

    /// How many of the J steps come after average number `step`.
    pub(crate) fn steps_after(&self, step: u64) -> u64 {
        let (steps, parts) = (self.neural.training_steps, self.averages());
        let until = |part: u64| u128::from(steps) * u128::from(part) / u128::from(parts);
        u64::try_from(until(step + 1) - until(step)).unwrap_or(0)
    }

    /// Returns how many times the coordinator averages the networks in one round.
    pub(crate) const fn averages(&self) -> u64 {
        match self.training {
            TrainingMode::FedavgRounds => self.averaging_rounds,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_is_the_papers() {
        let alpha = |made| FnUcb { alpha_ramp: 700, ..FnUcb::default() }.scheduled_alpha(made);
        assert_eq!([alpha(0), alpha(3), alpha(353), alpha(703), alpha(5000)], [0.0, 0.0, 0.5, 1.0, 1.0]);
    }

    #[test]
    fn the_steps_of_all_averages_are_all_steps() {
        for averages in [1, 4, 7, 30, 50] {
            let config = FnUcb {
                training: TrainingMode::FedavgRounds,
                averaging_rounds: averages,
                ..Default::default()
            };
            let sum: u64 = (0..averages).map(|step| config.steps_after(step)).sum();
            assert_eq!(sum, 30, "{averages}");
        }
        let once = FnUcb { training: TrainingMode::Fedavg, ..Default::default() };
        assert_eq!(once.steps_after(0), 30);
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |config: FnUcb| config.check(10).unwrap_err().name;
        let good = FnUcb::default;
        assert_eq!(good().check(10), Ok(()));
        assert_eq!(refused(FnUcb { linear_width: -1.0, ..good() }), "linear_width");
        assert_eq!(refused(FnUcb { network_width: f64::NAN, ..good() }), "network_width");
        assert_eq!(refused(FnUcb { round_threshold: Threshold(-1.0), ..good() }), "round_threshold");
        assert_eq!(refused(FnUcb { averaging_rounds: 0, ..good() }), "averaging_rounds");
        assert_eq!(refused(FnUcb { probes: 0, alpha: AlphaRule::Ratio, ..good() }), "probes");
        let pooled = FnUcb { training: TrainingMode::Pooled, round_threshold: Threshold(1.0), ..good() };
        assert_eq!(refused(pooled), "round_threshold");
        let network = |neural: NeuralConfig| refused(FnUcb { neural, ..good() });
        let neural = NeuralConfig::default;
        assert_eq!(network(NeuralConfig { hidden_width: 0, ..neural() }), "hidden_width");
        assert_eq!(network(NeuralConfig { hidden_layers: 0, ..neural() }), "hidden_layers");
        assert_eq!(network(NeuralConfig { learning_rate: 0.0, ..neural() }), "learning_rate");
        assert_eq!(network(NeuralConfig { regularization: -1.0, ..neural() }), "regularization");
    }

    #[test]
    fn matrices_that_would_not_fit_are_refused_with_what_to_do() {
        let neural = NeuralConfig { hidden_width: 1000, ..Default::default() };
        let large = FnUcb { neural: neural.clone(), ..Default::default() };
        let refused = large.check(63).unwrap_err().to_string();
        assert!(refused.contains("65001 parameters") && refused.contains("diagonal"), "{refused}");
        let neural = NeuralConfig { statistic: crate::Precondition::Diagonal, ..neural };
        assert_eq!(FnUcb { neural, ..large.clone() }.check(63), Ok(()));
        let odd =
            NeuralConfig { network: crate::NetworkKind::Tangent, hidden_width: 7, ..Default::default() };
        assert_eq!(FnUcb { neural: odd, ..large.clone() }.check(10).unwrap_err().name, "hidden_width");
        let huge = NeuralConfig {
            hidden_width: usize::MAX / 2,
            statistic: crate::Precondition::Diagonal,
            ..Default::default()
        };
        assert_eq!(FnUcb { neural: huge, ..large }.check(10).unwrap_err().name, "hidden_width");
    }
}
