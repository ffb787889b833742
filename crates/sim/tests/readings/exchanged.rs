//! `async-lin-ts` and `lin-ts`, `async-lin-phe`, `sync-lin-ucb` and `fed-lin-ucb`.

use posse_core::{
    Agent, AgentId, Algorithm, Arms, AsyncLinPhe, AsyncLinTs, ExchangeLinIgw, ExchangeLinTs, Federation,
    JoinPolicy, LinTs, ModelConfig, Recipient, Seed, Shape, SyncLinUcb, Threshold, Tick, UserId,
};
use posse_sim::RunConfig;
use posse_sim::world::{ArrivalConfig, Offer};

use super::{
    Line, Pair, Reading, add_outer, add_vector, assert_frequency, dot, follow, linear_bounds, ln_det,
    normal_below, regularized, rows, solve,
};
use crate::literal::{Literal, literal};
use crate::support::dense::{argmax, back_substitute, form, gram, upper_cholesky};
use crate::support::{protocol, small};

const D: usize = 5;

/// θ̃ ~ N(θ̂, v²V(λ)⁻¹), one draw for all arms of an offer, in the exchange of Algorithms 1 and 2.
struct Sampled {
    exchange: Literal,
    model: ModelConfig,
    scale: f64,
    seed: Seed,
    choices: Vec<u64>,
}

impl Reading for Sampled {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        let id = offer.agent.0;
        self.exchange.join(id);
        let sums = self.exchange.view(id);
        let lambda = self.model.regularization;
        let v = regularized(&sums.v, lambda);
        let information = ln_det(&v) - D as f64 * libm::log(lambda);
        let failure = 2.0 * libm::log(1.0 / self.model.confidence);
        let alpha = self.model.noise * (information + failure).sqrt() + lambda.sqrt() * self.model.norm_bound;
        let mut draws = self.seed.stream("model-sample", id, self.choices[id as usize]);
        self.choices[id as usize] += 1;
        let eta: Vec<f64> = (0..D).map(|_| draws.normal()).collect();
        let mut theta = solve(&v, &sums.b);
        // (UᵀU)⁻¹ is the covariance of U⁻¹η.
        add_vector(&mut theta, self.scale * alpha, &back_substitute(&upper_cholesky(&v), &eta));
        rows(offer).map(|x| dot(x, &theta)).collect()
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        self.exchange.add(offer.agent.0, x, reward);
        self.exchange.upload_if_due(offer.agent.0);
    }

    fn said(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.exchange.log)
    }
}

#[test]
fn async_lin_ts_draws_one_model_for_all_arms_from_the_posterior_of_its_view() {
    for (scale, threshold, join) in [(0.3, 1.5, JoinPolicy::Lazy), (1.0, 3.0, JoinPolicy::Eager)] {
        let protocol = protocol(threshold, threshold, join);
        let model = ModelConfig::default();
        let algorithm = AsyncLinTs {
            model: model.clone(),
            protocol: protocol.clone(),
            sampling_scale: scale,
            privacy: None,
        };
        let config = small(7, 6, 400, Algorithm::AsyncLinTs(algorithm));
        let exchange = literal(6, D, &model, &protocol);
        let mut reading = Sampled { exchange, model, scale, seed: config.seed, choices: vec![0; 6] };
        assert!(follow(&config, &mut reading, 1e-9) > 20);
    }
}

#[test]
fn lin_ts_draws_from_its_own_posterior_and_says_nothing() {
    let never = protocol(f64::INFINITY, f64::INFINITY, JoinPolicy::Lazy);
    let model = ModelConfig::default();
    let algorithm = LinTs { model: model.clone(), sampling_scale: 0.5 };
    let config = small(8, 3, 400, Algorithm::LinTs(algorithm));
    let exchange = literal(3, D, &model, &never);
    let mut reading = Sampled { exchange, model, scale: 0.5, seed: config.seed, choices: vec![0; 3] };
    assert_eq!(follow(&config, &mut reading, 1e-9), 0);
}

