//! The same interactions through the simulator and over gRPC on loopback: the same choices, the same
//! messages in the same order, the same bits in the end.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posse_core::privacy::Unit;
use posse_core::session::{DownFrame, LogEntry, LogEvent};
use posse_core::{
    AgentId, Algorithm, AsyncLinUcb, Downlink, ExchangeConfig, ExchangeLinUcb, FedLinUcb, FnUcb, JoinPolicy,
    Memory, NeuralConfig, Placement, Precondition, PrivacyConfig, Robust, SecureAggregation, Seed, Sharing,
    SyncLinUcb, Threshold, Tick, TimeSpan, TrainingMode, Uplink, UserId,
};
use posse_net::agent::{Carriage, NoiseOrigin};
use posse_net::coordinator::{Options, Running, ServeConfig, serve};
use posse_net::federation::{FederationConfig, ParentConfig};
use posse_net::log::{Replay, read};
use posse_net::v1::{JournalEntry, journal_entry};
use posse_net::{Agent, AgentConfig, Clock};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, ClusteredConfig, GlmWorldConfig, Offer, WorldConfig};
use posse_sim::{AdversaryConfig, Event, Observer, RunConfig, Stage, Tally, TopologyConfig};
use prost::Message;

const AGENTS: u64 = 4;
const HORIZON: u64 = 150;
const DIMENSION: usize = 5;
/// When the simulator's time begins.
const START: u64 = 1_000_000_000_000_000;

/// A machine that others join: the root, or a relay by its depth and its number there.
type Station = Option<(usize, usize)>;

/// A machine that joins another one: an agent, or a relay by its depth and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Child {
    Agent(AgentId),
    Relay(usize, usize),
}

/// What happened, as far as anybody can see it.
#[derive(Debug, Default, PartialEq)]
struct Transcript {
    choices: Vec<(AgentId, usize)>,
    /// What the coordinator and each relay accepted, in order.
    up: BTreeMap<Station, Vec<(AgentId, Uplink)>>,
    /// What each agent was told, in order.
    down: BTreeMap<AgentId, Vec<Downlink>>,
    /// The machines in the end.
    agents: BTreeMap<AgentId, Vec<u8>>,
    relays: BTreeMap<Station, Vec<u8>>,
    version: u64,
    /// The coordinator's whole state at the end.
    state: Vec<u8>,
}

impl Observer for Transcript {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        match event {
            Event::Chose { agent, arm, .. } => self.choices.push((*agent, *arm)),
            Event::Up { agent, message, .. } => {
                let counts: Vec<usize> = stage.relays().iter().map(Vec::len).collect();
                let accepted = self.up.entry(parent(&counts, Child::Agent(*agent))).or_default();
                accepted.push((*agent, (*message).clone()));
            }
            Event::Passed { depth, relay, message } => {
                let counts: Vec<usize> = stage.relays().iter().map(Vec::len).collect();
                let accepted = self.up.entry(parent(&counts, Child::Relay(*depth, *relay))).or_default();
                accepted.push((AgentId(*relay as u64), (*message).clone()));
            }
            Event::Down { agent, message } => {
                self.down.entry(*agent).or_default().push((*message).clone());
            }
            Event::Quiet => {
                let machines = stage.agents().into_iter();
                self.agents =
                    machines.map(|agent| (agent, stage.agent(agent).expect("it is listed").save())).collect();
                for (depth, relays) in stage.relays().into_iter().enumerate() {
                    let states = relays.iter().enumerate();
                    self.relays.extend(states.map(|(number, relay)| (Some((depth, number)), relay.save())));
                }
                let view = stage.coordinator().inspect();
                (self.version, self.state) = (view.version.0, stage.coordinator().save());
            }
            _ => {}
        }
    }

    fn interacted(&mut self, _tally: &Tally) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Clicks: every family takes rewards of 0 and 1.
fn clicks() -> WorldConfig {
    WorldConfig::Glm(GlmWorldConfig { dimension: DIMENSION, arms: 6, ..Default::default() })
}

