//! Recipes of the kernel family.

use crate::agent::{Agent, Shape};
use crate::error::ConfigError;
use crate::federation::Federation;
use crate::ids::AgentId;
use crate::kernel::KernelConfig;
use crate::recipe::Recipe;

/// Kernel regression with upper confidence bounds.
#[derive(Debug)]
pub(super) struct KernelUcb<'c>(pub(super) &'c KernelConfig);

impl Recipe for KernelUcb<'_> {
    fn name(&self) -> &'static str {
        "kernel-ucb"
    }

    fn effort(&self, _agents: u64, observations: u64) -> f64 {
        // It solves a system of all that its agent has seen.
        (0.01 * observations as f64 * (observations as f64).min(1e4)).max(1.0)
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.0.check()
    }

    fn agent(&self, _id: AgentId, shape: Shape, _federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.0.ucb(shape.dimension()))
    }

    fn takes_local_features(&self) -> bool {
        true
    }
}

/// Kernel regression with Thompson sampling.
#[derive(Debug)]
pub(super) struct KernelTs<'c>(pub(super) &'c KernelConfig);

impl Recipe for KernelTs<'_> {
    fn name(&self) -> &'static str {
        "kernel-ts"
    }

    fn effort(&self, _agents: u64, observations: u64) -> f64 {
        // It solves a system of all that its agent has seen.
        (0.01 * observations as f64 * (observations as f64).min(1e4)).max(1.0)
    }

    fn check(&self, _shape: Shape) -> Result<(), ConfigError> {
        self.0.check()
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        Box::new(self.0.ts(id, federation.seed, shape.dimension()))
    }

    fn takes_local_features(&self) -> bool {
        true
    }
}
