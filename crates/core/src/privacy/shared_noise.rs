//! Noise that many agents add together, each a part of it, for sums that only come out together.
//!
//! Under secure aggregation the coordinator sees Σᵢ(xᵢ + nᵢ) over the survivors of a round, so that the noise of all of them hides each
//! of them. Rounds use **slots** 1, 2, … of a factorisation A = B·C of running sums: agent i adds to what it learned since
//! its last sum the noise nᵢ(r) = (D·zᵢ)(r), where D = C⁻¹ and zᵢ(1), zᵢ(2), … are independent. Summed over slots, noise
//! cancels to B·z, which is as small as that of the factorisation.
//!
//! An observation is in the sum of one slot only, so that no pattern of dropouts reveals more than the promise says. Take any h
//! survivors of slot j whose noise the coordinator does not know, and replace an observation that moves the sum of slot j by Δ.
//! If each of the h moves its zᵢ(j) by −Δ/h, and its later zᵢ such that its later nᵢ stay as they were, then everything that
//! anybody sees is the same. That moves each zᵢ by the column j of C times Δ/h. With variance s² each, one replaced
//! observation costs μ² = h·(‖Cⱼ‖·Δ/h)²/s² = ‖Cⱼ‖²·Δ²/(h·s²): as much as one agent with noise of variance h·s². Who was in
//! which other slot does not matter. Decision 0133 has the details, and why releases that replace each other would not do.

use std::sync::Arc;

use crate::evidence::{Evidence, packed};
use crate::privacy::budget::{Budget, Share};
use crate::privacy::config::PrivacyConfig;
use crate::privacy::factorisation::Factors;
use crate::privacy::fixed::{COARSEST, LATTICE, Leaf, Units, on_lattice};
use crate::privacy::masking::SecureAggregation;
use crate::privacy::sampler::{Bits, discrete_gaussian};

/// How sums over many agents are written as integers, and what noise each agent adds.
#[derive(Clone, Debug)]
pub(crate) struct SharedNoise {
    dimension: usize,
    units: Units,
    factors: Arc<Factors>,
    /// Standard deviation of the noise of one measurement that the promise needs, off the diagonal of the matrix and in the vector.
    deviations: [f64; 2],
    /// h: the fewest agents in a sum whose noise is not known to the coordinator.
    honest: f64,
    /// The largest number on the diagonal of D.
    largest: f64,
}

impl SharedNoise {
    /// The noise of a promise that is kept by the agents in a sum together.
    pub(crate) fn new(
        config: &PrivacyConfig,
        secure: &SecureAggregation,
        budget: &Budget,
        dimension: usize,
    ) -> Self {
        let Share { mu, sigma, vector_sigma, factors } = &budget.cluster;
        let diagonal = |k: u64| factors.released(k as usize)[k as usize - 1];
        let slots = 1..=factors.releases();
        let largest = slots.clone().map(diagonal).fold(0.0, f64::max);
        let smallest = slots.map(diagonal).fold(f64::INFINITY, f64::min);
        let honest = secure.honest() as f64;
        // Numbers that are moved are rounded to the lattice: Δ/h to whole steps, and later noise by one step more for each of h
        // agents. That moves every z by less than two steps, times C, whose norm is below √slots.
        let entries = (packed(dimension) + dimension) as f64;
        let releases = factors.releases() as f64;
        let steps = 2.0 * releases.sqrt() * (entries * releases).sqrt();
        let rounding = honest.sqrt() * steps * (largest / smallest) / LATTICE;
        let more = mu / (mu - rounding).max(0.5 * mu);
        Self {
            dimension,
            units: Units::new(config),
            factors: Arc::clone(factors),
            deviations: [sigma * more, vector_sigma * more],
            honest,
            largest,
        }
    }

    /// How many numbers a sum has: a matrix, a vector and a count.
    pub(crate) const fn entries(&self) -> usize {
        packed(self.dimension) + self.dimension + 1
    }

    pub(crate) fn slots(&self) -> u64 {
        self.factors.releases()
    }

    /// Standard deviation that the promise needs in entry `entry`.
    fn deviation(&self, entry: usize) -> f64 {
        let d = self.dimension;
        let [matrix, vector] = self.deviations;
        // Row i of the packed triangle begins at i(i + 1)/2 and ends with the diagonal.
        let row = ((8 * entry + 1).isqrt() - 1) / 2;
        let on_diagonal = row < d && packed(row) + row == entry;
        match entry {
            _ if on_diagonal => matrix * std::f64::consts::SQRT_2,
            _ if entry < packed(d) => matrix,
            _ => vector,
        }
    }

    /// A step of the lattice in entry `entry` is 2^shift units, much finer than the noise of one agent.
    fn shift(&self, entry: usize) -> i32 {
        let one = self.deviation(entry) * self.largest / self.honest.sqrt();
        let finest = self.units.of(entry, self.dimension);
        (libm::floor(libm::log2(one / finest / LATTICE)) as i32).clamp(-40, COARSEST)
    }

