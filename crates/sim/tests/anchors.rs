//! The published size: 1000 agents, 30 000 interactions, 25 arms of 25 features in the authors' world. Their
//! code, with its one stale-model bug repaired, is what a correct implementation should meet.

use posse_core::{
    Algorithm, AsyncLinUcb, ModelConfig, ProtocolConfig, Seed, SyncLinUcb, Threshold, WidthForm,
};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, Form, LinearConfig, WorldConfig};
use posse_sim::{AdversaryConfig, RunConfig};

const SEEDS: u64 = 10;

/// Mean regret and mean messages over ten seeds, two at a time.
fn means(algorithm: &Algorithm) -> (f64, f64) {
    let run = |seed: u64| {
        let config = RunConfig {
            seed: Seed(seed),
            agents: 1000,
            horizon: 30_000,
            world: WorldConfig::Linear(LinearConfig { form: Form::Authors, ..Default::default() }),
            arrival: ArrivalConfig::Uniform,
            network: NetworkConfig::default(),
            topology: posse_sim::TopologyConfig::default(),
            faults: FaultConfig::default(),
            adversaries: AdversaryConfig::default(),
            algorithm: algorithm.clone(),
        };
        let tally = config.run(&mut ()).expect("the published settings run");
        (tally.regret, tally.messages() as f64)
    };
    let halves = [0..SEEDS / 2, SEEDS / 2..SEEDS];
    let sums = std::thread::scope(|scope| {
        let threads = halves.map(|seeds| scope.spawn(move || seeds.map(run).collect::<Vec<_>>()));
        threads.map(|thread| thread.join().expect("a run does not panic"))
    });
    let all = sums.iter().flatten();
    let n = SEEDS as f64;
    (all.clone().map(|run| run.0).sum::<f64>() / n, all.map(|run| run.1).sum::<f64>() / n)
}

/// The width the authors' code uses.
fn model() -> ModelConfig {
    ModelConfig { width: WidthForm::DetTrace, ..Default::default() }
}

fn asynchronous(threshold: f64) -> Algorithm {
    let (upload_threshold, download_threshold) = (Threshold(threshold), Threshold(threshold));
    let protocol = ProtocolConfig { upload_threshold, download_threshold, ..Default::default() };
    Algorithm::AsyncLinUcb(AsyncLinUcb { model: model(), protocol, privacy: None })
}

/// `repaired` and `spread` are the mean and the standard deviation of the repaired code over nine seeds,
/// `released` is what the code as released gives.
fn meets(algorithm: &Algorithm, (repaired, spread): (f64, f64), released: f64, messages: f64) {
    let (regret, sent) = means(algorithm);
    assert!((regret - repaired).abs() < spread, "regret {regret}, repaired {repaired} ± {spread}");
    assert!(regret < 0.8 * released, "regret {regret}, released {released}");
    assert!((sent / messages - 1.0).abs() < 0.05, "{sent} messages, repaired {messages}");
}

#[test]
fn threshold_5_meets_the_repaired_code() {
    meets(&asynchronous(5.0), (569.0, 50.0), 889.0, 16_939.0);
}

#[test]
fn threshold_2_meets_the_repaired_code() {
    meets(&asynchronous(2.0), (520.0, 40.0), 830.0, 53_237.0);
}

#[test]
fn rounds_meet_the_repaired_code() {
    let algorithm = Algorithm::SyncLinUcb(SyncLinUcb {
        model: model(),
        round_threshold: Threshold(116.4),
        ..Default::default()
    });
    meets(&algorithm, (848.0, 77.0), 1176.0, 6_718.0);
}
