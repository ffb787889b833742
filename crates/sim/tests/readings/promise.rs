//! What private algorithms promise, held against what leaves their agents.
//!
//! Nothing is believed here but encoded uploads: how much noise they carry and how it hangs together over releases is estimated from
//! many runs, how far one interaction moves them is seen by replacing it, and the pair of interactions that are easiest to
//! tell apart is searched for, bounds that nobody keeps included. The loss that follows may not be above that of the promise, and not far below it.

use std::sync::Arc;

use posse_core::privacy::{Clip, Mechanism, Unit};
use posse_core::wire::{decode_uplink, encode_uplink};
use posse_core::{
    Agent, AgentId, Algorithm, CdpFclubDc, ClusterConfig, ClusterUpload, Downlink, Evidence, FedLinUcb,
    FedUcb, Federation, GroupSnapshot, LinkFunction, PhaseId, PrivacyConfig, PrivateGlmUcb, Seed, Shape,
    Snapshot, Threshold, Uplink, UserId, Version,
};

use super::noise::loss;
use super::{Matrix, add_outer, dot, solve, zeros};

const D: usize = 2;
const NUMBERS: usize = 5;
const RELEASES: usize = 3;

type Interaction = ([f64; D], f64);

fn agent(algorithm: &Algorithm, seed: u64) -> Box<dyn Agent> {
    let federation = Federation { agents: 1, horizon: 100, seed: Seed(seed) };
    algorithm.agent(AgentId(0), Shape::shared(D), &federation).unwrap()
}

/// The numbers of an upload as they are on the wire.
fn numbers(upload: &ClusterUpload) -> [f64; NUMBERS] {
    let mut all = upload.evidence.gram().iter().chain(upload.evidence.moment());
    std::array::from_fn(|_| *all.next().expect("three of a matrix and two of a vector"))
}

/// What an agent says after each interaction of a history. The coordinator answers with sums of its own invention.
fn releases(
    algorithm: &Algorithm,
    seed: u64,
    history: &[Interaction],
    told: &[f64; D],
) -> Vec<[f64; NUMBERS]> {
    let mut agent = agent(algorithm, seed);
    let mut said = Vec::new();
    for (x, y) in history {
        let Some(message) = agent.learn(UserId(0), x, *y).unwrap() else { continue };
        let Uplink::Cluster(upload) = decode_uplink(&encode_uplink(&message)).unwrap() else {
            panic!("a private agent said {message:?}");
        };
        said.push(numbers(&upload));
        let evidence = Arc::new(Evidence::from_parts(vec![1.0, 0.0, 1.0], told.to_vec(), 1_000_000).unwrap());
        let (version, contains) = (Version(upload.number), upload.number);
        let snapshot = Snapshot { authoritative: false, version, contains, information: 0.0, evidence };
        let group = GroupSnapshot { cluster: upload.cluster, members: 1, snapshot, variance: 0.0 };
        assert_eq!(agent.receive(Downlink::Group(group)), Ok(None));
    }
    said
}

const HISTORY: [Interaction; RELEASES] = [([0.6, 0.8], 1.0), ([1.0, 0.0], 0.5), ([0.0, -1.0], 0.0)];

/// The covariance of each number of a release with the same number of other releases, over many runs.
fn covariances(runs: &[Vec<[f64; NUMBERS]>]) -> Vec<Matrix> {
    let (n, releases) = (runs.len() as f64, runs[0].len());
    let estimate = |number: usize| {
        let mean: Vec<f64> =
            (0..releases).map(|k| runs.iter().map(|run| run[k][number]).sum::<f64>() / n).collect();
        let mut covariance = zeros(releases);
        for run in runs {
            let off: Vec<f64> =
                run.iter().zip(&mean).map(|(release, mean)| (release[number] - mean) / n.sqrt()).collect();
            add_outer(&mut covariance, &off);
        }
        covariance
    };
    (0..NUMBERS).map(estimate).collect()
}

/// μ of two histories with the same noise: how far apart their releases are, in standard deviations of the noise.
fn apart(one: &[[f64; NUMBERS]], other: &[[f64; NUMBERS]], covariances: &[Matrix]) -> f64 {
    let squares = covariances.iter().enumerate().map(|(number, covariance)| {
        let gap: Vec<f64> = one.iter().zip(other).map(|(a, b)| a[number] - b[number]).collect();
        dot(&gap, &solve(covariance, &gap))
    });
    squares.sum::<f64>().sqrt()
}

