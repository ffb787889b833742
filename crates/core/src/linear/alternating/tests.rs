use proptest::prelude::*;

use super::*;
use crate::random::Seed;

const LAMBDA: f64 = 0.3;

fn vector(d: usize, scale: f64, seed: u64) -> Vec<f64> {
    let mut stream = Seed(seed).stream("vector", 0, 0);
    (0..d).map(|_| scale * stream.normal()).collect()
}

fn projected(mut theta: Vec<f64>, radius: f64) -> Vec<f64> {
    project(&mut theta, radius);
    theta
}

fn norm(theta: &[f64]) -> f64 {
    dot(theta, theta).sqrt()
}

/// Observations of one block, as rows.
fn block(d: usize, n: usize, seed: u64) -> (Evidence, Ridge) {
    let mut evidence = Evidence::none(d);
    let mut model = Ridge::new(d, LAMBDA);
    for row in 0..n as u64 {
        let x = vector(d, 1.0, seed ^ (row << 8));
        let y = vector(1, 1.5, seed ^ (row << 8) ^ 1)[0];
        evidence.add_observation(&x, y);
        model.append(&x, y);
    }
    (evidence, model)
}

/// (V + xxᵀ + λI)⁻¹(b + r·x) by Gaussian elimination.
fn with_observation(evidence: &Evidence, x: &[f64], r: f64) -> Vec<f64> {
    let d = x.len();
    let gram = |i: usize, j: usize| evidence.gram()[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)];
    let mut a: Vec<Vec<f64>> = (0..d)
        .map(|i| {
            let ridge = |j| if i == j { LAMBDA } else { 0.0 };
            let row = (0..d).map(|j| gram(i, j) + x[i] * x[j] + ridge(j));
            row.chain([evidence.moment()[i] + r * x[i]]).collect()
        })
        .collect();
    for j in 0..d {
        let row = a[j].clone();
        for other in a.iter_mut().skip(j + 1) {
            let factor = other[j] / row[j];
            other.iter_mut().zip(&row).for_each(|(o, r)| *o -= factor * r);
        }
    }
    let mut theta = vec![0.0; d];
    for j in (0..d).rev() {
        let known: f64 = (j + 1..d).map(|k| a[j][k] * theta[k]).sum();
        theta[j] = (a[j][d] - known) / a[j][j];
    }
    theta
}

