//! Rewards of a curved model as those of a linear one, so that private sums of a linear model serve both.

/// How a reward enters the sums where expected rewards are a curve μ(xᵀθ).
///
/// The curve is replaced by a line through what was released: with u = xᵀθ̂ for the released estimate θ̂, cut to ±reach, and
/// k the largest slope of μ there, the reward y counts as u + (y − μ(u))/k. A regression on these is one step of
/// minimising an upper bound on the loss, from θ̂. Every interaction enters once, around the estimate of its time, so that
/// nothing is released for it a second time. θ̂ was released before, so using it reveals nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    /// μ, which must rise.
    pub(crate) mean: fn(f64) -> f64,
    /// k: the largest slope of μ within the reach.
    pub(crate) slope: f64,
    /// The largest |u|.
    pub(crate) reach: f64,
    /// The smallest and the largest reward. Others are cut to them, or refused.
    pub(crate) rewards: [f64; 2],
}

impl Response {
    /// What the reward counts as, where the released estimate predicts `u`.
    pub(crate) fn of(&self, u: f64, reward: f64) -> f64 {
        // `clamp` panics for a negative reach, which settings have before they are checked.
        let u = u.max(-self.reach).min(self.reach);
        u + (reward - (self.mean)(u)) / self.slope
    }

    /// The largest size of what rewards within their range count as, whatever was released. It is reached at an end of both
    /// ranges: u − μ(u)/k does not fall, because no slope is above k.
    pub(crate) fn largest(&self) -> f64 {
        let [low, high] = self.rewards;
        self.of(self.reach, high).abs().max(self.of(-self.reach, low).abs())
    }
}
