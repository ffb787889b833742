//! Privacy as it leaves an agent: what encoded uploads show, and that nothing more can be learned from them
//! than was promised.

use std::collections::VecDeque;
use std::sync::Arc;

use posse_core::privacy::{Node, NoiseSource, SeededNoise, smallest_eigenvalue};
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
        max_trees: 1,
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
    let group = GroupSnapshot { cluster: upload.cluster, members: 1, snapshot };
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
fn encoded_uploads_carry_the_noise_of_popcount_k_nodes() {
    let calibration = privacy().calibration(D);
    let (sigma, shift) = (calibration.sigma, calibration.bounds.shift());
    for algorithm in [clustered(privacy(), f64::INFINITY), private_async(privacy())] {
        let seeds = 4000;
        let mut squares = [[0.0; 5]; RELEASES as usize];
        for seed in 0..seeds {
            let mut agent = agent(&algorithm, seed);
            let mut truth = Evidence::none(D);
            for (step, sums) in (0..RELEASES).zip(&mut squares) {
                let (x, y) = observation(step, 1.0);
                truth.observe(&x, y).unwrap();
                let upload = release(&mut *agent, &x, y).expect("a release after every observation");
                assert_eq!(upload.evidence.count(), step + 1, "counts are public");
                let noise = |released: &[f64], exact: &[f64]| -> Vec<f64> {
                    released.iter().zip(exact).map(|(a, b)| a - b).collect()
                };
                let mut all = noise(upload.evidence.gram(), truth.gram());
                (all[0], all[2]) = (all[0] - shift, all[2] - shift);
                all.extend(noise(upload.evidence.moment(), truth.moment()));
                sums.iter_mut().zip(&all).for_each(|(sum, value)| *sum += value * value);
            }
            let (x, y) = observation(9, 1.0);
            assert_eq!(release(&mut *agent, &x, y), None, "the budget is spent, and the agent silent");
            assert_eq!(agent.privacy().unwrap().exhausted, 1);
        }
        for (k, sums) in (1u64..).zip(&squares) {
            for (entry, factor) in [2.0, 1.0, 2.0, 1.0, 1.0].into_iter().enumerate() {
                let expected = factor * f64::from(k.count_ones()) * sigma * sigma;
                let n = seeds as f64;
                let off = (sums[entry] / n - expected).abs() / (expected * (2.0 / n).sqrt());
                assert!(off < 5.0, "release {k}, entry {entry}: {} is not {expected}", sums[entry] / n);
            }
        }
    }
}

/// Noise that is not what it should be.
#[derive(Debug)]
struct Weakened(SeededNoise);

impl NoiseSource for Weakened {
    fn fill(&mut self, node: Node, out: &mut [f64]) {
        self.0.fill(node, out);
        out.iter_mut().for_each(|value| *value *= 0.3);
    }
}

/// What an attacker computes: the releases with one node each, along the features whose reward is in
/// question. For Gaussian noise nothing tells the two worlds apart better.
fn attack(seed: u64, first_reward: f64, weakened: bool) -> f64 {
    let mut agent = agent(&clustered(privacy(), f64::INFINITY), seed);
    if weakened {
        agent.use_noise(Box::new(Weakened(SeededNoise::new(Seed(seed), AgentId(0)))));
    }
    let mut statistic = 0.0;
    for step in 0..RELEASES {
        let (x, y) = observation(step, first_reward);
        let upload = release(&mut *agent, &x, y).unwrap();
        if (step + 1_u64).is_power_of_two() {
            let [a, b] = [upload.evidence.moment()[0], upload.evidence.moment()[1]];
            statistic += 0.6 * a + 0.8 * b;
        }
    }
    statistic
}

/// A lower bound on ε at δ, from how often the attacker is right, that holds with a confidence of more than
/// 99.9 %: the best of five thresholds chosen before, each rate off by four standard deviations to our
/// disadvantage.
fn audited_epsilon(weakened: bool) -> f64 {
    let runs = 12_000;
    // Different noise in the two worlds, as for an attacker who sees one of them.
    let one: Vec<f64> = (0..runs).map(|seed| attack(seed, 1.0, weakened)).collect();
    let other: Vec<f64> = (runs..2 * runs).map(|seed| attack(seed, -1.0, weakened)).collect();
    let scale = privacy().calibration(D).sigma * 3f64.sqrt();
    let share = |values: &[f64], threshold: f64, sign: f64| {
        let p = values.iter().filter(|value| **value > threshold).count() as f64 / runs as f64;
        p + sign * 4.0 * ((p * (1.0 - p)).max(1e-9) / runs as f64).sqrt() + sign * 4.0 / runs as f64
    };
    let thresholds = [0.0, 0.5, 1.0, 1.5, 2.0].map(|t| t * scale);
    let bounds = thresholds.into_iter().map(|threshold| {
        let (hits, alarms) = (share(&one, threshold, -1.0), share(&other, threshold, 1.0));
        libm::log(((hits - privacy().delta) / alarms).max(1e-9))
    });
    bounds.fold(0.0, f64::max)
}

#[test]
fn two_neighbouring_histories_cannot_be_told_apart_better_than_promised() {
    let epsilon = audited_epsilon(false);
    assert!(epsilon <= privacy().epsilon, "an attack shows ε ≥ {epsilon}");
    assert!(epsilon > 0.4, "the attack is idle: it shows only ε ≥ {epsilon}");
}

#[test]
fn the_audit_finds_a_weakened_mechanism() {
    let epsilon = audited_epsilon(true);
    assert!(epsilon > privacy().epsilon, "a third of the noise, and the attack shows only ε ≥ {epsilon}");
}

