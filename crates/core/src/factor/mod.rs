//! The triangular factor of a regularised Gram matrix, with the moment as one more column.
//!
//! For V(λ) = Σxxᵀ + λI and b = Σxy this keeps the upper triangular U with V(λ) = UᵀU, and q = U⁻ᵀb
//! beside it: the R of a QR decomposition of all observations so far. Everything a bandit asks for comes
//! from one triangular solve z = U⁻ᵀx of an arm: its squared width xᵀV(λ)⁻¹x = ‖z‖² and its mean
//! xᵀV(λ)⁻¹b = zᵀq. Neither the inverse nor the estimate is ever formed on the way.
//!
//! **The same bits on every processor.** Vector lanes hold independent problems (different arms, or
//! different columns), no sum is split over lanes and no multiplication is fused with an addition. So
//! the vector width changes the speed and nothing else.

mod append;
mod cholesky;
mod eights;
mod score;

use crate::aligned::Aligned;
use crate::arms::Columns;
use crate::evidence::{Evidence, packed};
use crate::lanes::{four_wide, widest};
use crate::ridge::Heard;
use crate::workers::Workers;
use append::AppendRow;
use cholesky::{PANEL, factorise};
use score::{Score, TILE};

/// Columns are stored in chunks of this many, so that a row is a whole number of vectors.
const CHUNK: usize = 4;
/// The widest vector of any dispatched instruction set, in `f64`.
const WIDEST: usize = 8;

/// U and q, row by row. Row j holds columns from j (rounded down to a chunk) to d, where column d is q.
/// What lies left of the diagonal in a row's first chunk is meaningless and never read.
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    dimension: usize,
    rows: Aligned,
    /// `rows[offset[j] + k]` is entry (j, k).
    offset: Vec<u32>,
    /// 1 / U_jj, so that solving multiplies instead of dividing.
    inverse_diagonal: Aligned,
}

/// Scratch memory for [`Factor::score`] and [`Factor::update`], shared by all factors of a thread so that
/// thousands of agents do not each carry their own.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The tile of arms being solved; the appended row during an update.
    tile: Aligned,
    /// An arm that is solved beside a tile.
    single: Aligned,
    /// The q that means are taken with.
    q: Aligned,
    means: Aligned,
    widths: Aligned,
    /// Where a new factor is made before it replaces the old one.
    spare: Factor,
    /// What a coordinator said last.
    pub(crate) heard: Option<Heard>,
}

/// Means and widths √(xᵀV(λ)⁻¹x) of scored arms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores<'a> {
    pub(crate) means: &'a [f64],
    pub(crate) widths: &'a [f64],
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let empty = || Aligned::zeros(0);
        let spare = Factor::new(0, 1.0);
        Self {
            tile: empty(),
            single: empty(),
            q: empty(),
            means: empty(),
            widths: empty(),
            spare,
            heard: None,
        }
    }

    /// Returns a factor of this dimension to be filled. Its contents before that are unspecified.
    pub(crate) fn spare(&mut self, dimension: usize) -> &mut Factor {
        if self.spare.dimension != dimension {
            self.spare = Factor::new(dimension, 1.0);
        }
        &mut self.spare
    }

    fn reserve(&mut self, dimension: usize, arms: usize) {
        // An update needs the appended row, and what is left of it after every row of two blocks.
        let appended = (1 + 2 * CHUNK) * (dimension + 1).next_multiple_of(CHUNK);
        let tile = (dimension * TILE * WIDEST).max(appended);
        if self.tile.len() < tile {
            self.tile = Aligned::zeros(tile);
            self.q = Aligned::zeros(dimension);
            self.single = Aligned::zeros(dimension);
        }
        let arms = arms.next_multiple_of(TILE * WIDEST);
        if self.means.len() < arms {
            self.means = Aligned::zeros(arms);
            self.widths = Aligned::zeros(arms);
        }
    }
}

impl Factor {
    /// The factor of λI, without observations.
    pub(crate) fn new(dimension: usize, regularization: f64) -> Self {
        let columns = (dimension + 1).next_multiple_of(CHUNK);
        let mut offset = Vec::with_capacity(dimension);
        let mut length = 0;
        for j in 0..dimension {
            let first = j / CHUNK * CHUNK;
            offset.push((length - first) as u32);
            length += columns - first;
        }
        let mut factor = Self {
            dimension,
            rows: Aligned::zeros(length),
            offset,
            inverse_diagonal: Aligned::zeros(dimension),
        };
        let root = regularization.sqrt();
        for j in 0..dimension {
            factor.rows[factor.offset[j] as usize + j] = root;
            factor.inverse_diagonal[j] = 1.0 / root;
        }
        factor
    }

