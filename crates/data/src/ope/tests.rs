//! Estimators against values that are known.

use posse_core::{Algorithm, LinUcb, Seed};

use super::*;
use crate::decision_log::DecisionLog;

/// Rows of a made-up log and policy.
fn rows() -> Vec<JudgedRow> {
    let row = |reward, propensity, policy, expected, expected_of_policy| JudgedRow {
        reward,
        propensity,
        policy,
        expected,
        expected_of_policy,
    };
    vec![
        row(1.0, 0.5, 1.0, 0.6, 0.5),
        row(0.0, 0.25, 0.0, 0.2, 0.4),
        row(1.0, 0.1, 1.0, 0.3, 0.7),
        row(0.0, 0.8, 0.2, 0.1, 0.3),
    ]
}

fn value(estimator: Estimator) -> f64 {
    estimate(&rows(), estimator, Interval::Normal, 0.95).unwrap().value
}

#[test]
fn every_estimator_is_its_formula() {
    // Weights 2, 0, 10, 0.25; residuals 0.4, -0.2, 0.7, -0.1.
    let near =
        |estimator, expected: f64| assert!((value(estimator) - expected).abs() < 1e-14, "{estimator:?}");
    near(Estimator::Replay, 1.0);
    near(Estimator::Ips, (2.0 + 10.0) / 4.0);
    near(Estimator::Snips, 12.0 / 12.25);
    near(Estimator::Dm, (0.5 + 0.4 + 0.7 + 0.3) / 4.0);
    near(Estimator::Dr, (1.9 + 2.0 * 0.4 + 10.0 * 0.7 - 0.25 * 0.1) / 4.0);
    near(Estimator::Switch { threshold: 5.0 }, (1.9 + 2.0 * 0.4 - 0.25 * 0.1) / 4.0);
    near(Estimator::Switch { threshold: 10.0 }, value(Estimator::Dr));
    let shrunk = |w: f64| 3.0 * w / (w * w + 3.0);
    near(
        Estimator::DrOs { shrinkage: 3.0 },
        (1.9 + shrunk(2.0) * 0.4 + shrunk(10.0) * 0.7 - shrunk(0.25) * 0.1) / 4.0,
    );
    near(Estimator::DrOs { shrinkage: f64::INFINITY }, value(Estimator::Dr));
    assert!((effective_sample_size(&rows()) - 12.25 * 12.25 / (4.0 + 100.0 + 0.0625)).abs() < 1e-12);
}

#[test]
fn a_log_that_says_nothing_gives_nothing_and_one_that_says_little_a_warning() {
    let elsewhere =
        [JudgedRow { reward: 1.0, propensity: 0.5, policy: 0.0, expected: 0.0, expected_of_policy: 0.0 }];
    for estimator in [Estimator::Replay, Estimator::Snips] {
        assert_eq!(estimate(&elsewhere, estimator, Interval::Normal, 0.95), None);
    }
    assert_eq!(estimate(&[], Estimator::Ips, Interval::Normal, 0.95), None);
    assert!(
        warning(99.0, 1000).is_some() && warning(101.0, 1000).is_none() && warning(152.0, 5000).is_some()
    );
}

/// Contexts with two values, three actions, rewards 0 or 1: a world in which everything is known.
struct World {
    means: [[f64; 3]; 2],
    logging: [[f64; 3]; 2],
    policy: [[f64; 3]; 2],
    /// What a model that is somewhat wrong believes.
    model: [[f64; 3]; 2],
}

const WORLD: World = World {
    means: [[0.2, 0.5, 0.7], [0.6, 0.3, 0.4]],
    logging: [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]],
    policy: [[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]],
    model: [[0.25, 0.4, 0.65], [0.5, 0.35, 0.45]],
};

impl World {
    fn truth(&self) -> f64 {
        (0..2).flat_map(|x| (0..3).map(move |a| 0.5 * self.policy[x][a] * self.means[x][a])).sum()
    }

    fn log(&self, rows: u64, seed: u64) -> Vec<JudgedRow> {
        (0..rows)
            .map(|row| {
                let mut stream = Seed(seed).stream("log", row, 0);
                let x = stream.below(2) as usize;
                let (u, mut a) = (stream.uniform(), 0);
                let mut sum = self.logging[x][0];
                while u >= sum && a < 2 {
                    a += 1;
                    sum += self.logging[x][a];
                }
                JudgedRow {
                    reward: f64::from(u8::from(stream.uniform() < self.means[x][a])),
                    propensity: self.logging[x][a],
                    policy: self.policy[x][a],
                    expected: self.model[x][a],
                    expected_of_policy: (0..3).map(|b| self.policy[x][b] * self.model[x][b]).sum(),
                }
            })
            .collect()
    }
}

