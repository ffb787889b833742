use proptest::prelude::*;

use super::*;
use crate::arms::Arms;
use crate::random::Seed;

const LAMBDA: f64 = 0.1;

/// Observations with their sum, and the model that learned them one by one.
struct Learned {
    data: Vec<(Vec<f64>, f64)>,
    evidence: Evidence,
    model: Ridge,
}

fn learned(d: usize, n: usize, seed: u64) -> Learned {
    let mut stream = Seed(seed).stream("observations", 0, 0);
    let (mut evidence, mut model) = (Evidence::none(d), Ridge::new(d, LAMBDA));
    let mut data = Vec::new();
    for _ in 0..n {
        let x: Vec<f64> = (0..d).map(|_| stream.normal()).collect();
        let y = stream.normal();
        evidence.add_observation(&x, y);
        model.learn(&x, y, [&evidence].into_iter());
        data.push((x, y));
    }
    Learned { data, evidence, model }
}

/// Means and squared widths of a few fixed arms, as bits.
fn scores(model: &Ridge) -> Vec<u64> {
    let d = model.dimension();
    let mut stream = Seed(9).stream("arms", 0, 0);
    let rows: Vec<Vec<f64>> = (0..6).map(|_| (0..d).map(|_| stream.normal()).collect()).collect();
    let arms = Arms::from_rows(d, &rows).unwrap();
    model.score(arms.all(), |scores| scores.means.iter().chain(scores.widths).map(|v| v.to_bits()).collect())
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// ln det(I + V/λ) by elimination without pivoting, which definite matrices do not need.
fn information(evidence: &Evidence) -> f64 {
    let d = evidence.dimension();
    let entry = |i: usize, j: usize| evidence.gram()[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)];
    let mut a: Vec<Vec<f64>> = (0..d)
        .map(|i| (0..d).map(|j| entry(i, j) / LAMBDA + if i == j { 1.0 } else { 0.0 }).collect())
        .collect();
    let mut ln_det = 0.0;
    for j in 0..d {
        ln_det += libm::log(a[j][j]);
        let row = a[j].clone();
        for other in a.iter_mut().skip(j + 1) {
            let factor = other[j] / row[j];
            other.iter_mut().zip(&row).for_each(|(o, r)| *o -= factor * r);
        }
    }
    ln_det
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_information_is_the_log_determinant_and_grows_by_each_gain(
        d in 1usize..16, n in 0usize..50, seed: u64,
    ) {
        let mut model = Ridge::new(d, LAMBDA);
        prop_assert_eq!(model.information().to_bits(), 0.0_f64.to_bits());
        let all = learned(d, n, seed);
        for (x, y) in &all.data {
            let before = model.information();
            let mut p = x.clone();
            model.solve(&mut p);
            let square: f64 = x.iter().zip(&p).map(|(x, p)| x * p).sum();
            let gain = model.append(x, *y);
            prop_assert!(gain > 0.0 && close(gain, libm::log1p(square)));
            prop_assert_eq!(model.information(), before + gain);
        }
        prop_assert!(close(model.information(), information(&all.evidence)));
        model.refresh([&all.evidence].into_iter()).unwrap();
        prop_assert!(close(model.information(), information(&all.evidence)));
    }

    #[test]
    fn the_estimate_solves_the_normal_equations(d in 1usize..16, n in 0usize..50, seed: u64) {
        let Learned { evidence, model, .. } = learned(d, n, seed);
        let theta = model.estimate();
        for i in 0..d {
            let row = |j: usize| evidence.gram()[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)];
            let left = LAMBDA * theta[i] + (0..d).map(|j| row(j) * theta[j]).sum::<f64>();
            prop_assert!((left - evidence.moment()[i]).abs() < 1e-9 * (1.0 + n as f64));
        }
    }

    #[test]
    fn a_saved_model_goes_on_with_the_same_bits(d in 1usize..20, n in 0usize..40, seed: u64) {
        let Learned { data, mut model, .. } = learned(d, n, seed);
        let mut restored = Ridge::new(d, LAMBDA);
        restored.restore(&model.save()).unwrap();
        for (x, y) in data.iter().take(3) {
            prop_assert_eq!(model.append(x, *y).to_bits(), restored.append(x, *y).to_bits());
        }
        prop_assert_eq!(scores(&model), scores(&restored));
        prop_assert_eq!(model.save(), restored.save());
    }
}

#[test]
fn features_of_zero_change_nothing_but_the_count() {
    let Learned { mut evidence, mut model, .. } = learned(5, 8, 3);
    let (before, sum) = (scores(&model), evidence.clone());
    evidence.add_observation(&[0.0; 5], 1.0);
    assert_eq!(model.learn(&[0.0; 5], 1.0, [&evidence].into_iter()).to_bits(), 0.0_f64.to_bits());
    assert_eq!(scores(&model), before);
    assert_eq!((evidence.gram(), evidence.moment()), (sum.gram(), sum.moment()));
    assert_eq!(evidence.count(), sum.count() + 1);
}

