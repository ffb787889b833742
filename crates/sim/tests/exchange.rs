//! The exchange that speaks when silence costs more: a plain reference with full matrices says and chooses
//! the same, and its two bounds hold in every run.

use std::collections::BTreeMap;

use posse_core::{
    AgentId, Algorithm, Arms, Downlink, Entrance, ExchangeConfig, ExchangeLinIgw, ExchangeLinTs,
    ExchangeLinUcb, Federation, ModelConfig, Outgoing, Seed, Shape, Threshold, Tick, TimeSpan, Uplink,
    UserId,
};
use posse_sim::network::{NetworkConfig, Preset};
use posse_sim::world::{ArrivalConfig, LinearConfig, Offer, WorldConfig};
use posse_sim::{Event, Observer, RunConfig, Stage};

use crate::support::dense::{
    Matrix, add, add_outer, add_vector, argmax, dot, ln_det, regularized, solve, zeros,
};
use crate::support::{Entry, run, small};

const D: usize = 5;

fn ucb(exchange: ExchangeConfig) -> Algorithm {
    Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange, ..Default::default() })
}

/// What the reference and the machines must agree on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Line {
    Chose { step: u64, agent: u64, arm: usize },
    Pushed { agent: u64, count: u64 },
    Asked { agent: u64, count: u64 },
    Told { agent: u64, count: u64 },
}

/// Full sums over observations, in the symbols of the formulas.
#[derive(Clone)]
struct Sums {
    v: Matrix,
    b: Vec<f64>,
    n: u64,
}

impl Sums {
    fn none() -> Self {
        Self { v: zeros(D), b: vec![0.0; D], n: 0 }
    }

    fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        add(&mut sum.v, 1.0, &other.v);
        add_vector(&mut sum.b, 1.0, &other.b);
        sum.n += other.n;
        sum
    }

    fn information(&self, lambda: f64) -> f64 {
        ln_det(&regularized(&self.v, lambda)) - D as f64 * libm::log(lambda)
    }
}

/// What the coordinator last told an agent.
#[derive(Clone, Copy)]
struct Told {
    count: u64,
    agents: u64,
    rate: f64,
    doubt: f64,
}

struct PlainAgent {
    shared: Sums,
    buffer: Sums,
    up_to_date: u64,
    told: Option<Told>,
    first: u64,
    learned: u64,
    withheld: f64,
    seen: Option<f64>,
    heard: Option<f64>,
    doubts: (f64, f64),
    growth: f64,
}

/// The exchange as docs/algorithms/exchange-lin-ucb.md states it, with every determinant and every inverse
/// made anew for every question.
struct Plain {
    model: ModelConfig,
    config: ExchangeConfig,
    everything: Sums,
    changes: u64,
    agents: BTreeMap<u64, PlainAgent>,
    /// Observations and milliseconds: the last two times their number had doubled.
    marks: Vec<(u64, f64)>,
    doubt: f64,
    log: Vec<Line>,
}

impl Plain {
    fn told(&self, now: f64) -> Told {
        let (before, then) = self.marks[self.marks.len().saturating_sub(2)];
        let rate = if now > then { (self.everything.n - before) as f64 / (now - then) } else { 0.0 };
        Told { count: self.everything.n, agents: self.agents.len() as u64, rate, doubt: self.doubt }
    }

    fn mark(&mut self, now: f64) {
        if self.marks.is_empty() {
            self.marks = vec![(0, now), (0, now)];
        }
        let last = self.marks.last().expect("there are two").0;
        if self.everything.n > 2 * last.max(8) {
            self.marks.push((self.everything.n, now));
        }
    }

    fn tell(&mut self, id: u64, now: f64) {
        let told = self.told(now);
        let agent = self.agents.get_mut(&id).expect("it joined");
        if agent.told.is_none() {
            agent.first = told.count;
        }
        agent.told = Some(told);
        agent.heard = agent.seen;
    }

