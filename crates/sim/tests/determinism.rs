//! O27: the same configuration gives the same bits, whoever runs it and over whatever perfect link.

use std::ops::ControlFlow;

use posse_core::{
    Algorithm, AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, FnUcb, JoinPolicy, NeuralConfig,
    NeuralUcb, Placement, ProtocolConfig, SyncLinUcb, Threshold, TimeSpan, TrainingMode,
};
use posse_sim::network::{FaultConfig, NetworkConfig, Preset};
use posse_sim::world::{ArrivalConfig, HeterogeneousConfig, WorldConfig};
use posse_sim::{RunConfig, Tally};

use crate::support::{Entry, Log, protocol, run, small, world_for};

/// The same algorithm with this join policy; unchanged if it has none.
fn with_join(algorithm: Algorithm, join: JoinPolicy) -> Algorithm {
    let protocol: ProtocolConfig = protocol(1.3, 2.0, join);
    match algorithm {
        Algorithm::AsyncLinUcb(config) => Algorithm::AsyncLinUcb(AsyncLinUcb { protocol, ..config }),
        Algorithm::AsyncLinTs(config) => Algorithm::AsyncLinTs(AsyncLinTs { protocol, ..config }),
        Algorithm::AsyncLinPhe(config) => Algorithm::AsyncLinPhe(AsyncLinPhe { protocol, ..config }),
        Algorithm::AsyncLinUcbAm(config) => Algorithm::AsyncLinUcbAm(AsyncLinUcbAm { protocol, ..config }),
        Algorithm::SyncLinUcb(config) => Algorithm::SyncLinUcb(SyncLinUcb { join, ..config }),
        other => other,
    }
}

fn config(algorithm: &Algorithm, join: JoinPolicy) -> RunConfig {
    let world = HeterogeneousConfig { dimension: 6, shared: 4, arms: 8, ..HeterogeneousConfig::default() };
    RunConfig {
        world: world_for(algorithm, WorldConfig::Heterogeneous(world)),
        ..small(11, 7, 400, with_join(algorithm.clone(), join))
    }
}

/// All algorithms over the papers' network and, where they can, over a bad one with crashes.
fn all_runs() -> Vec<RunConfig> {
    let mut runs = Vec::new();
    for algorithm in Algorithm::all() {
        let ideal = config(&algorithm, JoinPolicy::Lazy);
        if algorithm.placement() == Placement::PerAgent {
            let faults = FaultConfig {
                agent_crash: 0.02,
                volatile: 0.5,
                coordinator_restart: 0.01,
                ..FaultConfig::default()
            };
            let network = NetworkConfig::preset(Preset::Hostile);
            runs.push(RunConfig { network, faults, ..ideal.clone() });
        }
        runs.push(ideal);
    }
    runs
}

#[track_caller]
fn assert_same(one: &(Log, Tally), other: &(Log, Tally), what: &str) {
    assert!(one.0 == other.0, "{what}: the logs differ");
    assert_eq!(one.1, other.1, "{what}");
    let bits = |tally: &Tally| (tally.regret.to_bits(), tally.reward.to_bits());
    assert_eq!(bits(&one.1), bits(&other.1), "{what}");
}

#[test]
fn agents_that_rest_between_their_turns_go_on_with_the_same_bits() {
    for algorithm in Algorithm::all() {
        let config = config(&algorithm, JoinPolicy::Lazy);
        let quiet = config.run(&mut ()).unwrap();
        for awake in [0, 2] {
            let rested = config.run_with_awake(awake, &mut ()).unwrap();
            let bits = |tally: &Tally| (tally.regret.to_bits(), tally.reward.to_bits());
            assert_eq!(rested, quiet, "{}", algorithm.name());
            assert_eq!(bits(&rested), bits(&quiet), "{}", algorithm.name());
        }
    }
}

#[test]
fn o27_the_same_configuration_gives_the_same_bits() {
    for config in all_runs() {
        assert_same(&run(&config), &run(&config), config.algorithm.name());
    }
}

#[test]
fn o27_another_seed_gives_another_run() {
    for config in all_runs() {
        let other = RunConfig { seed: posse_core::Seed(12), ..config.clone() };
        assert_ne!(run(&config).0.choices(), run(&other).0.choices(), "{}", config.algorithm.name());
    }
}

/// The papers' network and a bad one, every family's world, agents that leave, and a number of interactions that no
/// batch divides.
#[test]
fn runs_whose_offers_other_threads_prepare_have_the_same_bits() {
    let mut runs: Vec<_> = all_runs().into_iter().map(|run| (run, 3)).collect();
    let arrivals = [ArrivalConfig::Churn { lifetime: 0.3 }, ArrivalConfig::Bursts { mean_length: 5.0 }];
    for (arrival, threads) in arrivals.into_iter().zip([2, 5]) {
        let few = all_runs().into_iter().take(3);
        runs.extend(few.map(|run| (RunConfig { arrival: arrival.clone(), ..run }, threads)));
    }
    for (config, threads) in runs {
        let mut log = Log::default();
        let tally = config.run_on(threads, &mut log).unwrap();
        assert_same(&(log, tally), &run(&config), config.algorithm.name());
    }
}

/// Agents that look for their arms ahead of their turns: of every algorithm, with messages that reach them between look and turn, and
/// with agents that leave.
#[test]
fn agents_that_look_ahead_of_their_turns_give_the_same_bits() {
    for algorithm in Algorithm::all() {
        let small = config(&algorithm, JoinPolicy::Lazy);
        let config = RunConfig { agents: 150, horizon: 400, ..small };
        let churn = ArrivalConfig::Churn { lifetime: 0.3 };
        for config in [config.clone(), RunConfig { arrival: churn, ..config }] {
            let mut log = Log::default();
            let tally = config.run_rehearsed(2, &mut log).unwrap();
            let what = format!("{} with {:?}", config.algorithm.name(), config.arrival);
            assert_same(&(log, tally), &run(&config), &what);
        }
    }
}

