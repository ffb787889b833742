//! Privacy as it leaves an agent: what encoded uploads show, and that nothing more can be learned from them
//! than was promised.

use std::collections::VecDeque;
use std::sync::Arc;

use posse_core::privacy::{Budget, Mechanism, smallest_eigenvalue};
use posse_core::wire::{decode_uplink, encode_uplink};
use posse_core::*;

/// When the tests begin: far from zero, as every real clock is.
const NOW: Tick = Tick(1_700_000_000_000_000);

const D: usize = 2;
const RELEASES: u64 = 4;

fn privacy() -> PrivacyConfig {
    PrivacyConfig {
        epsilon: 3.0,
        delta: 1e-3,
        max_releases: RELEASES,
        first_release: 1,
        release_growth: 1.001,
        ..Default::default()
    }
}

fn clustered(privacy: PrivacyConfig, edge_scale: f64) -> Algorithm {
    let clusters = ClusterConfig { edge_scale: Threshold(edge_scale), ..Default::default() };
    Algorithm::CdpFclubDc(CdpFclubDc { clusters, privacy, ..Default::default() })
}

fn private_async(privacy: PrivacyConfig) -> Algorithm {
    Algorithm::AsyncLinUcb(AsyncLinUcb { privacy: Some(privacy), ..Default::default() })
}

fn agent(algorithm: &Algorithm, seed: u64) -> Box<dyn Agent> {
    let federation = Federation { agents: 1, horizon: 100, seed: Seed(seed) };
    algorithm.agent(AgentId(0), Shape::shared(D), &federation).unwrap()
}

/// Learns; the upload goes through its encoding and is answered, so that the next one may leave.
fn release(agent: &mut dyn Agent, x: &[f64], y: f64) -> Option<ClusterUpload> {
    let said = agent.learn(UserId(0), x, y).unwrap()?;
    let Uplink::Cluster(upload) = decode_uplink(&encode_uplink(&said)).unwrap() else {
        panic!("a private agent said {said:?}");
    };
    assert!(upload.released && upload.information == 0.0, "nothing exact beside the noise");
    let evidence = Arc::new(Evidence::none(D));
    let (version, contains) = (Version(upload.number), upload.number);
    let snapshot = Snapshot { authoritative: false, version, contains, information: 0.0, evidence };
    let group = GroupSnapshot { cluster: upload.cluster, members: 1, snapshot, variance: 0.0 };
    assert_eq!(agent.receive(Downlink::Group(group)), Ok(None));
    Some(upload)
}

/// Observations in the unit ball, the same for every seed but for the first reward.
fn observation(step: u64, first_reward: f64) -> ([f64; D], f64) {
    match step {
        0 => ([0.6, 0.8], first_reward),
        1 => ([1.0, 0.0], 0.5),
        2 => ([0.0, -1.0], -0.25),
        _ => ([0.8, -0.6], 1.0),
    }
}

