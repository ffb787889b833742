//! A fixed catalogue of arms, of which every step offers a few different ones.

use posse_core::{Domain, Stream};

use super::vector::{dot, gaussian, scale};

/// The arms of [`Form::Authors`](super::Form::Authors): coordinate i of d is drawn from N(0, (d − i)/d),
/// with i counted from 0, then the arm is scaled to length one.
#[derive(Debug)]
pub(super) struct Catalogue {
    dimension: usize,
    features: Vec<f64>,
    /// All positions in the catalogue, in order between draws.
    order: Vec<usize>,
    /// What a draw swapped, to be undone.
    swapped: Vec<usize>,
}

impl Catalogue {
    /// A catalogue of `pool` arms, drawn from the stream of `domain` that belongs to this dimension.
    pub(super) fn new(dimension: usize, pool: usize, domain: Domain) -> Self {
        let deviations: Vec<f64> =
            (0..dimension).map(|i| ((dimension - i) as f64 / dimension as f64).sqrt()).collect();
        let mut stream = domain.stream(dimension as u64, 0);
        let mut features = vec![0.0; pool * dimension];
        for x in features.chunks_exact_mut(dimension) {
            gaussian(x, &mut stream);
            x.iter_mut().zip(&deviations).for_each(|(x, deviation)| *x *= deviation);
            let length = dot(x, x).sqrt();
            scale(x, 1.0 / length);
        }
        Self { dimension, features, order: (0..pool).collect(), swapped: Vec::new() }
    }

    /// The features of all arms, in the order of the catalogue.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.features.chunks_exact(self.dimension)
    }

    /// Draws `count` different arms, every ordered choice equally likely, and shows each to `visit` with
    /// its position in the catalogue.
    pub(super) fn draw(&mut self, stream: &mut Stream, count: usize, mut visit: impl FnMut(usize, &[f64])) {
        let pool = self.order.len();
        self.swapped.clear();
        // The first steps of a Fisher–Yates shuffle. Undoing them costs as little as doing them, and
        // leaves no trace for the next draw.
        for place in 0..count {
            let other = place + stream.below((pool - place) as u64) as usize;
            self.order.swap(place, other);
            self.swapped.push(other);
        }
        for &index in &self.order[..count] {
            visit(index, &self.features[index * self.dimension..][..self.dimension]);
        }
        for (place, &other) in self.swapped.iter().enumerate().rev() {
            self.order.swap(place, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use posse_core::Seed;

    use super::*;

    fn catalogue(dimension: usize, pool: usize) -> Catalogue {
        Catalogue::new(dimension, pool, Seed(4).domain("catalogue"))
    }

    #[test]
    fn arms_lie_on_the_sphere_and_early_coordinates_vary_more() {
        let catalogue = catalogue(5, 4_000);
        let mut squares = [0.0; 5];
        for x in catalogue.rows() {
            assert!((dot(x, x) - 1.0).abs() < 1e-12);
            squares.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
        }
        // Before scaling the variances are 1, 0.8, 0.6, 0.4, 0.2.
        assert!(squares.is_sorted_by(|a, b| a > b), "{squares:?}");
        assert!(squares[0] > 3.0 * squares[4]);
    }

    #[test]
    fn a_draw_has_different_arms_and_favours_none() {
        let mut catalogue = catalogue(2, 10);
        // How often each arm comes, and how often it comes first.
        let (mut drawn, mut first) = ([0u32; 10], [0u32; 10]);
        let domain = Seed(5).domain("arms");
        for step in 0..20_000 {
            let mut indices = Vec::new();
            catalogue.draw(&mut domain.stream(0, step), 4, |index, _| indices.push(index));
            indices.iter().for_each(|&index| drawn[index] += 1);
            first[indices[0]] += 1;
            indices.sort_unstable();
            indices.dedup();
            assert_eq!(indices.len(), 4);
        }
        // 8 000 with standard deviation 69, and 2 000 with standard deviation 42.
        assert!(drawn.iter().all(|count| count.abs_diff(8_000) < 400), "{drawn:?}");
        assert!(first.iter().all(|count| count.abs_diff(2_000) < 250), "{first:?}");
    }

    #[test]
    fn a_draw_leaves_no_trace_and_may_take_everything() {
        let mut catalogue = catalogue(2, 10);
        let before: Vec<f64> = catalogue.rows().flatten().copied().collect();
        let mut seen = [false; 10];
        catalogue.draw(&mut Seed(6).stream("arms", 0, 0), 10, |index, x| {
            assert_eq!(x, &before[2 * index..][..2]);
            seen[index] = true;
        });
        assert_eq!(seen, [true; 10]);
        assert!(catalogue.order.is_sorted());
    }
}
