//! What a coordinator's log holds: every accepted event, in order.

use prost::Message;

use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::ids::{AgentId, Epoch, Incarnation, Tick};
use crate::message::Uplink;
use crate::parcel::Parcel;
use crate::session::frame::UpFrame;
use crate::wire::{self, v1};

/// An event that the hub accepted, with its time. A log is a list of these, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// The hub's time when it accepted the event.
    pub tick: Tick,
    /// What happened, with all that a replay needs.
    pub event: LogEvent,
}

/// An event that changes a hub.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEvent {
    /// An agent began a life.
    Joined(AgentId, Incarnation),
    /// An agent came back to a coordinator that had lost part of its history.
    Returned(AgentId),
    /// An agent left for good.
    Left(AgentId),
    /// A message of an agent was accepted, in this frame.
    Accepted(AgentId, UpFrame),
    /// Time passed and the coordinator acted on it.
    Ticked,
    /// The end of the log was lost, or an agent's part was taken out; from here on history goes another way.
    EpochBegan(Epoch),
    /// An operator took out what an agent had shared. Every message that it sent before counts for nothing, which a
    /// hub cannot know by itself: the host leaves them out of the entries that it replays ([`LogEntry::without`]).
    Retracted(AgentId),
}

impl LogEntry {
    /// Encodes the entry as logs keep it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        use v1::log_entry::Event;
        let (agent, event) = match &self.event {
            LogEvent::Joined(agent, incarnation) => (agent.0, Event::Joined(incarnation.0)),
            LogEvent::Returned(agent) => (agent.0, Event::Returned(v1::Returned {})),
            LogEvent::Left(agent) => (agent.0, Event::Left(v1::Left {})),
            LogEvent::Accepted(agent, frame) => (agent.0, Event::Accepted(frame.to_wire())),
            LogEvent::Ticked => (0, Event::Ticked(v1::Ticked {})),
            LogEvent::EpochBegan(epoch) => (0, Event::EpochBegan(epoch.0)),
            LogEvent::Retracted(agent) => (agent.0, Event::Retracted(v1::Retracted {})),
        };
        v1::LogEntry { agent, tick: self.tick.0, event: Some(event) }.encode_to_vec()
    }

    /// Decodes an entry. Fails if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        use v1::log_entry::Event;
        let entry: v1::LogEntry = wire::decode(bytes)?;
        let agent = AgentId(entry.agent);
        let event = match entry.event.ok_or(DecodeError::invalid("log entry", "it has no event"))? {
            Event::Joined(incarnation) => LogEvent::Joined(agent, Incarnation(incarnation)),
            Event::Returned(_) => LogEvent::Returned(agent),
            Event::Left(_) => LogEvent::Left(agent),
            Event::Accepted(frame) => LogEvent::Accepted(agent, UpFrame::from_wire(frame)?),
            Event::Ticked(_) => LogEvent::Ticked,
            Event::EpochBegan(epoch) => LogEvent::EpochBegan(Epoch(epoch)),
            Event::Retracted(_) => LogEvent::Retracted(agent),
        };
        Ok(Self { tick: Tick(entry.tick), event })
    }

    /// The entry as it would be had `agent` never shared anything, or nothing if there would be no such entry.
    ///
    /// Uploads are left out. The agent's parts of rounds are emptied instead, because without its requests and its
    /// answers the rounds of the others would be other rounds. Fails for messages whose traces in what others sent
    /// later cannot be removed: gradients, networks, clusters of users, and messages of algorithms from outside.
    pub fn without(self, agent: AgentId) -> Result<Option<Self>, ProtocolError> {
        let LogEvent::Accepted(from, frame) = &self.event else { return Ok(Some(self)) };
        let is_own = *from == agent;
        match &frame.message {
            Some(Uplink::Evidence(_) | Uplink::Pull(_)) => Ok((!is_own).then_some(self)),
            Some(Uplink::RoundEvidence { round, evidence }) if is_own => {
                let nothing = Parcel::wrap(&Evidence::none(evidence.dimension()));
                let message = Some(Uplink::RoundEvidence { round: *round, evidence: nothing });
                let frame = UpFrame { message, ..frame.clone() };
                Ok(Some(Self { event: LogEvent::Accepted(agent, frame), ..self }))
            }
            Some(Uplink::RoundEvidence { .. } | Uplink::RoundRequest { .. }) | None => Ok(Some(self)),
            Some(other) => Err(ProtocolError::Inseparable(other.kind())),
        }
    }
}
