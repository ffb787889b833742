//! The machines behind the Python classes: plain Rust, usable without the interpreter's lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posse_core::{
    Agent, AgentId, Algorithm, Arms, ConfigError, Coordinator, Downlink, Entrance, Federation, Incarnation,
    InputError, JoinPolicy, Outgoing, Placement, ProtocolError, Recipient, Shape, Tick, TimeSpan, Uplink,
    UserId,
};
use pyo3::Python;

use crate::own::{fail, free_to_use};

/// The time at which federations begin, the same as in the simulator.
pub(crate) const START: Tick = Tick(1_000_000_000_000_000);
/// The time between two interactions of a replay, the simulator's default: 10 ms.
const INTERVAL: TimeSpan = TimeSpan::from_millis(10);
/// Messages that one delivery may set off before it counts as endless.
const ENDLESS: usize = 10_000_000;

/// Multiplications, some 20 microseconds of them, below which a call keeps the interpreter's lock (docs/decisions/0170).
const BRIEF: usize = 100_000;

/// What all members of a federation are made from.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) algorithm: Algorithm,
    /// The algorithm's name and settings, as TOML, for pickling.
    pub(crate) settings: String,
    pub(crate) shape: Shape,
    pub(crate) federation: Federation,
}

impl Spec {
    /// The agent whose learner serves `agent`: itself, unless one learner serves all.
    pub(crate) fn learner(&self, agent: u64) -> u64 {
        if self.algorithm.placement() == Placement::Central { 0 } else { agent }
    }

    /// Whether agents choose from an offer of `arms` arms, and learn, in microseconds. It is known of linear models alone: they
    /// need dimension² multiplications for each arm, and dimension³ when they are made anew.
    pub(crate) fn is_brief(&self, arms: usize) -> bool {
        let is_linear = matches!(
            self.algorithm,
            Algorithm::LinUcb(_)
                | Algorithm::LinTs(_)
                | Algorithm::CentralLinUcb(_)
                | Algorithm::AsyncLinUcb(_)
                | Algorithm::AsyncLinTs(_)
                | Algorithm::SyncLinUcb(_)
                | Algorithm::FedLinUcb(_)
                | Algorithm::ExchangeLinUcb(_)
                | Algorithm::ExchangeLinTs(_)
        );
        let dimension = self.shape.dimension();
        is_linear && arms.max(dimension).saturating_mul(dimension.saturating_mul(dimension)) <= BRIEF
    }
}

/// An agent, and the messages that it has made and that were not taken yet.
pub(crate) struct Machine {
    pub(crate) agent: Box<dyn Agent>,
    pub(crate) outbox: VecDeque<Uplink>,
    /// Memory for offers, used again and again.
    pub(crate) arms: Arms,
    /// Whose offer that is, if it came alone and not in a replay.
    pub(crate) asker: Option<Asker>,
}

/// Who was offered some arms. Agents may share a learner, and threads an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// Where the thread keeps its own things: as good as its number, which takes a reference count to ask for.
    thread: usize,
    agent: u64,
    user: UserId,
}

impl Asker {
    /// The thread that calls this.
    pub(crate) fn here(agent: u64, user: UserId) -> Self {
        thread_local!(static PLACE: u8 = const { 0 });
        Self { thread: PLACE.with(|place| std::ptr::from_ref(place).addr()), agent, user }
    }
}

/// An agent that its Python objects and its federation share.
pub(crate) type SharedMachine = Arc<Mutex<Machine>>;

