use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use pulp::{Simd, WithSimd};

use super::cholesky::Factorise;
use super::*;
use crate::arms::Arms;
use crate::lanes::{four_wide, widest};
use crate::random::Seed;
use crate::workers::tests::Backwards;
use crate::workers::{Piece, ThisThread};

/// The rows of a matrix, plainly.
type Dense = Vec<Vec<f64>>;

const LAMBDA: f64 = 0.1;

fn observations(d: usize, n: usize, seed: u64) -> Vec<(Vec<f64>, f64)> {
    let mut stream = Seed(seed).stream("observations", 0, 0);
    (0..n).map(|_| ((0..d).map(|_| stream.normal()).collect(), stream.normal())).collect()
}

fn arms(d: usize, k: usize, seed: u64) -> Arms {
    let rows: Vec<_> = observations(d, k, seed ^ 0xA53).into_iter().map(|(x, _)| x).collect();
    Arms::from_rows(d, &rows).unwrap()
}

fn evidence(d: usize, data: &[(Vec<f64>, f64)]) -> Evidence {
    let mut evidence = Evidence::none(d);
    data.iter().for_each(|(x, y)| evidence.observe(x, *y).unwrap());
    evidence
}

/// Σxxᵀ + λI and Σxy, by the definition.
fn textbook(d: usize, data: &[(Vec<f64>, f64)]) -> (Dense, Vec<f64>) {
    let mut v = vec![vec![0.0; d]; d];
    let mut b = vec![0.0; d];
    for (x, y) in data {
        for i in 0..d {
            (0..d).for_each(|j| v[i][j] += x[i] * x[j]);
            b[i] += x[i] * y;
        }
    }
    (0..d).for_each(|i| v[i][i] += LAMBDA);
    (v, b)
}

