//! Private algorithms in which all agents share in one group: `fed-ucb` (Dubey and Pentland, 2020), `private-glm-ucb` (ours), and
//! `fed-lin-ucb` with a promise.
//!
//! The reading knows every observation and computes the noise by itself. It says who has to release what and when, what the coordinator
//! makes of it, who has to hear of it, and which arm follows from what an agent was told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use posse_core::{
    AgentId, Algorithm, ClusterUpload, Downlink, Evidence, FedLinUcb, FedUcb, GroupSnapshot, LinkFunction,
    ModelConfig, PrivacyConfig, PrivateGlmUcb, Threshold, Uplink, UserId,
};
use posse_sim::RunConfig;
use posse_sim::world::{GlmWorldConfig, Offer, WorldConfig};

use super::noise::{Noisy, cut, full, repaired, same, smallest};
use super::{Pair, add_outer, add_vector, dot, regularized, rows, solve};
use crate::support::{Entry, run, small};

const D: usize = 4;
const AGENTS: u64 = 3;

/// What makes the algorithms differ.
struct Rules {
    model: ModelConfig,
    privacy: PrivacyConfig,
    noise: Noisy,
    /// μ, where rewards are a curve.
    link: Option<LinkFunction>,
    /// Rewards beyond it are cut.
    range: [f64; 2],
    /// An upload calls everybody.
    rounds: bool,
    ln_download: f64,
    /// Noise is too small to see: releases are the sums.
    exact: bool,
}

/// What an agent knows, and what others know of it.
#[derive(Clone)]
struct Own {
    all: Pair,
    count: u64,
    /// Observations since the last release.
    fresh: Pair,
    released: u64,
    releases: u64,
    told: Told,
}

/// Sums of all agents as the coordinator told them.
#[derive(Clone)]
struct Told {
    sums: Pair,
    count: u64,
    variance: f64,
}

impl Told {
    fn nothing() -> Self {
        Self { sums: Pair::none(D), count: 0, variance: 0.0 }
    }
}

struct OneGroup {
    rules: Rules,
    /// Agents who have joined.
    agents: BTreeMap<u64, Own>,
    /// What each said last, with the variance of its noise.
    said: BTreeMap<u64, (Pair, u64, f64)>,
    /// Agents who have not answered the call of a round yet.
    answering: BTreeSet<u64>,
    round_open: bool,
    /// What each is to be told next.
    due: BTreeMap<u64, VecDeque<Told>>,
    uploads: u32,
    rounds: u32,
    unasked: u32,
}

impl OneGroup {
    fn new(rules: Rules) -> Self {
        Self {
            rules,
            agents: BTreeMap::new(),
            said: BTreeMap::new(),
            answering: BTreeSet::new(),
            round_open: false,
            due: BTreeMap::new(),
            uploads: 0,
            rounds: 0,
            unasked: 0,
        }
    }

    /// Σ of what agents said last, its eigenvalues raised to 4√(d·variance).
    fn everything(&self) -> Told {
        let mut all = Told::nothing();
        for (sums, count, variance) in self.said.values() {
            all.sums.add(sums);
            all.count += count;
            all.variance += variance;
        }
        all.sums.v = repaired(&all.sums.v, 4.0 * (D as f64 * all.variance).sqrt());
        all
    }

    /// Whether so many observations make a release due, `released` of them being out.
    fn is_due(&self, own: &Own, first: u64, growth: f64) -> bool {
        let grown = libm::ceil((growth - 1.0) * own.released as f64).max(1.0);
        own.count >= first
            && (own.count - own.released) as f64 >= grown
            && own.releases < self.rules.privacy.max_releases
    }

    fn calls(&self, own: &Own) -> bool {
        self.is_due(own, self.rules.privacy.first_release, self.rules.privacy.release_growth)
    }

    /// In a round, half of what makes a release due is enough.
    fn answers(&self, own: &Own) -> bool {
        let PrivacyConfig { first_release, release_growth, .. } = self.rules.privacy;
        self.is_due(own, first_release.div_ceil(2), 0.5 * (1.0 + release_growth))
    }

    /// An agent comes for the first time: it is told what is known, if anything is.
    fn join(&mut self, id: u64) {
        assert!(self.said.is_empty(), "a newcomer was not told what there is");
        self.seat(id);
    }

    fn seat(&mut self, id: u64) {
        let own = Own {
            all: Pair::none(D),
            count: 0,
            fresh: Pair::none(D),
            released: 0,
            releases: 0,
            told: Told::nothing(),
        };
        assert!(self.agents.insert(id, own).is_none(), "agent {id} is new");
    }

