//! Evidence is conserved: nothing is counted twice and nothing is lost but what crashes took (INV-2).

use std::collections::BTreeMap;

use posse_core::{
    Agent, AgentAccount, AgentId, AgentView, Algorithm, Evidence, EvidenceUpload, Incarnation, Sharing,
    Uplink,
};

use super::Invariant;
use super::clusters::Clusters;
use crate::observer::{Event, Stage};

pub(super) fn of(algorithm: &Algorithm) -> Box<dyn Invariant> {
    match algorithm.sharing() {
        Sharing::Nothing | Sharing::Uploads => Box::new(Uploads::default()),
        Sharing::MinimisedRounds => Box::new(Records { forgets: false, ..Records::default() }),
        Sharing::OnlineRounds => Box::new(Records { forgets: true, ..Records::default() }),
        Sharing::Clusters => Box::new(Clusters::default()),
        // Of algorithms from outside nothing is known but counts, which is what rounds are checked by.
        _ => Box::new(RoundCounts::default()),
    }
}

/// For uploads: the coordinator has exactly what it accepted, and each agent has exactly what it learned
/// and the coordinator has not.
#[derive(Default)]
struct Uploads {
    /// Every accepted upload, in order.
    accepted: Vec<Accepted>,
    /// Observations by agent and life.
    learned: BTreeMap<(AgentId, Incarnation), u64>,
    /// Observations that were confirmed and then lost with the end of the log.
    lost: BTreeMap<(AgentId, Incarnation), u64>,
    /// Observations of an upload that the log lost while it was in flight: sent again, unless a message
    /// from before the loss confirms it.
    limbo: BTreeMap<(AgentId, Incarnation), u64>,
    /// Uploads in flight of agents that are away and will come back.
    asleep: BTreeMap<AgentId, Option<u64>>,
}

struct Accepted {
    life: (AgentId, Incarnation),
    number: u64,
    evidence: Evidence,
}

impl Uploads {
    /// The end of the log is gone, and with it the last uploads.
    fn forget(&mut self, stage: &dyn Stage) {
        let left = stage.coordinator().inspect().observations;
        let mut total: u64 = self.accepted.iter().map(|upload| upload.evidence.count()).sum();
        while let Some(gone) = self.accepted.pop_if(|_| total > left) {
            total -= gone.evidence.count();
            let (agent, incarnation) = gone.life;
            let in_flight = match self.asleep.get(&agent) {
                Some(number) => *number,
                None => stage.agent(agent).and_then(|a| a.inspect().in_flight).map(|(number, _)| number),
            };
            if in_flight == Some(gone.number) && stage.incarnation(agent) == incarnation {
                self.limbo.insert(gone.life, gone.evidence.count());
            } else {
                *self.lost.entry(gone.life).or_default() += gone.evidence.count();
            }
        }
    }

    fn check_coordinator(&self, stage: &dyn Stage) -> Result<(), String> {
        let view = stage.coordinator().inspect();
        let count: u64 = self.accepted.iter().map(|upload| upload.evidence.count()).sum();
        if view.observations != count {
            return Err(format!(
                "the coordinator holds {} observations, accepted {count}",
                view.observations
            ));
        }
        let Some(held) = view.evidence else { return Ok(()) };
        let mut sum = Evidence::none(held.dimension());
        self.accepted.iter().for_each(|upload| sum.add(&upload.evidence));
        let scale = sum.gram().iter().fold(1.0_f64, |a, b| a.max(b.abs()));
        let off = |a: &[f64], b: &[f64]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-9 * scale);
        if off(held.gram(), sum.gram()) || off(held.moment(), sum.moment()) {
            return Err("the coordinator's sums are not those of the accepted uploads".to_owned());
        }
        Ok(())
    }

    fn check_agent(&mut self, agent: AgentId, stage: &dyn Stage) -> Result<(), String> {
        let Some(machine) = stage.agent(agent) else { return Ok(()) };
        let life = (agent, stage.incarnation(agent));
        let of_life = || self.accepted.iter().filter(|upload| upload.life == life);
        let accepted: u64 = of_life().map(|upload| upload.evidence.count()).sum();
        let learned = self.learned.get(&life).copied().unwrap_or(0);
        let lost = self.lost.get(&life).copied().unwrap_or(0);
        let view = machine.inspect();
        let arrived = |number: u64| of_life().any(|upload| upload.number == number);
        let unsent =
            unsent(&view) + view.in_flight.map_or(0, |(n, count)| if arrived(n) { 0 } else { count });
        let confirmed = self.limbo.get(&life).copied().unwrap_or(0);
        if confirmed > 0 && learned == accepted + lost + unsent + confirmed {
            *self.lost.entry(life).or_default() += confirmed;
            self.limbo.remove(&life);
        } else if learned != accepted + lost + unsent {
            return Err(format!(
                "{agent} learned {learned} observations: {accepted} arrived, {lost} were lost, {unsent} wait"
            ));
        }
        Ok(())
    }
}

