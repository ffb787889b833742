//! Subtracting squares of vectors from a packed symmetric matrix.
//!
//! The matrix goes through the processor once for all vectors: a row is copied, and as many vectors as fit into registers
//! are subtracted from it before it is written. Each entry is rounded after every vector, in their order, so that it matters
//! neither how many go together nor how wide registers are, and workers may each take some rows of a large matrix.

use pulp::{Simd, WithSimd};

use super::inverse::Column;
use crate::evidence::packed;
use crate::lanes::four_wide;
use crate::workers::{Piece, Workers, evenly, pieces_of};

/// Vectors that are subtracted from a row together.
const TOGETHER: usize = 4;

/// What an entry costs that has to come from memory, in multiplications.
const FROM_MEMORY: usize = 16;

/// Returns the packed matrix P − Σ s·vvᵀ.
pub(crate) fn subtracted(matrix: &[f64], columns: &[Column], workers: &dyn Workers) -> Vec<f64> {
    if pieces(matrix, columns, workers) < 2 {
        return four_wide().dispatch(Subtracted { matrix, columns });
    }
    let mut into = vec![0.0; matrix.len()];
    in_pieces(&mut into, columns, workers, |first, rows: &mut [f64]| {
        rows.copy_from_slice(&matrix[packed(first)..][..rows.len()]);
    });
    into
}

/// P ← P − Σ s·vvᵀ of a packed matrix.
pub(crate) fn subtract_from(matrix: &mut [f64], columns: &[Column], workers: &dyn Workers) {
    if pieces(matrix, columns, workers) < 2 {
        return four_wide().dispatch(SubtractFrom { first: 0, rows: matrix, columns });
    }
    in_pieces(matrix, columns, workers, |_, _| ());
}

/// Lets workers `fill` rows from one on, and then subtract from them.
fn in_pieces(
    matrix: &mut [f64],
    columns: &[Column],
    workers: &dyn Workers,
    fill: impl Fn(usize, &mut [f64]) + Copy + Send,
) {
    let parameters = columns.first().map_or(0, |column| column.vector.len());
    let ranges = evenly((0..parameters).map(|i| i + 1), pieces(matrix, columns, workers));
    let mut rest = matrix;
    let mut all: Vec<Piece<'_>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let first = range.start;
        let (rows, later) = rest.split_at_mut(packed(range.end) - packed(first));
        rest = later;
        all.push(Box::new(move || {
            fill(first, rows);
            four_wide().dispatch(SubtractFrom { first, rows, columns });
        }));
    }
    workers.run(all);
}

fn pieces(matrix: &[f64], columns: &[Column], workers: &dyn Workers) -> usize {
    if columns.is_empty() { 1 } else { pieces_of(matrix.len() * columns.len().max(FROM_MEMORY), workers) }
}

/// v ← v − Σ multiple·vector.
pub(crate) fn subtract_multiples(v: &mut [f64], terms: &[Term<'_>]) {
    four_wide().dispatch(SubtractMultiples { v, terms });
}

/// A multiple of a vector that is to be subtracted.
pub(crate) type Term<'a> = (f64, &'a [f64]);

struct Subtracted<'a> {
    matrix: &'a [f64],
    columns: &'a [Column],
}

impl WithSimd for Subtracted<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f64> {
        let mut into = Vec::with_capacity(self.matrix.len());
        let mut terms = Vec::with_capacity(self.columns.len());
        let mut rest = self.matrix;
        let mut i = 0;
        while !rest.is_empty() {
            let (row, later) = rest.split_at(i + 1);
            rest = later;
            let start = into.len();
            into.extend_from_slice(row);
            of_row(self.columns, i, &mut terms);
            subtract(simd, &mut into[start..], &terms);
            i += 1;
        }
        into
    }
}

/// Some rows of a packed matrix, of which the first is row `first`.
struct SubtractFrom<'a> {
    first: usize,
    rows: &'a mut [f64],
    columns: &'a [Column],
}

impl WithSimd for SubtractFrom<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut terms = Vec::with_capacity(self.columns.len());
        let mut rest = self.rows;
        let mut i = self.first;
        while !rest.is_empty() {
            let (row, later) = rest.split_at_mut(i + 1);
            rest = later;
            of_row(self.columns, i, &mut terms);
            subtract(simd, row, &terms);
            i += 1;
        }
    }
}

struct SubtractMultiples<'a> {
    v: &'a mut [f64],
    terms: &'a [Term<'a>],
}

impl WithSimd for SubtractMultiples<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        subtract(simd, self.v, self.terms);
    }
}

/// What is subtracted from row `i`. Much of a gradient is zero, and so are the first vectors.
#[inline(always)]
fn of_row<'c>(columns: &'c [Column], i: usize, terms: &mut Vec<Term<'c>>) {
    terms.clear();
    for Column { scale, vector } in columns {
        let multiple = scale * vector[i];
        if multiple != 0.0 {
            terms.push((multiple, &vector[..=i]));
        }
    }
}

