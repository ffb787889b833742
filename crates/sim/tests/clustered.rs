//! Clustered users: what the algorithms are at the ends of their settings (O16, O25), widths with noise
//! (O23), and what clustering is for.

use posse_core::privacy::{Budget, smallest_eigenvalue};
use posse_core::{
    Agent, AgentId, Algorithm, AsyncLinUcb, CdpFclubDc, Club, ClusterConfig, Fclub, FclubDc, Federation,
    Homo, HomoDc, LinUcb, Linkage, ModelConfig, PrivacyConfig, Sclub, Seed, Shape, Threshold, UserId,
    UserLinUcb,
};
use posse_sim::world::{Assignment, ClusteredConfig, Offer, WorldConfig};
use posse_sim::{Event, Observer, RunConfig, Stage, Tally};

use crate::support::dense::{form, gram, regularized};
use crate::support::{choices, run, small};

const NEVER: Threshold = Threshold(f64::INFINITY);

/// λ and σ of the paper's code for rewards of 0 and 1.
fn model() -> ModelConfig {
    ModelConfig { regularization: 1.0, noise: 0.5, width_scale: 0.3, ..ModelConfig::default() }
}

fn world(users: u64, clusters: u64, assignment: Assignment) -> WorldConfig {
    WorldConfig::Clustered(ClusteredConfig { users, clusters, assignment, ..Default::default() })
}

fn config(agents: u64, horizon: u64, world: WorldConfig, algorithm: Algorithm) -> RunConfig {
    RunConfig { world, ..small(3, agents, horizon, algorithm) }
}

/// Everybody alike, nobody told apart, everything compared.
fn all_alike() -> ClusterConfig {
    ClusterConfig { edge_scale: NEVER, merge_scale: NEVER, merge_gate: NEVER, ..Default::default() }
}

#[test]
fn o16_one_user_of_one_agent_is_lin_ucb() {
    let world = || world(1, 1, Assignment::Contiguous);
    let alone = choices(&config(1, 500, world(), Algorithm::LinUcb(LinUcb { model: model() })));
    let dc = FclubDc { model: model(), ..Default::default() };
    assert_eq!(choices(&config(1, 500, world(), Algorithm::FclubDc(dc))), alone);
    let homo = HomoDc { model: model(), ..Default::default() };
    assert_eq!(choices(&config(1, 500, world(), Algorithm::HomoDc(homo))), alone);
}

#[test]
fn o16_fclub_without_clusters_is_homo_and_central_learning() {
    let world = || world(12, 3, Assignment::Shuffled);
    let of = |algorithm| choices(&config(4, 600, world(), algorithm));
    let central = of(Algorithm::CentralLinUcb(LinUcb { model: model() }));
    assert_eq!(of(Algorithm::Homo(Homo { model: model() })), central);
    for linkage in [Linkage::Complete, Linkage::Transitive] {
        let clusters = ClusterConfig { linkage, ..all_alike() };
        assert_eq!(of(Algorithm::Fclub(Fclub { model: model(), clusters })), central, "{linkage:?}");
    }
}

#[test]
fn o16_a_gate_that_nobody_passes_leaves_every_agent_alone() {
    let world = || world(12, 3, Assignment::Shuffled);
    let alone = choices(&config(4, 600, world(), Algorithm::LinUcb(LinUcb { model: model() })));
    let clusters = ClusterConfig { edge_scale: NEVER, merge_gate: Threshold(0.0), ..Default::default() };
    let separate = Algorithm::Fclub(Fclub { model: model(), clusters });
    assert_eq!(choices(&config(4, 600, world(), separate)), alone);
}

fn machine(algorithm: &Algorithm) -> Box<dyn Agent> {
    let federation = Federation { agents: 1, horizon: 1000, seed: Seed(1) };
    algorithm.agent(AgentId(0), Shape::shared(10), &federation).unwrap()
}

/// Plays the same observations to both until every user has come, then compares choices.
fn assert_same_once_everybody_came(one: &Algorithm, other: &Algorithm) {
    let (mut one, mut other) = (machine(one), machine(other));
    let mut world = world(8, 3, Assignment::Shuffled).build(1, Seed(4)).unwrap();
    let mut offer = Offer::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut compared = 0;
    for step in 0..800 {
        world.offer(step, &mut offer);
        let user: UserId = offer.user;
        let arm = other.choose(user, &offer.arms).unwrap().arm;
        if seen.len() == 8 {
            assert_eq!(one.choose(user, &offer.arms).unwrap().arm, arm, "step {step}");
            compared += 1;
        }
        seen.insert(user);
        for agent in [&mut one, &mut other] {
            assert_eq!(agent.learn(user, offer.arms.row(arm), offer.reward(arm)), Ok(None));
        }
    }
    assert!(compared > 600);
}