    fn step(&self, entry: usize) -> f64 {
        libm::ldexp(self.units.of(entry, self.dimension), self.shift(entry))
    }

    /// Entry (r, j) of D = C⁻¹: B is the running sum of its rows. Slots count from 1.
    fn inverse(&self, slot: usize, earlier: usize) -> f64 {
        let before = if earlier < slot { self.factors.released(slot - 1)[earlier - 1] } else { 0.0 };
        self.factors.released(slot)[earlier - 1] - before
    }

    /// Draws z of one slot, in steps of the lattice and times the diagonal of D.
    pub(crate) fn draw(&self, slot: u64, bits: &mut Bits<'_>) -> Vec<i64> {
        let diagonal = self.inverse(slot as usize, slot as usize);
        (0..self.entries() - 1)
            .map(|entry| {
                let ratio = self.deviation(entry) * diagonal / (self.honest.sqrt() * self.step(entry));
                let variance = libm::ceil((ratio * ratio).clamp(1.0, (1u64 << 50) as f64)) as u64;
                discrete_gaussian(variance, bits)
            })
            .collect()
    }

    /// An agent's numbers for one slot: what it learned, with noise. `drawn` are its draws of all slots up to this one.
    pub(crate) fn numbers(&self, leaf: &Leaf, drawn: &[Vec<i64>]) -> Vec<u128> {
        let slot = drawn.len();
        // Draws are z times the diagonal of D already, so that the newest one counts as it is.
        let weights: Vec<f64> =
            (1..slot).map(|earlier| self.inverse(slot, earlier) / self.inverse(earlier, earlier)).collect();
        let mut numbers = Vec::with_capacity(self.entries());
        for (entry, sum) in leaf.sums.iter().enumerate() {
            let on_lattice = on_lattice(i128::from(*sum), self.shift(entry));
            let earlier: f64 =
                weights.iter().zip(drawn).map(|(weight, drawn)| weight * drawn[entry] as f64).sum();
            let noise = drawn[slot - 1][entry] + libm::round(earlier) as i64;
            numbers.push((on_lattice + i128::from(noise)) as u128);
        }
        numbers.push(u128::from(leaf.count));
        numbers
    }

    /// The sums that numbers of the lattice stand for, as evidence that may be indefinite. `None` if no agents can have sent them.
    pub(crate) fn evidence(&self, totals: &[u128]) -> Option<Evidence> {
        let (count, sums) = totals.split_last()?;
        let count = u64::try_from(*count).ok().filter(|count| *count < 1 << 53)?;
        let numbers: Vec<f64> =
            sums.iter().enumerate().map(|(entry, sum)| *sum as i128 as f64 * self.step(entry)).collect();
        let evidence = self.units.evidence(&numbers, self.dimension, count);
        evidence.check_release().ok()?;
        Some(evidence)
    }

    /// Whether `agents` can have sent these numbers together. What is not taken out of masks rightly is beyond any bound.
    pub(crate) fn is_possible(&self, sums: &[u128], agents: usize) -> bool {
        let Some(evidence) = self.evidence(sums) else { return false };
        let count = evidence.count() as f64;
        let numbers = evidence.gram().iter().chain(evidence.moment());
        numbers.enumerate().all(|(entry, number)| {
            // Bounds are less than 2¹⁶ units of features and of rewards. Noise of one slot is that of all draws at most.
            let data = count * libm::ldexp(self.units.of(entry, self.dimension), 32);
            let noise = 64.0 * self.deviation(entry) * self.largest * agents as f64 * self.slots() as f64;
            number.abs() <= data + noise
        })
    }