#[test]
fn o17_with_a_huge_budget_releases_are_the_sums() {
    let huge = PrivacyConfig { epsilon: 1e13, ..privacy() };
    let shift = huge.calibration(D).bounds.shift();
    let mut agent = agent(&clustered(huge, f64::INFINITY), 1);
    let mut truth = Evidence::none(D);
    for step in 0..RELEASES {
        let (x, y) = observation(step, 1.0);
        truth.observe(&x, y).unwrap();
        let upload = release(&mut *agent, &x, y).unwrap();
        let estimate = |gram: &[f64], moment: &[f64], shift: f64| {
            let mut gram = gram.to_vec();
            (gram[0], gram[2]) = (gram[0] - shift, gram[2] - shift);
            let evidence = Evidence::from_parts(gram, moment.to_vec(), step + 1).unwrap();
            let mut model = Ridge::new(D, 1.0);
            model.refresh([&evidence].into_iter()).unwrap();
            model.estimate()
        };
        let released = estimate(upload.evidence.gram(), upload.evidence.moment(), shift);
        let exact = estimate(truth.gram(), truth.moment(), 0.0);
        assert!(released.iter().zip(&exact).all(|(a, b)| (a - b).abs() < 1e-5), "{released:?} {exact:?}");
    }
}

#[test]
fn larger_features_and_rewards_are_scaled_or_refused() {
    let mut scaling = agent(&clustered(PrivacyConfig { epsilon: 1e13, ..privacy() }, 1.0), 1);
    let upload = release(&mut *scaling, &[30.0, 40.0], -7.0).unwrap();
    let shift = PrivacyConfig { epsilon: 1e13, ..privacy() }.calibration(D).bounds.shift();
    let trace = upload.evidence.gram()[0] + upload.evidence.gram()[2] - 2.0 * shift;
    assert!((trace - 1.0).abs() < 1e-4, "one observation of length one: {trace}");
    assert!((upload.evidence.moment()[1] + 0.8).abs() < 1e-4, "with a reward of -1");
    assert_eq!(scaling.privacy().unwrap().clipped, 1);

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
fn an_agent_with_its_state_says_the_same_again_and_one_without_opens_a_new_tree() {
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
    assert_eq!((report.trees, report.releases), (1, 1), "the accountant of the new life starts anew");
}

#[test]
fn a_cluster_may_split_while_its_upload_is_on_its_way() {
    let algorithm = clustered(PrivacyConfig { max_trees: 2, ..privacy() }, 0.1);
    let mut agent = agent(&algorithm, 3);
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
    // What comes for the cluster that was finds nobody.
    let before = agent.save();
    let evidence = Arc::new(Evidence::none(D));
    let snapshot =
        Snapshot { authoritative: false, version: Version(1), contains: 1, information: 0.0, evidence };
    let late = GroupSnapshot { cluster: upload.cluster, members: 1, snapshot };
    assert_eq!(agent.receive(Downlink::Group(late)), Ok(None));
    assert_eq!(agent.save(), before);
    let report = agent.privacy().unwrap();
    assert_eq!((report.trees, report.trees_of_one), (3, 2), "every part is a tree more");
    // The budget has no room for a third tree: nobody is told apart any more.
    let answer = agent.receive(Downlink::Regroup { phase: PhaseId(3), anew: false }).unwrap();
    assert!(matches!(answer, Some(Uplink::Clusters(list)) if list.kept.len() + list.uploads.len() == 2));
}

#[test]
fn what_is_shared_stays_positive_definite_whatever_the_noise() {
    let privacy = PrivacyConfig { noise_failure: 0.999_999, streams: 1, max_releases: 1024, ..privacy() };
    let algorithm = private_async(privacy.clone());
    let floor = privacy.calibration(D).bounds.matrix;
    let mut coordinator = algorithm.coordinator(Shape::shared(D)).unwrap();
    coordinator.join(NOW, AgentId(0), Entrance::NewLife);
    // Releases far below zero, as if the noise had been larger than its bound.
    for number in 1..=5 {
        let mut evidence = Evidence::none(D);
        (0..number).for_each(|_| evidence.observe(&[0.5, 0.5], 1.0).unwrap());
        let wire = posse_core::wire::v1::Uplink {
            kind: Some(posse_core::wire::v1::uplink::Kind::Cluster(posse_core::wire::v1::ClusterUpload {
                cluster: 1,
                number,
                released: true,
                evidence: Some(posse_core::wire::v1::Evidence {
                    count: number,
                    moment: vec![1.0; D],
                    dimension: 0,
                    matrix: Some(posse_core::wire::v1::evidence::Matrix::Packed(
                        posse_core::wire::v1::Packed { entries: vec![-50.0, 900.0, -3.0] },
                    )),
                }),
                ..Default::default()
            })),
        };
        let upload = decode_uplink(&prost::Message::encode_to_vec(&wire)).unwrap();
        let told = coordinator.receive(NOW, AgentId(0), upload).unwrap();
        let Downlink::Group(group) = &told[0].message else { panic!("an answer with sums") };
        assert!(smallest_eigenvalue(group.snapshot.evidence.gram(), D) >= floor * (1.0 - 1e-9));
        assert_eq!(coordinator.repairs(), number);
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

/// Noise and shift so small that the grid of releases swallows them: what is left must be the algorithm
/// without privacy.
#[test]
fn o17_without_noise_every_upload_is_that_of_the_public_algorithm_bit_for_bit() {
    let off = PrivacyConfig {
        epsilon: 1e30,
        max_releases: 1 << 20,
        max_trees: 1000,
        first_release: 1,
        release_growth: 1.0 + 1e-9,
        ..Default::default()
    };
    assert!(off.calibration(D).bounds.shift() < 1.0 / f64::from(1 << 22), "it is not swallowed");
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
