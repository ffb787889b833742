//! Σ x(μ(xᵀθ) − y).

use pulp::{Simd, WithSimd};

use super::{Clicks, LaneRow};
use crate::exponential::LANES;

/// Blocks that go together: means are computed side by side, and sums are loaded once for all.
const TOGETHER: usize = 4;

/// Σ x(μ(xᵀθ) − y), a row of sums for each feature.
pub(crate) struct AddGradient<'a> {
    pub(crate) clicks: Clicks<'a>,
    pub(crate) gradient: &'a mut [LaneRow],
}

impl WithSimd for AddGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        add_gradient(simd, self.clicks.first(self.clicks.count), self.gradient, None);
    }
}

/// Adds to the gradient, and writes the slopes of blocks if they are asked for.
#[inline(always)]
pub(super) fn add_gradient<S: Simd>(
    simd: S,
    clicks: Clicks<'_>,
    gradient: &mut [LaneRow],
    mut slopes: Option<&mut [LaneRow]>,
) {
    let stride = clicks.stride();
    let mut done = 0;
    let mut groups = clicks.blocks.chunks_exact(TOGETHER * stride);
    for group in &mut groups {
        let lanes = (clicks.count - (done + TOGETHER - 1) * LANES).min(LANES);
        let slopes = slopes.as_mut().map(|slopes| &mut slopes[done..done + TOGETHER]);
        add_blocks::<S, TOGETHER>(simd, clicks, group, lanes, gradient, slopes);
        done += TOGETHER;
    }
    for block in groups.remainder().chunks_exact(stride) {
        let lanes = (clicks.count - done * LANES).min(LANES);
        let slopes = slopes.as_mut().map(|slopes| &mut slopes[done..=done]);
        add_blocks::<S, 1>(simd, clicks, block, lanes, gradient, slopes);
        done += 1;
    }
}

/// Adds `B` blocks, of which the last has so many `lanes` that count.
#[inline(always)]
fn add_blocks<S: Simd, const B: usize>(
    simd: S,
    clicks: Clicks<'_>,
    blocks: &[LaneRow],
    lanes: usize,
    gradient: &mut [LaneRow],
    slopes: Option<&mut [LaneRow]>,
) {
    let Clicks { link, theta, .. } = clicks;
    let dimension = theta.len();
    let mut features: [&[LaneRow]; B] = [&[]; B];
    for b in 0..B {
        features[b] = &blocks[b * (dimension + 1)..][..dimension];
    }
    let mut errors = [LaneRow::ZERO; B];
    for part in 0..LANES / S::F64_LANES {
        let mut z = [simd.splat_f64s(0.0); B];
        // In the order of memory, which processors fetch ahead. The next block begins while this one waits for its additions.
        for b in 0..B {
            for j in 0..dimension {
                let theta = simd.splat_f64s(theta[j]);
                z[b] = simd.add_f64s(z[b], simd.mul_f64s(features[b][j].part::<S>(part), theta));
            }
        }
        for b in 0..B {
            *errors[b].part_mut::<S>(part) = z[b];
        }
    }
    match slopes {
        Some(slopes) => {
            for (error, slope) in errors.iter_mut().zip(&mut *slopes) {
                link.means_and_slopes(&mut error.0, &mut slope.0);
            }
            slopes[B - 1].0[lanes..].fill(0.0);
        }
        None => {
            for error in &mut errors {
                link.means(&mut error.0);
            }
        }
    }
    for b in 0..B {
        let rewards = &blocks[b * (dimension + 1) + dimension];
        for part in 0..LANES / S::F64_LANES {
            let error = errors[b].part_mut::<S>(part);
            *error = simd.sub_f64s(*error, rewards.part::<S>(part));
        }
    }
    errors[B - 1].0[lanes..].fill(0.0);
    let gradient = &mut gradient[..dimension];
    for part in 0..LANES / S::F64_LANES {
        for j in 0..dimension {
            let sum = gradient[j].part_mut::<S>(part);
            for b in 0..B {
                let term = simd.mul_f64s(errors[b].part::<S>(part), features[b][j].part::<S>(part));
                *sum = simd.add_f64s(*sum, term);
            }
        }
    }
}