impl Invariant for Uploads {
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String> {
        match event {
            Event::Learned { agent, .. } => {
                *self.learned.entry((*agent, stage.incarnation(*agent))).or_default() += 1;
            }
            Event::Up { agent, incarnation, message } if uploaded(message).is_some() => {
                let upload = uploaded(message).expect("it was there a line above");
                let life = (*agent, *incarnation);
                self.limbo.remove(&life);
                let number = self.accepted.iter().filter(|a| a.life == life).count() as u64 + 1;
                if upload.number != number {
                    return Err(format!(
                        "upload {} of {agent} was accepted as number {number}",
                        upload.number
                    ));
                }
                self.accepted.push(Accepted { life, number, evidence: upload.evidence.evidence().clone() });
            }
            Event::Crashing { agent, durable: true, .. } => {
                let in_flight = stage.agent(*agent).and_then(|a| a.inspect().in_flight);
                self.asleep.insert(*agent, in_flight.map(|(number, _)| number));
            }
            // What is above agents that have relays is checked level by level (`relays.rs`).
            Event::Restarted { lost, .. } if *lost > 0 && stage.relays().is_empty() => self.forget(stage),
            _ => {}
        }
        self.asleep.retain(|agent, _| stage.agent(*agent).is_none() || is_crashing(event, *agent));
        if stage.relays().is_empty() {
            self.check_coordinator(stage)?;
        }
        match event {
            Event::Learned { agent, .. } | Event::Up { agent, .. } | Event::Down { agent, .. } => {
                self.check_agent(*agent, stage)
            }
            Event::Quiet | Event::Restarted { .. } => {
                stage.agents().into_iter().try_for_each(|agent| self.check_agent(agent, stage))
            }
            _ => Ok(()),
        }
    }
}

/// For algorithms with rounds: agents and coordinator together never hold more observations than agents
/// learned, and once all is quiet nothing is missing but what crashes took.
#[derive(Default)]
struct RoundCounts {
    learned: u64,
    /// The same by agent, for coordinators that keep agents apart.
    by_agent: BTreeMap<AgentId, u64>,
    /// The most that crashes, departures and lost log entries can have taken.
    taken: u64,
    committed: u64,
    /// What agents hold that are away and will come back.
    asleep: BTreeMap<AgentId, u64>,
}

impl RoundCounts {
    /// Nothing is in the name of an agent that did not learn it, in all the places where it ever was together.
    fn check_accounts(&self, accounts: &[AgentAccount]) -> Result<(), String> {
        let mut shared: BTreeMap<AgentId, u64> = BTreeMap::new();
        for account in accounts {
            *shared.entry(account.agent.agent).or_default() += account.observations;
        }
        let learned = |agent: &AgentId| self.by_agent.get(agent).copied().unwrap_or(0);
        match shared.into_iter().find(|(agent, count)| *count > learned(agent)) {
            None => Ok(()),
            Some((agent, count)) => Err(format!(
                "{count} observations are in the name of {agent}, which made {}",
                learned(&agent)
            )),
        }
    }
}