const UNBIASED: [Estimator; 3] = [Estimator::Ips, Estimator::Snips, Estimator::Dr];

#[test]
fn normal_intervals_cover_the_true_value_as_often_as_they_say() {
    let logs = 1000;
    for (estimator, level) in UNBIASED.into_iter().flat_map(|e| [(e, 0.9), (e, 0.95)]) {
        let covered = (0..logs)
            .filter(|&seed| {
                let found = estimate(&WORLD.log(500, seed), estimator, Interval::Normal, level).unwrap();
                (found.low..=found.high).contains(&WORLD.truth())
            })
            .count() as f64
            / f64::from(logs as u32);
        // Four standard deviations of a share of 1000, and a little for 500 rows being fewer than infinity.
        let margin = 4.0 * (level * (1.0 - level) / 1000.0f64).sqrt() + 0.01;
        assert!((covered - level).abs() < margin, "{estimator:?} {level}: {covered}");
    }
}

#[test]
fn bootstrap_intervals_cover_too_and_agree_with_normal_ones() {
    let logs = 200;
    for estimator in UNBIASED {
        let mut covered = 0;
        for seed in 0..logs {
            let log = WORLD.log(300, seed);
            let interval = Interval::Bootstrap { samples: 200, seed: Seed(seed) };
            let found = estimate(&log, estimator, interval, 0.9).unwrap();
            let normal = estimate(&log, estimator, Interval::Normal, 0.9).unwrap();
            covered += u32::from((found.low..=found.high).contains(&WORLD.truth()));
            let ratio = (found.high - found.low) / (normal.high - normal.low);
            assert!((0.6..1.5).contains(&ratio), "{estimator:?} {ratio}");
        }
        // 180 with standard deviation 4.2.
        assert!((160..=196).contains(&covered), "{estimator:?}: {covered}");
    }
}

#[test]
fn a_fair_model_makes_dr_vary_less_than_ips_and_dm_is_biased_as_its_model_is() {
    let variance_and_mean = |estimator| {
        let values: Vec<f64> = (0..400)
            .map(|seed| estimate(&WORLD.log(300, seed), estimator, Interval::Normal, 0.9).unwrap().value)
            .collect();
        let mean = values.iter().sum::<f64>() / 400.0;
        (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 399.0, mean)
    };
    let (ips, dr) = (variance_and_mean(Estimator::Ips), variance_and_mean(Estimator::Dr));
    assert!(dr.0 < 0.6 * ips.0, "{dr:?} {ips:?}");
    assert!((dr.1 - WORLD.truth()).abs() < 0.01 && (ips.1 - WORLD.truth()).abs() < 0.02);
    let model: f64 =
        (0..2).flat_map(|x| (0..3).map(move |a| 0.5 * WORLD.policy[x][a] * WORLD.model[x][a])).sum();
    assert!((variance_and_mean(Estimator::Dm).1 - model).abs() < 0.005);
}

/// A log of random choices among three actions that pay 0.2, 0.8 and 0.4 on average.
fn random_log(rows: u64) -> DecisionLog {
    let mut stream = Seed(4).stream("log", 0, 0);
    let means = [0.2, 0.8, 0.4];
    let rows: Vec<(u32, f64, f64)> = (0..rows)
        .map(|_| {
            let action = stream.below(3) as u32;
            (action, f64::from(u8::from(stream.uniform() < means[action as usize])), 1.0 / 3.0)
        })
        .collect();
    DecisionLog::of_actions(3, &rows)
}

#[test]
fn a_policy_that_learned_from_a_log_is_worth_what_its_best_action_pays() {
    let settings = EvaluationSettings {
        algorithm: Algorithm::LinUcb(LinUcb::default()),
        agents: 2,
        assignment: Assignment::Row,
        learn_share: 0.5,
        explore: 0.3,
        seed: Seed(1),
        judging: Judging::default(),
    };
    let found = evaluate(&random_log(6000), &settings).unwrap();
    assert_eq!((found.learned, found.findings.judged), (3000, 3000));
    // 0.7 of the best action and 0.3 of any.
    let truth = 0.7 * 0.8 + 0.3 * (0.2 + 0.8 + 0.4) / 3.0;
    for Named { name, estimate, .. } in found.findings.estimates {
        match estimate {
            None => assert_eq!(name, "replay", "a policy that explores never surely does the same"),
            Some(estimate) => assert!((estimate.value - truth).abs() < 0.06, "{name}: {estimate:?}, {truth}"),
        }
    }
    assert!(evaluate(&random_log(10), &EvaluationSettings { learn_share: 1.0, ..settings.clone() }).is_err());
    assert!(evaluate(&random_log(10), &EvaluationSettings { agents: 0, ..settings }).is_err());
}