#[test]
fn encoded_uploads_carry_the_noise_of_their_row() {
    for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
        let privacy = PrivacyConfig { mechanism, ..privacy() };
        let share = Budget::new(&privacy, D, false).cluster;
        let own = || Some(privacy.clone());
        let algorithms = [
            clustered(privacy.clone(), f64::INFINITY),
            private_async(privacy.clone()),
            Algorithm::AsyncLinTs(AsyncLinTs { privacy: own(), ..Default::default() }),
            Algorithm::FedLinUcb(FedLinUcb { privacy: own(), ..Default::default() }),
            Algorithm::SyncLinUcb(SyncLinUcb { privacy: own(), ..Default::default() }),
            // With this link rewards enter as they are.
            Algorithm::PrivateGlmUcb(PrivateGlmUcb {
                link: LinkFunction::Identity,
                privacy: privacy.clone(),
                ..Default::default()
            }),
        ];
        for algorithm in algorithms {
            let seeds = 1000;
            let mut squares = [[0.0; 5]; RELEASES as usize];
            for seed in 0..seeds {
                let mut agent = agent(&algorithm, seed);
                let mut truth = Evidence::none(D);
                for (step, sums) in (0..RELEASES).zip(&mut squares) {
                    let (x, y) = observation(step, 1.0);
                    truth.observe(&x, y).unwrap();
                    let upload = release(&mut *agent, &x, y).expect("a release after every observation");
                    assert_eq!(upload.evidence.count(), step + 1, "counts are public");
                    assert_eq!(
                        upload.variance,
                        share.variance(step + 1),
                        "and so is how much noise there is"
                    );
                    let released = upload.evidence.gram().iter().chain(upload.evidence.moment());
                    let exact = truth.gram().iter().chain(truth.moment());
                    let noise = released.zip(exact).map(|(a, b)| a - b);
                    sums.iter_mut().zip(noise).for_each(|(sum, value)| *sum += value * value);
                }
                let (x, y) = observation(9, 1.0);
                assert_eq!(release(&mut *agent, &x, y), None, "the budget is spent, and the agent silent");
                assert_eq!(agent.privacy().unwrap().silent, 1);
            }
            for (k, sums) in (1u64..).zip(&squares) {
                let vector = privacy.vector_noise * privacy.vector_noise;
                for (entry, factor) in [2.0, 1.0, 2.0, vector, vector].into_iter().enumerate() {
                    let expected = factor * share.variance(k);
                    let n = seeds as f64;
                    let off = (sums[entry] / n - expected).abs() / (expected * (2.0 / n).sqrt());
                    assert!(off < 5.0, "release {k}, entry {entry}: {} is not {expected}", sums[entry] / n);
                }
            }
        }
    }
}

/// The two interactions that are easiest to tell apart by sums with noise: opposite rewards, and features at an angle whose
/// cosine is one over the square of `vector_noise`.
fn easiest(privacy: &PrivacyConfig, world: usize) -> ([f64; D], f64) {
    let cosine = 1.0 / (privacy.vector_noise * privacy.vector_noise);
    [([1.0, 0.0], 1.0), ([cosine, (1.0 - cosine * cosine).sqrt()], -1.0)][world]
}

/// What an attacker computes: measurement by measurement, along the direction in which the two worlds differ, every number
/// weighted by its precision, and by how much of the first interaction is in the measurement. For Gaussian noise nothing tells
/// the two worlds apart better.
fn attack(privacy: &PrivacyConfig, seed: u64, world: usize) -> f64 {
    let numbers = |evidence: &Evidence| -> Vec<f64> {
        evidence.gram().iter().chain(evidence.moment()).copied().collect()
    };
    let [one, other] = [0, 1].map(|world| {
        let (x, y) = easiest(privacy, world);
        let mut sums = Evidence::none(D);
        sums.observe(&x, y).unwrap();
        numbers(&sums)
    });
    let vector = privacy.vector_noise * privacy.vector_noise;
    let mut agent = agent(&clustered(privacy.clone(), f64::INFINITY), seed);
    let releases: Vec<f64> = (0..RELEASES)
        .map(|step| {
            let (x, y) = if step == 0 { easiest(privacy, world) } else { observation(step, 1.0) };
            let upload = release(&mut *agent, &x, y).unwrap();
            let variances = [2.0, 1.0, 2.0, vector, vector];
            let differ = one.iter().zip(&other).map(|(a, b)| a - b).zip(variances);
            numbers(&upload.evidence).iter().zip(differ).map(|(n, (d, v))| n * d / v).sum()
        })
        .collect();
    // The first release is the first measurement alone, which holds all of the first interaction; later ones add leaves that
    // are the same in both worlds, so their differences tell nothing more but through the noise they share.
    best_statistic(privacy, &releases)
}

/// The likelihood ratio of the two worlds is monotone in 1ᵀΣ⁻¹·releases, Σ the covariance of the noise of all releases.
fn best_statistic(privacy: &PrivacyConfig, releases: &[f64]) -> f64 {
    let factors = posse_core::privacy::Factors::new(privacy.mechanism, privacy.max_releases);
    // Σ⁻¹ = CᵀC with A = BC; so 1ᵀΣ⁻¹r is (C·A⁻¹·1)·(C·A⁻¹·r), and A⁻¹ takes differences.
    let differences: Vec<f64> =
        (0..releases.len()).map(|k| releases[k] - if k == 0 { 0.0 } else { releases[k - 1] }).collect();
    (1..=releases.len())
        .map(|k| {
            let weights = factors.weights(k as u64);
            let measured: f64 = weights.iter().zip(&differences).map(|(weight, d)| weight * d).sum();
            weights[0] * measured
        })
        .sum()
}

