//! Arrivals: whose turn it is.

mod bursts;
mod churn;
mod weighted;

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, Seed};
use serde::{Deserialize, Serialize};

use bursts::Bursts;
use churn::Churn;
use weighted::Weighted;

/// Decides which agent interacts at each step. Steps may be asked for in any order and repeat; in order is
/// fastest.
pub trait Arrivals: Send {
    /// The agent whose turn it is at `step`, counted from 0.
    fn agent(&mut self, step: u64) -> AgentId;

    /// Agents that have left for good by `step` and had not by the step before: their last turn lies earlier.
    /// In order of agents; empty for arrivals in which agents never leave.
    fn departures(&mut self, step: u64) -> Vec<AgentId> {
        let _ = step;
        Vec::new()
    }
}

/// An arrival process by name, with its parameters: the `[arrival]` table of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ArrivalConfig {
    /// Every agent is equally likely at every step.
    #[default]
    Uniform,
    /// Agents act one after another in the order of their ids, then from the first again.
    RoundRobin,
    /// Agent i arrives with probability ∝ (i + 1)^(−exponent).
    Zipf {
        /// s ≥ 0: how steep; 0 is uniform. Default 1.2.
        #[serde(default = "default::zipf_exponent")]
        exponent: f64,
    },
    /// Agent i arrives with probability ∝ uᵢ^exponent, where uᵢ is drawn once, uniform in (0, 1].
    Power {
        /// ≥ 0: how uneven; 0 is uniform. Default 4.
        #[serde(default = "default::power_exponent")]
        exponent: f64,
    },
    /// The probabilities are one draw from a symmetric Dirichlet distribution.
    Dirichlet {
        /// α > 0: how even. Far below 1 a few agents take nearly all turns, far above 1 all take
        /// nearly the same. Default 0.1.
        #[serde(default = "default::concentration")]
        concentration: f64,
    },
    /// Agent 0 takes a fixed share of the turns, the others share the rest evenly.
    OneHot {
        /// in [0, 1]: the probability of agent 0. Default 0.9.
        #[serde(default = "default::share")]
        share: f64,
    },
    /// An agent, drawn uniformly, keeps its turn for a geometric number of steps. It may follow itself.
    Bursts {
        /// ≥ 1: mean steps of a burst; 1 is uniform. Default 50.
        #[serde(default = "default::mean_length")]
        mean_length: f64,
    },
    /// Agents join one after another, evenly over the horizon, and leave forever after a time drawn from an
    /// exponential distribution, though not before the next has joined; the last one stays. Every agent that
    /// is there is equally likely to act next.
    Churn {
        /// > 0: mean time between joining and leaving, as a share of the horizon. Default 0.25.
        #[serde(default = "default::lifetime")]
        lifetime: f64,
    },
}

mod default {
    pub(super) const fn zipf_exponent() -> f64 {
        1.2
    }
    pub(super) const fn power_exponent() -> f64 {
        4.0
    }
    pub(super) const fn concentration() -> f64 {
        0.1
    }
    pub(super) const fn share() -> f64 {
        0.9
    }
    pub(super) const fn mean_length() -> f64 {
        50.0
    }
    pub(super) const fn lifetime() -> f64 {
        0.25
    }
}

impl ArrivalConfig {
    /// Builds the process for agents `0..agents` in a run of `horizon` steps, or says which setting is
    /// impossible.
    pub fn build(&self, agents: u64, horizon: u64, seed: Seed) -> Result<Box<dyn Arrivals>, ConfigError> {
        if agents == 0 {
            return Err(ConfigError::new("agents", agents, "at least 1"));
        }
        let draws = seed.domain("arrival");
        Ok(match *self {
            Self::Uniform => Box::new(Uniform { agents, draws }),
            Self::RoundRobin => Box::new(RoundRobin { agents }),
            Self::Zipf { exponent } => Box::new(Weighted::zipf(exponent, agents, draws)?),
            Self::Power { exponent } => Box::new(Weighted::power(exponent, agents, draws, seed)?),
            Self::Dirichlet { concentration } => {
                Box::new(Weighted::dirichlet(concentration, agents, draws, seed)?)
            }
            Self::OneHot { share } => Box::new(Weighted::one_hot(share, agents, draws)?),
            Self::Bursts { mean_length } => Box::new(Bursts::new(mean_length, agents, draws)?),
            Self::Churn { lifetime } => Box::new(Churn::new(lifetime, agents, horizon, draws, seed)?),
        })
    }

