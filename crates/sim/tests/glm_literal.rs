//! The generalized linear family beside its formulas, written down once more with full matrices.
//!
//! [`Reference`] follows a run event by event. Before every choice it computes all scores from the printed formulas
//! (specification, sections 4.1 and 4.3) and what it has seen; the arm that was chosen must have the largest. After every
//! observation it knows from Eq. 4, with t and t_last as printed, whether a round is due. Only the minimiser of a
//! round is taken from the run: `o12` and the solver's own tests are about that.

use posse_core::{AgentId, Algorithm, Downlink, FedGlbUcb, FedGlbUcb3, GlmConfig, LinkFunction, OnsGlm};
use posse_core::{Fit, Model, ScheduledGlbUcb, Threshold, Uplink};
use posse_sim::RunConfig;
use posse_sim::world::{ArrivalConfig, GlmWorldConfig, Offer, WorldConfig};

use crate::support::dense::{Matrix, add_outer, add_vector, dot, form, ln_det, regularized, solve, zeros};
use crate::support::{Entry, run, small};

const D: usize = 4;

/// Which member of the family is followed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Member {
    /// FedGLB-UCB with this threshold, and FedGLB-UCB₂, which differs in when rounds come.
    Steps(Option<f64>),
    /// FedGLB-UCB₁: nothing is learned between rounds.
    Frozen,
    /// FedGLB-UCB₃ with this many observations between rounds.
    Online(f64),
    /// N-ONS-GLM: no rounds at all.
    Alone,
}

/// The symbols of the formulas.
#[derive(Clone, Copy)]
struct Symbols {
    link: LinkFunction,
    lambda: f64,
    r: f64,
    delta: f64,
    s: f64,
    c: f64,
    k: f64,
    scale: f64,
    /// How far xᵀθ reaches: S·X̄.
    reach: f64,
}

impl Symbols {
    fn new(config: &GlmConfig) -> Self {
        let reach = config.norm_bound * config.feature_bound;
        let logistic = |z: f64| 1.0 / (1.0 + libm::exp(-z));
        let (c, k) = match config.link {
            LinkFunction::Logistic => (logistic(reach) * (1.0 - logistic(reach)), 0.25),
            LinkFunction::Poisson => (libm::exp(-reach), libm::exp(reach)),
            LinkFunction::Identity | LinkFunction::Probit => panic!("this link is not followed here"),
        };
        Self {
            link: config.link,
            lambda: config.regularization,
            r: config.noise,
            delta: config.confidence,
            s: config.norm_bound,
            c,
            k,
            scale: config.width_scale,
            reach,
        }
    }

    fn mean(&self, z: f64) -> f64 {
        match self.link {
            LinkFunction::Logistic => 1.0 / (1.0 + libm::exp(-z)),
            _ => libm::exp(z),
        }
    }

    /// 1 + 4B/c + (8R²/c²)·ln((1/δ)√(4 + 8B/c + 16R⁴/(c⁴δ²))).
    fn online(&self, b: f64, delta: f64) -> f64 {
        let (c, r) = (self.c, self.r);
        let ratio = r * r / (c * c * delta);
        let root = (4.0 + 8.0 * b / c + 16.0 * ratio * ratio).sqrt();
        1.0 + 4.0 * b / c + 8.0 * r * r / (c * c) * libm::log(root / delta)
    }

    /// γ of Lemma 12.
    fn step(&self, batch: f64) -> f64 {
        let noise = if self.link == LinkFunction::Logistic { 1.0 } else { self.r };
        let square = self.k * self.k * self.reach * self.reach + noise * noise;
        0.5 * f64::min(1.0 / (4.0 * self.reach * square.sqrt()), self.c / (square * batch))
    }
}

/// The nearest point of the ball in the norm of `a`, by halving an interval for the multiplier.
fn project(theta: Vec<f64>, a: &Matrix, radius: f64) -> Vec<f64> {
    let length = |v: &[f64]| dot(v, v).sqrt();
    if length(&theta) <= radius {
        return theta;
    }
    let target: Vec<f64> = a.iter().map(|row| dot(row, &theta)).collect();
    let at = |shift: f64| solve(&regularized(a, shift), &target);
    let (mut low, mut high) = (0.0, length(&target) / radius);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if length(&at(middle)) > radius { low = middle } else { high = middle }
    }
    at(high)
}

