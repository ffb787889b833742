//! `neural-ucb`, `neural-ts` and `fn-ucb`: Algorithms 1 and 2 of Dai et al. (2023) and the baselines of their program.
//!
//! The network is that of one hidden layer, in double precision and one number at a time. Ours computes in single precision,
//! so that scores differ in the fourth digit.

use posse_core::{
    Agent, AgentId, Algorithm, AlphaRule, Arms, Downlink, FeaturePoint, Federation, FnUcb, NeuralConfig,
    NeuralUcb, Precondition, RoundId, Seed, Shape, Threshold, TrainingMode, Uplink, UserId,
};
use posse_sim::RunConfig;
use posse_sim::world::{ArrivalConfig, NonlinearConfig, Offer, WorldConfig};

use super::{
    Line, Matrix, Reading, add_outer, add_vector, assert_frequency, dot, follow, ln_det, normal_below,
    regularized, rows, solve, zeros,
};
use crate::support::dense::add;
use crate::support::small;

const D: usize = 4;
const UNITS: usize = 6;
/// p₀: weights and biases of the hidden layer, weights and bias of the output.
const P: usize = UNITS * (D + 1) + UNITS + 1;
const TOLERANCE: f64 = 2e-3;

fn settings() -> NeuralConfig {
    NeuralConfig { hidden_width: UNITS, training_steps: 8, training_stop: 35, ..NeuralConfig::default() }
}

/// θ: for each input its weights to all units, the biases of the units, the output's weights, the output's bias.
#[derive(Clone)]
struct Net(Vec<f64>);

impl Net {
    /// What a unit puts out before it is rectified.
    fn unit(&self, x: &[f64], unit: usize) -> f64 {
        (0..D).map(|input| x[input] * self.0[input * UNITS + unit]).sum::<f64>() + self.0[D * UNITS + unit]
    }

    fn output_weight(&self, unit: usize) -> f64 {
        self.0[(D + 1) * UNITS + unit]
    }

    /// f(x; θ).
    fn value(&self, x: &[f64]) -> f64 {
        (0..UNITS).map(|unit| self.output_weight(unit) * self.unit(x, unit).max(0.0)).sum::<f64>()
            + self.0[P - 1]
    }

    /// ∂f/∂θ at x.
    fn gradient(&self, x: &[f64]) -> Vec<f64> {
        let mut gradient = vec![0.0; P];
        for unit in 0..UNITS {
            let before = self.unit(x, unit);
            if before > 0.0 {
                for (input, value) in x.iter().enumerate() {
                    gradient[input * UNITS + unit] = self.output_weight(unit) * value;
                }
                gradient[D * UNITS + unit] = self.output_weight(unit);
                gradient[(D + 1) * UNITS + unit] = before;
            }
        }
        gradient[P - 1] = 1.0;
        gradient
    }

    /// Steps down the slope of (1/n)Σ(f − y)² with weight decay λ/n.
    fn train(&mut self, config: &NeuralConfig, data: &[(Vec<f64>, f64)]) {
        let n = data.len() as f64;
        for _ in 0..config.training_steps {
            let mut slope: Vec<f64> = self.0.iter().map(|value| config.regularization / n * value).collect();
            for (x, y) in data {
                add_vector(&mut slope, 2.0 / n * (self.value(x) - y), &self.gradient(x));
            }
            add_vector(&mut self.0, -config.learning_rate, &slope);
        }
    }
}

/// θ₀ of a federation with this seed, as an agent that does not train submits it.
fn start(neural: &NeuralConfig, seed: Seed) -> Net {
    let neural = NeuralConfig { training_steps: 0, ..neural.clone() };
    let algorithm = Algorithm::FnUcb(FnUcb { neural, ..FnUcb::default() });
    let federation = Federation { agents: 1, horizon: 1, seed };
    let mut agent = algorithm.agent(AgentId(0), Shape::shared(D), &federation).unwrap();
    agent.learn(UserId(0), &[0.5; D], 0.0).unwrap();
    let collect = Downlink::NetworkCollect { round: RoundId(1), observations: 1 };
    let Some(Uplink::NetworkPart(part)) = agent.receive(collect).unwrap() else {
        panic!("it answers at once")
    };
    assert_eq!(part.weights.len(), P);
    Net(part.weights)
}