    fn give(&mut self, id: u64) {
        let agent = self.agents.get_mut(&id).expect("it joined");
        agent.shared = self.everything.clone();
        agent.up_to_date = self.changes;
        agent.growth = 1.0;
        self.log.push(Line::Told { agent: id, count: self.everything.n });
    }

    fn join(&mut self, id: u64, now: f64) {
        if self.agents.contains_key(&id) {
            return;
        }
        self.mark(now);
        let agent = PlainAgent {
            shared: Sums::none(),
            buffer: Sums::none(),
            up_to_date: 0,
            told: None,
            first: 0,
            learned: 0,
            withheld: 0.0,
            seen: None,
            heard: None,
            doubts: (0.0, 0.0),
            growth: 1.0,
        };
        self.agents.insert(id, agent);
        if self.changes > 0 {
            self.give(id);
            self.tell(id, now);
        }
    }

    /// The coordinator takes in an agent's buffer.
    fn push(&mut self, id: u64) -> u64 {
        let agent = self.agents.get_mut(&id).expect("it joined");
        let sent = std::mem::replace(&mut agent.buffer, Sums::none());
        agent.withheld = 0.0;
        agent.shared = agent.shared.plus(&sent);
        self.everything = self.everything.plus(&sent);
        if agent.up_to_date == self.changes {
            agent.up_to_date += 1;
        }
        self.changes += 1;
        sent.n
    }

    fn fresh(&self, agent: &PlainAgent) -> f64 {
        let lambda = self.model.regularization;
        agent.shared.plus(&agent.buffer).information(lambda) - agent.shared.information(lambda)
    }

    fn interval(agent: &PlainAgent, told: Told) -> f64 {
        ((told.agents + told.count - agent.first) as f64 / (1 + agent.learned) as f64).max(1.0)
    }

    /// Means and standard widths of all arms, and α.
    fn scores(&self, agent: &PlainAgent, offer: &Offer) -> (Vec<f64>, Vec<f64>, f64) {
        let (all, lambda) = (agent.shared.plus(&agent.buffer), self.model.regularization);
        let v = regularized(&all.v, lambda);
        let theta = solve(&v, &all.b);
        let failure = 2.0 * libm::log(1.0 / self.model.confidence);
        let alpha = self.model.noise * (all.information(lambda) + failure).sqrt() + lambda.sqrt();
        let rows = (0..offer.arms.len()).map(|arm| offer.arms.row(arm));
        let score = |x: &[f64]| (dot(x, &theta), dot(x, &solve(&v, x)).sqrt());
        let (means, widths) = rows.map(score).unzip();
        (means, widths, alpha)
    }

    fn loss(&self, agent: &PlainAgent, offer: &Offer, growth: f64) -> f64 {
        let (means, widths, alpha) = self.scores(agent, offer);
        let bound = |k: usize| means[k] + alpha / growth.sqrt() * widths[k];
        let played = argmax((0..means.len()).map(bound));
        let best = argmax(means.iter().copied());
        let mut loss = means[best] - means[played];
        for k in (0..means.len()).filter(|&k| k != best) {
            let deviation = self.model.noise * (widths[k] * widths[k] + widths[best] * widths[best]).sqrt();
            let z = (means[k] - means[best]) / deviation;
            if z <= -6.0 {
                continue;
            }
            let below = 0.5 * libm::erfc(-z / 2.0_f64.sqrt());
            loss += deviation * (libm::exp(-z * z / 2.0) / (2.0 * std::f64::consts::PI).sqrt() + z * below);
        }
        loss
    }

