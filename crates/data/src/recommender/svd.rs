//! Truncated singular value decomposition of a sparse matrix (Halko, Martinsson and Tropp, 2011).
//!
//! The same seed gives the same numbers, bit for bit: plain loops in a fixed order.

use posse_core::Seed;

use super::text::Sparse;

/// Directions beyond those asked for, which make the ones asked for exact.
const OVERSAMPLING: usize = 10;
/// How often the range is refined.
const POWER_ITERATIONS: usize = 7;

/// The rows of a matrix in its `rank` most important directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// U·Σ: `rank` numbers a row, one row after the other.
    pub rows: Vec<f64>,
    /// The singular values, the largest first.
    pub singular: Vec<f64>,
}

impl Projection {
    /// How many of the directions the matrix really has: singular values that are more than rounding.
    #[must_use]
    pub fn rank(&self) -> usize {
        let largest = self.singular.first().copied().unwrap_or(0.0);
        self.singular.iter().filter(|value| **value > 1e-9 * largest).count()
    }

    /// Keeps only the first directions.
    pub(super) fn truncate(&mut self, rank: usize) {
        let width = self.singular.len();
        if rank < width {
            self.rows = self.rows.chunks_exact(width).flat_map(|row| row[..rank].iter().copied()).collect();
            self.singular.truncate(rank);
        }
    }
}

/// Projects the rows of a matrix on its first `rank` right singular vectors. Each direction is turned so that its
/// largest coordinate over the rows is positive. Directions that the matrix does not have are zero.
#[must_use]
pub fn project(matrix: &Sparse, rank: usize, seed: Seed) -> Projection {
    project_and_say(matrix, rank, seed, &mut |_| {})
}

/// The same; tells `say` how many of how many refinements are done.
pub(super) fn project_and_say(
    matrix: &Sparse,
    rank: usize,
    seed: Seed,
    say: &mut dyn FnMut(&str),
) -> Projection {
    let (rows, columns) = (matrix.rows.len(), matrix.columns);
    let width = (rank + OVERSAMPLING).min(rows).min(columns);
    if width == 0 {
        return Projection { rows: vec![0.0; rows * rank], singular: vec![0.0; rank] };
    }
    let mut stream = seed.stream("svd", 0, 0);
    let mut directions: Vec<f64> = (0..columns * width).map(|_| stream.normal()).collect();
    let mut range = times(matrix, &directions, width);
    orthonormalise(&mut range, width);
    for iteration in 1..=POWER_ITERATIONS {
        say(&format!("finding {rank} directions of {rows} items: pass {iteration} of {POWER_ITERATIONS}"));
        directions = transposed_times(matrix, &range, width);
        orthonormalise(&mut directions, width);
        range = times(matrix, &directions, width);
        orthonormalise(&mut range, width);
    }
    // With X ≈ Q·B and B = QᵀX: the eigenvectors of BBᵀ turn Q into left singular vectors.
    let small = transposed_times(matrix, &range, width);
    let mut gram = vec![0.0; width * width];
    for row in small.chunks_exact(width) {
        for (i, a) in row.iter().enumerate() {
            for (j, b) in row.iter().enumerate() {
                gram[i * width + j] += a * b;
            }
        }
    }
    let (values, vectors) = eigen(gram, width);
    let singular: Vec<f64> =
        (0..rank).map(|at| values.get(at).map_or(0.0, |value| value.max(0.0).sqrt())).collect();
    let mut projected = vec![0.0; rows * rank];
    for (row, q) in projected.chunks_exact_mut(rank).zip(range.chunks_exact(width)) {
        for (at, x) in row.iter_mut().enumerate().take(width) {
            let u: f64 = q.iter().enumerate().map(|(i, q)| q * vectors[i * width + at]).sum();
            *x = u * singular[at];
        }
    }
    fix_signs(&mut projected, rank);
    Projection { rows: projected, singular }
}

