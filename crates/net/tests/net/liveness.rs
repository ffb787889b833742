//! Everything that operators, machines and strangers do to a federation, seeded; then it heals. Nothing that was
//! confirmed is lost, nothing counts twice, what was retracted is gone, and the next upload of every agent is taken.
//!
//! Every observation can be recognised in the coordinator's sum: observation n has the unit vector n mod d as its
//! features and 4^(n div d) as its reward, so that the digits to base 4 of the d moments say how often each one
//! was counted. The sums are exact.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use posse_core::wire::v1;
use posse_core::{
    AgentId, Algorithm, Arms, AsyncLinUcb, Seed, Stream, SyncLinUcb, Threshold, Tick, TimeSpan, UserId,
};
use posse_net::coordinator::{Authentication, Limits, Options, Running, ServeConfig, TokenInfo, Tokens};
use posse_net::federation::{FederationConfig, FederationHandle};
use posse_net::{Agent, AgentConfig, Clock};
use prost::Message;

use crate::faults::{full_log, patiently, seeds};
use crate::proxy::Proxy;
use crate::silence::copy;
use crate::support::{config, in_a_minute, unsent};

const AGENTS: usize = 3;
const TURNS: u64 = 10;
const DIMENSION: usize = 32;
/// Observations that can be told apart: 26 digits to base 4 fit a float without rounding.
const MOST: usize = 26 * DIMENSION;
const DAY: u64 = 86_400_000_000;
/// How long a round waits. Nobody waits for it here: the coordinator's clock is put forward by as much now and then. A
/// machine that is merely slow does not let it pass.
const DEADLINE: TimeSpan = TimeSpan::from_secs(10);

/// An observation that an agent has taken.
#[derive(Clone, Debug)]
struct Observation {
    agent: usize,
    /// The life that learned it; 0 if another one began in that moment.
    life: u64,
    /// Its agent heard that the coordinator has it.
    confirmed: bool,
    /// An operator took it out; `Some(false)` if it came at the same moment, so that it may be there or not.
    retracted: Option<bool>,
}

/// A process of an agent, with the observations that its state knows of.
struct Process {
    agent: Agent,
    state: PathBuf,
    lineage: Vec<usize>,
}

/// Everything about one agent number.
struct Seat {
    token: TokenInfo,
    token_file: PathBuf,
    clock: Arc<AtomicU64>,
    /// The process, if it runs; the first is the one that survives.
    running: Vec<Process>,
    /// The state of the process that does not run.
    stopped: Option<(PathBuf, Vec<usize>)>,
    /// A copy of an earlier state.
    old: Option<(PathBuf, Vec<usize>)>,
    /// Something was done to it after which a new life is in order.
    may_begin_anew: bool,
}

struct World {
    data: tempfile::TempDir,
    config: ServeConfig,
    room: Arc<AtomicI64>,
    clock: Arc<AtomicU64>,
    coordinator: Option<Running>,
    proxy: Proxy,
    tokens: Tokens,
    seats: Vec<Seat>,
    made: Vec<Observation>,
    directories: usize,
    seed: u64,
}

/// A clock that shows a million days and what is added to it, and runs.
fn clock(ahead: &Arc<AtomicU64>) -> Clock {
    let (ahead, system) = (Arc::clone(ahead), Clock::system());
    Clock::new(move || Tick(system.now().0 + ahead.load(Ordering::SeqCst)))
}

async fn start(config: &ServeConfig, room: &Arc<AtomicI64>, ahead: &Arc<AtomicU64>) -> Running {
    let options = Options { log: full_log(room), clock: clock(ahead), ..Options::default() };
    patiently(config, &options).await
}

fn jump(clock: &AtomicU64, random: &mut Stream) {
    let forward = random.uniform() < 0.5;
    if forward {
        clock.fetch_add(DAY, Ordering::SeqCst)
    } else {
        clock.fetch_sub(DAY, Ordering::SeqCst)
    };
}