/// Agents with several users each, of two kinds.
fn users() -> WorldConfig {
    let (users, clusters) = (5 * AGENTS, 2);
    WorldConfig::Clustered(ClusteredConfig {
        users,
        clusters,
        dimension: DIMENSION,
        arms: 6,
        ..Default::default()
    })
}

fn run(algorithm: Algorithm, world: WorldConfig) -> RunConfig {
    RunConfig {
        seed: Seed(3),
        agents: AGENTS,
        horizon: HORIZON,
        world,
        arrival: ArrivalConfig::default(),
        // Links that do nothing wrong, and time for everything to be said between two interactions.
        network: NetworkConfig {
            latency: Some(TimeSpan::from_micros(10)),
            interval: TimeSpan::from_millis(100),
            ..NetworkConfig::default()
        },
        topology: TopologyConfig::default(),
        faults: FaultConfig::default(),
        adversaries: AdversaryConfig::default(),
        algorithm,
    }
}

fn simulated(run: &RunConfig) -> Transcript {
    let mut transcript = Transcript::default();
    run.run(&mut transcript).unwrap();
    transcript
}

/// Where a child belongs, with so many relays at each depth.
fn parent(counts: &[usize], child: Child) -> Station {
    let (above, number) = match child {
        Child::Agent(agent) => (counts.len(), agent.0 as usize),
        Child::Relay(depth, number) => (depth, number),
    };
    let depth = above.checked_sub(1)?;
    Some((depth, number % counts[depth]))
}

/// Something that happens between machines, in the simulator's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// What a child has to say is at its parent.
    Said(Child),
    /// What waits for a child is with it.
    Heard(Child),
    /// What a child's own call brought back is with it. The flag says whether that made it speak again.
    Answered(Child, bool),
}

/// Agents and relays over gRPC whose frames are carried in the order in which the simulator carries them: every frame takes
/// one moment.
struct Stagehand<'d> {
    data: &'d Path,
    /// How many relays there are at each depth.
    counts: Vec<usize>,
    stations: BTreeMap<Station, Running>,
    agents: BTreeMap<AgentId, Agent>,
    clock: Clock,
    /// What is due, by the moment and in the order in which it was set off.
    due: VecDeque<(u64, Due)>,
}