/// Two interactions and what the coordinator says: all that an adversary may choose.
type Pick = [f64; 8];

/// The largest distance that `distance` finds, from many beginnings, by steps that become smaller.
fn worst(seed: u64, distance: impl Fn(&Pick) -> f64) -> f64 {
    let mut stream = Seed(seed).stream("search", 0, 0);
    let mut largest = 0.0_f64;
    for _ in 0..20 {
        let mut best: Pick = std::array::from_fn(|_| 1.5 * stream.normal());
        let mut reached = distance(&best);
        for step in 0..70 {
            let size = 1.5 * libm::exp2(-f64::from(step) / 10.0);
            let other: Pick = std::array::from_fn(|i| best[i] + size * stream.normal());
            let there = distance(&other);
            if there > reached {
                (best, reached) = (other, there);
            }
        }
        largest = largest.max(reached);
    }
    largest
}

/// Holds an algorithm that releases after every interaction to its promise.
#[track_caller]
fn assert_kept(algorithm: &Algorithm, of: &str) {
    let promise = algorithm.privacy().expect("it promises something");
    let runs: Vec<_> = (0..4000).map(|seed| releases(algorithm, seed, &HISTORY, &[0.0; D])).collect();
    assert!(runs.iter().all(|run| run.len() == RELEASES), "{of}: a release after every interaction");
    let covariances = covariances(&runs);
    let promised = loss(promise.epsilon, promise.delta);
    let found = worst(7, |pick| {
        let told = [30.0 * pick[6], 30.0 * pick[7]];
        // The first interaction is in all releases; the second has met a model that the coordinator made up.
        let place = 1;
        let [one, other] = [0, 3].map(|from| {
            let mut history = HISTORY;
            history[place] = ([pick[from], pick[from + 1]], pick[from + 2]);
            releases(algorithm, 1, &history, &told)
        });
        let first = [0, 3].map(|from| {
            let mut history = HISTORY;
            history[0] = ([pick[from], pick[from + 1]], pick[from + 2]);
            releases(algorithm, 1, &history, &[0.0; D])
        });
        apart(&one, &other, &covariances).max(apart(&first[0], &first[1], &covariances))
    });
    assert!(found < 1.04 * promised, "{of}: two interactions are {found} apart, and {promised} was promised");
    assert!(
        found > 0.9 * promised,
        "{of}: only {found} of {promised} was found: too much noise, or a lazy search"
    );
}

fn promise() -> PrivacyConfig {
    PrivacyConfig {
        epsilon: 3.0,
        delta: 1e-3,
        max_releases: RELEASES as u64,
        first_release: 1,
        release_growth: 1.001,
        ..PrivacyConfig::default()
    }
}

#[test]
fn fed_ucb_keeps_its_promise_whatever_the_bounds() {
    for (feature_bound, reward_bound) in [(1.0, 1.0), (2.0, 0.5)] {
        let PrivacyConfig { epsilon, delta, max_releases, first_release, release_growth, .. } = promise();
        let settings = FedUcb {
            epsilon,
            delta,
            max_releases,
            first_release,
            release_growth,
            feature_bound,
            reward_bound,
            ..FedUcb::default()
        };
        assert_kept(&Algorithm::FedUcb(settings), &format!("X̄ = {feature_bound}, Ȳ = {reward_bound}"));
    }
}

#[test]
fn private_glm_ucb_keeps_its_promise_whatever_the_coordinator_says_the_model_is() {
    for link in [LinkFunction::Logistic, LinkFunction::Probit, LinkFunction::Poisson, LinkFunction::Identity]
    {
        let mut settings = PrivateGlmUcb { link, privacy: promise(), ..PrivateGlmUcb::default() };
        settings.model.norm_bound = 1.5;
        (settings.privacy.reward_centre, settings.privacy.reward_bound) = (1.0, 1.0);
        assert_kept(&Algorithm::PrivateGlmUcb(settings), &format!("{link:?}"));
    }
}