/// Three agents that exchanged something, and the first of them.
fn acquainted(algorithm: &Algorithm) -> Box<dyn Agent> {
    let federation = Federation { agents: 3, horizon: 200, seed: Seed(11) };
    let mut agents: Vec<Box<dyn Agent>> =
        (0..3).map(|id| algorithm.agent(AgentId(id), Shape::shared(D), &federation).unwrap()).collect();
    let mut coordinator = algorithm.coordinator(Shape::shared(D)).unwrap();
    let now = Tick(1_700_000_000_000_000);
    for id in 0..3 {
        coordinator.join(now, AgentId(id), posse_core::Entrance::NewLife);
    }
    let mut stream = Seed(12).stream("observations", 0, 0);
    for step in 0..90 {
        let id = step % 3;
        let x: Vec<f64> = (0..D).map(|_| 0.4 * stream.normal()).collect();
        let y = 0.5 * x[0] - 0.3 * x[1] + 0.1 * stream.normal();
        let Some(upload) = agents[id].learn(UserId(0), &x, y).unwrap() else { continue };
        for outgoing in coordinator.receive(now, AgentId(id as u64), upload).unwrap() {
            let Recipient::Agent(to) = outgoing.to else { panic!("nothing is broadcast here") };
            agents[to.0 as usize].receive(outgoing.message).unwrap();
        }
    }
    agents.swap_remove(0)
}

/// A sum of x times a·Bernoulli(½) coins has covariance (a/4)·Σxxᵀ, so that xᵀθ̃ is
/// N(xᵀθ̂, (a/4)·xᵀV(λ)⁻¹ V V(λ)⁻¹x) over everything the agent knows. Of two arms the first is chosen as often as that says.
#[test]
fn async_lin_phe_perturbs_its_whole_history() {
    for a in [0.5, 2.0] {
        let algorithm = Algorithm::AsyncLinPhe(AsyncLinPhe {
            protocol: protocol(1.5, 2.0, JoinPolicy::Eager),
            perturbations: a,
            ..AsyncLinPhe::default()
        });
        let mut agent = acquainted(&algorithm);
        let (v, moment) = {
            let view = agent.inspect().linear.unwrap();
            assert!(!view.base.is_empty() && !view.buffer.is_empty(), "downloads and own observations count");
            let mut moment = view.base.moment().to_vec();
            add_vector(&mut moment, 1.0, view.buffer.moment());
            (gram([view.base, view.buffer]), moment)
        };
        let regular = regularized(&v, ModelConfig::default().regularization);
        let theta = solve(&regular, &moment);
        let mut stream = Seed(13).stream("pairs", 0, 0);
        for pair in 0..4 {
            let arms: Vec<Vec<f64>> =
                (0..2).map(|_| (0..D).map(|_| 0.4 * stream.normal()).collect()).collect();
            let gap: Vec<f64> = arms[0].iter().zip(&arms[1]).map(|(a, b)| a - b).collect();
            let z = solve(&regular, &gap);
            let deviation = (0.25 * a * form(&z, &v, &z)).sqrt();
            let offer = Arms::from_rows(D, &arms).unwrap();
            let first = (0..4000).filter(|_| agent.choose(UserId(0), &offer).unwrap().arm == 0).count();
            let probability = normal_below(dot(&gap, &theta) / deviation);
            assert_frequency(probability, first as u32, 4000, &format!("a = {a}, pair {pair}"));
        }
    }
}

/// p(k) = 1/(K·(1 + gap/(s·α·w))) for all arms but the best, which has the rest; w is the width of the best. Thompson sampling
/// of the same view draws N(θ̂, (s·α)²V(λ)⁻¹).
#[test]
fn exchange_lin_igw_and_exchange_lin_ts_choose_as_often_as_their_formulas_say() {
    let model = ModelConfig { noise: 0.5, ..ModelConfig::default() };
    let weighted = ExchangeLinIgw { model: model.clone(), gap_scale: 0.2, ..ExchangeLinIgw::default() };
    let sampled = ExchangeLinTs { model: model.clone(), sampling_scale: 0.4, ..ExchangeLinTs::default() };
    let federation = Federation { agents: 1, horizon: 100, seed: Seed(29) };
    let mut stream = Seed(30).stream("observations", 0, 0);
    let mut arm = || -> Vec<f64> { (0..D).map(|_| 0.4 * stream.normal()).collect() };
    for algorithm in [Algorithm::ExchangeLinIgw(weighted), Algorithm::ExchangeLinTs(sampled)] {
        let mut agent = algorithm.agent(AgentId(0), Shape::shared(D), &federation).unwrap();
        let mut sums = Pair::none(D);
        for step in 0..25 {
            let x = arm();
            let y = 0.5 * x[0] - 0.3 * x[1] + 0.1 * f64::from(step % 3);
            agent.learn(UserId(0), &x, y).unwrap();
            add_outer(&mut sums.v, &x);
            add_vector(&mut sums.b, y, &x);
        }
        let v = regularized(&sums.v, model.regularization);
        let theta = solve(&v, &sums.b);
        let information = ln_det(&v) - D as f64 * libm::log(model.regularization);
        let failure = 2.0 * libm::log(1.0 / model.confidence);
        let alpha =
            model.noise * (information + failure).sqrt() + model.regularization.sqrt() * model.norm_bound;
        let is_weighted = matches!(algorithm, Algorithm::ExchangeLinIgw(_));
        let arms: Vec<Vec<f64>> = (0..if is_weighted { 4 } else { 2 }).map(|_| arm()).collect();
        let offer = Arms::from_rows(D, &arms).unwrap();
        let mut chosen = vec![0; arms.len()];
        (0..4000).for_each(|_| chosen[agent.choose(UserId(0), &offer).unwrap().arm] += 1);
        let means: Vec<f64> = arms.iter().map(|x| dot(x, &theta)).collect();
        let best = argmax(means.iter().copied());
        if is_weighted {
            let unit = 0.2 * alpha * dot(&arms[best], &solve(&v, &arms[best])).sqrt();
            for (k, mean) in means.iter().enumerate().filter(|(k, _)| *k != best) {
                let probability = 1.0 / (4.0 * (1.0 + (means[best] - mean) / unit));
                assert_frequency(probability, chosen[k], 4000, &format!("arm {k}"));
            }
        } else {
            let gap: Vec<f64> = arms[0].iter().zip(&arms[1]).map(|(a, b)| a - b).collect();
            let deviation = 0.4 * alpha * dot(&gap, &solve(&v, &gap)).sqrt();
            assert_frequency(normal_below(dot(&gap, &theta) / deviation), chosen[0], 4000, "the first arm");
        }
    }
}