#[test]
fn no_data_gives_exactly_no_information_for_any_regularization() {
    for lambda in [1e-9, 0.1, 0.3, 1.0, 7.7, 1e12] {
        let mut model = Ridge::new(3, lambda);
        model.refresh([&Evidence::none(3), &Evidence::none(3)].into_iter()).unwrap();
        assert_eq!(model.information().to_bits(), 0.0_f64.to_bits(), "{lambda}");
    }
}

#[test]
fn repairs_happen_and_find_next_to_no_drift() {
    let Learned { data, evidence, model } = learned(10, 1000, 5);
    let mut never_repaired = Ridge::new(10, LAMBDA);
    for (x, y) in &data {
        never_repaired.append(x, *y);
    }
    assert!(model.updates < UPDATES_BETWEEN_REFRESHES && never_repaired.updates == 1000);
    assert!(model.drift() < 1e-9, "{}", model.drift());
    assert!(close(model.information(), never_repaired.information()));
    assert!(close(model.information(), information(&evidence)));
    let pairs = model.estimate().into_iter().zip(never_repaired.estimate());
    pairs.for_each(|(a, b)| assert!(close(a, b), "{a} {b}"));
}

#[test]
fn hostile_evidence_is_refused_and_every_score_stays() {
    let hostile =
        |gram: &[f64], moment: &[f64]| Evidence::from_parts_unchecked(gram.to_vec(), moment.to_vec(), 10);
    let big = f64::MAX;
    let cases = [
        ("NaN on the diagonal", hostile(&[1.0, 0.0, f64::NAN, 0.0, 0.0, 1.0], &[0.0; 3])),
        ("NaN off it", hostile(&[1.0, 0.0, 1.0, 0.0, f64::NAN, 1.0], &[0.0; 3])),
        ("infinity", hostile(&[1.0, 0.0, f64::INFINITY, 0.0, 0.0, 1.0], &[0.0; 3])),
        ("negative", hostile(&[-1.0, 0.0, 1.0, 0.0, 0.0, 1.0], &[0.0; 3])),
        ("indefinite with every pair possible", hostile(&[9.0, -8.0, 9.0, -8.0, -8.0, 9.0], &[0.0; 3])),
        ("NaN in the moment", hostile(&[1.0, 0.0, 1.0, 0.0, 0.0, 1.0], &[0.0, 0.0, f64::NAN])),
        ("a moment whose solution overflows", hostile(&[0.0; 6], &[big, 0.0, 0.0])),
    ];
    let mut model = learned(3, 4, 6).model;
    let before = (scores(&model), model.save());
    for (what, evidence) in cases {
        let refused = model.refresh([&evidence].into_iter());
        assert!(matches!(refused, Err(ProtocolError::Evidence(_))), "{what}: {refused:?}");
        assert_eq!((scores(&model), model.save()), before, "{what}");
    }
    let sum = hostile(&[1.0, 0.0, 1.0, 0.0, 0.0, 1.0], &[big, 0.0, 0.0]);
    model.refresh([&sum, &sum].into_iter()).unwrap_err();
    assert_eq!((scores(&model), model.save()), before);
}

#[test]
fn evidence_of_another_dimension_is_refused() {
    let mut model = learned(3, 4, 6).model;
    let before = model.save();
    for d in [0, 2, 4] {
        let refused = model.refresh([&Evidence::none(3), &Evidence::none(d)].into_iter());
        assert_eq!(refused, Err(ProtocolError::Dimension { expected: 3, got: d }));
        assert_eq!(model.save(), before);
    }
}

#[test]
fn another_dimensions_model_is_not_restored() {
    let mut model = learned(3, 4, 6).model;
    let before = model.save();
    model.restore(&learned(4, 4, 6).model.save()).unwrap_err();
    let mut spoiled = before.clone();
    spoiled.information = f64::NAN;
    model.restore(&spoiled).unwrap_err();
    assert_eq!(model.save(), before);
}

/// What evidence remembers of a model is what making one gives, to the last bit, and what has none is refused as before.
#[test]
fn evidence_that_remembers_its_model_is_checked_like_evidence_that_does_not() {
    let plain = learned(7, 20, 3).evidence;
    let (mut known, mut model) = (plain.clone(), Ridge::new(7, LAMBDA));
    model.refresh_noting(&mut known, &ThisThread).unwrap();
    let (plain, known) = (Arc::new(plain), Arc::new(known));
    for regularization in [LAMBDA, 1.0] {
        let (one, other) =
            (Ridge::check(&plain, regularization).unwrap(), Ridge::check(&known, regularization).unwrap());
        assert_eq!(one.to_bits(), other.to_bits());
        let mut copies = [Ridge::new(7, regularization), Ridge::new(7, regularization)];
        copies[0].refresh_to(&plain).unwrap();
        copies[1].refresh_to(&known).unwrap();
        assert_eq!(scores(&copies[0]), scores(&copies[1]));
    }
    let mut impossible = Evidence::from_parts_unchecked(vec![-1.0], vec![0.0], 1);
    let mut model = Ridge::new(1, LAMBDA);
    let refused = model.refresh_noting(&mut impossible, &ThisThread).is_err();
    assert!(refused && model.check_fit(&impossible, &ThisThread).is_err());
    assert_eq!(impossible.known_information(LAMBDA), None);
    assert!(Ridge::check(&Arc::new(impossible), LAMBDA).is_err());
}