impl Stagehand<'_> {
    async fn agent(&mut self, id: AgentId) -> Agent {
        if let Some(agent) = self.agents.get(&id) {
            return agent.clone();
        }
        let station = parent(&self.counts, Child::Agent(id));
        let config = AgentConfig {
            coordinator: format!("http://{}", self.stations[&station].address),
            agent: Some(id.0),
            state: Some(self.data.join("agents").join(id.0.to_string())),
            carriage: Carriage::ByHand,
            noise: NoiseOrigin::Seed,
            clock: self.clock.clone(),
            ..AgentConfig::default()
        };
        let agent = Agent::start(config).await.unwrap();
        self.agents.insert(id, agent.clone());
        self.put(0, Due::Said(Child::Agent(id)));
        agent
    }

    /// Lets a child say the first thing that it has to say, or ask, and hear what waits for it. Says whether it has more to
    /// say.
    async fn exchange(&self, child: Child) -> bool {
        match child {
            Child::Agent(agent) => self.agents[&agent].exchange().await.unwrap(),
            Child::Relay(depth, number) => {
                self.stations[&Some((depth, number))].exchange_with_parent(NAME).await.unwrap()
            }
        }
    }

    /// The children of a station for which frames wait.
    async fn waiting(&self, station: Station) -> Vec<Child> {
        let below = station.map_or(0, |(depth, _)| depth + 1);
        let relays = below < self.counts.len();
        let child = |id: AgentId| if relays { Child::Relay(below, id.0 as usize) } else { Child::Agent(id) };
        self.stations[&station].federations[0].waiting().await.into_iter().map(child).collect()
    }

    /// Notes that something happens in a moment, once.
    fn put(&mut self, moment: u64, due: Due) {
        if !self.due.iter().any(|(_, other)| *other == due) {
            let place = self.due.iter().take_while(|(other, _)| *other <= moment).count();
            self.due.insert(place, (moment, due));
        }
    }

    /// What a machine that others join has set off reaches them in `moment`, and then what is above it.
    async fn spread(&mut self, station: Station, own: Option<(Child, bool)>, moment: u64) {
        let waiting = self.waiting(station).await.into_iter().map(|child| (child, Due::Heard(child)));
        let own = own.map(|(child, more)| (child, Due::Answered(child, more)));
        let reached: BTreeMap<Child, Due> = waiting.chain(own).collect();
        for due in reached.into_values() {
            self.put(moment, due);
        }
        if let Some((depth, number)) = station
            && self.stations[&station].has_mail_for_parent(NAME).await
        {
            self.put(moment, Due::Said(Child::Relay(depth, number)));
        }
    }

    /// Carries everything that there is to be said.
    async fn carry(&mut self) {
        while let Some((moment, due)) = self.due.pop_front() {
            match due {
                Due::Said(child) => {
                    // The answer comes with the call. What it sets off has to wait until it would have arrived.
                    let more = self.exchange(child).await;
                    self.spread(parent(&self.counts, child), Some((child, more)), moment + 1).await;
                }
                Due::Heard(child) => {
                    if !self.waiting(parent(&self.counts, child)).await.contains(&child) {
                        continue;
                    }
                    if self.exchange(child).await {
                        self.put(moment + 1, Due::Said(child));
                    }
                    if let Child::Relay(depth, number) = child {
                        self.spread(Some((depth, number)), None, moment + 1).await;
                    }
                }
                Due::Answered(Child::Relay(depth, number), _) => {
                    self.spread(Some((depth, number)), None, moment + 1).await;
                }
                Due::Answered(child, more) => {
                    if more {
                        self.put(moment + 1, Due::Said(child));
                    }
                }
            }
        }
    }
}

const NAME: &str = "parity";

/// The settings of a station's federation; a relay's parent is at `above`.
fn settings(run: &RunConfig, station: Station, above: Option<SocketAddr>) -> FederationConfig {
    let mut federation = FederationConfig::new(NAME, run.algorithm.clone(), DIMENSION as u64);
    (federation.agents, federation.horizon, federation.seed) = (run.agents, HORIZON, run.seed.0);
    federation.levels = run.topology.levels;
    if let (Some((depth, number)), Some(above)) = (station, above) {
        let mut parent = ParentConfig::default();
        parent.coordinator = format!("http://{above}");
        parent.agent = Some(number as u64);
        parent.depth = Some(depth as u64 + 1);
        federation.parent = Some(parent);
    }
    federation
}

/// The directory of a station.
fn home(data: &Path, station: Station) -> PathBuf {
    data.join(station.map_or_else(|| "root".into(), |(depth, number)| format!("relay-{depth}-{number}")))
}

