//! Whatever goes wrong between a coordinator and its agents, evidence is conserved to the last count.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use posse_core::wire::v1;
use posse_core::{
    Algorithm, AsyncLinUcb, ClusterConfig, FclubDc, FedGlbUcb, FedLinUcb, GlmConfig, LinkFunction,
    PrivacyConfig, Robust, RoundConfig, Seed, SyncLinUcb, TimeSpan,
};
use posse_net::coordinator::{LogKind, Options, Running, ServeConfig, serve};
use posse_net::federation::{FederationConfig, FederationView, ParentConfig};
use posse_net::log::{FileLog, Log, LogError, Replay, read};
use posse_net::{Agent, AgentConfig};
use prost::Message;

use crate::proxy::Proxy;
use crate::support::{config, federation, interact, look, talkative, waiting};

pub(crate) const AGENTS: u64 = 3;

/// A log on a disk that is full now and then.
struct Full {
    log: FileLog,
    /// How many more appends fit; negative is without limit.
    room: Arc<AtomicI64>,
}

impl Log for Full {
    fn append(&mut self, entries: &[Vec<u8>]) -> Result<(), LogError> {
        if self.room.load(Ordering::SeqCst) == 0 {
            let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(LogError::Io { path: PathBuf::from("full"), error });
        }
        self.room.fetch_sub(1, Ordering::SeqCst);
        self.log.append(entries)
    }
    fn sync(&mut self, epoch: u64) -> Result<(), LogError> {
        self.log.sync(epoch)
    }
    fn replay(&mut self) -> Result<Replay, LogError> {
        self.log.replay()
    }
    fn snapshot(&mut self, state: &[u8]) -> Result<(), LogError> {
        self.log.snapshot(state)
    }
    fn truncate(&mut self, keep_entries: bool) -> Result<(), LogError> {
        self.log.truncate(keep_entries)
    }
    fn history(&mut self) -> Result<Option<Vec<Vec<u8>>>, LogError> {
        self.log.history()
    }
    fn probe(&mut self, bytes: u64) -> Result<(), LogError> {
        if self.room.load(Ordering::SeqCst) == 0 {
            let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(LogError::Io { path: PathBuf::from("full"), error });
        }
        self.log.probe(bytes)
    }
    fn next(&self) -> u64 {
        self.log.next()
    }
    fn bytes_since_snapshot(&self) -> u64 {
        self.log.bytes_since_snapshot()
    }
    fn bytes(&self) -> u64 {
        self.log.bytes()
    }
    fn keep_beside(&mut self, name: &str, bytes: &[u8]) -> Result<(), LogError> {
        self.log.keep_beside(name, bytes)
    }
    fn beside(&mut self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        self.log.beside(name)
    }
}

/// A coordinator, or a relay, with its disk. Whoever joins it comes through its proxy.
pub(crate) struct Seat {
    pub(crate) directory: PathBuf,
    pub(crate) federation: FederationConfig,
    /// How many more appends its disk takes.
    room: Arc<AtomicI64>,
    address: SocketAddr,
    running: Option<Running>,
    pub(crate) proxy: Proxy,
}

impl Seat {
    async fn start(directory: PathBuf, federation: FederationConfig, seed: u64) -> Self {
        let room = Arc::new(AtomicI64::new(-1));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let running = start(&directory, &federation, &room, nowhere).await;
        let (address, proxy) = (running.address, Proxy::start(running.address, seed).await);
        Self { directory, federation, room, address, running: Some(running), proxy }
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().expect("it was started again")
    }

    pub(crate) fn log_directory(&self) -> PathBuf {
        self.directory.join("federations").join(&self.federation.name)
    }