/// row ← row − Σ multiple·vector, one after the other.
#[inline(always)]
fn subtract<S: Simd>(simd: S, row: &mut [f64], terms: &[Term<'_>]) {
    let (four, rest) = terms.as_chunks::<TOGETHER>();
    for terms in four {
        subtract_few(simd, row, terms);
    }
    match *rest {
        [] => (),
        [a] => subtract_few(simd, row, &[a]),
        [a, b] => subtract_few(simd, row, &[a, b]),
        [a, b, c] => subtract_few(simd, row, &[a, b, c]),
        _ => unreachable!("what is left of chunks of four is shorter"),
    }
}

#[inline(always)]
fn subtract_few<S: Simd, const N: usize>(simd: S, row: &mut [f64], terms: &[Term<'_>; N]) {
    let length = row.len();
    let (head, tail) = S::as_mut_simd_f64s(row);
    // Loops and not closures: what is called by a closure is not compiled for the instruction set that is dispatched to.
    let mut splats = [simd.splat_f64s(0.0); N];
    let (mut heads, mut tails): ([&[S::f64s]; N], [&[f64]; N]) = ([&[]; N], [&[]; N]);
    for (term, (multiple, vector)) in terms.iter().enumerate() {
        splats[term] = simd.splat_f64s(*multiple);
        let (vectors, last) = S::as_simd_f64s(&vector[..length]);
        (heads[term], tails[term]) = (&vectors[..head.len()], last);
    }
    for (place, p) in head.iter_mut().enumerate() {
        let mut left = *p;
        for term in 0..N {
            left = simd.sub_f64s(left, simd.mul_f64s(splats[term], heads[term][place]));
        }
        *p = left;
    }
    for (place, p) in tail.iter_mut().enumerate() {
        for ((multiple, _), vector) in terms.iter().zip(tails) {
            *p -= multiple * vector[place];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;
    use crate::workers::ThisThread;
    use crate::workers::tests::Backwards;

    /// P − Σ s·vvᵀ, entry by entry.
    fn plain(matrix: &[f64], columns: &[Column], parameters: usize) -> Vec<f64> {
        let mut into = matrix.to_vec();
        for i in 0..parameters {
            for j in 0..=i {
                for Column { scale, vector } in columns {
                    let multiple = scale * vector[i];
                    if multiple != 0.0 {
                        into[packed(i) + j] -= multiple * vector[j];
                    }
                }
            }
        }
        into
    }

    #[test]
    fn any_number_of_workers_gives_the_bits_of_one() {
        let mut stream = Seed(2).stream("test", 0, 0);
        for (parameters, count) in [(513, 1), (562, 3), (611, 5), (640, 16)] {
            let matrix: Vec<f64> = (0..packed(parameters)).map(|_| stream.normal()).collect();
            let mut column = || {
                let entry = |_| if stream.below(3) == 0 { 0.0 } else { stream.normal() };
                Column { scale: 0.7, vector: (0..parameters).map(entry).collect() }
            };
            let columns: Vec<Column> = (0..count).map(|_| column()).collect();
            let expected = plain(&matrix, &columns, parameters);
            assert!(pieces(&matrix, &columns, &Backwards(5)) > 1, "{parameters} are enough to be divided");
            for workers in [1, 2, 3, 5].map(Backwards) {
                let mut own = matrix.clone();
                subtract_from(&mut own, &columns, &workers);
                assert!(own == expected, "{parameters} {workers:?}");
                assert!(subtracted(&matrix, &columns, &workers) == expected, "{parameters} {workers:?}");
            }
        }
        let matrix: Vec<f64> = (0..packed(900)).map(|_| stream.normal()).collect();
        assert!(subtracted(&matrix, &[], &Backwards(2)) == matrix, "nothing is subtracted");
    }

    #[test]
    fn many_at_once_have_the_bits_of_one_after_the_other() {
        let mut stream = Seed(1).stream("test", 0, 0);
        for (parameters, count) in [(0, 1), (1, 1), (5, 0), (6, 2), (9, 3), (31, 5), (40, 16)] {
            let matrix: Vec<f64> = (0..packed(parameters)).map(|_| stream.normal()).collect();
            let mut column = || {
                let entry = |_| if stream.below(3) == 0 { 0.0 } else { stream.normal() };
                Column { scale: 0.7, vector: (0..parameters).map(entry).collect() }
            };
            let columns: Vec<Column> = (0..count).map(|_| column()).collect();
            let expected = plain(&matrix, &columns, parameters);
            let mut own = matrix.clone();
            subtract_from(&mut own, &columns, &ThisThread);
            let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&subtracted(&matrix, &columns, &ThisThread)),
                bits(&expected),
                "{parameters} {count}"
            );
            assert_eq!(bits(&own), bits(&expected), "{parameters} {count}");
            for term in &columns {
                let (mut v, mut one_by_one) = (term.vector.clone(), term.vector.clone());
                let terms: Vec<Term<'_>> = columns.iter().map(|c| (0.3, c.vector.as_slice())).collect();
                subtract_multiples(&mut v, &terms);
                for (multiple, vector) in terms {
                    one_by_one.iter_mut().zip(vector).for_each(|(v, value)| *v -= multiple * value);
                }
                assert_eq!(bits(&v), bits(&one_by_one));
            }
        }
    }
}