#[test]
fn private_fed_lin_ucb_and_cdp_fclub_dc_without_splits_keep_their_promise() {
    for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
        let privacy = PrivacyConfig { mechanism, ..promise() };
        let settings = FedLinUcb { privacy: Some(privacy.clone()), ..FedLinUcb::default() };
        assert_kept(&Algorithm::FedLinUcb(settings), "fed-lin-ucb");
        let clusters = ClusterConfig { edge_scale: Threshold(f64::INFINITY), ..ClusterConfig::default() };
        let settings = CdpFclubDc { privacy, clusters, ..CdpFclubDc::default() };
        assert_kept(&Algorithm::CdpFclubDc(settings), "cdp-fclub-dc");
    }
}

/// All interactions of a user are replaced at once, and lie in different releases.
#[test]
fn a_promise_for_users_holds_for_all_interactions_of_one() {
    let privacy = PrivacyConfig { unit: Unit::User, user_cap: RELEASES as u64, ..promise() };
    let promised = loss(privacy.epsilon, privacy.delta);
    let algorithm =
        Algorithm::FedLinUcb(FedLinUcb { privacy: Some(privacy.clone()), ..FedLinUcb::default() });
    let runs: Vec<_> = (0..4000).map(|seed| releases(&algorithm, seed, &HISTORY, &[0.0; D])).collect();
    let spread = covariances(&runs);
    let all_replaced = |algorithm: &Algorithm, pick: &Pick, covariances: &[Matrix]| {
        let [one, other] = [0, 3].map(|from| {
            let same = ([pick[from], pick[from + 1]], pick[from + 2]);
            // The fourth is beyond the cap, and changes nothing.
            releases(algorithm, 1, &[same, same, same, same], &[0.0; D])
        });
        apart(&one, &other, covariances)
    };
    let found = worst(8, |pick| all_replaced(&algorithm, pick, &spread));
    assert!(found < 1.04 * promised, "{found} {promised}");
    // The same interactions in one release are as far apart as was promised.
    let at_once = PrivacyConfig { first_release: RELEASES as u64, max_releases: 1, ..privacy };
    let algorithm = Algorithm::FedLinUcb(FedLinUcb { privacy: Some(at_once), ..FedLinUcb::default() });
    let runs: Vec<_> = (0..4000).map(|seed| releases(&algorithm, seed, &HISTORY, &[0.0; D])).collect();
    let once = covariances(&runs);
    let found = worst(9, |pick| all_replaced(&algorithm, pick, &once));
    assert!(found < 1.04 * promised && found > 0.9 * promised, "{found} {promised}");
}

/// The release of a cluster, and those of its users that leave the agent when the cluster splits: together they cost what was promised.
#[test]
fn a_cluster_that_splits_costs_no_more_than_was_promised() {
    const EACH: u64 = 40;
    let privacy = PrivacyConfig {
        epsilon: 8.0,
        max_releases: 1,
        first_release: 2 * EACH,
        edge_share: 0.4,
        edge_releases: 1,
        edge_first: EACH,
        ..promise()
    };
    let promised = loss(privacy.epsilon, privacy.delta);
    let clusters = ClusterConfig { edge_scale: Threshold(0.1), ..ClusterConfig::default() };
    let algorithm = Algorithm::CdpFclubDc(CdpFclubDc { privacy, clusters, ..CdpFclubDc::default() });
    let axes = [[1.0, 0.0], [0.0, 1.0]];
    // Everything that leaves: the release of the cluster and, after the split, of the user whose first interaction is this one.
    let said = |seed: u64, first: Interaction| -> Option<Vec<[f64; NUMBERS]>> {
        let mut agent = agent(&algorithm, seed);
        let mut releases = Vec::new();
        for step in 0..EACH {
            let (x, y) = if step == 0 { first } else { (axes[step as usize % 2], 1.0) };
            releases.extend(agent.learn(UserId(0), &x, y).unwrap());
            releases.extend(agent.learn(UserId(1), &axes[step as usize % 2], -1.0).unwrap());
        }
        let [Uplink::Cluster(of_cluster)] = &releases[..] else { panic!("one release of the cluster") };
        let answer = agent.receive(Downlink::Regroup { phase: PhaseId(2), anew: false }).unwrap();
        let Some(Uplink::Clusters(list)) = answer else { panic!("its clusters") };
        let part = list.uploads.iter().find(|part| part.evidence.moment()[0] > 0.0)?;
        (list.uploads.len() == 2).then(|| vec![numbers(of_cluster), numbers(part)])
    };
    let usual = (axes[0], 1.0);
    let runs: Vec<_> = (0..3000).filter_map(|seed| said(seed, usual)).collect();
    assert!(runs.len() > 2990, "users who differ so much are told apart: {}", runs.len());
    let covariances = covariances(&runs);
    for covariance in &covariances {
        let together = covariance[0][1] / (covariance[0][0] * covariance[1][1]).sqrt();
        assert!(
            together.abs() < 5.0 / (runs.len() as f64).sqrt(),
            "noise of one is in the other: {together}"
        );
    }
    let found = worst(10, |pick| {
        let [one, other] = [0, 3].map(|from| said(1, ([pick[from], pick[from + 1]], pick[from + 2])));
        apart(&one.expect("it splits"), &other.expect("it splits"), &covariances)
    });
    assert!(found < 1.04 * promised, "two interactions are {found} apart, and {promised} was promised");
    assert!(found > 0.9 * promised, "only {found} of {promised} was found");
}

