//! The papers' model: every message is delivered, and answered, before the next interaction.

mod awake;
mod letters;
mod rehearsals;
mod under_way;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use posse_core::{
    Agent, AgentId, Coordinator, Entrance, Incarnation, Passed, Placement, Relay, Tick, TimeSpan, Uplink,
};

use super::ahead::Ahead;
use super::errands::{Deed, Errands, Ticket};
use super::population::Population;
use super::{Cast, RunConfig, RunError, report};
use crate::gauge::{Gauge, look};
use crate::observer::{Event, Observer, Stage};
use crate::tally::Tally;
use crate::world::{Offer, World};
pub(super) use awake::AWAKE;
use awake::Awake;
use letters::Letter;
use rehearsals::Rehearsals;
use under_way::Pending;

/// The time of the first interaction. Every message is delivered at once and the simulator never calls `tick`, so no
/// deadline is ever reached; time passes only for machines that estimate a pace.
const START: Tick = Tick(1_000_000_000_000_000);

/// The life of every agent: without faults, no agent begins a second one.
const LIFE: Incarnation = Incarnation(1);

struct Ideal {
    population: Population,
    coordinator: Box<dyn Coordinator>,
    /// By depth, those below the coordinator first. Empty without relays.
    relays: Vec<Vec<Box<dyn Relay>>>,
    /// Those that have entered; an agent on an errand, or that looks ahead, is not here.
    agents: Vec<Option<Box<dyn Agent>>>,
    /// Whether each agent has joined the coordinator yet.
    joined: Vec<bool>,
    /// Whether each agent has acted.
    seen: Vec<bool>,
    letters: VecDeque<Letter>,
    awake: Awake,
    /// Where offers come from, if other threads prepare them.
    ahead: Option<Ahead>,
    rehearsals: Rehearsals,
    now: Tick,
    tally: Tally,
    gauge: Gauge,
    /// Where agents work on other threads, if there are any.
    errands: Option<Errands>,
    under_way: VecDeque<Pending>,
    /// Agents on errands.
    away: BTreeMap<AgentId, Ticket>,
    /// What came of errands whose place in the order has not come yet.
    deeds: BTreeMap<Ticket, Deed>,
    /// Offers that were used on errands, for their memory.
    spare: Vec<Offer>,
    /// Whether what is under way is being brought to its end, so that nothing new is put off.
    settling: bool,
}

pub(super) fn run(
    config: &RunConfig,
    mut cast: Cast,
    observer: &mut dyn Observer,
    awake: usize,
    errands: Option<Errands>,
) -> Result<Tally, RunError> {
    let count = usize::try_from(config.agents).expect("agents fit in memory");
    let communicates = config.algorithm.placement() == Placement::PerAgent;
    // One learner for all acts at every turn, so it can never look ahead.
    let may_rehearse = cast.ahead.is_some() && communicates && !observer.looks_at_machines();
    let mut coordinator = cast.levels.coordinator(cast.shape)?;
    coordinator.use_workers(Arc::clone(&cast.workers));
    let mut ideal = Ideal {
        population: config.population(&cast),
        coordinator,
        relays: config.relays(&cast)?,
        agents: std::iter::repeat_with(|| None).take(count).collect(),
        joined: vec![false; count],
        seen: vec![false; count],
        letters: VecDeque::new(),
        awake: Awake::new(awake, count),
        rehearsals: Rehearsals::new(may_rehearse, count),
        ahead: cast.ahead.take(),
        now: START,
        tally: Tally { agents: config.agents, ..Tally::default() },
        gauge: Gauge::new(config.horizon),
        // What relays do with a message is not known.
        errands: errands.filter(|_| config.topology.relays().is_empty()),
        under_way: VecDeque::new(),
        away: BTreeMap::new(),
        deeds: BTreeMap::new(),
        spare: Vec::new(),
        settling: false,
    };
    for level in 0..ideal.relays.len() {
        for relay in 0..ideal.relays[level].len() {
            ideal.join_parent(level, AgentId(relay as u64));
        }
    }
    if config.joins_at_start() {
        for agent in (0..config.agents).map(AgentId) {
            ideal.enter(agent, &cast)?;
            ideal.join(agent, observer)?;
        }
    }
    let mut offer = Offer::new();
    let interval = config.network.interval.as_micros();
    for step in 0..config.horizon {
        let departures = cast.arrivals.departures(step);
        if !departures.is_empty() {
            ideal.settle(&*cast.world, observer)?;
        }
        ideal.now = START.after(TimeSpan::from_micros(step.saturating_mul(interval)));
        for agent in departures {
            ideal.leave(agent, observer)?;
        }
        ideal.next(step, &mut cast, &mut offer);
        let learner = ideal.population.learner(offer.agent);
        ideal.wait_for(learner, communicates, &*cast.world, observer)?;
        ideal.enter(learner, &cast)?;
        if communicates {
            ideal.join(learner, observer)?;
        }
        if ideal.acts_elsewhere(learner) {
            ideal.begin(step, learner, &mut offer, &*cast.world, observer)?;
            continue;
        }
        ideal.settle(&*cast.world, observer)?;
        ideal.interact(step, learner, &offer, observer)?;
        if let Some(tired) = ideal.awake.acted(learner)
            && let Some(machine) = &mut ideal.agents[tired.0 as usize]
        {
            machine.rest();
        }
        ideal.end(step, &*cast.world, observer)?;
    }
    ideal.settle(&*cast.world, observer)?;
    observer.observe(&Event::Quiet, &ideal);
    let mut tally = std::mem::take(&mut ideal.tally);
    look(&mut tally, &ideal, &*cast.world);
    ideal.tally = tally;
    report(&ideal.tally, observer)?;
    Ok(ideal.tally)
}

