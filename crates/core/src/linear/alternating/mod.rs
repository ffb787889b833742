//! Alternating minimisation: which part of a reward belongs to which block of features.

use super::span::Span;
use crate::error::DecodeError;
use crate::evidence::{Evidence, check_observation};
use crate::parcel::{LowRank, pivoted_cholesky};
use crate::ridge::Ridge;

/// Pivots below this share of the largest count as zero when a rank is determined.
const RANK_TOLERANCE: f64 = 1e-8;

/// Evidence over one block of features, with its model.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) evidence: Evidence,
    pub(crate) model: Ridge,
}

/// Observations kept one by one, until they can be split.
#[derive(Clone, Debug)]
pub(crate) struct UnsplitHistory {
    features: Vec<f64>,
    rewards: Vec<f64>,
    evidence: Evidence,
    /// The directions of all observations.
    span: Span,
    /// How many observations there were when the last new direction came.
    newest_direction: u64,
}

impl UnsplitHistory {
    pub(crate) fn new(dimension: usize) -> Self {
        Self {
            features: Vec::new(),
            rewards: Vec::new(),
            evidence: Evidence::none(dimension),
            span: Span::none(dimension),
            newest_direction: 0,
        }
    }

    pub(crate) fn from_parts(
        dimension: usize,
        features: &[f64],
        rewards: &[f64],
    ) -> Result<Self, DecodeError> {
        let mut history = Self::new(dimension);
        if features.len() != dimension * rewards.len() {
            return Err(DecodeError::invalid("history", "features and rewards do not match"));
        }
        for (arm, &reward) in features.chunks_exact(dimension.max(1)).zip(rewards) {
            check_observation(dimension, arm, reward)
                .map_err(|_| DecodeError::invalid("history", "an observation is not finite"))?;
            history.push(arm, reward);
        }
        Ok(history)
    }

    pub(crate) fn push(&mut self, arm: &[f64], reward: f64) {
        self.features.extend_from_slice(arm);
        self.rewards.push(reward);
        self.evidence.add_observation(arm, reward);
        if self.span.add(arm) {
            self.newest_direction = self.evidence.count();
        }
    }

    /// How many observations in a row, up to the last one, were combinations of earlier ones.
    pub(crate) const fn without_news(&self) -> u64 {
        self.evidence.count() - self.newest_direction
    }

    pub(crate) const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    pub(crate) fn features(&self) -> &[f64] {
        &self.features
    }

    pub(crate) fn rewards(&self) -> &[f64] {
        &self.rewards
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.features.chunks_exact(self.evidence.dimension().max(1)).zip(self.rewards.iter().copied())
    }

    /// Alternates, over the whole history, between
    /// θ_l = Π[(X_lᵀX_l + λI)⁻¹X_lᵀ(y − X_gθ_g)] and
    /// θ_g = Π[(V_g + X_gᵀX_g + λI)⁻¹(b_g + X_gᵀ(y − X_lθ_l))], Π the projection onto the ball of this
    /// `radius` and (V_g, b_g) = `shared`. Returns (θ_g, θ_l).
    #[expect(clippy::too_many_arguments, reason = "they are the symbols of the formula above")]
    pub(crate) fn split<'h>(
        &'h self,
        blocks: impl Fn(&'h [f64]) -> (&'h [f64], &'h [f64]),
        shared: &Evidence,
        mut theta_shared: Vec<f64>,
        local_dimension: usize,
        regularization: f64,
        radius: f64,
        iterations: u32,
    ) -> (Vec<f64>, Vec<f64>) {
        let mut own = (Evidence::none(shared.dimension()), Evidence::none(local_dimension));
        for (arm, _) in self.rows() {
            let (x_shared, x_local) = blocks(arm);
            own.0.add_observation(x_shared, 0.0);
            own.1.add_observation(x_local, 0.0);
        }
        let mut models =
            (Ridge::new(shared.dimension(), regularization), Ridge::new(local_dimension, regularization));
        let made = models.0.refresh([shared, &own.0].into_iter()).is_ok()
            && models.1.refresh([&own.1].into_iter()).is_ok();
        let mut theta_local = vec![0.0; local_dimension];
        // Own observations plus λI are positive definite unless λ drowns in rounding; then nothing is
        // split and the whole reward is shared, which is where a model without local part begins.
        for _ in 0..if made { iterations } else { 0 } {
            let mut next_local = vec![0.0; local_dimension];
            let mut next_shared = shared.moment().to_vec();
            for (arm, reward) in self.rows() {
                let (x_shared, x_local) = blocks(arm);
                add_multiple(&mut next_local, reward - dot(x_shared, &theta_shared), x_local);
            }
            models.1.solve(&mut next_local);
            project(&mut next_local, radius);
            for (arm, reward) in self.rows() {
                let (x_shared, x_local) = blocks(arm);
                add_multiple(&mut next_shared, reward - dot(x_local, &next_local), x_shared);
            }
            models.0.solve(&mut next_shared);
            project(&mut next_shared, radius);
            let moved = distance(&next_shared, &theta_shared) + distance(&next_local, &theta_local);
            (theta_shared, theta_local) = (next_shared, next_local);
            if moved < 1e-8 {
                break;
            }
        }
        (theta_shared, theta_local)
    }
}

