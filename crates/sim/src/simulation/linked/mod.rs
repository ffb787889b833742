//! The same machines over links with a mind of their own: sessions, virtual time, crashes and restarts.

mod agents;
mod stations;
mod trouble;

use posse_core::session::{DownFrame, Endpoint, Hub, LogEntry, UpFrame};
use posse_core::{Agent, AgentId, Coordinator, Incarnation, Levels, Relay, Shape, Tick, TimeSpan, UserId};

use super::population::Population;
use super::queue::Queue;
use super::{Cast, RunConfig, RunError, report};
use crate::gauge::{Gauge, look};
use crate::network::{FaultConfig, Links};
use crate::observer::{Event, Observer, Sent, Stage};
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