/// A lower bound on ε at δ, from how often the attacker is right, that holds with a confidence of more than
/// 99.9 %: the best of several thresholds chosen before, each rate off by four standard deviations to our
/// disadvantage.
fn audited_epsilon(privacy: &PrivacyConfig) -> f64 {
    let runs = 12_000;
    // Different noise in the two worlds, as for an attacker who sees one of them.
    let one: Vec<f64> = (0..runs).map(|seed| attack(privacy, seed, 0)).collect();
    let other: Vec<f64> = (runs..2 * runs).map(|seed| attack(privacy, seed, 1)).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / runs as f64;
    let (centre, apart) = (0.5 * (mean(&one) + mean(&other)), mean(&one) - mean(&other));
    let share = |values: &[f64], threshold: f64, sign: f64| {
        let p = values.iter().filter(|value| **value > threshold).count() as f64 / runs as f64;
        p + sign * 4.0 * ((p * (1.0 - p)).max(1e-9) / runs as f64).sqrt() + sign * 4.0 / runs as f64
    };
    let bounds = [0.0, 0.5, 1.0, 1.5].into_iter().map(|t| {
        let threshold = centre + t * apart;
        let (hits, alarms) = (share(&one, threshold, -1.0), share(&other, threshold, 1.0));
        libm::log(((hits - privacy.delta) / alarms).max(1e-9))
    });
    bounds.fold(0.0, f64::max)
}

#[test]
fn two_neighbouring_histories_cannot_be_told_apart_better_than_promised() {
    for (mechanism, vector_noise) in
        [(Mechanism::Factorisation, 2.0), (Mechanism::Factorisation, 1.0), (Mechanism::Tree, 1.4)]
    {
        let privacy = PrivacyConfig { mechanism, vector_noise, ..privacy() };
        let epsilon = audited_epsilon(&privacy);
        assert!(epsilon <= privacy.epsilon, "{mechanism:?}: an attack shows ε ≥ {epsilon}");
        assert!(epsilon > 0.4, "{mechanism:?}: the attack is idle: it shows only ε ≥ {epsilon}");
    }
}

#[test]
fn the_audit_finds_a_mechanism_with_a_third_of_the_noise() {
    let sigma = |epsilon| Budget::new(&PrivacyConfig { epsilon, ..privacy() }, D, false).cluster.sigma;
    let weak = PrivacyConfig { epsilon: 18.0, ..privacy() };
    assert!(sigma(weak.epsilon) < sigma(privacy().epsilon) / 3.0);
    let epsilon = audited_epsilon(&weak);
    assert!(epsilon > privacy().epsilon, "a third of the noise, and the attack shows only ε ≥ {epsilon}");
}

#[test]
fn o17_with_a_huge_budget_releases_are_the_sums() {
    let huge = PrivacyConfig { epsilon: 1e13, ..privacy() };
    let mut agent = agent(&clustered(huge, f64::INFINITY), 1);
    let mut truth = Evidence::none(D);
    for step in 0..RELEASES {
        let (x, y) = observation(step, 1.0);
        truth.observe(&x, y).unwrap();
        let upload = release(&mut *agent, &x, y).unwrap();
        let released = upload.evidence.gram().iter().chain(upload.evidence.moment());
        let exact = truth.gram().iter().chain(truth.moment());
        released.zip(exact).for_each(|(a, b)| assert!((a - b).abs() < 2e-4, "{a} {b}"));
    }
}

