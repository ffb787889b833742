use super::*;
use crate::glm::config::GlmConfig;
use crate::glm::history::History;
use crate::glm::link::LinkFunction;
use crate::glm::projection::norm;
use crate::random::Seed;

/// A federation in one place: observations, and the loss over them.
struct Data {
    constants: Constants,
    history: History,
    evidence: Evidence,
    model: Ridge,
}

impl Data {
    /// n observations with features on the unit sphere and rewards from a θ of norm `truth`.
    fn new(link: LinkFunction, d: usize, n: u64, truth: f64, seed: u64) -> Self {
        let config = GlmConfig { link, ..GlmConfig::default() };
        let constants = config.constants();
        let mut stream = Seed(seed).stream("test", 0, 0);
        let mut direction = || {
            let v: Vec<f64> = (0..d).map(|_| stream.normal()).collect();
            let length = norm(&v);
            (v.into_iter().map(|v| v / length).collect::<Vec<f64>>(), stream.uniform())
        };
        let theta: Vec<f64> = direction().0.iter().map(|v| truth * v).collect();
        let (mut history, mut evidence) = (History::new(d), Evidence::none(d));
        for _ in 0..n {
            let (x, draw) = direction();
            let mean = link.mean(dot(&x, &theta));
            let y = match link {
                LinkFunction::Logistic | LinkFunction::Probit => f64::from(u8::from(draw < mean)),
                LinkFunction::Identity => mean + draw - 0.5,
                LinkFunction::Poisson => (mean + 2.0 * draw - 1.0).max(0.0),
            };
            history.push(&x, y);
            evidence.add_observation(&x, 0.0);
        }
        let mut model = Ridge::new(d, constants.ridge());
        model.refresh([&evidence].into_iter()).unwrap();
        Self { constants, history, evidence, model }
    }

    fn problem(&self) -> Problem<'_> {
        let n = self.history.len() as f64;
        Problem {
            constants: &self.constants,
            evidence: &self.evidence,
            model: &self.model,
            gap: 1.0 / (n * n),
        }
    }

    fn solve(&self, solver: Solver, start: &[f64]) -> Solution {
        let problem = self.problem();
        let mut minimiser = Minimiser::new(solver, &Measured::default(), start);
        loop {
            // Saving and restoring in the middle makes no difference.
            minimiser = Minimiser::restored(minimiser.save(), start.len()).unwrap();
            let (link, count) = (self.constants.link, self.history.len());
            let (gradient, curvature) = self.history.gradient_and_curvature(link, minimiser.point(), count);
            let curvature = minimiser.needs_curvature().then_some(&*curvature);
            if let Some(found) = minimiser.advance(&problem, &gradient, curvature, 5000) {
                return found;
            }
        }
    }

    /// The loss F(θ), a sum over the whole history.
    fn loss(&self, theta: &[f64]) -> f64 {
        let mut x = vec![0.0; theta.len()];
        let sum: f64 = (0..self.history.len())
            .map(|i| {
                let y = self.history.read(i, &mut x);
                let z = dot(&x, theta);
                self.constants.link.potential(z) - y * z
            })
            .sum();
        (sum + 0.5 * self.constants.lambda * dot(theta, theta)) / self.history.len() as f64
    }
}

const METHODS: [Solver; 4] = [Solver::Restart, Solver::Nesterov, Solver::Newton, Solver::Preconditioned];

// Oracle O14.
#[test]
fn what_is_returned_is_as_near_the_minimum_as_it_says() {
    for link in LinkFunction::all() {
        for (n, truth) in [(3, 0.5), (60, 0.5), (2000, 0.9)] {
            let data = Data::new(link, 6, n, truth, 4);
            // Ten times as exact, by Newton's method.
            let mut exact = data.problem();
            exact.gap = 1e-24;
            let mut reference = Minimiser::new(Solver::Newton, &Measured::default(), &[0.0; 6]);
            let minimum = loop {
                let count = data.history.len();
                let (g, h) = data.history.gradient_and_curvature(link, reference.point(), count);
                if let Some(found) = reference.advance(&exact, &g, Some(&h), 60) {
                    break data.loss(&found.estimate);
                }
            };
            for solver in METHODS {
                let found = data.solve(solver, &[0.0; 6]);
                let inside = norm(&found.estimate) <= data.constants.radius * (1.0 + 1e-9);
                // The papers' method knows no ball: outside of it, it may find less.
                if solver == Solver::Nesterov && !inside {
                    continue;
                }
                let (gap, excess) = (1.0 / (n * n) as f64, data.loss(&found.estimate) - minimum);
                assert!(found.gap <= gap, "{link:?} {solver:?} n={n}: {} is not enough", found.gap);
                assert!(excess <= gap + 1e-13, "{link:?} {solver:?} n={n}: off by {excess}");
            }
        }
    }
}