/// Locks something whose user may have panicked: the panic was reported, and every method leaves states whole. Own code that asks
/// for what the call that runs it has locked fails.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if let Err(error) = free_to_use(mutex) {
        Python::attach(|py| fail(py, error));
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    pub(crate) fn new(spec: &Spec, id: u64) -> Result<Self, ConfigError> {
        let mut agent = spec.algorithm.agent(AgentId(id), spec.shape, &spec.federation)?;
        agent.begin_life(Incarnation(1));
        Ok(Self { agent, outbox: VecDeque::new(), arms: Arms::new(spec.shape.dimension()), asker: None })
    }

    pub(crate) fn learn(&mut self, user: UserId, features: &[f64], reward: f64) -> Result<(), InputError> {
        let said = self.agent.learn(user, features, reward)?;
        self.outbox.extend(said);
        Ok(())
    }

    pub(crate) fn receive(&mut self, message: Downlink) -> Result<(), ProtocolError> {
        let answer = self.agent.receive(message)?;
        self.outbox.extend(answer);
        Ok(())
    }

    /// Chooses from the rows of `offer` and learns the chosen arm's reward. Returns the arm.
    pub(crate) fn interact(
        &mut self,
        user: UserId,
        offer: &[f64],
        rewards: &[f64],
    ) -> Result<usize, InputError> {
        self.fill(offer)?;
        let arm = self.agent.choose(user, &self.arms)?.arm;
        self.learn_offered(user, arm, rewards[arm])
    }

    fn fill(&mut self, offer: &[f64]) -> Result<(), InputError> {
        self.asker = None;
        self.arms.set_rows(offer)
    }

    /// The arm with this index in the last offer, or what is wrong with it.
    pub(crate) fn offered(&self, index: i64, asker: Asker) -> Result<usize, String> {
        let arms = if self.asker.is_some() { self.arms.len() } else { 0 };
        if self.asker.is_some_and(|last| last != asker) {
            return Err(format!(
                "arm {index} is not yours: the last offer was that of another user, agent or thread; pass the features of the arm"
            ));
        }
        usize::try_from(index).ok().filter(|index| *index < arms).ok_or_else(|| {
            format!("there is no arm {index} in the last offer, which had {arms} arms; pass the features of the arm")
        })
    }

    /// Learns the reward of an arm of the last offer, which has it. Returns the arm.
    pub(crate) fn learn_offered(
        &mut self,
        user: UserId,
        arm: usize,
        reward: f64,
    ) -> Result<usize, InputError> {
        let said = self.agent.learn(user, self.arms.row(arm), reward)?;
        self.outbox.extend(said);
        Ok(arm)
    }
}

/// What went wrong while a federation was played, by whose fault.
#[derive(Debug)]
pub(crate) enum Trouble {
    Input(InputError),
    Protocol(ProtocolError),
    Endless,
}

impl From<InputError> for Trouble {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<ProtocolError> for Trouble {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

/// A coordinator, and the time that it was last told.
pub(crate) struct Desk {
    pub(crate) coordinator: Box<dyn Coordinator>,
    pub(crate) now: Tick,
    /// Agents have numbers below this.
    pub(crate) agents: u64,
}

impl Desk {
    pub(crate) fn new(spec: &Spec) -> Result<Self, ConfigError> {
        let coordinator = spec.algorithm.coordinator(spec.shape)?;
        Ok(Self { coordinator, now: START, agents: spec.federation.agents })
    }

    /// Messages with the agents that each of them goes to.
    pub(crate) fn addressed(&self, outgoing: Vec<Outgoing>) -> Vec<(u64, Downlink)> {
        let mut letters = Vec::new();
        for Outgoing { to, message } in outgoing {
            if let Recipient::Agent(agent) = to {
                letters.push((agent.0, message));
                continue;
            }
            let has_joined = |agent: &u64| self.coordinator.agent(AgentId(*agent)).is_some();
            for agent in (0..self.agents).filter(|agent| to.includes(AgentId(*agent))).filter(has_joined) {
                letters.push((agent, message.clone()));
            }
        }
        letters
    }
}

/// How many messages a delivery brought in each direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    pub(crate) up: u64,
    pub(crate) down: u64,
}

/// The agents of one process with their coordinator: every message arrives at once and in order.
pub(crate) struct Host {
    pub(crate) agents: BTreeMap<u64, SharedMachine>,
    pub(crate) joined: BTreeSet<u64>,
}

impl Host {
    /// The agent with this number, made when it is first asked for.
    pub(crate) fn agent(&mut self, spec: &Spec, id: u64) -> Result<SharedMachine, ConfigError> {
        if let Some(machine) = self.agents.get(&id) {
            return Ok(Arc::clone(machine));
        }
        let machine = Arc::new(Mutex::new(Machine::new(spec, id)?));
        self.agents.insert(id, Arc::clone(&machine));
        Ok(machine)
    }

    /// Joins the agents that have not joined, and delivers all that agents have said with all that it sets off.
    pub(crate) fn exchange(&mut self, spec: &Spec, desk: &mut Desk) -> Result<Delivered, Trouble> {
        let mut delivered = Delivered::default();
        if spec.algorithm.placement() == Placement::PerAgent {
            let new: Vec<u64> = self.agents.keys().filter(|id| !self.joined.contains(id)).copied().collect();
            for id in new {
                self.join(desk, id, &mut delivered)?;
            }
        }
        let spoken: Vec<u64> = self.agents.keys().copied().collect();
        for id in spoken {
            self.deliver(desk, id, &mut delivered)?;
        }
        Ok(delivered)
    }

