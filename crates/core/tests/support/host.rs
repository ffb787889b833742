//! A host in a few lines: three agents, a coordinator, and links that deliver everything at once.

use posse_core::TimeSpan;
use std::collections::VecDeque;

use posse_core::wire::{encode_downlink, encode_uplink};
use posse_core::*;

use super::NOW;

pub(crate) const AGENTS: u64 = 3;
pub(crate) const STEPS: u64 = 60;
/// How many users each agent has.
pub(crate) const USERS: u64 = 3;

/// An algorithm with arms it is tried on.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) algorithm: Algorithm,
    pub(crate) shape: Shape,
}

/// Every algorithm with its defaults, and the settings that take other paths.
pub(crate) fn cases() -> Vec<Case> {
    let flat = Shape::shared(4);
    let split = Shape { shared: 3, local: 2 };
    let protocol = |join, snapshot_in_receipt| ProtocolConfig {
        join,
        snapshot_in_receipt,
        min_upload: 2,
        ..Default::default()
    };
    let am = AsyncLinUcbAm::default;
    let (eager, pull) = (JoinPolicy::Eager, JoinPolicy::PullOnJoin);
    let busy = ProtocolConfig {
        upload_threshold: Threshold(1.0),
        download_threshold: Threshold(1.0),
        join: eager,
        ..Default::default()
    };
    let own =
        Override { agent: AgentId(1), upload_threshold: Some(Threshold(1.0)), download_threshold: None };
    let model = |link| GlmConfig { link, ..Default::default() };
    let glb = |link, solver| {
        let update = SolverConfig { solver, ..Default::default() };
        Algorithm::FedGlbUcb(FedGlbUcb { model: model(link), update, ..Default::default() })
    };
    let patient =
        RoundConfig { join: pull, round_deadline: Some(TimeSpan::from_micros(5)), ..Default::default() };
    let variants = [
        (glb(LinkFunction::Identity, Solver::Newton), flat),
        (glb(LinkFunction::Poisson, Solver::Restart), flat),
        (glb(LinkFunction::Probit, Solver::Nesterov), flat),
        (glb(LinkFunction::Logistic, Solver::Preconditioned), flat),
        (Algorithm::FedGlbUcb1(ScheduledGlbUcb { rounds: patient, ..Default::default() }), flat),
        (Algorithm::AsyncLinUcbAm(am()), split),
        (Algorithm::AsyncLinUcbAm(AsyncLinUcbAm { duplicated: true, ..am() }), flat),
        (Algorithm::AsyncLinUcbAm(AsyncLinUcbAm { cold_start: false, extra_noise: 1.0, ..am() }), split),
        (
            Algorithm::AsyncLinPhe(AsyncLinPhe {
                perturbation: Perturbation::Approximate,
                ..Default::default()
            }),
            flat,
        ),
        (Algorithm::AsyncLinUcb(AsyncLinUcb { protocol: protocol(pull, true), ..Default::default() }), flat),
        (Algorithm::AsyncLinTs(AsyncLinTs { protocol: protocol(eager, true), ..Default::default() }), flat),
        (Algorithm::AsyncLinUcb(AsyncLinUcb { protocol: busy.clone(), ..Default::default() }), flat),
        (Algorithm::AsyncLinPhe(AsyncLinPhe { protocol: busy, ..Default::default() }), flat),
        (
            Algorithm::AsyncLinUcb(AsyncLinUcb {
                protocol: ProtocolConfig { overrides: vec![own], ..Default::default() },
                ..Default::default()
            }),
            flat,
        ),
        (
            Algorithm::SyncLinUcb(SyncLinUcb {
                join: pull,
                round_deadline: Some(TimeSpan::from_micros(5)),
                ..Default::default()
            }),
            flat,
        ),
        (
            Algorithm::FedLinUcb(FedLinUcb { upload_threshold: Some(Threshold(3.0)), ..Default::default() }),
            flat,
        ),
    ];
    let talkative = ExchangeConfig { message_price: 0.0, min_growth: 0.0, ..Default::default() };
    let bounded = ExchangeConfig {
        message_price: 10.0,
        byte_price: 1e-3,
        max_growth: 0.5,
        max_withheld: Threshold(1.5),
        min_upload: 2,
        ..Default::default()
    };
    let exchanges = [
        Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange: talkative.clone(), ..Default::default() }),
        Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange: bounded, ..Default::default() }),
        Algorithm::ExchangeLinUcb(ExchangeLinUcb {
            exchange: ExchangeConfig { robust: Robust::Trimmed, false_alarm: 0.5, ..talkative.clone() },
            ..Default::default()
        }),
        Algorithm::ExchangeLinTs(ExchangeLinTs {
            exchange: ExchangeConfig { memory: Memory::Adaptive, ..talkative.clone() },
            ..Default::default()
        }),
        Algorithm::ExchangeLinUcb(ExchangeLinUcb {
            exchange: ExchangeConfig { memory: Memory::Window, window: 1 << 30, ..talkative.clone() },
            ..Default::default()
        }),
        Algorithm::ExchangeLinUcb(ExchangeLinUcb {
            exchange: ExchangeConfig {
                robust: Robust::Trimmed,
                false_alarm: 0.5,
                memory: Memory::Adaptive,
                ..talkative.clone()
            },
            ..Default::default()
        }),
        Algorithm::SyncLinUcb(SyncLinUcb { robust: Robust::Trimmed, false_alarm: 0.5, ..Default::default() }),
        Algorithm::ExchangeLinTs(ExchangeLinTs {
            exchange: ExchangeConfig { rounding: 0.02, ..talkative.clone() },
            ..Default::default()
        }),
        Algorithm::ExchangeLinIgw(ExchangeLinIgw {
            exchange: talkative,
            gap_scale: 1.0,
            ..Default::default()
        }),
    ];
    // Clusters that split, groups that merge, releases that come soon: something happens in few steps.
    let clusters = |linkage| ClusterConfig {
        edge_scale: Threshold(0.4),
        merge_scale: Threshold(1.0),
        merge_gate: Threshold(f64::INFINITY),
        linkage,
        ..Default::default()
    };
    let privacy = || PrivacyConfig { first_release: 3, max_releases: 4, ..Default::default() };
    let dc = || FclubDc { clusters: clusters(Linkage::Complete), ..Default::default() };
    let clustered = [
        Algorithm::Fclub(Fclub { clusters: clusters(Linkage::Transitive), ..Default::default() }),
        Algorithm::FclubDc(dc()),
        Algorithm::FclubDc(FclubDc { download_threshold: Threshold(4.0), ..dc() }),
        Algorithm::CdpFclubDc(CdpFclubDc {
            clusters: clusters(Linkage::Transitive),
            privacy: privacy(),
            ..Default::default()
        }),
        Algorithm::CdpFclubDc(CdpFclubDc {
            clusters: clusters(Linkage::Complete),
            privacy: PrivacyConfig { raw_buffer: true, ..privacy() },
            ..Default::default()
        }),
        Algorithm::AsyncLinUcb(AsyncLinUcb { privacy: Some(privacy()), ..Default::default() }),
        Algorithm::AsyncLinTs(AsyncLinTs { privacy: Some(privacy()), ..Default::default() }),
        Algorithm::FedLinUcb(FedLinUcb { privacy: Some(privacy()), ..Default::default() }),
        Algorithm::SyncLinUcb(SyncLinUcb { privacy: Some(privacy()), ..Default::default() }),
        Algorithm::SyncLinUcb(SyncLinUcb {
            privacy: Some(privacy()),
            secure_aggregation: Some(SecureAggregation { survivors: 2, colluders: 0 }),
            ..Default::default()
        }),
        Algorithm::SyncLinUcb(SyncLinUcb {
            privacy: Some(privacy()),
            secure_aggregation: Some(SecureAggregation { survivors: 3, colluders: 1 }),
            round_deadline: Some(TimeSpan::from_micros(5)),
            join: pull,
            ..Default::default()
        }),
        Algorithm::FedUcb(FedUcb { first_release: 3, max_releases: 4, ..Default::default() }),
        Algorithm::PrivateGlmUcb(PrivateGlmUcb { privacy: privacy(), ..Default::default() }),
        Algorithm::Club(Club { edge_scale: Threshold(0.4), ..Default::default() }),
        Algorithm::Sclub(Sclub { edge_scale: Threshold(0.4), ..Default::default() }),
    ];
    let small = NeuralConfig { hidden_width: 5, training_steps: 4, ..Default::default() };
    let diagonal = NeuralConfig { statistic: Precondition::Diagonal, ..small.clone() };
    let deep = NeuralConfig {
        network: NetworkKind::Tangent,
        hidden_width: 4,
        hidden_layers: 2,
        learning_rate: 0.5,
        ..small.clone()
    };
    let pooled = TrainingMode::Pooled;
    let rounds =
        RoundConfig { join: pull, round_deadline: Some(TimeSpan::from_micros(5)), ..Default::default() };
    let neural = [
        Algorithm::NeuralUcb(NeuralUcb { neural: diagonal.clone(), ..Default::default() }),
        Algorithm::NeuralTs(NeuralUcb { neural: deep.clone(), ..Default::default() }),
        Algorithm::FnUcb(FnUcb {
            neural: small.clone(),
            training: TrainingMode::FedavgRounds,
            averaging_rounds: 3,
            features_at: FeaturePoint::Current,
            less_communication: false,
            lockstep: false,
            ..Default::default()
        }),
        Algorithm::FnUcb(FnUcb {
            neural: diagonal,
            training: TrainingMode::Fedavg,
            round_threshold: Threshold(2.0),
            rescale: true,
            alpha: AlphaRule::Ratio,
            probes: 7,
            rounds,
            ..Default::default()
        }),
        Algorithm::FnUcb(FnUcb {
            neural: deep,
            alpha: AlphaRule::One,
            averaging: false,
            ..Default::default()
        }),
        Algorithm::FnUcb(FnUcb {
            neural: small.clone(),
            privacy: Some(PrivacyConfig { unit: posse_core::privacy::Unit::Agent, ..privacy() }),
            update_steps: 5,
            ..Default::default()
        }),
        Algorithm::FnUcb(FnUcb {
            neural: small,
            training: pooled,
            features_at: FeaturePoint::Current,
            ..Default::default()
        }),
    ];
    let kernel = |kernel, max_history| KernelConfig { kernel, max_history, ..Default::default() };
    let kernels = [
        Algorithm::KernelUcb(kernel(Kernel::Linear, 1000)),
        Algorithm::KernelTs(kernel(Kernel::Linear, 1000)),
        Algorithm::KernelUcb(kernel(Kernel::Rbf, 1000)),
        Algorithm::KernelTs(kernel(Kernel::Matern15, 1000)),
        Algorithm::KernelUcb(kernel(Kernel::Matern25, 1000)),
        // Full before the end.
        Algorithm::KernelUcb(kernel(Kernel::Exponential, 13)),
        Algorithm::KernelTs(kernel(Kernel::Exponential, 1)),
    ];
    let others = clustered.into_iter().chain(exchanges).chain(kernels).chain(neural);
    let variants = variants.into_iter().chain(others.map(|algorithm| (algorithm, flat)));
    // Nobody learns enough here for a first release by default.
    let soon = |algorithm| match algorithm {
        Algorithm::CdpFclubDc(config) => Algorithm::CdpFclubDc(CdpFclubDc { privacy: privacy(), ..config }),
        Algorithm::FedUcb(config) => Algorithm::FedUcb(FedUcb { first_release: 3, ..config }),
        Algorithm::PrivateGlmUcb(config) => {
            Algorithm::PrivateGlmUcb(PrivateGlmUcb { privacy: privacy(), ..config })
        }
        other => other,
    };
    let defaults =
        Algorithm::all().into_iter().map(|algorithm| Case { algorithm: soon(algorithm), shape: flat });
    defaults.chain(variants.map(|(algorithm, shape)| Case { algorithm, shape })).collect()
}

