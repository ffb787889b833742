//! The same machines over links with a mind of their own: sessions, virtual time, crashes and restarts.

use posse_core::session::{DownFrame, Endpoint, Hub, LogEntry, LogEvent, Step, UpFrame};
use posse_core::{
    Agent, AgentId, Coordinator, Downlink, Epoch, Incarnation, Levels, Relay, Shape, Tick, TimeSpan, Uplink,
    UserId,
};

use super::population::Population;
use super::queue::Queue;
use super::{Cast, RunConfig, RunError, report};
use crate::gauge::{Gauge, look};
use crate::network::{FaultConfig, Links};
use crate::observer::{Direction, Event, Observer, Sent, Stage};
use crate::tally::Tally;
use crate::world::Offer;

/// Virtual time begins far from zero, as every real clock does: at zero, a time that was never set looks like
/// the beginning. A multiple of the links' partition period, so that partitions begin where they did.
const START: Tick = Tick(1_000_000_000_000_000);

/// An event that is due at some time.
enum Due {
    Interaction(u64),
    Reward {
        agent: AgentId,
        user: UserId,
        features: Vec<f64>,
        reward: f64,
    },
    /// A frame of an agent is at the relay of this number, or at the root if there are none.
    Up(AgentId, usize, UpFrame),
    Down(AgentId, DownFrame),
    /// A frame of a relay is at its parent.
    RelayUp(RelayPlace, UpFrame),
    /// A frame of its parent is at a relay.
    RelayDown(RelayPlace, DownFrame),
    /// Something at a relay may have to be sent again, or a round may be over.
    RelayTimer(RelayPlace),
    /// Something at an agent may have to be sent again.
    AgentTimer(AgentId),
    /// Something at the coordinator may have to be sent again, or a round may be over.
    HubTimer,
    /// A crashed agent comes back.
    Return(AgentId),
    /// An agent has waited for an answer long enough: it chooses in this interaction.
    Choice(AgentId, u64),
}

/// Where a relay is in the tree: how many relays are above it, and its number among those of its depth. The links
/// above the relays of a depth are the level of the same number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RelayPlace {
    depth: usize,
    relay: usize,
}

/// What the simulator keeps about one machine that others join: its end of the links, its log, and its timer.
struct Station {
    hub: Hub,
    log: Vec<LogEntry>,
    timer: Option<Tick>,
}

struct Linked {
    config: RunConfig,
    population: Population,
    shape: Shape,
    levels: Levels,
    root: Station,
    /// By depth, those below the root first. Empty without relays.
    relays: Vec<Vec<Station>>,
    places: Vec<Place>,
    queue: Queue<Due>,
    /// The links of agents.
    up: Links,
    down: Links,
    /// The links of relays, by depth, up and down.
    above: Vec<(Links, Links)>,
    faults: FaultConfig,
    tally: Tally,
    /// What was sent since the observer was last called.
    sent: Vec<Sent>,
    /// Whether every upload counts twice, as if the coordinator's end of the link did not know repetitions.
    planted_bug: bool,
}

/// What the simulator keeps about one agent: its end of the link while it runs, its disk, and its timer.
struct Place {
    endpoint: Option<Endpoint>,
    /// What a crashed agent left on its disk.
    saved: Option<Vec<u8>>,
    incarnation: Incarnation,
    /// The number of the relay that the agent speaks to, among those of the lowest level.
    relay: usize,
    timer: Option<Tick>,
    seen: bool,
    /// Whether the agent has left and will never come back.
    gone: bool,
    /// The interaction in which it asked and has not chosen yet, with its offer.
    waiting: Option<(u64, Box<Offer>)>,
}

