//! What a block of observations says about the slope of the loss: one pass forward and one back.
//!
//! Lanes hold different units, and every sum is split and rounded in an order that does not depend on how many units a
//! processor works on at a time.

use pulp::Simd;

use super::super::network::{LANES, Lane, Layer, Network, product, rectify, total};
use super::super::observations::{BLOCK, ObservationBlock};
use super::{Gradients, Pass};

/// Adds what a block of observations says about the slope of Σ½(f − y)². `offsets` is where the weights of each input of
/// the first layer begin.
#[inline(always)]
pub(super) fn step<S: Simd>(
    simd: S,
    network: &Network,
    offsets: &[usize],
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
        let active = active[..stride].as_flattened_mut();
        if index == 0 {
            affine(simd, &pass.inputs[..offsets.len()], offsets, layer, active);
        } else {
            spread(&before[(index - 1) * stride..], chunks, &mut pass.middle);
            affine(simd, &pass.middle, &pass.middle_offsets, layer, active);
        }
    }
    let last = pass.active[(layers - 1) * stride..].as_flattened();
    let sums = products(simd, network.output.as_flattened(), last);
    let scale = layout.output_scale();
    let mut errors = [0.0; BLOCK];
    for place in 0..count {
        errors[place] = (scale * (network.output_bias + total(&sums[place])) - rewards[place]) * scale;
    }
    gradients.output_bias += (errors[0] + errors[1]) + (errors[2] + errors[3]);
    let slopes = pass.slopes.as_flattened_mut();
    descend(simd, &errors, network.output.as_flattened(), last, slopes, gradients.output.as_flattened_mut());
    for index in (0..layers).rev() {
        let gradient = &mut gradients.hidden[index];
        if index == 0 {
            outer(simd, &pass.inputs[..offsets.len()], offsets, pass.slopes.as_flattened(), gradient);
        } else {
            let below = &pass.active[(index - 1) * stride..][..stride];
            spread(below, chunks, &mut pass.middle);
            outer(simd, &pass.middle, &pass.middle_offsets, pass.slopes.as_flattened(), gradient);
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

/// For each observation of a block, the products of what units put out with the output's weights, added up lane by lane.
#[inline(always)]
fn products<S: Simd>(simd: S, output: &[f32], active: &[f32]) -> [Lane; BLOCK] {
    let width = output.len();
    let mut sums = [[0.0; LANES]; BLOCK];
    // How many vectors make up a lane; none if vectors are wider.
    let parts = LANES / S::F32_LANES;
    for part in 0..parts {
        let mut added = [simd.splat_f32s(0.0); BLOCK];
        let weights = S::as_simd_f32s(output).0.iter().skip(part).step_by(parts);
        for (chunk, weights) in weights.enumerate() {
            for (place, sum) in added.iter_mut().enumerate() {
                let units = S::as_simd_f32s(&active[place * width..][..width]).0[chunk * parts + part];
                *sum = simd.add_f32s(*sum, simd.mul_f32s(*weights, units));
            }
        }
        for (sums, added) in sums.iter_mut().zip(added) {
            S::as_mut_simd_f32s(sums).0[part] = added;
        }
    }
    if parts == 0 {
        for (place, sums) in sums.iter_mut().enumerate() {
            for (unit, weight) in output.iter().enumerate() {
                sums[unit % LANES] += weight * active[place * width + unit];
            }
        }
    }
    sums
}

/// For each observation of a block and each unit of the last hidden layer, the slope of its loss: error times weight,
/// where the unit is active. The slope of the output's weights is added to `sums`.
#[inline(always)]
fn descend<S: Simd>(
    simd: S,
    errors: &[f32; BLOCK],
    output: &[f32],
    active: &[f32],
    slopes: &mut [f32],
    sums: &mut [f32],
) {
    let width = output.len();
    let vectors = width / S::F32_LANES;
    let zero = simd.splat_f32s(0.0);
    let output_of = &S::as_simd_f32s(output).0[..vectors];
    let sums_of = &mut S::as_mut_simd_f32s(sums).0[..vectors];
    for (vector, (weights, sum)) in output_of.iter().zip(sums_of).enumerate() {
        for (place, error) in errors.iter().enumerate() {
            let error = simd.splat_f32s(*error);
            let units = S::as_simd_f32s(&active[place * width..][..width]).0[vector];
            *sum = simd.add_f32s(*sum, simd.mul_f32s(error, units));
            let alive = simd.greater_than_f32s(units, zero);
            let slope = simd.select_f32s(alive, simd.mul_f32s(error, *weights), zero);
            S::as_mut_simd_f32s(&mut slopes[place * width..][..width]).0[vector] = slope;
        }
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

/// max(Wx + b, 0) for a block of observations.
#[inline(always)]
fn affine<S: Simd>(
    simd: S,
    inputs: &[ObservationBlock],
    offsets: &[usize],
    layer: &Layer,
    active: &mut [f32],
) {
    let (weights, bias) = (layer.weights.as_flattened(), layer.bias.as_flattened());
    let width = bias.len();
    let vectors = width / S::F32_LANES;
    let mut vector = 0;
    // Three at a time, because each addition waits for the one before; with their sums they just fit into registers.
    while vector + 3 <= vectors && vectors - vector != 4 {
        affine_vectors::<S, 3>(simd, inputs, offsets, weights, bias, vector, active);
        vector += 3;
    }
    while vector + 2 <= vectors {
        affine_vectors::<S, 2>(simd, inputs, offsets, weights, bias, vector, active);
        vector += 2;
    }
    if vector < vectors {
        affine_vectors::<S, 1>(simd, inputs, offsets, weights, bias, vector, active);
    }
    // Where vectors are so wide that they do not fill the lanes.
    for unit in vectors * S::F32_LANES..width {
        for place in 0..BLOCK {
            let add = |sum: f32, (input, offset): (&ObservationBlock, &usize)| {
                sum + input[place] * weights[*offset + unit]
            };
            active[place * width + unit] = rectify(inputs.iter().zip(offsets).fold(bias[unit], add));
        }
    }
}

/// The same for `V` vectors of units, from the `first` on.
#[inline(always)]
fn affine_vectors<S: Simd, const V: usize>(
    simd: S,
    inputs: &[ObservationBlock],
    offsets: &[usize],
    weights: &[f32],
    bias: &[f32],
    first: usize,
    active: &mut [f32],
) {
    let (width, skipped) = (bias.len(), first * S::F32_LANES);
    let bias = &S::as_simd_f32s(&bias[skipped..]).0[..V];
    // Loops and not closures: what is called by a closure is not compiled for the instruction set that is dispatched to.
    let mut sums = [[bias[0]; BLOCK]; V];
    for v in 1..V {
        sums[v] = [bias[v]; BLOCK];
    }
    for (input, offset) in inputs.iter().zip(offsets) {
        let weights = S::as_simd_f32s(&weights[*offset + skipped..][..V * S::F32_LANES]).0;
        for place in 0..BLOCK {
            let x = simd.splat_f32s(input[place]);
            for v in 0..V {
                sums[v][place] = simd.add_f32s(sums[v][place], simd.mul_f32s(x, weights[v]));
            }
        }
    }
    let zero = simd.splat_f32s(0.0);
    for place in 0..BLOCK {
        let units = &mut active[place * width + skipped..][..V * S::F32_LANES];
        let units = S::as_mut_simd_f32s(units).0;
        for v in 0..V {
            let positive = simd.greater_than_f32s(sums[v][place], zero);
            units[v] = simd.select_f32s(positive, sums[v][place], zero);
        }
    }
}

/// Adds the slopes of a block of observations to those of biases, and Σ x·slopeᵀ to those of weights.
#[inline(always)]
fn outer<S: Simd>(
    simd: S,
    inputs: &[ObservationBlock],
    offsets: &[usize],
    slopes: &[f32],
    gradient: &mut Layer,
) {
    let (sums, biases) = (gradient.weights.as_flattened_mut(), gradient.bias.as_flattened_mut());
    let width = biases.len();
    let vectors = width / S::F32_LANES;
    let mut vector = 0;
    // Two at a time, so that every input is spread over a vector once for both.
    while vector + 1 < vectors {
        outer_vectors::<S, 2>(simd, inputs, offsets, slopes, vector, sums, biases);
        vector += 2;
    }
    if vector < vectors {
        outer_vectors::<S, 1>(simd, inputs, offsets, slopes, vector, sums, biases);
    }
    for unit in vectors * S::F32_LANES..width {
        let slope = |place: usize| slopes[place * width + unit];
        biases[unit] += (slope(0) + slope(1)) + (slope(2) + slope(3));
        for (input, offset) in inputs.iter().zip(offsets) {
            let scaled = |place: usize| input[place] * slope(place);
            sums[*offset + unit] += (scaled(0) + scaled(1)) + (scaled(2) + scaled(3));
        }
    }
}

/// The same for `V` vectors of units, from the `first` on.
#[inline(always)]
fn outer_vectors<S: Simd, const V: usize>(
    simd: S,
    inputs: &[ObservationBlock],
    offsets: &[usize],
    slopes: &[f32],
    first: usize,
    sums: &mut [f32],
    biases: &mut [f32],
) {
    let (width, skipped) = (biases.len(), first * S::F32_LANES);
    let mut slopes_of = [[simd.splat_f32s(0.0); BLOCK]; V];
    for place in 0..BLOCK {
        let slopes = S::as_simd_f32s(&slopes[place * width + skipped..][..V * S::F32_LANES]).0;
        for v in 0..V {
            slopes_of[v][place] = slopes[v];
        }
    }
    let biases = S::as_mut_simd_f32s(&mut biases[skipped..][..V * S::F32_LANES]).0;
    for v in 0..V {
        let [a, b, c, d] = slopes_of[v];
        biases[v] = simd.add_f32s(biases[v], simd.add_f32s(simd.add_f32s(a, b), simd.add_f32s(c, d)));
    }
    for (input, offset) in inputs.iter().zip(offsets) {
        let mut x = [simd.splat_f32s(0.0); BLOCK];
        for place in 0..BLOCK {
            x[place] = simd.splat_f32s(input[place]);
        }
        let sums = S::as_mut_simd_f32s(&mut sums[*offset + skipped..][..V * S::F32_LANES]).0;
        for v in 0..V {
            let slopes = slopes_of[v];
            let a = simd.mul_f32s(x[0], slopes[0]);
            let b = simd.mul_f32s(x[1], slopes[1]);
            let c = simd.mul_f32s(x[2], slopes[2]);
            let d = simd.mul_f32s(x[3], slopes[3]);
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