    fn ask_if_due(&mut self, id: u64, offer: &Offer, now: f64) {
        let agent = &self.agents[&id];
        let Some(told) = agent.told else {
            self.agents.get_mut(&id).expect("it joined").seen = Some(now);
            return;
        };
        let known = (agent.shared.n + agent.buffer.n).max(1) as f64;
        let elapsed = agent.heard.map_or(0.0, |heard| now - heard);
        let growth = ((told.count as f64 + told.rate * elapsed + agent.buffer.n as f64) / known).max(1.0);
        let due = growth >= 1.0 + self.config.min_growth;
        let loss = if due { self.loss(agent, offer, growth) } else { 0.0 };
        let (fresh, interval) = (self.fresh(agent), Self::interval(agent, told));
        let agent = self.agents.get_mut(&id).expect("it joined");
        (agent.seen, agent.growth) = (Some(now), growth);
        agent.heard.get_or_insert(now);
        if !due {
            return;
        }
        agent.doubts = (0.9 * agent.doubts.0 + loss * known, 0.9 * agent.doubts.1 + 1.0);
        let doubt = agent.doubts.0 / agent.doubts.1;
        let saved =
            loss * (1.0 - 1.0 / growth) + (growth * libm::log(growth) - growth + 1.0) * doubt / interval;
        if saved <= 2.0 * self.config.message_price && growth <= 1.0 + self.config.max_growth {
            return;
        }
        let withheld = agent.withheld + doubt * fresh / D as f64 * (growth - 1.0);
        let with_buffer = fresh > libm::log(self.config.min_news.0)
            && agent.buffer.n >= self.config.min_upload
            && withheld > self.config.message_price;
        let count = if with_buffer { self.push(id) } else { 0 };
        self.log.push(Line::Asked { agent: id, count });
        let ratio = (doubt / self.doubt).clamp(0.5, 2.0);
        self.doubt = if self.doubt == 0.0 { doubt } else { self.doubt * libm::pow(ratio, 0.125) };
        self.mark(now);
        let agent = &self.agents[&id];
        let grown = self.everything.n as f64 >= (1.0 + self.config.min_growth) * agent.shared.n as f64;
        if grown && agent.up_to_date < self.changes {
            self.give(id);
        }
        self.tell(id, now);
    }

    fn interact(&mut self, step: u64, offer: &Offer) {
        let (id, now) = (offer.agent.0, 10.0 * step as f64);
        self.join(id, now);
        self.ask_if_due(id, offer, now);
        let agent = &self.agents[&id];
        let (means, widths, alpha) = self.scores(agent, offer);
        let width = alpha / agent.growth.sqrt();
        let arm = argmax((0..means.len()).map(|k| means[k] + width * widths[k]));
        self.log.push(Line::Chose { step, agent: id, arm });

        let agent = self.agents.get_mut(&id).expect("it joined");
        add_outer(&mut agent.buffer.v, offer.arms.row(arm));
        add_vector(&mut agent.buffer.b, offer.reward(arm), offer.arms.row(arm));
        agent.buffer.n += 1;
        agent.learned += 1;
        let agent = &self.agents[&id];
        let fresh = self.fresh(agent);
        let cost = agent.told.filter(|told| told.doubt > 0.0).map_or(f64::INFINITY, |told| {
            let count = told.count.max(agent.shared.n + agent.buffer.n) as f64;
            told.doubt * fresh / D as f64 * Self::interval(agent, told) / count
        });
        let due = agent.withheld + cost > self.config.message_price
            || fresh > libm::log(self.config.max_withheld.0);
        let may = fresh > libm::log(self.config.min_news.0) && agent.buffer.n >= self.config.min_upload;
        if due && may {
            let count = self.push(id);
            self.log.push(Line::Pushed { agent: id, count });
            self.mark(now);
            self.tell(id, now);
        } else if cost.is_finite() {
            self.agents.get_mut(&id).expect("it joined").withheld += cost;
        }
    }
}

fn plain_log(config: &RunConfig, exchange: &ExchangeConfig) -> Vec<Line> {
    let mut world = config.world.build(config.agents, config.seed).unwrap();
    let mut arrivals = config.arrival.build(config.agents, config.horizon, config.seed).unwrap();
    let mut plain = Plain {
        model: ModelConfig::default(),
        config: exchange.clone(),
        everything: Sums::none(),
        changes: 0,
        agents: BTreeMap::new(),
        marks: Vec::new(),
        doubt: 0.0,
        log: Vec::new(),
    };
    let mut offer = Offer::new();
    for step in 0..config.horizon {
        offer.agent = arrivals.agent(step);
        offer.user = UserId(offer.agent.0);
        world.offer(step, &mut offer);
        plain.interact(step, &offer);
    }
    plain.log
}

