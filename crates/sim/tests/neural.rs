//! The neural family: at the ends of its settings an algorithm is another one, and what sharing is worth.

use std::sync::Arc;

use posse_core::privacy::Unit;
use posse_core::{
    Algorithm, AlphaRule, FeaturePoint, FnUcb, KernelConfig, NetworkKind, NeuralConfig, NeuralUcb,
    Precondition, PrivacyConfig, Threshold, TrainingMode,
};
use posse_sim::world::{
    ArrivalConfig, ClassificationConfig, LabelledTable, NonlinearConfig, Split, WorldConfig,
};
use posse_sim::{Invariants, RunConfig};

use crate::support::{choices, run, small};

fn cosine(seed: u64, agents: u64, iterations: u64, algorithm: &Algorithm) -> RunConfig {
    RunConfig {
        world: WorldConfig::Cosine(NonlinearConfig { dimension: 4, ..Default::default() }),
        arrival: ArrivalConfig::RoundRobin,
        ..small(seed, agents, agents * iterations, algorithm.clone())
    }
}

fn little() -> NeuralConfig {
    NeuralConfig { hidden_width: 6, training_steps: 5, training_stop: 60, ..Default::default() }
}

fn fn_ucb(config: FnUcb) -> Algorithm {
    Algorithm::FnUcb(FnUcb { neural: little(), ..config })
}

#[track_caller]
fn assert_same_choices(one: &Algorithm, other: &Algorithm, agents: u64) {
    for seed in 1..4 {
        let (one, other) = (cosine(seed, agents, 150, one), cosine(seed, agents, 150, other));
        assert_eq!(choices(&one), choices(&other), "{:?} and {:?}", one.algorithm, other.algorithm);
    }
}

/// O20. A gradient of zero raises no information, so that no round follows and the network is not trained: there, and
/// only there, the two part. Of plain networks the output's bias always has a gradient.
#[test]
fn o20_a_federation_of_one_that_trusts_its_network_is_neural_ucb() {
    let mut without_a_round = 0;
    for statistic in [Precondition::Full, Precondition::Diagonal] {
        for (network, hidden_width) in
            [(NetworkKind::Plain, 6), (NetworkKind::Tangent, 16), (NetworkKind::Tangent, 4)]
        {
            let neural = NeuralConfig { statistic, network, hidden_width, ..little() };
            let federation = Algorithm::FnUcb(FnUcb {
                neural: neural.clone(),
                alpha: AlphaRule::One,
                features_at: FeaturePoint::Current,
                network_width: 0.3,
                ..Default::default()
            });
            let alone = Algorithm::NeuralUcb(NeuralUcb { neural, exploration: 0.3 * 0.3 });
            let mut always = 0;
            for seed in 1..7 {
                let federation = cosine(seed, 1, 150, &federation);
                if run(&federation).1.rounds == 150 {
                    always += 1;
                    let alone = cosine(seed, 1, 150, &alone);
                    assert_eq!(choices(&federation), choices(&alone), "{network:?} {statistic:?} {seed}");
                } else {
                    without_a_round += 1;
                    assert!(network == NetworkKind::Tangent, "all gradients were zero at seed {seed}");
                }
            }
            assert!(always > 0, "{network:?} {statistic:?} {hidden_width}");
        }
    }
    assert!(without_a_round > 0, "no gradient was zero");
}

#[test]
fn o21_with_one_agent_there_is_no_mean_to_send() {
    let main = fn_ucb(FnUcb { less_communication: false, alpha_ramp: 40, ..Default::default() });
    let less = fn_ucb(FnUcb { less_communication: true, alpha_ramp: 40, ..Default::default() });
    assert_same_choices(&main, &less, 1);
}

#[test]
fn one_average_a_round_is_plain_averaging() {
    let config = FnUcb { alpha_ramp: 40, ..Default::default() };
    let rounds = FnUcb { training: TrainingMode::FedavgRounds, averaging_rounds: 1, ..config.clone() };
    let plain = FnUcb { training: TrainingMode::Fedavg, ..config };
    assert_same_choices(&fn_ucb(rounds), &fn_ucb(plain), 3);
}