#[test]
fn replay_lets_a_policy_learn_from_what_it_would_have_done() {
    let algorithm = Algorithm::LinUcb(LinUcb::default());
    let found = replay(&random_log(6000), &algorithm, 2, Assignment::Row, Seed(1), 0.95).unwrap();
    assert!(found.matched.abs_diff(2000) < 200, "{}", found.matched);
    let learned = found.estimate.unwrap();
    assert!(learned.value > 0.7 && found.logged < 0.52, "{learned:?} {}", found.logged);
}

/// A log of random choices between two actions, of which the sign of the context says which one pays.
fn contextual_log(rows: u64, propensity: impl Fn(u64) -> f64) -> (DecisionLog, f64) {
    let mut context = Vec::new();
    let rows: Vec<(u32, f64, f64)> = (0..rows)
        .map(|row| {
            let mut stream = Seed(9).stream("log", row, 0);
            let x = stream.uniform() - 0.5;
            let action = stream.below(2) as u32;
            let pays = if (x > 0.0) == (action == 1) { 0.9 } else { 0.1 };
            context.push(x);
            (action, f64::from(u8::from(stream.uniform() < pays)), propensity(row))
        })
        .collect();
    (DecisionLog::with_context(2, &rows, context, 1), 0.9)
}

/// The policy that follows the sign of the context.
fn sign_policy(log: &DecisionLog) -> Vec<[f64; 2]> {
    let follows = |row: usize| {
        let mut x = Vec::new();
        log.push_regressors(row, 0, &mut x);
        if x[0] > 0.0 { [0.0, 1.0] } else { [1.0, 0.0] }
    };
    (0..log.rows()).map(follows).collect()
}

fn written(log: &DecisionLog, rows: &[[f64; 2]], names: &str) -> Result<OwnPolicy, crate::DataError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.csv");
    let lines: String = rows.iter().map(|[a, b]| format!("{a},{b}\n")).collect();
    std::fs::write(&path, format!("{names}\n{lines}")).unwrap();
    read_policy(&path, log)
}

#[test]
fn a_contextual_model_knows_what_means_of_actions_do_not() {
    let (mut log, truth) = contextual_log(4000, |_| 0.5);
    log.names = vec!["left".into(), "right".into()];
    let policy = written(&log, &sign_policy(&log), "left,right").unwrap();
    let direct = |model: Option<ModelKind>| {
        let found = evaluate_own(&log, &policy, &Judging { model, ..Judging::default() }).unwrap();
        let value = found.estimates.iter().find(|own| own.name == "dm").unwrap().estimate.unwrap().value;
        (found, value)
    };
    // Either action pays half of the time: means know nothing of the sign.
    assert!((direct(Some(ModelKind::Means)).1 - 0.5).abs() < 0.05);
    let (found, value) = direct(None);
    assert_eq!(found.model, Some(ModelKind::Stumps), "the sign is a step: {}", found.explained);
    assert!((value - truth).abs() < 0.03 && found.explained > 0.5, "{value} {}", found.explained);
    for own in found.estimates {
        let estimate = own.estimate.unwrap();
        assert!((estimate.value - truth).abs() < 0.04, "{}: {estimate:?}", own.name);
    }
}

#[test]
fn one_probability_a_row_is_enough_for_estimators_without_a_model() {
    let (log, truth) = contextual_log(4000, |_| 0.5);
    let taken: String = sign_policy(&log)
        .iter()
        .enumerate()
        .map(|(row, own)| format!("{}\n", own[log.action(row)]))
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.csv");
    std::fs::write(&path, format!("p\n{taken}")).unwrap();
    let found = evaluate_own(&log, &read_policy(&path, &log).unwrap(), &Judging::default()).unwrap();
    for own in found.estimates {
        match own.name {
            "replay" | "ips" | "snips" => assert!((own.estimate.unwrap().value - truth).abs() < 0.04),
            _ => assert!(own.estimate.is_none()),
        }
    }
    std::fs::write(&path, "p\n1\n0.5\n").unwrap();
    assert!(read_policy(&path, &log).unwrap_err().to_string().contains("it has 2 rows, the log 4000"));
}

