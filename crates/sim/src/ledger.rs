//! Who paid what: the totals of a run divided by agent, and by kind of message.

use std::collections::BTreeMap;

use posse_core::Cost;

use crate::observer::{Direction, Event, Observer, Sent, Stage};

/// What one agent's part of a run adds up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// How many interactions the agent had.
    pub interactions: u64,
    /// Σ over its interactions of the best arm's mean minus the chosen arm's.
    pub regret: f64,
    /// Σ of the rewards that the agent received.
    pub reward: f64,
    /// What the agent's messages cost.
    pub up: Cost,
    /// What the messages cost that the coordinator sent to the agent.
    pub down: Cost,
}

/// Divides a run by agent and by kind of message; the sums over either are the run's [`Tally`](crate::Tally).
#[derive(Clone, Debug)]
pub struct Ledger {
    agents: Vec<Share>,
    kinds: BTreeMap<(Direction, &'static str), Cost>,
}

impl Ledger {
    /// The ledger of a run with so many agents.
    #[must_use]
    pub fn new(agents: u64) -> Self {
        let count = usize::try_from(agents).expect("agents fit in memory");
        Self { agents: vec![Share::default(); count], kinds: BTreeMap::new() }
    }

    /// Every agent's part, by id, those that never acted too.
    #[must_use]
    pub fn agents(&self) -> &[Share] {
        &self.agents
    }

    /// What was sent of each kind, in each direction.
    pub fn kinds(&self) -> impl Iterator<Item = (Direction, &'static str, Cost)> + '_ {
        self.kinds.iter().map(|((direction, kind), cost)| (*direction, *kind, *cost))
    }
}

impl Observer for Ledger {
    fn observe(&mut self, event: &Event<'_>, _stage: &dyn Stage) {
        match event {
            Event::Chose { agent, regret, .. } => {
                let share = &mut self.agents[agent.0 as usize];
                share.interactions += 1;
                share.regret += regret;
            }
            Event::Learned { agent, reward } => self.agents[agent.0 as usize].reward += reward,
            _ => {}
        }
    }

    fn looks_at_machines(&self) -> bool {
        false
    }

    fn sent(&mut self, sent: &Sent) {
        let share = &mut self.agents[sent.agent.0 as usize];
        match sent.direction {
            Direction::Up => share.up.add(sent.cost),
            Direction::Down => share.down.add(sent.cost),
        }
        self.kinds.entry((sent.direction, sent.kind)).or_default().add(sent.cost);
    }
}