pub(super) fn run(
    config: &RunConfig,
    mut cast: Cast,
    observer: &mut dyn Observer,
    planted_bug: bool,
) -> Result<Tally, RunError> {
    let lowest = config.topology.relays().last().copied().unwrap_or(1);
    let place = |agent: u64| Place {
        endpoint: None,
        saved: None,
        incarnation: Incarnation(0),
        relay: (agent % lowest) as usize,
        timer: None,
        seen: false,
        gone: false,
        waiting: None,
    };
    let depth = cast.levels.depth() - 1;
    let link = |level| config.topology.network(level, &config.network).link();
    let above = |level: usize| {
        let links = |way: &str| Links::new(link(level), config.seed, &format!("relay-link-{way}-{level}"));
        (links("up"), links("down"))
    };
    let mut linked = Linked {
        config: config.clone(),
        population: config.population(&cast),
        shape: cast.shape,
        levels: cast.levels.clone(),
        root: Station { hub: new_root(config, &cast.levels, cast.shape)?, log: Vec::new(), timer: None },
        relays: Vec::new(),
        places: (0..config.agents).map(place).collect(),
        queue: Queue::new(),
        up: Links::new(link(depth), config.seed, "link-up"),
        down: Links::new(link(depth), config.seed, "link-down"),
        above: (0..depth).map(above).collect(),
        faults: config.faults.clone(),
        tally: Tally { agents: config.agents, ..Tally::default() },
        sent: Vec::new(),
        planted_bug,
    };
    for (depth, count) in config.topology.relays().into_iter().enumerate() {
        linked.relays.push(Vec::new());
        for relay in 0..count as usize {
            let place = RelayPlace { depth, relay };
            let hub = linked.new_relay(place)?;
            linked.relays[depth].push(Station { hub, log: Vec::new(), timer: None });
            let step = linked.station(Some(place)).hub.hello(START);
            linked.follow(Some(place), step, START);
        }
    }
    if config.joins_at_start() {
        for agent in (0..config.agents).map(AgentId) {
            linked.enter(agent, &cast, START)?;
        }
    }
    linked.queue.push(START, Due::Interaction(0));
    let mut offer = Offer::new();
    let mut gauge = Gauge::new(config.horizon);
    while let Some((now, due)) = linked.queue.pop() {
        let before = linked.tally.interactions;
        match due {
            Due::Interaction(step) => {
                linked.interact(step, now, &mut cast, &mut offer, observer)?;
                let mut tally = std::mem::take(&mut linked.tally);
                gauge.look_if_due(&mut tally, &linked, &*cast.world);
                linked.tally = tally;
            }
            Due::Reward { agent, user, features, reward } => {
                linked.learn(agent, user, &features, reward, now, &cast, observer)?;
            }
            Due::Up(agent, relay, frame) => linked.at_hub(agent, relay, frame, now, observer)?,
            Due::RelayUp(place, frame) => linked.at_parent(place, frame, now, observer)?,
            Due::RelayDown(place, frame) => linked.at_relay(place, frame, now, observer)?,
            Due::RelayTimer(place) => linked.tick_hub(Some(place), now, observer),
            Due::Down(agent, frame) => linked.at_agent(agent, frame, now, &cast, observer)?,
            Due::AgentTimer(agent) => linked.agent_timer(agent, now),
            Due::HubTimer => linked.tick_hub(None, now, observer),
            Due::Return(agent) => linked.enter(agent, &cast, now)?,
            Due::Choice(agent, step) => {
                let waits = |(waiting, _): &(u64, Box<Offer>)| *waiting == step;
                if linked.places[agent.0 as usize].waiting.as_ref().is_some_and(waits) {
                    linked.choose_at_last(agent, now, &cast, observer)?;
                }
            }
        }
        for sent in linked.sent.drain(..) {
            observer.sent(&sent);
        }
        if linked.tally.interactions != before {
            report(&linked.tally, observer)?;
        }
    }
    observer.observe(&Event::Quiet, &linked);
    let mut tally = std::mem::take(&mut linked.tally);
    look(&mut tally, &linked, &*cast.world);
    linked.tally = tally;
    report(&linked.tally, observer)?;
    Ok(linked.tally)
}

/// How long what the children of a machine were sent may be unanswered; it speaks over the links of `level`.
fn patience(config: &RunConfig, level: usize) -> TimeSpan {
    config.topology.network(level, &config.network).resend_after()
}

fn new_root(config: &RunConfig, levels: &Levels, shape: Shape) -> Result<Hub, RunError> {
    Ok(Hub::new(levels.coordinator(shape)?, patience(config, 0)))
}

/// Renumbers an upload of evidence as the next one, so that the coordinator counts it again. `None` for other
/// frames.
fn as_new(frame: &UpFrame) -> Option<UpFrame> {
    let Some(Uplink::Evidence(mut upload)) = frame.message.clone() else { return None };
    upload.number += 1;
    Some(UpFrame { sequence: frame.sequence + 1, message: Some(Uplink::Evidence(upload)), ..frame.clone() })
}