#[test]
fn a_policy_that_is_no_distribution_is_refused() {
    let (mut log, _) = contextual_log(3, |_| 0.5);
    log.names = vec!["left".into(), "right".into()];
    let said = |rows: &[[f64; 2]], names| written(&log, rows, names).unwrap_err().to_string();
    assert!(said(&[[0.7, 0.7]; 3], "left,right").contains("sum to 1.4, not to 1"));
    assert!(said(&[[1.5, -0.5]; 3], "left,right").contains("a probability from 0 to 1"));
    assert!(said(&[[1.0, 0.0]; 3], "left,up").contains("there is no column `right`"));
}

#[test]
fn impossible_propensities_are_refused_and_small_ones_clipped() {
    let (log, _) = contextual_log(400, |row| if row == 17 { 1e-300 } else { 0.5 });
    let policy = OwnPolicy::of_the_log(&log);
    let said = evaluate_own(&log, &policy, &Judging::default()).unwrap_err();
    assert!(said.starts_with("a propensity is 1e-300, in row 18"), "{said}");
    let (log, _) = contextual_log(400, |row| if row == 17 { 1e-6 } else { 0.5 });
    let found = evaluate_own(&log, &policy, &Judging::default()).unwrap();
    assert_eq!((found.clip, found.clipped), (20.0, 1), "√400");
    assert!(found.warnings.iter().any(|line| line.starts_with("1 of 400 rows had weights above 20")));
    let free = Judging { clip: Some(f64::INFINITY), ..Judging::default() };
    let found = evaluate_own(&log, &policy, &free).unwrap();
    assert_eq!(found.clipped, 0);
    assert!(found.effective < 2.0, "one row is all there is: {}", found.effective);
}

#[test]
fn propensities_that_do_not_fit_the_log_are_doubted() {
    let (mut log, _) = contextual_log(1000, |_| 0.5);
    log.names = vec!["left".into(), "right".into()];
    let policy = written(&log, &[[0.5, 0.5]; 1000], "left,right").unwrap();
    let said = |log: &DecisionLog| {
        let found = evaluate_own(log, &policy, &Judging::default()).unwrap();
        found.warnings.into_iter().find(|line| line.starts_with("weights average"))
    };
    assert_eq!(said(&log), None);
    let (low, _) = contextual_log(1000, |_| 0.25);
    assert!(said(&low).unwrap().contains("`ips` is too high"));
    let (high, _) = contextual_log(1000, |_| 1.0);
    assert!(said(&high).unwrap().contains("`ips` is too low"));
}

#[test]
fn replay_is_not_asked_about_a_log_that_was_not_made_at_random() {
    let (log, _) = contextual_log(400, |row| if row % 2 == 0 { 0.7 } else { 0.3 });
    let found = evaluate_own(&log, &OwnPolicy::of_the_log(&log), &Judging::default()).unwrap();
    let replay = found.estimates.iter().find(|own| own.name == "replay").unwrap();
    assert!(replay.estimate.is_none());
}

#[test]
fn propensities_that_nobody_logged_are_doubted() {
    let (mut log, _) = contextual_log(1000, |_| 0.5);
    log.assumed = true;
    let found = evaluate_own(&log, &OwnPolicy::of_the_log(&log), &Judging::default()).unwrap();
    assert!(
        found.warnings[0].starts_with("the log has no propensities: all actions count"),
        "{:?}",
        found.warnings
    );
    log.actions.iter_mut().take(400).for_each(|action| *action = 0);
    let found = evaluate_own(&log, &OwnPolicy::of_the_log(&log), &Judging::default()).unwrap();
    assert!(found.warnings[0].contains("were not taken at random"), "{:?}", found.warnings);
}

#[test]
fn bernstein_intervals_cover_always_and_are_wider() {
    for estimator in UNBIASED {
        for seed in 0..50 {
            let log = WORLD.log(400, seed);
            let wide = estimate(&log, estimator, Interval::Bernstein, 0.9).unwrap();
            let normal = estimate(&log, estimator, Interval::Normal, 0.9).unwrap();
            assert!((wide.low..=wide.high).contains(&WORLD.truth()), "{estimator:?} {seed}");
            assert!(wide.high - wide.low > normal.high - normal.low);
        }
    }
}

#[test]
fn parameters_follow_the_data() {
    let log = WORLD.log(2000, 3);
    let Estimator::Switch { threshold } = Estimator::Switch { threshold: 1.0 }.tuned(&log) else { panic!() };
    assert!(threshold >= 5.0, "weights up to 7 are worth keeping: {threshold}");
    // One wild row: leaving it to the model costs less than believing it.
    let mut wild = WORLD.log(200, 3);
    wild[0].propensity = 1e-4;
    let Estimator::Switch { threshold } = Estimator::Switch { threshold: 1.0 }.tuned(&wild) else { panic!() };
    assert!(threshold.is_finite(), "{threshold}");
}
