//! Parts of a round agent by agent, as relays pass them on where agents are held against each other.

use std::collections::BTreeSet;

use crate::error::ProtocolError;
use crate::ids::{AgentId, AgentPath};
use crate::message::AgentPart;
use crate::parcel::Parcel;

/// What a child may say that is a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListLimits {
    /// How many relays may lie between the child and an agent that it names.
    relays: usize,
    /// How many agents it may ever speak for.
    agents: usize,
}

impl ListLimits {
    /// The limits for children of a machine `depth` links below the root, of so many `levels` of links. `None` if they are
    /// agents, which speak for themselves only.
    pub(crate) fn of_children(depth: usize, levels: usize, agents: u64) -> Option<Self> {
        let relays = levels.checked_sub(depth + 2)?;
        Some(Self { relays, agents: usize::try_from(agents).unwrap_or(usize::MAX) })
    }

    pub(crate) const fn agents(&self) -> usize {
        self.agents
    }

    /// The parts in the list of a child, by the paths that agents have seen from here. Fails unless each has something in it
    /// that is possible for itself, agents are in order, each once, and no deeper than the tree.
    pub(crate) fn check(
        &self,
        child: AgentId,
        dimension: usize,
        parts: Vec<AgentPart>,
    ) -> Result<Vec<AgentPart>, ProtocolError> {
        if !parts.is_sorted_by(|one, next| one.agent < next.agent) {
            return Err(ProtocolError::Evidence("agents are named twice or out of order"));
        }
        if parts.iter().any(|part| part.agent.relays.len() > self.relays) {
            return Err(ProtocolError::Evidence("an agent is named below more relays than there are"));
        }
        let part = |part: AgentPart| {
            let agent = part.agent.below(child);
            Ok(AgentPart { agent, ..checked(part, dimension)? })
        };
        let parts = parts.into_iter().map(part).collect::<Result<Vec<_>, _>>()?;
        if parts.iter().any(|part| part.evidence.is_nothing()) {
            return Err(ProtocolError::Evidence("a part with nothing in it"));
        }
        Ok(parts)
    }
}

/// A part of the right dimension that observations can have given, in one of the forms that travel in lists.
pub(crate) fn checked(part: AgentPart, dimension: usize) -> Result<AgentPart, ProtocolError> {
    let (expected, got) = (dimension, part.evidence.dimension());
    if expected != got {
        return Err(ProtocolError::Dimension { expected, got });
    }
    part.evidence.evidence().check()?;
    let evidence = match part.evidence {
        Parcel::Rounded(_) => Parcel::Dense(part.evidence.evidence().clone()),
        exact => exact,
    };
    Ok(AgentPart { evidence, ..part })
}

/// Whether the child `child` speaks for the agent.
pub(crate) fn speaks_for(child: AgentId, agent: &AgentPath) -> bool {
    *agent.relays.first().unwrap_or(&agent.agent) == child
}

/// What a relay keeps that answers with lists of parts.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// What its children may say, if they are relays.
    pub(crate) children: Option<ListLimits>,
    /// How many agents it may ever speak for itself.
    agents: usize,
    /// The agents that it ever spoke for.
    pub(crate) named: BTreeSet<AgentPath>,
}

impl Listing {
    pub(crate) fn new(children: Option<ListLimits>, agents: u64) -> Self {
        let agents = usize::try_from(agents).unwrap_or(usize::MAX);
        Self { children, agents, named: BTreeSet::new() }
    }

    /// Notes that the relay speaks for the agents of these parts. Returns `false`, and notes nothing, if that would be more
    /// agents than it may speak for.
    pub(crate) fn name(&mut self, parts: &[AgentPart]) -> bool {
        let new = parts.iter().filter(|part| !self.named.contains(&part.agent)).count();
        if self.named.len() + new > self.agents {
            return false;
        }
        self.named.extend(parts.iter().map(|part| part.agent.clone()));
        true
    }
}
