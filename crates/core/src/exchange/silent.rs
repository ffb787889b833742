//! A coordinator that has nothing to coordinate.

use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::ids::{AgentId, Tick, Version};
use crate::message::{Outgoing, Uplink};

/// For algorithms whose agents never speak.
#[derive(Clone, Debug)]
pub(crate) struct Silent {
    name: &'static str,
}

impl Silent {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name }
    }
}

impl Coordinator for Silent {
    fn join(&mut self, _now: Tick, _agent: AgentId, _entrance: Entrance) -> Vec<Outgoing> {
        Vec::new()
    }

    fn leave(&mut self, _now: Tick, _agent: AgentId) -> Vec<Outgoing> {
        Vec::new()
    }

    fn receive(
        &mut self,
        _now: Tick,
        _from: AgentId,
        message: Uplink,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        Err(ProtocolError::Unexpected { algorithm: self.name, message: message.kind() })
    }

    /// Its agents never speak.
    fn only_notes(&self, _agents: &[AgentId]) -> bool {
        true
    }

    fn tick(&mut self, _now: Tick) -> Vec<Outgoing> {
        Vec::new()
    }

    fn deadline(&self) -> Option<Tick> {
        None
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        CoordinatorView { version: Version(0), observations: 0, information: 0.0, agents: 0, evidence: None }
    }

    fn agent(&self, _agent: AgentId) -> Option<AgentStanding> {
        None
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        if state.is_empty() { Ok(()) } else { Err(DecodeError::invalid("state", "it should be empty")) }
    }
}