/// Off the diagonal nothing is kept where only that is.
fn kept(kind: Precondition, mut m: Matrix) -> Matrix {
    if kind == Precondition::Diagonal {
        for (i, row) in m.iter_mut().enumerate() {
            (0..P).filter(|j| *j != i).for_each(|j| row[j] = 0.0);
        }
    }
    m
}

/// NeuralUCB with gradients at the current parameters.
struct Alone {
    config: NeuralUcb,
    net: Net,
    v: Matrix,
    data: Vec<(Vec<f64>, f64)>,
    made: u64,
}

impl Alone {
    fn new(config: &NeuralUcb, seed: Seed) -> Self {
        let net = start(&config.neural, seed);
        Self { config: config.clone(), net, v: zeros(P), data: Vec::new(), made: 0 }
    }

    /// f(x; θ) and √(λν·φᵀV⁻¹φ).
    fn belief(&self, x: &[f64]) -> (f64, f64) {
        let lambda = self.config.neural.regularization;
        let v = regularized(&kept(self.config.neural.statistic, self.v.clone()), lambda);
        let phi = self.net.gradient(x);
        (self.net.value(x), (lambda * self.config.exploration * dot(&phi, &solve(&v, &phi))).sqrt())
    }

    fn observe(&mut self, x: &[f64], y: f64) {
        add_outer(&mut self.v, &self.net.gradient(x));
        self.made += 1;
        if self.made <= self.config.neural.training_stop {
            self.data.push((x.to_vec(), y));
            self.net.train(&self.config.neural, &self.data);
        }
    }
}

impl Reading for Alone {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        rows(offer).map(|x| self.belief(x)).map(|(mean, width)| mean + width).collect()
    }

    fn learn(&mut self, _offer: &Offer, x: &[f64], reward: f64) {
        self.observe(x, reward);
    }
}

fn cosine(seed: u64, agents: u64, iterations: u64, algorithm: Algorithm) -> RunConfig {
    let world = WorldConfig::Cosine(NonlinearConfig { dimension: D, ..NonlinearConfig::default() });
    let arrival = ArrivalConfig::RoundRobin;
    RunConfig { world, arrival, ..small(seed, agents, agents * iterations, algorithm) }
}

#[test]
fn neural_ucb_is_a_network_with_the_width_of_its_gradients() {
    for statistic in [Precondition::Full, Precondition::Diagonal] {
        let config = NeuralUcb { neural: NeuralConfig { statistic, ..settings() }, exploration: 0.3 };
        for seed in [19, 31, 32] {
            let run = cosine(seed, 1, 60, Algorithm::NeuralUcb(config.clone()));
            let mut reading = Alone::new(&config, run.seed);
            assert_eq!(follow(&run, &mut reading, TOLERANCE), 0);
        }
    }
}

/// An arm's draw is N(f, λν·φᵀV⁻¹φ), and draws of different arms are independent.
#[test]
fn neural_ts_draws_every_arm_from_its_own_belief() {
    let config = NeuralUcb { neural: settings(), exploration: 0.3 };
    let federation = Federation { agents: 1, horizon: 100, seed: Seed(20) };
    let algorithm = Algorithm::NeuralTs(config.clone());
    let mut agent: Box<dyn Agent> = algorithm.agent(AgentId(0), Shape::shared(D), &federation).unwrap();
    let mut reading = Alone::new(&config, federation.seed);
    let mut stream = Seed(21).stream("observations", 0, 0);
    let mut arm = || -> Vec<f64> { (0..D).map(|_| 0.5 * stream.normal()).collect() };
    for _ in 0..25 {
        let x = arm();
        let y = libm::cos(3.0 * x[0]);
        agent.learn(UserId(0), &x, y).unwrap();
        reading.observe(&x, y);
    }
    for pair in 0..4 {
        let arms = [arm(), arm()];
        let (a, b) = (reading.belief(&arms[0]), reading.belief(&arms[1]));
        let offer = Arms::from_rows(D, &arms).unwrap();
        let first = (0..2000).filter(|_| agent.choose(UserId(0), &offer).unwrap().arm == 0).count();
        let probability = normal_below((a.0 - b.0) / (a.1 * a.1 + b.1 * b.1).sqrt());
        assert_frequency(probability, first as u32, 2000, &format!("pair {pair}"));
    }
}

