//! Which vector instructions kernels use, of those that the processor has.
//!
//! Most kernels go through rows in chunks of four numbers, so that wider vectors would leave tails. Arms that are scored and
//! clicks that are summed up lie side by side, a lane each, and fill vectors of any width; so do rows that are written beyond
//! their ends. Results have the same bits with all of them.

use pulp::Arch;

/// The widest vectors: eight numbers with AVX-512, four with AVX2.
#[inline]
pub(crate) fn widest() -> Arch {
    Arch::new()
}

/// Vectors of at most four numbers.
#[inline]
pub(crate) fn four_wide() -> Arch {
    match Arch::new() {
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        Arch::V4(wide) => Arch::V3(*wide),
        other => other,
    }
}
