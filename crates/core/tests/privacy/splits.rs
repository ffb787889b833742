//! Clusters split by sums with noise, and whether they do tells no more than was promised.

use std::sync::Arc;

use posse_core::*;

use super::{D, agent, clustered, privacy};

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
    let mut again = super::agent(&clustered(splitting(), 0.1), 3);
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