#[test]
fn alone_all_ways_of_training_are_the_same() {
    let config = |training| {
        fn_ucb(FnUcb { training, features_at: FeaturePoint::Current, alpha_ramp: 40, ..Default::default() })
    };
    let independent = config(TrainingMode::Independent);
    assert_same_choices(&independent, &config(TrainingMode::Fedavg), 1);
    assert_same_choices(&independent, &config(TrainingMode::Pooled), 1);
}

#[test]
fn without_the_network_its_training_does_not_matter() {
    let config = |training| fn_ucb(FnUcb { training, alpha: AlphaRule::Zero, ..Default::default() });
    assert_same_choices(&config(TrainingMode::Independent), &config(TrainingMode::Fedavg), 3);
}

#[test]
fn there_is_a_round_an_iteration_without_a_threshold_and_none_with_an_infinite_one() {
    let rounds = |threshold| {
        let algorithm = fn_ucb(FnUcb { round_threshold: Threshold(threshold), ..Default::default() });
        run(&cosine(1, 3, 50, &algorithm)).1.rounds
    };
    assert_eq!(rounds(0.0), 50);
    assert_eq!(rounds(f64::INFINITY), 0);
    let some = rounds(3.0);
    assert!((1..50).contains(&some), "{some}");
    assert!(rounds(30.0) <= some);
}

#[test]
fn federations_keep_their_promises_in_the_papers_model() {
    for training in [TrainingMode::Independent, TrainingMode::FedavgRounds] {
        let algorithm = fn_ucb(FnUcb { training, round_threshold: Threshold(1.0), ..Default::default() });
        let mut invariants = Invariants::of(&algorithm);
        cosine(2, 4, 40, &algorithm).run(&mut invariants).unwrap();
        // Nobody acts any more, so that the last round may wait for ever; nothing else may be wrong.
        let open = |what: &str| what.contains("still waits for an answer");
        assert!(invariants.violation().is_none_or(open), "{:?}", invariants.violation());
    }
}

/// What the published figures show comes from one network trained on everybody's data; networks that are
/// trained apart and averaged do not give it. Beginning from the average does, nearly, without moving data.
#[test]
fn beginning_from_the_average_is_worth_nearly_as_much_as_everybodys_data() {
    let regret = |algorithm: FnUcb| {
        let run = |seed| {
            let world = WorldConfig::Cosine(NonlinearConfig::default());
            let algorithm = Algorithm::FnUcb(algorithm.clone());
            run(&RunConfig { world, ..cosine(seed, 4, 250, &algorithm) }).1.regret
        };
        run(1) + run(2)
    };
    let published = |training, features_at| {
        let neural = NeuralConfig { learning_rate: 0.01, ..Default::default() };
        FnUcb { neural, training, features_at, alpha_ramp: 700, ..Default::default() }
    };
    let pooled = regret(published(TrainingMode::Pooled, FeaturePoint::Current));
    let apart = regret(published(TrainingMode::Independent, FeaturePoint::Start));
    let together = regret(FnUcb::default());
    assert!(pooled < 0.7 * apart, "{pooled} pooled, {apart} apart");
    assert!(together < 0.5 * (pooled + apart), "{together} together, {pooled} pooled, {apart} apart");
}

/// A step that is far too long leads nowhere: every training is undone and counted, and the network stays θ₀.
#[test]
fn trainings_that_diverge_are_counted_and_undone() {
    let alone = |neural| Algorithm::NeuralUcb(NeuralUcb { neural, ..Default::default() });
    let together = |neural, training| {
        Algorithm::FnUcb(FnUcb {
            neural,
            training,
            averaging_rounds: 1,
            alpha_ramp: 10,
            ..Default::default()
        })
    };
    let ways = [TrainingMode::Independent, TrainingMode::FedavgRounds, TrainingMode::Pooled];
    for way in std::iter::once(None).chain(ways.map(Some)) {
        let config = |learning_rate, training_steps| {
            let neural = NeuralConfig { learning_rate, training_steps, ..little() };
            cosine(1, 3, 40, &way.map_or_else(|| alone(neural.clone()), |way| together(neural.clone(), way)))
        };
        let (diverges, untrained, trained) = (config(1e30, 5), config(0.01, 0), config(0.01, 5));
        // Everybody trains once an iteration.
        assert_eq!(run(&diverges).1.failed_trainings, 3 * 40, "{way:?}");
        assert_eq!(choices(&diverges), choices(&untrained), "{way:?}");
        assert_eq!(run(&trained).1.failed_trainings, 0, "{way:?}");
        assert_ne!(choices(&trained), choices(&untrained), "{way:?}");
    }
}

