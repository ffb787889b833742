//! The papers' model: every message is delivered, and answered, before the next interaction.

use std::collections::VecDeque;

use posse_core::{
    Agent, AgentId, Coordinator, Downlink, Entrance, Incarnation, Outgoing, Passed, Placement, Recipient,
    Relay, Tick, TimeSpan, Uplink,
};

use super::population::Population;
use super::{Cast, RunConfig, RunError, report};
use crate::gauge::{Gauge, look};
use crate::observer::{Direction, Event, Observer, Sent, Stage};
use crate::tally::Tally;
use crate::world::Offer;

/// The time of the first interaction. Every message is delivered at once and the simulator never calls `tick`, so no
/// deadline is ever reached; time passes only for machines that estimate a pace.
const START: Tick = Tick(1_000_000_000_000_000);

/// The life of every agent: without faults, no agent begins a second one.
const LIFE: Incarnation = Incarnation(1);

/// How many agents stay awake: those that acted lately keep their models, the others derive them again when they act.
/// A model of 25 features takes four kilobytes, so these take 64 MB.
pub(super) const AWAKE: usize = 1 << 14;

struct Ideal {
    population: Population,
    coordinator: Box<dyn Coordinator>,
    /// By depth, those below the coordinator first. Empty without relays.
    relays: Vec<Vec<Box<dyn Relay>>>,
    agents: Vec<Option<Box<dyn Agent>>>,
    /// Whether each agent has joined the coordinator yet.
    joined: Vec<bool>,
    letters: VecDeque<Letter>,
    awake: Awake,
    now: Tick,
    tally: Tally,
}

/// The agents that acted lately, in the order in which they woke up.
struct Awake {
    most: usize,
    order: VecDeque<AgentId>,
    /// Whether each agent is in `order`.
    is: Vec<bool>,
}

impl Awake {
    /// Takes in that an agent acted. Returns the agent that is to rest instead, if there are too many.
    fn acted(&mut self, agent: AgentId) -> Option<AgentId> {
        if std::mem::replace(&mut self.is[agent.0 as usize], true) {
            return None;
        }
        self.order.push_back(agent);
        let tired = (self.order.len() > self.most).then(|| self.order.pop_front())??;
        self.is[tired.0 as usize] = false;
        Some(tired)
    }
}

/// A message over a link of some level, counted from 0 at the root, from or to the child at its lower end. The
/// links of the last level are those of agents.
enum Letter {
    Up(usize, AgentId, Uplink),
    Down(usize, AgentId, Downlink),
}

pub(super) fn run(
    config: &RunConfig,
    mut cast: Cast,
    observer: &mut dyn Observer,
    awake: usize,
) -> Result<Tally, RunError> {
    let count = usize::try_from(config.agents).expect("agents fit in memory");
    let mut ideal = Ideal {
        population: config.population(&cast),
        coordinator: cast.levels.coordinator(cast.shape)?,
        relays: config.relays(&cast)?,
        agents: std::iter::repeat_with(|| None).take(count).collect(),
        joined: vec![false; count],
        letters: VecDeque::new(),
        awake: Awake { most: awake, order: VecDeque::new(), is: vec![false; count] },
        now: START,
        tally: Tally { agents: config.agents, ..Tally::default() },
    };
    for level in 0..ideal.relays.len() {
        for relay in 0..ideal.relays[level].len() {
            ideal.join_parent(level, AgentId(relay as u64));
        }
    }
    let communicates = config.algorithm.placement() == Placement::PerAgent;
    if config.joins_at_start() {
        for agent in (0..config.agents).map(AgentId) {
            ideal.enter(agent, &cast)?;
            ideal.join(agent, observer)?;
        }
    }
    let mut offer = Offer::new();
    let mut seen = vec![false; count];
    let mut gauge = Gauge::new(config.horizon);
    let interval = config.network.interval.as_micros();
    for step in 0..config.horizon {
        ideal.now = START.after(TimeSpan::from_micros(step.saturating_mul(interval)));
        for agent in cast.arrivals.departures(step) {
            ideal.leave(agent, observer)?;
        }
        cast.next(step, &mut offer);
        let agent = offer.agent;
        let learner = ideal.population.learner(agent);
        ideal.enter(learner, &cast)?;
        if communicates {
            ideal.join(learner, observer)?;
        }
        if !std::mem::replace(&mut seen[agent.0 as usize], true) {
            ideal.tally.agents_seen += 1;
        }
        ideal.interact(step, learner, &offer, observer)?;
        if let Some(tired) = ideal.awake.acted(learner)
            && let Some(machine) = &mut ideal.agents[tired.0 as usize]
        {
            machine.rest();
        }
        let mut tally = std::mem::take(&mut ideal.tally);
        gauge.look_if_due(&mut tally, &ideal, &*cast.world);
        ideal.tally = tally;
        report(&ideal.tally, observer)?;
    }
    observer.observe(&Event::Quiet, &ideal);
    let mut tally = std::mem::take(&mut ideal.tally);
    look(&mut tally, &ideal, &*cast.world);
    ideal.tally = tally;
    report(&ideal.tally, observer)?;
    Ok(ideal.tally)
}

impl Ideal {
    fn enter(&mut self, agent: AgentId, cast: &Cast) -> Result<(), RunError> {
        let place = &mut self.agents[agent.0 as usize];
        if place.is_none() {
            let mut machine = self.population.agent(agent, cast.world.shape(agent))?;
            machine.begin_life(LIFE);
            *place = Some(machine);
        }
        Ok(())
    }