impl Case {
    pub(crate) fn agent(&self, id: u64) -> Box<dyn Agent> {
        let federation = Federation { agents: AGENTS, horizon: STEPS, seed: Seed(11) };
        self.algorithm.agent(AgentId(id), self.shape, &federation).expect("settings in range")
    }

    pub(crate) fn coordinator(&self) -> Box<dyn Coordinator> {
        self.algorithm.coordinator(self.shape).expect("settings in range")
    }

    /// The nearest reward that the algorithm takes.
    pub(crate) fn possible(&self, reward: f64) -> f64 {
        match self.algorithm.link_function() {
            Some(LinkFunction::Logistic | LinkFunction::Probit) => reward.clamp(0.0, 1.0),
            Some(LinkFunction::Poisson) => reward.max(0.0),
            Some(LinkFunction::Identity) | None => reward,
        }
    }

    /// The dimension of what the agents share.
    pub(crate) fn shared(&self) -> usize {
        self.shape.shared
    }
}

enum Letter {
    Up(AgentId, Uplink),
    Down(AgentId, Downlink),
}

/// Everything that happened, in a form that compares.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Chose(u64, usize),
    Up(u64, Vec<u8>),
    Down(u64, Vec<u8>),
}

pub(crate) struct Host {
    case: Case,
    pub(crate) agents: Vec<Box<dyn Agent>>,
    pub(crate) coordinator: Box<dyn Coordinator>,
    joined: Vec<AgentId>,
    queue: VecDeque<Letter>,
    now: Tick,
    pub(crate) events: Vec<Event>,
    /// Before every call, save the machine and go on with a new one that restored it.
    pub(crate) reborn: bool,
    /// Take a refusal for impossible evidence, which only enormous features may cause.
    pub(crate) lenient: bool,
}

