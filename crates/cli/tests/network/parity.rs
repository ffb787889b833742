//! The same interactions through the simulator and over gRPC on loopback: the same choices, the same
//! messages in the same order, the same bits in the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posse_core::session::{DownFrame, LogEntry, LogEvent};
use posse_core::{
    AgentId, Algorithm, AsyncLinUcb, Downlink, ExchangeConfig, ExchangeLinUcb, JoinPolicy, Memory, Placement,
    PrivacyConfig, Robust, SecureAggregation, Seed, SyncLinUcb, Threshold, Tick, TimeSpan, Uplink, UserId,
};
use posse_net::agent::{Carriage, NoiseOrigin};
use posse_net::coordinator::{Options, Running, ServeConfig, serve};
use posse_net::federation::FederationConfig;
use posse_net::log::{Replay, read};
use posse_net::v1::{JournalEntry, journal_entry};
use posse_net::{Agent, AgentConfig, Clock};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, ClusteredConfig, GlmWorldConfig, Offer, WorldConfig};
use posse_sim::{AdversaryConfig, Event, Observer, RunConfig, Stage, Tally};
use prost::Message;

const AGENTS: u64 = 4;
const HORIZON: u64 = 150;
const DIMENSION: usize = 5;
/// When the simulator's time begins.
const START: u64 = 1_000_000_000_000_000;

/// What happened, as far as anybody can see it.
#[derive(Debug, Default, PartialEq)]
struct Transcript {
    choices: Vec<(AgentId, usize)>,
    /// What the coordinator accepted, in order.
    up: Vec<(AgentId, Uplink)>,
    /// What each agent was told, in order.
    down: BTreeMap<AgentId, Vec<Downlink>>,
    /// The machines in the end.
    agents: BTreeMap<AgentId, Vec<u8>>,
    version: u64,
    /// The coordinator's whole state at the end.
    state: Vec<u8>,
}

impl Observer for Transcript {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        match event {
            Event::Chose { agent, arm, .. } => self.choices.push((*agent, *arm)),
            Event::Up { agent, message, .. } => self.up.push((*agent, (*message).clone())),
            Event::Down { agent, message } => {
                self.down.entry(*agent).or_default().push((*message).clone());
            }
            Event::Quiet => {
                let machines = stage.agents().into_iter();
                self.agents =
                    machines.map(|agent| (agent, stage.agent(agent).expect("it is listed").save())).collect();
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
        topology: posse_sim::TopologyConfig::default(),
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

/// Agents over gRPC whose frames are carried in the order in which the simulator carries them.
struct Stagehand<'d> {
    data: &'d Path,
    running: Running,
    agents: BTreeMap<AgentId, Agent>,
    clock: Clock,
    /// Agents with something to send.
    turns: VecDeque<AgentId>,
}

impl Stagehand<'_> {
    async fn agent(&mut self, id: AgentId) -> Agent {
        if let Some(agent) = self.agents.get(&id) {
            return agent.clone();
        }
        let config = AgentConfig {
            coordinator: format!("http://{}", self.running.address),
            agent: Some(id.0),
            state: Some(self.data.join("agents").join(id.0.to_string())),
            carriage: Carriage::ByHand,
            noise: NoiseOrigin::Seed,
            clock: self.clock.clone(),
            ..AgentConfig::default()
        };
        let agent = Agent::start(config).await.unwrap();
        self.agents.insert(id, agent.clone());
        self.turns.push_back(id);
        agent
    }

