//! From Gaussian and zero-concentrated to (ε, δ) differential privacy and back.
//!
//! Everything that is released here carries Gaussian noise. Its loss is one number: μ, how far one interaction
//! moves what is measured in standard deviations of the noise. Losses of several mechanisms add up as squares,
//! also when a later one depends on what an earlier one released (Dong, Roth and Su, 2022), and
//! [`gaussian_epsilon`](crate::privacy::conversion::gaussian_epsilon) of the sum is exact: no smaller ε holds
//! with the same noise. Budgets and reports use it.
//!
//! ρ-zCDP with ρ = μ²/2 composes as well but converts with a loss: at δ = 0.1 it would take a quarter more
//! noise. The conversions of Bun and Steinke (2016) and of Canonne, Kamath and Steinke (2020) remain for
//! comparison with other tools.

/// ε = ρ + 2√(ρ ln(1/δ)).
#[must_use]
pub fn simple_epsilon(rho: f64, delta: f64) -> f64 {
    rho + 2.0 * (rho * libm::log(1.0 / delta)).sqrt()
}

/// ρ = (√(ln(1/δ) + ε) − √ln(1/δ))²: the inverse of [`simple_epsilon`].
#[must_use]
pub fn simple_rho(epsilon: f64, delta: f64) -> f64 {
    let failure = libm::log(1.0 / delta);
    // The difference of two roots, without cancelling.
    let root = epsilon / ((failure + epsilon).sqrt() + failure.sqrt());
    root * root
}

/// The smallest ε over all orders α > 1 of αρ + (ln(1/δ) + (α−1)·ln(1 − 1/α) − ln α)/(α−1); never negative.
#[must_use]
pub fn epsilon(rho: f64, delta: f64) -> f64 {
    if rho <= 0.0 { 0.0 } else { tight(rho, delta).0.max(0.0) }
}

/// The smallest ε, which may be negative, with the order that gives it.
fn tight(rho: f64, delta: f64) -> (f64, f64) {
    let failure = libm::log(1.0 / delta);
    let at = |u: f64| {
        let over = libm::exp(u); // α − 1
        let order = 1.0 + over;
        let slack = over * libm::log(over / order) - libm::log(order);
        order * rho + (failure + slack) / over
    };
    // The best order is near 1 + √(ln(1/δ)/ρ); in u = ln(α − 1) the curve has one valley.
    let centre = 0.5 * libm::log((failure.max(1e-12)) / rho);
    let (mut low, mut high) = (centre - 12.0, centre + 12.0);
    for _ in 0..70 {
        let third = (high - low) / 3.0;
        if at(low + third) < at(high - third) {
            high -= third;
        } else {
            low += third;
        }
    }
    let best = 0.5 * (low + high);
    (at(best), 1.0 + libm::exp(best))
}

/// The largest ρ whose [`epsilon`] at `delta` is at most `target`, up to rounding.
#[must_use]
pub fn rho(target: f64, delta: f64) -> f64 {
    // ε is the lowest of many lines in ρ, so it is concave: Newton's steps from below never go too far.
    let mut rho = simple_rho(target, delta);
    for _ in 0..30 {
        let (epsilon, order) = tight(rho, delta);
        let step = (target - epsilon) / order;
        if step <= 1e-13 * rho {
            break;
        }
        rho += step;
    }
    rho
}

/// The δ that Gaussian noise with ρ-zCDP has at ε, exactly (Balle and Wang, 2018): with μ = √(2ρ),
/// Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ).
#[must_use]
pub fn gaussian_delta(rho: f64, epsilon: f64) -> f64 {
    let mu = (2.0 * rho).sqrt();
    let phi = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let (from, to) = (-mu / 2.0 - epsilon / mu, mu / 2.0 - epsilon / mu);
    if mu < 1e-4 {
        // The two nearly cancel, and what rounding leaves of them would promise too much. Φ(to) − Φ(from) by Simpson's rule is exact to the
        // last digit here.
        let density = |x: f64| libm::exp(-0.5 * x * x) / (2.0 * std::f64::consts::PI).sqrt();
        let between = mu / 6.0 * (density(from) + 4.0 * density(-epsilon / mu) + density(to));
        return between - libm::expm1(epsilon) * phi(from);
    }
    phi(to) - libm::exp(epsilon) * phi(from)
}