fn machines_log(config: &RunConfig) -> Vec<Line> {
    let line = |entry: &Entry| match entry {
        Entry::Chose { step, agent, arm } => Some(Line::Chose { step: *step, agent: *agent, arm: *arm }),
        Entry::Up { agent, message: Uplink::Evidence(upload) } => {
            Some(Line::Pushed { agent: *agent, count: upload.evidence.count() })
        }
        Entry::Up { agent, message: Uplink::Pull(pull) } => {
            let count = pull.upload.as_ref().map_or(0, |upload| upload.evidence.count());
            Some(Line::Asked { agent: *agent, count })
        }
        Entry::Down { agent, message: Downlink::Answer(answer) } => {
            let snapshot = answer.snapshot.as_ref()?;
            Some(Line::Told { agent: *agent, count: snapshot.evidence.count() })
        }
        _ => None,
    };
    run(config).0.0.iter().filter_map(line).collect()
}

fn settings() -> Vec<ExchangeConfig> {
    // The reference keeps every bit of every number.
    let priced = |message_price| ExchangeConfig { message_price, rounding: 0.0, ..Default::default() };
    vec![
        priced(0.0),
        priced(0.002),
        priced(0.008),
        priced(0.1),
        ExchangeConfig { min_growth: 0.0, max_growth: 1.0, ..priced(0.05) },
        ExchangeConfig { max_withheld: Threshold(1.2), min_news: Threshold(1.1), ..priced(0.01) },
        ExchangeConfig { min_upload: 5, ..priced(0.004) },
    ]
}

fn arrivals() -> [ArrivalConfig; 4] {
    [
        ArrivalConfig::Uniform,
        ArrivalConfig::RoundRobin,
        ArrivalConfig::OneHot { share: 0.9 },
        ArrivalConfig::Bursts { mean_length: 40.0 },
    ]
}

#[test]
fn the_machines_say_and_choose_what_the_plain_reference_does() {
    let (mut asked, mut told, mut pushed) = (0, 0, 0);
    for exchange in settings() {
        for (seed, arrival) in arrivals().into_iter().enumerate() {
            let config = small(seed as u64, 12, 500, ucb(exchange.clone()));
            let config = RunConfig { arrival, ..config };
            let (plain, machines) = (plain_log(&config, &exchange), machines_log(&config));
            let same = plain.iter().zip(&machines).take_while(|(a, b)| a == b).count();
            let next = |log: &[Line]| log.get(same..(same + 3).min(log.len())).map(<[Line]>::to_vec);
            assert_eq!(next(&plain), next(&machines), "line {same} of {exchange:?}, {:?}", config.arrival);
            assert_eq!(plain.len(), machines.len());
            asked += plain.iter().filter(|line| matches!(line, Line::Asked { .. })).count();
            told += plain.iter().filter(|line| matches!(line, Line::Told { .. })).count();
            pushed += plain.iter().filter(|line| matches!(line, Line::Pushed { .. })).count();
        }
    }
    assert!(asked > 500 && told > 500 && pushed > 500, "{asked} {told} {pushed}");
}

/// Messages with statistics by agent, and what agents withheld before choices.
#[derive(Default)]
struct Bounds {
    uploads: BTreeMap<AgentId, u64>,
    snapshots: BTreeMap<AgentId, u64>,
    /// Observations in the first snapshot of each agent.
    first: BTreeMap<AgentId, u64>,
    max_withheld: f64,
    information: f64,
    count: u64,
}

