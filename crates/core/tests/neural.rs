//! Networks as learners: what they are offered may change, and what they cannot learn from changes nothing.

use posse_core::*;

fn agent(algorithm: &Algorithm, dimension: usize) -> Box<dyn Agent> {
    let federation = Federation { agents: 2, horizon: 100, seed: Seed(3) };
    algorithm.agent(AgentId(0), Shape::shared(dimension), &federation).expect("settings in range")
}

fn learners(neural: &NeuralConfig) -> Vec<Algorithm> {
    let together = |training, features_at| {
        Algorithm::FnUcb(FnUcb {
            neural: neural.clone(),
            training,
            features_at,
            alpha_ramp: 4,
            ..Default::default()
        })
    };
    let alone = NeuralUcb { neural: neural.clone(), ..Default::default() };
    vec![
        together(TrainingMode::Independent, FeaturePoint::Start),
        together(TrainingMode::FedavgRounds, FeaturePoint::Current),
        together(TrainingMode::Pooled, FeaturePoint::Current),
        Algorithm::NeuralUcb(alone.clone()),
        Algorithm::NeuralTs(alone),
    ]
}

/// `count` arms that differ from step to step.
fn arms(step: u64, count: usize) -> Arms {
    let mut stream = Seed(8).stream("arms", step, 0);
    let rows: Vec<[f64; 3]> = (0..count).map(|_| std::array::from_fn(|_| stream.normal())).collect();
    Arms::from_rows(3, &rows).expect("normals are finite")
}

#[test]
fn offers_may_grow_and_shrink() {
    for statistic in [Precondition::Full, Precondition::Diagonal] {
        let neural = NeuralConfig { hidden_width: 4, training_steps: 3, statistic, ..Default::default() };
        for algorithm in learners(&neural) {
            let mut agent = agent(&algorithm, 3);
            for (step, count) in (0..).zip([2, 7, 1, 33, 2, 7, 1]) {
                let arms = arms(step, count);
                let choice = agent.choose(UserId(0), &arms).unwrap().arm;
                assert!(choice < count, "{algorithm:?}");
                agent.learn(UserId(0), arms.row(choice), 0.5).unwrap();
            }
        }
    }
}

/// A tangent network of one unit a half has no biases: on one side of zero both are off, and so is every
/// gradient.
#[test]
fn observations_that_no_unit_answers_to_change_no_score() {
    let neural = NeuralConfig {
        network: NetworkKind::Tangent,
        hidden_width: 2,
        training_steps: 5,
        ..Default::default()
    };
    let all = learners(&neural);
    let is_alive = |x: f64| agent(&all[0], 1).learn(UserId(0), &[x], 1.0).unwrap().is_some();
    assert_ne!(is_alive(1.0), is_alive(-1.0), "what raises no information is worth no round");
    let dead = if is_alive(1.0) { -1.0 } else { 1.0 };
    for algorithm in all {
        let (mut taught, mut untaught) = (agent(&algorithm, 1), agent(&algorithm, 1));
        for _ in 0..20 {
            assert_eq!(taught.learn(UserId(0), &[dead], 5.0).unwrap(), None, "{algorithm:?}");
        }
        assert_eq!(taught.failed_trainings(), 0);
        let offer = Arms::from_rows(1, &[[dead], [-dead], [-2.0 * dead]]).expect("finite");
        for _ in 0..10 {
            let (one, other) = (taught.choose(UserId(0), &offer), untaught.choose(UserId(0), &offer));
            assert_eq!(one, other, "{algorithm:?}");
            one.unwrap();
        }
    }
}
