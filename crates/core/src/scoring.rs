//! Scoring arms with a ridge model: what every rule over linear features does with it.

use crate::agent::Choice;
use crate::arms::{Arms, best};
use crate::error::InputError;
use crate::ids::AgentId;
use crate::random::{Domain, Seed};
use crate::ridge::Ridge;

/// `Ok` if there is something to choose among, of the right dimension.
pub(crate) fn check_arms(dimension: usize, arms: &Arms) -> Result<(), InputError> {
    if arms.dimension() != dimension {
        return Err(InputError::Dimension { expected: dimension, got: arms.dimension() });
    }
    if arms.is_empty() { Err(InputError::NoArms) } else { Ok(()) }
}

/// Returns the arm with the largest xᵀθ̂ + α·√(xᵀV(λ)⁻¹x), where α is `width`.
#[inline]
pub(crate) fn upper_confidence(model: &Ridge, width: f64, arms: &Arms) -> Result<Choice, InputError> {
    let arm = model.score(arms.all(), |scores| {
        best(scores.means.iter().zip(scores.widths).map(|(mean, own)| mean + width * own))
    })?;
    Ok(Choice { arm, propensity: Some(1.0) })
}

/// The arm with the largest mean under a model perturbed by `noise`.
pub(crate) fn best_of_sample(
    model: &Ridge,
    arms: &Arms,
    noise: impl FnMut(usize) -> f64,
) -> Result<Choice, InputError> {
    let arm = model.score_perturbed(arms.all(), noise, |scores| best(scores.means.iter().copied()))?;
    Ok(Choice { arm, propensity: None })
}

/// The name of the stream that sampled models come from.
const STREAM: &str = "model-sample";

/// An agent's normals, one stream a choice, so that a rule that draws the same numbers chooses the same.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    agent: u64,
    domain: Domain,
}

impl Draws {
    pub(crate) fn new(agent: AgentId, seed: Seed) -> Self {
        Self { agent: agent.0, domain: seed.domain(STREAM) }
    }

    pub(crate) fn stream(&self, step: u64) -> crate::random::Stream {
        self.domain.stream(self.agent, step)
    }

    /// The best arm of N(θ̂, scale²·V(λ)⁻¹).
    pub(crate) fn choose(
        &self,
        scale: f64,
        model: &Ridge,
        arms: &Arms,
        step: u64,
    ) -> Result<Choice, InputError> {
        let mut stream = self.stream(step);
        best_of_sample(model, arms, |_| scale * stream.normal())
    }
}
