//! Sums over stored interactions in vector registers.
//!
//! Each lane of each entry has a sum of its own, to which blocks are added one after the other; lanes are added up at the very
//! end. So it matters neither how wide vectors are, nor how many blocks or entries go together.

mod curvature;
mod gradient;
#[cfg(test)]
mod tests;

use pulp::Simd;

use super::link::LinkFunction;
use crate::exponential::{LANES, Lanes};

pub(super) use curvature::AddCurvature;
pub(super) use gradient::AddGradient;

/// A number for each interaction of a block, on a cache line of its own.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LaneRow(pub(crate) Lanes);

impl LaneRow {
    pub(crate) const ZERO: Self = Self([0.0; LANES]);

    /// The lanes in order.
    pub(crate) fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    #[inline(always)]
    fn part<S: Simd>(&self, part: usize) -> S::f64s {
        S::as_simd_f64s(&self.0).0[part]
    }

    #[inline(always)]
    fn part_mut<S: Simd>(&mut self, part: usize) -> &mut S::f64s {
        &mut S::as_mut_simd_f64s(&mut self.0).0[part]
    }
}

/// What is summed up: the first `count` interactions of some blocks at a point.
#[derive(Clone, Copy)]
pub(crate) struct Clicks<'a> {
    /// Rows of features and one of rewards for each block.
    pub(crate) blocks: &'a [LaneRow],
    pub(crate) count: usize,
    pub(crate) link: LinkFunction,
    pub(crate) theta: &'a [f64],
}

impl<'a> Clicks<'a> {
    /// Rows of a block.
    const fn stride(&self) -> usize {
        self.theta.len() + 1
    }

    /// The first `count` of these.
    fn first(self, count: usize) -> Self {
        Self { blocks: &self.blocks[..count.div_ceil(LANES) * self.stride()], count, ..self }
    }

    /// Those after the first blocks, of which there are so many.
    fn after(self, blocks: usize) -> Self {
        Self { blocks: &self.blocks[blocks * self.stride()..], count: self.count - blocks * LANES, ..self }
    }
}