/// What an agent of Algorithm 1 keeps.
struct Own {
    w_new: Matrix,
    b_new: Vec<f64>,
    /// V_i^local without λI.
    v_local: Matrix,
    data: Vec<(Vec<f64>, f64)>,
    net: Net,
    made: u64,
}

/// Algorithms 1 and 2, for agents that take turns.
struct Federated {
    config: FnUcb,
    theta_0: Net,
    w_sync: Matrix,
    b_sync: Vec<f64>,
    theta_nn: Net,
    alpha: f64,
    /// V_j^local at the last round.
    v_then: Vec<Matrix>,
    agents: Vec<Own>,
    t: u64,
    t_last: u64,
    said: Vec<Line>,
}

impl Federated {
    fn new(config: &FnUcb, agents: usize, seed: Seed) -> Self {
        let theta_0 = start(&config.neural, seed);
        let own = || Own {
            w_new: zeros(P),
            b_new: vec![0.0; P],
            v_local: zeros(P),
            data: Vec::new(),
            net: theta_0.clone(),
            made: 0,
        };
        Self {
            config: config.clone(),
            w_sync: zeros(P),
            b_sync: vec![0.0; P],
            theta_nn: theta_0.clone(),
            alpha: schedule(config, 0),
            v_then: vec![zeros(P); agents],
            agents: (0..agents).map(|_| own()).collect(),
            theta_0: theta_0.clone(),
            t: 0,
            t_last: 0,
            said: Vec::new(),
        }
    }

    fn phi(&self, x: &[f64]) -> Vec<f64> {
        match self.config.features_at {
            FeaturePoint::Start => self.theta_0.gradient(x),
            FeaturePoint::Current => self.theta_nn.gradient(x),
        }
    }

    fn matrix(&self, sum: &Matrix) -> Matrix {
        regularized(&kept(self.config.neural.statistic, sum.clone()), self.config.neural.regularization)
    }

    /// V̄ = λI + W_sync + W_new,i.
    fn v_bar(&self, own: &Own) -> Matrix {
        let mut sum = self.w_sync.clone();
        add(&mut sum, 1.0, &own.w_new);
        self.matrix(&sum)
    }

    /// The mean of ‖φ‖ in the agents' own matrices, or with less communication ‖φ‖ in the mean of their inverses.
    fn network_width(&self, phi: &[f64]) -> f64 {
        let squares = self.v_then.iter().map(|own| dot(phi, &solve(&self.matrix(own), phi)));
        let count = self.v_then.len() as f64;
        match self.config.less_communication {
            true => (squares.sum::<f64>() / count).sqrt(),
            false => squares.map(f64::sqrt).sum::<f64>() / count,
        }
    }

