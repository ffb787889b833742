//! The rules of a federation as the coordinator told them, and what an agent may do under them.

use posse_core::session::Endpoint;
use posse_core::{
    AgentId, Algorithm, Arms, Federation, Incarnation, InputError, LinUcb, Registry, Seed, Shape, TimeSpan,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AgentError;
use crate::v1::JoinReply;

/// Room for rounding: an arm whose norm is the bound, computed by the caller, is within it.
const SLACK: f64 = 1.0 + 1e-12;

/// The rules of a federation, as the coordinator told them when the agent joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rules {
    /// The agent's number, as the coordinator knows it from the token.
    pub agent: AgentId,
    /// How agents choose and share.
    pub algorithm: Algorithm,
    /// Features of an arm that mean the same to every agent.
    pub dimension: u64,
    /// How many agents the algorithm may assume.
    pub agents: u64,
    /// How many interactions the algorithm may assume.
    pub horizon: u64,
    /// Where randomised algorithms draw from.
    pub seed: u64,
    /// Microseconds after which an unanswered frame is sent again.
    pub resend_after: TimeSpan,
    /// Largest norm of an arm's shared features, if the federation has a bound.
    #[serde(default)]
    pub feature_bound: Option<f64>,
    /// Largest absolute reward, if the federation has a bound.
    #[serde(default)]
    pub reward_bound: Option<f64>,
    /// The number of the history of the coordinator, or relay, that this life joined. Earlier versions do not tell it.
    #[serde(default)]
    pub history: Option<u64>,
}

impl Rules {
    /// The rules in the answer to a join. Fails if neither this build nor `registry` knows the algorithm.
    pub(super) fn told(reply: &JoinReply, registry: &Registry) -> Result<Self, AgentError> {
        let foreign = |error: String| {
            AgentError::Foreign(format!("the coordinator's algorithm is not known here: {error}"))
        };
        let mut text = serde_json::from_str(&reply.algorithm).map_err(|error| foreign(error.to_string()))?;
        // A coordinator that has not been upgraded yet.
        crate::upgrade::algorithm(&mut text);
        let algorithm = known(text, registry).map_err(foreign)?;
        Ok(Self {
            agent: AgentId(reply.agent),
            algorithm,
            dimension: reply.dimension,
            agents: reply.agents,
            horizon: reply.horizon,
            seed: reply.seed,
            resend_after: TimeSpan::from_micros(reply.resend_after.max(1)),
            feature_bound: reply.feature_bound,
            reward_bound: reply.reward_bound,
            history: None,
        })
    }

    /// The rules that an agent kept in its state.
    pub(super) fn kept(bytes: &[u8], registry: &Registry) -> Result<Self, String> {
        let mut rules: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        crate::upgrade::rules(&mut rules);
        let missing = || "the rules name no algorithm".to_owned();
        let text = rules.get_mut("algorithm").ok_or_else(missing)?;
        let algorithm = known(text.take(), registry)?;
        // Algorithms from outside are not read by serde: any other stands in while the rest is.
        *text =
            serde_json::to_value(Algorithm::LinUcb(LinUcb::default())).map_err(|error| error.to_string())?;
        let rest: Self = serde_json::from_value(rules).map_err(|error| error.to_string())?;
        Ok(Self { algorithm, ..rest })
    }

    /// Whether both are of the same agent in the same federation. An operator may change how long to wait for
    /// answers, and the bounds, while agents keep their states, and an agent may go to another relay; everything else
    /// decides what the states mean.
    pub(super) fn are_those_of(&self, told: &Self) -> bool {
        let Self { resend_after, feature_bound, reward_bound, history, .. } = *self;
        *self == Self { resend_after, feature_bound, reward_bound, history, ..told.clone() }
    }

    /// The agent's machine at the beginning of `life`, in its end of the link.
    pub(super) fn endpoint(&self, life: Incarnation, local: usize) -> Result<(Endpoint, Shape), AgentError> {
        let shape = Shape { shared: self.dimension as usize, local };
        let federation = Federation { agents: self.agents, horizon: self.horizon, seed: Seed(self.seed) };
        let machine = self.algorithm.agent(self.agent, shape, &federation)?;
        Ok((Endpoint::new(self.agent, life, machine, self.resend_after), shape))
    }

    /// `Ok` if the shared features of every arm are within the bound: the coordinator would refuse an upload
    /// with longer ones, so the caller is told at once.
    pub(super) fn check_arms(&self, arms: &Arms) -> Result<(), InputError> {
        let Some(bound) = self.feature_bound else { return Ok(()) };
        let shared = self.dimension as usize;
        for arm in 0..arms.len() {
            let features = arms.row(arm);
            let features = features.get(..shared).unwrap_or(features);
            let square: f64 = features.iter().map(|feature| feature * feature).sum();
            if square > bound * bound * SLACK {
                return Err(InputError::FeatureBound { length: square.sqrt(), bound });
            }
        }
        Ok(())
    }

    /// `Ok` if the reward is within the bound.
    pub(super) fn check_reward(&self, reward: f64) -> Result<(), InputError> {
        match self.reward_bound {
            Some(bound) if reward.abs() > bound => Err(InputError::RewardBound { value: reward, bound }),
            _ => Ok(()),
        }
    }
}

/// The algorithm that JSON names: one of `registry`, or one of posse's own.
fn known(text: Value, registry: &Registry) -> Result<Algorithm, String> {
    let word = |key: &str| text.get(key).and_then(Value::as_str).unwrap_or_default();
    match registry.make(word("name"), word("settings")) {
        Some(made) => made.map_err(|error| error.to_string()),
        None => serde_json::from_value(text).map_err(|error| error.to_string()),
    }
}
