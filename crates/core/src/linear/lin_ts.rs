//! Thompson sampling: choose what is best under a model drawn from the posterior.

use crate::agent::Choice;
use crate::arms::Arms;
use crate::error::InputError;
use crate::ids::AgentId;
use crate::random::{Domain, Seed};
use crate::ridge::Ridge;
use crate::scoring::best_of_sample;
use crate::width::Width;

/// The name of the stream that sampled models come from.
const STREAM: &str = "model-sample";

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

/// An agent's normals, one stream a choice, so that a rule that draws the same numbers chooses the same.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    agent: u64,
    domain: Domain,
}

impl Draws {
    pub(crate) fn new(agent: AgentId, seed: Seed) -> Self {
        Self { agent: agent.0, domain: seed.domain(STREAM) }
    }

    pub(crate) fn stream(&self, step: u64) -> crate::random::Stream {
        self.domain.stream(self.agent, step)
    }

    /// The best arm of N(θ̂, scale²·V(λ)⁻¹).
    pub(crate) fn choose(
        &self,
        scale: f64,
        model: &Ridge,
        arms: &Arms,
        step: u64,
    ) -> Result<Choice, InputError> {
        let mut stream = self.stream(step);
        best_of_sample(model, arms, |_| scale * stream.normal())
    }
}