    /// The end of an iteration: a round, if for any agent (t − t_last)·ln(det V̄/det V_last) > D.
    fn end_iteration(&mut self) {
        let since = (self.t - self.t_last) as f64;
        let last = ln_det(&self.matrix(&self.w_sync));
        let growth = |own: &Own| ln_det(&self.v_bar(own)) - last;
        if !self.agents.iter().any(|own| since * growth(own) > self.config.round_threshold.0) {
            return;
        }
        let mut mean = vec![0.0; P];
        let count = self.agents.len() as f64;
        for (id, own) in (0..).zip(&mut self.agents) {
            if self.config.training != TrainingMode::Independent {
                own.net = self.theta_nn.clone();
            }
            if self.t <= self.config.neural.training_stop {
                own.net.train(&self.config.neural, &own.data);
            }
            add_vector(&mut mean, 1.0 / count, &own.net.0);
            add(&mut self.w_sync, 1.0, &std::mem::replace(&mut own.w_new, zeros(P)));
            add_vector(&mut self.b_sync, 1.0, &std::mem::replace(&mut own.b_new, vec![0.0; P]));
            self.v_then[id as usize] = own.v_local.clone();
            self.said.extend([Line::Uploaded { agent: id }, Line::Downloaded { agent: id }]);
        }
        self.theta_nn = Net(mean);
        self.alpha = schedule(&self.config, self.t);
        self.t_last = self.t;
    }
}

/// α_t: 0 for t < 3, then (t − 3)/ramp up to 1.
fn schedule(config: &FnUcb, t: u64) -> f64 {
    match config.alpha {
        AlphaRule::Zero => 0.0,
        AlphaRule::One => 1.0,
        _ => (t.saturating_sub(3) as f64 / config.alpha_ramp as f64).min(1.0),
    }
}

impl Reading for Federated {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        let own = &self.agents[offer.agent.0 as usize];
        let v_bar = self.v_bar(own);
        let mut moment = self.b_sync.clone();
        add_vector(&mut moment, 1.0, &own.b_new);
        let theta_bar = solve(&v_bar, &moment);
        let root = self.config.neural.regularization.sqrt();
        let score = |x: &[f64]| {
            let phi = self.phi(x);
            let width = dot(&phi, &solve(&v_bar, &phi)).sqrt();
            let linear = dot(&phi, &theta_bar) + self.config.linear_width * root * width;
            let predicts = if self.config.averaging { &self.theta_nn } else { &own.net };
            let network = predicts.value(x) + self.config.network_width * root * self.network_width(&phi);
            (1.0 - self.alpha) * linear + self.alpha * network
        };
        rows(offer).map(score).collect()
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let phi = self.phi(x);
        let (place, stop) = (offer.agent.0 as usize, self.config.neural.training_stop);
        let last = place + 1 == self.agents.len();
        let own = &mut self.agents[place];
        own.made += 1;
        add_outer(&mut own.w_new, &phi);
        add_vector(&mut own.b_new, reward, &phi);
        add_outer(&mut own.v_local, &phi);
        if self.t < stop {
            own.data.push((x.to_vec(), reward));
        }
        if last {
            self.t += 1;
            self.end_iteration();
        }
    }

    /// Rounds end with the iteration in which they were asked for.
    fn is_settled(&self) -> bool {
        self.agents.iter().all(|own| own.made == self.t)
    }

    fn said(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.said)
    }
}

#[test]
fn fn_ucb_is_algorithms_1_and_2() {
    let printed = FnUcb {
        neural: settings(),
        training: TrainingMode::Independent,
        linear_width: 0.4,
        network_width: 0.3,
        alpha_ramp: 20,
        ..FnUcb::default()
    };
    let diagonal = NeuralConfig { statistic: Precondition::Diagonal, ..settings() };
    let variants = [
        printed.clone(),
        FnUcb { round_threshold: Threshold(6.0), less_communication: false, ..printed.clone() },
        FnUcb { training: TrainingMode::Fedavg, features_at: FeaturePoint::Current, ..printed.clone() },
        FnUcb { averaging: false, ..printed.clone() },
        FnUcb { neural: diagonal, training: TrainingMode::Fedavg, ..printed },
    ];
    for config in variants {
        let run = cosine(22, 3, 45, Algorithm::FnUcb(config.clone()));
        let mut reading = Federated::new(&config, 3, run.seed);
        let messages = follow(&run, &mut reading, TOLERANCE);
        assert_eq!(messages == 6 * 44, config.round_threshold.0 == 0.0, "{messages} messages");
        assert!(messages > 30, "{messages} messages of {config:?}");
    }
}