impl World {
    async fn new(federation: FederationConfig, seed: u64) -> Self {
        let data = tempfile::tempdir().unwrap();
        let room = Arc::new(AtomicI64::new(-1));
        let ahead = Arc::new(AtomicU64::new(1000 * DAY));
        let federation = FederationConfig { keep_history: true, ..federation };
        let mut config = ServeConfig {
            authentication: Authentication::Token,
            ..ServeConfig::on_loopback(data.path(), vec![federation])
        };
        let tokens = Tokens::open(&config.token_file()).unwrap();
        let mut seats = Vec::new();
        for agent in 0..AGENTS {
            let (text, token) = tokens.create(AgentId(agent as u64), vec!["test".into()]).unwrap();
            let token_file = data.path().join(format!("{agent}.token"));
            std::fs::write(&token_file, text).unwrap();
            seats.push(Seat {
                token,
                token_file,
                clock: Arc::new(AtomicU64::new(1000 * DAY)),
                running: Vec::new(),
                stopped: Some((data.path().join(format!("agent-{agent}")), Vec::new())),
                old: None,
                may_begin_anew: false,
            });
        }
        let running = start(&config, &room, &ahead).await;
        config.listen = running.address;
        let proxy = Proxy::start(running.address, seed).await;
        let mut world = Self {
            data,
            config,
            room,
            clock: ahead,
            coordinator: Some(running),
            proxy,
            tokens,
            seats,
            made: Vec::new(),
            directories: 0,
            seed,
        };
        for agent in 0..AGENTS {
            world.ensure_running(agent).await;
        }
        world
    }

    fn running(&self) -> &Running {
        self.coordinator.as_ref().expect("it is started again at once")
    }

    fn federation(&self) -> &FederationHandle {
        &self.running().federations[0]
    }

    fn directory(&mut self) -> PathBuf {
        self.directories += 1;
        self.data.path().join(format!("copy-{}", self.directories))
    }

    async fn process(&self, agent: usize, state: PathBuf, lineage: Vec<usize>) -> Process {
        let seat = &self.seats[agent];
        let settings = AgentConfig {
            state: Some(state.clone()),
            agent: None,
            token_file: Some(seat.token_file.clone()),
            clock: clock(&seat.clock),
            ..config(self.proxy.address, agent as u64)
        };
        Process { agent: Agent::start(settings).await.unwrap(), state, lineage }
    }

    async fn ensure_running(&mut self, agent: usize) {
        if let Some((state, lineage)) = self.seats[agent].stopped.take() {
            let process = self.process(agent, state, lineage).await;
            self.seats[agent].running.push(process);
        }
    }

    /// Crashes all processes of an agent; the state of the first, or of the last, is what is left.
    async fn crash(&mut self, agent: usize) {
        for process in std::mem::take(&mut self.seats[agent].running) {
            process.agent.abort().await;
            self.seats[agent].stopped.get_or_insert((process.state, process.lineage));
        }
    }

    /// An interaction of one process, whose observation counts if the agent has taken it.
    fn interact(&mut self, agent: usize, process: usize) {
        let number = self.made.len();
        assert!(number < MOST);
        let Process { agent: own, lineage, .. } = &mut self.seats[agent].running[process];
        let mut features = [0.0; DIMENSION];
        features[number % DIMENSION] = 1.0;
        let arms = Arms::from_rows(DIMENSION, &[features]).unwrap();
        let chosen = own.choose(UserId(0), &arms).unwrap();
        if own.reward(chosen.id, 4_f64.powi((number / DIMENSION) as i32)).is_ok() {
            let life = own.status().life;
            let life = if chosen.id.life.0 == life { life } else { 0 };
            lineage.push(number);
            self.made.push(Observation { agent, life, confirmed: false, retracted: None });
        }
    }

    /// Marks what an agent has heard to be with the coordinator.
    fn note_confirmed(&mut self) {
        for seat in &self.seats {
            for Process { agent, lineage, .. } in &seat.running {
                let life = agent.status().life;
                let said = agent.is_settled()
                    && unsent(agent) == 0
                    && agent.inspect(|machine| machine.inspect().in_flight.is_none());
                if said && agent.status().life == life {
                    for number in lineage {
                        self.made[*number].confirmed |= self.made[*number].life == life;
                    }
                }
            }
        }
    }

    async fn retract(&mut self, agent: usize) {
        let federation = self.federation().clone();
        let life = async || {
            let agents = federation.agents().await;
            agents.iter().find(|known| known.agent == agent as u64).map_or(0, |known| known.life)
        };
        let before = life().await;
        if !matches!(federation.retract(AgentId(agent as u64)).await, Ok(Some(_))) {
            return;
        }
        let after = life().await;
        for made in self.made.iter_mut().filter(|made| made.agent == agent) {
            if made.life <= after {
                let certain = made.life <= before && made.life > 0;
                made.retracted = Some(certain || made.retracted == Some(true));
            }
        }
        self.seats[agent].may_begin_anew = true;
    }

    async fn rotate(&mut self, agent: usize, random: &mut Stream) {
        let seat = &self.seats[agent];
        let grace = Duration::from_secs(if random.uniform() < 0.5 { 0 } else { 3600 });
        let text = self.tokens.rotate(&seat.token.id, grace).unwrap();
        std::fs::write(&seat.token_file, text).unwrap();
        self.running().reload().await;
    }