/// Algorithm 4 of Li and Wang (2022).
struct Synchronous {
    model: ModelConfig,
    threshold: f64,
    everything: Pair,
    agents: Vec<Option<Own>>,
    said: Vec<Line>,
}

/// V_i and b_i, ΔV_i and Δb_i, Δt_i.
struct Own {
    all: Pair,
    fresh: Pair,
    interactions: u64,
}

impl Synchronous {
    fn join(&mut self, id: u64) {
        let nobody = || Own { all: Pair::none(D), fresh: Pair::none(D), interactions: 0 };
        self.agents[id as usize].get_or_insert_with(nobody);
    }
}

impl Reading for Synchronous {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        self.join(offer.agent.0);
        let own = self.agents[offer.agent.0 as usize].as_ref().expect("it joined");
        linear_bounds(&own.all, &self.model, 0.0, rows(offer))
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let own = self.agents[offer.agent.0 as usize].as_mut().expect("it joined");
        for pair in [&mut own.all, &mut own.fresh] {
            add_outer(&mut pair.v, x);
            add_vector(&mut pair.b, reward, x);
        }
        own.interactions += 1;
        let lambda = self.model.regularization;
        let ratio = own.all.ln_det(lambda) - own.all.minus(&own.fresh).ln_det(lambda);
        if own.interactions as f64 * ratio <= self.threshold {
            return;
        }
        for (id, own) in (0..).zip(&mut self.agents) {
            let Some(own) = own else { continue };
            self.everything.add(&own.fresh);
            (own.fresh, own.interactions) = (Pair::none(D), 0);
            self.said.push(Line::Uploaded { agent: id });
        }
        for (id, own) in (0..).zip(&mut self.agents) {
            let Some(own) = own else { continue };
            own.all = self.everything.clone();
            self.said.push(Line::Downloaded { agent: id });
        }
    }

    fn said(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.said)
    }
}

#[test]
fn sync_lin_ucb_is_algorithm_4() {
    let arrivals = [ArrivalConfig::Uniform, ArrivalConfig::RoundRobin, ArrivalConfig::Zipf { exponent: 1.2 }];
    for (arrival, threshold) in arrivals.into_iter().zip([0.3, 2.0, 8.0]) {
        for join in [JoinPolicy::Lazy, JoinPolicy::Eager] {
            let model = ModelConfig::default();
            let algorithm = SyncLinUcb {
                model: model.clone(),
                round_threshold: Threshold(threshold),
                join,
                ..SyncLinUcb::default()
            };
            let config = small(9, 6, 400, Algorithm::SyncLinUcb(algorithm));
            let config = RunConfig { arrival: arrival.clone(), ..config };
            let agents = (0..6).map(|_| None).collect();
            let mut reading =
                Synchronous { model, threshold, everything: Pair::none(D), agents, said: Vec::new() };
            if join == JoinPolicy::Eager {
                (0..6).for_each(|id| reading.join(id));
            }
            assert!(follow(&config, &mut reading, 1e-9) > 24, "{threshold} {join:?}");
        }
    }
}
