//! What silence costs: the regret that an agent expects from not speaking, compared with what a message
//! costs.
//!
//! With n observations a typical choice loses about a/n, because evidence narrows every doubt at that rate.
//! The agents report a, the **doubt**, and the coordinator averages it. Everything here follows from it:
//!
//! - An agent that believes n observations when the federation has ρ·n loses a/n a choice where it could
//!   lose a/(ρn). If it acts once in τ observations of the federation, pulling whenever ρ has grown to a
//!   fixed ratio costs least when ρ·ln ρ − ρ + 1 equals (price of a pull)·τ/a. This is the pull that pays
//!   on average. The choice at hand adds its own loss, times the share 1 − 1/ρ that a pull would save.
//! - An agent that withholds a share f of the evidence makes all other agents lose a·f/n a choice. When the
//!   sum of that over time exceeds the price of a push, pushing was worth it.

use crate::arms::best;
use crate::factor::Scores;

/// The density of the standard normal distribution at zero, 1/√(2π).
const DENSITY: f64 = 0.398_942_280_401_432_7;

/// The loss that an agent expects from a choice: what it gives up knowingly, because the arm it plays has a
/// lower mean than the best, and what it may be wrong about.
///
/// The second part sums E[max(0, D)] over the other arms, D being by how much an arm is better than the one
/// with the best mean, normal with standard deviation `noise`·√(w² + w'²). Arms are correlated, and several
/// may be better at once, so this is an estimate and no bound.
pub(crate) fn expected_loss(scores: &Scores<'_>, played: usize, noise: f64) -> f64 {
    let Ok(best) = best(scores.means.iter().copied()) else { return 0.0 };
    let (top, own) = (scores.means[best], scores.widths[best]);
    let mut loss = top - scores.means[played];
    for (arm, (&mean, &width)) in scores.means.iter().zip(scores.widths).enumerate() {
        let deviation = noise * (width * width + own * own).sqrt();
        if arm == best || deviation <= 0.0 {
            continue;
        }
        let lead = (top - mean) / deviation;
        // Beyond six deviations the term is below 1e-10 deviations.
        if lead < 6.0 {
            let tail = 0.5 * libm::erfc(lead * std::f64::consts::FRAC_1_SQRT_2);
            loss += deviation * (DENSITY * libm::exp(-0.5 * lead * lead) - lead * tail);
        }
    }
    loss.max(0.0)
}

/// What a pull saves: `loss` is that of the choice at hand, `growth` ρ ≥ 1, `doubt` a, `interval` τ ≥ 1.
pub(crate) fn worth_of_pull(loss: f64, growth: f64, doubt: f64, interval: f64) -> f64 {
    let later = growth * libm::log(growth) - (growth - 1.0);
    loss * (1.0 - 1.0 / growth) + later * doubt / interval
}

/// How many times as much an agent does not know, in a world that changes, as it would after a pull: `growth` is 1 and
/// the share of the window that the agent has not heard of.
///
/// In a window of the right length, what changed over it is about as much as what is not known yet. A window is half
/// its length old on average. A model that missed a share x of the window is older by 1 + 2x.
pub(crate) fn relative_age(growth: f64) -> f64 {
    1.0 + 2.0 * (growth - 1.0)
}

/// What others lose while evidence is withheld that would raise the information by `fresh` in `dimension`
/// directions, until the federation has made `interval` more observations beside its `count`.
pub(crate) fn cost_of_withholding(
    fresh: f64,
    dimension: usize,
    doubt: f64,
    interval: f64,
    count: f64,
) -> f64 {
    doubt * (fresh / dimension as f64) * interval / count.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(means: &[f64], widths: &[f64], played: usize) -> f64 {
        expected_loss(&Scores { means, widths }, played, 0.1)
    }

    /// E[max(0, D)] by adding up a fine histogram.
    fn by_hand(mean: f64, deviation: f64) -> f64 {
        let step = 1e-3;
        (-9000..9000)
            .map(|i| f64::from(i) * step)
            .map(|z| (mean + deviation * z).max(0.0) * DENSITY * libm::exp(-0.5 * z * z) * step)
            .sum()
    }

    #[test]
    fn the_expected_loss_is_what_is_given_up_and_what_may_be_wrong() {
        assert_eq!(loss(&[1.0], &[0.5], 0), 0.0);
        assert_eq!(loss(&[1.0, 0.2], &[0.0, 0.0], 1), 0.8);
        let deviation = 0.1 * 0.34_f64.sqrt();
        let expected = by_hand(-0.02, deviation);
        assert!((loss(&[1.0, 0.98], &[0.5, 0.3], 0) - expected).abs() < 1e-6);
        assert!((loss(&[1.0, 0.98], &[0.5, 0.3], 1) - expected - 0.02).abs() < 1e-6);
        // An arm that is far behind has no say.
        assert_eq!(loss(&[1.0, -9.0], &[0.5, 0.3], 0), 0.0);
    }

    #[test]
    fn pulls_are_worth_more_the_more_there_is_to_hear_and_the_oftener_one_acts() {
        assert_eq!(worth_of_pull(0.3, 1.0, 4.0, 10.0), 0.0);
        let mut before = 0.0;
        for growth in [1.1, 1.5, 2.0, 4.0, 16.0] {
            let worth = worth_of_pull(0.1, growth, 4.0, 100.0);
            assert!(worth > before);
            assert!(worth_of_pull(0.1, growth, 4.0, 10.0) > worth);
            assert!(worth_of_pull(0.2, growth, 4.0, 100.0) > worth);
            before = worth;
        }
    }

    /// The formula is the optimum that it claims to be: regret and price per unit of ln n, minimised over
    /// the ratio of a geometric schedule by looking.
    #[test]
    fn the_average_pull_is_due_at_the_cheapest_ratio() {
        let (doubt, interval, price) = (3.8, 1000.0, 0.006);
        let cost = |ratio: f64| (doubt * (ratio - 1.0) / interval + price) / libm::log(ratio);
        let ratios = || (101..2000).map(|i| f64::from(i) / 100.0);
        let cheapest = ratios().min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap();
        let due = ratios().find(|&ratio| worth_of_pull(0.0, ratio, doubt, interval) > price).unwrap();
        assert!((cheapest - due).abs() < 0.03, "{cheapest} {due}");
    }
}