    async fn fault(&mut self, random: &mut Stream) {
        let agent = random.below(AGENTS as u64) as usize;
        match random.below(14) {
            0 | 1 => {
                if let Some(running) = self.coordinator.take() {
                    running.abort().await;
                }
                self.coordinator = Some(start(&self.config, &self.room, &self.clock).await);
            }
            2 => self.crash(agent).await,
            3 => self.room.store(random.below(3) as i64, Ordering::SeqCst),
            4 => self.room.store(-1, Ordering::SeqCst),
            5 | 6 => {
                // A clone runs beside the original; which of the two survives, the next crash decides.
                self.seats[agent].may_begin_anew = true;
                if let [original] = &self.seats[agent].running[..] {
                    let (from, lineage) = (original.state.clone(), original.lineage.clone());
                    let to = self.directory();
                    copy(&from, &to);
                    let clone = self.process(agent, to, lineage).await;
                    let place = random.below(2) as usize;
                    self.seats[agent].running.insert(place, clone);
                }
            }
            7 => {
                if let [process] = &self.seats[agent].running[..] {
                    let (from, lineage) = (process.state.clone(), process.lineage.clone());
                    let to = self.directory();
                    copy(&from, &to);
                    self.seats[agent].old = Some((to, lineage));
                }
            }
            8 | 9 => {
                if let Some(old) = self.seats[agent].old.take() {
                    self.seats[agent].may_begin_anew = true;
                    self.crash(agent).await;
                    self.seats[agent].stopped = Some(old);
                }
            }
            10 => jump(&self.clock, random),
            11 => jump(&self.seats[agent].clock, random),
            12 => {
                self.seats[agent].may_begin_anew = true;
                let _ = self.federation().evict(AgentId(agent as u64)).await;
            }
            13 => {
                let frames_per_second = 500 + random.below(1000);
                self.running().set_limits(&Limits { frames_per_second, ..Limits::default() }).unwrap();
                self.rotate(agent, random).await;
            }
            _ => unreachable!("there are fourteen"),
        }
        if random.uniform() < 0.08 {
            self.retract(agent).await;
        }
    }

    async fn suffer(&mut self) {
        for turn in 0..TURNS {
            let mut random = Seed(self.seed).stream("liveness", turn, 0);
            for _ in 0..8 {
                let agent = random.below(AGENTS as u64) as usize;
                self.ensure_running(agent).await;
                let process = random.below(self.seats[agent].running.len() as u64) as usize;
                self.interact(agent, process);
                match random.below(4) {
                    0 => tokio::task::yield_now().await,
                    // Long enough that most of what is said is answered.
                    1 => {
                        let own = self.seats[agent].running[process].agent.clone();
                        let _ = tokio::time::timeout(Duration::from_millis(30), own.settled()).await;
                    }
                    _ => {}
                }
            }
            self.note_confirmed();
            self.fault(&mut random).await;
            if random.uniform() < 0.5 {
                self.clock.fetch_add(DEADLINE.as_micros(), Ordering::SeqCst);
            }
        }
    }

    /// Everything heals, and an operator does what health asks for: pardons, and asks agents that were superseded for
    /// a new life. One process is left for every agent.
    async fn heal(&mut self) {
        self.room.store(-1, Ordering::SeqCst);
        self.proxy.heal();
        self.note_confirmed();
        for agent in 0..AGENTS {
            let left = 1.min(self.seats[agent].running.len());
            for process in self.seats[agent].running.split_off(left) {
                process.agent.abort().await;
            }
            self.ensure_running(agent).await;
            let _ = self.federation().pardon(AgentId(agent as u64)).await;
        }
        for agent in 0..AGENTS {
            let _ = self.federation().pardon(AgentId(agent as u64)).await;
            self.heard_again(agent).await;
        }
    }

    /// Waits until the coordinator has answered everything that an agent said, and gives it a new life when its health asks
    /// for one.
    async fn heard_again(&self, agent: usize) {
        let (seed, seat) = (self.seed, &self.seats[agent]);
        let own = &seat.running[0].agent;
        let heard = async {
            // Once for what was done to it, once more if what it was told came before it asked again.
            for _ in 0..3 {
                tokio::select! {
                    () = own.settled() => return,
                    () = own.until(|status| status.superseded.is_some()) => {}
                }
                let why = own.status().superseded;
                assert!(
                    seat.may_begin_anew,
                    "FAULT_SEED={seed}: {own:?} was superseded without need: {why:?}"
                );
                own.take_new_life();
            }
            panic!("FAULT_SEED={seed}: superseded again and again: {:?}", own.status());
        };
        let bounded = tokio::time::timeout(Duration::from_secs(60), heard).await;
        assert!(bounded.is_ok(), "FAULT_SEED={seed}: never heard again: {:?}", own.status());
    }

