//! What the algorithms are for: sharing evidence lowers regret. Statistics over fixed seeds, wide margins.

use posse_core::{
    Algorithm, AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, FedLinUcb, JoinPolicy, LinUcb,
    ModelConfig, SyncLinUcb, Threshold,
};
use posse_sim::world::{Drift, HeterogeneousConfig, LinearConfig, WorldConfig};
use posse_sim::{Event, Observer, RunConfig, Stage};

use crate::support::{async_lin_ucb, central, lin_ucb, linear, protocol, small};

const SEEDS: std::ops::Range<u64> = 100..108;
const AGENTS: u64 = 20;
const HORIZON: u64 = 3000;

/// Regret of the first half and of the whole run.
#[derive(Clone, Copy, Debug, Default)]
struct Regret {
    half: f64,
    all: f64,
    steps: u64,
}

impl Observer for Regret {
    fn observe(&mut self, event: &Event<'_>, _stage: &dyn Stage) {
        if let Event::Chose { step, regret, .. } = event {
            self.all += regret;
            if 2 * step < self.steps {
                self.half += regret;
            }
        }
    }
}

/// Means over all seeds, half of them on a second thread.
fn mean_regret(of: impl Fn(u64) -> RunConfig + Sync) -> Regret {
    let one = |seed: u64| {
        let config = of(seed);
        let mut regret = Regret { steps: config.horizon, ..Regret::default() };
        config.run(&mut regret).unwrap();
        regret
    };
    let middle = (SEEDS.start + SEEDS.end) / 2;
    let runs: Vec<Regret> = std::thread::scope(|scope| {
        let second = scope.spawn(|| (middle..SEEDS.end).map(one).collect::<Vec<_>>());
        let first: Vec<_> = (SEEDS.start..middle).map(one).collect();
        first.into_iter().chain(second.join().unwrap()).collect()
    });
    let mean = |of: fn(&Regret) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    Regret { half: mean(|run| run.half), all: mean(|run| run.all), steps: runs[0].steps }
}

/// In a linear world of eight features.
fn linear_regret(algorithm: &Algorithm) -> Regret {
    mean_regret(|seed| RunConfig { world: linear(8, 10), ..small(seed, AGENTS, HORIZON, algorithm.clone()) })
}

/// The second half of a run adds much less than the first.
#[track_caller]
fn assert_sublinear(regret: Regret) {
    assert!(regret.all - regret.half < 0.6 * regret.half, "{regret:?}");
}

#[test]
fn asynchronous_sharing_lies_between_central_and_isolated_learning() {
    let (best, worst) = (linear_regret(&central()), linear_regret(&lin_ucb()));
    let close = linear_regret(&async_lin_ucb(protocol(1.2, 1.2, JoinPolicy::Eager)));
    let usual = linear_regret(&async_lin_ucb(protocol(2.0, 4.0, JoinPolicy::Eager)));
    let rare = linear_regret(&async_lin_ucb(protocol(50.0, 100.0, JoinPolicy::Eager)));
    assert!(best.all < 1.05 * close.all, "{best:?} {close:?}");
    assert!(close.all < usual.all && usual.all < rare.all, "{close:?} {usual:?} {rare:?}");
    assert!(rare.all < 0.8 * worst.all && usual.all < 0.5 * worst.all, "{rare:?} {usual:?} {worst:?}");
    assert_sublinear(best);
    assert_sublinear(usual);
}

/// An algorithm that shares has far less regret than the same algorithm that never does.
#[track_caller]
fn assert_sharing_helps(sharing: &Algorithm, silent: &Algorithm) {
    let (sharing_regret, silent_regret) = (linear_regret(sharing), linear_regret(silent));
    assert!(sharing_regret.all < 0.6 * silent_regret.all, "{sharing_regret:?} {silent_regret:?}");
    assert_sublinear(sharing_regret);
}

#[test]
fn thompson_sampling_gains_from_sharing() {
    let with = |threshold| {
        let protocol = protocol(threshold, threshold, JoinPolicy::Lazy);
        Algorithm::AsyncLinTs(AsyncLinTs { protocol, ..AsyncLinTs::default() })
    };
    assert_sharing_helps(&with(2.0), &with(f64::INFINITY));
}

#[test]
fn perturbed_history_gains_from_sharing() {
    let with = |threshold| {
        let protocol = protocol(threshold, threshold, JoinPolicy::Lazy);
        Algorithm::AsyncLinPhe(AsyncLinPhe { protocol, perturbations: 0.1, ..AsyncLinPhe::default() })
    };
    assert_sharing_helps(&with(2.0), &with(f64::INFINITY));
}

#[test]
fn rounds_gain_from_sharing() {
    let with = |threshold| {
        let round_threshold = Threshold(threshold);
        Algorithm::SyncLinUcb(SyncLinUcb { round_threshold, ..SyncLinUcb::default() })
    };
    assert_sharing_helps(&with(5.0), &with(f64::INFINITY));
}

#[test]
fn exchanges_gain_from_sharing() {
    let model = ModelConfig { fixed_width: Some(0.5), ..ModelConfig::default() };
    let exchange = FedLinUcb { model: model.clone(), upload_threshold: Some(Threshold(1.5)), privacy: None };
    assert_sharing_helps(&Algorithm::FedLinUcb(exchange), &Algorithm::LinUcb(LinUcb { model }));
}

#[test]
fn the_default_asynchronous_protocol_gains_from_sharing() {
    assert_sharing_helps(&Algorithm::AsyncLinUcb(AsyncLinUcb::default()), &lin_ucb());
}

/// Where agents differ, sharing only what they have in common beats learning alone, and beats pretending
/// that they do not differ.
#[test]
fn agents_that_differ_gain_from_sharing_what_they_have_in_common() {
    let world = HeterogeneousConfig { dimension: 12, shared: 9, arms: 15, ..HeterogeneousConfig::default() };
    let of = |algorithm: Algorithm| {
        mean_regret(|seed| RunConfig {
            world: WorldConfig::Heterogeneous(world.clone()),
            ..small(seed, AGENTS, HORIZON, algorithm.clone())
        })
    };
    let am = of(Algorithm::AsyncLinUcbAm(AsyncLinUcbAm::default()));
    let (alone, pretending) = (of(lin_ucb()), of(Algorithm::AsyncLinUcb(AsyncLinUcb::default())));
    assert!(am.all < 0.8 * alone.all, "{am:?} {alone:?}");
    assert!(am.all < 0.8 * pretending.all, "{am:?} {pretending:?}");
}

#[test]
fn drift_hurts() {
    let of = |drift| {
        let world = LinearConfig { dimension: 8, arms: 10, drift, ..LinearConfig::default() };
        mean_regret(|seed| RunConfig {
            world: WorldConfig::Linear(world.clone()),
            ..small(seed, AGENTS, HORIZON, Algorithm::AsyncLinUcb(AsyncLinUcb::default()))
        })
    };
    let (still, turning) = (of(None), of(Some(Drift { period: 3000, ..Drift::default() })));
    assert!(turning.all > 2.0 * still.all, "{still:?} {turning:?}");
    assert!(turning.all - turning.half > still.all - still.half);
}