#[test]
fn all_methods_reach_the_same_point() {
    let data = Data::new(LinkFunction::Logistic, 5, 400, 0.6, 9);
    // Far below what a federation asks for, so that the points themselves agree.
    let solve = |solver| {
        let mut problem = data.problem();
        problem.gap = 1e-15;
        let mut minimiser = Minimiser::new(solver, &Measured::default(), &[0.0; 5]);
        loop {
            let (g, h) = data.history.gradient_and_curvature(LinkFunction::Logistic, minimiser.point(), 400);
            if let Some(found) = minimiser.advance(&problem, &g, Some(&h), 5000) {
                return found.estimate;
            }
        }
    };
    let newton = solve(Solver::Newton);
    for solver in METHODS {
        for (a, b) in solve(solver).iter().zip(&newton) {
            assert!((a - b).abs() < 1e-6, "{solver:?}: {a} and {b}");
        }
    }
}

/// What was published for restarted acceleration with the ball out of reach: 19, 30 and 39 gradients. Ours
/// may need a tenth more. Newton's method and the shared norm need a handful.
#[test]
fn gradients_to_tolerance_are_as_few_as_published() {
    for (n, published) in [(400, 19.0), (4000, 30.0), (40_000, 39.0)] {
        let mean = |solver| {
            let runs = (0..6).map(|seed| {
                let mut data = Data::new(LinkFunction::Logistic, 10, n, 1.0, 100 + seed);
                data.constants.radius = 100.0;
                data.solve(solver, &[0.0; 10]).evaluations as f64
            });
            runs.sum::<f64>() / 6.0
        };
        let restart = mean(Solver::Restart);
        assert!(restart <= 1.1 * published && restart >= 0.8 * published, "{restart} gradients at n = {n}");
        let (newton, preconditioned) = (mean(Solver::Newton), mean(Solver::Preconditioned));
        assert!(newton <= 6.0, "{newton} at n = {n}");
        assert!(preconditioned <= 0.5 * restart, "{preconditioned} at n = {n}");
    }
}

#[test]
fn a_warm_start_at_the_minimum_needs_one_gradient() {
    let data = Data::new(LinkFunction::Logistic, 4, 500, 0.7, 2);
    for solver in METHODS {
        let found = data.solve(solver, &[0.0; 4]);
        let again = data.solve(solver, &found.estimate);
        assert!(again.evaluations <= 2, "{solver:?} needs {}", again.evaluations);
    }
}

#[test]
fn rewards_of_one_kind_give_a_finite_minimum_in_the_ball() {
    for (link, reward) in [
        (LinkFunction::Logistic, 1.0),
        (LinkFunction::Logistic, 0.0),
        (LinkFunction::Probit, 1.0),
        (LinkFunction::Poisson, 1e6),
    ] {
        let mut data = Data::new(link, 3, 0, 0.5, 1);
        for i in 0..50 {
            let x = [1.0, 0.1 * f64::from(i % 3), 0.0];
            data.history.push(&x, reward);
            data.evidence.add_observation(&x, 0.0);
        }
        data.model.refresh([&data.evidence].into_iter()).unwrap();
        for solver in [Solver::Restart, Solver::Newton, Solver::Preconditioned] {
            let found = data.solve(solver, &[0.0; 3]);
            assert!(found.gap.is_finite(), "{link:?} {solver:?}");
            assert!(norm(&found.estimate) <= data.constants.radius * (1.0 + 1e-9), "{link:?} {solver:?}");
        }
    }
}

#[test]
fn the_cheaper_method_is_the_one_that_was_measured_to_be() {
    let method = |preconditioned, newton, d| Measured { preconditioned, newton }.cheaper(d);
    // Nothing is known yet: gradients alone, and jumps once gradients cost more than two jumps could.
    assert_eq!(method(0, 0, 10), Method::Preconditioned);
    assert_eq!(method(4, 0, 10), Method::Preconditioned);
    assert_eq!(method(9, 0, 10), Method::Newton);
    // Four jumps of 75 scalars or nine gradients of 20.
    assert_eq!(method(9, 4, 10), Method::Preconditioned);
    assert_eq!(method(20, 4, 10), Method::Newton);
    let mut measured = Measured::default();
    let mut minimiser = Minimiser::new(Solver::Newton, &measured, &[0.0; 3]);
    minimiser.evaluations = 5;
    measured.note(&minimiser);
    assert_eq!(measured, Measured { preconditioned: 0, newton: 5 });
}
