//! The nearest point of a ball, in the norm of a matrix: argmin (θ − θ')ᵀA(θ − θ') over ‖θ‖ ≤ S.

use crate::evidence::{Evidence, add_assign, multiply};
use crate::ridge::Ridge;

/// Enough for any matrix that factorises: Newton's method on the secular equation needs seven at most.
const MAX_STEPS: usize = 60;

/// Returns ‖v‖, the Euclidean norm.
pub(crate) fn norm(v: &[f64]) -> f64 {
    dot(v, v).sqrt()
}

/// Returns aᵀb. The caller passes vectors of the same length.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Shortens `theta` to the ball, straight towards its centre.
pub(crate) fn shorten(theta: &mut [f64], radius: f64) {
    let norm = norm(theta);
    if norm > radius {
        theta.iter_mut().for_each(|v| *v *= radius / norm);
    }
}

/// Moves `theta` to the nearest point of the ball in the norm of A = Σ `parts` + `ridge`·I.
///
/// Inside the ball nothing happens. Outside, the optimality conditions give θ(μ) = (A + μI)⁻¹Aθ' with
/// ‖θ(μ)‖ = S; 1/‖θ(μ)‖ is concave and increasing in μ, so Newton's method from zero climbs to its root
/// without overshooting.
#[allow(clippy::needless_pass_by_value, reason = "iterators are passed by value")]
pub(crate) fn project<'e>(
    theta: &mut [f64],
    radius: f64,
    ridge: f64,
    parts: impl Iterator<Item = &'e Evidence> + Clone,
) {
    if norm(theta) <= radius {
        return;
    }
    let mut target: Vec<f64> = theta.iter().map(|v| ridge * v).collect();
    parts.clone().for_each(|part| add_assign(&mut target, &multiply(part.gram(), 0.0, theta)));
    // ‖θ(μ)‖ ≤ ‖Aθ'‖/μ, so the root lies below this.
    let (mut low, mut high) = (0.0, norm(&target) / radius);
    let mut shift = 0.0;
    for _ in 0..MAX_STEPS {
        let mut shifted = Ridge::new(theta.len(), ridge + shift);
        if shifted.refresh(parts.clone()).is_err() {
            break;
        }
        let mut point = target.clone();
        shifted.solve(&mut point);
        let length = norm(&point);
        if !length.is_finite() {
            break;
        }
        if (length - radius).abs() <= 1e-14 * radius {
            theta.copy_from_slice(&point);
            break;
        }
        if length > radius {
            low = shift;
            // Kept in case that this is the last step.
            theta.copy_from_slice(&point);
        } else {
            high = shift;
        }
        // d‖θ‖/dμ = −θᵀ(A + μI)⁻¹θ/‖θ‖.
        shifted.to_factor_coordinates(&mut point);
        let slope = dot(&point, &point) / length;
        let next = shift + (length / radius - 1.0) * length / slope;
        shift = if next > low && next < high { next } else { 0.5 * (low + high) };
        if high - low <= f64::EPSILON * high {
            break;
        }
    }
    shorten(theta, radius);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Seed;

    struct Problem {
        gram: Evidence,
        ridge: f64,
        theta: Vec<f64>,
    }

    /// A matrix with condition numbers up to about 10⁹, and a point.
    fn problem(d: usize, spread: f64, scale: f64, seed: u64) -> Problem {
        let mut stream = Seed(seed).stream("test", 0, 0);
        let mut gram = Evidence::none(d);
        for k in 0..2 * d {
            let size = libm::pow(10.0, -spread * k as f64 / (2 * d) as f64);
            let x: Vec<f64> = (0..d).map(|_| size * stream.normal()).collect();
            gram.observe(&x, 0.0).unwrap();
        }
        let theta = (0..d).map(|_| scale * stream.normal()).collect();
        Problem { gram, ridge: 1e-7, theta }
    }

    impl Problem {
        fn projected(&self, theta: &[f64], radius: f64) -> Vec<f64> {
            let mut theta = theta.to_vec();
            project(&mut theta, radius, self.ridge, [&self.gram].into_iter());
            theta
        }

        fn times(&self, v: &[f64]) -> Vec<f64> {
            multiply(self.gram.gram(), self.ridge, v)
        }

        fn distance(&self, a: &[f64], b: &[f64]) -> f64 {
            let difference: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
            dot(&difference, &self.times(&difference)).max(0.0).sqrt()
        }
    }

    proptest! {
        // Oracle O15.
        #[test]
        fn the_optimality_conditions_hold(d in 1usize..12, spread in 0.0..4.0f64, scale in 0.1..50.0f64, seed: u64) {
            let problem = problem(d, spread, scale, seed);
            let theta = problem.projected(&problem.theta, 1.0);
            prop_assert!(norm(&theta) <= 1.0 + 1e-12);
            if norm(&problem.theta) > 1.0 {
                // A(θ' − θ) = μθ with μ ≥ 0: the direction of steepest descent points straight out.
                let pull: Vec<f64> = problem.theta.iter().zip(&theta).map(|(a, b)| a - b).collect();
                let pull = problem.times(&pull);
                let multiplier = dot(&pull, &theta);
                prop_assert!(multiplier >= 0.0);
                let rest: Vec<f64> = pull.iter().zip(&theta).map(|(p, t)| p - multiplier * t).collect();
                prop_assert!(norm(&rest) <= 1e-9 * norm(&problem.times(&problem.theta)), "{:?}", rest);
            } else {
                prop_assert_eq!(theta, problem.theta);
            }
        }

        #[test]
        fn projecting_twice_is_projecting_once(d in 1usize..9, scale in 0.1..50.0f64, seed: u64) {
            let problem = problem(d, 2.0, scale, seed);
            let once = problem.projected(&problem.theta, 1.5);
            let twice = problem.projected(&once, 1.5);
            prop_assert!(problem.distance(&once, &twice) <= 1e-12 * problem.distance(&once, &vec![0.0; d]).max(1.0));
        }

        #[test]
        fn no_two_points_come_further_apart(d in 1usize..9, scale in 0.1..20.0f64, seed: u64) {
            let problem = problem(d, 2.0, scale, seed);
            let mut stream = Seed(seed).stream("other", 0, 0);
            let other: Vec<f64> = (0..d).map(|_| scale * stream.normal()).collect();
            let (a, b) = (problem.projected(&problem.theta, 1.0), problem.projected(&other, 1.0));
            let (before, after) = (problem.distance(&problem.theta, &other), problem.distance(&a, &b));
            prop_assert!(after <= before * (1.0 + 1e-9) + 1e-12);
        }

        #[test]
        fn for_a_multiple_of_the_identity_it_shortens(d in 1usize..9, scale in 0.1..50.0f64, seed: u64) {
            let problem = problem(d, 1.0, scale, seed);
            let mut expected = problem.theta.clone();
            shorten(&mut expected, 2.0);
            let mut theta = problem.theta;
            project(&mut theta, 2.0, 7.0, [&Evidence::none(d)].into_iter());
            for (a, b) in theta.iter().zip(&expected) {
                prop_assert!((a - b).abs() <= 1e-12);
            }
        }
    }
}