/// A⁻¹b by Gaussian elimination with pivoting, and ln det A on the way.
fn eliminate(a: &Dense, b: &[f64]) -> (Vec<f64>, f64) {
    let d = b.len();
    let mut a: Dense = a.iter().zip(b).map(|(row, b)| row.iter().copied().chain([*b]).collect()).collect();
    let mut ln_det = 0.0;
    for j in 0..d {
        let pivot = (j..d).max_by(|&p, &q| a[p][j].abs().total_cmp(&a[q][j].abs())).unwrap();
        a.swap(j, pivot);
        ln_det += libm::log(a[j][j].abs());
        let row = a[j].clone();
        for other in a.iter_mut().skip(j + 1) {
            let factor = other[j] / row[j];
            other.iter_mut().zip(&row).for_each(|(o, r)| *o -= factor * r);
        }
    }
    let mut x = vec![0.0; d];
    for j in (0..d).rev() {
        let known: f64 = (j + 1..d).map(|k| a[j][k] * x[k]).sum();
        x[j] = (a[j][d] - known) / a[j][j];
    }
    (x, ln_det)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn updated(d: usize, data: &[(Vec<f64>, f64)]) -> Factor {
    let mut factor = Factor::new(d, LAMBDA);
    let mut workspace = Workspace::new();
    for (x, y) in data {
        factor.update(x, *y, &mut workspace);
    }
    factor
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_factor_of_any_updates_multiplies_out_to_the_gram_matrix(
        d in 1usize..24, n in 0usize..60, seed: u64,
    ) {
        let data = observations(d, n, seed);
        let factor = updated(d, &data);
        let (v, _) = textbook(d, &data);
        for (i, row) in v.iter().enumerate() {
            for (j, expected) in row.iter().enumerate().take(i + 1) {
                let product: f64 = (0..=j).map(|k| factor.entry(k, i) * factor.entry(k, j)).sum();
                prop_assert!(close(product, *expected), "({i}, {j}): {product} {expected}");
            }
            prop_assert!(close(factor.entry(i, i) * factor.inverse_diagonal()[i], 1.0));
        }
    }

    #[test]
    fn every_query_agrees_with_gaussian_elimination(d in 1usize..24, n in 0usize..60, seed: u64) {
        let data = observations(d, n, seed);
        let factor = updated(d, &data);
        let (v, b) = textbook(d, &data);
        let (theta, ln_det) = eliminate(&v, &b);
        prop_assert!(close(factor.ln_det(), ln_det));
        let mut estimate = vec![0.0; d];
        factor.estimate(&mut estimate);
        prop_assert!(estimate.iter().zip(&theta).all(|(a, b)| close(*a, *b)));

        let arms = arms(d, 5, seed);
        let mut workspace = Workspace::new();
        let scores = factor.score(arms.all(), |_| 0.0, &mut workspace);
        for k in 0..arms.len() {
            let x = arms.row(k);
            let (solved, _) = eliminate(&v, x);
            prop_assert!(close(scores.means[k], dot(x, &theta)));
            prop_assert!(close(scores.widths[k] * scores.widths[k], dot(x, &solved)));
            let mut ours = x.to_vec();
            factor.solve_transposed(&mut ours);
            prop_assert!(close(dot(&ours, &ours).sqrt(), scores.widths[k]));
            factor.solve(&mut ours);
            prop_assert!(ours.iter().zip(&solved).all(|(a, b)| close(*a, *b)));
        }
    }

    #[test]
    fn a_refresh_equals_the_updates_it_sums_up(d in 1usize..40, n in 0usize..80, seed: u64) {
        let data = observations(d, n, seed);
        let (front, back) = data.split_at(n / 3);
        let mut fresh = Factor::new(d, 7.0);
        prop_assert!(fresh.refresh(LAMBDA, [evidence(d, front), evidence(d, back)].iter(), &ThisThread));
        let incremental = updated(d, &data);
        for (a, b) in fresh.entries().iter().zip(incremental.entries()) {
            prop_assert!(close(*a, b), "{a} {b}");
        }
    }

    #[test]
    fn noise_moves_means_by_a_triangular_solve(d in 1usize..20, n in 0usize..30, seed: u64) {
        let factor = updated(d, &observations(d, n, seed));
        let (noise, _) = observations(d, 1, seed ^ 1).remove(0);
        let arms = arms(d, 4, seed);
        let mut workspace = Workspace::new();
        let plain = factor.score(arms.all(), |_| 0.0, &mut workspace).means.to_vec();
        let moved = factor.score(arms.all(), |j| noise[j], &mut workspace).means.to_vec();
        let mut offset = noise;
        factor.solve(&mut offset);
        for k in 0..arms.len() {
            prop_assert!(close(moved[k] - plain[k], dot(arms.row(k), &offset)));
        }
    }

    #[test]
    fn arms_scored_together_score_as_if_alone(k in 1usize..70, d in 1usize..40, seed: u64) {
        let factor = updated(d, &observations(d, 2 * d, seed));
        let arms = arms(d, k, seed);
        let mut workspace = Workspace::new();
        let together = factor.score(arms.all(), |_| 0.0, &mut workspace);
        let together = (bits(together.means), bits(together.widths));
        for index in 0..k {
            let alone = Arms::from_rows(d, &[arms.row(index)]).unwrap();
            let alone = factor.score(alone.all(), |_| 0.0, &mut workspace);
            prop_assert_eq!(alone.means[0].to_bits(), together.0[index]);
            prop_assert_eq!(alone.widths[0].to_bits(), together.1[index]);
        }
    }

    #[test]
    fn columns_of_a_wider_matrix_score_like_a_narrow_one(
        d in 1usize..12, before in 0usize..5, after in 0usize..5, k in 1usize..20, seed: u64,
    ) {
        let factor = updated(d, &observations(d, d, seed));
        let wide = arms(before + d + after, k, seed);
        let narrow: Vec<_> = (0..k).map(|i| wide.row(i)[before..before + d].to_vec()).collect();
        let narrow = Arms::from_rows(d, &narrow).unwrap();
        let (mut one, mut two) = (Workspace::new(), Workspace::new());
        let one = factor.score(wide.columns(before, d), |_| 0.0, &mut one);
        let two = factor.score(narrow.all(), |_| 0.0, &mut two);
        prop_assert_eq!(bits(one.means), bits(two.means));
        prop_assert_eq!(bits(one.widths), bits(two.widths));
    }

    #[test]
    fn every_vector_width_gives_the_same_bits(d in 1usize..40, n in 0usize..20, k in 1usize..70, seed: u64) {
        let data = observations(d, n, seed);
        let arms = arms(d, k, seed);
        let dispatched = run(d, &data, &arms, Dispatched);
        prop_assert_eq!(&run(d, &data, &arms, Lanes(pulp::Scalar)), &dispatched);
        prop_assert_eq!(&run(d, &data, &arms, Lanes(pulp::Scalar128b)), &dispatched);
        prop_assert_eq!(&run(d, &data, &arms, Lanes(pulp::Scalar256b)), &dispatched);
    }
}

/// The same operations one number at a time. Their order fixes how every number is rounded, so that kernels may change and
/// results may not.
struct PlainFactor {
    /// Row j from column j on is U and q; what is left of the diagonal is not used.
    rows: Dense,
    inverse: Vec<f64>,
}

impl PlainFactor {
    fn append(&mut self, x: &[f64], y: f64) -> f64 {
        let mut w: Vec<f64> = x.iter().copied().chain([y]).collect();
        let (mut before, mut norm) = (1.0, 0.0);
        for (j, row) in self.rows.iter_mut().enumerate() {
            let z = w[j] * self.inverse[j];
            norm += z * z;
            let after = 1.0 + norm;
            let a = (after / before).sqrt();
            let b = z / (a * before);
            before = after;
            for k in j..w.len() {
                w[k] -= z * row[k];
                row[k] = a * row[k] + b * w[k];
            }
            self.inverse[j] /= a;
        }
        norm
    }

    fn factorise(&mut self) {
        for j in 0..self.rows.len() {
            let root = self.rows[j][j].sqrt();
            self.inverse[j] = 1.0 / root;
            for k in j + 1..self.rows[j].len() {
                self.rows[j][k] *= self.inverse[j];
            }
            self.rows[j][j] = root;
            for i in j + 1..self.rows.len() {
                for k in i..self.rows[j].len() {
                    self.rows[i][k] -= self.rows[j][i] * self.rows[j][k];
                }
            }
        }
    }

    fn score(&self, x: &[f64]) -> (f64, f64) {
        let (mut solved, mut mean, mut square) = (Vec::new(), 0.0, 0.0);
        for (j, &x) in x.iter().enumerate() {
            let mut z = x;
            for (i, earlier) in solved.iter().enumerate() {
                z -= self.rows[i][j] * earlier;
            }
            z *= self.inverse[j];
            square += z * z;
            mean += z * self.rows[j][self.rows.len()];
            solved.push(z);
        }
        (mean, square.sqrt())
    }

    fn agrees_with(&self, factor: &Factor) -> bool {
        let entries: Vec<f64> = self.rows.iter().enumerate().flat_map(|(j, row)| row[j..].to_vec()).collect();
        bits(&entries) == bits(&factor.entries()) && bits(&self.inverse) == bits(factor.inverse_diagonal())
    }
}

proptest! {
    #[test]
    fn kernels_round_every_number_as_plain_loops_do(
        d in 1usize..40, n in 1usize..20, k in 1usize..40, seed: u64,
    ) {
        let data = observations(d, n, seed);
        let rows = (0..d).map(|j| (0..=d).map(|i| if i == j { LAMBDA.sqrt() } else { 0.0 }).collect());
        let mut plain = PlainFactor { rows: rows.collect(), inverse: vec![1.0 / LAMBDA.sqrt(); d] };
        let (mut factor, mut workspace) = (Factor::new(d, LAMBDA), Workspace::new());
        for (x, y) in &data {
            let norm = factor.update(x, *y, &mut workspace);
            prop_assert_eq!(norm.to_bits(), plain.append(x, *y).to_bits());
            prop_assert!(plain.agrees_with(&factor));
        }
        let arms = arms(d, k, seed);
        let scores = factor.score(arms.all(), |_| 0.0, &mut workspace);
        for index in 0..k {
            let (mean, width) = plain.score(arms.row(index));
            prop_assert_eq!(scores.means[index].to_bits(), mean.to_bits());
            prop_assert_eq!(scores.widths[index].to_bits(), width.to_bits());
        }
        let sum = evidence(d, &data);
        for j in 0..d {
            for i in j..d {
                plain.rows[j][i] = sum.gram()[packed(i) + j] + if i == j { LAMBDA } else { 0.0 };
            }
            plain.rows[j][d] = sum.moment()[j];
        }
        plain.factorise();
        prop_assert!(factor.refresh(LAMBDA, [&sum].into_iter(), &ThisThread));
        prop_assert!(plain.agrees_with(&factor));
    }
}

/// How an operation reaches an instruction set.
trait Route: Copy {
    fn take<O: WithSimd>(self, operation: O) -> O::Output;
}

#[derive(Clone, Copy)]
struct Dispatched;

#[derive(Clone, Copy)]
struct Lanes<S>(S);

impl Route for Dispatched {
    fn take<O: WithSimd>(self, operation: O) -> O::Output {
        four_wide().dispatch(operation)
    }
}

impl<S: Simd> Route for Lanes<S> {
    fn take<O: WithSimd>(self, operation: O) -> O::Output {
        operation.with_simd(self.0)
    }
}

/// Updates, a factorisation and scores by one route: every number they give, as bits.
fn run(d: usize, data: &[(Vec<f64>, f64)], arms: &Arms, route: impl Route) -> Vec<u64> {
    let mut workspace = Workspace::new();
    workspace.reserve(d, arms.len());
    let mut seen = Vec::new();
    let mut factor = Factor::new(d, LAMBDA);
    for (x, y) in data {
        let appended = &mut workspace.tile;
        seen.push(route.take(AppendRow { factor: &mut factor, appended, x, y: *y }));
    }
    seen.extend(factor.entries());
    seen.extend(factor.inverse_diagonal());

    let mut fresh = Factor::new(d, LAMBDA);
    let sum = evidence(d, data);
    for i in 0..d {
        for j in 0..=i {
            let regularization = if i == j { LAMBDA } else { 0.0 };
            fresh.rows[fresh.offset[j] as usize + i] = sum.gram()[i * (i + 1) / 2 + j] + regularization;
        }
        fresh.rows[fresh.offset[i] as usize + d] = sum.moment()[i];
    }
    assert!(route.take(Factorise { factor: &mut fresh, panel: PANEL }));
    seen.extend(fresh.entries());

    for factor in [&factor, &fresh] {
        for j in 0..d {
            workspace.q[j] = factor.entry(j, d);
        }
        route.take(Score { factor, arms: arms.all(), workspace: &mut workspace });
        seen.extend(&workspace.means[..arms.len()]);
        seen.extend(&workspace.widths[..arms.len()]);
    }
    bits(&seen)
}

/// Means and widths of all arms by one route, as bits.
fn scored(factor: &Factor, arms: &Arms, route: impl Route) -> Vec<u64> {
    let mut workspace = Workspace::new();
    let d = factor.dimension;
    workspace.reserve(d, arms.len());
    (0..d).for_each(|j| workspace.q[j] = factor.entry(j, d));
    route.take(Score { factor, arms: arms.all(), workspace: &mut workspace });
    bits(&[&workspace.means[..arms.len()], &workspace.widths[..arms.len()]].concat())
}

/// Only scoring works on vectors of eight numbers.
#[test]
fn arms_are_scored_with_the_same_bits_eight_at_a_time() {
    #[derive(Clone, Copy)]
    struct Widest;

    impl Route for Widest {
        fn take<O: WithSimd>(self, operation: O) -> O::Output {
            widest().dispatch(operation)
        }
    }

    for d in [1, 3, 4, 5, 6, 7, 8, 9, 16, 25, 26, 30] {
        let mut factor = Factor::new(d, LAMBDA);
        let mut workspace = Workspace::new();
        for (x, y) in observations(d, 40, 5) {
            factor.update(&x, y, &mut workspace);
        }
        for k in [1, 2, 7, 8, 9, 10, 16, 17, 24, 25, 31, 33, 34, 63, 64, 65, 200] {
            let arms = arms(d, k, 6);
            let plain = scored(&factor, &arms, Lanes(pulp::Scalar));
            assert_eq!(scored(&factor, &arms, Lanes(pulp::Scalar512b)), plain, "{d} features, {k} arms");
            assert_eq!(scored(&factor, &arms, Widest), plain, "{d} features, {k} arms");
        }
    }
}

/// A matrix to be decomposed, diagonally dominant so that it has a factor.
fn dominant(d: usize) -> Factor {
    let mut stream = Seed(d as u64).stream("matrix", 0, 0);
    let mut factor = Factor::new(d, LAMBDA);
    factor.rows.iter_mut().for_each(|entry| *entry = stream.normal());
    (0..d).for_each(|j| factor.rows[factor.offset[j] as usize + j] = 2.0 * d as f64);
    factor
}

#[test]
fn any_number_of_workers_gives_the_bits_of_one() {
    for d in [319, 320, 321, 324, 383, 385, 451] {
        let factor = dominant(d);
        let mut plain = factor.clone();
        assert!(Lanes(pulp::Scalar).take(Factorise { factor: &mut plain, panel: d.next_multiple_of(CHUNK) }));
        for count in [1, 2, 3, 5] {
            let mut shared = factor.clone();
            assert!(factorise(&mut shared, PANEL, &Backwards(count)));
            assert!(bits(&shared.entries()) == bits(&plain.entries()), "d = {d}, {count} workers");
            assert!(bits(shared.inverse_diagonal()) == bits(plain.inverse_diagonal()));
        }
    }
}

#[test]
fn workers_do_the_work_and_see_a_matrix_that_has_no_factor() {
    /// Counts the pieces.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl Workers for Counting {
        fn count(&self) -> usize {
            2
        }

        fn run(&self, pieces: Vec<Piece<'_>>) {
            self.0.fetch_add(pieces.len(), Ordering::Relaxed);
            pieces.into_iter().for_each(|piece| piece());
        }
    }
    let pieces = |d: usize| {
        let workers = Counting::default();
        assert!(factorise(&mut dominant(d), PANEL, &workers));
        workers.0.into_inner()
    };
    assert_eq!(pieces(256), 0, "too little to be handed out");
    assert!(pieces(520) > 8);
    let mut singular = dominant(400);
    let last = singular.offset[399] as usize + 399;
    singular.rows[last] = -1.0;
    assert!(!factorise(&mut singular, PANEL, &Backwards(3)));
}

