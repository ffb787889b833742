//! What a coordinator's log holds: every accepted event, in order.

use prost::Message;

use crate::error::DecodeError;
use crate::ids::{AgentId, Epoch, Incarnation, Tick};
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
    /// The end of the log was lost; from here on history goes another way.
    EpochBegan(Epoch),
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
        };
        Ok(Self { tick: Tick(entry.tick), event })
    }
}
