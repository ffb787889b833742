//! The kernel learners: what they remember, what they refuse, and what their draws are.

use posse_core::*;

const DIMENSION: usize = 3;

fn agent(algorithm: &Algorithm) -> Box<dyn Agent> {
    let federation = Federation { agents: 1, horizon: 100, seed: Seed(3) };
    algorithm.agent(AgentId(0), Shape::shared(DIMENSION), &federation).expect("settings in range")
}

fn both(config: &KernelConfig) -> [Algorithm; 2] {
    [Algorithm::KernelUcb(config.clone()), Algorithm::KernelTs(config.clone())]
}

/// `count` arms that differ from step to step.
fn arms(step: u64, count: usize) -> Arms {
    let mut stream = Seed(8).stream("arms", step, 0);
    let rows: Vec<[f64; DIMENSION]> = (0..count).map(|_| std::array::from_fn(|_| stream.normal())).collect();
    Arms::from_rows(DIMENSION, &rows).expect("normals are finite")
}

/// Learns `count` observations of a wave.
fn teach(agent: &mut dyn Agent, count: u64) {
    for step in 0..count {
        let arms = arms(step, 1);
        let x = arms.row(0);
        agent.learn(UserId(0), x, libm::sin(2.0 * x[0])).expect("a good observation");
    }
}

fn picks(agent: &mut dyn Agent) -> Vec<usize> {
    (0..40).map(|step| agent.choose(UserId(0), &arms(1000 + step, 9)).unwrap().arm).collect()
}

#[test]
fn a_full_history_is_not_learned_from_any_more() {
    let config = KernelConfig { max_history: 21, ..KernelConfig::default() };
    for algorithm in both(&config) {
        let (mut full, mut fuller) = (agent(&algorithm), agent(&algorithm));
        teach(&mut *full, 21);
        teach(&mut *fuller, 21);
        for step in 0..50 {
            fuller.learn(UserId(0), arms(step, 1).row(0), -100.0).unwrap();
        }
        assert_eq!(fuller.inspect().unsent, 71);
        assert_eq!(picks(&mut *full), picks(&mut *fuller));
    }
}

#[test]
fn a_history_with_room_is_learned_from() {
    let config = KernelConfig { max_history: 22, ..KernelConfig::default() };
    let (mut one, mut other) =
        (agent(&Algorithm::KernelUcb(config.clone())), agent(&Algorithm::KernelUcb(config)));
    teach(&mut *one, 21);
    teach(&mut *other, 21);
    other.learn(UserId(0), arms(1000, 9).row(4), 100.0).unwrap();
    assert_ne!(picks(&mut *one), picks(&mut *other));
}

#[test]
fn offers_may_grow_and_shrink() {
    for algorithm in both(&KernelConfig::default()) {
        let mut agent = agent(&algorithm);
        for (step, count) in (0..).zip([1, 9, 2, 33, 4, 1, 5]) {
            let arms = arms(step, count);
            let choice = agent.choose(UserId(0), &arms).unwrap().arm;
            assert!(choice < count);
            agent.learn(UserId(0), arms.row(choice), 0.5).unwrap();
        }
    }
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    for algorithm in both(&KernelConfig::default()) {
        let mut agent = agent(&algorithm);
        teach(&mut *agent, 10);
        let before = agent.save();
        let refused = |result: Result<Option<Uplink>, InputError>| result.expect_err("bad input");
        let of = |dimension| InputError::Dimension { expected: 3, got: dimension };
        assert_eq!(refused(agent.learn(UserId(0), &[1.0; 2], 1.0)), of(2));
        assert_eq!(refused(agent.learn(UserId(0), &[1.0; 4], 1.0)), of(4));
        let nan = refused(agent.learn(UserId(0), &[0.0, f64::NAN, 0.0], 1.0));
        assert!(matches!(nan, InputError::Feature { index: 1, .. }));
        let infinite = refused(agent.learn(UserId(0), &[0.0; 3], f64::INFINITY));
        assert!(matches!(infinite, InputError::Reward { .. }));
        assert_eq!(refused(agent.learn(UserId(0), &[1e200, 0.0, 0.0], 1.0)), InputError::Overflow);
        assert_eq!(agent.choose(UserId(0), &Arms::new(3)), Err(InputError::NoArms));
        let flat = Arms::from_rows(2, &[[1.0, 2.0]]).unwrap();
        assert_eq!(agent.choose(UserId(0), &flat), Err(of(2)));
        assert_eq!(agent.save(), before);
    }
}

#[test]
fn states_of_other_histories_are_refused_and_change_nothing() {
    let limited = |max_history| Algorithm::KernelUcb(KernelConfig { max_history, ..KernelConfig::default() });
    let mut long = agent(&limited(100));
    teach(&mut *long, 30);
    for max_history in [29, 10] {
        let mut short = agent(&limited(max_history));
        teach(&mut *short, 5);
        let before = short.save();
        assert!(short.restore(&long.save()).is_err());
        assert_eq!(short.save(), before);
    }
    // A limit that was not reached need not be the same.
    let mut longer = agent(&limited(31));
    longer.restore(&long.save()).unwrap();
    assert_eq!(picks(&mut *longer), picks(&mut *long));
}

#[test]
fn without_observations_thompson_sampling_prefers_no_arm() {
    let mut agent = agent(&Algorithm::KernelTs(KernelConfig::default()));
    let arms = arms(0, 4);
    let mut chosen = [0; 4];
    for _ in 0..4000 {
        chosen[agent.choose(UserId(0), &arms).unwrap().arm] += 1;
    }
    // 1000 each, with standard deviation 27.
    assert!(chosen.iter().all(|count: &i32| count.abs_diff(1000) < 150), "{chosen:?}");
}

/// With a long scale and little regularisation a belief is nearly certain where an arm was seen.
#[test]
fn an_arm_that_is_known_to_be_good_is_chosen_and_one_that_is_unknown_is_tried() {
    let config = |exploration| KernelConfig { regularization: 0.01, exploration, ..KernelConfig::default() };
    let known = [0.0, 0.0, 1.0];
    let unknown = [50.0, 0.0, 0.0];
    let arms = Arms::from_rows(3, &[known, unknown]).unwrap();
    // Its variance is 1: the bound of the unknown arm is √(λν), that of the known one about 0.5.
    for (exploration, expected) in [(0.0, 0), (1.0, 0), (400.0, 1)] {
        let mut agent = agent(&Algorithm::KernelUcb(config(exploration)));
        for _ in 0..5 {
            agent.learn(UserId(0), &known, 0.5).unwrap();
        }
        assert_eq!(agent.choose(UserId(0), &arms).unwrap().arm, expected, "ν = {exploration}");
    }
}
