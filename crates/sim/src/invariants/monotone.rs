//! The coordinator only ever learns: its version and its information never decrease, and no agent is ahead
//! of it (INV-3).

use posse_core::{Algorithm, Sharing, Version};

use super::Invariant;
use crate::observer::{Event, Stage};

#[derive(Default)]
pub(super) struct Monotone {
    /// Rounds of minimisation let go of the observations of agents that are gone, and know less then.
    may_let_go: bool,
    version: Version,
    information: f64,
    /// History was lost: agents that have not heard of it may be ahead.
    lost: bool,
}

impl Monotone {
    pub(super) fn of(algorithm: &Algorithm) -> Self {
        let may_let_go = algorithm.sharing() == Sharing::MinimisedRounds;
        Self { may_let_go, ..Self::default() }
    }
}

impl Invariant for Monotone {
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String> {
        let now = stage.coordinator().inspect();
        if let Event::Restarted { lost, same_bits } = event {
            if !same_bits {
                return Err("replaying the log gave other bits".to_owned());
            }
            if *lost > 0 {
                self.lost = true;
                (self.version, self.information) = (now.version, now.information);
            }
        }
        let slack = 1e-9 * self.information.max(1.0);
        // Where agents are held against each other, those that are believed no longer take what they said with them.
        let may_let_go = self.may_let_go || !stage.coordinator().accounts().is_empty();
        let knows_less = now.information < self.information - slack && !may_let_go;
        if now.version < self.version || knows_less {
            return Err(format!("the coordinator went back from version {}", self.version.0));
        }
        (self.version, self.information) = (now.version, now.information);
        if let Event::Down { agent, .. } = event {
            // Versions are those of the machine that the agent speaks to.
            let relays = stage.relays();
            let parent = relays.last().zip(stage.relay_of(*agent)).map(|(relays, own)| relays[own]);
            let version = parent.map_or(now.version, |relay| relay.below().version);
            let ahead = stage.agent(*agent).is_some_and(|agent| agent.inspect().version > version);
            if ahead && !self.lost {
                return Err(format!("{agent} has evidence from the future"));
            }
        }
        Ok(())
    }
}