/// Splits one reward: what is left for the shared and for the local block, by alternating minimisation
/// over this observation with both histories held fixed. Estimates are projected onto the ball of this
/// `radius`, the bound on the norm of a block's true parameters.
///
/// With it in, a block's estimate is A + rB for a part r of the reward, A = θ̂ − p(xᵀθ̂)/(1+s),
/// B = p/(1+s), p = V(λ)⁻¹x and s = xᵀp; so an alternation is scalar arithmetic.
pub(crate) fn split_one(
    shared: &Ridge,
    x_shared: &[f64],
    local: &Ridge,
    x_local: &[f64],
    reward: f64,
    radius: f64,
    iterations: u32,
) -> (f64, f64) {
    if x_local.is_empty() {
        return (reward, 0.0);
    }
    let theta = shared.estimate();
    let (shared, local) = (Line::of(shared, x_shared, &theta), Line::of(local, x_local, &local.estimate()));
    let mut from_shared = dot(x_shared, &theta) * shrink(dot(&theta, &theta), radius);
    let mut from_local = 0.0;
    for _ in 0..iterations {
        from_local = local.prediction(reward - from_shared, radius);
        let next = shared.prediction(reward - from_local, radius);
        let moved = (next - from_shared).abs();
        from_shared = next;
        if moved < 1e-10 {
            break;
        }
    }
    (reward - from_local, reward - from_shared)
}

/// The projected estimates A + rB of a block, seen along its features x.
struct Line {
    aa: f64,
    ab: f64,
    bb: f64,
    xa: f64,
    xb: f64,
}

impl Line {
    fn of(model: &Ridge, x: &[f64], theta: &[f64]) -> Self {
        let mut p = x.to_vec();
        model.solve(&mut p);
        let weight = 1.0 / (1.0 + dot(x, &p));
        let back = dot(x, theta) * weight;
        let a: Vec<f64> = theta.iter().zip(&p).map(|(t, p)| t - p * back).collect();
        let b: Vec<f64> = p.iter().map(|p| p * weight).collect();
        Self { aa: dot(&a, &a), ab: dot(&a, &b), bb: dot(&b, &b), xa: dot(x, &a), xb: dot(x, &b) }
    }

    /// xᵀΠ(A + rB), Π the projection onto the ball of this `radius`.
    fn prediction(&self, r: f64, radius: f64) -> f64 {
        (self.xa + r * self.xb) * shrink(self.aa + 2.0 * r * self.ab + r * r * self.bb, radius)
    }
}

/// Whether the observations span all directions.
pub(crate) fn has_full_rank(evidence: &Evidence) -> bool {
    let d = evidence.dimension();
    if evidence.count() < d as u64 {
        return false;
    }
    let (pivots, columns) = pivoted_cholesky(d, evidence.gram(), d);
    if pivots.len() < d {
        return false;
    }
    let rows = pivots.clone();
    let parcel = LowRank::new(pivots, columns, vec![0.0; d], 0);
    let mut squares = Vec::with_capacity(d);
    parcel.for_each_column(|column| {
        let root = column[rows[squares.len()] as usize];
        squares.push(root * root);
    });
    d == 0 || squares[d - 1] > RANK_TOLERANCE * squares[0]
}

/// The directions that evidence spans: those of the columns of its Gram matrix.
pub(crate) fn span_of(evidence: &Evidence) -> Span {
    let d = evidence.dimension();
    let mut span = Span::none(d);
    let at = |i: usize, j: usize| evidence.gram()[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)];
    for column in 0..d {
        let values: Vec<f64> = (0..d).map(|row| at(row, column)).collect();
        span.add(&values);
    }
    span
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_multiple(sum: &mut [f64], factor: f64, x: &[f64]) {
    for (s, x) in sum.iter_mut().zip(x) {
        *s += factor * x;
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// The factor that brings a vector of this squared norm onto the ball of this `radius`, or 1 if it is inside.
fn shrink(squared_norm: f64, radius: f64) -> f64 {
    if squared_norm > radius * radius { radius / squared_norm.sqrt() } else { 1.0 }
}

fn project(theta: &mut [f64], radius: f64) {
    let factor = shrink(dot(theta, theta), radius);
    for value in theta {
        *value *= factor;
    }
}

#[cfg(test)]
mod tests;
