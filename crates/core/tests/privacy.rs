//! Privacy as it leaves an agent: what encoded uploads show, and that nothing more can be learned from them
//! than was promised.

mod bounds;
mod canaries;
mod lives;
mod noise;
mod requests;
mod splits;
mod updates;
mod without_noise;

use std::sync::Arc;

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
