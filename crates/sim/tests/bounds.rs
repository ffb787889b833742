//! Hard bounds of the protocols: how much may be said (O5), and how far apart views may drift (O6).

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{AgentId, Algorithm, Downlink, JoinPolicy, ModelConfig, SyncLinUcb, Threshold, Uplink};
use posse_sim::world::ArrivalConfig;
use posse_sim::{Event, Observer, RunConfig, Stage};

use crate::support::dense::{gram, ln_det, regularized};
use crate::support::{assert_close, async_lin_ucb, protocol, small};

const DIMENSION: usize = 5;

/// Checks O6 before every choice and gathers what O5 needs.
struct Bounds {
    /// ln γ_U and ln γ_D.
    upload: f64,
    download: f64,
    /// Agents that joined after the last upload: nobody has looked at them yet.
    unnoticed: BTreeSet<AgentId>,
    /// Messages with statistics by agent, both ways.
    messages: BTreeMap<AgentId, u64>,
    /// The most that was ever reached, as a share of what is allowed.
    closest: f64,
    /// Information of everything anybody knows, at the end.
    information: f64,
}

impl Bounds {
    fn new(upload: f64, download: f64) -> Self {
        Self {
            upload: libm::log(upload),
            download: libm::log(download),
            unnoticed: BTreeSet::new(),
            messages: BTreeMap::new(),
            closest: 0.0,
            information: 0.0,
        }
    }

    fn check_drift(&mut self, stage: &dyn Stage) {
        let coordinator = stage.coordinator();
        let known = coordinator.inspect().information;
        let within = |value: f64, bound: f64| value <= bound + 1e-9 * bound.max(1.0);
        for agent in stage.agents() {
            let view = stage.agent(agent).expect("it was listed").inspect();
            assert!(view.in_flight.is_none(), "every message is delivered before the next choice");
            let fresh = view.fresh_information;
            assert!(within(fresh, self.upload), "{agent} kept {fresh} to itself");
            self.closest = self.closest.max(fresh / self.upload.max(f64::MIN_POSITIVE));
            let Some(standing) = coordinator.agent(agent) else { continue };
            if !self.unnoticed.contains(&agent) {
                let behind = known - standing.information;
                assert!(within(behind, self.download), "{agent} is behind by {behind}");
            }
        }
    }

    /// ln det(I + ΣV/λ) of the coordinator's evidence and every buffer, from scratch.
    fn count_everything(&mut self, stage: &dyn Stage) {
        let lambda = ModelConfig::default().regularization;
        let agents = stage.agents();
        let buffers = agents.iter().filter_map(|agent| Some(stage.agent(*agent)?.inspect().linear?.buffer));
        let shared = stage.coordinator().inspect().evidence.expect("a linear coordinator");
        let sum = gram(std::iter::once(shared).chain(buffers));
        self.information = ln_det(&regularized(&sum, lambda)) - DIMENSION as f64 * libm::log(lambda);
    }
}

impl Observer for Bounds {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        match event {
            Event::Joined { agent, .. } => drop(self.unnoticed.insert(*agent)),
            // A choice changes nothing, so this is what it was made with.
            Event::Chose { .. } => self.check_drift(stage),
            Event::Up { agent, message: Uplink::Evidence(_), .. } => {
                self.unnoticed.clear();
                *self.messages.entry(*agent).or_default() += 1;
            }
            Event::Down { agent, message: Downlink::Snapshot(_) } => {
                *self.messages.entry(*agent).or_default() += 1;
            }
            Event::Quiet => self.count_everything(stage),
            _ => {}
        }
    }
}

const PAIRS: [(f64, f64); 7] =
    [(1.0, 1.0), (1.05, 1.05), (1.5, 3.0), (3.0, 1.5), (2.0, 2.0), (5.0, 50.0), (50.0, 5.0)];

fn arrivals() -> [ArrivalConfig; 5] {
    [
        ArrivalConfig::Uniform,
        ArrivalConfig::RoundRobin,
        ArrivalConfig::OneHot { share: 0.9 },
        ArrivalConfig::Bursts { mean_length: 40.0 },
        ArrivalConfig::Churn { lifetime: 0.25 },
    ]
}