async fn networked(run: &RunConfig) -> Transcript {
    let data = tempfile::tempdir().unwrap();
    // Time passes between interactions only, as in the simulation to a millisecond: nothing is sent twice.
    let time = Arc::new(AtomicU64::new(START));
    let told = Arc::clone(&time);
    let clock = Clock::new(move || Tick(told.load(Ordering::SeqCst)));
    let (levels, fan_out) = (run.topology.levels as usize, run.topology.fan_out as usize);
    let counts: Vec<usize> = (1..levels).map(|depth| fan_out.pow(depth as u32)).collect();
    let relays = counts.iter().enumerate().flat_map(|(depth, count)| (0..*count).map(move |n| (depth, n)));
    let places: Vec<Station> = std::iter::once(None).chain(relays.map(Some)).collect();
    let mut stations: BTreeMap<Station, Running> = BTreeMap::new();
    for station in &places {
        let above = station.map(|(depth, number)| parent(&counts, Child::Relay(depth, number)));
        let federation = settings(run, *station, above.map(|above| stations[&above].address));
        let options = Options { clock: clock.clone(), relays_by_hand: true, ..Options::default() };
        let config = ServeConfig::on_loopback(&home(data.path(), *station), vec![federation]);
        stations.insert(*station, serve(config, options).await.unwrap());
    }
    // Relays are there from the beginning, those below the root first.
    let relays = places.iter().flatten().map(|(depth, number)| Child::Relay(*depth, *number));
    let due = relays.map(|relay| (0, Due::Said(relay))).collect();
    let agents = BTreeMap::new();
    let mut stage = Stagehand { data: data.path(), counts, stations, agents, clock, due };
    stage.carry().await;
    let mut transcript = Transcript::default();
    if run.algorithm.join_policy() == JoinPolicy::Eager {
        for agent in (0..run.agents).map(AgentId) {
            stage.agent(agent).await;
        }
        stage.carry().await;
    }
    let mut world = run.world.build(run.agents, run.seed).unwrap();
    let mut arrivals = run.arrival.build(run.agents, HORIZON, run.seed).unwrap();
    let mut offer = Offer::new();
    for step in 0..HORIZON {
        let id = arrivals.agent(step);
        (offer.agent, offer.user) = (id, UserId(id.0));
        world.offer(step, &mut offer);
        time.store(START + run.network.interval.as_micros() * step, Ordering::SeqCst);
        let agent = stage.agent(id).await;
        if agent.prepare(offer.user, &offer.arms).unwrap() {
            stage.put(0, Due::Said(Child::Agent(id)));
            stage.carry().await;
        }
        let chosen = agent.choose(offer.user, &offer.arms).unwrap();
        transcript.choices.push((id, chosen.arm));
        agent.reward(chosen.id, offer.reward(chosen.arm)).unwrap();
        stage.put(0, Due::Said(Child::Agent(id)));
        stage.carry().await;
    }
    for (id, agent) in &stage.agents {
        transcript.agents.insert(*id, agent.inspect(|machine| machine.save()));
        let journal = data.path().join("agents").join(id.0.to_string());
        let heard = heard(&journal);
        if !heard.is_empty() {
            transcript.down.insert(*id, heard);
        }
    }
    for (station, running) in stage.stations {
        let federation = running.federations[0].config().clone();
        running.abort().await;
        let contents = read(&home(data.path(), station).join("federations").join(NAME)).unwrap();
        for bytes in &contents.entries {
            if let LogEvent::Accepted(agent, frame) = LogEntry::decode(bytes).unwrap().event {
                let message = frame.message.expect("only messages are kept");
                transcript.up.entry(station).or_default().push((agent, message));
            }
        }
        let replay = Replay { entries: contents.entries, ..Replay::default() };
        let hub = federation.replay(&replay).unwrap();
        let state = hub.coordinator().save();
        if station.is_some() {
            transcript.relays.insert(station, state);
        } else {
            (transcript.version, transcript.state) = (hub.coordinator().inspect().version.0, state);
        }
    }
    transcript
}

/// Every message that an agent's journal says it received.
fn heard(journal: &Path) -> Vec<Downlink> {
    let (mut newest, mut messages) = (0, Vec::new());
    for bytes in read(journal).unwrap().entries {
        let entry = JournalEntry::decode(&bytes[..]).unwrap();
        if let Some(journal_entry::Event::Received(frame)) = entry.event {
            let frame = DownFrame::from_wire(frame).unwrap();
            if let Some(message) = frame.message.filter(|_| frame.sequence > newest) {
                newest = frame.sequence;
                messages.push(message);
            }
        }
    }
    messages
}

