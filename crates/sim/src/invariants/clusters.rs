//! Evidence of clustered users is conserved (INV-2): what the coordinator has of a cluster is what its users
//! observed, without what is on its way or waits, whatever happened to phases, splits and histories.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{Agent, AgentId, Incarnation, KnownCluster, LocalCluster, Uplink};

use super::Invariant;
use crate::observer::{Event, Stage};

#[derive(Default)]
pub(super) struct Clusters {
    /// Observations by agent and life.
    learned: BTreeMap<(AgentId, Incarnation), u64>,
    /// The life of each agent that the coordinator knows.
    in_touch: BTreeMap<AgentId, Incarnation>,
    /// Every life that ever joined.
    lives: BTreeSet<(AgentId, Incarnation)>,
    /// The most that crashes, departures and lost log entries can have taken.
    taken: u64,
    known: u64,
    /// What agents hold that are away and will come back.
    asleep: BTreeMap<AgentId, u64>,
}

impl Clusters {
    fn check_agent(&self, agent: AgentId, quiet: bool, stage: &dyn Stage) -> Result<(), String> {
        let Some(machine) = stage.agent(agent) else { return Ok(()) };
        let life = stage.incarnation(agent);
        let clusters = machine.clusters();
        let held: u64 = clusters.iter().map(|cluster| cluster.count).sum();
        let learned = self.learned.get(&(agent, life)).copied().unwrap_or(0);
        if held != learned {
            return Err(format!("{agent} learned {learned} observations and holds {held}"));
        }
        if self.in_touch.get(&agent) != Some(&life) {
            return Ok(());
        }
        // An agent below relays is known to its own.
        let relays = stage.relays();
        let known = match (relays.last(), stage.relay_of(agent)) {
            (Some(lowest), Some(own)) => lowest[own].clusters(),
            _ => stage.coordinator().clusters(),
        };
        let known = |cluster: &LocalCluster| {
            known.iter().find(|k| k.agent == agent && !k.orphan && k.cluster == cluster.cluster)
        };
        clusters.iter().try_for_each(|cluster| {
            check_cluster(cluster, known(cluster), quiet)
                .map_err(|what| format!("{agent}, {cluster:?}: {what}"))
        })
    }
}

/// Compares a cluster with what the coordinator knows of it.
fn check_cluster(cluster: &LocalCluster, known: Option<&KnownCluster>, quiet: bool) -> Result<(), String> {
    let LocalCluster { count, unsent, in_flight, uploads, .. } = cluster;
    if quiet && *in_flight > 0 {
        return Err("it still waits for an answer".to_owned());
    }
    // Known under a number that the agent has not used yet, or not at all: its list is on its way.
    let Some(known) = known.filter(|known| known.uploads <= *uploads) else {
        let nothing_sent = count == unsent;
        let fine = !quiet || nothing_sent;
        return if fine { Ok(()) } else { Err("the coordinator never heard of it".to_owned()) };
    };
    let arrived = if known.uploads == *uploads { count - unsent } else { count - unsent - in_flight };
    if known.count == arrived {
        Ok(())
    } else {
        Err(format!("the coordinator has {} of {arrived} observations", known.count))
    }
}

/// All that an agent has and the coordinator may not have.
fn held(agent: &dyn Agent) -> u64 {
    agent.clusters().iter().map(|cluster| cluster.unsent + cluster.in_flight).sum()
}

impl Invariant for Clusters {
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String> {
        let known: u64 = stage.coordinator().clusters().iter().map(|cluster| cluster.count).sum();
        match event {
            Event::Learned { agent, .. } => {
                *self.learned.entry((*agent, stage.incarnation(*agent))).or_default() += 1;
            }
            // Whoever joined before a history was lost is in touch again once it has said everything.
            Event::Joined { agent, incarnation } if self.lives.insert((*agent, *incarnation)) => {
                self.in_touch.insert(*agent, *incarnation);
            }
            Event::Up { agent, incarnation, message: Uplink::Clusters(_) } => {
                self.in_touch.insert(*agent, *incarnation);
            }
            Event::Crashing { agent, durable, .. } => {
                let held = stage.agent(*agent).map_or(0, held);
                self.asleep.insert(*agent, held);
                self.taken += if *durable { 0 } else { held };
            }
            Event::Leaving { agent } => {
                let asleep = self.asleep.get(agent).copied().unwrap_or(0);
                self.taken += stage.agent(*agent).map_or(asleep, held);
            }
            Event::Restarted { lost, .. } if *lost > 0 => {
                // Every agent says everything again. Where there are relays, they say it, and agents need not.
                if stage.relays().is_empty() {
                    self.in_touch.clear();
                }
                self.taken += self.known.saturating_sub(known);
            }
            _ => {}
        }
        self.known = known;
        let learned: u64 = self.learned.values().sum();
        if known > learned {
            return Err(format!("{known} observations are shared, {learned} were made"));
        }
        match event {
            Event::Learned { agent, .. } | Event::Up { agent, .. } | Event::Down { agent, .. } => {
                self.check_agent(*agent, false, stage)
            }
            Event::Quiet => {
                stage.agents().into_iter().try_for_each(|agent| self.check_agent(agent, true, stage))?;
                let running = stage.agents().into_iter().filter_map(|agent| stage.agent(agent));
                let relays = stage.relays();
                let between: u64 = relays.iter().flatten().map(|relay| relay.above().held()).sum();
                let all = known + running.map(held).sum::<u64>() + between;
                if all > learned || all + self.taken < learned {
                    let taken = self.taken;
                    return Err(format!(
                        "{all} observations are held, {learned} made, {taken} taken at most"
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
