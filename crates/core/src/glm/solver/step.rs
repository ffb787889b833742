//! One move of each method.

use super::{Method, Minimiser, Problem, squared_norm};
use crate::evidence::{Evidence, multiply};
use crate::glm::projection::{dot, norm, project, shorten};
use crate::ridge::Ridge;

/// After this many halvings of a Newton step something is wrong with it.
const MAX_HALVINGS: u32 = 12;

impl Minimiser {
    /// A plain projected step from the point, given the gradient of the summed loss there, and by how much
    /// F may exceed its minimum where it lands.
    ///
    /// With ℓ the smoothness and m the strong convexity of F in the norm of the step, the gradient map
    /// G = ℓ(θ − θ⁺) bounds the excess at θ⁺ by ‖G‖²/(2m).
    pub(super) fn descend(&self, problem: &Problem<'_>, total: &[f64]) -> (Vec<f64>, f64) {
        let (n, constants) = (problem.count(), problem.constants);
        let euclidean = constants.lambda / n;
        if self.method == Method::Nesterov {
            // Its points are not projected; the gradient itself bounds the excess, right here.
            let slope = norm(total) / n;
            return (self.point.clone(), slope * slope / (2.0 * euclidean));
        }
        if self.method == Method::Restart {
            let smoothness = problem.smoothness();
            let mut next: Vec<f64> =
                self.point.iter().zip(total).map(|(theta, g)| theta - g / (n * smoothness)).collect();
            shorten(&mut next, constants.radius);
            let map = smoothness * norm(&difference(&self.point, &next));
            return (next, map * map / (2.0 * euclidean));
        }
        // In the norm of A = Σxxᵀ + (λ/c_μ)I: k_μ/n-smooth and c_μ/n-strongly convex.
        let mut step = total.to_vec();
        problem.model.solve(&mut step);
        let mut next: Vec<f64> =
            self.point.iter().zip(&step).map(|(theta, s)| theta - s / constants.largest).collect();
        project(&mut next, constants.radius, problem.model.regularization(), [problem.evidence].into_iter());
        let moved = squared_norm(problem, &difference(&self.point, &next));
        let k = constants.largest;
        (next, k * k * moved / (2.0 * constants.smallest * n))
    }

    /// On from `landed`, with momentum unless it points uphill.
    pub(super) fn accelerate(&mut self, problem: &Problem<'_>, landed: Vec<f64>) {
        let progress = difference(&landed, &self.previous);
        let back = difference(&self.point, &landed);
        let uphill = if self.method == Method::Preconditioned {
            let ridge = problem.model.regularization();
            dot(&multiply(problem.evidence.gram(), ridge, &back), &progress)
        } else {
            dot(&back, &progress)
        };
        let weight = if uphill > 0.0 {
            self.momentum = 1.0;
            0.0
        } else if self.method == Method::Preconditioned {
            // Both constants are known, so the best constant momentum is.
            let root = problem.condition().sqrt();
            (root - 1.0) / (root + 1.0)
        } else {
            let next = 0.5 * (1.0 + (1.0 + 4.0 * self.momentum * self.momentum).sqrt());
            let weight = (self.momentum - 1.0) / next;
            self.momentum = next;
            weight
        };
        self.point = landed.iter().zip(&progress).map(|(at, by)| at + weight * by).collect();
        self.previous = landed;
    }

    /// The papers' sequence: v_{j+1} = (1 + √(1 + 4v_j²))/2 and weights (v_j − 1)/v_{j+1}.
    pub(super) fn accelerate_as_published(&mut self, problem: &Problem<'_>, total: &[f64]) {
        let scale = 1.0 / (problem.count() * problem.smoothness());
        let landed: Vec<f64> = self.point.iter().zip(total).map(|(theta, g)| theta - scale * g).collect();
        let next = 0.5 * (1.0 + (1.0 + 4.0 * self.momentum * self.momentum).sqrt());
        let weight = (self.momentum - 1.0) / next;
        self.point = landed.iter().zip(&self.previous).map(|(at, was)| at + weight * (at - was)).collect();
        self.momentum = next;
        self.previous = landed;
    }

    /// Newton's step, projected in the norm of the curvature; half of the last one where that was too far.
    pub(super) fn jump(&mut self, problem: &Problem<'_>, total: &[f64], curvature: Option<&[f64]>, gap: f64) {
        if gap > self.last_gap && self.halvings < MAX_HALVINGS {
            self.halvings += 1;
            self.point = self.point.iter().zip(&self.previous).map(|(at, was)| 0.5 * (at + was)).collect();
            return;
        }
        let (constants, d) = (problem.constants, total.len());
        let bent = curvature.map(|matrix| {
            Evidence::from_parts_unchecked(matrix.to_vec(), vec![0.0; d], problem.evidence.count())
        });
        let mut model = Ridge::new(d, constants.lambda);
        let sound = bent.as_ref().is_some_and(|bent| model.refresh([bent].into_iter()).is_ok());
        let (Some(bent), true, true) = (bent, sound, self.halvings < MAX_HALVINGS) else {
            // Without a usable curvature, gradients alone still get there.
            self.method = Method::Preconditioned;
            self.point.clone_from(&self.best);
            self.previous.clone_from(&self.best);
            return;
        };
        let mut step = total.to_vec();
        model.solve(&mut step);
        let mut next = difference(&self.point, &step);
        project(&mut next, constants.radius, constants.lambda, [&bent].into_iter());
        self.previous = std::mem::replace(&mut self.point, next);
        (self.last_gap, self.halvings) = (gap, 0);
    }
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}