#[test]
fn o25_clubs_that_never_split_are_one_lin_ucb_an_agent() {
    let world = || world(12, 3, Assignment::Shuffled);
    let alone = choices(&config(3, 600, world(), Algorithm::LinUcb(LinUcb { model: model() })));
    let club = Algorithm::Club(Club { model: model(), edge_scale: NEVER });
    assert_eq!(choices(&config(3, 600, world(), club)), alone);
    let sclub = Sclub { model: model(), edge_scale: NEVER, frequency_scale: NEVER, merge: true };
    assert_eq!(choices(&config(3, 600, world(), Algorithm::Sclub(sclub))), alone);
}

#[test]
fn o25_clubs_that_always_split_are_a_learner_for_each_user() {
    let each = Algorithm::UserLinUcb(UserLinUcb { model: model() });
    let zero = Threshold(0.0);
    assert_same_once_everybody_came(&Algorithm::Club(Club { model: model(), edge_scale: zero }), &each);
    let sclub = Sclub { model: model(), edge_scale: zero, frequency_scale: NEVER, merge: false };
    assert_same_once_everybody_came(&Algorithm::Sclub(sclub), &each);
}

fn dc(threshold: f64) -> Algorithm {
    let clusters = ClusterConfig { merge_scale: Threshold(2.0), ..Default::default() };
    let (upload_threshold, download_threshold) = (Threshold(threshold), Threshold(threshold));
    Algorithm::FclubDc(FclubDc { model: model(), clusters, upload_threshold, download_threshold })
}

/// The mean over three seeds.
fn mean(horizon: u64, assignment: Assignment, algorithm: &Algorithm, of: fn(&Tally) -> f64) -> f64 {
    let one = |seed| {
        let world = world(40, 5, assignment);
        let config = RunConfig { seed: Seed(seed), ..config(5, horizon, world, algorithm.clone()) };
        of(&config.run(&mut ()).unwrap())
    };
    (0..3).map(one).sum::<f64>() / 3.0
}

#[test]
fn sharing_among_those_who_are_alike_beats_a_learner_for_each_user_and_one_for_all() {
    let regret = |algorithm: &Algorithm| mean(8000, Assignment::Contiguous, algorithm, |tally| tally.regret);
    let clusters = ClusterConfig { merge_scale: Threshold(2.0), ..Default::default() };
    let fclub = regret(&Algorithm::Fclub(Fclub { model: model(), clusters }));
    let delayed = regret(&dc(1.01));
    let each = regret(&Algorithm::UserLinUcb(UserLinUcb { model: model() }));
    let homo = regret(&Algorithm::Homo(Homo { model: model() }));
    assert!(fclub < 0.8 * each && each < 0.8 * homo, "{fclub} {each} {homo}");
    assert!(delayed < 0.9 * each, "{delayed} {each}");
}

#[test]
fn messages_of_delayed_sharing_grow_like_a_logarithm() {
    let messages = |horizon, algorithm: &Algorithm| {
        mean(horizon, Assignment::Contiguous, algorithm, |tally| tally.messages() as f64)
    };
    // Every split is a cluster more that has something to say: here there are none.
    let Algorithm::FclubDc(mut whole) = dc(1.25) else { unreachable!("it was just made") };
    whole.clusters.edge_scale = NEVER;
    let whole = Algorithm::FclubDc(whole);
    let (short, long) = (messages(2000, &whole), messages(16_000, &whole));
    assert!(long < 2.5 * short, "{short} {long}");
    let fclub = Algorithm::Fclub(Fclub { model: model(), ..Default::default() });
    let (short, long) = (messages(1000, &fclub), messages(4000, &fclub));
    assert!(long > 3.5 * short, "{short} {long}");
}

#[test]
fn clusters_are_found_over_time() {
    let index = |horizon| {
        mean(horizon, Assignment::Shuffled, &dc(1.25), |tally| tally.clustering.unwrap().rand_index)
    };
    let (early, late) = (index(500), index(60_000));
    assert!(late > 0.2 && late > early + 0.1, "{early} {late}");
    let config = config(5, 300, world(40, 5, Assignment::Contiguous), Algorithm::LinUcb(LinUcb::default()));
    assert_eq!(run(&config).1.clustering, None, "nobody sorts users here");
}