/// Runs every combination and shows each to `inspect`.
fn for_each_run(mut inspect: impl FnMut(&RunConfig, (f64, f64), &Bounds)) {
    for (upload, download) in PAIRS {
        for join in [JoinPolicy::Lazy, JoinPolicy::Eager] {
            for (seed, arrival) in arrivals().into_iter().enumerate() {
                let config = small(seed as u64, 10, 800, async_lin_ucb(protocol(upload, download, join)));
                let config = RunConfig { arrival, ..config };
                let mut bounds = Bounds::new(upload, download);
                let tally = config.run(&mut bounds).unwrap();
                assert_eq!(bounds.messages.values().sum::<u64>(), tally.messages());
                inspect(&config, (upload, download), &bounds);
            }
        }
    }
}

/// Each message raises the information of what an agent and the coordinator agree on by more than ln γ,
/// and nobody's exceeds that of all evidence.
#[test]
fn o5_nobody_communicates_more_than_the_information_allows() {
    for_each_run(|config, (upload, download), bounds| {
        let patience = libm::log(upload.min(download));
        if patience == 0.0 {
            return;
        }
        let most = (bounds.information / patience).floor() as u64;
        for (agent, messages) in &bounds.messages {
            assert!(*messages <= most, "{agent}: {messages} messages, at most {most}");
        }
        // The worst case over all worlds with ‖x‖ ≤ 1: N·d·ln(1 + T/(dλ))/ln γ.
        let (d, lambda) = (DIMENSION as f64, ModelConfig::default().regularization);
        let worst = d * libm::log1p(config.horizon as f64 / (d * lambda));
        assert!(bounds.information <= worst);
        let all: u64 = bounds.messages.values().sum();
        assert!(all as f64 <= config.agents as f64 * worst / patience);
    });
}

/// The bound is of the right size: somebody comes within a factor of three of it.
#[test]
fn o5_is_not_idle() {
    let mut closest: f64 = 0.0;
    for_each_run(|_, (upload, download), bounds| {
        let most = bounds.information / libm::log(upload.min(download));
        if most.is_finite() {
            let busiest = bounds.messages.values().copied().max().unwrap_or(0);
            closest = closest.max(busiest as f64 / most);
        }
    });
    assert!(closest > 1.0 / 3.0, "nobody used more than {closest} of what is allowed");
}

#[test]
fn o6_nobody_is_further_behind_than_its_threshold_before_a_choice() {
    let mut closest: f64 = 0.0;
    // The checks are in the observer.
    for_each_run(|_, _, bounds| closest = closest.max(bounds.closest));
    assert!(closest > 0.9, "buffers never came near the threshold: {closest}");
}

#[test]
fn rounds_do_not_exceed_the_epoch_bound() {
    for threshold in [0.1, 0.5, 2.0, 10.0, 50.0] {
        for (seed, arrival) in arrivals().into_iter().enumerate() {
            for join in [JoinPolicy::Lazy, JoinPolicy::Eager] {
                let sync =
                    SyncLinUcb { round_threshold: Threshold(threshold), join, ..SyncLinUcb::default() };
                let config = small(seed as u64, 8, 1000, Algorithm::SyncLinUcb(sync));
                let config = RunConfig { arrival: arrival.clone(), ..config };
                let rounds = config.run(&mut ()).unwrap().rounds;
                // ⌈T/α⌉ + ⌈Rα/D⌉ with R = ⌈d·ln(1 + T/(dλ))⌉ and α = √(DT/R).
                let (t, d) = (config.horizon as f64, DIMENSION as f64);
                let r = (d * libm::log1p(t / (d * 0.1))).ceil();
                let alpha = (threshold * t / r).sqrt();
                let most = (t / alpha).ceil() + (r * alpha / threshold).ceil();
                assert!(rounds > 0 && rounds as f64 <= most, "{rounds} rounds, at most {most}");
            }
        }
    }
}

/// What the coordinator calls information is what the determinant says.
#[test]
fn information_is_the_determinant() {
    struct Compare;
    impl Observer for Compare {
        fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
            if let Event::Up { .. } = event {
                let view = stage.coordinator().inspect();
                let dense = ln_det(&regularized(&gram([view.evidence.expect("a linear coordinator")]), 0.1));
                assert_close(view.information, dense - DIMENSION as f64 * libm::log(0.1));
            }
        }
    }
    small(9, 6, 1000, async_lin_ucb(protocol(1.1, 2.0, JoinPolicy::Lazy))).run(&mut Compare).unwrap();
}