/// What an agent's formulas are about.
#[derive(Clone)]
struct Person {
    /// A without its ridge (₃: V without λI).
    a: Matrix,
    b: Vec<f64>,
    theta: Vec<f64>,
    squares: f64,
    potential: f64,
    shift: f64,
    /// Outer products of gradients (₃).
    bent: Matrix,
    /// ld(A) − ld(A at the last round).
    growth: f64,
    /// What is frozen between rounds (₁).
    frozen_width: f64,
}

struct Reference {
    member: Member,
    symbols: Symbols,
    people: Vec<Person>,
    /// Everything observed so far, and since the last round.
    all: Matrix,
    recent: Vec<(Vec<f64>, f64)>,
    count: u64,
    /// t_last of Eq. 4.
    last_round: u64,
    /// What the last round left with everybody (₃).
    shared: Person,
}

impl Reference {
    fn new(member: Member, config: &GlmConfig, agents: usize) -> Self {
        let symbols = Symbols::new(config);
        let Symbols { lambda, s, c, .. } = symbols;
        let potential = match member {
            Member::Steps(_) | Member::Frozen => 0.5 * lambda * s * s,
            Member::Online(batch) => 2.0 * symbols.step(batch) * lambda * s * s,
            Member::Alone => 2.0 * c * lambda * s * s,
        };
        let person = Person {
            a: zeros(D),
            b: vec![0.0; D],
            theta: vec![0.0; D],
            squares: 0.0,
            potential,
            shift: 0.0,
            bent: zeros(D),
            growth: 0.0,
            frozen_width: (lambda / c).sqrt() * s,
        };
        Self {
            member,
            symbols,
            people: vec![person.clone(); agents],
            all: zeros(D),
            recent: Vec::new(),
            count: 0,
            last_round: 0,
            shared: person,
        }
    }

    fn ridge(&self) -> f64 {
        match self.member {
            Member::Steps(_) | Member::Frozen => self.symbols.lambda / self.symbols.c,
            Member::Online(_) | Member::Alone => self.symbols.lambda,
        }
    }

    /// The scores of all arms.
    fn scores(&self, agent: usize, offer: &Offer) -> Vec<f64> {
        let (person, symbols) = (&self.people[agent], &self.symbols);
        let matrix = regularized(&person.a, self.ridge());
        let (center, width) = if self.member == Member::Frozen {
            (person.theta.clone(), symbols.scale * person.frozen_width)
        } else {
            let center = solve(&matrix, &person.b);
            let share = if self.member == Member::Alone { 1.0 } else { self.people.len() as f64 };
            let squared = person.shift
                + symbols.online(person.potential, symbols.delta / share)
                + self.ridge() * symbols.s * symbols.s
                + dot(&center, &person.b)
                - person.squares;
            (center, symbols.scale * squared.max(0.0).sqrt())
        };
        let arm = |index| {
            let x = offer.arms.row(index);
            dot(x, &center) + width * dot(x, &solve(&matrix, x)).sqrt()
        };
        (0..offer.arms.len()).map(arm).collect()
    }

    fn learn(&mut self, agent: usize, x: &[f64], y: f64) {
        let (ridge, symbols, member) = (self.ridge(), self.symbols, self.member);
        add_outer(&mut self.all, x);
        self.recent.push((x.to_vec(), y));
        self.count += 1;
        let person = &mut self.people[agent];
        let before = ln_det(&regularized(&person.a, ridge));
        if member == Member::Frozen {
            return;
        }
        add_outer(&mut person.a, x);
        person.growth += ln_det(&regularized(&person.a, ridge)) - before;
        let z = dot(x, &person.theta);
        add_vector(&mut person.b, z, x);
        person.squares += z * z;
        let error = symbols.mean(z) - y;
        if let Member::Online(batch) = member {
            let gradient: Vec<f64> = x.iter().map(|x| error * x).collect();
            add_outer(&mut person.bent, &gradient);
            descend(person, &gradient, &symbols, batch);
        } else {
            let matrix = regularized(&person.a, ridge);
            let direction = solve(&matrix, x);
            person.potential += error * error * dot(x, &direction) / (2.0 * symbols.c);
            let mut next = person.theta.clone();
            add_vector(&mut next, -error / symbols.c, &direction);
            person.theta = project(next, &matrix, symbols.s);
        }
    }