impl Linked {
    /// Brings an agent in, or back, if it is not there.
    fn enter(&mut self, agent: AgentId, cast: &Cast, now: Tick) -> Result<(), RunError> {
        let place = &mut self.places[agent.0 as usize];
        if place.endpoint.is_some() || place.gone {
            return Ok(());
        }
        let machine = self.population.agent(agent, cast.world.shape(agent))?;
        let resend = patience(&self.config, self.relays.len());
        if let Some(saved) = place.saved.take() {
            let mut endpoint = Endpoint::new(agent, place.incarnation, machine, resend);
            endpoint.restore(&saved).expect("an endpoint restores what it saved");
            let hello = endpoint.hello(now);
            place.endpoint = Some(endpoint);
            self.send_up(agent, Some(hello), now);
        } else {
            place.incarnation = Incarnation(place.incarnation.0 + 1);
            let mut endpoint = Endpoint::new(agent, place.incarnation, machine, resend);
            let hello = endpoint.hello(now);
            place.endpoint = Some(endpoint);
            self.send_up(agent, Some(hello), now);
        }
        Ok(())
    }

    fn interact(
        &mut self,
        step: u64,
        now: Tick,
        cast: &mut Cast,
        offer: &mut Offer,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        for agent in cast.arrivals.departures(step) {
            self.choose_at_last(agent, now, cast, observer)?;
            self.leave(agent, now, observer);
        }
        self.go_wrong(step, now, cast, observer)?;
        cast.next(step, offer);
        let agent = offer.agent;
        self.enter(agent, cast, now)?;
        // Whoever still waits chooses before it is asked again.
        self.choose_at_last(agent, now, cast, observer)?;
        let place = &mut self.places[agent.0 as usize];
        let endpoint = place.endpoint.as_mut().expect("it entered");
        // Who waited in vain for an answer does not wait for it again.
        let was_asking = place.seen && endpoint.agent().is_asking();
        let question = endpoint
            .prepare(now, offer.user, &offer.arms)
            .map_err(|error| RunError::Input { step, error })?;
        let asks = !was_asking && endpoint.agent().is_asking();
        self.send_up(agent, question, now);
        let wait = self.config.network.wait;
        if asks && wait > TimeSpan::default() {
            self.places[agent.0 as usize].waiting = Some((step, Box::new(offer.clone())));
            self.queue.push(now.after(wait), Due::Choice(agent, step));
        } else {
            self.choose(step, now, cast, offer, observer)?;
        }
        if step + 1 < self.config.horizon {
            let next = now.after(self.config.network.interval);
            self.queue.push(next, Due::Interaction(step + 1));
        } else {
            // Interactions are over: links heal, and everything that is still to be said arrives.
            self.up.model = self.up.model.healed();
            self.down.model = self.down.model.healed();
            for (up, down) in &mut self.above {
                (up.model, down.model) = (up.model.healed(), down.model.healed());
            }
            self.faults = FaultConfig::default();
            for agent in (0..self.config.agents).map(AgentId) {
                if self.places[agent.0 as usize].saved.is_some() {
                    self.enter(agent, cast, now)?;
                }
            }
        }
        Ok(())
    }

    /// Chooses in the interaction that an agent waits in, if it does.
    fn choose_at_last(
        &mut self,
        agent: AgentId,
        now: Tick,
        cast: &Cast,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        match self.places[agent.0 as usize].waiting.take() {
            Some((step, offer)) => self.choose(step, now, cast, &offer, observer),
            None => Ok(()),
        }
    }