    /// What the coordinator holds.
    async fn state(&self) -> v1::CoordinatorState {
        let view = in_a_minute(async {
            loop {
                match self.federation().look().await {
                    Some(view) => break view,
                    // A log that failed is opened again after a moment.
                    None => tokio::task::yield_now().await,
                }
            }
        })
        .await;
        v1::CoordinatorState::decode(&*view.state).expect("its own state")
    }

    /// How often each observation is in the coordinator's sum.
    async fn counts(&self) -> Vec<u64> {
        let mut moment = self.state().await.evidence.unwrap_or_default().moment;
        moment.resize(DIMENSION, 0.0);
        let digit = |number: usize| {
            let sum = moment[number % DIMENSION] as u64;
            (sum >> (2 * (number / DIMENSION))) & 3
        };
        (0..self.made.len()).map(digit).collect()
    }

    /// Every agent's next upload is taken, after a few observations at most: what misses the deadline of a round waits for
    /// the next one.
    ///
    /// Health may ask for a new life only now. An agent is settled until it hears otherwise, and what was done to it last is still
    /// on its way: an eviction cuts its link, which it notices later; and a clone that was stopped may have joined with its
    /// last breath, which takes the agent's place although nobody is there any more. So the first observation may be refused, or
    /// end with the life that made it, but not without a reason (`may_begin_anew`), and not for long.
    async fn all_are_heard(&mut self) {
        let seed = self.seed;
        for agent in 0..AGENTS {
            let first = self.made.len();
            let own = self.seats[agent].running[0].agent.clone();
            let heard = async {
                for _ in 0..5 {
                    self.interact(agent, 0);
                    self.heard_again(agent).await;
                    while self.state().await.collecting {
                        tokio::task::yield_now().await;
                    }
                    self.heard_again(agent).await;
                    if self.counts().await[first..].iter().any(|count| *count > 0) {
                        return true;
                    }
                }
                false
            };
            let heard = tokio::time::timeout(Duration::from_secs(60), heard).await;
            let why =
                || format!("FAULT_SEED={seed}: agent {agent} is not heard ({heard:?}): {:?}", own.status());
            assert_eq!(heard, Ok(true), "{}", why());
        }
        for agent in 0..AGENTS {
            self.heard_again(agent).await;
        }
    }

    async fn nothing_is_lost(&self) {
        let counts = self.counts().await;
        let mut waiting = [0; AGENTS];
        for (number, (made, count)) in self.made.iter().zip(&counts).enumerate() {
            let place = format!("FAULT_SEED={} observation {number} {made:?}", self.seed);
            assert!(*count <= 1, "{place} counts {count} times");
            let seat = &self.seats[made.agent];
            let survivor = &seat.running[0];
            let life = survivor.agent.status().life;
            match made.retracted {
                Some(true) => assert_eq!(*count, 0, "{place} was retracted"),
                Some(false) => {}
                None if made.confirmed => assert_eq!(*count, 1, "{place} was confirmed"),
                None if made.life == life && survivor.lineage.contains(&number) => {
                    waiting[made.agent] += 1 - count;
                }
                None => assert!(seat.may_begin_anew, "{place}: life {life} began without need"),
            }
        }
        for (seat, waiting) in self.seats.iter().zip(waiting) {
            let own = &seat.running[0].agent;
            let kept = unsent(own)
                + own.inspect(|machine| machine.inspect().in_flight.map_or(0, |(_, count)| count));
            assert_eq!(kept, waiting, "FAULT_SEED={}: {own:?} lost what it had learned", self.seed);
        }
    }
}

async fn lives_on(federation: FederationConfig, seed: u64) {
    let mut world = World::new(federation, seed).await;
    world.suffer().await;
    world.heal().await;
    world.all_are_heard().await;
    world.nothing_is_lost().await;
}

fn recognisable(algorithm: Algorithm) -> FederationConfig {
    FederationConfig {
        resend_after: TimeSpan::from_millis(50),
        deadline: DEADLINE,
        ..FederationConfig::new("test", algorithm, DIMENSION as u64)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_heard_again_after_clones_old_states_evictions_rotations_and_clocks_that_jump() {
    let mut algorithm = AsyncLinUcb::default();
    algorithm.protocol.upload_threshold = Threshold(1.01);
    for seed in seeds(24) {
        lives_on(recognisable(Algorithm::AsyncLinUcb(algorithm.clone())), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_go_on_after_the_same() {
    let rounds = SyncLinUcb { round_threshold: Threshold(0.01), ..SyncLinUcb::default() };
    for seed in seeds(8) {
        lives_on(recognisable(Algorithm::SyncLinUcb(rounds.clone())), seed).await;
    }
}