    /// Before a choice everything that was due has happened.
    fn assert_settled(&self, step: u64) {
        assert!(self.due.values().all(VecDeque::is_empty), "step {step}: somebody was not told");
        assert!(self.answering.is_empty() && !self.round_open, "step {step}: a round is open");
        for (id, own) in &self.agents {
            assert!(!self.calls(own), "step {step}: agent {id} has to say something");
        }
    }

    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        if !self.agents.contains_key(&offer.agent.0) {
            self.join(offer.agent.0);
        }
        let (own, Rules { model, privacy, noise, .. }) = (&self.agents[&offer.agent.0], &self.rules);
        let lowest = if own.told.count == 0 { 0.0 } else { smallest(&own.told.sums.v) };
        let width = noise.width(model, privacy, own.told.variance, lowest, own.told.count);
        let mut sums = own.told.sums.clone();
        if privacy.raw_buffer {
            sums.add(&own.fresh);
        }
        let v = regularized(&sums.v, model.regularization);
        let theta = solve(&v, &sums.b);
        rows(offer).map(|x| dot(x, &theta) + width * dot(x, &solve(&v, x)).sqrt()).collect()
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let Rules { model, privacy, link, range, .. } = &self.rules;
        let own = self.agents.get_mut(&offer.agent.0).expect("it has chosen");
        let x: Vec<f64> = x.iter().map(|x| cut(*x, privacy.feature_bound)).collect();
        let reward = reward.clamp(range[0], range[1]);
        let reward = link.map_or(reward, |link| {
            let theta = solve(&regularized(&own.told.sums.v, model.regularization), &own.told.sums.b);
            line(link, model.norm_bound * privacy.feature_bound, dot(&x, &theta), reward)
        });
        let y = cut(reward - privacy.reward_centre, privacy.reward_bound);
        for sums in [&mut own.all, &mut own.fresh] {
            add_outer(&mut sums.v, &x);
            add_vector(&mut sums.b, y, &x);
        }
        own.count += 1;
    }

    /// A release replaces what its agent said before, and is answered.
    fn take(&mut self, id: u64, upload: &ClusterUpload) {
        let own = self.agents.get_mut(&id).expect("it has chosen");
        own.releases += 1;
        (own.released, own.fresh) = (own.count, Pair::none(D));
        assert_eq!(
            (upload.cluster.0, upload.number, upload.evidence.count()),
            (1, own.releases, own.count),
            "agent {id}"
        );
        assert!(upload.released && upload.information == 0.0, "nothing exact leaves agent {id}");
        let expected = self.rules.noise.variance(own.releases);
        assert!((upload.variance / expected - 1.0).abs() < 2e-3, "{} is not {expected}", upload.variance);
        let said = full(&upload.evidence);
        let off = said.minus(&own.all);
        let bound = if self.rules.exact { 1e-7 } else { 8.0 * expected.sqrt() };
        let vector_bound = bound * self.rules.noise.vector_ratio.max(1.0);
        assert!(off.v.iter().flatten().all(|v| v.abs() < 1.5 * bound), "agent {id}: {off:?}", off = off.v);
        assert!(off.b.iter().all(|v| v.abs() < vector_bound), "agent {id}: {off:?}", off = off.b);
        self.said.insert(id, (said, own.count, upload.variance));
        self.uploads += 1;
        self.tell(id);
    }

    fn tell(&mut self, id: u64) {
        let now = self.everything();
        self.due.entry(id).or_default().push_back(now);
    }

    /// ln det V(λ) of what an agent was told, or will be told last.
    fn knows(&self, id: u64) -> f64 {
        let last = self.due.get(&id).and_then(VecDeque::back).unwrap_or(&self.agents[&id].told);
        last.sums.ln_det(self.rules.model.regularization)
    }

    fn uploaded(&mut self, id: u64, upload: &ClusterUpload) {
        assert!(self.calls(&self.agents[&id]), "agent {id} says something that is not due");
        self.take(id, upload);
        if self.rules.rounds {
            assert!(!self.round_open, "one round at a time");
            (self.answering, self.round_open) = (self.agents.keys().copied().collect(), true);
            self.rounds += 1;
        } else {
            self.tell_those_behind();
        }
    }

    fn tell_those_behind(&mut self) {
        let now = self.everything().sums.ln_det(self.rules.model.regularization);
        for id in self.agents.keys().copied().collect::<Vec<_>>() {
            if now - self.knows(id) > self.rules.ln_download {
                self.unasked += 1;
                self.tell(id);
            }
        }
    }

    fn answered(&mut self, id: u64, uploads: &[ClusterUpload]) {
        assert!(self.answering.remove(&id), "agent {id} was not asked");
        assert_eq!(uploads.len(), usize::from(self.answers(&self.agents[&id])), "agent {id}");
        uploads.iter().for_each(|upload| self.take(id, upload));
        if self.answering.is_empty() {
            self.round_open = false;
            self.agents.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.tell(id));
        }
    }

    fn downloaded(&mut self, id: u64, told: &GroupSnapshot) {
        if !self.agents.contains_key(&id) {
            self.seat(id);
            self.tell(id);
        }
        let expected = self.due.get_mut(&id).and_then(VecDeque::pop_front);
        let expected = expected.unwrap_or_else(|| panic!("agent {id} is told something unasked"));
        let evidence: &Evidence = &told.snapshot.evidence;
        assert!(same(&expected.sums, &full(evidence)) && expected.count == evidence.count(), "agent {id}");
        assert!((told.variance - expected.variance).abs() <= 1e-9 * expected.variance, "{}", told.variance);
        self.agents.get_mut(&id).expect("it is there").told = Told { sums: full(evidence), ..expected };
    }
}

