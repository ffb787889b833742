//! What a coordinator's log holds: every accepted event, in order.

use std::collections::BTreeSet;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::ids::{AgentId, Epoch, Incarnation, Tick};
use crate::message::Uplink;
use crate::parcel::Parcel;
use crate::session::frame::{DownFrame, UpFrame};
use crate::wire::{self, v1};

/// The field of an accepted frame in `LogEntry` of frame.proto.
const ACCEPTED: u32 = 5;

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
    /// Time passed, or all agents that a round waited for were away, and the coordinator acted on it. These of them were
    /// away and do not count for the quorum.
    TickedWithout(BTreeSet<AgentId>),
    /// The end of the log was lost, or an agent's part was taken out; from here on history goes another way.
    EpochBegan(Epoch),
    /// An operator took out what an agent had shared. Every message that it sent before counts for nothing, which a
    /// hub cannot know by itself: the host leaves them out of the entries that it replays ([`LogEntry::without`]).
    Retracted(AgentId),
    /// A relay took in a message of its parent, in this frame.
    Heard(DownFrame),
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
            LogEvent::TickedWithout(absent) => {
                let absent = absent.iter().map(|agent| agent.0).collect();
                (0, Event::TickedWithout(v1::TickedWithout { absent }))
            }
            LogEvent::EpochBegan(epoch) => (0, Event::EpochBegan(epoch.0)),
            LogEvent::Retracted(agent) => (agent.0, Event::Retracted(v1::Retracted {})),
            LogEvent::Heard(frame) => (0, Event::Heard(frame.to_wire())),
        };
        v1::LogEntry { agent, tick: self.tick.0, event: Some(event) }.encode_to_vec()
    }

    /// Encodes the entry as logs keep it, where `frame` is what the frame of an accepted message was decoded from: it
    /// is copied, not made again. Other entries do not look at it; without a frame everything is encoded.
    #[must_use]
    pub fn encode_received(&self, frame: &[u8]) -> Vec<u8> {
        let LogEvent::Accepted(agent, _) = &self.event else { return self.encode() };
        if frame.is_empty() {
            return self.encode();
        }
        // Of the fields before the event, encoded with their tags, only the event itself is missing.
        let head = v1::LogEntry { agent: agent.0, tick: self.tick.0, event: None };
        let mut entry = Vec::with_capacity(head.encoded_len() + 11 + frame.len());
        head.encode_raw(&mut entry);
        encode_key(ACCEPTED, WireType::LengthDelimited, &mut entry);
        encode_varint(frame.len() as u64, &mut entry);
        entry.extend_from_slice(frame);
        entry
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
            Event::TickedWithout(ticked) => {
                LogEvent::TickedWithout(ticked.absent.into_iter().map(AgentId).collect())
            }
            Event::EpochBegan(epoch) => LogEvent::EpochBegan(Epoch(epoch)),
            Event::Retracted(_) => LogEvent::Retracted(agent),
            Event::Heard(frame) => LogEvent::Heard(DownFrame::from_wire(frame)?),
        };
        Ok(Self { tick: Tick(entry.tick), event })
    }

    /// The entry as it would be had `agent` never shared anything, or nothing if there would be no such entry.
    ///
    /// Uploads are left out. The agent's parts of rounds are emptied instead, because without its requests and its
    /// answers the rounds of the others would be other rounds. Fails for messages whose traces in what others sent
    /// later cannot be removed: gradients, networks, clusters of users, sums under masks, and messages of algorithms from outside.
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
            // Of a relay: the parts of all agents below it.
            Some(Uplink::RoundParts { round, .. }) if is_own => {
                let message = Some(Uplink::RoundParts { round: *round, parts: Vec::new() });
                let frame = UpFrame { message, ..frame.clone() };
                Ok(Some(Self { event: LogEvent::Accepted(agent, frame), ..self }))
            }
            Some(
                Uplink::RoundEvidence { .. }
                | Uplink::RoundParts { .. }
                | Uplink::RoundRequest { .. }
                | Uplink::RoundLoss { .. },
            )
            | None => Ok(Some(self)),
            Some(
                message @ (Uplink::Secure(_)
                | Uplink::Cluster(_)
                | Uplink::Clusters(_)
                | Uplink::Gradient(_)
                | Uplink::NetworkRequest { .. }
                | Uplink::NetworkPart(_)
                | Uplink::Weights(_)
                | Uplink::Extension(_)),
            ) => Err(ProtocolError::Inseparable(message.kind())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, Version};
    use crate::message::EvidenceUpload;

    #[test]
    fn an_entry_around_received_bytes_is_the_entry() {
        let mut evidence = Evidence::none(9);
        evidence.observe(&[0.5; 9], 1.0).unwrap();
        let upload = EvidenceUpload {
            number: 1,
            based_on: Version(2),
            information: 0.5,
            evidence: Parcel::wrap(&evidence),
        };
        let frame = UpFrame {
            epoch: Epoch(1),
            incarnation: Incarnation(2),
            acknowledged: 3,
            sequence: 1,
            message: Some(Uplink::Evidence(upload)),
            greeting: 0,
        };
        let bytes = frame.encode();
        let entry =
            LogEntry { tick: Tick(1_700_000_000_000_000), event: LogEvent::Accepted(AgentId(300), frame) };
        assert_eq!(entry.encode_received(&bytes), entry.encode());
        assert_eq!(entry.encode_received(&[]), entry.encode());
        // A field that this version does not know: kept, and no obstacle to reading the entry.
        let longer = [&bytes[..], &[0xa0, 0x06, 0x05]].concat();
        let kept = entry.encode_received(&longer);
        assert!(kept.ends_with(&longer));
        assert_eq!(LogEntry::decode(&kept).unwrap(), entry);
        let left = LogEntry { tick: Tick(5), event: LogEvent::Left(AgentId(1)) };
        assert_eq!(left.encode_received(&bytes), left.encode());
    }
}
