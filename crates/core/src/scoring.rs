//! Scoring arms with a ridge model: what every rule over linear features does with it.

use crate::agent::Choice;
use crate::arms::{Arms, best};
use crate::error::InputError;
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