impl Observer for Bounds {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        match event {
            Event::Chose { agent, .. } => {
                let fresh = stage.agent(*agent).expect("it chose").inspect().fresh_information;
                self.max_withheld = self.max_withheld.max(fresh);
            }
            Event::Up { agent, message: Uplink::Evidence(_), .. } => {
                *self.uploads.entry(*agent).or_default() += 1;
            }
            Event::Up { agent, message: Uplink::Pull(pull), .. } => {
                *self.uploads.entry(*agent).or_default() += u64::from(pull.upload.is_some());
            }
            Event::Down { agent, message: Downlink::Answer(answer) } => {
                if let Some(snapshot) = &answer.snapshot {
                    *self.snapshots.entry(*agent).or_default() += 1;
                    self.first.entry(*agent).or_insert(snapshot.evidence.count());
                }
            }
            Event::Quiet => {
                let agents = stage.agents();
                let buffers =
                    agents.iter().filter_map(|agent| Some(stage.agent(*agent)?.inspect().linear?.buffer));
                let known = stage.coordinator().inspect();
                let sum = crate::support::dense::gram(known.evidence.into_iter().chain(buffers));
                self.information = ln_det(&regularized(&sum, 0.1)) - D as f64 * libm::log(0.1);
                self.count = known.observations;
            }
            _ => {}
        }
    }
}

/// Whatever a message costs and whoever comes: an agent uploads at most (information of everything)/ln γ
/// times, is sent at most 1 + ln(N/n)/ln(1 + g) snapshots, and withholds at most ln γ'.
#[test]
fn nobody_says_hears_or_withholds_more_than_the_settings_allow() {
    let mut closest: [f64; 3] = [0.0; 3];
    let rules = |exchange: &ExchangeConfig| {
        [
            ucb(exchange.clone()),
            Algorithm::ExchangeLinTs(ExchangeLinTs { exchange: exchange.clone(), ..Default::default() }),
            Algorithm::ExchangeLinIgw(ExchangeLinIgw { exchange: exchange.clone(), ..Default::default() }),
        ]
    };
    for price in [0.0, 0.003, 1.0] {
        for (min_news, min_growth, max_withheld) in [(1.2, 0.2, 1.3), (1.01, 0.05, 3.0)] {
            let exchange = ExchangeConfig {
                message_price: price,
                min_news: Threshold(min_news),
                max_withheld: Threshold(max_withheld),
                min_growth,
                ..Default::default()
            };
            for (seed, arrival) in arrivals().into_iter().enumerate() {
                for algorithm in rules(&exchange) {
                    let config =
                        RunConfig { arrival: arrival.clone(), ..small(seed as u64, 10, 600, algorithm) };
                    let mut bounds = Bounds::default();
                    config.run(&mut bounds).unwrap();
                    let most = (bounds.information / libm::log(min_news)).floor();
                    for (agent, &uploads) in &bounds.uploads {
                        assert!(uploads as f64 <= most, "{agent}: {uploads} uploads, at most {most}");
                        closest[0] = closest[0].max(uploads as f64 / most);
                    }
                    for (agent, &snapshots) in &bounds.snapshots {
                        let ratio = bounds.count as f64 / bounds.first[agent].max(1) as f64;
                        let most = (1.0 + libm::log(ratio) / libm::log(1.0 + min_growth)).floor();
                        assert!(snapshots as f64 <= most, "{agent}: {snapshots} snapshots, at most {most}");
                        closest[1] = closest[1].max(snapshots as f64 / most);
                    }
                    let most = libm::log(max_withheld);
                    assert!(bounds.max_withheld <= most + 1e-9, "{} > {most}", bounds.max_withheld);
                    closest[2] = closest[2].max(bounds.max_withheld / most);
                }
            }
        }
    }
    assert!(closest.iter().all(|share| *share > 0.4), "bounds that nobody comes near: {closest:?}");
}

/// Where links take time, an agent that may wait has its answer before it chooses, and one that may not has
/// it afterwards: both finish, and waiting lowers regret.
#[test]
fn waiting_for_the_answer_pays_and_not_waiting_works() {
    let regret = |wait: TimeSpan| {
        let runs = (0..6).map(|seed| {
            let config = small(seed, 60, 3000, ucb(ExchangeConfig::default()));
            let network = NetworkConfig {
                preset: Preset::Wifi,
                interval: TimeSpan::from_millis(200),
                wait,
                ..Default::default()
            };
            let tally = RunConfig { network, ..config }.run(&mut ()).unwrap();
            assert_eq!(tally.interactions, 3000);
            tally.regret
        });
        runs.sum::<f64>()
    };
    let (patient, hasty) = (regret(TimeSpan::from_millis(100)), regret(TimeSpan::ZERO));
    assert!(patient < hasty, "{patient} with answers, {hasty} without");
}

