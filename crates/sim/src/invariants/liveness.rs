//! Checks that once links heal and all is quiet, no agent waits for an answer that will not come.

use super::Invariant;
use crate::observer::{Event, Stage};

pub(super) struct Liveness;

impl Invariant for Liveness {
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String> {
        let Event::Quiet = event else { return Ok(()) };
        for agent in stage.agents() {
            if let Some((number, _)) = stage.agent(agent).and_then(|machine| machine.inspect().in_flight) {
                return Err(format!("{agent} still waits for an answer to upload {number}"));
            }
        }
        for (depth, relays) in stage.relays().into_iter().enumerate() {
            for (relay, machine) in relays.into_iter().enumerate() {
                if let Some((number, _)) = machine.above().in_flight {
                    return Err(format!(
                        "relay {relay} of depth {depth} still waits for an answer to upload {number}"
                    ));
                }
            }
        }
        Ok(())
    }
}
