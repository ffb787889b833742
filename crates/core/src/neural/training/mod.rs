//! Fitting a network to observations: steps of full-batch gradient descent.

use pulp::{Arch, Simd, WithSimd};

use super::network::{LANES, Lane, Layer, Network, NetworkKind, product, rectify};
use super::observations::{BLOCK, ObservationBlock, Observations, SupportGroup};

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
    /// Inputs of the hidden layer at hand, where it is not the first.
    middle: Vec<ObservationBlock>,
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
        };
        let places: Vec<Vec<u32>> =
            observations.groups().iter().map(|group| places(layout.kind, layout.dimension, group)).collect();
        let n = observations.len() as f64;
        let (rate, slope, decay) = match layout.kind {
            // ∇[(1/n)Σ(f − y)²] + (λ/n)θ.
            NetworkKind::Plain => (self.rate, 2.0 / n, self.regularization / n),
            // ∇[½Σ(f − y)² + ½mλ‖θ − θ₀‖²].
            NetworkKind::Tangent => {
                let m = layout.width as f64;
                let depth = layout.layers as f64 + 1.0;
                (self.rate / (m * self.regularization + m * n * depth), 1.0, m * self.regularization)
            }
        };
        for _ in 0..steps {
            gradients.clear();
            let places = &places;
            Arch::new().dispatch(EpochPass {
                network,
                observations,
                places,
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
}

/// Adds what all observations say about the slope. A type and not a closure, so that it is compiled for the
/// instruction set that is dispatched to.
struct EpochPass<'a> {
    network: &'a Network,
    observations: &'a Observations,
    /// For each group, which inputs its features go to.
    places: &'a [Vec<u32>],
    pass: &'a mut Pass,
    gradients: &'a mut Gradients,
}

impl WithSimd for EpochPass<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { network, observations, places, pass, gradients } = self;
        for (group, places) in observations.groups().iter().zip(places) {
            for (features, rewards, count) in group.blocks() {
                enter(network.layout.kind, features, &mut pass.inputs);
                step(simd, network, places, rewards, count, pass, gradients);
            }
        }
    }
}