/// A whole matrix in one panel is passed over for every four rows: the plain way.
#[test]
fn panels_of_any_height_give_the_bits_of_the_plain_way() {
    fn factorised(factor: &Factor, panel: usize, route: impl Route) -> Vec<u64> {
        let mut factor = factor.clone();
        assert!(route.take(Factorise { factor: &mut factor, panel }));
        bits(&[&factor.entries()[..], factor.inverse_diagonal()].concat())
    }
    for d in [1, 7, 63, 64, 65, 68, 130, 199] {
        let factor = dominant(d);
        let plain = factorised(&factor, d.next_multiple_of(CHUNK), Lanes(pulp::Scalar));
        for panel in [CHUNK, 12, PANEL] {
            assert!(factorised(&factor, panel, Dispatched) == plain, "d = {d}, {panel} rows");
            assert!(factorised(&factor, panel, Lanes(pulp::Scalar)) == plain, "d = {d}, {panel} rows");
        }
    }
}

#[test]
fn arms_without_features_have_no_mean_and_no_width() {
    let factor = Factor::new(0, LAMBDA);
    let arms = arms(3, 9, 1);
    let mut workspace = Workspace::new();
    let scores = factor.score(arms.columns(3, 0), |_| 0.0, &mut workspace);
    assert_eq!((scores.means, scores.widths), (&[0.0; 9][..], &[0.0; 9][..]));
}

