//! Kernel ridge regression over a growing history.
//!
//! With K the kernel of all pairs of observed arms, k that of an arm with each of them and y their rewards, the
//! arm has mean kᵀ(K + λI)⁻¹y and variance k(x, x) − kᵀ(K + λI)⁻¹k. In terms of K + λI = LLᵀ, z = L⁻¹k and
//! q = L⁻¹y they are zᵀq and k(x, x) − ‖z‖².

use pulp::{Simd, WithSimd};

use super::factor::GrowingFactor;
use super::function::Kernel;
use crate::arms::Arms;
use crate::error::InputError;
use crate::exponential::{LANES, Lanes};
use crate::lanes::four_wide;

/// A diagonal entry that rounding made smaller than this share of the kernel's own is raised to it. Only kernels
/// whose values differ by this much between arms notice.
const SMALLEST_PIVOT: f64 = 1e-12;

/// What was observed, and what follows from it.
#[derive(Clone, Debug)]
pub(super) struct KernelRegression {
    kernel: Kernel,
    inverse_square_scale: f64,
    regularization: f64,
    dimension: usize,
    /// Observed arms in blocks of [`LANES`]: a row of lanes a feature.
    points: Vec<Lanes>,
    rewards: Vec<f64>,
    factor: GrowingFactor,
    q: Vec<Lanes>,
    /// Memory for the columns of an offer.
    scratch: Vec<Lanes>,
}

/// What is believed about an arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prediction {
    pub(super) mean: f64,
    /// The posterior variance, zero or more.
    pub(super) variance: f64,
}