    /// The choice of an interaction, and its reward now or later.
    fn choose(
        &mut self,
        step: u64,
        now: Tick,
        cast: &Cast,
        offer: &Offer,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let agent = offer.agent;
        let place = &mut self.places[agent.0 as usize];
        self.tally.agents_seen += u64::from(!std::mem::replace(&mut place.seen, true));
        let endpoint = place.endpoint.as_mut().expect("it entered");
        let arm =
            endpoint.choose(offer.user, &offer.arms).map_err(|error| RunError::Input { step, error })?.arm;
        let (reward, regret) = (offer.reward(arm), offer.regret(arm));
        let average_mean = offer.average_mean();
        self.tally.chose(regret, average_mean);
        self.population.count_honest(&mut self.tally, agent, regret);
        observer.observe(&Event::Chose { step, agent, arm, regret, average_mean }, self);
        let features = offer.arms.row(arm).to_vec();
        let after = self.config.network.reward_delay;
        if after == TimeSpan::default() {
            self.learn(agent, offer.user, &features, reward, now, cast, observer)?;
        } else {
            self.queue.push(now.after(after), Due::Reward { agent, user: offer.user, features, reward });
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "a reward has many parts")]
    fn learn(
        &mut self,
        agent: AgentId,
        user: UserId,
        features: &[f64],
        reward: f64,
        now: Tick,
        cast: &Cast,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        // A reward for an agent that is away brings it back, as an interaction does.
        self.enter(agent, cast, now)?;
        // A reward for an agent that left finds nobody.
        let Some(endpoint) = &mut self.places[agent.0 as usize].endpoint else { return Ok(()) };
        let frame = endpoint
            .learn(now, user, features, reward)
            .map_err(|error| RunError::Input { step: self.tally.interactions, error })?;
        self.tally.reward += reward;
        observer.observe(&Event::Learned { agent, reward }, self);
        self.send_up(agent, frame, now);
        Ok(())
    }

    fn leave(&mut self, agent: AgentId, now: Tick, observer: &mut dyn Observer) {
        observer.observe(&Event::Leaving { agent }, self);
        let place = &mut self.places[agent.0 as usize];
        place.saved = None;
        place.gone = true;
        if let Some(endpoint) = place.endpoint.take() {
            let view = endpoint.agent().inspect();
            self.tally.lost_observations += view.unsent + view.withheld;
        }
        let parent = self.parent(self.relays.len(), agent.0);
        let step = self.station(parent).hub.leave(now, agent);
        observer.observe(&Event::Ticked, self);
        self.follow(parent, step, now);
    }

    /// The relay above a child of a level, or nothing if that is the root.
    fn parent(&self, level: usize, child: u64) -> Option<RelayPlace> {
        let depth = level.checked_sub(1)?;
        let relay = if level == self.relays.len() {
            self.places[child as usize].relay
        } else {
            (child % self.relays[depth].len() as u64) as usize
        };
        Some(RelayPlace { depth, relay })
    }

    fn station(&mut self, place: Option<RelayPlace>) -> &mut Station {
        match place {
            None => &mut self.root,
            Some(RelayPlace { depth, relay }) => &mut self.relays[depth][relay],
        }
    }

    /// A relay without history.
    fn new_relay(&self, place: RelayPlace) -> Result<Hub, RunError> {
        let machine = self.levels.relay(place.depth + 1, self.shape)?;
        let slower = patience(&self.config, place.depth).max(patience(&self.config, place.depth + 1));
        Ok(Hub::relay(machine, AgentId(place.relay as u64), Incarnation(1), slower))
    }

    fn at_hub(
        &mut self,
        agent: AgentId,
        relay: usize,
        frame: UpFrame,
        now: Tick,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let place = &self.places[agent.0 as usize];
        if place.gone || (place.relay != relay && !self.relays.is_empty()) {
            // An agent that leaves for good, or for another relay, takes the link along.
            return Ok(());
        }
        let repeated = self.planted_bug.then(|| as_new(&frame)).flatten();
        let parent = self.relays.len().checked_sub(1).map(|depth| RelayPlace { depth, relay });
        let step = self.station(parent).hub.receive(now, agent, frame)?;
        for entry in &step.log {
            match &entry.event {
                LogEvent::Joined(agent, incarnation) => {
                    let event = Event::Joined { agent: *agent, incarnation: *incarnation };
                    observer.observe(&event, self);
                }
                LogEvent::Accepted(agent, UpFrame { incarnation, message: Some(message), .. }) => {
                    let event = Event::Up { agent: *agent, incarnation: *incarnation, message };
                    observer.observe(&event, self);
                }
                _ => {}
            }
        }
        self.follow(parent, step, now);
        if let Some(frame) = repeated
            && let Ok(step) = self.station(parent).hub.receive(now, agent, frame)
        {
            self.follow(parent, step, now);
        }
        Ok(())
    }

