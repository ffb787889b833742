//! Updates of a network as they leave an agent: cut to a length, with noise, a few times in all.

use std::collections::BTreeMap;

use crate::error::DecodeError;
use crate::ids::AgentId;
use crate::privacy::accountant::{Accountant, Exhausted};
use crate::privacy::budget::Budget;
use crate::privacy::config::PrivacyConfig;
use crate::privacy::fixed::LATTICE;
use crate::privacy::intake::{Intake, Spent};
use crate::privacy::noise::{Measurement, StreamId};
use crate::privacy::report::PrivacyReport;
use crate::privacy::sampler::{Bits, discrete_gaussian};
use crate::random::Seed;
use crate::wire::v1;

/// All updates of an agent are one stream.
const STREAM: StreamId = StreamId::Cluster(1);

/// The private side of an agent that shares updates: nothing leaves it but what [`release`](Self::release) returns.
///
/// Its state must be kept before an update is sent: an agent that forgot an update and released another one with the same
/// noise would give both away.
#[derive(Debug)]
pub(crate) struct UpdateReleases {
    pub(crate) intake: Intake,
    budget: Budget,
    bound: f64,
    accountant: Accountant,
}

impl UpdateReleases {
    /// For updates of `parameters` numbers that are cut to the length `bound`.
    pub(crate) fn new(
        config: &PrivacyConfig,
        parameters: usize,
        bound: f64,
        id: AgentId,
        seed: Seed,
    ) -> Self {
        let budget = Budget::of_updates(config, parameters, bound);
        let mut accountant = Accountant::new(budget.clone());
        accountant.open(STREAM).expect("it is the first stream");
        Self { intake: Intake::new(config, id, seed), budget, bound, accountant }
    }

    /// Whether an agent with `total` interactions, `released` of which it had at its last release, should ask for a round.
    pub(crate) fn is_due(&self, total: u64, released: u64) -> bool {
        self.accountant.has_release(STREAM) && self.intake.config.is_due(total, released)
    }

    /// Whether it should and may give something to a round that others asked for. A coordinator that calls rounds again and
    /// again must not be able to spend the agent's releases.
    pub(crate) fn is_worth_a_round(&self, total: u64, released: u64) -> bool {
        self.accountant.has_release(STREAM) && self.intake.config.is_half_due(total, released)
    }

    /// The update as it may leave the agent: cut to its bound, with noise. Numbers that are not finite count as zero.
    pub(crate) fn release(&mut self, update: &[f64]) -> Result<Vec<f64>, Exhausted> {
        self.accountant.release(STREAM)?;
        let (_, number) = self.accountant.totals();
        let (cut, was_clipped) = cut(update, self.bound);
        self.intake.clipped += u64::from(was_clipped);
        let mut bits = self.intake.noise.bits(Measurement { stream: STREAM, number });
        Ok(with_noise(&cut, self.budget.cluster.sigma, &mut *bits))
    }

    pub(crate) fn report(&self, interactions: u64) -> PrivacyReport {
        let (streams, releases) = self.accountant.totals();
        let spent = Spent {
            mu: self.accountant.mu(),
            calibration: self.budget.calibration(),
            secure_aggregation: None,
            streams,
            releases,
            silent: self.accountant.silent(),
            // An update is cut to its bound whatever the agent saw and in whatever order, so that choices may use everything.
            interactive: true,
            private_partition: false,
        };
        self.intake.report(&spent, interactions)
    }

    pub(crate) fn save(&self) -> v1::PrivacyState {
        v1::PrivacyState {
            accountant: Some(self.accountant.save()),
            clipped: self.intake.clipped,
            ..Default::default()
        }
    }

    /// Goes on from a saved state, or changes nothing.
    pub(crate) fn restore(&mut self, state: &v1::PrivacyState) -> Result<(), DecodeError> {
        let accountant =
            state.accountant.as_ref().ok_or(DecodeError::invalid("privacy", "it has no accountant"))?;
        if accountant.releases > self.budget.cluster.factors.releases() {
            return Err(DecodeError::invalid("privacy", "more was released than there is"));
        }
        self.accountant.restore(accountant, BTreeMap::from([(STREAM, accountant.releases)]))?;
        self.intake.clipped = state.clipped;
        Ok(())
    }
}

/// The update, shortened to `bound` if it is longer; and whether it was.
fn cut(update: &[f64], bound: f64) -> (Vec<f64>, bool) {
    let finite = update.iter().map(|v| if v.is_finite() { *v } else { 0.0 });
    // Divided by the largest number first, so that no square overflows.
    let largest = finite.clone().map(f64::abs).fold(f64::MIN_POSITIVE, f64::max);
    let length = largest * finite.clone().map(|v| (v / largest) * (v / largest)).sum::<f64>().sqrt();
    // Rounded down, so that no rounding makes it longer than the bound.
    let factor = if length > bound { bound / length * (1.0 - f64::EPSILON * 16.0) } else { 1.0 };
    (finite.map(|v| v * factor).collect(), length > bound)
}

