//! What every member of a federation is told when it starts.

use crate::random::Seed;

/// What every member of a federation is told when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Federation {
    /// How many agents there are, or are expected.
    pub agents: u64,
    /// How many interactions are expected in all; some widths grow with its logarithm.
    pub horizon: u64,
    /// The seed that all random choices of the run are drawn from.
    pub seed: Seed,
}

/// Where an algorithm's learners live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each agent has a learner of its own.
    PerAgent,
    /// One learner serves all agents, which send it every interaction.
    Central,
}