/// Every algorithm of the list whose learners live with the agents, and one that shares at every turn.
fn algorithms() -> Vec<Algorithm> {
    let mut all = Algorithm::all();
    all.retain(|algorithm| algorithm.placement() == Placement::PerAgent);
    for algorithm in &mut all {
        // Noise drowns everything of a run this short; said it is all the same.
        match algorithm {
            Algorithm::CdpFclubDc(private) => private.privacy.first_release = 10,
            Algorithm::PrivateGlmUcb(private) => private.privacy.first_release = 10,
            Algorithm::FedUcb(private) => private.first_release = 10,
            _ => {}
        }
    }
    let mut talkative = AsyncLinUcb::default();
    talkative.protocol.upload_threshold = Threshold(1.0);
    talkative.protocol.download_threshold = Threshold(1.0);
    all.push(Algorithm::AsyncLinUcb(talkative));
    let wary = [
        ExchangeConfig { robust: Robust::Trimmed, false_alarm: 0.2, ..Default::default() },
        ExchangeConfig { memory: Memory::Adaptive, ..Default::default() },
        ExchangeConfig { rounding: 0.01, ..Default::default() },
        ExchangeConfig { memory: Memory::Window, window: 30, ..Default::default() },
        ExchangeConfig {
            robust: Robust::Trimmed,
            false_alarm: 0.2,
            memory: Memory::Adaptive,
            ..Default::default()
        },
    ];
    let of = |exchange| Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange, ..Default::default() });
    all.extend(wary.map(of));
    let wary = SyncLinUcb { robust: Robust::Trimmed, false_alarm: 0.2, ..Default::default() };
    all.push(Algorithm::SyncLinUcb(wary));
    all.push(Algorithm::SyncLinUcb(SyncLinUcb {
        privacy: Some(PrivacyConfig { first_release: 10, ..Default::default() }),
        secure_aggregation: Some(SecureAggregation { survivors: 2, colluders: 0 }),
        ..Default::default()
    }));
    all
}

/// What each child of each station said, in its order.
fn by_child(up: &BTreeMap<Station, Vec<(AgentId, Uplink)>>) -> BTreeMap<(Station, AgentId), Vec<&Uplink>> {
    let mut sorted: BTreeMap<_, Vec<&Uplink>> = BTreeMap::new();
    for (station, said) in up {
        for (child, message) in said {
            sorted.entry((*station, *child)).or_default().push(message);
        }
    }
    sorted
}

/// Runs both ways and compares everything; returns whether anybody said anything.
async fn is_the_same(run: &RunConfig) -> bool {
    let name = run.algorithm.name();
    let (simulated, networked) = (simulated(run), networked(run).await);
    assert_eq!(simulated.choices, networked.choices, "{name}");
    if run.algorithm.sharing() == Sharing::Clusters && !simulated.relays.is_empty() {
        // Answers to a round that reach a relay in the same moment may change places: a relay that has two things to hear at once
        // is visited once here. What each child says is the same, and so is what the root takes in, in its order.
        assert_eq!(simulated.up.get(&None), networked.up.get(&None), "{name}");
        assert_eq!(by_child(&simulated.up), by_child(&networked.up), "{name}");
    } else {
        assert_eq!(simulated.up, networked.up, "{name}");
    }
    for (agent, heard) in &networked.down {
        // A journal that has grown by some megabytes begins anew, so it holds the end of what its agent heard.
        assert!(simulated.down[agent].ends_with(heard), "{name}: agent {} heard something else", agent.0);
    }
    assert!(simulated.down.keys().eq(networked.down.keys()), "{name}: others heard something");
    assert!(simulated.agents == networked.agents, "{name}: the agents differ");
    assert!(simulated.relays == networked.relays, "{name}: the relays differ");
    assert_eq!((simulated.version, simulated.state), (networked.version, networked.state), "{name}");
    !networked.up.is_empty()
}