    /// Eq. 4: (t − t_last)·(ln det A − ln det A_last) ≥ D.
    fn is_due(&self, agent: usize, t: u64) -> Option<bool> {
        let Member::Steps(Some(threshold)) = self.member else { return None };
        Some((t - self.last_round) as f64 * self.people[agent].growth >= threshold)
    }

    /// A round ends with this model, at time t.
    fn commit(&mut self, model: &Model, t: u64) {
        self.last_round = t;
        match self.member {
            Member::Online(batch) => self.commit_online(model, batch),
            _ => self.commit_minimum(model),
        }
        self.recent.clear();
    }

    fn commit_minimum(&mut self, model: &Model) {
        let Fit::Minimised { gap, .. } = model.fit else { panic!("a minimiser was expected") };
        let (theta, symbols, ridge) = (model.estimate.to_vec(), self.symbols, self.ridge());
        let Symbols { lambda, r, delta, s, c, .. } = symbols;
        let n = self.count as f64;
        let information = ln_det(&regularized(&self.all, ridge)) - D as f64 * libm::log(ridge);
        let failure = libm::log(1.0 / delta);
        let w = (2.0 * n * gap / c).sqrt()
            + r / c * (information + 2.0 * failure).sqrt()
            + (lambda / c).sqrt() * s;
        let excess = n * gap + 0.5 * lambda * s * s;
        let log = failure + 0.5 * ln_det(&regularized(&self.all, 1.0));
        let reach = dot(&theta, &theta).sqrt() + s + (2.0 * excess / c).sqrt();
        let shift = 8.0 * r * r / (c * c) * log + 2.0 * excess / c + 4.0 * r / c * (2.0 * log).sqrt() * reach;
        let b: Vec<f64> = self.all.iter().map(|row| dot(row, &theta)).collect();
        for person in &mut self.people {
            *person = Person {
                a: self.all.clone(),
                squares: form(&theta, &self.all, &theta),
                b: b.clone(),
                theta: theta.clone(),
                potential: 0.5 * c * w * w,
                shift,
                bent: zeros(D),
                growth: 0.0,
                frozen_width: w,
            };
        }
    }

    fn commit_online(&mut self, model: &Model, batch: f64) {
        let symbols = self.symbols;
        let mut shared = self.shared.clone();
        let mut gradient = vec![0.0; D];
        for (x, y) in &self.recent {
            let z = dot(x, &shared.theta);
            add_vector(&mut gradient, symbols.mean(z) - y, x);
            add_outer(&mut shared.a, x);
            add_vector(&mut shared.b, z, x);
            shared.squares += z * z;
        }
        add_outer(&mut shared.bent, &gradient);
        descend(&mut shared, &gradient, &symbols, batch);
        for (mine, told) in shared.theta.iter().zip(model.estimate.iter()) {
            assert!((mine - told).abs() < 1e-7, "the coordinator stepped to {told} instead of {mine}");
        }
        self.people.fill(shared.clone());
        self.shared = shared;
    }
}

/// θ := Π(θ − A⁻¹g/γ) in the norm of A = λI + Σggᵀ, and gᵀA⁻¹g/(2γ) more potential.
fn descend(person: &mut Person, gradient: &[f64], symbols: &Symbols, batch: f64) {
    let (matrix, step) = (regularized(&person.bent, symbols.lambda), symbols.step(batch));
    let direction = solve(&matrix, gradient);
    person.potential += dot(gradient, &direction) / (2.0 * step);
    let mut next = person.theta.clone();
    add_vector(&mut next, -1.0 / step, &direction);
    person.theta = project(next, &matrix, symbols.s);
}

