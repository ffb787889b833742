//! Agents that look at their offers ahead of their turns, on another thread.
//!
//! An agent's choice depends on nothing but what it has learned and heard. So while the agents of one batch of interactions act,
//! those of the next batch that do not act before can look for their arms. An agent that hears something after all, between
//! its look and its turn, chooses anew: what it foresaw is forgotten. Learning, and everything that others could notice, stays
//! in its place on the thread of the run, so the bits are those of one thread.

use posse_core::{Agent, AgentId};

use super::Ideal;
use crate::simulation::ahead::{Ahead, Rehearsal};

/// What is known of agents that look ahead.
pub(super) struct Rehearsals {
    /// Whether agents of this run may look ahead: observers do not look at machines, and the agents can tell.
    pub(super) are_held: bool,
    /// For each agent, the arm that it foresaw for its next turn, counted from 1; 0 if none.
    foreseen: Vec<u32>,
    /// For each agent, the last rehearsal at which it was known to act in the batch at hand or the next.
    last_turn: Vec<u32>,
    /// The number of the last rehearsal.
    number: u32,
    /// Memory of the last rehearsal.
    machines: Vec<Option<Box<dyn Agent>>>,
    arms: Vec<Option<usize>>,
}

impl Rehearsals {
    /// Rehearsals of so many agents, if they are held at all.
    pub(super) fn new(are_held: bool, agents: usize) -> Self {
        let agents = if are_held { agents } else { 0 };
        Self {
            are_held,
            foreseen: vec![0; agents],
            last_turn: vec![0; agents],
            number: 0,
            machines: Vec::new(),
            arms: Vec::new(),
        }
    }

    /// Returns the arm that an agent foresaw for the turn that begins now, if it did and has heard nothing since.
    pub(super) fn take(&mut self, agent: AgentId) -> Option<usize> {
        let foreseen = self.foreseen.get_mut(agent.0 as usize)?;
        (std::mem::take(foreseen) as usize).checked_sub(1)
    }

    /// An agent has heard something: it has to look again.
    pub(super) fn forget(&mut self, agent: AgentId) {
        if let Some(foreseen) = self.foreseen.get_mut(agent.0 as usize) {
            *foreseen = 0;
        }
    }
}

impl Ideal {
    /// Lets the agents of the next batch look at their offers, if a thread has time for it, at the first interaction of a batch,
    /// in which `acts` acts. Then tells helpers which offers to prepare.
    pub(super) fn rehearse(&mut self, acts: AgentId) {
        let Some(ahead) = &mut self.ahead else { return };
        let upcoming = if self.rehearsals.are_held { ahead.upcoming() } else { None };
        let Some(offers) = upcoming else { return ahead.hand_out() };
        let Rehearsals { last_turn, number, machines, arms, .. } = &mut self.rehearsals;
        *number += 1;
        // The first offer of the batch at hand has been taken.
        last_turn[acts.0 as usize] = *number;
        for offer in ahead.batch().iter().skip(1) {
            last_turn[offer.agent.0 as usize] = *number;
        }
        let mut machines = std::mem::take(machines);
        machines.clear();
        machines.extend(offers.iter().map(|offer| {
            let place = offer.agent.0 as usize;
            // Those that act before, and all but the first turn of the batch, have something to learn first.
            let acts_before = std::mem::replace(&mut last_turn[place], *number) == *number;
            if acts_before { None } else { self.agents[place].take() }
        }));
        ahead.rehearse(Rehearsal { offers, machines, arms: std::mem::take(arms) });
        ahead.hand_out();
    }

    /// Brings agents back that look ahead, if there are any. What they foresaw counts until they hear something.
    pub(super) fn end_rehearsal(&mut self) {
        let Some(rehearsal) = self.ahead.as_mut().and_then(Ahead::bring_back) else { return };
        let mut has_foreseen = rehearsal.machines.iter().all(Option::is_none);
        let turns = rehearsal.machines.iter_mut().zip(&rehearsal.arms).zip(&rehearsal.offers);
        for ((machine, arm), offer) in turns {
            let place = offer.agent.0 as usize;
            if let Some(machine) = machine.take() {
                self.agents[place] = Some(machine);
                self.rehearsals.foreseen[place] = arm.map_or(0, |arm| arm as u32 + 1);
                has_foreseen |= arm.is_some();
            }
        }
        // Agents of one algorithm can all tell, or none of them can. If a whole batch could not, it is not tried again.
        self.rehearsals.are_held = has_foreseen;
        self.rehearsals.machines = std::mem::take(&mut rehearsal.machines);
        self.rehearsals.arms = std::mem::take(&mut rehearsal.arms);
    }

    /// Makes sure that an agent is here, if it only looks ahead.
    pub(super) fn call_home(&mut self, agent: AgentId) {
        if self.agents[agent.0 as usize].is_none() {
            self.end_rehearsal();
        }
    }
}
