//! Messages on their way: posted in order, delivered in order, each before the next interaction.

use posse_core::{AgentId, Downlink, Outgoing, Passed, Recipient, Uplink};

use super::{Ideal, LIFE};
use crate::observer::{Direction, Event, Observer, Sent};
use crate::simulation::RunError;
use crate::simulation::errands::Ticket;

/// A message over a link of some level, counted from 0 at the root, from or to the child at its lower end. The
/// links of the last level are those of agents.
pub(super) enum Letter {
    Up(usize, AgentId, Uplink),
    Down(usize, AgentId, Downlink),
    /// What an agent will say that takes in a message on another thread, perhaps nothing.
    Answer(AgentId, Ticket),
}

impl Ideal {
    /// Posts what a machine says to its children, which are those of `level`.
    pub(super) fn post(&mut self, level: usize, parent: Option<usize>, outgoing: Vec<Outgoing>) {
        for Outgoing { to, message } in outgoing {
            if let Downlink::Collect { round, .. } | Downlink::NetworkCollect { round, .. } = message {
                // Agents may be asked again within a round: it counts when its number is new.
                self.tally.rounds = self.tally.rounds.max(round.0);
            }
            if let Recipient::Agent(child) = to {
                self.letters.push_back(Letter::Down(level, child, message));
                continue;
            }
            let children = self.relays.get(level).map_or(self.joined.len(), Vec::len);
            for child in 0..children {
                let is_there = level < self.relays.len() || self.joined[child];
                let child = AgentId(child as u64);
                if is_there && to.includes(child) && self.parent(level, child) == parent {
                    self.letters.push_back(Letter::Down(level, child, message.clone()));
                }
            }
        }
    }

    /// Delivers everything, including what the deliveries set off. What agents say that are on errands is put off, if the
    /// coordinator would only take a note of it.
    pub(super) fn deliver(&mut self, observer: &mut dyn Observer) -> Result<(), RunError> {
        while let Some(letter) = self.letters.pop_front() {
            match letter {
                Letter::Up(level, child, message) => self.deliver_up(level, child, &message, observer)?,
                Letter::Down(level, child, message) => self.deliver_down(level, child, message, observer)?,
                Letter::Answer(child, ticket) => {
                    if !self.put_off(child, ticket) {
                        self.deliver_answer(child, ticket, observer)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn deliver_up(
        &mut self,
        level: usize,
        child: AgentId,
        message: &Uplink,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let (kind, cost) = (message.kind(), message.cost());
        let sent = Sent { direction: Direction::Up, agent: child, kind, cost };
        self.count(level, &sent, observer);
        let parent = self.parent(level, child);
        let (mut outgoing, mut passed) = (Vec::new(), Passed::default());
        match parent {
            None => outgoing = self.coordinator.receive(self.now, child, message.clone())?,
            Some(parent) => {
                passed = self.relays[level - 1][parent].receive(self.now, child, message.clone())?;
            }
        }
        if level == self.relays.len() {
            observer.observe(&Event::Up { agent: child, incarnation: LIFE, message }, self);
        } else {
            let relay = child.0 as usize;
            observer.observe(&Event::Passed { depth: level, relay, message }, self);
        }
        match parent {
            None => self.post(0, None, outgoing),
            Some(parent) => self.pass(level - 1, parent, passed),
        }
        Ok(())
    }

    fn deliver_down(
        &mut self,
        level: usize,
        child: AgentId,
        message: Downlink,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let (kind, cost) = (message.kind(), message.cost());
        let sent = Sent { direction: Direction::Down, agent: child, kind, cost };
        self.count(level, &sent, observer);
        let place = child.0 as usize;
        if level < self.relays.len() {
            let passed = self.relays[level][place].hear(self.now, message)?;
            observer.observe(&Event::Heard { depth: level, relay: place }, self);
            self.pass(level, place, passed);
            return Ok(());
        }
        self.call_home(child);
        self.rehearsals.forget(child);
        if let Some(ticket) = self.hears_elsewhere(child, &message) {
            observer.observe(&Event::Down { agent: child, message: &message }, self);
            self.letters.push_back(Letter::Answer(child, ticket));
            return Ok(());
        }
        let Some(machine) = &mut self.agents[place] else { return Ok(()) };
        let answer = machine.receive(message.clone())?;
        observer.observe(&Event::Down { agent: child, message: &message }, self);
        self.letters.extend(answer.map(|answer| Letter::Up(level, child, answer)));
        Ok(())
    }

    /// Counts a message. Observers are told of those of agents, which are what agents pay for.
    fn count(&mut self, level: usize, sent: &Sent, observer: &mut dyn Observer) {
        if level < self.relays.len() {
            return self.tally.sent_above(level, self.relays.len(), sent);
        }
        self.tally.sent(sent);
        observer.sent(sent);
    }
}
