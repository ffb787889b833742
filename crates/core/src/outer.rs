//! Sums of outer products of observations, in a packed lower triangle.

use pulp::{Simd, WithSimd};

/// Observations that are added in one pass over the sum.
pub(crate) const TOGETHER: usize = 4;

/// Adds xxᵀ of each observation to a packed lower triangle, one after the other: every entry is rounded as if they were
/// added one at a time.
pub(crate) struct AddOuter<'a> {
    pub(crate) gram: &'a mut [f64],
    /// The features of each observation at its beginning, `stride` numbers in all.
    pub(crate) observations: &'a [f64],
    pub(crate) stride: usize,
    pub(crate) dimension: usize,
}

impl WithSimd for AddOuter<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let AddOuter { gram, observations, stride, dimension } = self;
        let mut together = observations.chunks_exact(TOGETHER * stride);
        for four in &mut together {
            add(simd, gram, std::array::from_fn::<_, TOGETHER, _>(|n| &four[n * stride..][..dimension]));
        }
        for one in together.remainder().chunks_exact(stride) {
            add(simd, gram, [&one[..dimension]]);
        }
    }
}

/// Adds `N` observations in one pass.
#[inline(always)]
fn add<S: Simd, const N: usize>(simd: S, mut gram: &mut [f64], x: [&[f64]; N]) {
    for i in 0..x[0].len() {
        let (row, rest) = gram.split_at_mut(i + 1);
        gram = rest;
        let own = x.map(|x| x[i]);
        let lanes = own.map(|own| simd.splat_f64s(own));
        let others = x.map(|x| S::as_simd_f64s(&x[..=i]));
        let (vectors, tail) = S::as_mut_simd_f64s(row);
        for (place, sum) in vectors.iter_mut().enumerate() {
            for n in 0..N {
                *sum = simd.add_f64s(*sum, simd.mul_f64s(lanes[n], others[n].0[place]));
            }
        }
        for (place, sum) in tail.iter_mut().enumerate() {
            for n in 0..N {
                *sum += own[n] * others[n].1[place];
            }
        }
    }
}