    fn join(&mut self, agent: AgentId, observer: &mut dyn Observer) -> Result<(), RunError> {
        if std::mem::replace(&mut self.joined[agent.0 as usize], true) {
            return Ok(());
        }
        let (level, letters) = (self.relays.len(), self.letters.len());
        self.join_parent(level, agent);
        // Letters leave after the observer has seen who joined.
        let sent = self.letters.split_off(letters);
        observer.observe(&Event::Joined { agent, incarnation: LIFE }, self);
        self.letters.extend(sent);
        self.deliver(observer)
    }

    /// The child of a level, an agent or a relay, becomes known to what is above it.
    fn join_parent(&mut self, level: usize, child: AgentId) {
        let Some(parent) = self.parent(level, child) else {
            let outgoing = self.coordinator.join(self.now, child, Entrance::NewLife);
            return self.post(0, None, outgoing);
        };
        let passed = self.relays[level - 1][parent].join(self.now, child, Entrance::NewLife);
        self.pass(level - 1, parent, passed);
    }

    /// The relay above a child, or nothing if that is the coordinator.
    fn parent(&self, level: usize, child: AgentId) -> Option<usize> {
        let above = self.relays.get(level.checked_sub(1)?)?;
        Some((child.0 % above.len() as u64) as usize)
    }

    /// Posts what a relay, itself a child of `level`, said in both directions.
    fn pass(&mut self, level: usize, relay: usize, passed: Passed) {
        let child = AgentId(relay as u64);
        self.letters.extend(passed.up.into_iter().map(|message| Letter::Up(level, child, message)));
        self.post(level + 1, Some(relay), passed.down);
    }

    fn leave(&mut self, agent: AgentId, observer: &mut dyn Observer) -> Result<(), RunError> {
        let place = agent.0 as usize;
        if !std::mem::replace(&mut self.joined[place], false) {
            return Ok(());
        }
        observer.observe(&Event::Leaving { agent }, self);
        // What it did not share leaves with it.
        let gone = self.agents[place].take();
        self.tally.lost_observations += gone.map_or(0, |agent| {
            let view = agent.inspect();
            view.unsent + view.withheld
        });
        let level = self.relays.len();
        if let Some(parent) = self.parent(level, agent) {
            let passed = self.relays[level - 1][parent].leave(self.now, agent);
            self.pass(level - 1, parent, passed);
        } else {
            let outgoing = self.coordinator.leave(self.now, agent);
            self.post(0, None, outgoing);
        }
        self.deliver(observer)
    }

    fn interact(
        &mut self,
        step: u64,
        agent: AgentId,
        offer: &Offer,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let refused = |error| RunError::Input { step, error };
        let machine = self.agents[agent.0 as usize].as_mut().expect("it entered before it acts");
        if let Some(question) = machine.prepare(self.now, offer.user, &offer.arms).map_err(refused)? {
            self.letters.push_back(Letter::Up(self.relays.len(), agent, question));
            self.deliver(observer)?;
        }
        let machine = self.agents[agent.0 as usize].as_mut().expect("it was there a moment ago");
        let arm = machine.choose(offer.user, &offer.arms).map_err(refused)?.arm;
        let (reward, regret) = (offer.reward(arm), offer.regret(arm));
        let average_mean = offer.average_mean();
        self.tally.chose(regret, average_mean);
        self.population.count_honest(&mut self.tally, offer.agent, regret);
        self.tally.reward += reward;
        observer.observe(&Event::Chose { step, agent: offer.agent, arm, regret, average_mean }, self);
        let machine = self.agents[agent.0 as usize].as_mut().expect("it was there a moment ago");
        let message = machine.learn(offer.user, offer.arms.row(arm), reward).map_err(refused)?;
        observer.observe(&Event::Learned { agent: offer.agent, reward }, self);
        if let Some(message) = message {
            self.letters.push_back(Letter::Up(self.relays.len(), agent, message));
            self.deliver(observer)?;
        }
        Ok(())
    }

    /// Posts what a machine says to its children, which are those of `level`.
    fn post(&mut self, level: usize, parent: Option<usize>, outgoing: Vec<Outgoing>) {
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

    /// Delivers everything, including what the deliveries set off.
    fn deliver(&mut self, observer: &mut dyn Observer) -> Result<(), RunError> {
        while let Some(letter) = self.letters.pop_front() {
            match letter {
                Letter::Up(level, child, message) => self.deliver_up(level, child, &message, observer)?,
                Letter::Down(level, child, message) => self.deliver_down(level, child, message, observer)?,
            }
        }
        Ok(())
    }

    fn deliver_up(
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

impl Stage for Ideal {
    fn coordinator(&self) -> &dyn Coordinator {
        &*self.coordinator
    }

    fn agent(&self, agent: AgentId) -> Option<&dyn Agent> {
        self.agents.get(agent.0 as usize)?.as_deref()
    }

    fn incarnation(&self, _agent: AgentId) -> Incarnation {
        LIFE
    }

    fn relays(&self) -> Vec<Vec<&dyn Relay>> {
        self.relays.iter().map(|relays| relays.iter().map(|relay| &**relay).collect()).collect()
    }

    fn agents(&self) -> Vec<AgentId> {
        (0..self.agents.len() as u64).map(AgentId).filter(|&agent| self.agent(agent).is_some()).collect()
    }
}
