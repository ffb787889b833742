//! Thompson sampling: choose what is best under a model drawn from the posterior.

use crate::agent::Choice;
use crate::arms::Arms;
use crate::error::InputError;
use crate::ids::AgentId;
use crate::random::Seed;
use crate::ridge::Ridge;
use crate::scoring::Draws;
use crate::width::Width;

/// θ̃ ~ N(θ̂, v²V(λ)⁻¹), fresh for every choice, v = scale · α.
///
/// In the factor's coordinates this is q + v·η with η ~ N(0, I): a draw costs d normals and nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Thompson {
    scale: f64,
    width: Width,
    draws: Draws,
}

impl Thompson {
    pub(crate) fn new(scale: f64, width: Width, agent: AgentId, seed: Seed) -> Self {
        Self { scale, width, draws: Draws::new(agent, seed) }
    }

    pub(crate) fn choose(
        &self,
        model: &Ridge,
        count: u64,
        arms: &Arms,
        step: u64,
        shrink: f64,
    ) -> Result<Choice, InputError> {
        self.draws.choose(shrink * self.scale * self.width.of(model, count), model, arms, step)
    }
}