impl Host {
    pub(crate) fn new(case: &Case) -> Self {
        let mut host = Self {
            case: case.clone(),
            agents: (0..AGENTS).map(|id| case.agent(id)).collect(),
            coordinator: case.coordinator(),
            joined: Vec::new(),
            queue: VecDeque::new(),
            now: NOW,
            events: Vec::new(),
            reborn: false,
            lenient: false,
        };
        if case.algorithm.join_policy() == JoinPolicy::Eager {
            (0..AGENTS).for_each(|id| host.join(AgentId(id)));
        }
        host
    }

    /// A host that has played `steps` interactions.
    pub(crate) fn after(case: &Case, steps: u64) -> Self {
        let mut host = Self::new(case);
        (0..steps).for_each(|step| host.interact(step));
        host
    }

    pub(crate) fn arms(&self, step: u64) -> Arms {
        let d = self.case.shape.dimension();
        let mut stream = Seed(5).stream("arms", step, 0);
        let rows: Vec<Vec<f64>> = (0..7).map(|_| (0..d).map(|_| stream.normal() / 2.0).collect()).collect();
        Arms::from_rows(d, &rows).expect("normals are finite")
    }

    /// One interaction of one agent, and all that follows from it.
    pub(crate) fn interact(&mut self, step: u64) {
        let mut stream = Seed(6).stream("interaction", step, 0);
        let agent = match self.case.algorithm.placement() {
            Placement::Central => 0,
            Placement::PerAgent => stream.below(AGENTS),
        };
        self.now = NOW.after(TimeSpan::from_micros(step * 10_000));
        self.join(AgentId(agent));
        let arms = self.arms(step);
        let user = UserId(agent + AGENTS * stream.below(USERS));
        let now = self.now;
        let question = self.agent(agent).prepare(now, user, &arms).expect("good arms");
        self.queue.extend(question.map(|message| Letter::Up(AgentId(agent), message)));
        self.deliver();
        let choice = self.agent(agent).choose(user, &arms).expect("good arms");
        assert!(choice.arm < arms.len());
        assert!(choice.propensity.is_none_or(|p| p > 0.0 && p <= 1.0));
        self.events.push(Event::Chose(agent, choice.arm));
        let x = arms.row(choice.arm);
        let reward =
            x.iter().enumerate().map(|(i, x)| x / (i + 1) as f64).sum::<f64>() + 0.1 * stream.normal();
        let reward = self.case.possible(reward);
        self.learn(agent, user, x, reward).expect("a good observation");
    }