#[test]
fn larger_features_and_rewards_are_scaled_or_refused() {
    let mut scaling = agent(&clustered(PrivacyConfig { epsilon: 1e13, ..privacy() }, 1.0), 1);
    let upload = release(&mut *scaling, &[30.0, 40.0], -7.0).unwrap();
    let trace = upload.evidence.gram()[0] + upload.evidence.gram()[2];
    assert!((trace - 1.0).abs() < 2e-4, "one observation of length one: {trace}");
    assert!((upload.evidence.moment()[1] + 0.8).abs() < 2e-4, "with a reward of -1");
    let report = scaling.privacy().unwrap();
    assert_eq!(
        (report.clipped, report.public().clipped),
        (Some(1), None),
        "raw counts are not for everybody"
    );
    // Rewards around a centre: 0.75 is 0.25 away from it, and 7 is cut to 0.5.
    let centred = PrivacyConfig { epsilon: 1e13, reward_centre: 0.5, reward_bound: 0.5, ..privacy() };
    for (reward, expected) in [(0.75, 0.25), (7.0, 0.5), (-7.0, -0.5)] {
        let upload = release(&mut *agent(&clustered(centred.clone(), 1.0), 1), &[1.0, 0.0], reward).unwrap();
        assert!((upload.evidence.moment()[0] - expected).abs() < 2e-4, "{reward}");
    }

    let refuse = PrivacyConfig { clip: posse_core::privacy::Clip::Refuse, ..privacy() };
    let mut refusing = agent(&clustered(refuse, 1.0), 1);
    let before = refusing.save();
    let error = refusing.learn(UserId(0), &[3.0, 4.0], 0.5).unwrap_err();
    assert_eq!(error, InputError::FeatureBound { length: 5.0, bound: 1.0 });
    let error = refusing.learn(UserId(0), &[0.6, 0.8], -2.0).unwrap_err();
    assert_eq!(error, InputError::RewardBound { value: -2.0, bound: 1.0 });
    assert_eq!(refusing.save(), before);
}

#[test]
fn an_agent_with_its_state_says_the_same_again_and_one_without_opens_a_new_stream() {
    let algorithm = clustered(privacy(), f64::INFINITY);
    let (x, y) = observation(0, 1.0);
    let mut first = agent(&algorithm, 5);
    first.begin_life(Incarnation(1));
    let (x2, y2) = observation(1, 1.0);
    release(&mut *first, &x, y).unwrap();
    let saved = first.save();
    let second = release(&mut *first, &x2, y2).unwrap();

    let mut restored = agent(&algorithm, 5);
    restored.begin_life(Incarnation(1));
    restored.restore(&saved).unwrap();
    assert_eq!(release(&mut *restored, &x2, y2), Some(second.clone()), "bit for bit");
    assert_eq!(restored.privacy(), first.privacy());

    // It lost everything: other noise for the same node, or the difference would be the data.
    let mut without = agent(&algorithm, 5);
    without.begin_life(Incarnation(2));
    let again = release(&mut *without, &x, y).unwrap();
    let mut before = agent(&algorithm, 5);
    before.begin_life(Incarnation(1));
    let original = release(&mut *before, &x, y).unwrap();
    assert_ne!(again.evidence, original.evidence);
    let report = without.privacy().unwrap();
    assert_eq!(report.releases, 1, "the accountant of the new life starts anew");
}

/// Enough privacy budget that noise tells nothing apart by chance.
fn splitting() -> PrivacyConfig {
    PrivacyConfig { epsilon: 1e6, edge_first: 50, edge_growth: 2.0, ..privacy() }
}

#[test]
fn a_cluster_may_split_while_its_upload_is_on_its_way() {
    let mut agent = agent(&clustered(splitting(), 0.1), 3);
    let upload = agent.learn(UserId(0), &[1.0, 0.0], 1.0).unwrap();
    let Some(Uplink::Cluster(upload)) = upload else { panic!("a first release") };
    for _ in 0..300 {
        assert_eq!(agent.learn(UserId(0), &[1.0, 0.0], 1.0), Ok(None), "one at a time");
        assert_eq!(agent.learn(UserId(1), &[1.0, 0.0], -1.0), Ok(None));
    }
    let answer = agent.receive(Downlink::Regroup { phase: PhaseId(2), anew: false }).unwrap();
    let Some(Uplink::Clusters(list)) = answer else { panic!("its clusters") };
    assert_eq!(list.uploads.len(), 2, "{list:?}");
    assert!(list.uploads.iter().all(|part| part.cluster != upload.cluster && part.number == 1));
    for (part, reward) in list.uploads.iter().zip([1.0, -1.0]) {
        // What a part begins with are the released sums of its users: nothing more was released of the cluster.
        let mean = part.evidence.moment()[0] / part.evidence.gram()[0];
        assert!((mean - reward).abs() < 0.1, "{part:?}");
    }
    // What comes for the cluster that was finds nobody.
    let before = agent.save();
    let evidence = Arc::new(Evidence::none(D));
    let snapshot =
        Snapshot { authoritative: false, version: Version(1), contains: 1, information: 0.0, evidence };
    let late = GroupSnapshot { cluster: upload.cluster, members: 1, snapshot, variance: 0.0 };
    assert_eq!(agent.receive(Downlink::Group(late)), Ok(None));
    assert_eq!(agent.save(), before);
    let report = agent.privacy().unwrap();
    assert_eq!(
        (report.streams, report.releases),
        (5, 3),
        "three clusters and two users; one and two releases"
    );
    let mut again = self::agent(&clustered(splitting(), 0.1), 3);
    again.restore(&before).unwrap();
    assert_eq!(again.save(), before);
}

