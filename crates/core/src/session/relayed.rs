//! The machine inside a hub: a coordinator, or a relay that looks like one from below.

use std::collections::BTreeSet;

use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance, KnownCluster};
use crate::error::{DecodeError, ProtocolError};
use crate::ids::{AgentId, Tick};
use crate::message::{Outgoing, Uplink};
use crate::relay::{Passed, Relay};

/// The machine that a hub delivers to.
pub(super) enum Machine {
    Coordinator(Box<dyn Coordinator>),
    Relay(Relayed),
}

/// A relay as its children's coordinator. The hub collects what is said upwards after each call.
pub(super) struct Relayed {
    pub(super) relay: Box<dyn Relay>,
    pub(super) said: Vec<Uplink>,
}

impl Machine {
    pub(super) fn relay(relay: Box<dyn Relay>) -> Self {
        Self::Relay(Relayed { relay, said: Vec::new() })
    }

    pub(super) fn coordinator(&self) -> &dyn Coordinator {
        match self {
            Self::Coordinator(coordinator) => &**coordinator,
            Self::Relay(relayed) => relayed,
        }
    }

    pub(super) fn coordinator_mut(&mut self) -> &mut dyn Coordinator {
        match self {
            Self::Coordinator(coordinator) => &mut **coordinator,
            Self::Relay(relayed) => relayed,
        }
    }
}

impl Relayed {
    fn keep(&mut self, passed: Passed) -> Vec<Outgoing> {
        self.said.extend(passed.up);
        passed.down
    }
}

impl Coordinator for Relayed {
    fn join(&mut self, now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        let passed = self.relay.join(now, agent, entrance);
        self.keep(passed)
    }

    fn leave(&mut self, now: Tick, agent: AgentId) -> Vec<Outgoing> {
        let passed = self.relay.leave(now, agent);
        self.keep(passed)
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        let passed = self.relay.receive(now, from, message)?;
        Ok(self.keep(passed))
    }

    fn tick(&mut self, now: Tick) -> Vec<Outgoing> {
        let passed = self.relay.tick(now);
        self.keep(passed)
    }

    fn tick_without(&mut self, now: Tick, absent: &BTreeSet<AgentId>) -> Vec<Outgoing> {
        let passed = self.relay.tick_without(now, absent);
        self.keep(passed)
    }

    fn deadline(&self) -> Option<Tick> {
        self.relay.deadline()
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.relay.waits_for()
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        self.relay.below()
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        self.relay.child(agent)
    }

    fn clusters(&self) -> Vec<KnownCluster> {
        self.relay.clusters()
    }

    fn save(&self) -> Vec<u8> {
        self.relay.save()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.relay.restore(state)
    }
}