/// Rows of two features on a circle, an arm for each class.
fn classification(classes: u32, label: impl Fn(u32) -> u32) -> WorldConfig {
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    for row in 0..40 {
        let angle = f64::from(row) * 0.7;
        features.extend([libm::cos(angle), libm::sin(angle)]);
        labels.push(label(row));
    }
    let table = LabelledTable::new(2, features, labels, classes, Vec::new()).unwrap();
    WorldConfig::Classification(ClassificationConfig { table: Arc::new(table).into(), ..Default::default() })
}

fn learners() -> Vec<Algorithm> {
    let alone = NeuralUcb { neural: little(), ..Default::default() };
    let kernel = KernelConfig::default();
    let mut all = vec![Algorithm::NeuralUcb(alone.clone()), Algorithm::NeuralTs(alone)];
    all.extend([Algorithm::KernelUcb(kernel.clone()), Algorithm::KernelTs(kernel)]);
    for training in [TrainingMode::Independent, TrainingMode::FedavgRounds, TrainingMode::Pooled] {
        all.push(fn_ucb(FnUcb { training, alpha_ramp: 40, ..Default::default() }));
    }
    all
}

#[test]
fn a_class_of_no_row_is_an_arm_that_never_pays() {
    for algorithm in learners() {
        let world = classification(3, |row| u32::from(libm::cos(f64::from(row) * 0.7) > 0.0));
        let config = RunConfig { world, ..cosine(1, 2, 150, &algorithm) };
        let tried = choices(&config).iter().filter(|(_, arm)| *arm == 2).count();
        assert!((1..200).contains(&tried), "{algorithm:?}: {tried} of 300");
        let tally = run(&config).1;
        assert_eq!(tally.regret + tally.reward, 300.0, "{algorithm:?}");
        assert!(tally.reward <= (300 - tried) as f64, "{algorithm:?}");
    }
}

#[test]
fn agents_that_never_meet_a_class_are_offered_it_all_the_same() {
    for algorithm in learners() {
        let WorldConfig::Classification(world) = classification(3, |row| row % 3) else { unreachable!() };
        let split = ClassificationConfig { split: Split::LabelSkew, concentration: 0.01, ..world };
        let world = WorldConfig::Classification(split);
        let tally = run(&RunConfig { world, ..cosine(1, 3, 60, &algorithm) }).1;
        assert_eq!(tally.regret + tally.reward, 180.0, "{algorithm:?}");
        assert_eq!(tally.failed_trainings, 0, "{algorithm:?}");
    }
}

#[test]
fn a_table_of_one_class_offers_one_arm_and_nobody_regrets() {
    for algorithm in learners() {
        let config = RunConfig { world: classification(1, |_| 0), ..cosine(1, 2, 30, &algorithm) };
        assert_eq!(run(&config).1.regret, 0.0, "{algorithm:?}");
    }
}

/// Sixty agents with sixty observations each, too few for a network of one's own. Without noise their updates help; noise of ε = 1 hides
/// them, and agents then do as well as if they had shared nothing, because each judges the shared network by its own observations.
#[test]
fn private_updates_help_where_noise_is_small_and_cost_little_where_it_is_not() {
    let regret = |epsilon: f64, first_release: u64| -> f64 {
        let privacy = PrivacyConfig {
            unit: Unit::Agent,
            epsilon,
            first_release,
            max_releases: 3,
            release_growth: 2.0,
            ..Default::default()
        };
        let config =
            FnUcb { privacy: Some(privacy), update_bound: 2.0, update_steps: 200, ..Default::default() };
        (1..4).map(|seed| cosine(seed, 60, 60, &fn_ucb(config.clone())).run(&mut ()).unwrap().regret).sum()
    };
    let (alone, shared, hidden) = (regret(1.0, 1000), regret(1e6, 10), regret(1.0, 10));
    assert!(shared < 0.9 * alone, "{shared} with updates, {alone} without");
    assert!(hidden < 1.05 * alone, "{hidden} with updates that noise hides, {alone} without");
}