/// Whether an agent splits its cluster after `runs` histories that differ in one reward, where raw sums are at the edge.
fn split_rates(algorithm: &Algorithm, runs: u64) -> [f64; 2] {
    [1.0, -1.0].map(|last| {
        let split = |seed: u64| {
            let mut agent = agent(algorithm, seed);
            for step in 0..EDGE_ROUNDS {
                let _ = agent.learn(UserId(0), &[1.0, 0.0], 1.0).unwrap();
                let other = if step + 1 == EDGE_ROUNDS { last } else { EDGE_REWARD };
                let _ = agent.learn(UserId(1), &[1.0, 0.0], other).unwrap();
            }
            agent.receive(Downlink::Regroup { phase: PhaseId(2), anew: false }).unwrap();
            agent.clusters().len() > 1
        };
        (0..runs).filter(|seed| split(*seed)).count() as f64 / runs as f64
    })
}

const EDGE_ROUNDS: u64 = 60;
const EDGE_REWARD: f64 = 0.4273;

/// The attack on splits: one reward decides whether raw estimates are just near enough. Without privacy it decides for
/// certain. With privacy the coordinator may ask for a split whenever it likes and learns no more than was promised.
#[test]
fn whether_a_cluster_splits_tells_no_more_than_was_promised() {
    let clusters = ClusterConfig { edge_scale: Threshold(1.0), ..Default::default() };
    let public = Algorithm::FclubDc(FclubDc { clusters, ..Default::default() });
    assert_eq!(split_rates(&public, 3), [0.0, 1.0], "raw sums are at the edge, and one reward decides");
    let promised = PrivacyConfig {
        epsilon: 1.0,
        delta: 1e-3,
        edge_first: 20,
        edge_share: 0.9,
        noise_failure: 0.99,
        streams: 1,
        ..privacy()
    };
    let private = clustered(promised.clone(), 0.0);
    let runs = 1000;
    let [near, far] = split_rates(&private, runs);
    let error = 4.0 * (0.25 / runs as f64).sqrt();
    let bound = libm::exp(promised.epsilon);
    assert!(far - error <= bound * (near + error) + promised.delta, "{near} {far}");
    assert!(1.0 - near - error <= bound * (1.0 - far + error) + promised.delta, "{near} {far}");
    let mut agent = agent(&private, 1);
    for _ in 0..40 {
        let _ = agent.learn(UserId(0), &[1.0, 0.0], 1.0).unwrap();
    }
    agent.receive(Downlink::Regroup { phase: PhaseId(2), anew: false }).unwrap();
    let report = agent.privacy().unwrap();
    assert!(
        report.private_partition && report.epsilon > 0.5,
        "splits are part of what was spent: {report:?}"
    );
}

#[test]
fn a_coordinator_that_asks_again_and_again_spends_nothing() {
    let privacy = PrivacyConfig { first_release: 5, release_growth: 2.0, ..privacy() };
    let mut agent = agent(&clustered(privacy, 1.0), 4);
    let said = (0..7).find_map(|_| agent.learn(UserId(0), &[0.6, 0.8], 1.0).unwrap());
    let Some(Uplink::Cluster(first)) = said else { panic!("a first release") };
    let spent = agent.privacy().unwrap();
    for phase in 2..30 {
        let answer = agent.receive(Downlink::Regroup { phase: PhaseId(phase), anew: true }).unwrap();
        let Some(Uplink::Clusters(list)) = answer else { panic!("its clusters") };
        assert_eq!(list.uploads.len(), 1);
        assert_eq!(list.uploads[0].evidence, first.evidence, "word for word");
        let answer = agent.receive(Downlink::Regroup { phase: PhaseId(phase), anew: false }).unwrap();
        assert!(
            answer.is_none_or(|answer| matches!(answer, Uplink::Clusters(list) if list.uploads.is_empty()))
        );
    }
    let now = agent.privacy().unwrap();
    assert_eq!((now.releases, now.mu), (spent.releases, spent.mu));
    // It goes on where it was: the next release is due at ten observations.
    agent.learn(UserId(0), &[0.6, 0.8], 1.0).unwrap();
}