    /// A frame of a relay reaches its parent.
    fn at_parent(
        &mut self,
        place: RelayPlace,
        frame: UpFrame,
        now: Tick,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let RelayPlace { depth, relay } = place;
        let parent = self.parent(depth, relay as u64);
        let step = self.station(parent).hub.receive(now, AgentId(relay as u64), frame)?;
        for entry in &step.log {
            if let LogEvent::Accepted(_, UpFrame { message: Some(message), .. }) = &entry.event {
                observer.observe(&Event::Passed { depth, relay, message }, self);
            }
        }
        self.follow(parent, step, now);
        Ok(())
    }

    /// A frame of its parent reaches a relay.
    fn at_relay(
        &mut self,
        place: RelayPlace,
        frame: DownFrame,
        now: Tick,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let step = self.station(Some(place)).hub.hear(now, frame)?;
        if !step.log.is_empty() {
            observer.observe(&Event::Heard { depth: place.depth, relay: place.relay }, self);
        }
        self.follow(Some(place), step, now);
        Ok(())
    }

    fn at_agent(
        &mut self,
        agent: AgentId,
        frame: DownFrame,
        now: Tick,
        cast: &Cast,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        // What reaches an agent that is away is lost.
        let Some(endpoint) = &mut self.places[agent.0 as usize].endpoint else { return Ok(()) };
        let message = frame.message.clone();
        let before = endpoint.received();
        let answer = endpoint.receive(now, frame)?;
        if let Some(message) = message.as_ref().filter(|_| endpoint.received() != before) {
            observer.observe(&Event::Down { agent, message }, self);
        }
        self.send_up(agent, answer, now);
        let endpoint = self.places[agent.0 as usize].endpoint.as_ref();
        if endpoint.is_some_and(|endpoint| !endpoint.agent().is_asking()) {
            self.choose_at_last(agent, now, cast, observer)?;
        }
        Ok(())
    }

    fn agent_timer(&mut self, agent: AgentId, now: Tick) {
        let place = &mut self.places[agent.0 as usize];
        place.timer = place.timer.filter(|at| *at > now);
        let frame = place.endpoint.as_mut().and_then(|endpoint| endpoint.tick(now));
        self.send_up(agent, frame, now);
    }

    fn tick_hub(&mut self, place: Option<RelayPlace>, now: Tick, observer: &mut dyn Observer) {
        let station = self.station(place);
        station.timer = station.timer.filter(|at| *at > now);
        let step = station.hub.tick(now);
        if !step.log.is_empty() {
            observer.observe(&Event::Ticked, self);
        }
        self.follow(place, step, now);
    }

    /// Keeps what the hub of a relay, or of the root, wants kept, then sends what it wants sent.
    fn follow(&mut self, place: Option<RelayPlace>, step: Step, now: Tick) {
        self.station(place).log.extend(step.log);
        let level = place.map_or(0, |place| place.depth + 1);
        for (child, frame) in step.frames {
            if let Some(Downlink::Collect { round, .. } | Downlink::NetworkCollect { round, .. }) =
                frame.message
            {
                // Sent to everybody, perhaps more than once: a round counts when its number is new.
                self.tally.rounds = self.tally.rounds.max(round.0);
            }
            let kind = frame.message.as_ref().map_or("acknowledgement", Downlink::kind);
            let sent = Sent { direction: Direction::Down, agent: child, kind, cost: frame.cost() };
            if level < self.relays.len() {
                self.tally.sent_above(level, self.relays.len(), &sent);
                let below = RelayPlace { depth: level, relay: child.0 as usize };
                for at in self.above[level].1.arrivals(child, now) {
                    self.queue.push(at, Due::RelayDown(below, frame.clone()));
                }
                continue;
            }
            self.count(sent);
            for at in self.down.arrivals(child, now) {
                self.queue.push(at, Due::Down(child, frame.clone()));
            }
        }
        if let Some(place) = place {
            step.up.iter().for_each(|frame| self.send_above(place, frame, now));
        }
        let station = self.station(place);
        if let Some(deadline) = station.hub.deadline().filter(|at| station.timer.is_none_or(|set| *at < set))
        {
            station.timer = Some(deadline);
            self.queue.push(deadline.max(now), place.map_or(Due::HubTimer, Due::RelayTimer));
        }
    }

