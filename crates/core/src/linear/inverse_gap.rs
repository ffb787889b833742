//! Inverse-gap weighting: the further an arm is behind the best, the less often it is played.

use crate::agent::Choice;
use crate::arms::{Arms, best};
use crate::error::InputError;
use crate::ridge::Ridge;
use crate::scoring::Draws;
use crate::width::Width;

/// p(k) = 1/(K·(1 + gap(k)/(scale·α·w))) for every arm but the best, which has the rest; w is the width of
/// the best arm. Arms of one mean count as one arm, so that an arm offered twice is not played twice as
/// often.
#[derive(Clone, Debug)]
pub(crate) struct InverseGap {
    scale: f64,
    width: Width,
    draws: Draws,
}

impl InverseGap {
    pub(crate) const fn new(scale: f64, width: Width, draws: Draws) -> Self {
        Self { scale, width, draws }
    }

    pub(crate) fn choose(
        &self,
        model: &Ridge,
        count: u64,
        arms: &Arms,
        step: u64,
        shrink: f64,
    ) -> Result<Choice, InputError> {
        let unit = shrink * self.scale * self.width.of(model, count);
        let luck = self.draws.stream(step).uniform();
        model.score(arms.all(), |scores| {
            let top = best(scores.means.iter().copied())?;
            // Best first; among equals the lowest index stands for all.
            let mut order: Vec<usize> =
                (0..scores.means.len()).filter(|&arm| !scores.means[arm].is_nan()).collect();
            order.sort_by(|a, b| scores.means[*b].total_cmp(&scores.means[*a]));
            order.dedup_by(|a, b| scores.means[*a] == scores.means[*b]);
            let scale = unit * scores.widths[top];
            let weight = |arm: usize| {
                let gap = scores.means[top] - scores.means[arm];
                if scale > 0.0 { 1.0 / (order.len() as f64 * (1.0 + gap / scale)) } else { 0.0 }
            };
            let others: f64 = order[1..].iter().map(|&arm| weight(arm)).sum();
            let mut left = luck;
            for &arm in &order[1..] {
                let probability = weight(arm);
                if left < probability {
                    return Ok(Choice { arm, propensity: Some(probability) });
                }
                left -= probability;
            }
            Ok(Choice { arm: top, propensity: Some(1.0 - others) })
        })
    }
}