fn in_rounds() -> Algorithm {
    let privacy = PrivacyConfig { first_release: 10, release_growth: 2.0, ..privacy() };
    Algorithm::SyncLinUcb(SyncLinUcb { privacy: Some(privacy), ..Default::default() })
}

/// The attack: a coordinator calls rounds as often as it likes. An agent that has learned little since its last release gives nothing.
#[test]
fn a_coordinator_that_calls_rounds_again_and_again_spends_nothing() {
    let mut agent = agent(&in_rounds(), 4);
    let mut phases = 2..;
    let mut given = |agent: &mut dyn Agent, observations: u64| {
        for _ in 0..observations {
            assert_eq!(agent.learn(UserId(0), &[0.6, 0.8], 1.0).unwrap(), None, "it is not due itself");
        }
        let phase = PhaseId(phases.next().unwrap());
        let answer = agent.receive(Downlink::Regroup { phase, anew: false }).unwrap();
        let Some(Uplink::Clusters(list)) = answer else { panic!("its clusters") };
        for upload in &list.uploads {
            let (version, contains) = (Version(phase.0), upload.number);
            let evidence = Arc::new(Evidence::none(D));
            let snapshot = Snapshot { authoritative: false, version, contains, information: 0.0, evidence };
            let group = GroupSnapshot { cluster: upload.cluster, members: 1, snapshot, variance: 0.0 };
            assert_eq!(agent.receive(Downlink::Group(group)), Ok(None));
        }
        list.uploads.len()
    };
    assert_eq!(given(&mut *agent, 4), 0, "a first release is due at ten, and worth a round at five");
    assert_eq!(given(&mut *agent, 1), 1);
    assert_eq!((0..20).map(|_| given(&mut *agent, 0)).sum::<usize>(), 0);
    assert_eq!((given(&mut *agent, 2), given(&mut *agent, 1)), (0, 1), "half of five more is three");
    assert_eq!(agent.privacy().unwrap().releases, 2);
}

#[test]
fn a_private_round_collects_from_everybody_who_has_enough_and_tells_all() {
    let (algorithm, shape) = (in_rounds(), Shape::shared(D));
    let federation = Federation { agents: 3, horizon: 100, seed: Seed(2) };
    let ids = [AgentId(0), AgentId(1), AgentId(2)];
    let mut agents = ids.map(|id| algorithm.agent(id, shape, &federation).unwrap());
    let mut coordinator = algorithm.coordinator(shape).unwrap();
    ids.iter().for_each(|id| drop(coordinator.join(NOW, *id, Entrance::NewLife)));
    for (place, observations) in [(1, 5), (2, 4), (0, 9)] {
        (0..observations).for_each(|_| {
            assert_eq!(agents[place].learn(UserId(0), &[0.6, 0.8], 1.0).unwrap(), None);
        });
    }
    let said = agents[0].learn(UserId(0), &[0.6, 0.8], 1.0).unwrap();
    let mut waiting: VecDeque<_> = said.map(|up| (0, up)).into_iter().collect();
    let mut told = [0; 3];
    while let Some((from, up)) = waiting.pop_front() {
        for outgoing in coordinator.receive(NOW, ids[from], up).unwrap() {
            for (to, agent) in agents.iter_mut().enumerate().filter(|(to, _)| outgoing.to.includes(ids[*to]))
            {
                if let Downlink::Group(group) = &outgoing.message {
                    told[to] = group.snapshot.evidence.count();
                }
                waiting.extend(agent.receive(outgoing.message.clone()).unwrap().map(|up| (to, up)));
            }
        }
    }
    let counts: Vec<u64> = coordinator.clusters().iter().map(|cluster| cluster.count).collect();
    assert_eq!(counts, [10, 5, 0], "the third has too little to be worth a release");
    assert_eq!(told, [15; 3], "and all of them hear the sum");
}