/// The line is drawn for features and rewards within their bounds, not for those beyond them.
#[test]
fn what_is_beyond_its_bounds_is_cut_before_it_meets_the_curve() {
    for (link, beyond, most) in [(LinkFunction::Poisson, 9.0, 2.0), (LinkFunction::Logistic, 1.5, 1.0)] {
        let privacy = PrivacyConfig { epsilon: 1e30, reward_centre: 1.0, ..promise() };
        let mut settings = PrivateGlmUcb { link, privacy, ..PrivateGlmUcb::default() };
        let algorithm = Algorithm::PrivateGlmUcb(settings.clone());
        let told = [0.4, -0.3];
        let [one, other] = [([3.0, 4.0], beyond), ([0.6, 0.8], most)]
            .map(|second| releases(&algorithm, 1, &[HISTORY[1], second], &told)[1]);
        assert!(one.iter().zip(other).all(|(a, b)| (a - b).abs() < 3e-4), "{link:?}: {one:?} {other:?}");
        settings.privacy.clip = Clip::Refuse;
        let mut strict = agent(&Algorithm::PrivateGlmUcb(settings), 1);
        let before = strict.save();
        strict.learn(UserId(0), &[0.6, 0.8], beyond).unwrap_err();
        strict.learn(UserId(0), &[3.0, 4.0], most).unwrap_err();
        assert_eq!(strict.save(), before);
        strict.learn(UserId(0), &[0.6, 0.8], most).unwrap();
    }
}

/// Noise is as large as it is said to be, also where a promise asks for noise beyond what sums can be.
#[test]
fn promises_that_need_huge_noise_get_all_of_it() {
    let users = PrivacyConfig { unit: Unit::User, user_cap: u64::MAX, ..promise() };
    let tiny = PrivacyConfig { epsilon: 1e-25, delta: 1e-25, ..promise() };
    let little = PrivacyConfig { vector_noise: 1e-20, ..promise() };
    let much = PrivacyConfig { vector_noise: 1e30, ..promise() };
    for privacy in [users, tiny, little, much] {
        let ratio = privacy.vector_noise * privacy.vector_noise;
        let epsilon = privacy.epsilon;
        let algorithm = Algorithm::FedLinUcb(FedLinUcb { privacy: Some(privacy), ..FedLinUcb::default() });
        let (mut matrix, mut vector, seeds) = (0.0, 0.0, 400);
        for seed in 0..seeds {
            let said = agent(&algorithm, seed).learn(UserId(0), &[0.6, 0.8], 1.0).unwrap();
            let Some(Uplink::Cluster(upload)) = said else { panic!("a release") };
            // The number off the diagonal, and one of the vector.
            let (off, of_vector) = (upload.evidence.gram()[1], upload.evidence.moment()[0]);
            matrix += off * off / upload.variance / seeds as f64;
            vector += of_vector * of_vector / (ratio * upload.variance) / seeds as f64;
        }
        let deviation = (2.0 / seeds as f64).sqrt();
        for share in [matrix, vector] {
            assert!(
                (share - 1.0).abs() < 5.0 * deviation,
                "ε = {epsilon}, κ² = {ratio}: {share} of what was said"
            );
        }
    }
}
