//! Drift: true parameters that turn slowly, around any linear world.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, Seed, Shape};
use serde::{Deserialize, Serialize};

use super::vector::{dot, gaussian};
use super::{Offer, Rewards, World};

/// The parameters move on a great circle: from where they start towards a random direction at a right
/// angle, and all the way around. The shared part turns alike for all agents, the local part turns within
/// itself; a part of one feature cannot turn and stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(default, deny_unknown_fields)]
pub struct Drift {
    /// ≥ 2: steps of one full turn. After a quarter of it nothing learned at the start holds.
    /// Default 10 000.
    pub period: u64,
    /// How the parameters move along the circle. Default `turn`.
    pub motion: Motion,
}

/// How parameters move along their circle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Motion {
    /// At constant speed, once around in a period.
    #[default]
    Turn,
    /// By a quarter at once, four times in a period, and not at all between.
    Jumps,
    /// To a quarter on one side, back, to a quarter on the other and back in a period, as seasons do.
    Seasons,
}

impl Drift {
    /// The angle at a step.
    fn angle(self, step: u64) -> f64 {
        let part = (step % self.period) as f64 / self.period as f64;
        match self.motion {
            Motion::Turn => TAU * part,
            Motion::Jumps => TAU * (4.0 * part).floor() / 4.0,
            Motion::Seasons => TAU / 4.0 * libm::sin(TAU * part),
        }
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self { period: 10_000, motion: Motion::Turn }
    }
}

impl Drift {
    /// Lets the parameters of `world` drift. Its means must be linear in the features.
    pub(super) fn wrap(self, world: Box<dyn World>, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        if self.period < 2 {
            return Err(ConfigError::new("period", self.period, "at least 2"));
        }
        let circles = BTreeMap::new();
        Ok(Box::new(Drifting { world, drift: self, domain: seed.domain("drift"), circles }))
    }
}

struct Drifting {
    world: Box<dyn World>,
    drift: Drift,
    domain: Domain,
    /// Where the parameters of agents met so far move.
    circles: BTreeMap<AgentId, Circle>,
}

/// Parameters θ(φ) = still + cos φ · start + sin φ · quarter.
struct Circle {
    still: Vec<f64>,
    start: Vec<f64>,
    quarter: Vec<f64>,
    /// Buffer for θ(φ), reused at every step.
    theta: Vec<f64>,
}

impl Circle {
    fn new(theta: Vec<f64>, shape: Shape, agent: AgentId, domain: Domain) -> Self {
        let mut still = vec![0.0; theta.len()];
        let (mut start, mut quarter) = (theta.clone(), still.clone());
        // Step 0 of agent 0 for what all share, step 1 of each agent for its own.
        let shared = (0..shape.shared, domain.stream(0, 0));
        let local = (shape.shared..shape.dimension(), domain.stream(agent.0, 1));
        for (part, mut stream) in [shared, local] {
            if part.len() == 1 {
                still[part.start] = theta[part.start];
                start[part.start] = 0.0;
                continue;
            }
            let (from, to) = (&theta[part.clone()], &mut quarter[part]);
            let squared = dot(from, from);
            loop {
                let length = gaussian(to, &mut stream);
                let along = dot(from, to) / squared.max(f64::MIN_POSITIVE);
                to.iter_mut().zip(from).for_each(|(to, from)| *to -= along * from);
                let left = dot(to, to).sqrt();
                // Little is left of a draw that was nearly parallel, and rounding has bent it.
                if left > 0.01 * length || to.is_empty() {
                    to.iter_mut().for_each(|to| *to *= squared.sqrt() / left);
                    break;
                }
            }
        }
        Self { still, start, quarter, theta }
    }

    fn at(&mut self, angle: f64) -> &[f64] {
        let (cos, sin) = (libm::cos(angle), libm::sin(angle));
        for (i, theta) in self.theta.iter_mut().enumerate() {
            *theta = self.still[i] + cos * self.start[i] + sin * self.quarter[i];
        }
        &self.theta
    }
}

impl World for Drifting {
    fn shape(&self, agent: AgentId) -> Shape {
        self.world.shape(agent)
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        self.world.offer(step, offer);
        let (agent, world, domain) = (offer.agent, &self.world, self.domain);
        let circle = self.circles.entry(agent).or_insert_with(|| {
            let theta = world.parameters(agent).expect("only linear worlds are made to drift");
            Circle::new(theta, world.shape(agent), agent, domain)
        });
        let theta = circle.at(self.drift.angle(step));
        for (arm, mean) in offer.means.iter_mut().enumerate() {
            *mean = dot(theta, offer.arms.row(arm));
        }
    }

