//! Whatever goes wrong between a coordinator and its agents, evidence is conserved to the last count.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use posse_core::wire::v1;
use posse_core::{Algorithm, ClusterConfig, FclubDc, FedLinUcb, Seed, SyncLinUcb, TimeSpan};
use posse_net::coordinator::{LogKind, Options, Running, ServeConfig, serve};
use posse_net::federation::FederationConfig;
use posse_net::log::{FileLog, Log, LogError, Replay, read};
use posse_net::{Agent, AgentConfig};
use prost::Message;

use crate::proxy::Proxy;
use crate::support::{config, federation, held, interact, look, talkative};

const AGENTS: u64 = 3;

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

/// A federation to which bad things are done.
struct Victim {
    data: tempfile::TempDir,
    federation: FederationConfig,
    room: Arc<AtomicI64>,
    address: SocketAddr,
    running: Option<Running>,
    proxy: Proxy,
    agents: Vec<Option<Agent>>,
    made: u64,
}

impl Victim {
    async fn new(federation: FederationConfig, seed: u64) -> Self {
        let data = tempfile::tempdir().unwrap();
        let room = Arc::new(AtomicI64::new(-1));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let running = start(data.path(), &federation, &room, nowhere).await;
        let address = running.address;
        let proxy = Proxy::start(address, seed).await;
        let agents = (0..AGENTS).map(|_| None).collect();
        Self { data, federation, room, address, running: Some(running), proxy, agents, made: 0 }
    }

    fn agent_config(&self, agent: usize) -> AgentConfig {
        let state = Some(self.data.path().join("agents").join(agent.to_string()));
        AgentConfig { state, ..config(self.proxy.address, agent as u64) }
    }

    async fn agent(&mut self, agent: usize) -> Agent {
        if self.agents[agent].is_none() {
            let started = Agent::start(self.agent_config(agent)).await.unwrap();
            self.agents[agent] = Some(started);
        }
        self.agents[agent].clone().unwrap()
    }

    fn log_directory(&self) -> PathBuf {
        self.data.path().join("federations").join(&self.federation.name)
    }

    async fn kill_coordinator(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort().await;
        }
    }

    async fn restart_coordinator(&mut self) {
        self.kill_coordinator().await;
        self.running = Some(start(self.data.path(), &self.federation, &self.room, self.address).await);
    }

    /// Something happens.
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
        match random.below(7) {
            0 => self.restart_coordinator().await,
            1 => {
                // A write is cut short by the crash.
                self.kill_coordinator().await;
                let contents = read(&self.log_directory()).unwrap();
                let path = &contents.segments.last().unwrap().path;
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                let torn: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
                file.write_all(&torn).unwrap();
                self.restart_coordinator().await;
            }
            2 | 3 => {
                let agent = random.below(AGENTS) as usize;
                if let Some(agent) = self.agents[agent].take() {
                    agent.abort().await;
                }
            }
            4 => self.room.store(random.below(3) as i64, Ordering::SeqCst),
            5 => self.room.store(-1, Ordering::SeqCst),
            _ => {}
        }
    }

    async fn round_is_open(&self) -> bool {
        if !matches!(self.federation.algorithm, Algorithm::SyncLinUcb(_)) {
            return false;
        }
        let federation = &self.running.as_ref().expect("it was started again").federations[0];
        // A log that failed is opened again after a moment.
        let state = loop {
            match federation.look().await {
                Some(view) => break view.state,
                None => tokio::task::yield_now().await,
            }
        };
        v1::CoordinatorState::decode(&*state).expect("its own state").collecting
    }

    /// Everything heals; returns all agents, silent.
    async fn heal(&mut self) -> Vec<Agent> {
        self.room.store(-1, Ordering::SeqCst);
        self.proxy.heal();
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

async fn conserves(federation: FederationConfig, seed: u64) {
    let mut victim = Victim::new(federation, seed).await;
    for turn in 0..8 {
        victim.suffer(seed, turn).await;
    }
    let agents = victim.heal().await;
    let running = victim.running.as_ref().unwrap();
    assert_eq!(held(running, &agents).await, victim.made, "FAULT_SEED={seed}");
    // What the coordinator holds is what its log says, and nothing else.
    let before = look(running).await;
    victim.kill_coordinator().await;
    let contents = read(&victim.log_directory()).unwrap();
    let replay = Replay {
        state: contents.state.map(|(_, state)| state),
        entries: contents.entries,
        ..Replay::default()
    };
    let hub = victim.federation.replay(&replay).unwrap();
    assert_eq!(hub.coordinator().save(), before.state, "FAULT_SEED={seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_survives_crashes_torn_writes_full_disks_and_hostile_links() {
    for seed in seeds(30) {
        conserves(talkative(), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_survive_the_same() {
    let rounds = SyncLinUcb { round_threshold: posse_core::Threshold(0.5), ..SyncLinUcb::default() };
    let rounds = SyncLinUcb { round_deadline: Some(TimeSpan::from_millis(100)), ..rounds };
    for seed in seeds(10) {
        conserves(federation(Algorithm::SyncLinUcb(rounds.clone())), seed).await;
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
            conserves(federation(algorithm.clone()), seed).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_cut_begins_a_new_epoch_and_nothing_counts_twice() {
    for seed in 0..10 {
        let mut victim = Victim::new(talkative(), seed).await;
        victim.proxy.heal();
        for step in 0..120 {
            let agent = victim.agent(step % AGENTS as usize).await;
            interact(&agent, step as u64);
            agent.settled().await;
        }
        let full = look(victim.running.as_ref().unwrap()).await.observations;
        victim.kill_coordinator().await;
        let path = read(&victim.log_directory()).unwrap().segments.pop().unwrap().path;
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length - length * (seed + 1) / 12).unwrap();
        victim.restart_coordinator().await;
        let left = look(victim.running.as_ref().unwrap()).await;
        let lost = full - left.observations;
        assert!(lost > 0 && left.epoch.0 == 1, "{left:?}");
        let agents = victim.heal().await;
        // What was confirmed and cut off is gone, and known; everything else is there once.
        let kept = held(victim.running.as_ref().unwrap(), &agents).await;
        assert_eq!(kept, 120 - lost, "seed {seed}");
    }
}
