//! The two directions in which points differ most.

/// Each point's place along the two principal directions of all of them, centred, the first direction first.
///
/// By power iteration on the covariance from a fixed start, so that the same points give the same picture; the sign of a
/// direction is that in which its largest entry is positive. Points must have the same length.
#[must_use]
pub fn principal_plane(points: &[Vec<f64>]) -> Vec<[f64; 2]> {
    let Some(width) = points.first().map(Vec::len) else { return Vec::new() };
    let mean: Vec<f64> =
        (0..width).map(|j| points.iter().map(|point| point[j]).sum::<f64>() / points.len() as f64).collect();
    let centred: Vec<Vec<f64>> =
        points.iter().map(|point| point.iter().zip(&mean).map(|(x, mean)| x - mean).collect()).collect();
    let mut places = vec![[0.0; 2]; points.len()];
    let mut known: Vec<Vec<f64>> = Vec::new();
    for axis in 0..2 {
        let direction = direction(&centred, &known);
        places.iter_mut().zip(&centred).for_each(|(place, point)| place[axis] = dot(point, &direction));
        known.push(direction);
    }
    places
}

/// The direction of the largest spread that is at right angles to the known ones.
fn direction(points: &[Vec<f64>], known: &[Vec<f64>]) -> Vec<f64> {
    let width = points[0].len();
    // Any start that is not at right angles to the answer does.
    let mut direction: Vec<f64> = (0..width).map(|j| 1.0 + j as f64 / width as f64).collect();
    for _ in 0..500 {
        known.iter().for_each(|other| remove(&mut direction, other));
        let length = dot(&direction, &direction).sqrt();
        if length == 0.0 {
            return direction;
        }
        direction.iter_mut().for_each(|v| *v /= length);
        let mut next = vec![0.0; width];
        for point in points {
            let along = dot(point, &direction);
            next.iter_mut().zip(point).for_each(|(sum, x)| *sum += along * x);
        }
        direction = next;
    }
    known.iter().for_each(|other| remove(&mut direction, other));
    let length = dot(&direction, &direction).sqrt().max(f64::MIN_POSITIVE);
    let largest = direction.iter().copied().fold(0.0, |a: f64, b: f64| if b.abs() > a.abs() { b } else { a });
    direction.iter_mut().for_each(|v| *v /= length * largest.signum());
    direction
}

fn remove(direction: &mut [f64], other: &[f64]) {
    let along = dot(direction, other);
    direction.iter_mut().zip(other).for_each(|(v, o)| *v -= along * o);
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_directions_come_first() {
        // A cross in a plane of three dimensions, long along (0, 3, 4)/5 and short along x.
        let long = |t: f64| vec![1.0, 2.0 + 0.6 * t, 3.0 + 0.8 * t];
        let short = |t: f64| vec![1.0 + t, 2.0, 3.0];
        let points = vec![long(10.0), long(-10.0), long(5.0), long(-5.0), short(2.0), short(-2.0)];
        let places = principal_plane(&points);
        for (place, expected) in
            places.iter().zip([[10.0, 0.0], [-10.0, 0.0], [5.0, 0.0], [-5.0, 0.0], [0.0, 2.0]])
        {
            for (a, b) in place.iter().zip(expected) {
                assert!((a - b).abs() < 1e-9, "{place:?}");
            }
        }
        assert!(principal_plane(&[]).is_empty());
        assert_eq!(principal_plane(&[vec![1.0, 1.0], vec![1.0, 1.0]]), [[0.0; 2]; 2]);
    }
}