    /// Becomes a copy of `other`, which has the same dimension.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.rows.copy_from_slice(&other.rows);
        self.inverse_diagonal.copy_from_slice(&other.inverse_diagonal);
    }

    pub(crate) const fn dimension(&self) -> usize {
        self.dimension
    }

    /// Appends the observation (x, y) and returns xᵀV(λ)⁻¹x from *before* it.
    #[inline]
    pub(crate) fn update(&mut self, x: &[f64], y: f64, workspace: &mut Workspace) -> f64 {
        workspace.reserve(self.dimension, 0);
        four_wide().dispatch(AppendRow { factor: self, appended: &mut workspace.tile, x, y })
    }

    /// Solves for all arms in one pass over the factor. Means are taken with q plus `noise(j)`: with noise
    /// v·η, η ~ N(0, I), they are those of a model drawn from N(V(λ)⁻¹b, v²V(λ)⁻¹).
    #[inline]
    pub(crate) fn score<'a>(
        &self,
        arms: Columns<'_>,
        mut noise: impl FnMut(usize) -> f64,
        workspace: &'a mut Workspace,
    ) -> Scores<'a> {
        let count = arms.len();
        workspace.reserve(self.dimension, count);
        for (j, q) in workspace.q[..self.dimension].iter_mut().enumerate() {
            *q = self.entry(j, self.dimension) + noise(j);
        }
        // Vectors of eight are filled with four features at a time.
        let instructions = if self.dimension < CHUNK { four_wide() } else { widest() };
        instructions.dispatch(Score { factor: self, arms, workspace });
        Scores { means: &workspace.means[..count], widths: &workspace.widths[..count] }
    }

    /// Replaces the factor by that of the sum of `parts` plus λI. `false` if that sum is not positive
    /// definite or the solution overflows, which leaves the factor unusable: call it on a copy when the parts come from elsewhere.
    pub(crate) fn refresh<'e>(
        &mut self,
        regularization: f64,
        parts: impl Iterator<Item = &'e Evidence> + Clone,
        workers: &dyn Workers,
    ) -> bool {
        let d = self.dimension;
        self.rows.fill(0.0);
        for part in parts {
            let (gram, moment) = (&part.gram()[..packed(d)], &part.moment()[..d]);
            let mut rows = &mut self.rows[..];
            for j in 0..d {
                let first = j / CHUNK * CHUNK;
                let (row, below) = rows.split_at_mut((d + 1).next_multiple_of(CHUNK) - first);
                // Column j of the packed lower triangle: entry (i + 1, j) lies i + 1 places after (i, j).
                let mut place = packed(j) + j;
                for (step, u) in row[j - first..d - first].iter_mut().enumerate() {
                    *u += gram[place];
                    place += j + step + 1;
                }
                row[d - first] += moment[j];
                rows = below;
            }
        }
        for j in 0..d {
            self.rows[self.offset[j] as usize + j] += regularization;
        }
        // Pivots vouch for the matrix; nothing but this look vouches for q.
        factorise(self, PANEL, workers) && (0..d).all(|j| self.entry(j, d).is_finite())
    }

    /// ln det V(λ), from the diagonal.
    pub(crate) fn ln_det(&self) -> f64 {
        // The logarithm of products of many entries: logarithms are dear, and were half of a refresh.
        let (mut sum, mut product) = (0.0, 1.0);
        for j in 0..self.dimension {
            let next = product * self.entry(j, j);
            if (1e-150..1e150).contains(&next) {
                product = next;
            } else {
                sum += libm::log(product);
                product = self.entry(j, j);
            }
        }
        2.0 * (sum + libm::log(product))
    }

    /// Replaces `x` by z = U⁻ᵀx.
    pub(crate) fn solve_transposed(&self, x: &mut [f64]) {
        for j in 0..self.dimension {
            let z = x[j] * self.inverse_diagonal[j];
            x[j] = z;
            for (k, value) in x.iter_mut().enumerate().skip(j + 1) {
                *value -= z * self.entry(j, k);
            }
        }
    }

    /// Replaces `z` by w = U⁻¹z.
    pub(crate) fn solve(&self, z: &mut [f64]) {
        for j in (0..self.dimension).rev() {
            let mut value = z[j];
            for (k, w) in z.iter().enumerate().skip(j + 1) {
                value -= self.entry(j, k) * w;
            }
            z[j] = value * self.inverse_diagonal[j];
        }
    }

    /// Writes the ridge estimate V(λ)⁻¹b into `out`.
    pub(crate) fn estimate(&self, out: &mut [f64]) {
        for (j, value) in out.iter_mut().enumerate() {
            *value = self.entry(j, self.dimension);
        }
        self.solve(out);
    }

    /// Returns ‖q‖² = bᵀV(λ)⁻¹b.
    pub(crate) fn explained(&self) -> f64 {
        (0..self.dimension).map(|j| self.entry(j, self.dimension)).map(|q| q * q).sum()
    }

    /// U's upper triangle and q, row after row: what a saved state holds.
    pub(crate) fn entries(&self) -> Vec<f64> {
        let d = self.dimension;
        (0..d).flat_map(|j| (j..=d).map(move |k| (j, k))).map(|(j, k)| self.entry(j, k)).collect()
    }

    /// 1 / U_jj as maintained, which is not bit for bit what dividing again would give.
    pub(crate) fn inverse_diagonal(&self) -> &[f64] {
        &self.inverse_diagonal
    }

    /// The inverse of [`entries`](Self::entries); `false` if the numbers are no factor.
    pub(crate) fn restore(&mut self, entries: &[f64], inverse_diagonal: &[f64]) -> bool {
        let d = self.dimension;
        if entries.len() != d * (d + 3) / 2
            || inverse_diagonal.len() != d
            || !entries.iter().all(|v| v.is_finite())
            || !inverse_diagonal.iter().all(|v| v.is_finite() && *v > 0.0)
        {
            return false;
        }
        let mut next = entries.iter();
        for j in 0..d {
            for k in j..=d {
                self.rows[self.offset[j] as usize + k] = *next.next().expect("the length was checked");
            }
        }
        self.inverse_diagonal.copy_from_slice(inverse_diagonal);
        (0..d).all(|j| self.entry(j, j) > 0.0)
    }

    fn entry(&self, j: usize, k: usize) -> f64 {
        self.rows[self.offset[j] as usize + k]
    }
}

#[cfg(test)]
mod tests;