impl Ideal {
    /// Fills in the offer of interaction `step`, and lets agents look ahead.
    fn next(&mut self, step: u64, cast: &mut Cast, offer: &mut Offer) {
        let begins_batch = Ahead::begins_batch(step);
        if begins_batch {
            self.end_rehearsal();
        }
        let Some(ahead) = &mut self.ahead else { return cast.next(step, offer) };
        ahead.next(&mut *cast.world, &mut *cast.arrivals, step, offer);
        if begins_batch {
            self.rehearse(offer.agent);
        }
    }

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
        self.call_home(agent);
        self.rehearsals.forget(agent);
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
            self.recall(agent);
        }
        let foreseen = self.rehearsals.take(agent);
        let machine = self.agents[agent.0 as usize].as_mut().expect("it was there a moment ago");
        let arm = match foreseen {
            Some(arm) => {
                machine.choose_foreseen();
                arm
            }
            None => machine.choose(offer.user, &offer.arms).map_err(refused)?.arm,
        };
        self.chose(step, arm, offer, observer);
        let machine = self.agents[agent.0 as usize].as_mut().expect("it was there a moment ago");
        let reward = offer.reward(arm);
        let message = machine.learn(offer.user, offer.arms.row(arm), reward).map_err(refused)?;
        self.learned(agent, offer, reward, message, observer)
    }

    /// Takes in that an agent chose an arm.
    fn chose(&mut self, step: u64, arm: usize, offer: &Offer, observer: &mut dyn Observer) {
        let agent = offer.agent;
        self.tally.agents_seen += u64::from(!std::mem::replace(&mut self.seen[agent.0 as usize], true));
        let regret = offer.regret(arm);
        let average_mean = offer.average_mean();
        self.tally.chose(regret, average_mean);
        self.population.count_honest(&mut self.tally, agent, regret);
        self.tally.reward += offer.reward(arm);
        observer.observe(&Event::Chose { step, agent, arm, regret, average_mean }, self);
    }

    /// Takes in that an agent learned a reward, and delivers what it said.
    fn learned(
        &mut self,
        learner: AgentId,
        offer: &Offer,
        reward: f64,
        said: Option<Uplink>,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        observer.observe(&Event::Learned { agent: offer.agent, reward }, self);
        if let Some(message) = said {
            self.letters.push_back(Letter::Up(self.relays.len(), learner, message));
            self.deliver(observer)?;
        }
        Ok(())
    }

    /// Ends an interaction: looks at the machines if that is due, and reports. Waits for what is under way only if it
    /// has to.
    fn end(&mut self, step: u64, world: &dyn World, observer: &mut dyn Observer) -> Result<(), RunError> {
        if !self.under_way.is_empty() {
            self.under_way.push_back(Pending::End);
            return if self.gauge.is_due(step + 1) { self.settle(world, observer) } else { Ok(()) };
        }
        self.look_and_report(world, observer)
    }

    fn look_and_report(&mut self, world: &dyn World, observer: &mut dyn Observer) -> Result<(), RunError> {
        if self.gauge.is_due(self.tally.interactions) {
            self.end_rehearsal();
            let mut tally = std::mem::take(&mut self.tally);
            look(&mut tally, self, world);
            self.tally = tally;
            self.gauge.looked();
        }
        report(&self.tally, observer)
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