impl Invariant for RoundCounts {
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String> {
        let accounts = stage.coordinator().accounts();
        // What is not believed was taken in all the same.
        let committed = match accounts.as_slice() {
            [] => stage.coordinator().inspect().observations,
            accounts => accounts.iter().map(|account| account.observations).sum(),
        };
        match event {
            Event::Learned { agent, .. } => {
                self.learned += 1;
                *self.by_agent.entry(*agent).or_default() += 1;
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
                self.taken += self.committed.saturating_sub(committed);
            }
            _ => {}
        }
        self.committed = committed;
        if committed > self.learned {
            return Err(format!("{committed} observations are shared, {} were made", self.learned));
        }
        self.check_accounts(&accounts)?;
        if let Event::Quiet = event {
            let views = stage.agents().into_iter().filter_map(|agent| stage.agent(agent));
            let unsent: u64 = views.map(|agent| unsent(&agent.inspect())).sum();
            let held = committed + unsent;
            if held > self.learned || held + self.taken < self.learned {
                let Self { learned, taken, .. } = self;
                return Err(format!("{held} observations are held, {learned} made, {taken} taken at most"));
            }
        }
        Ok(())
    }
}

/// For rounds of agents that keep their observations: once all is quiet, everything an agent learned in
/// this life is in the shared model or with it, and nothing is counted for anybody who did not learn it.
#[derive(Default)]
struct Records {
    /// Agents forget what the coordinator has, so that a truncated log takes it.
    forgets: bool,
    learned: BTreeMap<(AgentId, Incarnation), u64>,
    lost_history: bool,
}

impl Invariant for Records {
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String> {
        match event {
            Event::Learned { agent, .. } => {
                *self.learned.entry((*agent, stage.incarnation(*agent))).or_default() += 1;
            }
            Event::Restarted { lost, .. } if *lost > 0 => self.lost_history = true,
            _ => {}
        }
        let shared = stage.coordinator().inspect().observations;
        let all: u64 = self.learned.values().sum();
        if shared > all {
            return Err(format!("{shared} observations are shared, {all} were made"));
        }
        let Event::Quiet = event else { return Ok(()) };
        let mut in_model = 0;
        for agent in stage.agents() {
            let Some(machine) = stage.agent(agent) else { continue };
            let learned = self.learned.get(&(agent, stage.incarnation(agent))).copied().unwrap_or(0);
            let relays = stage.relays();
            let contained = match (relays.last(), stage.relay_of(agent)) {
                (Some(lowest), Some(own)) => lowest[own].child(agent),
                _ => stage.coordinator().agent(agent),
            };
            let contained = contained.map_or(0, |standing| standing.uploads);
            in_model += contained;
            let held = contained + unsent(&machine.inspect());
            let excused = self.forgets && self.lost_history && held < learned;
            if held != learned && !excused {
                return Err(format!(
                    "{agent} learned {learned} observations: {contained} are shared, {} wait",
                    held - contained
                ));
            }
        }
        // What relays tell their children is counted must be with the root. After a loss of history it may be gone.
        if in_model > shared && !self.lost_history {
            return Err(format!("agents were told that {in_model} observations are shared: {shared} are"));
        }
        Ok(())
    }
}

/// All that an agent has and the coordinator may not have.
fn held(agent: &dyn Agent) -> u64 {
    agent.inspect().held()
}

fn unsent(view: &AgentView<'_>) -> u64 {
    view.unsent + view.withheld
}

/// The evidence in a message that adds some to the coordinator's.
pub(super) fn uploaded(message: &Uplink) -> Option<&EvidenceUpload> {
    match message {
        Uplink::Evidence(upload) => Some(upload),
        Uplink::Pull(pull) => pull.upload.as_ref(),
        Uplink::RoundRequest { .. }
        | Uplink::RoundEvidence { .. }
        | Uplink::RoundParts { .. }
        | Uplink::RoundLoss { .. }
        | Uplink::Cluster(_)
        | Uplink::Clusters(_)
        | Uplink::Gradient(_)
        | Uplink::NetworkRequest { .. }
        | Uplink::NetworkPart(_)
        | Uplink::Weights(_)
        | Uplink::Secure(_)
        | Uplink::Extension(_) => None,
    }
}

fn is_crashing(event: &Event<'_>, agent: AgentId) -> bool {
    matches!(event, Event::Crashing { agent: crashing, .. } if *crashing == agent)
}
