//! What agents do on other threads while the simulation goes on, and how it comes out as if they had done it in their turn.
//!
//! Everything that happens has a place in one order, that of a run on one thread. An agent that works on another thread
//! leaves a [`Pending`] in its place, and everything after it that is to be seen (messages, events, sums) is put off until
//! what is before it has come back. Other agents may begin meanwhile only if nothing that is under way can concern them:
//! if the coordinator [only notes](posse_core::Coordinator::only_notes) what those agents will say.

use posse_core::{AgentId, Downlink, Tick};

use super::letters::Letter;
use super::{Ideal, RunError};
use crate::observer::Observer;
use crate::simulation::errands::{Deed, Task, Ticket};
use crate::world::{Offer, World};

/// How much may be under way at a time, where nothing else limits it.
const MOST: usize = 64;

/// Something that has begun, in the order of a run on one thread.
pub(super) enum Pending {
    /// An agent takes in a message, which it may answer.
    Answer { agent: AgentId, ticket: Ticket, now: Tick },
    /// An agent chooses and learns.
    Interaction { step: u64, agent: AgentId, ticket: Ticket, now: Tick },
    /// An interaction ends with what is before this.
    End,
}

impl Pending {
    const fn agent(&self) -> Option<AgentId> {
        match self {
            Self::Answer { agent, .. } | Self::Interaction { agent, .. } => Some(*agent),
            Self::End => None,
        }
    }
}

impl Ideal {
    /// Whether an agent should act on another thread, and may: nothing that is under way concerns it, and others may go on
    /// meanwhile.
    pub(super) fn acts_elsewhere(&self, learner: AgentId) -> bool {
        let machine = self.agents[learner.0 as usize].as_ref().filter(|_| self.errands.is_some());
        machine.is_some_and(|machine| machine.is_laborious(None))
            && (!self.under_way.is_empty() || self.coordinator.only_notes(&[learner]))
    }

    /// Lets an agent act on another thread.
    pub(super) fn begin(
        &mut self,
        step: u64,
        learner: AgentId,
        offer: &mut Offer,
        world: &dyn World,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let mut sent = self.spare.pop().unwrap_or_default();
        std::mem::swap(&mut sent, offer);
        let ticket = self.send(learner, Task::Act(self.now, sent)).expect("it was asked before");
        self.under_way.push_back(Pending::Interaction { step, agent: learner, ticket, now: self.now });
        self.end(step, world, observer)?;
        if !self.only_notes_of(None) {
            return self.settle(world, observer);
        }
        while self.under_way.len() > MOST {
            self.settle_first(world, observer)?;
        }
        Ok(())
    }

    /// Lets an agent take in a message on another thread, if that is worth it.
    pub(super) fn hears_elsewhere(&mut self, agent: AgentId, message: &Downlink) -> Option<Ticket> {
        self.errands.as_ref()?;
        self.recall(agent);
        self.agents[agent.0 as usize].as_ref().filter(|machine| machine.is_laborious(Some(message)))?;
        self.send(agent, Task::Hear(message.clone()))
    }

    fn send(&mut self, agent: AgentId, task: Task) -> Option<Ticket> {
        let errands = self.errands.as_mut()?;
        let ticket = errands.send(self.agents[agent.0 as usize].take()?, task);
        self.away.insert(agent, ticket);
        Some(ticket)
    }

    /// Waits for an agent to come back from its errand, if it is on one. What it did keeps its place in the order.
    pub(super) fn recall(&mut self, agent: AgentId) {
        if let (Some(ticket), Some(errands)) = (self.away.remove(&agent), &mut self.errands) {
            let (machine, deed) = errands.fetch(ticket);
            self.agents[agent.0 as usize] = Some(machine);
            self.deeds.insert(ticket, deed);
        }
    }

    fn deed(&mut self, agent: AgentId, ticket: Ticket) -> Deed {
        if !self.deeds.contains_key(&ticket) {
            self.recall(agent);
        }
        self.deeds.remove(&ticket).expect("every errand has a deed")
    }

    /// Puts off what an agent will say, if everything else that is to be delivered can be put off too. Returns whether
    /// it did.
    pub(super) fn put_off(&mut self, agent: AgentId, ticket: Ticket) -> bool {
        let puts_off = !self.settling && self.only_notes_of(Some(agent));
        if puts_off {
            self.under_way.push_back(Pending::Answer { agent, ticket, now: self.now });
        }
        puts_off
    }

    /// Whether the coordinator only notes what `agent`, those under way and those whose letters are still to come will say.
    fn only_notes_of(&self, agent: Option<AgentId>) -> bool {
        let mut agents: Vec<AgentId> = agent.into_iter().collect();
        agents.extend(self.under_way.iter().filter_map(Pending::agent));
        for letter in &self.letters {
            let Letter::Answer(agent, _) = letter else { return false };
            agents.push(*agent);
        }
        self.coordinator.only_notes(&agents)
    }

    /// Makes sure that nothing is under way that concerns an agent, which is about to act.
    pub(super) fn wait_for(
        &mut self,
        learner: AgentId,
        communicates: bool,
        world: &dyn World,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        if self.under_way.is_empty() {
            return Ok(());
        }
        let joins = communicates && !self.joined[learner.0 as usize];
        let is_concerned =
            |ideal: &Self| ideal.under_way.iter().any(|pending| pending.agent() == Some(learner));
        while !self.under_way.is_empty() && (joins || is_concerned(self)) {
            self.settle_first(world, observer)?;
        }
        Ok(())
    }

    /// Brings everything that is under way to its end.
    pub(super) fn settle(&mut self, world: &dyn World, observer: &mut dyn Observer) -> Result<(), RunError> {
        while !self.under_way.is_empty() {
            self.settle_first(world, observer)?;
        }
        Ok(())
    }

    /// Brings what has begun first to its end.
    fn settle_first(&mut self, world: &dyn World, observer: &mut dyn Observer) -> Result<(), RunError> {
        let Some(pending) = self.under_way.pop_front() else { return Ok(()) };
        self.settling = true;
        let now = self.now;
        match pending {
            Pending::End => self.look_and_report(world, observer)?,
            Pending::Answer { agent, ticket, now: then } => {
                self.now = then;
                self.deliver_answer(agent, ticket, observer)?;
                self.deliver(observer)?;
            }
            Pending::Interaction { step, agent, ticket, now: then } => {
                self.now = then;
                self.finish(step, agent, ticket, observer)?;
            }
        }
        (self.now, self.settling) = (now, false);
        Ok(())
    }

    /// Delivers what an agent said to a message that it took in on another thread.
    pub(super) fn deliver_answer(
        &mut self,
        agent: AgentId,
        ticket: Ticket,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let Deed::Heard(answer) = self.deed(agent, ticket) else { unreachable!("it was to hear") };
        match answer? {
            Some(answer) => self.deliver_up(self.relays.len(), agent, &answer, observer),
            None => Ok(()),
        }
    }

    /// Takes in what came of an interaction on another thread.
    fn finish(
        &mut self,
        step: u64,
        learner: AgentId,
        ticket: Ticket,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let refused = |error| RunError::Input { step, error };
        let Deed::Acted(offer, done) = self.deed(learner, ticket) else { unreachable!("it was to act") };
        let (arm, said) = done.map_err(refused)?;
        self.chose(step, arm, &offer, observer);
        self.learned(learner, &offer, offer.reward(arm), said.map_err(refused)?, observer)?;
        self.spare.push(offer);
        Ok(())
    }
}
