//! The newest message that was accepted of each agent, by its number and a checksum.
//!
//! Two processes with copies of one state can both have a message of the same number on their way. The one whose message was not
//! taken would read the number in an acknowledgement as its own. An agent that joins is told the checksum, so that it finds out
//! that another has spoken, and takes a new life. See decision 0100.

use std::collections::BTreeMap;

use posse_core::session::{LogEntry, LogEvent, UpFrame};
use posse_core::{AgentId, Incarnation};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tracing::warn;

use crate::log::{Log, LogError};

/// The document beside the log that they are kept in.
const NAME: &str = "last-words.json";

/// The field `message` of `UpFrame`, and the field `accepted` of `LogEntry`, in frame.proto.
const MESSAGE: u32 = 5;
const ACCEPTED: u32 = 5;

/// A message as its agent recognises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastWord {
    pub(crate) life: Incarnation,
    pub(crate) sequence: u64,
    pub(crate) checksum: u32,
}

/// The newest accepted message of every agent.
#[derive(Debug, Default)]
pub(super) struct LastWords(BTreeMap<AgentId, LastWord>);

impl LastWords {
    /// Those that were kept with a saved state; none if there is no such file, or if it cannot be read: then agents are told
    /// no checksum until they speak again.
    pub(super) fn read(log: &mut dyn Log) -> Self {
        let Ok(Some(text)) = log.beside(NAME) else { return Self::default() };
        let read: Result<BTreeMap<u64, (u64, u64, u32)>, _> = serde_json::from_slice(&text);
        let known = read.unwrap_or_else(|error| {
            warn!(%error, "the newest messages of agents cannot be read");
            BTreeMap::new()
        });
        let word = |(agent, (life, sequence, checksum))| {
            (AgentId(agent), LastWord { life: Incarnation(life), sequence, checksum })
        };
        Self(known.into_iter().map(word).collect())
    }

    /// Keeps them beside a state that is saved next, after which the messages may be gone from the log. Those that are newer
    /// than the saved state do no harm: the entries after it lead to them again.
    pub(super) fn keep(&self, log: &mut dyn Log) -> Result<(), LogError> {
        let known: BTreeMap<u64, (u64, u64, u32)> = self
            .0
            .iter()
            .map(|(agent, word)| (agent.0, (word.life.0, word.sequence, word.checksum)))
            .collect();
        let text = serde_json::to_string(&known).expect("numbers are keys");
        log.keep_beside(NAME, text.as_bytes())
    }

    /// Takes note of an entry of the log. `frame` is what the frame of an accepted message was decoded from: its message need
    /// not be encoded again.
    pub(super) fn note(&mut self, entry: &LogEntry, frame: &[u8]) {
        if let LogEvent::Accepted(agent, UpFrame { incarnation, sequence, message: Some(message), .. }) =
            &entry.event
        {
            let checksum = match only_field(frame, MESSAGE) {
                Some(bytes) => crc32c::crc32c(bytes),
                None => crc32c::crc32c(&posse_core::wire::encode_uplink(message)),
            };
            self.0.insert(*agent, LastWord { life: *incarnation, sequence: *sequence, checksum });
        }
    }

    /// The same for an entry with the bytes that the log keeps of it.
    pub(super) fn note_kept(&mut self, entry: &LogEntry, bytes: &[u8]) {
        self.note(entry, only_field(bytes, ACCEPTED).unwrap_or_default());
    }

    /// The newest accepted message of a life; `None` if it has none, or none is known.
    pub(super) fn of(&self, agent: AgentId, life: Incarnation) -> Option<LastWord> {
        self.0.get(&agent).copied().filter(|word| word.life == life)
    }
}

/// The bytes of the message that is field `number` of an encoded message. `None` if it is not there exactly once: parts of a
/// message that come one by one are merged by whoever decodes them.
fn only_field(mut encoded: &[u8], number: u32) -> Option<&[u8]> {
    let mut found = None;
    while !encoded.is_empty() {
        let (tag, wire_type) = decode_key(&mut encoded).ok()?;
        if (tag, wire_type) != (number, WireType::LengthDelimited) {
            skip_field(wire_type, tag, &mut encoded, DecodeContext::default()).ok()?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut encoded).ok()?).ok()?;
        let (own, rest) = encoded.split_at_checked(length)?;
        encoded = rest;
        if found.replace(own).is_some() {
            return None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use posse_core::wire::encode_uplink;
    use posse_core::{Epoch, Evidence, EvidenceUpload, Parcel, Tick, Uplink, Version};

    use super::*;

    fn frame() -> UpFrame {
        let mut evidence = Evidence::none(3);
        evidence.observe(&[0.5; 3], 1.0).unwrap();
        let (number, based_on, evidence) = (1, Version(2), Parcel::wrap(&evidence));
        let upload = EvidenceUpload { number, based_on, information: 0.5, evidence };
        UpFrame {
            epoch: Epoch(1),
            incarnation: Incarnation(2),
            acknowledged: 3,
            sequence: 7,
            message: Some(Uplink::Evidence(upload)),
            greeting: 0,
        }
    }

    #[test]
    fn the_checksum_of_what_came_is_that_of_what_the_agent_encodes() {
        let frame = frame();
        let (bytes, agent) = (frame.encode(), AgentId(4));
        let expected = crc32c::crc32c(&encode_uplink(frame.message.as_ref().unwrap()));
        let entry = LogEntry { tick: Tick(9), event: LogEvent::Accepted(agent, frame) };
        let kept = entry.encode_received(&bytes);
        // The frame twice over means the same, and no part of it is the message by itself.
        let twice = [&bytes[..], &bytes[..]].concat();
        let noted: [&dyn Fn(&mut LastWords); 4] = [
            &|words| words.note(&entry, &bytes),
            &|words| words.note(&entry, &[]),
            &|words| words.note(&entry, &twice),
            &|words| words.note_kept(&entry, &kept),
        ];
        for note in noted {
            let mut words = LastWords::default();
            note(&mut words);
            let word = LastWord { life: Incarnation(2), sequence: 7, checksum: expected };
            assert_eq!(words.of(agent, Incarnation(2)), Some(word));
        }
    }

    #[test]
    fn a_field_is_found_only_if_it_is_there_once_and_whole() {
        // Field 5 with two bytes, and field 1, a number.
        let (own, other) = ([0x2a, 2, 8, 9], [0x08, 0x96, 0x01]);
        assert_eq!(only_field(&[&other[..], &own, &other].concat(), 5), Some(&[8, 9][..]));
        assert_eq!(only_field(&[own, own].concat(), 5), None);
        assert_eq!(only_field(&other, 5), None);
        assert_eq!(only_field(&own[..3], 5), None);
        assert_eq!(only_field(&[0x2a, 0xff, 0xff, 0xff, 0xff, 0x7f], 5), None);
    }
}
