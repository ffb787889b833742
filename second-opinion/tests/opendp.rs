//! The accountant, the calibration and the noise of posse against those of OpenDP.

use opendp::combinators::{make_composition, make_zCDP_to_approxDP};
use opendp::core::Measurement;
use opendp::domains::{AtomDomain, VectorDomain};
use opendp::measurements::make_gaussian;
use opendp::measures::ZeroConcentratedDivergence;
use opendp::metrics::{AbsoluteDistance, L2Distance};
use posse_core::privacy::{Budget, Mechanism, conversion, discrete_gaussian};
use posse_core::{PrivacyConfig, Seed};

type Scalar = Measurement<AtomDomain<f64>, AbsoluteDistance<f64>, ZeroConcentratedDivergence, f64>;

/// Gaussian noise on one number.
fn gaussian(scale: f64) -> Scalar {
    make_gaussian(AtomDomain::new_non_nan(), AbsoluteDistance::default(), scale, None).unwrap()
}

/// ε of ρ-zCDP at δ. OpenDP converts the loss of a mechanism: one with noise 1/√(2ρ) on a number that moves by 1.
fn their_epsilon(rho: f64, delta: f64) -> f64 {
    let mechanism = gaussian(1.0 / (2.0 * rho).sqrt());
    make_zCDP_to_approxDP(mechanism).unwrap().map(&1.0).unwrap().epsilon(delta).unwrap()
}

#[test]
fn zcdp_converts_to_the_same_epsilon() {
    let mut worst = 0.0f64;
    for rho in [1e-4, 3.48e-3, 0.02, 0.0556, 0.3, 1.0, 5.0, 20.0] {
        for delta in [1e-9, 1e-5, 1e-3, 0.1] {
            let (ours, theirs) = (conversion::epsilon(rho, delta), their_epsilon(rho, delta));
            let off = (ours - theirs).abs() / theirs.max(1e-6);
            println!("rho {rho:<8} delta {delta:<6e} ours {ours:.12} theirs {theirs:.12}");
            worst = worst.max(off);
        }
    }
    println!("largest relative difference {worst:e}");
    assert!(worst < 1e-6, "{worst:e}");
}

#[test]
fn budgets_are_what_the_inverse_of_their_conversion_says() {
    for (epsilon, delta) in [(0.5, 1e-5), (1.0, 1e-5), (1.0, 0.1), (8.0, 1e-6)] {
        let rho = conversion::rho(epsilon, delta);
        let back = their_epsilon(rho, delta);
        println!("epsilon {epsilon} delta {delta:e}: rho {rho:.12}, which they call epsilon {back:.12}");
        assert!((back / epsilon - 1.0).abs() < 1e-6);
    }
}

/// μ of Gaussian noise against their exact privacy profile of a Gaussian: δ at ε for a number that moves by 1.
#[test]
fn gaussian_losses_are_no_larger_than_their_bound_on_the_same_noise() {
    for (epsilon, delta) in [(0.5, 1e-5), (1.0, 1e-5), (1.0, 0.1), (8.0, 1e-6)] {
        let mu = conversion::gaussian_mu(epsilon, delta);
        // Their conversion goes through zCDP, which loses a little: it cannot promise less for the same noise.
        let theirs = their_epsilon(0.5 * mu * mu, delta);
        println!("epsilon {epsilon} delta {delta:e}: mu {mu:.9}, which they call epsilon {theirs:.9}");
        assert!(theirs >= epsilon * (1.0 - 1e-9), "{theirs}");
        assert!(theirs <= 1.6 * epsilon, "{theirs}");
    }
}

/// Every measurement hides the symmetric matrix [x; y/κ][x; y/κ]ᵀ with variance σ² off the diagonal and 2σ² on it: Gaussian
/// noise of scale √2·σ in the metric of Frobenius, in which one interaction moves it by √2·(X̄² + Ȳ²/κ²) times its weight.
#[test]
fn a_whole_budget_of_measurements_composes_to_what_we_promise() {
    for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
        for max_releases in [1, 16, 100] {
            let config = PrivacyConfig { max_releases, mechanism, ..Default::default() };
            let budget = Budget::new(&config, 10, false);
            let share = &budget.cluster;
            let worst = (1..=max_releases)
                .map(|leaf| {
                    let scales = (leaf..=max_releases).filter_map(|k| {
                        let weight = share.factors.weights(k)[leaf as usize - 1];
                        (weight > 0.0).then(|| std::f64::consts::SQRT_2 * share.sigma / weight)
                    });
                    let noise = |scale: f64| {
                        let domain = VectorDomain::new(AtomDomain::<f64>::new_non_nan());
                        make_gaussian(domain, L2Distance::<f64>::default(), scale, None).unwrap()
                    };
                    let all: Measurement<_, _, ZeroConcentratedDivergence, _> =
                        make_composition(scales.map(noise).collect()).unwrap();
                    let reach = 1.0 + config.vector_noise.powi(-2);
                    all.map(&(std::f64::consts::SQRT_2 * reach)).unwrap()
                })
                .fold(0.0, f64::max);
            let ours = 0.5 * budget.mu * budget.mu;
            println!("{mechanism:?}, {max_releases} releases: rho {worst:.9} (ours {ours:.9})");
            assert!(worst <= ours && worst > 0.999 * ours);
        }
    }
}

/// The largest distance between two empirical distribution functions.
fn kolmogorov(mut one: Vec<f64>, mut other: Vec<f64>) -> f64 {
    one.sort_by(f64::total_cmp);
    other.sort_by(f64::total_cmp);
    let (mut i, mut j, mut worst) = (0, 0, 0.0f64);
    while i < one.len() && j < other.len() {
        if one[i] <= other[j] {
            i += 1;
        } else {
            j += 1;
        }
        let apart = i as f64 / one.len() as f64 - j as f64 / other.len() as f64;
        worst = worst.max(apart.abs());
    }
    worst
}

/// Both are discrete Gaussians drawn exactly. Samples must pass for one distribution: with n each, the distance exceeds
/// 3.5·√(2/n) with a probability below 10⁻⁹.
#[test]
fn noise_has_the_distribution_of_their_sampler() {
    let (n, sigma) = (20_000, 15.6);
    let mut stream = Seed(1).stream("second opinion", 0, 0);
    let steps = 1u64 << 20;
    let variance = (sigma * steps as f64).powi(2);
    let mut drawn = |scale: f64| -> Vec<f64> {
        let variance = (variance * scale * scale) as u64;
        (0..n).map(|_| discrete_gaussian(variance, &mut || stream.next_u64()) as f64 / steps as f64).collect()
    };
    let theirs = gaussian(sigma);
    let theirs: Vec<f64> = (0..n).map(|_| theirs.invoke(&0.0).unwrap()).collect();
    let apart = kolmogorov(drawn(1.0), theirs.clone());
    let limit = 3.5 * (2.0 / n as f64).sqrt();
    println!("distance {apart:.5}, limit {limit:.5}");
    assert!(apart < limit);
    assert!(kolmogorov(drawn(0.8), theirs) > limit, "it can tell: a fifth less noise is found");
}
