//! Scoring arms with a ridge model: what every rule over linear features does with it.

use crate::agent::Choice;
use crate::arms::{Arms, best};
use crate::error::InputError;
use crate::factor::Scores;
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
    let arm = model.score(arms.all(), |scores| best_bound(scores, width))?;
    Ok(Choice { arm, propensity: Some(1.0) })
}

/// The arm with the largest mean + `width`·own width: the lowest among equals, with NaN counted as −∞.
#[inline]
fn best_bound(Scores { means, widths }: Scores<'_>, width: f64) -> Result<usize, InputError> {
    // The largest bound first, then its place: a processor cannot foresee at which arms the largest so far changes, and each surprise
    // costs it as much as ten arms.
    let mut largest = [f64::NEG_INFINITY; LANES];
    let (mut mean, mut own) = (means.chunks_exact(LANES), widths.chunks_exact(LANES));
    for (mean, own) in (&mut mean).zip(&mut own) {
        for lane in 0..LANES {
            let bound = mean[lane] + width * own[lane];
            largest[lane] = if bound > largest[lane] { bound } else { largest[lane] };
        }
    }
    let rest = mean.remainder().iter().zip(own.remainder()).map(|(mean, own)| mean + width * own);
    let larger = |largest: f64, bound: f64| if bound > largest { bound } else { largest };
    let largest = rest.chain(largest).fold(f64::NEG_INFINITY, larger);
    let mut bounds = means.iter().zip(widths).map(|(mean, own)| mean + width * own);
    match bounds.clone().position(|bound| bound == largest) {
        Some(arm) if largest > f64::NEG_INFINITY => Ok(arm),
        // No bound is above −∞: the plain search knows what to do.
        _ => best(&mut bounds),
    }
}

/// How many bounds are compared side by side.
const LANES: usize = 8;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_in_lanes_finds_what_the_plain_search_finds() {
        // Few values, so that many are equal; the largest may stand in any lane or in the rest.
        let values = [f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0, 0.5, 2.0, f64::INFINITY];
        let mut stream = Seed(3).domain("test").stream(0, 0);
        let mut draw = |most: usize| values[(stream.uniform() * most as f64) as usize];
        for round in 0..4000 {
            let (count, most) = (round % 40, if round % 3 == 0 { 2 } else { values.len() });
            let means: Vec<f64> = (0..count).map(|_| draw(most)).collect();
            let widths: Vec<f64> = (0..count).map(|_| draw(values.len())).collect();
            let plain = best(means.iter().zip(&widths).map(|(mean, own)| mean + 0.5 * own));
            let found = best_bound(Scores { means: &means, widths: &widths }, 0.5);
            assert_eq!(found, plain, "{means:?} {widths:?}");
        }
    }
}
