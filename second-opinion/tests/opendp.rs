//! The accountant, the calibration and the noise of posse against those of OpenDP.

use opendp::combinators::{make_composition, make_zCDP_to_approxDP};
use opendp::core::Measurement;
use opendp::domains::{AtomDomain, VectorDomain};
use opendp::measurements::make_gaussian;
use opendp::measures::ZeroConcentratedDivergence;
use opendp::metrics::{AbsoluteDistance, L2Distance};
use posse_core::privacy::{Node, NoiseSource, SeededNoise, Tree, conversion};
use posse_core::{AgentId, Evidence, PrivacyConfig, Seed};

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

/// A node hides the symmetric matrix [x; y][x; y]ᵀ with variance σ² off the diagonal and 2σ² on it: Gaussian
/// noise of scale √2·σ in the metric of Frobenius, in which one interaction moves it by √2·(X̄² + Ȳ²).
#[test]
fn a_whole_budget_of_nodes_composes_to_what_we_promise() {
    for (max_releases, max_trees) in [(1, 1), (16, 1), (16, 4), (1024, 2)] {
        let config = PrivacyConfig { max_releases, max_trees, ..Default::default() };
        let made = config.calibration(10);
        let nodes = (made.depth * max_trees) as usize;
        let node = || {
            make_gaussian(
                VectorDomain::new(AtomDomain::<f64>::new_non_nan()),
                L2Distance::<f64>::default(),
                std::f64::consts::SQRT_2 * made.sigma,
                None,
            )
            .unwrap()
        };
        let all: Measurement<_, _, ZeroConcentratedDivergence, _> =
            make_composition((0..nodes).map(|_| node()).collect()).unwrap();
        let moved = std::f64::consts::SQRT_2 * 2.0;
        let rho = all.map(&moved).unwrap();
        let profile = make_zCDP_to_approxDP(all).unwrap().map(&moved).unwrap();
        let epsilon = profile.epsilon(config.delta).unwrap();
        println!(
            "{nodes} nodes of sigma {:.4}: rho {rho:.9} (ours {:.9}), epsilon {epsilon:.9} (promised {})",
            made.sigma, made.rho_total, config.epsilon
        );
        assert!((rho / made.rho_total - 1.0).abs() < 1e-6);
        assert!((epsilon / config.epsilon - 1.0).abs() < 1e-6);
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

/// Theirs is a discrete Gaussian drawn exactly; ours is a ziggurat on a grid. Samples of both must pass for one
/// distribution: with n each, the distance exceeds 3.5·√(2/n) with a probability below 10⁻⁹.
#[test]
fn released_noise_has_the_distribution_of_their_sampler() {
    let (n, sigma) = (20_000, 15.6);
    let ours: Vec<f64> = (0..n)
        .map(|seed| {
            let mut source = SeededNoise::new(Seed(seed), AgentId(0));
            let release = Tree::new(1, sigma, 1).release(&Evidence::none(2), 0.0, &mut source).unwrap();
            release.gram()[1]
        })
        .collect();
    let theirs = gaussian(sigma);
    let theirs: Vec<f64> = (0..n).map(|_| theirs.invoke(&0.0).unwrap()).collect();
    let apart = kolmogorov(ours, theirs.clone());
    let limit = 3.5 * (2.0 / n as f64).sqrt();
    println!("distance {apart:.5}, limit {limit:.5}");
    assert!(apart < limit);
    // It can tell: a fifth less noise is found.
    let mut source = SeededNoise::new(Seed(1), AgentId(0));
    let mut weak = vec![0.0; n as usize];
    source.fill(Node { tree: 1, level: 0, index: 1 }, &mut weak);
    weak.iter_mut().for_each(|value| *value *= 0.8 * sigma);
    assert!(kolmogorov(weak, theirs) > limit);
}
