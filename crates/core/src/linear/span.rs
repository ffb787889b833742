//! The directions that some vectors span, found one vector at a time.

use super::alternating::dot;

/// A vector counts as a new direction if more than this share of its squared length lies outside the span.
const NEW_SHARE: f64 = 1e-8;

/// An orthonormal basis that grows with the vectors that are added to it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    dimension: usize,
    /// The basis, one vector after the other.
    basis: Vec<f64>,
}

impl Span {
    /// The span of no vector at all.
    pub(crate) const fn none(dimension: usize) -> Self {
        Self { dimension, basis: Vec::new() }
    }

    /// How many directions there are.
    pub(crate) fn rank(&self) -> usize {
        self.basis.len() / self.dimension.max(1)
    }

    /// Whether `x` is a combination of the vectors so far, up to rounding.
    pub(crate) fn contains(&self, x: &[f64]) -> bool {
        self.rank() == self.dimension || self.outside(x).is_none()
    }

    /// Adds a vector; says whether it is a new direction.
    pub(crate) fn add(&mut self, x: &[f64]) -> bool {
        if self.rank() == self.dimension {
            return false;
        }
        let Some(direction) = self.outside(x) else { return false };
        self.basis.extend(direction);
        true
    }

    /// The part of `x` outside the span, scaled to length one; `None` if there is none to speak of.
    fn outside(&self, x: &[f64]) -> Option<Vec<f64>> {
        let mut rest = x.to_vec();
        // Subtracting twice keeps the basis orthogonal where one pass loses digits to cancellation.
        for _ in 0..2 {
            for direction in self.basis.chunks_exact(self.dimension.max(1)) {
                let share = dot(&rest, direction);
                rest.iter_mut().zip(direction).for_each(|(rest, direction)| *rest -= share * direction);
            }
        }
        let (left, all) = (dot(&rest, &rest), dot(x, x));
        if left.is_nan() || left <= NEW_SHARE * all {
            return None;
        }
        let length = left.sqrt();
        rest.iter_mut().for_each(|value| *value /= length);
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_counted_once_and_combinations_are_recognised() {
        let mut span = Span::none(4);
        assert!(span.contains(&[0.0; 4]) && !span.contains(&[1.0, 0.0, 0.0, 0.0]));
        assert!(span.add(&[2.0, 1.0, 0.0, 0.0]));
        assert!(!span.add(&[-4.0, -2.0, 0.0, 0.0]) && !span.add(&[0.0; 4]));
        assert!(span.add(&[1e9, 1.0, 0.0, 0.0]), "scale does not matter");
        assert!(span.contains(&[3.0, -5.0, 0.0, 0.0]) && !span.contains(&[3.0, -5.0, 0.01, 0.0]));
        assert!(span.add(&[1.0, 1.0, 1.0, 0.0]) && span.add(&[0.0, 0.0, 0.0, 1e-12]));
        assert_eq!(span.rank(), 4);
        assert!(span.contains(&[9.0, 9.0, 9.0, 9.0]) && !span.add(&[9.0, 9.0, 9.0, 9.0]));
    }
}