impl KernelRegression {
    pub(super) fn new(kernel: Kernel, length_scale: f64, regularization: f64, dimension: usize) -> Self {
        Self {
            kernel,
            inverse_square_scale: 1.0 / (length_scale * length_scale),
            regularization,
            dimension,
            points: Vec::new(),
            rewards: Vec::new(),
            factor: GrowingFactor::new(),
            q: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// The same settings, nothing observed.
    pub(super) fn forgotten(&self) -> Self {
        Self {
            points: Vec::new(),
            rewards: Vec::new(),
            factor: GrowingFactor::new(),
            q: Vec::new(),
            scratch: Vec::new(),
            ..*self
        }
    }

    pub(super) const fn dimension(&self) -> usize {
        self.dimension
    }

    pub(super) const fn len(&self) -> usize {
        self.factor.len()
    }

    /// ln det(I + K/λ): by how much the observations narrowed what is believed. Zero without any.
    pub(super) fn information(&self) -> f64 {
        let log = libm::log(self.regularization);
        self.factor.diagonal().map(|entry| 2.0 * libm::log(entry) - log).sum()
    }

    /// Shows the belief about each arm to `visit`, in order.
    pub(super) fn score(&mut self, arms: &Arms, mut visit: impl FnMut(usize, Prediction)) {
        let blocks = self.factor.blocks();
        let mut columns = std::mem::take(&mut self.scratch);
        columns.resize(arms.len() * blocks, [0.0; LANES]);
        for (index, column) in columns.chunks_mut(blocks.max(1)).enumerate() {
            self.compare(arms.row(index), column);
        }
        self.factor.solve(&mut columns);
        for index in 0..arms.len() {
            let (square, mean) = self.sums(&columns[index * blocks..][..blocks]);
            let own = self.kernel.with_itself(arms.row(index), self.inverse_square_scale);
            // Rounding may leave less than nothing. NaN, from enormous features, stays NaN.
            let variance = if own - square < 0.0 { 0.0 } else { own - square };
            visit(index, Prediction { mean, variance });
        }
        self.scratch = columns;
    }

    /// Adds an observation that was checked before; or says that numbers would overflow, and changes nothing.
    pub(super) fn append(&mut self, x: &[f64], y: f64) -> Result<(), InputError> {
        let mut z = std::mem::take(&mut self.scratch);
        z.clear();
        z.resize(self.factor.blocks(), [0.0; LANES]);
        self.compare(x, &mut z);
        self.factor.solve(&mut z);
        let (square, mean) = self.sums(&z);
        let own = self.kernel.with_itself(x, self.inverse_square_scale) + self.regularization;
        // What is left of A_nn is never below λ, if numbers are exact.
        let pivot = (own - square).max(self.regularization).max(SMALLEST_PIVOT * own);
        let diagonal = pivot.sqrt();
        let next_q = (y - mean) / diagonal;
        let finite = square.is_finite() && diagonal.is_finite() && next_q.is_finite();
        if finite {
            let (block, lane) = (self.len() / LANES, self.len() % LANES);
            if lane == 0 {
                self.points.resize(self.points.len() + self.dimension, [0.0; LANES]);
                self.q.push([0.0; LANES]);
            }
            for (row, x) in self.points[block * self.dimension..].iter_mut().zip(x) {
                row[lane] = *x;
            }
            self.q[block][lane] = next_q;
            self.rewards.push(y);
            self.factor.append(&z, diagonal);
        }
        self.scratch = z;
        if finite { Ok(()) } else { Err(InputError::Overflow) }
    }

    /// Rows of features one after the other, and the rewards: everything else follows, bit for bit.
    pub(super) fn save(&self) -> (Vec<f64>, Vec<f64>) {
        let mut features = Vec::with_capacity(self.len() * self.dimension);
        for index in 0..self.len() {
            let block = &self.points[index / LANES * self.dimension..][..self.dimension];
            features.extend(block.iter().map(|row| row[index % LANES]));
        }
        (features, self.rewards.clone())
    }

    /// k(x, ·) of all observed arms; zero in lanes without one.
    fn compare(&self, x: &[f64], column: &mut [Lanes]) {
        four_wide().dispatch(Compare { regression: self, x, column });
        let vacant = column.len() * LANES - self.len();
        if let Some(last) = column.last_mut() {
            last[LANES - vacant..].fill(0.0);
        }
    }

    /// Returns ‖z‖² and zᵀq in one pass.
    fn sums(&self, z: &[Lanes]) -> (f64, f64) {
        let (mut square, mut mean) = ([0.0; LANES], [0.0; LANES]);
        for (z, q) in z.iter().zip(&self.q) {
            for lane in 0..LANES {
                square[lane] += z[lane] * z[lane];
                mean[lane] += z[lane] * q[lane];
            }
        }
        (square.iter().sum(), mean.iter().sum())
    }
}

/// k(x, ·) of whole blocks.
struct Compare<'a> {
    regression: &'a KernelRegression,
    x: &'a [f64],
    column: &'a mut [Lanes],
}

impl WithSimd for Compare<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let KernelRegression { kernel, inverse_square_scale, dimension, points, .. } = self.regression;
        for (values, block) in self.column.iter_mut().zip(points.chunks_exact(*dimension)) {
            *values = kernel.with_block(self.x, block, *inverse_square_scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;
    use crate::ridge::Ridge;

    const KERNELS: [Kernel; 5] =
        [Kernel::Exponential, Kernel::Rbf, Kernel::Matern15, Kernel::Matern25, Kernel::Linear];

    /// Solves Ax = b for a positive definite A by Gaussian elimination.
    fn eliminate(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
        let n = b.len();
        for j in 0..n {
            let (above, below) = a.split_at_mut(j + 1);
            let pivot = &above[j];
            for (i, row) in (j + 1..).zip(below) {
                let multiple = row[j] / pivot[j];
                row.iter_mut().zip(pivot).for_each(|(entry, pivot)| *entry -= multiple * pivot);
                b[i] -= multiple * b[j];
            }
        }
        for j in (0..n).rev() {
            b[j] = (b[j] - dot(&a[j][j + 1..], &b[j + 1..])) / a[j][j];
        }
        b
    }

    fn dot(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn beliefs_are_those_of_the_textbook_after_every_observation() {
        let (lambda, scale, d) = (0.3, 0.7, 3);
        for kernel in KERNELS {
            let mut stream = Seed(1).stream("test", 0, 0);
            let mut point = || (0..d).map(|_| stream.normal()).collect::<Vec<f64>>();
            let value = |x: &[f64], y: &[f64]| {
                let block: Vec<Lanes> = y.iter().map(|y| [*y; LANES]).collect();
                kernel.with_block(x, &block, 1.0 / (scale * scale))[0]
            };
            let arms = Arms::from_rows(d, &[point(), point(), point(), point(), point()]).unwrap();
            let mut regression = KernelRegression::new(kernel, scale, lambda, d);
            let (mut points, mut rewards): (Vec<Vec<f64>>, Vec<f64>) = (Vec::new(), Vec::new());
            for n in 0..30 {
                let mut seen = 0;
                regression.score(&arms, |arm, belief| {
                    let x = arms.row(arm);
                    let k: Vec<f64> = points.iter().map(|p| value(x, p)).collect();
                    let matrix = |i: usize, j: usize| {
                        value(&points[i], &points[j]) + if i == j { lambda } else { 0.0 }
                    };
                    let a: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| matrix(i, j)).collect()).collect();
                    let weights = eliminate(a, k.clone());
                    assert!((belief.mean - dot(&weights, &rewards)).abs() < 1e-9, "{kernel:?} after {n}");
                    let variance = value(x, x) - dot(&weights, &k);
                    assert!((belief.variance - variance).abs() < 1e-9, "{kernel:?} after {n}");
                    seen += 1;
                });
                assert_eq!(seen, 5);
                // Every fourth arm was there before.
                let x = if n % 4 == 3 { points[n / 2].clone() } else { point() };
                let y = x[0] - 2.0 * x[1] * x[1];
                regression.append(&x, y).unwrap();
                points.push(x);
                rewards.push(y);
            }
        }
    }

    /// With k(x, x′) = xᵀx′: the mean of ridge regression, and λ times its squared width.
    #[test]
    fn o24_dual_means_and_widths_are_primal_means_and_widths() {
        for lambda in [0.1, 1.0, 7.0] {
            let mut stream = Seed(3).stream("test", 0, 0);
            let mut dual = KernelRegression::new(Kernel::Linear, 1.0, lambda, 6);
            let mut primal = Ridge::new(6, lambda);
            for _ in 0..300 {
                let rows: Vec<[f64; 6]> = (0..5).map(|_| std::array::from_fn(|_| stream.normal())).collect();
                let arms = Arms::from_rows(6, &rows).unwrap();
                primal.score(arms.all(), |scores| {
                    dual.score(&arms, |arm, belief| {
                        let width = scores.widths[arm];
                        assert!((belief.mean - scores.means[arm]).abs() < 1e-10);
                        assert!((belief.variance - lambda * width * width).abs() < 1e-10);
                    });
                });
                let y = stream.normal();
                dual.append(&rows[0], y).unwrap();
                primal.append(&rows[0], y);
            }
        }
    }

    #[test]
    fn a_saved_history_gives_the_same_bits_again() {
        for kernel in KERNELS {
            let mut stream = Seed(2).stream("test", 0, 0);
            let mut regression = KernelRegression::new(kernel, 1.0, 0.1, 4);
            for _ in 0..27 {
                let x: Vec<f64> = (0..4).map(|_| stream.normal()).collect();
                regression.append(&x, stream.normal()).unwrap();
            }
            let (features, rewards) = regression.save();
            let mut again = regression.forgotten();
            for (x, y) in features.chunks(4).zip(&rewards) {
                again.append(x, *y).unwrap();
            }
            let arms = Arms::from_rows(4, &[[0.1, 0.2, 0.3, 0.4]]).unwrap();
            let mut beliefs = Vec::new();
            regression.score(&arms, |_, belief| beliefs.push(belief));
            again.score(&arms, |_, belief| beliefs.push(belief));
            assert_eq!(beliefs[0].mean.to_bits(), beliefs[1].mean.to_bits());
            assert_eq!(beliefs[0].variance.to_bits(), beliefs[1].variance.to_bits());
        }
    }

    #[test]
    fn an_observation_that_overflows_is_refused_and_changes_nothing() {
        let mut regression = KernelRegression::new(Kernel::Linear, 1e-100, 1.0, 2);
        regression.append(&[1e-100, 0.0], 1.0).unwrap();
        let before = regression.save();
        assert_eq!(regression.append(&[1e100, 1.0], 1.0), Err(InputError::Overflow));
        assert_eq!(regression.save(), before);
        let arms = Arms::from_rows(2, &[[1e-100, 0.0]]).unwrap();
        regression.score(&arms, |_, belief| assert!((belief.mean - 0.5).abs() < 1e-12));
    }
}