/// The goal of rounding: far fewer bytes, and no more regret than wider widths explain.
#[test]
fn rounded_numbers_take_a_third_of_the_bytes_and_cost_little_regret() {
    let of = |rounding| {
        (0..6).fold((0.0, 0), |(regret, bytes), seed| {
            let config = small(seed, 60, 3000, ucb(ExchangeConfig { rounding, ..Default::default() }));
            let world = WorldConfig::Linear(LinearConfig { dimension: 20, ..LinearConfig::default() });
            let tally = RunConfig { world, ..config }.run(&mut ()).unwrap();
            (regret + tally.regret, bytes + tally.up.bytes + tally.down.bytes)
        })
    };
    let (whole, rounded) = (of(0.0), of(0.01));
    assert!(rounded.0 < 1.1 * whole.0, "regret {} rounded, {} whole", rounded.0, whole.0);
    assert!(3 * rounded.1 < whole.1, "{} bytes rounded, {} whole", rounded.1, whole.1);
}

/// A coordinator that refuses a question for good never answers it. The agent waits until twice as much has probably
/// happened, and then asks again.
#[test]
fn a_question_that_is_refused_for_good_is_asked_again() {
    let (algorithm, shape) = (ucb(ExchangeConfig::default()), Shape::shared(2));
    let federation = Federation { agents: 2, horizon: 1000, seed: Seed(1) };
    let mut coordinator = algorithm.coordinator(shape).unwrap();
    let [mut busy, mut rare] = [0, 1].map(|id| algorithm.agent(AgentId(id), shape, &federation).unwrap());
    let start = 1_000_000_000_000_u64;
    let at = |seconds: u64| Tick(start + seconds * 1_000_000);
    let only = |mut outgoing: Vec<Outgoing>| outgoing.pop().expect("an answer").message;
    busy.receive(only(coordinator.join(at(0), AgentId(0), Entrance::NewLife))).unwrap();
    for step in 0..40_u64 {
        let arm = [0.1 * (step % 7) as f64, 0.5];
        if let Some(upload) = busy.learn(UserId(0), &arm, 0.3).unwrap() {
            busy.receive(only(coordinator.receive(at(step), AgentId(0), upload).unwrap())).unwrap();
        }
    }
    rare.receive(only(coordinator.join(at(40), AgentId(1), Entrance::NewLife))).unwrap();
    assert!(!rare.is_asking());
    let mut arms = Arms::new(2);
    arms.push(&[1.0, 0.0]).unwrap();
    arms.push(&[0.0, 1.0]).unwrap();
    let mut asked = Vec::new();
    for seconds in 40..100_000 {
        if rare.prepare(at(seconds), UserId(1), &arms).unwrap().is_some() {
            assert!(rare.is_asking());
            asked.push(seconds);
        }
    }
    assert!((2..30).contains(&asked.len()), "{asked:?}");
    // The later ones are each asked when about twice as much has happened as before.
    assert!(
        asked.windows(2).skip(3).all(|pair| (1.8..2.3).contains(&(pair[1] as f64 / pair[0] as f64))),
        "{asked:?}"
    );
    // An answer at last: the agent has what it asked for.
    let Some(question) = ({
        let mut seconds = 200_000;
        loop {
            seconds += 1;
            if let Some(question) = rare.prepare(at(seconds), UserId(1), &arms).unwrap() {
                break Some(question);
            }
        }
    }) else {
        unreachable!("the loop ends with a question")
    };
    rare.receive(only(coordinator.receive(at(300_000), AgentId(1), question).unwrap())).unwrap();
    assert!(!rare.is_asking());
}
