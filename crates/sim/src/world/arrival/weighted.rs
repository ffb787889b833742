//! Agents that arrive independently at every step, some more often than others.

use posse_core::{AgentId, ConfigError, Domain, Seed};

use super::Arrivals;
use crate::world::gamma::ln_gamma_draw;

/// Arrivals in which every agent acts with a fixed probability, independently at each step.
pub(super) struct Weighted {
    /// Sums of the weights of agents up to and including each.
    cumulative: Vec<f64>,
    draws: Domain,
}

impl Weighted {
    pub(super) fn zipf(exponent: f64, agents: u64, draws: Domain) -> Result<Self, ConfigError> {
        check_exponent(exponent)?;
        let ln_weights = (1..=agents).map(|rank| -exponent * libm::log(rank as f64));
        Ok(Self::from_logarithms(ln_weights.collect(), draws))
    }

    pub(super) fn power(exponent: f64, agents: u64, draws: Domain, seed: Seed) -> Result<Self, ConfigError> {
        check_exponent(exponent)?;
        let domain = seed.domain("arrival-weight");
        let ln_weights =
            (0..agents).map(|agent| exponent * libm::log(1.0 - domain.stream(agent, 0).uniform()));
        Ok(Self::from_logarithms(ln_weights.collect(), draws))
    }

    pub(super) fn dirichlet(
        concentration: f64,
        agents: u64,
        draws: Domain,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let proper = concentration.is_finite() && concentration > 0.0;
        ConfigError::require(proper, "concentration", concentration, "finite and above 0")?;
        // A Dirichlet draw is a vector of gamma draws, divided by their sum.
        let domain = seed.domain("arrival-weight");
        let ln_weights = (0..agents).map(|agent| ln_gamma_draw(concentration, &mut domain.stream(agent, 0)));
        Ok(Self::from_logarithms(ln_weights.collect(), draws))
    }

    pub(super) fn one_hot(share: f64, agents: u64, draws: Domain) -> Result<Self, ConfigError> {
        let proper = (0.0..=1.0).contains(&share);
        ConfigError::require(proper, "share", share, "from 0 to 1")?;
        if agents == 1 {
            return Ok(Self::new([1.0], draws));
        }
        let rest = (1.0 - share) / (agents - 1) as f64;
        Ok(Self::new((0..agents).map(|agent| if agent == 0 { share } else { rest }), draws))
    }

    /// Weights known by their logarithms, which stand for smaller weights than floats can. The largest
    /// becomes 1, so some agent always has a weight.
    fn from_logarithms(mut ln_weights: Vec<f64>, draws: Domain) -> Self {
        // −∞, from an extreme parameter, would turn into NaN below.
        ln_weights.iter_mut().for_each(|ln_weight| *ln_weight = ln_weight.max(f64::MIN));
        let largest = ln_weights.iter().copied().fold(f64::MIN, f64::max);
        Self::new(ln_weights.into_iter().map(|ln_weight| libm::exp(ln_weight - largest)), draws)
    }

    fn new(weights: impl IntoIterator<Item = f64>, draws: Domain) -> Self {
        let mut sum = 0.0;
        let add = |weight| {
            sum += weight;
            sum
        };
        Self { cumulative: weights.into_iter().map(add).collect(), draws }
    }
}

impl Arrivals for Weighted {
    fn agent(&mut self, step: u64) -> AgentId {
        let total = self.cumulative.last().expect("there is at least one agent");
        let point = self.draws.stream(0, step).uniform() * total;
        // The first agent whose sum exceeds the point: never one without weight.
        let agent = self.cumulative.partition_point(|&sum| sum <= point);
        AgentId(agent.min(self.cumulative.len() - 1) as u64)
    }
}