/// Rewards of a curve as those of a line around xᵀθ̂ of the model that was released last.
fn line(link: LinkFunction, reach: f64, u: f64, reward: f64) -> f64 {
    let u = if u.abs() > reach { reach.copysign(u) } else { u };
    match link {
        LinkFunction::Logistic => u + 4.0 * (reward - 1.0 / (1.0 + libm::exp(-u))),
        LinkFunction::Probit => {
            let steepest = 1.0 / (2.0 * std::f64::consts::PI).sqrt();
            u + (reward - super::normal_below(u)) / steepest
        }
        LinkFunction::Poisson => u + (reward - libm::exp(u)) / libm::exp(reach),
        _ => reward,
    }
}

/// The largest size of what a reward from `low` to `high` counts as, by looking everywhere.
fn largest(link: LinkFunction, reach: f64, low: f64, high: f64) -> f64 {
    let places = (0..=400).map(|step| reach * (f64::from(step) / 200.0 - 1.0));
    places.flat_map(|u| [low, high].map(|y| line(link, reach, u, y).abs())).fold(0.0, f64::max)
}

/// Follows a run to its end.
#[track_caller]
fn follow_group(config: &RunConfig, rules: Rules) -> OneGroup {
    let mut reading = OneGroup::new(rules);
    let mut world = config.world.build(config.agents, config.seed).unwrap();
    let (mut offer, mut chosen, mut clear) = (Offer::new(), 0, 0);
    for entry in run(config).0.0 {
        match entry {
            Entry::Chose { step, agent, arm } => {
                reading.assert_settled(step);
                (offer.agent, offer.user) = (AgentId(agent), UserId(agent));
                world.offer(step, &mut offer);
                let scores = reading.scores(&offer);
                let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                assert!(scores[arm] >= best - 1e-6, "step {step}: {} is not {best}", scores[arm]);
                clear += u64::from(
                    scores.iter().filter(|score| best - **score > 1e-5).count() + 1 == scores.len(),
                );
                chosen = arm;
            }
            Entry::Learned { reward, .. } => reading.learn(&offer, offer.arms.row(chosen), reward),
            Entry::Up { agent, message: Uplink::Cluster(upload) } => reading.uploaded(agent, &upload),
            Entry::Up { agent, message: Uplink::Clusters(list) } => reading.answered(agent, &list.uploads),
            Entry::Down { agent, message: Downlink::Group(told) } => reading.downloaded(agent, &told),
            Entry::Down { message: Downlink::Regroup { anew: false, .. }, .. } => {}
            other => panic!("{other:?} is not of this algorithm"),
        }
    }
    assert!(2 * clear > config.horizon, "only {clear} choices were clear");
    reading
}

