//! How long rounds take, by what agents are told of them.

use std::time::{Duration, Instant};

use posse_core::{Downlink, RoundId, SecureDownlink, Version};

/// Measures one round after the other.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    /// When the open round began, and the coordinator's version then.
    opened: Option<(Instant, Version)>,
    newest: Option<RoundId>,
}

impl Stopwatch {
    /// Looks at a message to an agent; `version` is the coordinator's. If it ends a round, how long that took.
    pub(super) fn note(&mut self, message: &Downlink, version: impl FnOnce() -> Version) -> Option<Duration> {
        let result = match message {
            // An agent that was away may be called to a round that ended long ago.
            Downlink::Collect { round, .. }
            | Downlink::NetworkCollect { round, .. }
            | Downlink::Secure(SecureDownlink::Begin { round })
                if Some(*round) > self.newest =>
            {
                self.opened = Some((Instant::now(), version()));
                self.newest = Some(*round);
                return None;
            }
            Downlink::Commit { version, .. } => Some(*version),
            Downlink::Secure(SecureDownlink::Outcome(outcome)) => Some(outcome.version),
            Downlink::Model(model) => Some(model.version),
            Downlink::Network(model) => Some(model.version),
            Downlink::Abort { .. } => None,
            Downlink::Collect { .. }
            | Downlink::NetworkCollect { .. }
            | Downlink::Secure(_)
            | Downlink::GradientRequest { .. }
            | Downlink::Average(_)
            | Downlink::Snapshot(_)
            | Downlink::Answer(_)
            | Downlink::Receipt { .. }
            | Downlink::Group(_)
            | Downlink::ClusterReceipt { .. }
            | Downlink::Regroup { .. }
            | Downlink::Extension(_) => return None,
        };
        // An agent that joins while a round is open is told the result of an earlier one.
        let (began, _) = self.opened.take_if(|(_, before)| result.is_none_or(|version| version > *before))?;
        Some(began.elapsed())
    }

    /// Forgets the open round, because the state that it belonged to is gone.
    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use posse_core::Evidence;

    use super::*;

    fn collect(round: u64) -> Downlink {
        Downlink::Collect { round: RoundId(round), whole: false }
    }

    fn commit(round: u64, version: u64) -> Downlink {
        let evidence = Arc::new(Evidence::none(1));
        Downlink::Commit { round: RoundId(round), included: true, version: Version(version), evidence }
    }

    #[test]
    fn a_round_is_measured_once_whoever_is_told_of_it_how_often() {
        let mut stopwatch = Stopwatch::default();
        let mut ended = |message: &Downlink, version| stopwatch.note(message, || Version(version)).is_some();
        assert!(!ended(&collect(1), 4) && !ended(&collect(1), 4));
        assert!(!ended(&commit(0, 4), 4), "the result of an earlier round");
        assert!(ended(&commit(1, 5), 5));
        assert!(!ended(&commit(1, 5), 5), "told to the next agent");
        assert!(!ended(&collect(1), 5) && !ended(&commit(1, 5), 5), "told to one that was away");
        assert!(!ended(&collect(2), 5) && ended(&Downlink::Abort { round: RoundId(2) }, 5));
    }
}