    pub(crate) fn learn(
        &mut self,
        agent: u64,
        user: UserId,
        x: &[f64],
        reward: f64,
    ) -> Result<(), InputError> {
        let said = self.agent(agent).learn(user, x, reward)?;
        self.queue.extend(said.map(|message| Letter::Up(AgentId(agent), message)));
        self.deliver();
        Ok(())
    }

    pub(crate) fn join(&mut self, agent: AgentId) {
        if !self.joined.contains(&agent) {
            self.joined.push(agent);
            let now = self.now;
            let outgoing = self.coordinator().join(now, agent, Entrance::NewLife);
            self.post(outgoing);
            self.deliver();
        }
    }

    /// The saved states of everybody.
    pub(crate) fn save(&self) -> Vec<Vec<u8>> {
        self.agents.iter().map(|agent| agent.save()).chain([self.coordinator.save()]).collect()
    }

    fn deliver(&mut self) {
        while let Some(letter) = self.queue.pop_front() {
            let now = self.now;
            let refused = match letter {
                Letter::Up(from, message) => {
                    self.events.push(Event::Up(from.0, encode_uplink(&message)));
                    self.coordinator().receive(now, from, message).map(|outgoing| self.post(outgoing)).err()
                }
                Letter::Down(to, message) => {
                    self.events.push(Event::Down(to.0, encode_downlink(&message)));
                    let answer = self.agent(to.0).receive(message);
                    answer.map(|said| self.queue.extend(said.map(|m| Letter::Up(to, m)))).err()
                }
            };
            match refused {
                None => {}
                Some(ProtocolError::Evidence(_)) if self.lenient => {}
                Some(error) => panic!("{}: {error}", self.case.algorithm.name()),
            }
        }
    }

    fn post(&mut self, outgoing: Vec<Outgoing>) {
        for Outgoing { to, message } in outgoing {
            let recipients = self.joined.iter().filter(|agent| to.includes(**agent));
            self.queue.extend(recipients.map(|&agent| Letter::Down(agent, message.clone())));
        }
    }

    fn agent(&mut self, id: u64) -> &mut dyn Agent {
        let agent = &mut self.agents[id as usize];
        if self.reborn {
            let state = agent.save();
            *agent = self.case.agent(id);
            agent.restore(&state).expect("its own state");
            assert_eq!(agent.save(), state);
        }
        &mut **agent
    }

    fn coordinator(&mut self) -> &mut dyn Coordinator {
        if self.reborn {
            let state = self.coordinator.save();
            self.coordinator = self.case.coordinator();
            self.coordinator.restore(&state).expect("its own state");
            assert_eq!(self.coordinator.save(), state);
        }
        &mut *self.coordinator
    }
}
