//! Encodes and decodes the parts of single agents in messages and states of relays.

use super::{parcel_from_wire, parcel_to_wire, required, v1};
use crate::error::DecodeError;
use crate::ids::{AgentId, AgentPath};
use crate::message::AgentPart;
use crate::parcel::Parcel;

pub(crate) fn name_to_wire(path: &AgentPath) -> v1::AgentName {
    v1::AgentName { agent: path.agent.0, relays: numbers(path) }
}

pub(crate) fn name_from_wire(name: v1::AgentName) -> AgentPath {
    path(name.agent, name.relays)
}

pub(crate) fn part_to_wire(part: &AgentPart) -> v1::AgentPart {
    let mut evidence = parcel_to_wire(&part.evidence);
    if evidence.moment.is_empty() && !matches!(part.evidence, Parcel::Rounded(_)) {
        evidence.moment = vec![0.0; part.evidence.dimension()];
        evidence.dimension = 0;
    }
    let path = &part.agent;
    v1::AgentPart { agent: path.agent.0, relays: numbers(path), evidence: Some(Box::new(evidence)) }
}

pub(crate) fn part_from_wire(part: v1::AgentPart) -> Result<AgentPart, DecodeError> {
    let evidence = *required(part.evidence)?;
    // A message has many parts. If each could name a dimension and leave out its numbers, few bytes would ask for much memory.
    if evidence.moment.is_empty() {
        return Err(DecodeError::invalid("part", "its vector is missing"));
    }
    Ok(AgentPart { agent: path(part.agent, part.relays), evidence: parcel_from_wire(evidence)? })
}

pub(crate) fn path(agent: u64, relays: Vec<u64>) -> AgentPath {
    AgentPath { agent: AgentId(agent), relays: relays.into_iter().map(AgentId).collect() }
}

pub(crate) fn numbers(path: &AgentPath) -> Vec<u64> {
    path.relays.iter().map(|relay| relay.0).collect()
}
