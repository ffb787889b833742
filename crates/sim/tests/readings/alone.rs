//! Learners that say nothing: `n-ucb-glm` and `one-ucb-glm`, `kernel-ucb` and `kernel-ts`.

use posse_core::{
    Agent, AgentId, Algorithm, Arms, Federation, GlmConfig, Kernel, KernelConfig, LinkFunction, Seed, Shape,
    UcbGlm, UserId,
};
use posse_sim::RunConfig;
use posse_sim::world::{GlmWorldConfig, NonlinearConfig, Offer, WorldConfig};

use super::{
    Reading, add_outer, add_vector, assert_frequency, dot, follow, normal_below, regularized, rows, solve,
    zeros,
};
use crate::support::small;

const D: usize = 4;

/// UCB-GLM of Li et al. (2017) with λ in place of its random start.
struct MaximumLikelihood {
    config: UcbGlm,
    /// c_μ, and the α that follows from it.
    alpha: f64,
    /// One learner for all, or one for each agent.
    learners: Vec<Likely>,
}

#[derive(Clone, Default)]
struct Likely {
    history: Vec<(Vec<f64>, f64)>,
    theta: Vec<f64>,
    /// Σμ'(xᵀθ)xxᵀ, each at the θ of its time.
    curvature: Vec<Vec<f64>>,
    refitted: usize,
}

fn mean(link: LinkFunction, z: f64) -> f64 {
    match link {
        LinkFunction::Logistic => 1.0 / (1.0 + libm::exp(-z)),
        _ => libm::exp(z),
    }
}

fn slope(link: LinkFunction, z: f64) -> f64 {
    match link {
        LinkFunction::Logistic => mean(link, z) * (1.0 - mean(link, z)),
        _ => libm::exp(z),
    }
}

/// The minimiser of Σ[m(xᵀθ) − y·xᵀθ] + (λ/2)‖θ‖², by damped Newton steps from zero, and the curvature there.
fn likeliest(link: LinkFunction, lambda: f64, history: &[(Vec<f64>, f64)]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let mut theta = vec![0.0; D];
    let at = |theta: &[f64]| {
        let mut gradient: Vec<f64> = theta.iter().map(|t| lambda * t).collect();
        let mut curvature = zeros(D);
        for (x, y) in history {
            let z = dot(x, theta);
            add_vector(&mut gradient, mean(link, z) - y, x);
            let root = slope(link, z).sqrt();
            add_outer(&mut curvature, &x.iter().map(|x| root * x).collect::<Vec<_>>());
        }
        (gradient, curvature)
    };
    for _ in 0..60 {
        let (gradient, curvature) = at(&theta);
        let step = solve(&regularized(&curvature, lambda), &gradient);
        let length = dot(&step, &step).sqrt();
        add_vector(&mut theta, -1.0 / (1.0 + length), &step);
    }
    (theta.clone(), at(&theta).1)
}

impl MaximumLikelihood {
    fn place(&self, offer: &Offer) -> usize {
        if self.learners.len() == 1 { 0 } else { offer.agent.0 as usize }
    }
}

impl Reading for MaximumLikelihood {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        let own = &self.learners[self.place(offer)];
        let mut v = zeros(D);
        own.history.iter().for_each(|(x, _)| add_outer(&mut v, x));
        let v = regularized(&v, self.config.model.regularization);
        rows(offer).map(|x| dot(x, &own.theta) + self.alpha * dot(x, &solve(&v, x)).sqrt()).collect()
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let (place, GlmConfig { link, regularization, .. }) = (self.place(offer), self.config.model.clone());
        let own = &mut self.learners[place];
        own.history.push((x.to_vec(), reward));
        // H += μ'(xᵀθ)xxᵀ; θ −= H⁻¹x(μ(xᵀθ) − y).
        let z = dot(x, &own.theta);
        let root = slope(link, z).sqrt();
        add_outer(&mut own.curvature, &x.iter().map(|x| root * x).collect::<Vec<_>>());
        let direction = solve(&regularized(&own.curvature, regularization), x);
        add_vector(&mut own.theta, reward - mean(link, z), &direction);
        if own.history.len() as f64 >= own.refitted as f64 * (1.0 + self.config.refit_growth) {
            own.refitted = own.history.len();
            (own.theta, own.curvature) = likeliest(link, regularization, &own.history);
        }
    }
}

#[test]
fn ucb_glm_is_maximum_likelihood_with_the_printed_width() {
    let (agents, horizon) = (2_u64, 240_u64);
    for (link, growth, together) in [
        (LinkFunction::Logistic, 0.0, false),
        (LinkFunction::Logistic, 0.3, true),
        (LinkFunction::Poisson, 0.0, true),
        (LinkFunction::Poisson, 0.3, false),
    ] {
        let model = GlmConfig { link, width_scale: 0.1, ..GlmConfig::default() };
        let config = UcbGlm { model: model.clone(), refit_growth: growth };
        let c = match link {
            LinkFunction::Logistic => slope(link, 1.0),
            _ => libm::exp(-1.0),
        };
        let own_horizon = if together { horizon } else { horizon / agents } as f64;
        let d = D as f64;
        let inside = 0.5 * d * libm::log(1.0 + 2.0 * own_horizon / d) + libm::log(1.0 / model.confidence);
        let alpha = 0.1 * model.noise / c * inside.sqrt();
        let algorithm =
            if together { Algorithm::OneUcbGlm(config.clone()) } else { Algorithm::NUcbGlm(config.clone()) };
        let world = GlmWorldConfig { link, dimension: D, arms: 6, ..GlmWorldConfig::default() };
        for seed in 15..18 {
            let world = WorldConfig::Glm(world.clone());
            let run = RunConfig { world, ..small(seed, agents, horizon, algorithm.clone()) };
            let likely = Likely { theta: vec![0.0; D], curvature: zeros(D), ..Likely::default() };
            let learners = vec![likely; if together { 1 } else { agents as usize }];
            let mut reading = MaximumLikelihood { config: config.clone(), alpha, learners };
            assert_eq!(follow(&run, &mut reading, 1e-6), 0);
        }
    }
}

