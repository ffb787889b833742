//! Fitting a network to observations: steps of full-batch gradient descent.

mod block;

use crate::lanes::four_wide;
use pulp::{Simd, WithSimd};

use super::network::{LANES, Lane, Layer, Layout, Network, NetworkKind};
use super::observations::{BLOCK, ObservationBlock, Observations, SupportGroup};
use block::step;

/// The settings of gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Training {
    /// η. For the tangent network, the numerator of η = c/(mλ + mnL).
    pub(crate) rate: f64,
    /// λ ≥ 0: multiplies the penalty on parameters in the loss.
    pub(crate) regularization: f64,
}

/// The slope of Σ½(f − y)² in each parameter.
struct Gradients {
    hidden: Vec<Layer>,
    output: Vec<Lane>,
    output_bias: f32,
}

/// Memory that one pass over the observations works in.
struct Pass {
    /// For each hidden layer, what it puts out for each observation of a block.
    active: Vec<Lane>,
    slopes: Vec<Lane>,
    below: Vec<Lane>,
    /// Inputs of the first layer.
    inputs: Vec<ObservationBlock>,
    /// Inputs of the hidden layer at hand, where it is not the first, and where the weights of each begin.
    middle: Vec<ObservationBlock>,
    middle_offsets: Vec<usize>,
}

impl Training {
    /// Takes `steps` steps from where `network` is. `anchor` is θ₀, to which the tangent network is drawn.
    /// `false`, and the network unchanged, if that leads nowhere: some number is not finite, or enormous.
    pub(crate) fn fit(
        &self,
        network: &mut Network,
        anchor: &Network,
        observations: &Observations,
        steps: u64,
    ) -> bool {
        if observations.len() == 0 || steps == 0 {
            return true;
        }
        let before = network.clone();
        let mut gradients =
            Gradients { hidden: network.hidden.clone(), output: network.output.clone(), output_bias: 0.0 };
        let (layout, chunks) = (network.layout, network.layout.chunks());
        let mut pass = Pass {
            active: vec![[0.0; LANES]; layout.layers * BLOCK * chunks],
            slopes: vec![[0.0; LANES]; BLOCK * chunks],
            below: vec![[0.0; LANES]; BLOCK * chunks],
            inputs: vec![[0.0; BLOCK]; layout.inputs()],
            middle: vec![[0.0; BLOCK]; layout.width],
            middle_offsets: (0..layout.width).map(|input| input * chunks * LANES).collect(),
        };
        let offsets: Vec<Vec<usize>> =
            observations.groups().iter().map(|group| offsets(layout, group)).collect();
        let (rate, slope, decay) = self.factors(layout, observations.len());
        for _ in 0..steps {
            gradients.clear();
            let offsets = &offsets;
            four_wide().dispatch(EpochPass {
                network,
                observations,
                offsets,
                pass: &mut pass,
                gradients: &mut gradients,
            });
            let anchor = (layout.kind == NetworkKind::Tangent).then_some(anchor);
            gradients.apply(network, anchor, rate, slope, decay);
        }
        let sound = network.is_sound();
        if !sound {
            *network = before;
        }
        sound
    }

    /// The rate of descent, and by what the slope of Σ½(f − y)² and the parameters are multiplied, with so many observations.
    fn factors(&self, layout: Layout, observations: usize) -> (f64, f64, f64) {
        let n = observations as f64;
        match layout.kind {
            // ∇[(1/n)Σ(f − y)²] + (λ/n)θ.
            NetworkKind::Plain => (self.rate, 2.0 / n, self.regularization / n),
            // ∇[½Σ(f − y)² + ½mλ‖θ − θ₀‖²].
            NetworkKind::Tangent => {
                let m = layout.width as f64;
                let depth = layout.layers as f64 + 1.0;
                (self.rate / (m * self.regularization + m * n * depth), 1.0, m * self.regularization)
            }
        }
    }
}

/// Adds what all observations say about the slope. A type and not a closure, so that it is compiled for the
/// instruction set that is dispatched to.
struct EpochPass<'a> {
    network: &'a Network,
    observations: &'a Observations,
    /// For each group, where the weights of the inputs begin that its features go to.
    offsets: &'a [Vec<usize>],
    pass: &'a mut Pass,
    gradients: &'a mut Gradients,
}

impl WithSimd for EpochPass<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { network, observations, offsets, pass, gradients } = self;
        for (group, offsets) in observations.groups().iter().zip(offsets) {
            for (features, rewards, count) in group.blocks() {
                enter(network.layout.kind, features, &mut pass.inputs);
                step(simd, network, offsets, rewards, count, pass, gradients);
            }
        }
    }
}

/// Where the weights of the inputs of the first layer begin that a group's features go to.
fn offsets(layout: Layout, group: &SupportGroup) -> Vec<usize> {
    let width = layout.chunks() * LANES;
    let first = group.support.iter().map(|j| *j as usize * width);
    match layout.kind {
        NetworkKind::Plain => first.collect(),
        NetworkKind::Tangent => {
            let second = first.clone().map(|offset| offset + layout.dimension * width);
            first.chain(second).collect()
        }
    }
}

/// The first layer's inputs for a block.
#[inline(always)]
fn enter(kind: NetworkKind, features: &[ObservationBlock], inputs: &mut [ObservationBlock]) {
    match kind {
        NetworkKind::Plain => inputs[..features.len()].copy_from_slice(features),
        NetworkKind::Tangent => {
            for (j, feature) in features.iter().enumerate() {
                let halved = feature.map(|v| (f64::from(v) * std::f64::consts::FRAC_1_SQRT_2) as f32);
                (inputs[j], inputs[j + features.len()]) = (halved, halved);
            }
        }
    }
}

impl Gradients {
    fn clear(&mut self) {
        for layer in &mut self.hidden {
            layer.weights.fill([0.0; LANES]);
            layer.bias.fill([0.0; LANES]);
        }
        self.output.fill([0.0; LANES]);
        self.output_bias = 0.0;
    }

    /// θ ← θ − rate·(slope·gradient + decay·(θ − anchor)).
    fn apply(&self, network: &mut Network, anchor: Option<&Network>, rate: f64, slope: f64, decay: f64) {
        let (slope, decay) = ((rate * slope) as f32, (rate * decay) as f32);
        let zeros = Network::zeros(network.layout);
        let anchor = anchor.unwrap_or(&zeros);
        let update = |parameters: &mut [Lane], anchor: &[Lane], gradient: &[Lane]| {
            let pairs = parameters.as_flattened_mut().iter_mut().zip(anchor.as_flattened());
            for ((parameter, anchor), gradient) in pairs.zip(gradient.as_flattened()) {
                *parameter -= slope * gradient + decay * (*parameter - anchor);
            }
        };
        let biases = network.layout.kind == NetworkKind::Plain;
        for ((layer, anchor), gradient) in network.hidden.iter_mut().zip(&anchor.hidden).zip(&self.hidden) {
            update(&mut layer.weights, &anchor.weights, &gradient.weights);
            if biases {
                update(&mut layer.bias, &anchor.bias, &gradient.bias);
            }
        }
        update(&mut network.output, &anchor.output, &self.output);
        if biases {
            network.output_bias -= slope * self.output_bias + decay * network.output_bias;
        }
    }
}

#[cfg(test)]
mod tests;