    /// Every kind of arrival: its name in configuration files, what it is, and its default parameters.
    #[must_use]
    pub fn kinds() -> Vec<(&'static str, &'static str, Self)> {
        vec![
            ("uniform", "every agent is equally likely at every step", Self::Uniform),
            ("round-robin", "agents take turns", Self::RoundRobin),
            (
                "zipf",
                "agent i arrives with probability proportional to (i + 1)^(-exponent)",
                Self::Zipf { exponent: default::zipf_exponent() },
            ),
            (
                "power",
                "agent i arrives with probability proportional to u_i^exponent, u_i uniform",
                Self::Power { exponent: default::power_exponent() },
            ),
            (
                "dirichlet",
                "probabilities drawn once from a symmetric Dirichlet distribution",
                Self::Dirichlet { concentration: default::concentration() },
            ),
            (
                "one-hot",
                "one agent takes a fixed share of the turns, the others share the rest",
                Self::OneHot { share: default::share() },
            ),
            (
                "bursts",
                "an agent keeps its turn for a geometric number of steps",
                Self::Bursts { mean_length: default::mean_length() },
            ),
            (
                "churn",
                "agents join over time and leave forever",
                Self::Churn { lifetime: default::lifetime() },
            ),
        ]
    }
}

struct Uniform {
    agents: u64,
    draws: Domain,
}

impl Arrivals for Uniform {
    fn agent(&mut self, step: u64) -> AgentId {
        AgentId(self.draws.stream(0, step).below(self.agents))
    }
}

struct RoundRobin {
    agents: u64,
}

impl Arrivals for RoundRobin {
    fn agent(&mut self, step: u64) -> AgentId {
        AgentId(step % self.agents)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{Error, MapDeserializer};

    use super::*;

    /// How often each of `agents` agents has its turn in `steps` steps.
    pub(super) fn turns(config: &ArrivalConfig, agents: u64, steps: u64, seed: u64) -> Vec<u64> {
        let mut arrivals = config.build(agents, steps, Seed(seed)).unwrap();
        let mut turns = vec![0; agents as usize];
        for step in 0..steps {
            turns[arrivals.agent(step).0 as usize] += 1;
        }
        turns
    }

    #[test]
    fn uniform_arrivals_are_even_and_round_robin_exactly_so() {
        let turns_of = |config| turns(&config, 10, 50_000, 1);
        // 5 000 with standard deviation 67.
        let uniform = turns_of(ArrivalConfig::Uniform);
        assert!(uniform.iter().all(|count| count.abs_diff(5_000) < 350), "{uniform:?}");
        assert_eq!(turns_of(ArrivalConfig::RoundRobin), [5_000; 10]);
    }

    #[test]
    fn turns_repeat_in_any_order_of_asking() {
        for (name, _, config) in ArrivalConfig::kinds() {
            let build = |seed| config.build(20, 500, Seed(seed)).unwrap();
            let mut arrivals = build(2);
            let forward: Vec<_> =
                (0..600).map(|step| (arrivals.agent(step), arrivals.departures(step))).collect();
            let mut arrivals = build(2);
            for step in (0..600).rev().chain((0..600).step_by(7)) {
                let turn = (arrivals.agent(step), arrivals.departures(step));
                assert_eq!(turn, forward[step as usize], "{name}, step {step}");
            }
            let mut other = build(3);
            let same = (0..600).all(|step| other.agent(step) == forward[step as usize].0);
            assert_eq!(same, name == "round-robin");
        }
    }

    #[test]
    fn one_agent_always_has_its_turn() {
        for (_, _, config) in ArrivalConfig::kinds() {
            assert_eq!(turns(&config, 1, 200, 4), [200]);
        }
    }

    #[test]
    fn a_kind_alone_gives_its_defaults() {
        for (name, _, defaults) in ArrivalConfig::kinds() {
            let table = MapDeserializer::<_, Error>::new([("kind", name)].into_iter());
            assert_eq!(ArrivalConfig::deserialize(table), Ok(defaults));
        }
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let refused = |config: ArrivalConfig| config.build(5, 100, Seed(1)).err().map(|error| error.name);
        for wrong in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(refused(ArrivalConfig::Zipf { exponent: wrong }), Some("exponent"));
            assert_eq!(refused(ArrivalConfig::Power { exponent: wrong }), Some("exponent"));
            assert_eq!(refused(ArrivalConfig::Dirichlet { concentration: wrong }), Some("concentration"));
            assert_eq!(refused(ArrivalConfig::OneHot { share: wrong }), Some("share"));
            assert_eq!(refused(ArrivalConfig::Bursts { mean_length: wrong }), Some("mean_length"));
            assert_eq!(refused(ArrivalConfig::Churn { lifetime: wrong }), Some("lifetime"));
        }
        assert_eq!(refused(ArrivalConfig::Dirichlet { concentration: 0.0 }), Some("concentration"));
        assert_eq!(refused(ArrivalConfig::OneHot { share: 1.1 }), Some("share"));
        assert_eq!(refused(ArrivalConfig::Bursts { mean_length: 0.5 }), Some("mean_length"));
        assert_eq!(refused(ArrivalConfig::Churn { lifetime: 0.0 }), Some("lifetime"));
        for (_, _, config) in ArrivalConfig::kinds() {
            assert_eq!(refused(config.clone()), None);
            assert_eq!(config.build(0, 100, Seed(1)).err().unwrap().name, "agents");
        }
    }
}
