//! Which agents are awake: in very large federations most rest.

use std::collections::VecDeque;

use posse_core::AgentId;

/// How many agents stay awake: those that acted lately keep their models, the others derive them again when they act.
/// A model of 25 features takes four kilobytes, so these take 64 MB.
pub(in crate::simulation) const AWAKE: usize = 1 << 14;

/// The agents that acted lately, in the order in which they woke up.
pub(super) struct Awake {
    most: usize,
    order: VecDeque<AgentId>,
    /// Whether each agent is in `order`.
    is: Vec<bool>,
}

impl Awake {
    /// Of so many agents, `most` may be awake at a time.
    pub(super) fn new(most: usize, agents: usize) -> Self {
        Self { most, order: VecDeque::new(), is: vec![false; agents] }
    }

    /// Takes in that an agent acted. Returns the agent that is to rest instead, if there are too many.
    pub(super) fn acted(&mut self, agent: AgentId) -> Option<AgentId> {
        if std::mem::replace(&mut self.is[agent.0 as usize], true) {
            return None;
        }
        self.order.push_back(agent);
        let tired = (self.order.len() > self.most).then(|| self.order.pop_front())??;
        self.is[tired.0 as usize] = false;
        Some(tired)
    }
}