#[test]
fn private_thompson_sampling_chooses_among_released_sums_and_varies() {
    let algorithm = Algorithm::AsyncLinTs(AsyncLinTs { privacy: Some(privacy()), ..Default::default() });
    let mut agent = agent(&algorithm, 1);
    let arms = Arms::from_rows(D, &[[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]]).unwrap();
    let chosen: std::collections::BTreeSet<usize> =
        (0..40).map(|_| agent.choose(UserId(0), &arms).unwrap().arm).collect();
    assert_eq!(chosen.len(), 3, "nothing is known, so that every arm has its turn");
    assert_eq!(agent.choose(UserId(0), &arms).unwrap().propensity, None);
}

/// Two histories: in one the last choice got no reward. Counts and noise are the same, so that only the sums differ.
#[test]
fn choices_without_a_reward_are_counted_like_others() {
    let uploads = [true, false].map(|rewarded| {
        let privacy = PrivacyConfig { first_release: 3, epsilon: 1e9, ..privacy() };
        let mut agent = agent(&private_async(privacy), 4);
        assert_eq!(agent.learn(UserId(0), &[0.5, 0.5], 1.0).unwrap(), None);
        assert_eq!(agent.give_up(UserId(0)), None);
        let said = if rewarded {
            agent.learn(UserId(0), &[0.5, 0.5], 1.0).unwrap()
        } else {
            agent.give_up(UserId(0))
        };
        let Some(Uplink::Cluster(upload)) = said else { panic!("the third interaction is due: {said:?}") };
        assert_eq!(agent.privacy().unwrap().most_of_a_user, 3);
        upload
    });
    assert_eq!(uploads[0].evidence.count(), uploads[1].evidence.count());
    assert!(
        (uploads[0].evidence.moment()[0] - 1.0).abs() < 0.01
            && (uploads[1].evidence.moment()[0] - 0.5).abs() < 0.01
    );
    let plain = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
    assert_eq!(agent(&plain, 1).give_up(UserId(0)), None, "only private agents count");
}

#[test]
fn a_user_beyond_the_cap_is_served_and_not_learned_from() {
    let privacy =
        PrivacyConfig { unit: posse_core::privacy::Unit::User, user_cap: 2, max_releases: 8, ..privacy() };
    let mut agent = agent(&private_async(privacy), 4);
    for interaction in 0..5 {
        let upload = release(&mut *agent, &[0.5, 0.5], 1.0);
        assert_eq!(upload.is_some(), interaction < 2, "{interaction}");
    }
    agent.learn(UserId(1), &[0.5, 0.5], 1.0).unwrap().expect("another user may still contribute");
    let report = agent.privacy().unwrap();
    assert_eq!((report.beyond_cap, report.most_of_a_user), (3, 2));
    assert_eq!(report.user_epsilon, report.epsilon, "the unit is the user");
}

#[test]
fn what_is_shared_stays_positive_definite_whatever_the_noise() {
    let algorithm = private_async(privacy());
    let floor = Budget::new(&privacy(), D, false).floor(25.0);
    let mut coordinator = algorithm.coordinator(Shape::shared(D)).unwrap();
    coordinator.join(NOW, AgentId(0), Entrance::NewLife);
    // Releases far below zero, as noise may make them.
    for number in 1..=5 {
        let evidence = posse_core::wire::v1::Evidence {
            count: number,
            moment: vec![1.0; D],
            dimension: 0,
            matrix: Some(posse_core::wire::v1::evidence::Matrix::Packed(posse_core::wire::v1::Packed {
                entries: vec![-50.0, 900.0, -3.0],
            })),
        };
        let upload = posse_core::wire::v1::ClusterUpload {
            cluster: 1,
            number,
            released: true,
            evidence: Some(evidence),
            variance: 25.0,
            ..Default::default()
        };
        let kind = Some(posse_core::wire::v1::uplink::Kind::Cluster(upload));
        let wire = posse_core::wire::v1::Uplink { kind };
        let upload = decode_uplink(&prost::Message::encode_to_vec(&wire)).unwrap();
        let told = coordinator.receive(NOW, AgentId(0), upload).unwrap();
        let Downlink::Group(group) = &told[0].message else { panic!("an answer with sums") };
        assert!(smallest_eigenvalue(group.snapshot.evidence.gram(), D) >= floor * (1.0 - 1e-9));
        assert_eq!((coordinator.repairs(), group.variance), (number, 25.0));
    }
}

