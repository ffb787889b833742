//! `fed-lin-ucb`: FedLinUCB of He et al. (2022), and what its width rests on.

use posse_core::{Algorithm, FedLinUcb, ModelConfig, Threshold};
use posse_sim::RunConfig;
use posse_sim::world::{ArrivalConfig, Offer, World};

use super::noise::smallest;
use super::{
    Line, Matrix, Pair, Reading, add_outer, add_vector, follow, form, linear_bounds, regularized, rows, solve,
};
use crate::support::dense::add;
use crate::support::small;

const D: usize = 5;

/// Algorithm 1: between exchanges an agent acts on what it downloaded last.
struct PushAndPull {
    model: ModelConfig,
    alpha: f64,
    /// β, as it is printed and as it is used.
    beta: f64,
    scale: f64,
    server: Pair,
    downloaded: Vec<Pair>,
    local: Vec<Pair>,
    said: Vec<Line>,
    truth: Vec<f64>,
    /// The largest ‖θ̂ − θ‖ in the norm of the agent's matrix, over β.
    furthest: f64,
}

/// Whether a ⪯ b.
fn is_below(a: &Matrix, b: &Matrix) -> bool {
    let mut gap = b.clone();
    add(&mut gap, -1.0, a);
    smallest(&gap) > -1e-9
}

fn times(factor: f64, m: &Matrix) -> Matrix {
    m.iter().map(|row| row.iter().map(|v| factor * v).collect()).collect()
}

impl PushAndPull {
    /// What the proof of the width uses. No agent holds back more than α times what the server has, in any direction; so the server has all
    /// but a factor of 1 + Mα. And the parameter is where the width says.
    fn assert_premises(&mut self) {
        let server = regularized(&self.server.v, self.model.regularization);
        let mut everything = server.clone();
        for local in &self.local {
            assert!(is_below(&local.v, &times(self.alpha, &server)), "an agent holds back too much");
            add(&mut everything, 1.0, &local.v);
        }
        let slack = 1.0 + self.local.len() as f64 * self.alpha;
        assert!(is_below(&everything, &times(slack, &server)), "agents hold back too much together");
        for own in &self.downloaded {
            let sigma = regularized(&own.v, self.model.regularization);
            let mut off = solve(&sigma, &own.b);
            add_vector(&mut off, -1.0, &self.truth);
            self.furthest = self.furthest.max(form(&off, &sigma, &off).sqrt() / self.beta);
        }
    }
}

impl Reading for PushAndPull {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        let model = ModelConfig { fixed_width: Some(self.scale * self.beta), ..self.model.clone() };
        linear_bounds(&self.downloaded[offer.agent.0 as usize], &model, 0.0, rows(offer))
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let (id, lambda) = (offer.agent.0 as usize, self.model.regularization);
        add_outer(&mut self.local[id].v, x);
        add_vector(&mut self.local[id].b, reward, x);
        // det(Σ_m + Σ_loc) > (1 + α)·det(Σ_m).
        let mut with_local = self.downloaded[id].clone();
        with_local.add(&self.local[id]);
        let growth = with_local.ln_det(lambda) - self.downloaded[id].ln_det(lambda);
        if growth > libm::log1p(self.alpha) {
            self.server.add(&std::mem::replace(&mut self.local[id], Pair::none(D)));
            self.downloaded[id] = self.server.clone();
            self.said.extend([Line::Uploaded { agent: id as u64 }, Line::Downloaded { agent: id as u64 }]);
        }
        self.assert_premises();
    }

    fn said(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.said)
    }
}

#[test]
fn fed_lin_ucb_is_its_algorithm_with_the_width_of_its_theorem() {
    let (agents, horizon) = (5_u64, 500_u64);
    let m = agents as f64;
    let arrivals = [ArrivalConfig::Uniform, ArrivalConfig::RoundRobin, ArrivalConfig::Zipf { exponent: 1.2 }];
    for (seed, arrival) in (10..).zip(arrivals) {
        for (alpha, upload_threshold) in [(1.0 / (m * m), None), (0.8, Some(Threshold(1.8)))] {
            let (scale, model) = (0.01, ModelConfig { width_scale: 0.01, ..ModelConfig::default() });
            let ModelConfig { regularization: lambda, noise, confidence, norm_bound, .. } = model;
            // What all agents know, and what each holds back, is off by as much: R√(d·ln((1 + T/κ)/δ)) and the pull towards zero, with κ = λ
            // for the first and αλ for the second. The first counts √(1 + Mα) times, the second √(2α) times for each of M agents.
            let prior = lambda.sqrt() * norm_bound;
            let inside =
                D as f64 * libm::log((1.0 + horizon as f64 / (f64::min(alpha, 1.0) * lambda)) / confidence);
            let spread = (1.0 + m * alpha).sqrt() + m * (2.0 * alpha).sqrt();
            let beta = prior + spread * (noise * inside.sqrt() + prior);
            let algorithm = FedLinUcb { model: model.clone(), upload_threshold, privacy: None };
            let config = small(seed, agents, horizon, Algorithm::FedLinUcb(algorithm));
            let config = RunConfig { arrival: arrival.clone(), ..config };
            let world: Box<dyn World> = config.world.build(agents, config.seed).unwrap();
            let truth = world.parameters(posse_core::AgentId(0)).expect("a linear world has some");
            let pairs = || vec![Pair::none(D); agents as usize];
            let (downloaded, local, said) = (pairs(), pairs(), Vec::new());
            let server = Pair::none(D);
            let mut reading = PushAndPull {
                model,
                alpha,
                beta,
                scale,
                server,
                downloaded,
                local,
                said,
                truth,
                furthest: 0.0,
            };
            assert!(follow(&config, &mut reading, 1e-9) > 40, "α = {alpha}");
            assert!(reading.furthest > 0.01 && reading.furthest < 1.0, "α = {alpha}: {}", reading.furthest);
        }
    }
}