/// Watches how far the estimate over released sums is off, as a share of its width.
struct Coverage {
    theta: Vec<f64>,
    privacy: PrivacyConfig,
    worst: f64,
    looked: u64,
}

impl Observer for Coverage {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        let Event::Down { agent, message: posse_core::Downlink::Group(group) } = event else { return };
        let view = stage.agent(*agent).expect("it just heard something").inspect();
        let view = view.linear.expect("a linear agent");
        let s = regularized(&gram([view.base]), 1.0);
        let off: Vec<f64> = view.model.estimate().iter().zip(&self.theta).map(|(a, b)| a - b).collect();
        // β = σ₀√(1 + m/(ℓ+λ))·√(2 ln(mL/α_f) + d·ln(1 + T/(d(ℓ+λ)))) + (v + ‖H‖·S)/√(ℓ+λ) + √λ·S.
        let d = off.len() as f64;
        let budget = Budget::new(&self.privacy, off.len(), false);
        let (m, v) = (budget.matrix_bound(group.variance), budget.vector_bound(group.variance));
        let floor = budget.floor(group.variance);
        let lowest = smallest_eigenvalue(view.base.gram(), off.len());
        let h = if lowest > floor * (1.0 + 1e-9) { m } else { 2.0 * m + floor };
        let failure = 2.0 * libm::log(self.privacy.streams as f64 / self.privacy.noise_failure);
        let data = d * libm::log(1.0 + view.base.count() as f64 / (d * (lowest + 1.0)));
        let rewards = 0.5 * ((1.0 + m / (lowest + 1.0)) * (failure + data)).sqrt();
        let width = rewards + (v + h) / (lowest + 1.0).sqrt() + 1.0;
        self.worst = self.worst.max(form(&off, &s, &off).sqrt() / width);
        self.looked += 1;
    }
}

#[test]
fn o23_the_width_over_sums_with_noise_covers() {
    let privacy = PrivacyConfig {
        epsilon: 20.0,
        first_release: 20,
        max_releases: 64,
        private_width: 1.0,
        streams: 4,
        ..Default::default()
    };
    let runs = 100;
    let (mut failures, mut closeness) = (0, 0.0);
    for seed in 0..runs {
        let world = WorldConfig::Clustered(ClusteredConfig {
            users: 4,
            clusters: 1,
            dimension: 5,
            ..Default::default()
        });
        let model = ModelConfig { width_scale: 1.0, ..model() };
        let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb {
            model,
            privacy: Some(privacy.clone()),
            ..Default::default()
        });
        let config = RunConfig { world, ..small(seed, 4, 1000, algorithm) };
        let theta = config.world.build(4, config.seed).unwrap().parameters(AgentId(0)).unwrap();
        let mut coverage = Coverage { theta, privacy: privacy.clone(), worst: 0.0, looked: 0 };
        config.run(&mut coverage).unwrap();
        assert!(coverage.looked > 10);
        failures += u32::from(coverage.worst > 1.0);
        closeness += coverage.worst / f64::from(u32::try_from(runs).unwrap());
    }
    assert!(failures <= 19, "{failures} of {runs} runs left the ellipsoid");
    assert!((0.1..1.0).contains(&closeness), "the width is idle: errors reach {closeness} of it");
}

#[test]
fn private_runs_stay_in_their_budget_and_say_what_they_spent() {
    let privacy = PrivacyConfig { first_release: 50, ..Default::default() };
    let algorithm = Algorithm::CdpFclubDc(CdpFclubDc { model: model(), privacy, ..Default::default() });
    let tally = run(&config(5, 6000, world(20, 4, Assignment::Shuffled), algorithm)).1;
    let report = tally.privacy.expect("it is private");
    assert!(report.epsilon > 0.0 && report.epsilon <= 1.0, "{report:?}");
    assert!(report.user_epsilon > report.epsilon && report.releases >= 5);
    assert!(report.interactive && report.uncovered().len() == 3, "{:?}", report.uncovered());
    assert!(report.seeded && report.private_partition && report.void.is_none());
    assert!(report.signal_to_noise.is_some_and(|signal| signal < 1.0), "so few observations");
}