/// Numbers rounded to a lattice on which σ is at least 2²⁴ steps, with a discrete Gaussian added to each.
fn with_noise(numbers: &[f64], sigma: f64, bits: &mut Bits<'_>) -> Vec<f64> {
    let step = libm::exp2(libm::floor(libm::log2(sigma / LATTICE)));
    let ratio = sigma / step;
    let variance = libm::ceil((ratio * ratio).clamp(1.0, (1u64 << 50) as f64)) as u64;
    let noisy = numbers.iter().map(|number| {
        let exact = libm::rint(number / step).clamp(-1e30, 1e30) as i128;
        (exact + i128::from(discrete_gaussian(variance, bits))) as f64 * step
    });
    noisy.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::{Unit, conversion};

    fn releases(epsilon: f64, max_releases: u64, seed: u64) -> UpdateReleases {
        let config = PrivacyConfig { epsilon, unit: Unit::Agent, max_releases, ..Default::default() };
        UpdateReleases::new(&config, 3, 0.5, AgentId(0), Seed(seed))
    }

    #[test]
    fn no_update_is_longer_than_its_bound_and_short_ones_stay_as_they_are() {
        let length = |update: &[f64]| update.iter().map(|v| v * v).sum::<f64>().sqrt();
        for update in [[3.0, -4.0, 12.0], [1e300, 1e300, -1e300], [f64::NAN, f64::INFINITY, 7.0]] {
            let (cut, was_clipped) = cut(&update, 0.5);
            assert!(was_clipped && length(&cut) <= 0.5 && length(&cut) > 0.499_999, "{cut:?}");
        }
        assert_eq!(cut(&[0.1, 0.0, -0.2], 0.5), (vec![0.1, 0.0, -0.2], false));
        assert_eq!(cut(&[0.0; 3], 0.5), (vec![0.0; 3], false));
    }

    /// σ = 2·bound·√releases/μ: an agent may be in every update, with everything it has.
    #[test]
    fn noise_is_that_of_an_agent_that_is_in_every_update() {
        let mut squares = 0.0;
        let runs = 4000;
        for seed in 0..runs {
            let released = releases(1.0, 4, seed).release(&[0.3, 0.0, -0.4]).unwrap();
            let noise = [released[0] - 0.3, released[1], released[2] + 0.4];
            squares += noise.iter().map(|v| v * v).sum::<f64>();
        }
        let expected = 2.0 * 0.5 * 2.0 / conversion::gaussian_mu(1.0, 1e-5);
        let n = 3.0 * runs as f64;
        let off = (squares / n / (expected * expected) - 1.0).abs() / (2.0 / n).sqrt();
        assert!(off < 5.0, "{} is not {expected}", (squares / n).sqrt());
    }

    #[test]
    fn every_update_costs_the_same_and_the_last_one_is_the_last() {
        let mut releases = releases(1.0, 4, 1);
        for k in 1..=4 {
            assert!(releases.is_due(1000, 0) && releases.is_worth_a_round(1000, 0));
            releases.release(&[9.0, 0.0, 0.0]).unwrap();
            let report = releases.report(7);
            let whole = conversion::gaussian_mu(1.0, 1e-5);
            assert!((report.mu - whole * (k as f64 / 4.0).sqrt()).abs() < 1e-9, "{report:?}");
            assert_eq!((report.releases, report.clipped, report.unit), (k, Some(k), Unit::Agent));
        }
        assert!((releases.report(7).epsilon - 1.0).abs() < 1e-6);
        assert!(!releases.is_due(1000, 0) && !releases.is_worth_a_round(1000, 0));
        assert_eq!(releases.release(&[0.0; 3]), Err(Exhausted::Releases(4)));
        assert_eq!(releases.report(7).silent, 1);
    }

    #[test]
    fn a_restored_agent_goes_on_with_the_next_update_and_the_next_noise() {
        let mut one = releases(1.0, 4, 1);
        one.release(&[0.1; 3]).unwrap();
        let mut other = releases(1.0, 4, 1);
        other.restore(&one.save()).unwrap();
        assert_eq!(other.report(3), one.report(3));
        assert_eq!(other.release(&[0.2; 3]), one.release(&[0.2; 3]));
        let mut short = releases(1.0, 1, 1);
        let before = short.save();
        short.restore(&one.save()).unwrap_err();
        short.restore(&v1::PrivacyState::default()).unwrap_err();
        assert_eq!(short.save(), before, "nothing changed");
    }
}
