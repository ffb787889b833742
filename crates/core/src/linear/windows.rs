//! Which window predicts best, where nobody knows how fast the world changes.
//!
//! Every upload is first predicted by windows of s, 2s, 4s … observations and by everything. Two of them differ in
//! squared error by θᵀGθ − 2θᵀΣxy, the same constant apart. These losses are judged in two ways, and the smaller window
//! counts:
//!
//! - by **experience**: the least loss over about the last [`EXPERIENCE`] observations. That finds the right window for a
//!   world that changes all the time, or again and again.
//! - by **alarm**: the sum of by how much a window is worse than its half is a likelihood ratio, kept between two
//!   barriers. Once it has climbed from the lower barrier to zero, the window counts as worse; in a world that stands
//!   still this happens in a share [`FALSE_ALARM`] of the time. That notices at once what was never seen before.

/// Observations over which losses count, or half of all while there are fewer than twice as many.
const EXPERIENCE: f64 = 5000.0;
/// Observations over which losses count at the very beginning, when half of all would be nothing.
const FIRST_EXPERIENCE: f64 = 100.0;
/// By how many variances an observation can count for a window, so that none decides for long.
const MOST: f64 = 100.0;
/// Share of the time in which a window that is as good as its half counts as worse.
const FALSE_ALARM: f64 = 0.001;
/// By how many times more likely than not the smaller window must seem before that takes time to be forgotten.
const HYSTERESIS: f64 = 1e4;

/// Windows that are tried, each twice the one before, and everything.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    /// σ², the variance of the noise.
    variance: f64,
    /// Observations of the smallest window.
    smallest: u64,
    /// By how much each window predicted worse than everything; the last stands for everything and is 0.
    losses: Vec<f64>,
    /// By how much the double of each window, or everything, predicts worse of late.
    leads: Vec<f64>,
}

impl Windows {
    pub(super) fn new(dimension: usize, variance: f64) -> Self {
        // Fewer observations than two a feature say next to nothing.
        let smallest = (2 * dimension as u64).next_power_of_two().max(32);
        Self { variance, smallest, losses: Vec::new(), leads: Vec::new() }
    }

    /// Observations of the window at this place.
    pub(super) const fn size(&self, place: usize) -> u64 {
        self.smallest << place
    }

    /// The window that predicts best, or `None` for everything.
    pub(super) fn best(&self) -> Option<u64> {
        let least = self.losses.iter().copied().fold(f64::INFINITY, f64::min);
        // The longest of equals; the last is everything, which is none of the windows.
        let by_experience = self.losses.iter().rposition(|loss| *loss <= least);
        let by_experience = by_experience.filter(|place| place + 1 < self.losses.len());
        let by_alarm = self.leads.iter().position(|lead| *lead > 0.0);
        by_experience.into_iter().chain(by_alarm).min().map(|place| self.size(place))
    }

    /// Whether the alarm that chooses the window is as loud as it can be: longer windows are [`HYSTERESIS`] times less
    /// likely than not.
    pub(super) fn is_certain(&self) -> bool {
        self.leads.iter().find(|lead| **lead > 0.0).is_some_and(|lead| *lead >= self.highest())
    }

    /// The most that a lead can be.
    fn highest(&self) -> f64 {
        2.0 * self.variance * libm::log(HYSTERESIS)
    }

    /// Takes in how an upload of `count` observations was predicted, by each window and by everything, when there were
    /// `total`.
    pub(super) fn compare(&mut self, predictions: &[f64], count: u64, total: u64) {
        let Some(&everything) = predictions.last() else { return };
        let most = MOST * self.variance * count as f64;
        let experience = EXPERIENCE.min(FIRST_EXPERIENCE + 0.5 * total as f64);
        let kept = libm::exp(-(count as f64) / experience);
        // A new window has been the same as everything so far.
        self.losses.resize(predictions.len(), 0.0);
        for (loss, prediction) in self.losses.iter_mut().zip(predictions) {
            let worse = (prediction - everything).clamp(-most, most);
            // Numbers beyond all bounds say nothing about windows.
            *loss = if worse.is_nan() { 0.0 } else { *loss * kept + worse };
        }
        self.leads.resize(predictions.len() - 1, f64::NAN);
        let lowest = 2.0 * self.variance * libm::log(FALSE_ALARM);
        let highest = self.highest();
        for (lead, pair) in self.leads.iter_mut().zip(predictions.windows(2)) {
            // A new window begins with the benefit of the doubt.
            let before = if lead.is_nan() { lowest } else { *lead };
            let worse = pair[1] - pair[0];
            *lead = if worse.is_nan() { lowest } else { (before + worse).clamp(lowest, highest) };
        }
    }

    /// The losses and the leads of all windows, for the saved state.
    pub(super) fn save(&self) -> (Vec<f64>, Vec<f64>) {
        (self.losses.clone(), self.leads.clone())
    }

    /// What was saved, or `None` if it cannot have been; `self` gives the settings.
    pub(super) fn restored(&self, losses: Vec<f64>, leads: Vec<f64>) -> Option<Self> {
        // Before losses were kept, other windows were tried: they are compared anew.
        let leads = if losses.is_empty() { Vec::new() } else { leads };
        let finite = losses.iter().chain(&leads).all(|number| number.is_finite());
        let fit = leads.len() == losses.len().saturating_sub(1) && leads.len() <= 50;
        (finite && fit).then_some(Self { losses, leads, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIANCE: f64 = 0.01;

    fn told(predictions: &[f64], times: usize) -> Windows {
        let mut windows = Windows::new(10, VARIANCE);
        (0..times).for_each(|n| windows.compare(predictions, 1, n as u64));
        windows
    }

    #[test]
    fn the_smallest_window_grows_with_the_number_of_features() {
        let smallest = |dimension| Windows::new(dimension, VARIANCE).size(0);
        assert_eq!([1, 10, 16, 17, 100].map(smallest), [32, 32, 32, 64, 256]);
    }

    #[test]
    fn the_window_with_the_least_loss_is_found_and_everything_if_all_are_as_good() {
        assert_eq!(told(&[], 5).best(), None);
        assert_eq!(told(&[0.3, 0.3, 0.3], 5).best(), None);
        // Too little for an alarm.
        assert_eq!(told(&[0.003, 0.001, 0.002], 5).best(), Some(64));
        assert_eq!(told(&[0.003, 0.002, 0.001], 5).best(), None);
    }

    #[test]
    fn an_alarm_is_heard_against_long_experience() {
        let mut windows = told(&[0.01, 0.005, 0.0], 10_000);
        assert_eq!(windows.best(), None);
        let mut after = 0;
        while windows.best().is_none() {
            windows.compare(&[0.0, 0.05, 0.05], 1, 10_000);
            after += 1;
        }
        // 2σ² ln 1000 is 0.138.
        assert_eq!((after, windows.best()), (3, Some(32)));
    }

    #[test]
    fn one_absurd_observation_does_not_decide_for_long() {
        let mut windows = told(&[0.002, 0.0], 10_000);
        for absurd in [1e300, f64::INFINITY] {
            windows.compare(&[absurd, 0.0], 1, 10_000);
            windows.compare(&[0.0, absurd], 1, 10_000);
        }
        (0..2000).for_each(|_| windows.compare(&[0.002, 0.0], 1, 10_000));
        assert_eq!(windows.best(), None);
    }
}