    pub(crate) async fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort().await;
        }
    }

    pub(crate) async fn restart(&mut self) {
        self.kill().await;
        self.running = Some(start(&self.directory, &self.federation, &self.room, self.address).await);
    }

    /// What it holds, once its log can be used: one that failed is opened again after a moment.
    pub(crate) async fn look(&self) -> FederationView {
        loop {
            match self.running().federations[0].look().await {
                Some(view) => return view,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// Cuts off the end of its log, so many twelfths of it. It must not run.
    pub(crate) fn cut_log(&self, twelfths: u64) {
        let path = read(&self.log_directory()).unwrap().segments.pop().unwrap().path;
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length - length * twelfths / 12).unwrap();
    }
}

/// A federation to which bad things are done.
pub(crate) struct Victim {
    data: tempfile::TempDir,
    /// The root, and below it relay after relay. Agents join the last.
    pub(crate) seats: Vec<Seat>,
    pub(crate) agents: Vec<Option<Agent>>,
    pub(crate) made: u64,
}

impl Victim {
    async fn new(federation: FederationConfig, seed: u64) -> Self {
        Self::with_relays(federation, 0, seed).await
    }

    /// The same with a chain of relays between the root and the agents.
    pub(crate) async fn with_relays(federation: FederationConfig, relays: u64, seed: u64) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut seats: Vec<Seat> = Vec::new();
        for depth in 0..=relays {
            let mut own = FederationConfig { levels: relays + 1, ..federation.clone() };
            if let Some(above) = seats.last() {
                let mut parent = ParentConfig::default();
                parent.coordinator = format!("http://{}", above.proxy.address);
                (parent.agent, parent.depth) = (Some(100 + depth), Some(depth));
                own.parent = Some(parent);
            }
            let directory = data.path().join(format!("seat-{depth}"));
            seats.push(Seat::start(directory, own, seed + 1000 * depth).await);
        }
        let agents = (0..AGENTS).map(|_| None).collect();
        Self { data, seats, agents, made: 0 }
    }

    pub(crate) fn root(&self) -> &Seat {
        &self.seats[0]
    }

    pub(crate) fn leaf(&self) -> &Seat {
        &self.seats[self.seats.len() - 1]
    }

    fn agent_config(&self, agent: usize) -> AgentConfig {
        let state = Some(self.data.path().join("agents").join(agent.to_string()));
        AgentConfig { state, ..config(self.leaf().proxy.address, agent as u64) }
    }

    pub(crate) async fn agent(&mut self, agent: usize) -> Agent {
        if self.agents[agent].is_none() {
            let started = Agent::start(self.agent_config(agent)).await.unwrap();
            self.agents[agent] = Some(started);
        }
        self.agents[agent].clone().unwrap()
    }

    /// Ten interactions, with the faults that `seed` draws for this turn.
    async fn suffer(&mut self, seed: u64, turn: u64) {
        let mut random = Seed(seed).stream("faults", turn, 0);
        for _ in 0..10 {
            let agent = random.below(AGENTS) as usize;
            let agent = self.agent(agent).await;
            interact(&agent, self.made);
            self.made += 1;
            if random.uniform() < 0.3 {
                tokio::task::yield_now().await;
            }
        }
        let seat = random.below(self.seats.len() as u64) as usize;
        let seat = &mut self.seats[seat];
        match random.below(7) {
            0 => seat.restart().await,
            1 => {
                // A write is cut short by the crash.
                seat.kill().await;
                let contents = read(&seat.log_directory()).unwrap();
                let path = &contents.segments.last().unwrap().path;
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                let torn: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
                file.write_all(&torn).unwrap();
                seat.restart().await;
            }
            2 | 3 => {
                let agent = random.below(AGENTS) as usize;
                if let Some(agent) = self.agents[agent].take() {
                    agent.abort().await;
                }
            }
            4 => seat.room.store(random.below(3) as i64, Ordering::SeqCst),
            5 => seat.room.store(-1, Ordering::SeqCst),
            _ => {}
        }
    }

    async fn round_is_open(&self) -> bool {
        let is_open = |depth: usize, state: &[u8]| {
            Some(match (&self.root().federation.algorithm, depth) {
                (Algorithm::SyncLinUcb(sync), 0) if sync.privacy.is_some() => {
                    v1::GroupsState::decode(state).ok()?.collecting
                }
                (Algorithm::SyncLinUcb(sync), _) if sync.privacy.is_some() => {
                    v1::ReleaseRelayState::decode(state).ok()?.open
                }
                (Algorithm::SyncLinUcb(_), 0) => v1::CoordinatorState::decode(state).ok()?.collecting,
                (Algorithm::SyncLinUcb(_), _) => v1::RoundRelayState::decode(state).ok()?.below?.collecting,
                (Algorithm::FedGlbUcb(_), 0) => v1::GlmCoordinatorState::decode(state).ok()?.open,
                (Algorithm::FedGlbUcb(_), _) => v1::ModelRelayState::decode(state).ok()?.open,
                _ => false,
            })
        };
        for (depth, seat) in self.seats.iter().enumerate() {
            if is_open(depth, &seat.look().await.state).expect("its own state") {
                return true;
            }
        }
        false
    }

    /// What the root holds, relays owe it and agents have not sent, once every upload is answered. Agents must be silent.
    pub(crate) async fn held(&self, agents: &[Agent]) -> u64 {
        let mut all = self.root().look().await.observations + waiting(self.leaf().running(), agents).await;
        for relay in &self.seats[1..] {
            all += relay.look().await.unsent;
        }
        all
    }

    /// Waits until everything that was learned is somewhere, once. While a relay's upload is on its way, it counts at both
    /// ends.
    pub(crate) async fn conserves(&self, agents: &[Agent], expected: u64, why: &str) {
        let settles = async {
            while self.held(agents).await != expected {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(std::time::Duration::from_secs(60), settles).await.is_err() {
            panic!("{why}: {} of {expected} observations are held", self.held(agents).await);
        }
    }

    /// Everything heals; returns all agents, silent.
    pub(crate) async fn heal(&mut self) -> Vec<Agent> {
        for seat in &self.seats {
            seat.room.store(-1, Ordering::SeqCst);
            seat.proxy.heal();
        }
        loop {
            let mut agents = Vec::new();
            for agent in 0..AGENTS as usize {
                agents.push(self.agent(agent).await);
            }
            // What one agent says may make another speak; and who has been heard may still be asked for its
            // part of a round, as long as one is open.
            while self.round_is_open().await || !agents.iter().all(Agent::is_settled) {
                for agent in &agents {
                    agent.settled().await;
                }
                tokio::task::yield_now().await;
            }
            for agent in &agents {
                agent.clone().close().await.unwrap();
            }
            self.agents.fill_with(|| None);
            while self.round_is_open().await {
                tokio::task::yield_now().await;
            }
            // Whoever was called to a round while it was closing has to hear first how that ended.
            if agents.iter().all(|agent| agent.inspect(|machine| machine.inspect().in_flight.is_none())) {
                return agents;
            }
        }
    }
}

async fn start(
    data: &Path,
    federation: &FederationConfig,
    room: &Arc<AtomicI64>,
    listen: SocketAddr,
) -> Running {
    let config = ServeConfig { listen, ..ServeConfig::on_loopback(data, vec![federation.clone()]) };
    patiently(&config, &Options { log: full_log(room), ..Options::default() }).await
}

/// Logs on a disk that takes `room` more appends, or any number if that is negative.
pub(crate) fn full_log(room: &Arc<AtomicI64>) -> LogKind {
    let room = Arc::clone(room);
    LogKind::new(move |directory| {
        let (log, room) = (FileLog::open(directory)?, Arc::clone(&room));
        Ok(Box::new(Full { log, room }))
    })
}

/// Starts a coordinator, perhaps in the place of one that was killed.
pub(crate) async fn patiently(config: &ServeConfig, options: &Options) -> Running {
    loop {
        match serve(config.clone(), options.clone()).await {
            Ok(running) => return running,
            // The socket of a coordinator that was killed is free when its task is gone.
            Err(posse_net::coordinator::ServeError::Listen { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The seeds to run: `count` of them, as many as FAULT_SEEDS says, or only FAULT_SEED.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("it is a number"));
    match number("FAULT_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("FAULT_SEEDS").unwrap_or(count)).collect(),
    }
}

/// Bursts of forty interactions of each agent after which every level must have heard of one.
const BURSTS: u64 = 8;

async fn conserves(federation: FederationConfig, relays: u64, seed: u64) {
    let why = format!("FAULT_SEED={seed}, {:?} below {relays} relays", federation.algorithm);
    let mut victim = Victim::with_relays(federation, relays, seed).await;
    for turn in 0..8 {
        victim.suffer(seed, turn).await;
    }
    let agents = victim.heal().await;
    victim.conserves(&agents, victim.made, &why).await;
    // Everybody is heard again, at every level.
    let mut before = Vec::new();
    for seat in &victim.seats {
        before.push(seat.look().await.version);
    }
    // A relay speaks when it knows so much more than its parent was told, so one burst need not reach the root.
    for burst in 0.. {
        for step in 0..40 * AGENTS {
            let agent = victim.agent((step % AGENTS) as usize).await;
            interact(&agent, victim.made);
            victim.made += 1;
        }
        let agents = victim.heal().await;
        victim.conserves(&agents, victim.made, &why).await;
        let mut silent = Vec::new();
        for (depth, seat) in victim.seats.iter().enumerate() {
            if seat.look().await.version <= before[depth] {
                silent.push(depth);
            }
        }
        if silent.is_empty() {
            break;
        }
        assert!(burst < BURSTS, "{why}: nobody is heard at depths {silent:?}");
    }
    // What each coordinator holds is what its log says, and nothing else.
    for seat in &mut victim.seats {
        let before = seat.look().await;
        seat.kill().await;
        let contents = read(&seat.log_directory()).unwrap();
        let replay = Replay {
            state: contents.state.map(|(_, state)| state),
            entries: contents.entries,
            ..Replay::default()
        };
        let settings = seat.federation.clone().with_identity_of(&seat.log_directory()).unwrap();
        let hub = settings.replay(&replay).unwrap();
        assert_eq!(hub.coordinator().save(), before.state, "FAULT_SEED={seed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_survives_crashes_torn_writes_full_disks_and_hostile_links() {
    for seed in seeds(30) {
        conserves(talkative(), 0, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_survive_the_same() {
    let rounds = SyncLinUcb { round_threshold: posse_core::Threshold(0.5), ..SyncLinUcb::default() };
    let rounds = SyncLinUcb { round_deadline: Some(TimeSpan::from_millis(100)), ..rounds };
    for seed in seeds(10) {
        conserves(federation(Algorithm::SyncLinUcb(rounds.clone())), 0, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn push_and_pull_and_clusters_survive_the_same() {
    let clusters =
        ClusterConfig { phase_deadline: Some(TimeSpan::from_millis(100)), ..ClusterConfig::default() };
    let algorithms = [
        Algorithm::FedLinUcb(FedLinUcb::default()),
        Algorithm::FclubDc(FclubDc { clusters, ..FclubDc::default() }),
    ];
    for algorithm in algorithms {
        for seed in seeds(8) {
            conserves(federation(algorithm.clone()), 0, seed).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_cut_begins_a_new_epoch_and_nothing_counts_twice() {
    for seed in 0..10 {
        let mut victim = Victim::new(talkative(), seed).await;
        victim.seats[0].proxy.heal();
        for step in 0..120 {
            let agent = victim.agent(step % AGENTS as usize).await;
            interact(&agent, step as u64);
            agent.settled().await;
        }
        let full = look(victim.root().running()).await.observations;
        victim.seats[0].kill().await;
        victim.seats[0].cut_log(seed + 1);
        victim.seats[0].restart().await;
        let left = look(victim.root().running()).await;
        let lost = full - left.observations;
        assert!(lost > 0 && left.epoch.0 == 1, "{left:?}");
        let agents = victim.heal().await;
        // What was confirmed and cut off is gone, and known; everything else is there once.
        assert_eq!(victim.held(&agents).await, 120 - lost, "seed {seed}");
    }
}

/// Kills, torn writes and full disks of a root, a relay and a relay of that, with hostile links between all of them.
#[tokio::test(flavor = "multi_thread")]
async fn evidence_survives_the_same_at_every_level_of_relays() {
    for seed in seeds(8) {
        conserves(talkative(), 2, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_and_answers_through_relays_survive_the_same() {
    let rounds = SyncLinUcb { round_threshold: posse_core::Threshold(0.5), ..SyncLinUcb::default() };
    let rounds = SyncLinUcb { round_deadline: Some(TimeSpan::from_millis(200)), ..rounds };
    for seed in seeds(3) {
        conserves(federation(Algorithm::FedLinUcb(FedLinUcb::default())), 2, seed).await;
        conserves(federation(Algorithm::SyncLinUcb(rounds.clone())), 1, seed).await;
        // Every agent's part by itself.
        let apart = SyncLinUcb { robust: Robust::Trimmed, ..rounds.clone() };
        conserves(federation(Algorithm::SyncLinUcb(apart)), 1 + seed % 2, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_through_relays_survive_the_same() {
    let model = GlmConfig { link: LinkFunction::Identity, ..GlmConfig::default() };
    // A relay of a relay waits a quarter of it. On a machine that runs all tests at once a tenth of a second was too short
    // for whole minutes, and no round ended.
    let rounds = RoundConfig { round_deadline: Some(TimeSpan::from_millis(2000)), ..RoundConfig::default() };
    let models = FedGlbUcb { model, rounds, ..FedGlbUcb::default() };
    for seed in seeds(3) {
        conserves(federation(Algorithm::FedGlbUcb(models.clone())), 1 + seed % 2, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_through_relays_survive_the_same() {
    let privacy = Some(PrivacyConfig { first_release: 3, ..PrivacyConfig::default() });
    let rounds = SyncLinUcb { round_deadline: Some(TimeSpan::from_millis(2000)), ..SyncLinUcb::default() };
    for seed in seeds(3) {
        let exchange = AsyncLinUcb { privacy: privacy.clone(), ..AsyncLinUcb::default() };
        conserves(federation(Algorithm::AsyncLinUcb(exchange)), 1 + seed % 2, seed).await;
        let rounds = SyncLinUcb { privacy: privacy.clone(), ..rounds.clone() };
        conserves(federation(Algorithm::SyncLinUcb(rounds)), 1, seed).await;
    }
}