/// Follows a run in which agents take turns. Returns how many rounds there were.
fn follow(member: Member, config: &GlmConfig, algorithm: Algorithm, agents: u64, seed: u64) -> u64 {
    let link = config.link;
    let world = GlmWorldConfig { link, dimension: D, arms: 6, ..GlmWorldConfig::default() };
    let config_of_run = RunConfig {
        world: WorldConfig::Glm(world),
        arrival: ArrivalConfig::RoundRobin,
        ..small(seed, agents, 600, algorithm)
    };
    let mut world = config_of_run.world.build(agents, config_of_run.seed).unwrap();
    let mut reference = Reference::new(member, config, agents as usize);
    let (mut offer, mut chosen) = (Offer::new(), Vec::new());
    let (mut time, mut due, mut asked, mut rounds) = (0, None, false, 0);
    for entry in run(&config_of_run).0.0 {
        match entry {
            Entry::Chose { step, agent, arm } => {
                assert!(due.is_none_or(|due| due == asked), "step {step}: due {due:?}, asked {asked}");
                (due, asked, time) = (None, false, step / agents + 1);
                offer.agent = AgentId(agent);
                world.offer(step, &mut offer);
                let scores = reference.scores(agent as usize, &offer);
                let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                assert!(scores[arm] >= best - 1e-7, "step {step}: {} is not {best}", scores[arm]);
                chosen = offer.arms.row(arm).to_vec();
            }
            Entry::Learned { agent, reward } => {
                reference.learn(agent as usize, &chosen, reward);
                due = reference.is_due(agent as usize, time);
            }
            Entry::Up { message: Uplink::RoundRequest { .. }, .. } => asked = true,
            Entry::Down { agent: 0, message: Downlink::Model(model) } => {
                reference.commit(&model, time);
                rounds += 1;
            }
            _ => {}
        }
    }
    rounds
}

fn config(link: LinkFunction) -> GlmConfig {
    GlmConfig { link, width_scale: 0.05, ..GlmConfig::default() }
}

#[test]
fn fed_glb_ucb_is_its_formulas_and_asks_for_rounds_by_equation_4() {
    for (link, threshold) in [
        (LinkFunction::Logistic, 0.02),
        (LinkFunction::Logistic, 0.3),
        (LinkFunction::Logistic, 3.0),
        (LinkFunction::Poisson, 0.3),
    ] {
        let model = config(link);
        let algorithm = FedGlbUcb { model, round_threshold: Threshold(threshold), ..FedGlbUcb::default() };
        let member = Member::Steps(Some(threshold));
        let rounds = follow(member, &config(link), Algorithm::FedGlbUcb(algorithm), 5, 3);
        assert!(rounds > 2, "{link:?} {threshold}: {rounds} rounds");
    }
}

#[test]
fn the_scheduled_variants_are_their_formulas() {
    for link in [LinkFunction::Logistic, LinkFunction::Poisson] {
        let scheduled = ScheduledGlbUcb { model: config(link), round_every: 40, ..Default::default() };
        let first = Algorithm::FedGlbUcb1(scheduled.clone());
        assert_eq!(follow(Member::Frozen, &config(link), first, 5, 4), 15);
        let second = Algorithm::FedGlbUcb2(scheduled);
        assert_eq!(follow(Member::Steps(None), &config(link), second, 5, 4), 15);
    }
}

#[test]
fn fed_glb_ucb_3_is_its_formulas() {
    for link in [LinkFunction::Logistic, LinkFunction::Poisson] {
        for every in [7, 40] {
            let algorithm = FedGlbUcb3 { model: config(link), round_every: every, ..Default::default() };
            let member = Member::Online(every as f64);
            assert_eq!(follow(member, &config(link), Algorithm::FedGlbUcb3(algorithm), 5, 5), 600 / every);
        }
    }
}

#[test]
fn n_ons_glm_is_its_formulas() {
    for link in [LinkFunction::Logistic, LinkFunction::Poisson] {
        let algorithm = Algorithm::NOnsGlm(OnsGlm { model: config(link) });
        assert_eq!(follow(Member::Alone, &config(link), algorithm, 3, 6), 0);
    }
}
