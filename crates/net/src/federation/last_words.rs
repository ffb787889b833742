//! The newest message that was accepted of each agent, by its number and a checksum.
//!
//! Two processes with copies of one state can both have a message of the same number on their way. The one whose message was not
//! taken would read the number in an acknowledgement as its own. An agent that joins is told the checksum, so that it finds out
//! that another has spoken, and takes a new life. See decision 0100.

use std::collections::BTreeMap;

use posse_core::session::{LogEntry, LogEvent, UpFrame};
use posse_core::{AgentId, Incarnation};
use tracing::warn;

use crate::log::{Log, LogError};

/// The document beside the log that they are kept in.
const NAME: &str = "last-words.json";

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

    /// Takes note of an entry of the log.
    pub(super) fn note(&mut self, entry: &LogEntry) {
        if let LogEvent::Accepted(agent, UpFrame { incarnation, sequence, message: Some(message), .. }) =
            &entry.event
        {
            let checksum = crc32c::crc32c(&posse_core::wire::encode_uplink(message));
            self.0.insert(*agent, LastWord { life: *incarnation, sequence: *sequence, checksum });
        }
    }

    /// The newest accepted message of a life; `None` if it has none, or none is known.
    pub(super) fn of(&self, agent: AgentId, life: Incarnation) -> Option<LastWord> {
        self.0.get(&agent).copied().filter(|word| word.life == life)
    }
}