/// What two agents chose and said, in order.
#[derive(Debug, Default, PartialEq)]
struct Play {
    choices: Vec<usize>,
    uploads: Vec<(u64, ClusterId, Evidence)>,
    clusters: usize,
}

/// Lets two agents serve four users of two kinds; all features are multiples of 1/64.
fn play(algorithm: &Algorithm) -> Play {
    let federation = Federation { agents: 2, horizon: 600, seed: Seed(2) };
    let shape = Shape::shared(D);
    let mut coordinator = algorithm.coordinator(shape).unwrap();
    let ids = [AgentId(0), AgentId(1)];
    let mut agents = ids.map(|id| algorithm.agent(id, shape, &federation).unwrap());
    ids.iter().for_each(|id| drop(coordinator.join(NOW, *id, Entrance::NewLife)));
    let mut play = Play::default();
    let mut random = Seed(4).stream("play", 0, 0);
    for step in 0..600u64 {
        let mut arms = Arms::new(D);
        for _ in 0..4 {
            arms.push(&[0, 0].map(|_| (random.below(65) as f64 - 32.0) / 64.0)).unwrap();
        }
        let (place, user) = ((step % 2) as usize, UserId(step / 2 % 4));
        let arm = agents[place].choose(user, &arms).unwrap().arm;
        play.choices.push(arm);
        let x = arms.row(arm);
        let likes = if user.0 < 2 { x[0] } else { -x[0] };
        let reward = f64::from(u8::from(random.uniform() < 0.5 + likes));
        let said = agents[place].learn(user, x, reward).unwrap();
        let mut waiting: VecDeque<_> = said.map(|up| (place, up)).into_iter().collect();
        while let Some((from, up)) = waiting.pop_front() {
            let all = match &up {
                Uplink::Cluster(upload) => std::slice::from_ref(upload),
                Uplink::Clusters(list) => &list.uploads,
                other => panic!("{other:?}"),
            };
            let said = all.iter().map(|upload| (ids[from].0, upload.cluster, upload.evidence.clone()));
            play.uploads.extend(said);
            for outgoing in coordinator.receive(NOW, ids[from], up).unwrap() {
                for (to, agent) in agents.iter_mut().enumerate() {
                    if outgoing.to.includes(ids[to]) {
                        let answer = agent.receive(outgoing.message.clone()).unwrap();
                        waiting.extend(answer.map(|up| (to, up)));
                    }
                }
            }
        }
    }
    play.clusters = agents.iter().map(|agent| agent.clusters().len()).sum();
    play
}

/// Noise so small that the units of releases swallow it: what is left must be the algorithm without privacy.
#[test]
fn o17_without_noise_every_upload_is_that_of_the_public_algorithm_bit_for_bit() {
    let off = PrivacyConfig {
        epsilon: 1e30,
        mechanism: Mechanism::Tree,
        max_releases: 512,
        first_release: 1,
        release_growth: 1.0 + 1e-9,
        edge_releases: 512,
        edge_first: 1,
        edge_growth: 1.0 + 1e-9,
        ..Default::default()
    };
    assert!(off.calibration(D, true).matrix_bound < 1e-11, "it is not swallowed");
    let model = ModelConfig { fixed_width: Some(0.5), regularization: 1.0, ..Default::default() };
    let clusters = ClusterConfig { edge_scale: Threshold(1.0), ..Default::default() };
    let public = play(&Algorithm::Fclub(Fclub { model: model.clone(), clusters: clusters.clone() }));
    let private = play(&Algorithm::CdpFclubDc(CdpFclubDc {
        model,
        clusters,
        download_threshold: Threshold(1.0),
        privacy: off,
    }));
    assert_eq!(private, public);
    assert!(
        public.uploads.len() >= 600 && public.clusters > 2,
        "everything is shared, and users are told apart"
    );
}