#[test]
fn fed_ucb_is_rounds_of_sums_with_noise_of_a_tree_and_raw_observations_since() {
    for (epsilon, seeds) in [(1e30, 40..43), (20.0, 43..46)] {
        for seed in seeds {
            let settings = FedUcb {
                model: ModelConfig { width_scale: 0.05, ..ModelConfig::default() },
                epsilon,
                max_releases: 5,
                first_release: 12,
                ..FedUcb::default()
            };
            // What the page says of the promise: a tree, the same noise in all numbers, raw observations, the width of theory.
            let privacy = PrivacyConfig {
                epsilon,
                delta: 1e-5,
                max_releases: 5,
                first_release: 12,
                release_growth: 1.5,
                private_width: 1.0,
                raw_buffer: true,
                ..PrivacyConfig::default()
            };
            let rules = Rules {
                model: settings.model.clone(),
                noise: Noisy::of_a_tree(&privacy, D, 1.0),
                privacy,
                link: None,
                range: [-1.0, 1.0],
                rounds: true,
                ln_download: f64::INFINITY,
                exact: epsilon > 1e20,
            };
            let config = small(seed, AGENTS, 400, Algorithm::FedUcb(settings));
            let config = RunConfig { world: crate::support::linear(D, 6), ..config };
            let done = follow_group(&config, rules);
            assert!(done.rounds >= 5 && done.uploads >= done.rounds + 5, "{} {}", done.rounds, done.uploads);
            assert!(done.agents.values().any(|own| own.releases == 5), "nobody fell silent");
        }
    }
}

/// Without being asked nobody is told anything; a newcomer is.
#[test]
fn private_fed_lin_ucb_is_told_of_others_when_it_joins_and_when_it_uploads() {
    for (epsilon, seed) in [(1e30, 47), (30.0, 48), (30.0, 49)] {
        let model = ModelConfig { width_scale: 3.0, ..ModelConfig::default() };
        let privacy = PrivacyConfig {
            epsilon,
            max_releases: 3,
            first_release: 15,
            release_growth: 1.6,
            ..PrivacyConfig::default()
        };
        let rules = Rules {
            model: model.clone(),
            noise: Noisy::of_the_best_factors(&privacy, D),
            privacy: privacy.clone(),
            link: None,
            range: [-1.0, 1.0],
            rounds: false,
            ln_download: f64::INFINITY,
            exact: epsilon > 1e20,
        };
        let algorithm = FedLinUcb { model, privacy: Some(privacy), ..FedLinUcb::default() };
        let config = small(seed, AGENTS, 300, Algorithm::FedLinUcb(algorithm));
        let config = RunConfig { world: crate::support::linear(D, 6), ..config };
        let done = follow_group(&config, rules);
        assert_eq!((done.uploads, done.unasked), (3 * AGENTS as u32, 0));
    }
}

#[test]
fn private_glm_ucb_is_regression_on_lines_around_released_models() {
    let links = [LinkFunction::Logistic, LinkFunction::Probit, LinkFunction::Poisson];
    for (link, seed) in links.into_iter().zip([50, 53, 56]) {
        for (epsilon, seed) in [(1e30, seed), (30.0, seed + 1), (30.0, seed + 2)] {
            let model = ModelConfig { norm_bound: 1.5, width_scale: 2.0, ..ModelConfig::default() };
            // Counts up to 4, around 2.
            let (reward_centre, reward_bound) =
                if link == LinkFunction::Poisson { (2.0, 2.0) } else { (0.0, 1.0) };
            let privacy = PrivacyConfig {
                epsilon,
                max_releases: 4,
                first_release: 10,
                release_growth: 1.5,
                reward_centre,
                reward_bound,
                ..PrivacyConfig::default()
            };
            let settings = PrivateGlmUcb {
                model: model.clone(),
                link,
                download_threshold: Threshold(1.2),
                privacy: privacy.clone(),
            };
            let (low, high) = if link == LinkFunction::Poisson { (0.0, 4.0) } else { (0.0, 1.0) };
            let reach = model.norm_bound;
            // What rewards count as has a bound of its own, and noise that is larger by the slope.
            let slope = (line(link, reach, 0.0, 1.0) - line(link, reach, 0.0, 0.0)).recip();
            let privacy = PrivacyConfig {
                reward_centre: 0.0,
                reward_bound: largest(link, reach, low, high),
                ..privacy
            };
            let rules = Rules {
                model: ModelConfig { noise: model.noise / slope, ..model },
                noise: Noisy::of_the_best_factors(&privacy, D),
                privacy,
                link: Some(link),
                range: [low, high],
                rounds: false,
                ln_download: libm::log(1.2),
                exact: epsilon > 1e20,
            };
            let config = small(seed, AGENTS, 250, Algorithm::PrivateGlmUcb(settings));
            let world = GlmWorldConfig { link, dimension: D, arms: 6, max_count: 4.0, ..Default::default() };
            let config = RunConfig { world: WorldConfig::Glm(world), ..config };
            let done = follow_group(&config, rules);
            assert_eq!(done.uploads, 4 * AGENTS as u32, "{link:?}");
            assert!(done.unasked > 3, "{link:?}: {}", done.unasked);
        }
    }
}
