//! Which life of an agent counts, and which process speaks for it.
//!
//! Two processes with one identity happen: a second one is started by mistake, a machine is cloned, an old state
//! is put back. Exactly one of them is heard; the others are told that they were superseded, so that they do not
//! go on collecting rewards that never reach the coordinator. See decision 0050.

use std::collections::BTreeMap;

use posse_core::session::Hub;
use posse_core::{AgentId, Incarnation};

use super::{Process, Reason, Refusal};
use crate::log::KeptLife;

/// How far above the newest known life a frame's may be. The coordinator gives lives out one by one but forgets in
/// a restart what it gave out to agents that had not spoken yet; no agent starts a million times unheard.
const AHEAD: u64 = 1 << 20;

/// The lives given out and the processes that live them. Beside files they are kept in memory only: after a restart of the
/// coordinator the first process that joins for an agent is the one that is heard. A log that several coordinators share
/// keeps them, because two coordinators must not give out the same life.
#[derive(Debug, Default)]
pub(super) struct Lives {
    given_out: BTreeMap<AgentId, Incarnation>,
    instances: BTreeMap<AgentId, u64>,
}

impl Lives {
    /// Those that a log has kept.
    pub(super) fn from_kept(kept: &[KeptLife]) -> Self {
        let mut lives = Self::default();
        for KeptLife { agent, life, instance } in kept {
            lives.given_out.insert(AgentId(*agent), Incarnation(*life));
            if *instance != 0 {
                lives.instances.insert(AgentId(*agent), *instance);
            }
        }
        lives
    }

    /// What a log has to keep of an agent before it is answered.
    pub(super) fn to_keep(&self, agent: AgentId) -> KeptLife {
        let life = self.given_out.get(&agent).map_or(0, |life| life.0);
        let instance = self.instances.get(&agent).copied().unwrap_or(0);
        KeptLife { agent: agent.0, life, instance }
    }

    /// The number of a new life for `agent`, or 0 for one that resumes. Refuses a process whose state is a copy of
    /// one that another process has used since.
    pub(super) fn join(
        &mut self,
        hub: &Hub,
        agent: AgentId,
        resumes: bool,
        process: &Process,
    ) -> Result<Incarnation, Refusal> {
        if resumes {
            let known = self.instances.get(&agent).copied();
            let is_heir =
                known.is_none_or(|known| known == process.instance || process.previous.contains(&known));
            if process.instance != 0 && !is_heir {
                let why = format!(
                    "another process speaks for {agent}, and its state is newer or not a copy of this one"
                );
                return Err(Refusal::new(Reason::Superseded, why));
            }
            if process.life > Incarnation(0) {
                self.check(hub, agent, process.life)?;
            }
            self.speaks(agent, process);
            return Ok(Incarnation(0));
        }
        // The coordinator may have forgotten in a restart that it gave out the life that ends here. A new life of the same number
        // could not be told from it.
        let known = self.newest(hub, agent);
        let ends = if process.life.0 <= known.0.saturating_add(AHEAD) { process.life } else { known };
        let newest = known.max(ends);
        let Some(life) = newest.0.checked_add(1) else {
            let why = format!("{agent} has used up the numbers of its lives: give it another agent number");
            return Err(Refusal::new(Reason::Sequence, why));
        };
        self.given_out.insert(agent, Incarnation(life));
        self.speaks(agent, process);
        Ok(Incarnation(life))
    }

    /// `Ok` if the process that names `instance` is the one that joined last. What it was told at its join holds for it alone: a
    /// process that joined before it, or at this coordinator before a restart, must join again before it is heard. Agents of
    /// earlier versions name no instance outside their joins, and are believed.
    pub(super) fn may_speak(&self, agent: AgentId, instance: Option<u64>) -> Result<(), Refusal> {
        let Some(instance) = instance else { return Ok(()) };
        let why = match self.instances.get(&agent) {
            Some(known) if *known == instance => return Ok(()),
            Some(_) => format!("another process has joined for {agent} since: join again"),
            None => format!("no process has joined for {agent} since the coordinator started: join first"),
        };
        Err(Refusal::new(Reason::NotJoined, why))
    }

    /// `Ok` if a frame of this life may be heard: it has not ended, and could have been given out.
    pub(super) fn check(&self, hub: &Hub, agent: AgentId, life: Incarnation) -> Result<(), Refusal> {
        let newest = hub.last_incarnation(agent);
        let left = newest == Some(life) && hub.incarnation(agent).is_none();
        if let Some(newest) = newest.filter(|newest| life < *newest || left) {
            let why = if left {
                format!("life {} of {agent} has left the federation", life.0)
            } else {
                format!("life {} of {agent} ended when life {} began", life.0, newest.0)
            };
            return Err(Refusal::new(Reason::Superseded, why));
        }
        if life.0 > self.newest(hub, agent).0.saturating_add(AHEAD) {
            let why = format!("life {} of {agent} was not given out: join first", life.0);
            return Err(Refusal::new(Reason::Sequence, why));
        }
        Ok(())
    }

    /// The process that spoke for `agent` last, if it named itself.
    pub(super) fn speaker(&self, agent: AgentId) -> Option<u64> {
        self.instances.get(&agent).copied()
    }

    fn newest(&self, hub: &Hub, agent: AgentId) -> Incarnation {
        let given_out = self.given_out.get(&agent).copied().unwrap_or_default();
        hub.last_incarnation(agent).unwrap_or_default().max(given_out)
    }

    fn speaks(&mut self, agent: AgentId, process: &Process) {
        if process.instance != 0 {
            self.instances.insert(agent, process.instance);
        }
    }
}