/// Regression with a kernel from the textbook: μ = kᵀ(K + λI)⁻¹y, s² = k(x, x) − kᵀ(K + λI)⁻¹k.
struct Regression {
    config: KernelConfig,
    histories: Vec<Vec<(Vec<f64>, f64)>>,
}

fn alike(config: &KernelConfig, a: &[f64], b: &[f64]) -> f64 {
    let squared: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    let r = squared.sqrt() / config.length_scale;
    match config.kernel {
        Kernel::Exponential => libm::exp(-r),
        Kernel::Rbf => libm::exp(-0.5 * r * r),
        Kernel::Matern15 => (1.0 + 3_f64.sqrt() * r) * libm::exp(-(3_f64.sqrt()) * r),
        Kernel::Matern25 => (1.0 + 5_f64.sqrt() * r + 5.0 * r * r / 3.0) * libm::exp(-(5_f64.sqrt()) * r),
        _ => dot(a, b) / (config.length_scale * config.length_scale),
    }
}

/// μ and s² of an arm.
fn belief(config: &KernelConfig, history: &[(Vec<f64>, f64)], x: &[f64]) -> (f64, f64) {
    let own = alike(config, x, x);
    if history.is_empty() {
        return (0.0, own);
    }
    let k: Vec<f64> = history.iter().map(|(other, _)| alike(config, x, other)).collect();
    let y: Vec<f64> = history.iter().map(|(_, y)| *y).collect();
    let gram: Vec<Vec<f64>> =
        history.iter().map(|(a, _)| history.iter().map(|(b, _)| alike(config, a, b)).collect()).collect();
    let weights = solve(&regularized(&gram, config.regularization), &k);
    (dot(&weights, &y), own - dot(&weights, &k))
}

impl Reading for Regression {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        let (config, history) = (&self.config, &self.histories[offer.agent.0 as usize]);
        let bound = |x: &[f64]| {
            let (mean, variance) = belief(config, history, x);
            mean + (config.regularization * config.exploration * variance).sqrt()
        };
        rows(offer).map(bound).collect()
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let history = &mut self.histories[offer.agent.0 as usize];
        // A full history stays as it is.
        if history.len() < self.config.max_history {
            history.push((x.to_vec(), reward));
        }
    }
}

#[test]
fn kernel_ucb_is_the_textbooks_regression() {
    for kernel in [Kernel::Exponential, Kernel::Rbf, Kernel::Matern15, Kernel::Matern25, Kernel::Linear] {
        let config = KernelConfig {
            kernel,
            length_scale: 1.3,
            regularization: 0.5,
            exploration: 0.4,
            max_history: 40,
        };
        let world = WorldConfig::Cosine(NonlinearConfig { dimension: D, ..NonlinearConfig::default() });
        let run = RunConfig { world, ..small(16, 2, 110, Algorithm::KernelUcb(config.clone())) };
        let mut reading = Regression { config, histories: vec![Vec::new(); 2] };
        assert_eq!(follow(&run, &mut reading, 1e-9), 0);
        assert!(reading.histories.iter().all(|history| history.len() == 40), "histories are full at the end");
    }
}

/// Draws of different arms are independent: N(μ, max(λν·s², 1e-6)) each.
#[test]
fn kernel_ts_draws_every_arm_from_its_own_belief() {
    let config = KernelConfig { regularization: 0.5, exploration: 0.4, ..KernelConfig::default() };
    let federation = Federation { agents: 1, horizon: 100, seed: Seed(17) };
    let algorithm = Algorithm::KernelTs(config.clone());
    let mut agent: Box<dyn Agent> = algorithm.agent(AgentId(0), Shape::shared(D), &federation).unwrap();
    let mut stream = Seed(18).stream("observations", 0, 0);
    let mut history = Vec::new();
    for _ in 0..30 {
        let x: Vec<f64> = (0..D).map(|_| 0.5 * stream.normal()).collect();
        let y = libm::cos(3.0 * x[0]) + 0.01 * stream.normal();
        agent.learn(UserId(0), &x, y).unwrap();
        history.push((x, y));
    }
    let deviation = |variance: f64| f64::max(config.regularization * config.exploration * variance, 1e-6);
    for pair in 0..4 {
        let arms: Vec<Vec<f64>> = (0..2).map(|_| (0..D).map(|_| 0.5 * stream.normal()).collect()).collect();
        let (a, b) = (belief(&config, &history, &arms[0]), belief(&config, &history, &arms[1]));
        let offer = Arms::from_rows(D, &arms).unwrap();
        let first = (0..4000).filter(|_| agent.choose(UserId(0), &offer).unwrap().arm == 0).count();
        let probability = normal_below((a.0 - b.0) / (deviation(a.1) + deviation(b.1)).sqrt());
        assert_frequency(probability, first as u32, 4000, &format!("pair {pair}"));
    }
}