    fn rewards(&self) -> Option<Rewards> {
        self.world.rewards()
    }

    fn parameters(&self, _: AgentId) -> Option<Vec<f64>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tests::ask;
    use crate::world::{HeterogeneousConfig, LinearConfig};

    fn circle(shape: Shape, agent: u64) -> Circle {
        let mut theta = vec![0.0; shape.dimension()];
        theta[0] = 1.0;
        if shape.local > 0 {
            theta[shape.shared] = -1.0;
        }
        Circle::new(theta, shape, AgentId(agent), Seed(1).domain("drift"))
    }

    #[test]
    fn parameters_turn_at_constant_length_and_come_back() {
        let shape = Shape { shared: 5, local: 3 };
        let mut circle = circle(shape, 2);
        let start = circle.at(0.0).to_vec();
        assert_eq!(start, [1.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0]);
        for eighth in 0..=8 {
            let angle = TAU * f64::from(eighth) / 8.0;
            let theta = circle.at(angle);
            for part in [0..5, 5..8] {
                let (then, now) = (&start[part.clone()], &theta[part]);
                assert!((dot(now, now) - 1.0).abs() < 1e-12);
                assert!((dot(then, now) - libm::cos(angle)).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn agents_turn_alike_in_the_shared_part_only() {
        let shape = Shape { shared: 5, local: 3 };
        let (mut one, mut other) = (circle(shape, 0), circle(shape, 1));
        let (one, other) = (one.at(1.0), other.at(1.0));
        assert_eq!(one[..5], other[..5]);
        assert_ne!(one[5..], other[5..]);
    }

    #[test]
    fn a_single_feature_stays() {
        let mut circle = circle(Shape { shared: 4, local: 1 }, 0);
        assert_eq!(circle.at(2.0)[4], -1.0);
    }

    #[test]
    fn means_start_and_return_where_they_stood_and_are_opposite_between() {
        let calm = LinearConfig { arms: 3, noise: 0.0, ..LinearConfig::default() };
        let adrift = LinearConfig { drift: Some(Drift { period: 100, ..Drift::default() }), ..calm.clone() };
        let (mut calm, mut adrift) = (calm.build(Seed(2)).unwrap(), adrift.build(Seed(2)).unwrap());
        assert_eq!(adrift.parameters(AgentId(0)), None);
        for (step, sign) in [(0, 1.0), (50, -1.0), (100, 1.0)] {
            let (then, now) = (ask(&mut *calm, 0, step), ask(&mut *adrift, 0, step));
            assert_eq!(then.arms, now.arms);
            let close = |(then, now): (&f64, &f64)| (sign * then - now).abs() < 1e-12;
            assert!(then.means.iter().zip(&now.means).all(close));
        }
        assert_ne!(ask(&mut *calm, 0, 25).means, ask(&mut *adrift, 0, 25).means);
    }

    #[test]
    fn parameters_jump_or_swing_as_they_are_told() {
        let angles = |motion, steps: &[u64]| {
            let drift = Drift { period: 80, motion };
            steps.iter().map(|step| libm::round(drift.angle(*step) / TAU * 360.0)).collect::<Vec<_>>()
        };
        assert_eq!(
            angles(Motion::Jumps, &[0, 19, 20, 39, 40, 79, 80]),
            [0.0, 0.0, 90.0, 90.0, 180.0, 270.0, 0.0]
        );
        assert_eq!(angles(Motion::Seasons, &[0, 20, 40, 60, 80]), [0.0, 90.0, 0.0, -90.0, 0.0]);
        assert_eq!(angles(Motion::Turn, &[0, 20, 60]), [0.0, 90.0, 270.0]);
    }

    #[test]
    fn agents_without_local_features_drift_too() {
        let config = HeterogeneousConfig {
            dimension: 4,
            shared: 3,
            local_spread: 1,
            drift: Some(Drift::default()),
            ..HeterogeneousConfig::default()
        };
        let mut world = config.build(Seed(3)).unwrap();
        for agent in 0..2 {
            assert!(ask(&mut *world, agent, 1234).means.iter().all(|mean| mean.is_finite()));
        }
    }
}