/// Networks of five agents that take turns, in every way in which they train and answer rounds; a gauge looks at them in
/// between, and some leave. Agents that learn alone may all work at the same time.
#[test]
fn agents_that_train_on_other_threads_give_the_same_bits() {
    let neural = NeuralConfig { hidden_width: 8, training_steps: 3, ..NeuralConfig::default() };
    let federated = |training, lockstep, threshold| {
        let (neural, round_threshold) = (neural.clone(), Threshold(threshold));
        Algorithm::FnUcb(FnUcb { neural, training, lockstep, round_threshold, ..FnUcb::default() })
    };
    let algorithms = [
        federated(TrainingMode::Fedavg, true, 0.0),
        federated(TrainingMode::Fedavg, false, 0.0),
        federated(TrainingMode::Independent, true, 1.0),
        federated(TrainingMode::FedavgRounds, true, 0.0),
        federated(TrainingMode::FedavgRounds, false, 2.0),
        Algorithm::NeuralUcb(NeuralUcb { neural: neural.clone(), ..NeuralUcb::default() }),
    ];
    for algorithm in algorithms {
        let arrivals =
            [ArrivalConfig::RoundRobin, ArrivalConfig::Uniform, ArrivalConfig::Churn { lifetime: 0.3 }];
        for (arrival, threads) in arrivals.into_iter().zip([2, 4, 3]) {
            let config = RunConfig { arrival, ..small(11, 5, 120, algorithm.clone()) };
            let mut log = Log::default();
            let tally = config.run_on(threads, &mut log).unwrap();
            let what = format!("{:?} with {:?}", config.algorithm, config.arrival);
            assert_same(&(log, tally), &run(&config), &what);
        }
    }
}

/// Stops a run after ten interactions.
struct Impatient;

impl posse_sim::Observer for Impatient {
    fn observe(&mut self, _: &posse_sim::Event<'_>, _: &dyn posse_sim::Stage) {}

    fn interacted(&mut self, tally: &Tally) -> ControlFlow<()> {
        if tally.interactions < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

#[test]
fn threads_that_prepare_offers_end_with_a_run_that_is_stopped() {
    let config = RunConfig { horizon: 1_000_000, ..all_runs().remove(0) };
    let stopped = config.run_on(3, &mut Impatient).unwrap_err();
    assert_eq!(stopped, posse_sim::RunError::Stopped { interactions: 10 });
}

/// Threads share scratch memory between the models of a thread; what was in it must not matter.
#[test]
fn o27_runs_at_the_same_time_are_as_runs_alone() {
    let runs = all_runs();
    let alone: Vec<_> = runs.iter().map(run).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (runs, alone) = (&runs, &alone);
            scope.spawn(move || {
                for index in 0..runs.len() {
                    // Each thread in an order of its own.
                    let index = (index * 3 + thread * 5) % runs.len();
                    assert_same(&run(&runs[index]), &alone[index], runs[index].algorithm.name());
                }
            });
        }
    });
}

/// Step by step and agent by agent, what was chosen, learned and said with statistics in it. A link has one
/// message under way at a time, so agents hear of the same upload in another order.
fn substance(log: &Log) -> Vec<(usize, u64, &Entry)> {
    let mut steps = 0;
    let mut said: Vec<_> = log
        .0
        .iter()
        .filter_map(|entry| {
            let (agent, counts) = match entry {
                Entry::Chose { agent, .. } | Entry::Learned { agent, .. } => (*agent, true),
                Entry::Up { agent, message } => (*agent, message.cost().messages > 0),
                Entry::Down { agent, message } => (*agent, message.cost().messages > 0),
            };
            steps += usize::from(matches!(entry, Entry::Chose { .. }));
            counts.then_some((steps, agent, entry))
        })
        .collect();
    said.sort_by_key(|(step, agent, _)| (*step, *agent));
    said
}

#[test]
fn o27_perfect_links_change_nothing() {
    for algorithm in Algorithm::all() {
        if algorithm.placement() == Placement::Central {
            continue;
        }
        for join in [JoinPolicy::Lazy, JoinPolicy::Eager] {
            for arrival in [ArrivalConfig::Uniform, ArrivalConfig::Bursts { mean_length: 20.0 }] {
                let ideal = RunConfig { arrival, ..config(&algorithm, join) };
                let network = NetworkConfig { latency: Some(TimeSpan::ZERO), ..NetworkConfig::default() };
                let linked = RunConfig { network, ..ideal.clone() };
                let ((ideal_log, ideal), (linked_log, linked)) = (run(&ideal), run(&linked));
                let name = algorithm.name();
                assert_eq!(ideal_log.choices(), linked_log.choices(), "{name}");
                assert!(substance(&ideal_log) == substance(&linked_log), "{name}: other messages");
                assert_eq!(ideal.regret.to_bits(), linked.regret.to_bits(), "{name}");
                assert_eq!(ideal.rounds, linked.rounds, "{name}");
                for (ideal, linked) in [(ideal.up, linked.up), (ideal.down, linked.down)] {
                    assert_eq!((ideal.messages, ideal.scalars), (linked.messages, linked.scalars), "{name}");
                    // Frames and acknowledgements come on top.
                    assert!(linked.bytes >= ideal.bytes && linked.control >= ideal.control, "{name}");
                }
            }
        }
    }
}