fn check_exponent(exponent: f64) -> Result<(), ConfigError> {
    let proper = exponent.is_finite() && exponent >= 0.0;
    ConfigError::require(proper, "exponent", exponent, "finite and at least 0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::arrival::ArrivalConfig;
    use crate::world::arrival::tests::turns;

    #[test]
    fn zipf_arrivals_fall_with_the_rank() {
        let turns = turns(&ArrivalConfig::Zipf { exponent: 1.0 }, 4, 50_000, 1);
        // 1 : 1/2 : 1/3 : 1/4 sum to 25/12.
        for (rank, count) in (1..).zip(turns) {
            let expected = 50_000 * 12 / 25 / rank;
            assert!(count.abs_diff(expected) < 600, "rank {rank}: {count}");
        }
    }

    #[test]
    fn one_agent_takes_its_share() {
        let turns = turns(&ArrivalConfig::OneHot { share: 0.9 }, 11, 50_000, 2);
        assert!(turns[0].abs_diff(45_000) < 400, "{turns:?}");
        assert!(turns[1..].iter().all(|count| count.abs_diff(500) < 130), "{turns:?}");
        let never = self::turns(&ArrivalConfig::OneHot { share: 0.0 }, 3, 1_000, 2);
        assert_eq!(never[0], 0);
    }

    #[test]
    fn power_arrivals_are_a_power_of_uniform_draws() {
        let agents = 2_000;
        let weighted = Weighted::power(4.0, agents, Seed(3).domain("arrival"), Seed(3)).unwrap();
        let total = weighted.cumulative.last().unwrap();
        // E u⁴ = 1/5 and the largest u is nearly 1; relative standard deviation 3 %.
        assert!((total / agents as f64 - 0.2).abs() < 0.03, "{total}");
        // The median of u⁴ is 1/16.
        let weight =
            |i: usize| weighted.cumulative[i] - if i == 0 { 0.0 } else { weighted.cumulative[i - 1] };
        let small = (0..agents as usize).filter(|&i| weight(i) < 0.0625).count();
        assert!(small.abs_diff(1_000) < 120, "{small}");
        let even = turns(&ArrivalConfig::Power { exponent: 0.0 }, 5, 50_000, 3);
        assert!(even.iter().all(|count| count.abs_diff(10_000) < 500), "{even:?}");
    }

    #[test]
    fn dirichlet_arrivals_are_as_uneven_as_the_concentration_says() {
        // The expected sum of squared probabilities is (α + 1)/(nα + 1).
        for (concentration, expected) in [(0.1, 0.367), (1.0, 0.0952), (100.0, 0.0505)] {
            let repetitions = 400;
            let concentrated: f64 = (0..repetitions)
                .map(|seed| {
                    let weighted =
                        Weighted::dirichlet(concentration, 20, Seed(seed).domain("arrival"), Seed(seed))
                            .unwrap();
                    let total = weighted.cumulative.last().unwrap();
                    let mut before = 0.0;
                    let square = |&sum: &f64| {
                        let share = (sum - before) / total;
                        before = sum;
                        share * share
                    };
                    weighted.cumulative.iter().map(square).sum::<f64>()
                })
                .sum();
            let mean = concentrated / repetitions as f64;
            assert!((mean / expected - 1.0).abs() < 0.1, "{concentration}: {mean}");
        }
    }

    #[test]
    fn extreme_parameters_still_leave_somebody() {
        for config in [
            ArrivalConfig::Dirichlet { concentration: 1e-9 },
            ArrivalConfig::Dirichlet { concentration: f64::MIN_POSITIVE },
            ArrivalConfig::Dirichlet { concentration: 1e300 },
            ArrivalConfig::Power { exponent: 1e300 },
            ArrivalConfig::Zipf { exponent: f64::MAX },
        ] {
            assert_eq!(turns(&config, 10, 1_000, 4).iter().sum::<u64>(), 1_000);
        }
        assert_eq!(turns(&ArrivalConfig::Zipf { exponent: 1e6 }, 3, 100, 4), [100, 0, 0]);
    }
}