    /// Sends a relay's frame to its parent.
    fn send_above(&mut self, place: RelayPlace, frame: &UpFrame, now: Tick) {
        let agent = AgentId(place.relay as u64);
        let kind = frame.message.as_ref().map_or("acknowledgement", Uplink::kind);
        let sent = Sent { direction: Direction::Up, agent, kind, cost: frame.cost() };
        self.tally.sent_above(place.depth, self.relays.len(), &sent);
        for at in self.above[place.depth].0.arrivals(agent, now) {
            self.queue.push(at, Due::RelayUp(place, frame.clone()));
        }
    }

    fn send_up(&mut self, agent: AgentId, frame: Option<UpFrame>, now: Tick) {
        if let Some(frame) = frame {
            let bare = if frame.greeting > 0 { "greeting" } else { "acknowledgement" };
            let kind = frame.message.as_ref().map_or(bare, Uplink::kind);
            self.count(Sent { direction: Direction::Up, agent, kind, cost: frame.cost() });
            let relay = self.places[agent.0 as usize].relay;
            for at in self.up.arrivals(agent, now) {
                self.queue.push(at, Due::Up(agent, relay, frame.clone()));
            }
        }
        let place = &mut self.places[agent.0 as usize];
        let deadline = place.endpoint.as_ref().and_then(Endpoint::deadline);
        if let Some(deadline) = deadline.filter(|at| place.timer.is_none_or(|set| *at < set)) {
            place.timer = Some(deadline);
            self.queue.push(deadline.max(now), Due::AgentTimer(agent));
        }
    }

    fn count(&mut self, sent: Sent) {
        self.tally.sent(&sent);
        self.sent.push(sent);
    }

    /// Lets go wrong what is to go wrong before this interaction.
    fn go_wrong(
        &mut self,
        step: u64,
        now: Tick,
        cast: &Cast,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let (relay_restart, relay_change) =
            (self.config.topology.relay_restart, self.config.topology.relay_change);
        if self.faults.is_empty() && relay_restart == 0.0 && relay_change == 0.0 {
            return Ok(());
        }
        let mut stream = self.config.seed.stream("faults", 0, step);
        if stream.uniform() < self.faults.agent_crash {
            let agent = AgentId(stream.below(self.config.agents));
            let durable = stream.uniform() >= self.faults.volatile;
            self.choose_at_last(agent, now, cast, observer)?;
            self.crash(agent, durable, now, observer);
        }
        if stream.uniform() < self.faults.coordinator_restart {
            self.restart_coordinator(now, observer)?;
        }
        if stream.uniform() < relay_restart && !self.relays.is_empty() {
            let depth = stream.below(self.relays.len() as u64) as usize;
            let relay = stream.below(self.relays[depth].len() as u64) as usize;
            self.restart_relay(RelayPlace { depth, relay }, now, observer)?;
        }
        if stream.uniform() < relay_change
            && let Some(lowest) = self.relays.last()
        {
            let relay = stream.below(lowest.len() as u64) as usize;
            let agent = AgentId(stream.below(self.config.agents));
            self.choose_at_last(agent, now, cast, observer)?;
            self.change_relay(agent, relay, now, observer);
        }
        Ok(())
    }

    /// An agent that is there leaves its relay and begins a new life at another one.
    fn change_relay(&mut self, agent: AgentId, relay: usize, now: Tick, observer: &mut dyn Observer) {
        let place = &self.places[agent.0 as usize];
        if place.endpoint.is_none() || place.relay == relay {
            return;
        }
        self.crash(agent, false, now, observer);
        let left = self.parent(self.relays.len(), agent.0);
        let step = self.station(left).hub.leave(now, agent);
        observer.observe(&Event::Ticked, self);
        self.follow(left, step, now);
        self.places[agent.0 as usize].relay = relay;
    }

    fn crash(&mut self, agent: AgentId, durable: bool, now: Tick, observer: &mut dyn Observer) {
        let place = &self.places[agent.0 as usize];
        let Some(endpoint) = &place.endpoint else { return };
        let view = endpoint.agent().inspect();
        if !durable {
            self.tally.lost_observations += view.unsent + view.withheld;
        }
        let saved = durable.then(|| endpoint.save());
        observer.observe(&Event::Crashing { agent, incarnation: place.incarnation, durable }, self);
        let place = &mut self.places[agent.0 as usize];
        place.endpoint = None;
        place.saved = saved;
        self.queue.push(now.after(self.faults.downtime), Due::Return(agent));
    }