    /// The variance of the noise in Σxxᵀ, off the diagonal, that an agent adds that is in the sums of these slots.
    pub(crate) fn variance(&self, slots: &[u64]) -> f64 {
        let last = slots.iter().copied().max().unwrap_or(0) as usize;
        let squares = (1..=last).map(|earlier| {
            let later = slots.iter().map(|slot| *slot as usize).filter(|slot| *slot >= earlier);
            let weight: f64 = later.map(|slot| self.inverse(slot, earlier)).sum();
            weight * weight
        });
        self.deviations[0] * self.deviations[0] / self.honest * squares.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::{Mechanism, conversion};
    use crate::random::Seed;

    const D: usize = 2;

    fn noise(
        mechanism: Mechanism,
        slots: u64,
        secure: SecureAggregation,
    ) -> (SharedNoise, Budget, PrivacyConfig) {
        let config = PrivacyConfig { mechanism, max_releases: slots, ..Default::default() };
        let budget = Budget::new(&config, D, false);
        (SharedNoise::new(&config, &secure, &budget, D), budget, config)
    }

    /// The noise of one agent that is in the given slots, added up, in units of features squared.
    fn sum_of(noise: &SharedNoise, slots: &[u64], seed: u64) -> Vec<f64> {
        let mut totals = vec![0u128; noise.entries()];
        let mut drawn = Vec::new();
        for slot in 1..=*slots.last().unwrap() {
            let mut stream = Seed(seed).stream("noise", slot, 0);
            drawn.push(noise.draw(slot, &mut || stream.next_u64()));
            if slots.contains(&slot) {
                let numbers = noise.numbers(&Leaf::new(D), &drawn);
                totals
                    .iter_mut()
                    .zip(numbers)
                    .for_each(|(total, number)| *total = total.wrapping_add(number));
            }
        }
        let evidence = noise.evidence(&totals).unwrap();
        evidence.gram().iter().chain(evidence.moment()).copied().collect()
    }

    /// Of agents that are in all slots and of some that are not: over 3000 of them, within five standard deviations.
    #[test]
    fn the_noise_in_sums_has_the_variance_that_is_stated() {
        let secure = SecureAggregation { survivors: 5, colluders: 1 };
        for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
            let (noise, budget, config) = noise(mechanism, 5, secure);
            for slots in [&[1][..], &[1, 2, 3, 4, 5], &[2, 3], &[1, 4, 5], &[5]] {
                let n = 3000;
                let mut squares = [0.0; 5];
                for seed in 0..n {
                    let values = sum_of(&noise, slots, seed);
                    squares.iter_mut().zip(values).for_each(|(sum, value)| *sum += value * value);
                }
                let n = n as f64;
                let ratio = config.vector_noise * config.vector_noise;
                for (square, factor) in squares.iter().zip([2.0, 1.0, 2.0, ratio, ratio]) {
                    let expected = factor * noise.variance(slots);
                    let off = (square / n - expected).abs() / (expected * (2.0 / n).sqrt());
                    assert!(off < 5.0, "{mechanism:?} {slots:?}: {} is not {expected}", square / n);
                }
            }
            // In all slots, an agent adds a fourth of what it would have to add alone.
            let alone = budget.cluster.variance(5) / 4.0;
            let all = noise.variance(&[1, 2, 3, 4, 5]);
            assert!(all >= alone && all < 1.001 * alone, "{all} {alone}");
        }
    }

    /// What the argument in the head of this file needs, in numbers: moving one observation in slot j is answered by moving z
    /// by column j of C, whose length the budget has accounted for, and h agents share it.
    #[test]
    fn one_replaced_observation_costs_no_more_than_the_promise_whoever_drops_out() {
        for (survivors, colluders) in [(2, 0), (5, 1), (40, 10)] {
            let secure = SecureAggregation { survivors, colluders };
            let (noise, budget, config) = noise(Mechanism::Factorisation, 12, secure);
            let reach = 1.0 + 1.0 / (config.vector_noise * config.vector_noise);
            let h = secure.honest() as f64;
            for slot in 1..=12 {
                // Forward substitution: what z of each slot has to move so that the noise of slot j moves by 1 and no other.
                let mut moved = [0.0; 13];
                for r in slot..=12 {
                    let target = f64::from(u8::from(r == slot));
                    let so_far: f64 =
                        (slot..r).map(|earlier| noise.inverse(r, earlier) * moved[earlier]).sum();
                    moved[r] = (target - so_far) / noise.inverse(r, r);
                }
                let length = moved.iter().map(|v| v * v).sum::<f64>().sqrt();
                let one = noise.deviations[0] / h.sqrt();
                let mu = h.sqrt() * length * (reach / h) / one;
                assert!(mu <= budget.mu, "slot {slot}: {mu} {}", budget.mu);
                assert!(conversion::gaussian_epsilon(mu, config.delta) <= config.epsilon + 1e-9);
            }
        }
    }

    #[test]
    fn numbers_without_noise_are_the_sums() {
        let secure = SecureAggregation { survivors: 2, colluders: 0 };
        let config = PrivacyConfig { epsilon: 1e30, max_releases: 3, ..Default::default() };
        let noise = SharedNoise::new(&config, &secure, &Budget::new(&config, D, false), D);
        let units = Units::new(&config);
        let mut leaf = Leaf::new(D);
        let (x, y) = units.snap(&[0.5, -0.25], 0.75);
        leaf.add(units, &x, y);
        leaf.add(units, &x, -y);
        let mut stream = Seed(1).stream("noise", 0, 0);
        let drawn = vec![noise.draw(1, &mut || stream.next_u64())];
        let numbers = noise.numbers(&leaf, &drawn);
        assert!(noise.is_possible(&numbers, 1));
        let evidence = noise.evidence(&numbers).unwrap();
        assert_eq!((evidence.gram(), evidence.count()), (&[0.5, -0.25, 0.125][..], 2));
        assert_eq!(evidence.moment(), &[0.0, 0.0]);
        let mut garbage = numbers;
        garbage[1] = 1 << 126;
        assert!(!noise.is_possible(&garbage, 1));
        garbage[1] = 0;
        garbage[5] = 1 << 60;
        assert!(!noise.is_possible(&garbage, 1), "nobody has so many observations");
    }
}