    fn join(&mut self, desk: &mut Desk, id: u64, delivered: &mut Delivered) -> Result<(), Trouble> {
        self.joined.insert(id);
        let outgoing = desk.coordinator.join(desk.now, AgentId(id), Entrance::NewLife);
        let letters = desk.addressed(outgoing).into_iter().map(|(to, message)| Letter::Down(to, message));
        self.pump(desk, letters.collect(), delivered)
    }

    /// Brings the messages of agent `id` to the coordinator, and its answers to the agents, until nothing is left to deliver.
    fn deliver(&mut self, desk: &mut Desk, id: u64, delivered: &mut Delivered) -> Result<(), Trouble> {
        let mut letters = VecDeque::new();
        if let Some(machine) = self.agents.get(&id) {
            letters.extend(lock(machine).outbox.drain(..).map(|message| Letter::Up(id, message)));
        }
        self.pump(desk, letters, delivered)
    }

    /// Delivers in the order of the simulator: one queue, first in, first out.
    fn pump(
        &mut self,
        desk: &mut Desk,
        mut letters: VecDeque<Letter>,
        delivered: &mut Delivered,
    ) -> Result<(), Trouble> {
        for _ in 0..ENDLESS {
            match letters.pop_front() {
                None => return Ok(()),
                Some(Letter::Up(from, message)) => {
                    delivered.up += 1;
                    let outgoing = desk.coordinator.receive(desk.now, AgentId(from), message)?;
                    let addressed = desk.addressed(outgoing);
                    letters.extend(addressed.into_iter().map(|(to, message)| Letter::Down(to, message)));
                }
                Some(Letter::Down(to, message)) => {
                    let Some(machine) = self.agents.get(&to) else { continue };
                    delivered.down += 1;
                    let mut machine = lock(machine);
                    machine.receive(message)?;
                    letters.extend(machine.outbox.drain(..).map(|message| Letter::Up(to, message)));
                }
            }
        }
        Err(Trouble::Endless)
    }

    /// One interaction of `agent` with everything that is said because of it, as the simulator plays it.
    pub(crate) fn interact(
        &mut self,
        spec: &Spec,
        desk: &mut Desk,
        agent: u64,
        offer: &[f64],
        rewards: &[f64],
    ) -> Result<usize, Trouble> {
        let mut delivered = Delivered::default();
        let (learner, user) = (spec.learner(agent), UserId(agent));
        if spec.algorithm.placement() == Placement::PerAgent && !self.joined.contains(&learner) {
            self.join(desk, learner, &mut delivered)?;
        }
        let machine = Arc::clone(&self.agents[&learner]);
        {
            let mut machine = lock(&machine);
            machine.fill(offer)?;
            let Machine { agent, arms, outbox, .. } = &mut *machine;
            outbox.extend(agent.prepare(desk.now, user, arms)?);
        }
        self.deliver(desk, learner, &mut delivered)?;
        let arm = {
            let mut machine = lock(&machine);
            let Machine { agent, arms, .. } = &mut *machine;
            let arm = agent.choose(user, arms)?.arm;
            machine.learn_offered(user, arm, rewards[arm])?
        };
        self.deliver(desk, learner, &mut delivered)?;
        desk.now = desk.now.after(INTERVAL);
        Ok(arm)
    }

    /// Makes and joins every agent at once if the algorithm wants to know all of them from the start.
    pub(crate) fn open(&mut self, spec: &Spec, desk: &mut Desk) -> Result<(), OpenError> {
        if spec.algorithm.join_policy() == JoinPolicy::Eager
            && spec.algorithm.placement() == Placement::PerAgent
        {
            for id in 0..spec.federation.agents {
                self.agent(spec, id).map_err(OpenError::Config)?;
                if !self.joined.contains(&id) {
                    self.join(desk, id, &mut Delivered::default()).map_err(OpenError::Trouble)?;
                }
            }
        }
        Ok(())
    }
}

/// Why a federation could not begin.
#[derive(Debug)]
pub(crate) enum OpenError {
    Config(ConfigError),
    Trouble(Trouble),
}

enum Letter {
    Up(u64, Uplink),
    Down(u64, Downlink),
}