    /// The coordinator comes back from its log, perhaps without the end of it.
    fn restart_coordinator(&mut self, now: Tick, observer: &mut dyn Observer) -> Result<(), RunError> {
        let lost = (self.faults.lost_entries as usize).min(self.root.log.len());
        self.root.log.truncate(self.root.log.len() - lost);
        let before = self.root.hub.coordinator().save();
        let epoch = self.root.hub.epoch();
        let mut hub = new_root(&self.config, &self.levels, self.shape)?;
        replay(&mut hub, &self.root.log)?;
        let same_bits = lost > 0 || hub.coordinator().save() == before;
        let step = if lost > 0 { hub.begin_epoch(now, Epoch(epoch.0 + 1)) } else { Step::default() };
        self.root.hub = hub;
        self.root.timer = None;
        observer.observe(&Event::Restarted { same_bits, lost }, self);
        self.follow(None, step, now);
        if self.relays.is_empty() {
            // That an agent left may have been in the lost part of the log.
            for agent in (0..self.config.agents).map(AgentId) {
                if self.places[agent.0 as usize].gone {
                    let step = self.root.hub.leave(now, agent);
                    self.follow(None, step, now);
                }
            }
        }
        self.greet_again(None, now);
        Ok(())
    }

    /// A relay comes back from its log.
    fn restart_relay(
        &mut self,
        place: RelayPlace,
        now: Tick,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let mut hub = self.new_relay(place)?;
        let station = self.station(Some(place));
        replay(&mut hub, &station.log)?;
        let same_bits = hub.coordinator().save() == station.hub.coordinator().save();
        (station.hub, station.timer) = (hub, None);
        observer.observe(&Event::Restarted { same_bits, lost: 0 }, self);
        let step = self.station(Some(place)).hub.hello(now);
        self.follow(Some(place), step, now);
        self.greet_again(Some(place), now);
        Ok(())
    }

    /// Every child of a machine that is there notices that the link was cut, and comes back.
    fn greet_again(&mut self, place: Option<RelayPlace>, now: Tick) {
        let level = place.map_or(0, |place| place.depth + 1);
        if level < self.relays.len() {
            for relay in 0..self.relays[level].len() {
                if self.parent(level, relay as u64) == place {
                    let child = RelayPlace { depth: level, relay };
                    let step = self.station(Some(child)).hub.hello(now);
                    self.follow(Some(child), step, now);
                }
            }
            return;
        }
        for agent in (0..self.config.agents).map(AgentId) {
            if self.parent(level, agent.0) == place {
                let endpoint = self.places[agent.0 as usize].endpoint.as_mut();
                let hello = endpoint.map(|endpoint| endpoint.hello(now));
                self.send_up(agent, hello, now);
            }
        }
    }
}

/// Applies a log to a hub without history.
fn replay(hub: &mut Hub, log: &[LogEntry]) -> Result<(), RunError> {
    for entry in log {
        // Through bytes, as from a disk.
        let entry = LogEntry::decode(&entry.encode()).expect("a log reads back");
        hub.replay(entry)?;
    }
    Ok(())
}

impl Stage for Linked {
    fn coordinator(&self) -> &dyn Coordinator {
        self.root.hub.coordinator()
    }

    fn agent(&self, agent: AgentId) -> Option<&dyn Agent> {
        self.places.get(agent.0 as usize)?.endpoint.as_ref().map(Endpoint::agent)
    }

    fn incarnation(&self, agent: AgentId) -> Incarnation {
        self.places.get(agent.0 as usize).map_or(Incarnation(0), |place| place.incarnation)
    }

    fn relay_of(&self, agent: AgentId) -> Option<usize> {
        self.relays.last().map(|_| self.places[agent.0 as usize].relay)
    }

    fn relays(&self) -> Vec<Vec<&dyn Relay>> {
        let depths = self.relays.iter();
        depths
            .map(|stations| stations.iter().filter_map(|station| station.hub.as_relay()).collect())
            .collect()
    }

    fn agents(&self) -> Vec<AgentId> {
        (0..self.places.len() as u64).map(AgentId).filter(|&agent| self.agent(agent).is_some()).collect()
    }
}