/// X·D for a dense D of `width` columns.
fn times(matrix: &Sparse, dense: &[f64], width: usize) -> Vec<f64> {
    let mut product = vec![0.0; matrix.rows.len() * width];
    for (row, out) in matrix.rows.iter().zip(product.chunks_exact_mut(width)) {
        for &(column, value) in row {
            let other = &dense[column as usize * width..][..width];
            out.iter_mut().zip(other).for_each(|(sum, x)| *sum += value * x);
        }
    }
    product
}

/// Xᵀ·D for a dense D of `width` columns.
fn transposed_times(matrix: &Sparse, dense: &[f64], width: usize) -> Vec<f64> {
    let mut product = vec![0.0; matrix.columns * width];
    for (row, other) in matrix.rows.iter().zip(dense.chunks_exact(width)) {
        for &(column, value) in row {
            let out = &mut product[column as usize * width..][..width];
            out.iter_mut().zip(other).for_each(|(sum, x)| *sum += value * x);
        }
    }
    product
}

/// Makes the columns orthogonal and of length one, by Gram and Schmidt, twice over for accuracy. Columns that
/// depend on earlier ones become zero.
///
/// It works on columns that lie in one piece: the sums are the same, number by number, as over strides, and many
/// times faster to get at.
fn orthonormalise(dense: &mut [f64], width: usize) {
    let rows = dense.len() / width;
    let mut columns: Vec<f64> =
        (0..width).flat_map(|c| dense.iter().skip(c).step_by(width).copied()).collect();
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    for column in 0..width {
        let (done, rest) = columns.split_at_mut(column * rows);
        let own = &mut rest[..rows];
        let before = dot(own, own).sqrt();
        for _ in 0..2 {
            for other in done.chunks_exact(rows.max(1)) {
                let along = dot(other, own);
                own.iter_mut().zip(other).for_each(|(x, other)| *x -= along * other);
            }
        }
        let length = dot(own, own).sqrt();
        let factor = if length > 1e-12 * before { 1.0 / length } else { 0.0 };
        own.iter_mut().for_each(|x| *x *= factor);
    }
    for (column, values) in columns.chunks_exact(rows.max(1)).enumerate() {
        dense.iter_mut().skip(column).step_by(width).zip(values).for_each(|(place, value)| *place = *value);
    }
}

/// Eigenvalues, descending, and eigenvectors, in columns, of a symmetric matrix: Jacobi's rotations.
fn eigen(mut matrix: Vec<f64>, size: usize) -> (Vec<f64>, Vec<f64>) {
    let mut vectors = vec![0.0; size * size];
    (0..size).for_each(|i| vectors[i * size + i] = 1.0);
    let scale: f64 = matrix.iter().map(|x| x * x).sum();
    for _ in 0..60 {
        let off: f64 = (0..size)
            .flat_map(|i| (0..i).map(move |j| (i, j)))
            .map(|(i, j)| matrix[i * size + j] * matrix[i * size + j])
            .sum();
        if off <= 1e-30 * scale {
            break;
        }
        for p in 0..size {
            for q in p + 1..size {
                rotate(&mut matrix, &mut vectors, size, (p, q));
            }
        }
    }
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|a, b| matrix[b * size + b].total_cmp(&matrix[a * size + a]));
    let values = order.iter().map(|&at| matrix[at * size + at]).collect();
    let sorted = (0..size).flat_map(|row| order.iter().map(move |&at| (row, at)));
    (values, sorted.map(|(row, at)| vectors[row * size + at]).collect())
}

/// Turns the plane of two axes so that their entry becomes zero.
fn rotate(matrix: &mut [f64], vectors: &mut [f64], size: usize, (p, q): (usize, usize)) {
    let apq = matrix[p * size + q];
    if apq == 0.0 {
        return;
    }
    let theta = (matrix[q * size + q] - matrix[p * size + p]) / (2.0 * apq);
    let sign = if theta >= 0.0 { 1.0 } else { -1.0 };
    let t = sign / (theta.abs() + (theta * theta + 1.0).sqrt());
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for k in 0..size {
        let (a, b) = (matrix[k * size + p], matrix[k * size + q]);
        (matrix[k * size + p], matrix[k * size + q]) = (c * a - s * b, s * a + c * b);
    }
    for k in 0..size {
        let (a, b) = (matrix[p * size + k], matrix[q * size + k]);
        (matrix[p * size + k], matrix[q * size + k]) = (c * a - s * b, s * a + c * b);
        let (a, b) = (vectors[k * size + p], vectors[k * size + q]);
        (vectors[k * size + p], vectors[k * size + q]) = (c * a - s * b, s * a + c * b);
    }
}