#[test]
fn a_workspace_serves_dimensions_in_any_order() {
    let mut shared = Workspace::new();
    for d in [7, 1, 30, 2, 31, 5] {
        let factor = updated(d, &observations(d, 9, d as u64));
        let arms = arms(d, 3 * d, 4);
        let mut own = Workspace::new();
        let expected = bits(factor.score(arms.all(), |_| 0.0, &mut own).means);
        assert_eq!(bits(factor.score(arms.all(), |_| 0.0, &mut shared).means), expected);
        let (mut one, mut two) = (factor.clone(), factor);
        one.update(arms.row(0), 1.0, &mut own);
        two.update(arms.row(0), 1.0, &mut shared);
        assert_eq!(bits(&one.entries()), bits(&two.entries()));
    }
}

#[test]
fn numbers_that_are_no_factor_are_not_restored() {
    let good = updated(3, &observations(3, 5, 1));
    let restored = |change: &dyn Fn(&mut Vec<f64>, &mut Vec<f64>)| {
        let (mut entries, mut inverse) = (good.entries(), good.inverse_diagonal().to_vec());
        change(&mut entries, &mut inverse);
        Factor::new(3, LAMBDA).restore(&entries, &inverse)
    };
    assert!(restored(&|_, _| {}));
    assert!(!restored(&|entries, _| entries.truncate(8)));
    assert!(!restored(&|_, inverse| inverse.push(1.0)));
    assert!(!restored(&|entries, _| entries[1] = f64::NAN));
    assert!(!restored(&|entries, _| entries[0] = 0.0));
    assert!(!restored(&|entries, _| entries[0] = -1.0));
    assert!(!restored(&|_, inverse| inverse[2] = f64::INFINITY));
    assert!(!restored(&|_, inverse| inverse[2] = 0.0));
}