/// Algorithms whose agents have nothing to say to anybody.
const ALONE: [&str; 11] = [
    "lin-ucb",
    "n-ucb-glm",
    "n-ons-glm",
    "club",
    "sclub",
    "user-lin-ucb",
    "lin-ts",
    "kernel-ucb",
    "kernel-ts",
    "neural-ucb",
    "neural-ts",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_algorithm_says_and_learns_the_same_in_the_simulator_and_over_grpc() {
    for algorithm in algorithms() {
        let name = algorithm.name();
        let spoke = is_the_same(&run(algorithm, clicks())).await;
        assert_eq!(spoke, !ALONE.contains(&name), "{name} in a world of clicks");
    }
}

/// Relays of relays, with the thresholds of the algorithm divided over all levels: whatever a machine of the simulator says,
/// hears and holds, a process does too.
#[tokio::test(flavor = "multi_thread")]
async fn every_algorithm_with_relays_is_the_same_in_the_simulator_and_over_grpc() {
    let mut names = Vec::new();
    for algorithm in algorithms() {
        let topology = TopologyConfig { levels: 3, fan_out: 2, ..TopologyConfig::default() };
        let run = RunConfig { topology, agents: 2 * AGENTS, ..run(algorithm, clicks()) };
        if run.check().is_ok() {
            assert!(is_the_same(&run).await, "nobody spoke");
            names.push(run.algorithm.name());
        }
    }
    names.dedup();
    let expected = ["async-lin-ucb", "async-lin-ts", "async-lin-phe", "sync-lin-ucb", "fed-lin-ucb"];
    assert!(expected.iter().all(|name| names.contains(name)), "{names:?}");
    let others = ["fed-glb-ucb", "fn-ucb", "fed-ucb", "private-glm-ucb"];
    assert!(others.iter().all(|name| names.contains(name)), "{names:?}");
}

/// Sums with noise, of which a relay keeps the last of every child.
#[tokio::test(flavor = "multi_thread")]
async fn releases_below_relays_are_the_same_in_the_simulator_and_over_grpc() {
    let privacy = || Some(PrivacyConfig { first_release: 5, ..Default::default() });
    let all = [
        Algorithm::AsyncLinUcb(AsyncLinUcb { privacy: privacy(), ..Default::default() }),
        Algorithm::FedLinUcb(FedLinUcb { privacy: privacy(), ..Default::default() }),
        Algorithm::SyncLinUcb(SyncLinUcb { privacy: privacy(), ..Default::default() }),
    ];
    for algorithm in all {
        for levels in [2, 3] {
            let topology = TopologyConfig { levels, fan_out: 2, ..TopologyConfig::default() };
            let run = run(algorithm.clone(), clicks());
            assert!(is_the_same(&RunConfig { topology, agents: 2 * AGENTS, ..run }).await, "nobody spoke");
        }
    }
}

/// Every kind of training and statistics of networks that travels, at two levels and at three.
#[tokio::test(flavor = "multi_thread")]
async fn networks_below_relays_are_the_same_in_the_simulator_and_over_grpc() {
    let networks = |statistic, training| {
        let neural = NeuralConfig { hidden_width: 4, training_steps: 4, statistic, ..Default::default() };
        FnUcb { neural, training, averaging_rounds: 2, ..Default::default() }
    };
    let whole = || networks(Precondition::Full, TrainingMode::Fedavg);
    let privacy = PrivacyConfig { unit: Unit::Agent, first_release: 5, ..Default::default() };
    let all = [
        whole(),
        networks(Precondition::Diagonal, TrainingMode::FedavgRounds),
        FnUcb { lockstep: false, ..networks(Precondition::Diagonal, TrainingMode::Independent) },
        FnUcb { privacy: Some(privacy), update_steps: 5, ..whole() },
    ];
    for networks in all {
        for levels in [2, 3] {
            let topology = TopologyConfig { levels, fan_out: 2, ..TopologyConfig::default() };
            let run = run(Algorithm::FnUcb(networks.clone()), clicks());
            assert!(is_the_same(&RunConfig { topology, agents: 2 * AGENTS, ..run }).await, "nobody spoke");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_of_users_are_the_same_in_the_simulator_and_over_grpc() {
    let names = ["fclub", "fclub-dc", "homo", "homo-dc"];
    for algorithm in algorithms().into_iter().filter(|algorithm| names.contains(&algorithm.name())) {
        assert!(is_the_same(&run(algorithm, users())).await);
    }
}
