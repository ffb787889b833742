//! Where privacy noise comes from.

use std::fmt;

use crate::ids::{AgentId, Incarnation};
use crate::random::Seed;

/// A node of a tree of partial sums: its noise is drawn once, whatever is released with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// Which tree of the agent.
    pub tree: u64,
    /// Leaves are at level 0.
    pub level: u32,
    /// Counted from 1 along the level.
    pub index: u64,
}

/// Draws the noise of nodes.
///
/// Simulations repeat: their noise is a function of the seed ([`SeededNoise`]). A deployment must not be
/// predictable: there, implement this with the operating system's generator and hand it to the agent
/// ([`Agent::use_noise`](crate::Agent::use_noise)) before its first release.
pub trait NoiseSource: Send + fmt::Debug {
    /// Fills `out` with independent standard normals, for this node and never again for it: a tree keeps them
    /// as long as it needs them. An agent that does everything again after a crash asks again, and must get
    /// the same.
    fn fill(&mut self, node: Node, out: &mut [f64]);

    /// Another life of the agent begins: what was drawn for nodes of the last one must not come again.
    fn begin_life(&mut self, _life: Incarnation) {}
}

/// Noise from the seed of a run, different for each agent and each of its lives. For simulations only:
/// whoever knows the seed can subtract it.
#[derive(Clone, Debug)]
pub struct SeededNoise {
    seed: Seed,
    agent: AgentId,
    life: Incarnation,
}

impl SeededNoise {
    /// The noise of an agent in its first life.
    #[must_use]
    pub const fn new(seed: Seed, agent: AgentId) -> Self {
        Self { seed, agent, life: Incarnation(0) }
    }
}

impl NoiseSource for SeededNoise {
    fn fill(&mut self, node: Node, out: &mut [f64]) {
        let Self { seed, agent, life } = self;
        let domain = seed.domain(&format!("privacy {} {} {}", agent.0, life.0, node.tree));
        let mut stream = domain.stream(u64::from(node.level), node.index);
        out.fill_with(|| stream.normal());
    }

    fn begin_life(&mut self, life: Incarnation) {
        self.life = life;
    }
}