/// Which inputs of the first layer a group's features go to.
fn places(kind: NetworkKind, dimension: usize, group: &SupportGroup) -> Vec<u32> {
    match kind {
        NetworkKind::Plain => group.support.clone(),
        NetworkKind::Tangent => {
            let second = group.support.iter().map(|j| j + dimension as u32);
            group.support.iter().copied().chain(second).collect()
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

/// Adds what a block of observations says about the slope of Σ½(f − y)².
#[inline(always)]
fn step<S: Simd>(
    simd: S,
    network: &Network,
    places: &[u32],
    rewards: &ObservationBlock,
    count: usize,
    pass: &mut Pass,
    gradients: &mut Gradients,
) {
    let layout = network.layout;
    let (layers, chunks) = (layout.layers, layout.chunks());
    let stride = BLOCK * chunks;
    for (index, layer) in network.hidden.iter().enumerate() {
        let (before, active) = pass.active.split_at_mut(index * stride);
        let active = &mut active[..stride];
        if index == 0 {
            affine(simd, &pass.inputs[..places.len()], |j| places[j] as usize, layer, chunks, active);
        } else {
            spread(&before[(index - 1) * stride..], chunks, &mut pass.middle);
            affine(simd, &pass.middle, |j| j, layer, chunks, active);
        }
    }
    let last = &pass.active[(layers - 1) * stride..];
    let scale = layout.output_scale();
    let mut errors = [0.0; BLOCK];
    for place in 0..count {
        let sum = product(&network.output, &last[place * chunks..][..chunks]);
        errors[place] = (scale * (network.output_bias + sum) - rewards[place]) * scale;
    }
    gradients.output_bias += (errors[0] + errors[1]) + (errors[2] + errors[3]);
    descend(simd, &errors, &network.output, last, &mut pass.slopes, &mut gradients.output);
    for index in (0..layers).rev() {
        let gradient = &mut gradients.hidden[index];
        add_blocks(simd, &pass.slopes, &mut gradient.bias);
        if index == 0 {
            outer(simd, &pass.inputs[..places.len()], |j| places[j] as usize, &pass.slopes, chunks, gradient);
        } else {
            let below = &pass.active[(index - 1) * stride..][..stride];
            spread(below, chunks, &mut pass.middle);
            outer(simd, &pass.middle, |j| j, &pass.slopes, chunks, gradient);
            for place in 0..BLOCK {
                for unit in 0..layout.width {
                    let weights = &network.hidden[index].weights[unit * chunks..][..chunks];
                    let through = product(weights, &pass.slopes[place * chunks..][..chunks]);
                    let (chunk, lane) = (place * chunks + unit / LANES, unit % LANES);
                    pass.below[chunk][lane] = if below[chunk][lane] > 0.0 { through } else { 0.0 };
                }
            }
            std::mem::swap(&mut pass.slopes, &mut pass.below);
        }
    }
}

/// For each observation of a block and each unit of the last hidden layer, the slope of its loss: error times weight,
/// where the unit is active. The slope of the output's weights is added to `sums`.
#[inline(always)]
fn descend<S: Simd>(
    simd: S,
    errors: &[f32; BLOCK],
    output: &[Lane],
    active: &[Lane],
    slopes: &mut [Lane],
    sums: &mut [Lane],
) {
    let (output, active) = (output.as_flattened(), active.as_flattened());
    let (slopes, sums) = (slopes.as_flattened_mut(), sums.as_flattened_mut());
    let width = output.len();
    let vectors = width / S::F32_LANES;
    let zero = simd.splat_f32s(0.0);
    for vector in 0..vectors {
        let weights = S::as_simd_f32s(output).0[vector];
        let mut sum = S::as_simd_f32s(sums).0[vector];
        for place in 0..BLOCK {
            let error = simd.splat_f32s(errors[place]);
            let units = S::as_simd_f32s(&active[place * width..][..width]).0[vector];
            sum = simd.add_f32s(sum, simd.mul_f32s(error, units));
            let alive = simd.greater_than_f32s(units, zero);
            let slope = simd.select_f32s(alive, simd.mul_f32s(error, weights), zero);
            S::as_mut_simd_f32s(&mut slopes[place * width..][..width]).0[vector] = slope;
        }
        S::as_mut_simd_f32s(sums).0[vector] = sum;
    }
    // Where vectors are so wide that they do not fill the lanes.
    for unit in vectors * S::F32_LANES..width {
        for place in 0..BLOCK {
            let active = active[place * width + unit];
            sums[unit] += errors[place] * active;
            slopes[place * width + unit] = if active > 0.0 { errors[place] * output[unit] } else { 0.0 };
        }
    }
}

/// Adds the slopes of a block of observations.
#[inline(always)]
fn add_blocks<S: Simd>(simd: S, slopes: &[Lane], sums: &mut [Lane]) {
    let (slopes, sums) = (slopes.as_flattened(), sums.as_flattened_mut());
    let width = sums.len();
    let vectors = width / S::F32_LANES;
    for vector in 0..vectors {
        let [a, b, c, d]: [S::f32s; BLOCK] =
            std::array::from_fn(|place| S::as_simd_f32s(&slopes[place * width..][..width]).0[vector]);
        let sum = &mut S::as_mut_simd_f32s(sums).0[vector];
        *sum = simd.add_f32s(*sum, simd.add_f32s(simd.add_f32s(a, b), simd.add_f32s(c, d)));
    }
    for unit in vectors * S::F32_LANES..width {
        let slope = |place: usize| slopes[place * width + unit];
        sums[unit] += (slope(0) + slope(1)) + (slope(2) + slope(3));
    }
}

/// max(Wx + b, 0) for a block of observations.
#[inline(always)]
fn affine<S: Simd>(
    simd: S,
    inputs: &[ObservationBlock],
    row: impl Fn(usize) -> usize,
    layer: &Layer,
    chunks: usize,
    active: &mut [Lane],
) {
    let width = chunks * LANES;
    let (weights, bias) = (layer.weights.as_flattened(), layer.bias.as_flattened());
    let active = active.as_flattened_mut();
    let vectors = width / S::F32_LANES;
    let mut vector = 0;
    // Two at a time, because each addition waits for the one before.
    while vector + 1 < vectors {
        affine_vectors::<S, 2>(simd, inputs, &row, layer, width, vector, active);
        vector += 2;
    }
    if vector < vectors {
        affine_vectors::<S, 1>(simd, inputs, &row, layer, width, vector, active);
    }
    // Where vectors are so wide that they do not fill the lanes.
    for unit in vectors * S::F32_LANES..width {
        for place in 0..BLOCK {
            let add = |sum: f32, (j, input): (usize, &ObservationBlock)| {
                sum + input[place] * weights[row(j) * width + unit]
            };
            active[place * width + unit] = rectify(inputs.iter().enumerate().fold(bias[unit], add));
        }
    }
}

/// The same for `V` vectors of units, from the `first` on.
#[inline(always)]
fn affine_vectors<S: Simd, const V: usize>(
    simd: S,
    inputs: &[ObservationBlock],
    row: &impl Fn(usize) -> usize,
    layer: &Layer,
    width: usize,
    first: usize,
    active: &mut [f32],
) {
    let (weights, bias) = (layer.weights.as_flattened(), S::as_simd_f32s(layer.bias.as_flattened()).0);
    let mut sums: [[S::f32s; BLOCK]; V] = std::array::from_fn(|v| [bias[first + v]; BLOCK]);
    for (j, input) in inputs.iter().enumerate() {
        let weights = &S::as_simd_f32s(&weights[row(j) * width..][..width]).0[first..][..V];
        for place in 0..BLOCK {
            let x = simd.splat_f32s(input[place]);
            for v in 0..V {
                sums[v][place] = simd.add_f32s(sums[v][place], simd.mul_f32s(x, weights[v]));
            }
        }
    }
    let zero = simd.splat_f32s(0.0);
    for place in 0..BLOCK {
        let units = &mut S::as_mut_simd_f32s(&mut active[place * width..][..width]).0[first..][..V];
        for v in 0..V {
            let positive = simd.greater_than_f32s(sums[v][place], zero);
            units[v] = simd.select_f32s(positive, sums[v][place], zero);
        }
    }
}

/// Adds Σ x·slopeᵀ of a block of observations.
#[inline(always)]
fn outer<S: Simd>(
    simd: S,
    inputs: &[ObservationBlock],
    row: impl Fn(usize) -> usize,
    slopes: &[Lane],
    chunks: usize,
    gradient: &mut Layer,
) {
    let width = chunks * LANES;
    let (sums, slopes) = (gradient.weights.as_flattened_mut(), slopes.as_flattened());
    let vectors = width / S::F32_LANES;
    let mut vector = 0;
    // Two at a time, so that every input is spread over a vector once for both.
    while vector + 1 < vectors {
        outer_vectors::<S, 2>(simd, inputs, &row, slopes, width, vector, sums);
        vector += 2;
    }
    if vector < vectors {
        outer_vectors::<S, 1>(simd, inputs, &row, slopes, width, vector, sums);
    }
    for unit in vectors * S::F32_LANES..width {
        for (j, input) in inputs.iter().enumerate() {
            let scaled = |place: usize| input[place] * slopes[place * width + unit];
            sums[row(j) * width + unit] += (scaled(0) + scaled(1)) + (scaled(2) + scaled(3));
        }
    }
}

/// The same for `V` vectors of units, from the `first` on.
#[inline(always)]
fn outer_vectors<S: Simd, const V: usize>(
    simd: S,
    inputs: &[ObservationBlock],
    row: &impl Fn(usize) -> usize,
    slopes: &[f32],
    width: usize,
    first: usize,
    sums: &mut [f32],
) {
    let slopes: [[S::f32s; BLOCK]; V] = std::array::from_fn(|v| {
        std::array::from_fn(|place| S::as_simd_f32s(&slopes[place * width..][..width]).0[first + v])
    });
    for (j, input) in inputs.iter().enumerate() {
        let x = input.map(|x| simd.splat_f32s(x));
        let sums = &mut S::as_mut_simd_f32s(&mut sums[row(j) * width..][..width]).0[first..][..V];
        for v in 0..V {
            let [a, b, c, d]: [S::f32s; BLOCK] =
                std::array::from_fn(|place| simd.mul_f32s(x[place], slopes[v][place]));
            sums[v] = simd.add_f32s(sums[v], simd.add_f32s(simd.add_f32s(a, b), simd.add_f32s(c, d)));
        }
    }
}

/// What a layer puts out, as the inputs of the next.
#[inline(always)]
fn spread(active: &[Lane], chunks: usize, inputs: &mut [ObservationBlock]) {
    for place in 0..BLOCK {
        let units = active[place * chunks..][..chunks].as_flattened();
        for (input, value) in inputs.iter_mut().zip(units) {
            input[place] = *value;
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