    /// Carries everything that there is to be said.
    async fn carry(&mut self) {
        while let Some(id) = self.turns.pop_front() {
            let mut speakers = BTreeSet::new();
            if self.agents[&id].exchange().await.unwrap() {
                speakers.insert(id);
            }
            // What this set off reaches the others before anybody speaks again.
            for other in self.running.federations[0].waiting().await {
                if !self.turns.contains(&other)
                    && !speakers.contains(&other)
                    && self.agents[&other].exchange().await.unwrap()
                {
                    speakers.insert(other);
                }
            }
            self.turns.extend(speakers);
        }
    }
}

async fn networked(run: &RunConfig) -> Transcript {
    let data = tempfile::tempdir().unwrap();
    let mut federation = FederationConfig::new("parity", run.algorithm.clone(), DIMENSION as u64);
    (federation.agents, federation.horizon, federation.seed) = (AGENTS, HORIZON, run.seed.0);
    // Time passes between interactions only, as in the simulation to a millisecond: nothing is sent twice.
    let time = Arc::new(AtomicU64::new(START));
    let told = Arc::clone(&time);
    let clock = Clock::new(move || Tick(told.load(Ordering::SeqCst)));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let config = ServeConfig::on_loopback(data.path(), vec![federation.clone()]);
    let log = config.log_directory("parity");
    let running = serve(config, options).await.unwrap();
    let mut stage =
        Stagehand { data: data.path(), running, agents: BTreeMap::new(), clock, turns: VecDeque::new() };
    let mut transcript = Transcript::default();
    if run.algorithm.join_policy() == JoinPolicy::Eager {
        for agent in (0..AGENTS).map(AgentId) {
            stage.agent(agent).await;
        }
        stage.carry().await;
    }
    let mut world = run.world.build(AGENTS, run.seed).unwrap();
    let mut arrivals = run.arrival.build(AGENTS, HORIZON, run.seed).unwrap();
    let mut offer = Offer::new();
    for step in 0..HORIZON {
        let id = arrivals.agent(step);
        (offer.agent, offer.user) = (id, UserId(id.0));
        world.offer(step, &mut offer);
        time.store(START + run.network.interval.as_micros() * step, Ordering::SeqCst);
        let agent = stage.agent(id).await;
        if agent.prepare(offer.user, &offer.arms).unwrap() {
            stage.turns.push_back(id);
            stage.carry().await;
        }
        let chosen = agent.choose(offer.user, &offer.arms).unwrap();
        transcript.choices.push((id, chosen.arm));
        agent.reward(chosen.id, offer.reward(chosen.arm)).unwrap();
        if !stage.turns.contains(&id) {
            stage.turns.push_back(id);
        }
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
    stage.running.abort().await;
    let contents = read(&log).unwrap();
    for bytes in &contents.entries {
        if let LogEvent::Accepted(agent, frame) = LogEntry::decode(bytes).unwrap().event {
            transcript.up.push((agent, frame.message.expect("only messages are kept")));
        }
    }
    let replay = Replay { entries: contents.entries, ..Replay::default() };
    let hub = federation.replay(&replay).unwrap();
    let view = hub.coordinator().inspect();
    (transcript.version, transcript.state) = (view.version.0, hub.coordinator().save());
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
        ExchangeConfig { memory: Memory::Window, window: 30, ..Default::default() },
    ];
    let of = |exchange| Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange, ..Default::default() });
    all.extend(wary.map(of));
    all.push(Algorithm::SyncLinUcb(SyncLinUcb {
        privacy: Some(PrivacyConfig { first_release: 10, ..Default::default() }),
        secure_aggregation: Some(SecureAggregation { survivors: 2, colluders: 0 }),
        ..Default::default()
    }));
    all
}

/// Runs both ways and compares everything; returns whether anybody said anything.
async fn is_the_same(run: &RunConfig) -> bool {
    let name = run.algorithm.name();
    let (simulated, networked) = (simulated(run), networked(run).await);
    assert_eq!(simulated.choices, networked.choices, "{name}");
    assert_eq!(simulated.up, networked.up, "{name}");
    for (agent, heard) in &networked.down {
        // A journal that has grown by some megabytes begins anew, so it holds the end of what its agent heard.
        assert!(simulated.down[agent].ends_with(heard), "{name}: agent {} heard something else", agent.0);
    }
    assert!(simulated.down.keys().eq(networked.down.keys()), "{name}: others heard something");
    assert!(simulated.agents == networked.agents, "{name}: the agents differ");
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

#[tokio::test(flavor = "multi_thread")]
async fn clusters_of_users_are_the_same_in_the_simulator_and_over_grpc() {
    let names = ["fclub", "fclub-dc", "homo", "homo-dc"];
    for algorithm in algorithms().into_iter().filter(|algorithm| names.contains(&algorithm.name())) {
        assert!(is_the_same(&run(algorithm, users())).await);
    }
}
