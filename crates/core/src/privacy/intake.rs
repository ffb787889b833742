//! What all private agents have in common, whether each adds all its noise or a part of it: bounds on observations, the cap of
//! a user, where noise comes from, and what the statement counts.

use crate::error::InputError;
use crate::ids::{AgentId, Incarnation};
use crate::privacy::budget::Calibration;
use crate::privacy::config::{Clip, PrivacyConfig, Unit};
use crate::privacy::conversion;
use crate::privacy::fixed::Units;
use crate::privacy::masking::SecureAggregation;
use crate::privacy::noise::{NoiseSource, SeededNoise};
use crate::privacy::report::PrivacyReport;
use crate::random::Seed;

/// What a private agent takes in, and what it counts on the way.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) config: PrivacyConfig,
    pub(crate) units: Units,
    pub(crate) noise: Box<dyn NoiseSource>,
    pub(crate) clipped: u64,
    /// Interactions beyond the cap of their user, which were not learned from.
    pub(crate) beyond_cap: u64,
    pub(crate) signal_to_noise: Option<f64>,
    life: Incarnation,
}

/// What an agent has released, for its statement.
#[derive(Debug)]
pub(crate) struct Spent {
    /// μ that the unit that lost most has lost.
    pub(crate) mu: f64,
    pub(crate) calibration: Calibration,
    pub(crate) secure_aggregation: Option<SecureAggregation>,
    pub(crate) streams: u64,
    pub(crate) releases: u64,
    pub(crate) silent: u64,
    pub(crate) interactive: bool,
    pub(crate) private_partition: bool,
}

impl Intake {
    pub(crate) fn new(config: &PrivacyConfig, id: AgentId, seed: Seed) -> Self {
        Self {
            units: Units::new(config),
            config: config.clone(),
            noise: Box::new(SeededNoise::new(seed, id)),
            clipped: 0,
            beyond_cap: 0,
            signal_to_noise: None,
            life: Incarnation(0),
        }
    }

    pub(crate) fn begin_life(&mut self, life: Incarnation) {
        self.noise.begin_life(life);
        self.life = life;
    }

    /// Whether a user who has `count` interactions may contribute another one. Those beyond the cap are counted.
    pub(crate) const fn admits(&mut self, count: u64) -> bool {
        let admits = match self.config.unit {
            Unit::Interaction | Unit::Agent => true,
            Unit::User => count < self.config.user_cap,
        };
        self.beyond_cap += !admits as u64;
        admits
    }

    /// The observation as it enters the sums: around the centre, within its bounds, and in units of fixed point. An error
    /// if larger ones are refused.
    pub(crate) fn clip(&mut self, x: &[f64], reward: f64) -> Result<(Vec<f64>, f64), InputError> {
        let (x, y, was_clipped) = self.units.clip(&self.config, x, reward)?;
        self.clipped += u64::from(was_clipped);
        Ok((x, y))
    }

    /// A reward within its range, where that is not the one around the centre; or an error if others are refused.
    pub(crate) fn clip_reward(&mut self, reward: f64, [low, high]: [f64; 2]) -> Result<f64, InputError> {
        let within = reward.max(low).min(high);
        if within != reward && self.config.clip == Clip::Refuse {
            return Err(InputError::RewardBound { value: reward, bound: high });
        }
        self.clipped += u64::from(within != reward);
        Ok(within)
    }

    /// The statement of an agent that has released this much, where one user has had `most_of_a_user` interactions.
    pub(crate) fn report(&self, spent: &Spent, most_of_a_user: u64) -> PrivacyReport {
        let Spent { mu, calibration, secure_aggregation, streams, releases, silent, .. } = *spent;
        let config = &self.config;
        let units_of_a_user = match config.unit {
            Unit::Interaction => most_of_a_user as f64,
            Unit::User | Unit::Agent => 1.0,
        };
        PrivacyReport {
            epsilon_budget: config.epsilon,
            delta: config.delta,
            unit: config.unit,
            mu,
            epsilon: conversion::gaussian_epsilon(mu, config.delta),
            most_of_a_user,
            user_epsilon: conversion::gaussian_epsilon(units_of_a_user * mu, config.delta),
            mechanism: config.mechanism,
            calibration,
            secure_aggregation,
            streams,
            releases,
            silent,
            clipped: Some(self.clipped),
            beyond_cap: self.beyond_cap,
            interactive: spent.interactive,
            private_partition: spent.private_partition,
            seeded: !self.noise.is_secret(),
            uncounted: false,
            void: None,
            repairs: 0,
            signal_to_noise: self.signal_to_noise,
            life: self.life.0,
        }
    }
}
