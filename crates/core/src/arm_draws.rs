//! A normal number for each arm of an offer.

use crate::ids::AgentId;
use crate::random::{Domain, Seed};

/// The name of the streams they come from.
const STREAM: &str = "arm-sample";

/// An agent's normals, independent over choices and over arms. They belong to the features of an arm and not to
/// its place: the order of arms does not matter, and an arm that is offered twice is drawn once.
#[derive(Clone, Debug)]
pub(crate) struct ArmDraws {
    agent: u64,
    domain: Domain,
}

impl ArmDraws {
    pub(crate) fn new(agent: AgentId, seed: Seed) -> Self {
        Self { agent: agent.0, domain: seed.domain(STREAM) }
    }

    /// The number of the arm with these features at the `step`-th choice.
    pub(crate) fn normal(&self, step: u64, features: &[f64]) -> f64 {
        let mixed = features.iter().fold(mix(self.agent), |state, x| {
            // Adding zero turns −0 into 0: they are the same feature.
            mix(state ^ (x + 0.0).to_bits())
        });
        self.domain.stream(mixed, step).normal()
    }
}

/// A bijection of 64 bits in which every bit of the input reaches every bit of the output (Steele, Lea and
/// Flood, 2014).
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_arms_draw_the_same_and_all_else_something_else() {
        let draws = |agent| ArmDraws::new(AgentId(agent), Seed(1));
        let draw = draws(0).normal(5, &[0.0, 1.0]);
        assert_eq!(draws(0).normal(5, &[-0.0, 1.0]), draw);
        for other in [
            draws(1).normal(5, &[0.0, 1.0]),
            draws(0).normal(6, &[0.0, 1.0]),
            draws(0).normal(5, &[1.0, 0.0]),
            draws(0).normal(5, &[0.0, 1.0 + f64::EPSILON]),
            ArmDraws::new(AgentId(0), Seed(2)).normal(5, &[0.0, 1.0]),
        ] {
            assert_ne!(other, draw);
        }
    }

    #[test]
    fn draws_are_standard_normal_and_arms_of_an_offer_do_not_go_together() {
        let draws = ArmDraws::new(AgentId(3), Seed(7));
        let (mut sum, mut squares, mut products) = (0.0, 0.0, 0.0);
        let count = 40_000;
        for step in 0..count {
            let (a, b) = (draws.normal(step, &[0.5]), draws.normal(step, &[0.25]));
            sum += a;
            squares += a * a;
            products += a * b;
        }
        // Standard deviations of the means are 1/200, √2/200 and 1/200.
        let count = count as f64;
        assert!((sum / count).abs() < 0.03);
        assert!((squares / count - 1.0).abs() < 0.04);
        assert!((products / count).abs() < 0.03);
    }
}