/// Losses beyond this are converted by zCDP: the exponentials of the exact formula leave the numbers, and nothing is hidden anyway.
const LARGEST_EXACT: f64 = 30.0;

/// The smallest ε ≥ 0 at which Gaussian noise with loss `mu` has a δ of at most `delta`, up to rounding upwards.
#[must_use]
pub fn gaussian_epsilon(mu: f64, delta: f64) -> f64 {
    if mu <= 0.0 || gaussian_delta(0.5 * mu * mu, 0.0) <= delta {
        return 0.0;
    }
    if mu > LARGEST_EXACT {
        return epsilon(0.5 * mu * mu, delta);
    }
    let (mut low, mut high) = (0.0, epsilon(0.5 * mu * mu, delta));
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if gaussian_delta(0.5 * mu * mu, middle) <= delta {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// The largest loss whose [`gaussian_epsilon`] at `delta` is at most `target`, up to rounding downwards.
#[must_use]
pub fn gaussian_mu(target: f64, delta: f64) -> f64 {
    // zCDP promises no less than it keeps, so its ρ is a loss that fits. A loss above `LARGEST_EXACT` is not refined.
    let mut low = (2.0 * rho(target, delta)).sqrt();
    if low > LARGEST_EXACT {
        return low;
    }
    let fits = |mu: f64| gaussian_delta(0.5 * mu * mu, target) <= delta;
    let mut high = 2.0 * low;
    while high < LARGEST_EXACT && fits(high) {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of an independent computation: μ from Brent's method on the exact δ, and the ratio of noise to that of zCDP.
    #[test]
    fn gaussian_losses_have_the_known_numbers_and_need_less_noise() {
        for (target, delta, ratio) in [(1.0, 0.1, 0.80), (1.0, 1e-5, 0.92)] {
            let mu = gaussian_mu(target, delta);
            assert!((gaussian_delta(0.5 * mu * mu, target) / delta - 1.0).abs() < 1e-6, "{mu}");
            let less = (2.0 * rho(target, delta)).sqrt() / mu;
            assert!((less - ratio).abs() < 0.01, "{target} {delta}: {less}");
        }
    }

    #[test]
    fn gaussian_losses_and_their_inverses_agree_and_never_promise_too_much() {
        for target in [0.01, 0.3, 1.0, 4.0, 20.0, 1e6, 1e30] {
            for delta in [1e-12, 1e-5, 0.1, 0.5] {
                let mu = gaussian_mu(target, delta);
                let back = gaussian_epsilon(mu, delta);
                assert!(
                    back <= target * (1.0 + 1e-12) && back > target * (1.0 - 1e-5),
                    "{target} {delta}: {mu} gives {back}"
                );
                assert!(gaussian_epsilon(mu, delta) <= epsilon(0.5 * mu * mu, delta) * (1.0 + 1e-9));
            }
        }
        assert_eq!(gaussian_epsilon(0.0, 1e-5), 0.0);
        assert_eq!(gaussian_epsilon(0.01, 0.1), 0.0, "so little is hidden by δ alone");
    }

    /// Where ε is nothing beside δ, δ is the probability between −μ/2 and μ/2, which is μ/√(2π).
    #[test]
    fn tiny_promises_are_not_lost_to_rounding() {
        for delta in [1e-30, 1e-20, 1e-12, 1e-6] {
            let mu = gaussian_mu(1e-3 * delta, delta) / (delta * (2.0 * std::f64::consts::PI).sqrt());
            assert!((mu - 1.0).abs() < 1e-3, "{delta}: {mu}");
        }
        // The two ways to compute δ meet.
        for epsilon in [1e-6, 1e-4, 3e-4] {
            let at = |mu: f64| gaussian_delta(0.5 * mu * mu, epsilon);
            assert!((at(1e-4 * (1.0 - 1e-9)) / at(1e-4 * (1.0 + 1e-9)) - 1.0).abs() < 1e-6, "{epsilon}");
        }
    }

    /// ALGORITHMS: what the paper's noise would give, were it added: ρ of a tree is ε²/(32 ln²(2/δ)).
    #[test]
    fn the_published_calibration_gives_the_known_numbers() {
        let tree = |epsilon: f64, delta: f64| {
            let log = libm::log(2.0 / delta);
            epsilon * epsilon / (32.0 * log * log)
        };
        let close = |value: f64, expected: f64, half: f64| {
            assert!((value - expected).abs() <= half, "{value} is not {expected}");
        };
        close(simple_epsilon(tree(1.0, 0.1), 0.1), 0.18, 0.005);
        close(simple_epsilon(16.0 * tree(1.0, 0.1), 0.1), 0.77, 0.005);
        close(simple_epsilon(16.0 * tree(8.0, 0.1), 0.1), 9.3, 0.05);
        // Noise made for one tree and used in sixteen.
        close(simple_epsilon(16.0 * simple_rho(1.0, 0.1), 0.1), 5.1, 0.05);
        // The tight conversion promises more with the same noise, and the order of things stays.
        assert!(epsilon(16.0 * tree(1.0, 0.1), 0.1) < 0.77);
        assert!(epsilon(16.0 * tree(8.0, 0.1), 0.1) < 9.3);
        assert!(epsilon(16.0 * simple_rho(1.0, 0.1), 0.1) > 3.0);
    }

    #[test]
    fn conversions_and_their_inverses_agree() {
        for target in [0.01, 0.3, 1.0, 4.0, 20.0] {
            for delta in [1e-12, 1e-5, 0.1, 0.5] {
                assert!((simple_epsilon(simple_rho(target, delta), delta) - target).abs() < 1e-9 * target);
                let tight = rho(target, delta);
                assert!((epsilon(tight, delta) - target).abs() < 1e-6 * target, "{target} {delta}");
                assert!(tight >= simple_rho(target, delta) * (1.0 - 1e-12));
            }
        }
        assert_eq!(epsilon(0.0, 1e-5), 0.0);
    }

    /// What is claimed is never less than what is: the exact δ of Gaussian noise at the claimed ε is at most
    /// the claimed δ, and the tight claim is not far off.
    #[test]
    fn the_tight_conversion_is_safe_and_close_for_gaussian_noise() {
        for rho in [1e-4, 1e-2, 0.09, 0.5, 3.0, 20.0] {
            for delta in [1e-9, 1e-5, 1e-2] {
                let claimed = epsilon(rho, delta);
                let exact = gaussian_delta(rho, claimed);
                assert!(exact <= delta * (1.0 + 1e-6), "{rho} {delta}: {exact}");
                if claimed > 0.0 {
                    assert!(gaussian_delta(rho, 0.8 * claimed - 0.02) > delta * 0.2, "{rho} {delta}");
                }
            }
        }
    }

    /// The exact δ against the integral that defines it: ∫ max(0, p − e^ε·q) over two unit normals μ apart.
    #[test]
    fn the_exact_conversion_is_the_integral_it_stands_for() {
        for (rho, epsilon) in [(0.02, 0.1), (0.5, 1.0), (2.0, 3.0)] {
            let mu = (2.0_f64 * rho).sqrt();
            let density = |x: f64| libm::exp(-0.5 * x * x) / (2.0 * std::f64::consts::PI).sqrt();
            let steps = 400_000;
            let width = 24.0 / f64::from(steps);
            let integral: f64 = (0..steps)
                .map(|step| {
                    let x = -12.0 + (f64::from(step) + 0.5) * width;
                    (density(x - mu) - libm::exp(epsilon) * density(x)).max(0.0) * width
                })
                .sum();
            assert!((integral - gaussian_delta(rho, epsilon)).abs() < 1e-7, "{rho} {epsilon}");
        }
    }
}