/// Turns each column so that its largest entry is positive.
fn fix_signs(rows: &mut [f64], width: usize) {
    for column in 0..width {
        let largest = rows
            .iter()
            .skip(column)
            .step_by(width)
            .fold(0.0f64, |largest, x| if x.abs() > largest.abs() { *x } else { largest });
        if largest < 0.0 {
            rows.iter_mut().skip(column).step_by(width).for_each(|x| *x = -*x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of rank three with singular values near 30, 10 and 2, some of it zero.
    fn matrix(rows: usize, columns: usize) -> Sparse {
        let mut stream = Seed(3).stream("test", 0, 0);
        let mut draw = |length: usize| -> Vec<f64> { (0..length).map(|_| stream.normal()).collect() };
        let (left, right) = (draw(3 * rows), draw(3 * columns));
        let entry = |i: usize, j: usize| -> f64 {
            [3.0, 1.0, 0.2].iter().enumerate().map(|(k, s)| s * left[3 * i + k] * right[3 * j + k]).sum()
        };
        let row = |i: usize| {
            (0..columns).filter(|j| !(i + j).is_multiple_of(7)).map(|j| (j as u32, entry(i, j))).collect()
        };
        Sparse { rows: (0..rows).map(row).collect(), columns }
    }

    fn dense(matrix: &Sparse) -> Vec<Vec<f64>> {
        let row = |entries: &Vec<(u32, f64)>| {
            let mut row = vec![0.0; matrix.columns];
            entries.iter().for_each(|&(column, value)| row[column as usize] = value);
            row
        };
        matrix.rows.iter().map(row).collect()
    }

    #[test]
    fn singular_values_are_the_roots_of_the_eigenvalues_of_the_whole_gram_matrix() {
        let matrix = matrix(60, 25);
        let x = dense(&matrix);
        let gram: Vec<f64> =
            (0..25 * 25).map(|at| x.iter().map(|row| row[at / 25] * row[at % 25]).sum()).collect();
        let (values, vectors) = eigen(gram, 25);
        let found = project(&matrix, 5, Seed(1));
        for (at, singular) in found.singular.iter().enumerate() {
            assert!((singular / values[at].sqrt() - 1.0).abs() < 1e-9, "{at}");
            // And the projection is on the eigenvector of the same number.
            for (row, x) in x.iter().enumerate() {
                let along: f64 = (0..25).map(|j| x[j] * vectors[j * 25 + at]).sum();
                assert!((along.abs() - found.rows[row * 5 + at].abs()).abs() < 1e-7, "{at} {row}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bits_and_another_the_same_directions() {
        let matrix = matrix(40, 30);
        let (one, other) = (project(&matrix, 4, Seed(1)), project(&matrix, 4, Seed(2)));
        assert_eq!(one, project(&matrix, 4, Seed(1)));
        assert!(one.rows.iter().zip(&other.rows).all(|(a, b)| (a - b).abs() < 1e-8));
    }

    #[test]
    fn directions_that_are_not_there_are_zero() {
        let single = Sparse { rows: vec![vec![(0, 2.0)], vec![], vec![(0, 1.0)]], columns: 2 };
        let found = project(&single, 3, Seed(1));
        assert!((found.singular[0] - 5f64.sqrt()).abs() < 1e-12);
        assert!(found.singular[1].abs() < 1e-12 && found.singular[2] == 0.0);
        assert!((found.rows[0] - 2.0).abs() < 1e-12 && found.rows[3..6].iter().all(|x| x.abs() < 1e-12));
        let nothing = project(&Sparse { rows: vec![vec![], vec![]], columns: 0 }, 2, Seed(1));
        assert_eq!(nothing.rows, [0.0; 4]);
    }
}
