//! O24 and what kernels are for.

use posse_core::{Algorithm, Kernel, KernelConfig, LinUcb, ModelConfig};
use posse_sim::RunConfig;
use posse_sim::world::{NonlinearConfig, WorldConfig};

use crate::support::{choices, linear, run, small};

/// With k(x, x′) = xᵀx′ the variance of an arm is λ·xᵀ(Σxxᵀ + λI)⁻¹x: √(λν·variance) is the width λ√ν of
/// linear regression. Arms are of different length: on a sphere rounding would decide the first choice.
#[test]
fn o24_with_a_linear_kernel_it_is_linear_ucb_of_width_lambda_root_nu() {
    for (regularization, exploration) in [(1.0_f64, 0.1_f64), (0.2, 1.0), (3.0, 0.01)] {
        let kernel =
            KernelConfig { kernel: Kernel::Linear, regularization, exploration, ..KernelConfig::default() };
        let width = regularization * exploration.sqrt();
        let model = ModelConfig { regularization, fixed_width: Some(width), ..ModelConfig::default() };
        for (seed, world) in (1..).zip([linear(5, 10), linear(1, 3), linear(12, 4)]) {
            let of = |algorithm| RunConfig { world: world.clone(), ..small(seed, 3, 600, algorithm) };
            let dual = choices(&of(Algorithm::KernelUcb(kernel.clone())));
            let primal = choices(&of(Algorithm::LinUcb(LinUcb { model: model.clone() })));
            assert!(dual == primal, "λ = {regularization}, ν = {exploration}, {world:?}");
        }
    }
}

/// Another width chooses otherwise: the oracle above can fail.
#[test]
fn o24_does_not_hold_for_another_width() {
    let kernel = KernelConfig { kernel: Kernel::Linear, regularization: 0.2, ..KernelConfig::default() };
    let model = ModelConfig { regularization: 0.2, fixed_width: Some(1.0), ..ModelConfig::default() };
    let dual = choices(&small(1, 3, 600, Algorithm::KernelUcb(kernel)));
    assert!(dual != choices(&small(1, 3, 600, Algorithm::LinUcb(LinUcb { model }))));
}

/// A length scale divides the features: scaling λ and ν along undoes it for the linear kernel.
#[test]
fn a_length_scale_is_a_scale_of_the_features() {
    let of = |length_scale: f64| KernelConfig {
        kernel: Kernel::Linear,
        length_scale,
        // K/ℓ² + λI/ℓ² is (K + λI)/ℓ², and variances are divided by ℓ² too: λν must be multiplied by it.
        regularization: 1.0 / (length_scale * length_scale),
        exploration: 0.1 * libm::pow(length_scale, 4.0),
        ..KernelConfig::default()
    };
    let plain = choices(&small(2, 3, 400, Algorithm::KernelUcb(of(1.0))));
    for scale in [0.5, 2.0] {
        assert!(choices(&small(2, 3, 400, Algorithm::KernelUcb(of(scale)))) == plain, "ℓ = {scale}");
    }
}

#[test]
fn kernels_learn_what_lines_cannot_follow() {
    let config = KernelConfig { regularization: 0.1, exploration: 0.1, ..KernelConfig::default() };
    let smooth = KernelConfig { kernel: Kernel::Rbf, ..config.clone() };
    let width = ModelConfig { regularization: 1.0, fixed_width: Some(0.3), ..ModelConfig::default() };
    let world = NonlinearConfig { dimension: 4, ..NonlinearConfig::default() };
    for world in [WorldConfig::Cosine(world.clone()), WorldConfig::Square(world)] {
        let regret = |algorithm: Algorithm| -> f64 {
            let of = |seed| RunConfig { world: world.clone(), ..small(seed, 1, 500, algorithm.clone()) };
            (0..3).map(|seed| run(&of(seed)).1.regret).sum()
        };
        let line = regret(Algorithm::LinUcb(LinUcb { model: width.clone() }));
        for algorithm in [
            Algorithm::KernelUcb(config.clone()),
            Algorithm::KernelTs(config.clone()),
            Algorithm::KernelUcb(smooth.clone()),
            Algorithm::KernelTs(smooth.clone()),
        ] {
            let kernel = regret(algorithm.clone());
            assert!(kernel < 0.6 * line, "{algorithm:?} in {world:?}: {kernel} beside {line}");
        }
    }
}