proptest! {
    #[test]
    fn projecting_stays_in_the_ball_and_twice_is_once(
        d in 0usize..9, scale in 0.0..5.0f64, radius in 0.1..4.0f64, seed: u64,
    ) {
        let theta = vector(d, scale, seed);
        let once = projected(theta.clone(), radius);
        prop_assert!(norm(&once) <= radius * (1.0 + 1e-15));
        prop_assert!(distance(&projected(once.clone(), radius), &once) < 1e-14);
        if norm(&theta) <= radius {
            prop_assert_eq!(once, theta);
        } else {
            // The nearest point of the ball lies on the ray.
            prop_assert!(distance(&once, &theta) <= norm(&theta) - radius + 1e-12);
        }
    }

    #[test]
    fn projecting_brings_no_two_points_further_apart(d in 1usize..9, scale in 0.0..5.0f64, seed: u64) {
        let (a, b) = (vector(d, scale, seed), vector(d, scale, seed ^ 1));
        let apart = distance(&a, &b);
        prop_assert!(distance(&projected(a, 1.0), &projected(b, 1.0)) <= apart * (1.0 + 1e-12));
    }

    #[test]
    fn one_reward_is_split_like_by_plain_alternation(
        dimensions in (1usize..6, 1usize..6), n in 0usize..12, reward in -3.0..3.0f64, radius in 0.3..4.0f64, seed: u64,
    ) {
        let (shared, shared_model) = block(dimensions.0, n, seed);
        let (local, local_model) = block(dimensions.1, n / 2, seed ^ 7);
        let (x, z) = (vector(dimensions.0, 1.0, seed ^ 8), vector(dimensions.1, 1.0, seed ^ 9));
        let mut theta = projected(shared_model.estimate(), radius);
        let mut from_local = 0.0;
        for _ in 0..100 {
            let theta_local = projected(with_observation(&local, &z, reward - dot(&x, &theta)), radius);
            from_local = dot(&z, &theta_local);
            theta = projected(with_observation(&shared, &x, reward - from_local), radius);
        }
        let expected = (reward - from_local, reward - dot(&x, &theta));
        let (to_shared, to_local) = split_one(&shared_model, &x, &local_model, &z, reward, radius, 100);
        prop_assert!((to_shared - expected.0).abs() < 1e-6, "{to_shared} {}", expected.0);
        prop_assert!((to_local - expected.1).abs() < 1e-6, "{to_local} {}", expected.1);
    }

    #[test]
    fn without_local_features_the_whole_reward_is_shared(d in 1usize..6, n in 0usize..9, seed: u64) {
        let (_, model) = block(d, n, seed);
        let x = vector(d, 1.0, seed ^ 3);
        let split = split_one(&model, &x, &Ridge::new(0, LAMBDA), &[], 0.7, 1.0, 100);
        prop_assert_eq!(split, (0.7, 0.0));
    }

    #[test]
    fn splitting_a_history_ends_where_neither_block_wants_to_move(
        dimensions in (1usize..4, 1usize..4), n in 8usize..20, radius in 0.5..4.0f64, seed: u64,
    ) {
        let (d_g, d_l) = dimensions;
        let truth = [(d_g, seed), (d_l, seed ^ 1)].map(|(d, seed)| projected(vector(d, 0.3 * radius, seed), radius));
        let mut history = UnsplitHistory::new(d_g + d_l);
        for row in 0..n as u64 {
            let arm = vector(d_g + d_l, 1.0, seed ^ (row << 9) ^ 2);
            history.push(&arm, dot(&arm[..d_g], &truth[0]) + dot(&arm[d_g..], &truth[1]));
        }
        let split = |arm| <[f64]>::split_at(arm, d_g);
        let shared = Evidence::none(d_g);
        let (theta, local) = history.split(split, &shared, vec![0.0; d_g], d_l, LAMBDA, radius, 20_000);
        let mut own = (Evidence::none(d_g), Evidence::none(d_l));
        for (arm, reward) in history.rows() {
            let (x, z) = arm.split_at(d_g);
            own.0.add_observation(x, reward - dot(z, &local));
            own.1.add_observation(z, reward - dot(x, &theta));
        }
        // An observation of zeros leaves the sums as they are.
        let again = projected(with_observation(&own.0, &vec![0.0; d_g], 0.0), radius);
        prop_assert!(distance(&again, &theta) < 1e-5);
        let again = projected(with_observation(&own.1, &vec![0.0; d_l], 0.0), radius);
        prop_assert!(distance(&again, &local) < 1e-5);
    }
}

#[test]
fn a_rank_is_full_when_observations_span_all_directions() {
    let mut evidence = Evidence::none(3);
    assert!(!has_full_rank(&evidence));
    for x in [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0], [2.0, -1.0, 2.0]] {
        evidence.add_observation(&x, 0.0);
        assert!(!has_full_rank(&evidence), "all of them lie in a plane");
    }
    evidence.add_observation(&[0.0, 0.0, 1e-6], 0.0);
    assert!(!has_full_rank(&evidence), "next to nothing in the third direction");
    evidence.add_observation(&[0.0, 0.0, 0.1], 0.0);
    assert!(has_full_rank(&evidence));
    assert!(has_full_rank(&Evidence::none(0)));
}

#[test]
fn a_history_that_does_not_fit_is_not_restored() {
    UnsplitHistory::from_parts(2, &[1.0, 2.0, 3.0], &[1.0]).unwrap_err();
    UnsplitHistory::from_parts(2, &[1.0, f64::NAN], &[1.0]).unwrap_err();
    UnsplitHistory::from_parts(2, &[1.0, 2.0], &[f64::INFINITY]).unwrap_err();
    assert_eq!(UnsplitHistory::from_parts(2, &[1.0, 2.0], &[3.0]).unwrap().evidence().count(), 1);
}
