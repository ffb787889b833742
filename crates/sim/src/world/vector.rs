//! The little vector algebra worlds need, in plain loops that give the same bits everywhere.

use posse_core::Stream;

/// The inner product xᵀy of two vectors of equal length.
pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    debug_assert_eq!(x.len(), y.len(), "both vectors live in the same space");
    // Four sums that do not wait for each other.
    let mut sums = [0.0; 4];
    let (xs, ys) = (x.chunks_exact(4), y.chunks_exact(4));
    let rest: f64 = xs.remainder().iter().zip(ys.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in xs.zip(ys) {
        for lane in 0..4 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

/// Fills `x` with a standard normal vector of positive length and returns that length.
pub(super) fn gaussian(x: &mut [f64], stream: &mut Stream) -> f64 {
    loop {
        stream.fill_normal(x);
        let length = dot(x, x).sqrt();
        // All coordinates may be zero, if only in theory; without coordinates they are.
        if length > 0.0 || x.is_empty() {
            return length;
        }
    }
}

/// Multiplies every component of `x` by `factor`.
pub(super) fn scale(x: &mut [f64], factor: f64) {
    x.iter_mut().for_each(|x| *x *= factor);
}

/// A vector of length one in a uniformly random direction.
pub(super) fn direction(dimension: usize, stream: &mut Stream) -> Vec<f64> {
    let mut x = vec![0.0; dimension];
    let length = gaussian(&mut x, stream);
    x.iter_mut().for_each(|x| *x /= length);
    x
}

#[cfg(test)]
mod tests {
    use posse_core::Seed;

    use super::*;

    #[test]
    fn dot_counts_every_coordinate_once() {
        for dimension in 0..12 {
            let x: Vec<f64> = (1..=dimension).map(f64::from).collect();
            let squares: i32 = (1..=dimension).map(|i| i * i).sum();
            assert_eq!(dot(&x, &x), f64::from(squares));
        }
    }

    #[test]
    fn directions_have_length_one_and_no_preference() {
        let mut stream = Seed(5).stream("test", 0, 0);
        let mut sums = [0.0; 3];
        for _ in 0..10_000 {
            let x = direction(3, &mut stream);
            assert!((dot(&x, &x) - 1.0).abs() < 1e-12);
            sums.iter_mut().zip(&x).for_each(|(sum, x)| *sum += x);
        }
        // Each sum has standard deviation √(10 000/3) = 58.
        assert!(sums.iter().all(|sum| sum.abs() < 300.0), "{sums:?}");
        assert_eq!(direction(0, &mut stream), []);
    }
}
