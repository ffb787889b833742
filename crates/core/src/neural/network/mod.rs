//! A small dense network with rectified units: what it says of an arm, and how that depends on each of its
//! parameters. [`training`](super::training) fits it.
//!
//! Numbers inside are `f32`. Lanes hold different units, no multiplication is fused with an addition and sums
//! over units are split in a fixed way, so that every processor rounds alike.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use super::sparse::Sparse;
use crate::random::Stream;

/// Units that are worked on together.
pub(crate) const LANES: usize = 8;

/// A number of each of [`LANES`] units.
pub(crate) type Lane = [f32; LANES];

/// The architecture of a network and the distribution that its parameters start from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkKind {
    /// Biases everywhere, all parameters begin as N(0, 1), no scaling of output or gradient.
    #[default]
    Plain,
    /// The network of the neural tangent theory: no biases, output times √m, gradient over √m, and a start
    /// at which the output is exactly zero. Features are doubled inside, as the theory asks.
    Tangent,
}

/// The sizes of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) kind: NetworkKind,
    /// Features of an arm (d).
    pub(crate) dimension: usize,
    /// Units of a hidden layer (m).
    pub(crate) width: usize,
    pub(crate) layers: usize,
}

impl Layout {
    /// Inputs of the first layer.
    pub(crate) const fn inputs(&self) -> usize {
        match self.kind {
            NetworkKind::Plain => self.dimension,
            NetworkKind::Tangent => 2 * self.dimension,
        }
    }

    /// Inputs of a hidden layer.
    const fn inputs_of(&self, layer: usize) -> usize {
        if layer == 0 { self.inputs() } else { self.width }
    }

    pub(crate) const fn chunks(&self) -> usize {
        self.width.div_ceil(LANES)
    }

    const fn has_biases(&self) -> bool {
        matches!(self.kind, NetworkKind::Plain)
    }

    /// p₀: the number of parameters. Saturates, so that it can be compared with a limit.
    pub(crate) fn parameters(&self) -> usize {
        let bias = usize::from(self.has_biases());
        let of_layer = |layer: usize| self.width.saturating_mul(self.inputs_of(layer).saturating_add(bias));
        let hidden = of_layer(0).saturating_add(
            self.width.saturating_mul(self.width + bias).saturating_mul(self.layers.saturating_sub(1)),
        );
        hidden.saturating_add(self.width).saturating_add(bias)
    }

    /// What the output is multiplied with.
    pub(crate) fn output_scale(&self) -> f32 {
        match self.kind {
            NetworkKind::Plain => 1.0,
            NetworkKind::Tangent => (self.width as f32).sqrt(),
        }
    }
}

/// A network with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Network {
    pub(crate) layout: Layout,
    pub(crate) hidden: Vec<Layer>,
    pub(crate) output: Vec<Lane>,
    pub(crate) output_bias: f32,
}

/// Parameters of a hidden layer. Units beyond the width are there to fill a lane; they are always zero.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layer {
    /// For each input, the weights to all units.
    pub(crate) weights: Vec<Lane>,
    pub(crate) bias: Vec<Lane>,
}

impl Network {
    pub(crate) fn zeros(layout: Layout) -> Self {
        let chunks = layout.chunks();
        let layer = |layer| Layer {
            weights: vec![[0.0; LANES]; layout.inputs_of(layer) * chunks],
            bias: vec![[0.0; LANES]; chunks],
        };
        let hidden = (0..layout.layers).map(layer).collect();
        Self { layout, hidden, output: vec![[0.0; LANES]; chunks], output_bias: 0.0 }
    }

    /// Draws the parameters θ₀ from `stream`.
    pub(crate) fn start(layout: Layout, stream: &mut Stream) -> Self {
        match layout.kind {
            NetworkKind::Plain => {
                let drawn: Vec<f64> = (0..layout.parameters()).map(|_| stream.normal()).collect();
                Self::from_parameters(layout, &drawn).expect("normals are finite")
            }
            NetworkKind::Tangent => Self::symmetric(layout, stream),
        }
    }

    /// Two halves that are alike, with opposite signs at the output: W_l = diag(W, W) with entries N(0, 4/m),
    /// W_L = (wᵀ, −wᵀ) with entries N(0, 2/m).
    fn symmetric(layout: Layout, stream: &mut Stream) -> Self {
        let mut network = Self::zeros(layout);
        let (half, chunks) = (layout.width / 2, layout.chunks());
        let (inner, outer) = ((4.0 / layout.width as f64).sqrt(), (2.0 / layout.width as f64).sqrt());
        for index in 0..layout.layers {
            let inputs = layout.inputs_of(index) / 2;
            let weights = &mut network.hidden[index].weights;
            for input in 0..inputs {
                for unit in 0..half {
                    let weight = (inner * stream.normal()) as f32;
                    *at(&mut weights[input * chunks..], unit) = weight;
                    *at(&mut weights[(input + inputs) * chunks..], unit + half) = weight;
                }
            }
        }
        for unit in 0..half {
            let weight = (outer * stream.normal()) as f32;
            *at(&mut network.output, unit) = weight;
            *at(&mut network.output, unit + half) = -weight;
        }
        network
    }

    /// θ: layer by layer, for each input its weights to all units, then the biases; the output's last.
    pub(crate) fn parameters(&self) -> Vec<f64> {
        let (width, biases) = (self.layout.width, self.layout.has_biases());
        let units = |lanes: &[Lane]| lanes.as_flattened()[..width].iter().map(|v| f64::from(*v)).collect();
        let mut parameters = Vec::with_capacity(self.layout.parameters());
        for layer in &self.hidden {
            for weights in layer.weights.chunks_exact(self.layout.chunks()) {
                parameters.extend::<Vec<f64>>(units(weights));
            }
            if biases {
                parameters.extend::<Vec<f64>>(units(&layer.bias));
            }
        }
        parameters.extend::<Vec<f64>>(units(&self.output));
        parameters.extend(biases.then_some(f64::from(self.output_bias)));
        parameters
    }

    /// The network with these parameters, rounded to `f32`; `None` if they do not fit or are not finite.
    pub(crate) fn from_parameters(layout: Layout, parameters: &[f64]) -> Option<Self> {
        let finite = parameters.iter().all(|v| (*v as f32).is_finite());
        if parameters.len() != layout.parameters() || !finite {
            return None;
        }
        let mut network = Self::zeros(layout);
        let mut left = parameters.iter().map(|v| *v as f32);
        let mut fill = |lanes: &mut [Lane]| {
            for value in &mut lanes.as_flattened_mut()[..layout.width] {
                *value = left.next().expect("the length was checked");
            }
        };
        for layer in &mut network.hidden {
            layer.weights.chunks_exact_mut(layout.chunks()).for_each(&mut fill);
            if layout.has_biases() {
                fill(&mut layer.bias);
            }
        }
        fill(&mut network.output);
        network.output_bias = left.next().unwrap_or(0.0);
        Some(network)
    }

    /// Returns f(x; θ), the predicted reward of an arm with the features `x`.
    pub(crate) fn value(&self, x: &[f64], scratch: &mut Scratch) -> f64 {
        scratch.enter(&self.layout, x);
        self.forward(scratch)
    }

    /// f(x; θ), and its gradient in θ: φ(x), divided by √m where the theory wants it.
    pub(crate) fn gradient(&self, x: &[f64], scratch: &mut Scratch, gradient: &mut Sparse) -> f64 {
        scratch.enter(&self.layout, x);
        let value = self.forward(scratch);
        self.backward(scratch, gradient);
        value
    }

    #[inline]
    fn forward(&self, scratch: &mut Scratch) -> f64 {
        let chunks = self.layout.chunks();
        scratch.active.resize(self.layout.layers * chunks, [0.0; LANES]);
        for (index, layer) in self.hidden.iter().enumerate() {
            let (before, units) = scratch.active.split_at_mut(index * chunks);
            let units = &mut units[..chunks];
            units.copy_from_slice(&layer.bias);
            let mut add = |input: usize, value: f32| {
                for (unit, weight) in units.iter_mut().zip(&layer.weights[input * chunks..]) {
                    for lane in 0..LANES {
                        unit[lane] += value * weight[lane];
                    }
                }
            };
            if index == 0 {
                scratch.inputs.iter().for_each(|&(input, value)| add(input as usize, value));
            } else {
                let values = before[(index - 1) * chunks..].as_flattened();
                for (input, &value) in values[..self.layout.width].iter().enumerate() {
                    if value > 0.0 {
                        add(input, value);
                    }
                }
            }
            for value in units.as_flattened_mut() {
                *value = rectify(*value);
            }
        }
        let last = &scratch.active[(self.layout.layers - 1) * chunks..];
        f64::from(self.layout.output_scale() * (self.output_bias + product(&self.output, last)))
    }

    /// Fills `gradient` from the activations that the last [`forward`](Self::forward) left in `scratch`.
    fn backward(&self, scratch: &mut Scratch, gradient: &mut Sparse) {
        let Layout { width, layers, .. } = self.layout;
        let chunks = self.layout.chunks();
        // √m of the output over √m of the features.
        let biases = self.layout.has_biases();
        scratch.slopes.resize(layers * chunks, [0.0; LANES]);
        for index in (0..layers).rev() {
            let (slopes, above) = scratch.slopes.split_at_mut((index + 1) * chunks);
            let slopes = slopes[index * chunks..].as_flattened_mut();
            let active = scratch.active[index * chunks..][..chunks].as_flattened();
            for unit in 0..width {
                slopes[unit] = if active[unit] <= 0.0 {
                    0.0
                } else if index + 1 == layers {
                    self.output.as_flattened()[unit]
                } else {
                    product(&self.hidden[index + 1].weights[unit * chunks..][..chunks], &above[..chunks])
                };
            }
        }
        let mut gradient = gradient.refill(scratch.most(self.layout));
        let mut offset = 0;
        for index in 0..layers {
            // Which units are dead is the same for all inputs, and nothing that a processor could guess.
            let slopes = &scratch.slopes[index * chunks..][..chunks].as_flattened()[..width];
            list_nonzero(slopes, &mut scratch.live);
            let mut row = |offset: usize, value: f32| {
                for (unit, slope) in &scratch.live {
                    gradient.push_nonzero(offset + *unit as usize, f64::from(value * slope));
                }
            };
            if index == 0 {
                scratch.inputs.iter().for_each(|&(input, value)| row(offset + input as usize * width, value));
            } else {
                let values = &scratch.active[(index - 1) * chunks..].as_flattened()[..width];
                let live = values.iter().enumerate().filter(|(_, value)| **value > 0.0);
                live.for_each(|(input, value)| row(offset + input * width, *value));
            }
            offset += self.layout.inputs_of(index) * width;
            if biases {
                row(offset, 1.0);
                offset += width;
            }
        }
        let last = &scratch.active[(layers - 1) * chunks..].as_flattened()[..width];
        for (unit, value) in last.iter().enumerate() {
            gradient.push_nonzero(offset + unit, f64::from(*value));
        }
        if biases {
            gradient.push_nonzero(offset + width, 1.0);
        }
        gradient.finish();
    }

    /// Whether no parameter has left the range in which gradients make sense.
    pub(crate) fn is_sound(&self) -> bool {
        const LARGEST: f32 = 1e10;
        let fits = |lanes: &[Lane]| lanes.as_flattened().iter().all(|v| v.abs() <= LARGEST);
        self.hidden.iter().all(|layer| fits(&layer.weights) && fits(&layer.bias))
            && fits(&self.output)
            && self.output_bias.abs() <= LARGEST
    }
}

/// Memory that forward and backward passes work in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    /// Inputs that are not zero, with their place.
    inputs: Vec<(u32, f32)>,
    /// What hidden layers put out.
    active: Vec<Lane>,
    /// How the output depends on the sum that enters each unit.
    slopes: Vec<Lane>,
    /// Those of a layer that are not zero, with their unit.
    live: Vec<(u32, f32)>,
}

impl Scratch {
    /// How many entries a gradient has at most, once slopes are known. A dead unit has none.
    fn most(&self, layout: Layout) -> usize {
        let chunks = layout.chunks();
        let live = |layer: usize| {
            let slopes = &self.slopes[layer * chunks..][..chunks];
            slopes.as_flattened().iter().map(|slope| usize::from(*slope != 0.0)).sum::<usize>()
        };
        let inputs = |layer: usize| if layer == 0 { self.inputs.len() } else { layout.width };
        (0..layout.layers).map(|layer| (inputs(layer) + 1) * live(layer)).sum::<usize>() + layout.width + 1
    }

    fn enter(&mut self, layout: &Layout, x: &[f64]) {
        self.inputs.clear();
        let scale = match layout.kind {
            NetworkKind::Plain => 1.0,
            NetworkKind::Tangent => std::f64::consts::FRAC_1_SQRT_2,
        };
        let nonzero = |(j, v): (usize, &f64)| (*v != 0.0).then(|| (j as u32, (scale * v) as f32));
        self.inputs.extend(x.iter().enumerate().filter_map(nonzero));
        if layout.kind == NetworkKind::Tangent {
            let half = self.inputs.len();
            self.inputs.extend_from_within(..half);
            self.inputs[half..].iter_mut().for_each(|(j, _)| *j += x.len() as u32);
        }
    }
}

/// max(v, 0), and 0 of what is no number.
#[inline(always)]
pub(crate) fn rectify(value: f32) -> f32 {
    if value > 0.0 { value } else { 0.0 }
}

/// Σ a·b, lanes added up at the end.
#[inline(always)]
pub(crate) fn product(a: &[Lane], b: &[Lane]) -> f32 {
    let mut sum = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sum[lane] += a[lane] * b[lane];
        }
    }
    total(&sum)
}

/// The sum of the lanes, in pairs.
#[inline(always)]
pub(crate) fn total(lane: &Lane) -> f32 {
    let [a, b, c, d, e, f, g, h] = *lane;
    ((a + e) + (b + f)) + ((c + g) + (d + h))
}

/// Makes `list` the numbers that are not zero, with their places.
#[inline(always)]
fn list_nonzero(numbers: &[f32], list: &mut Vec<(u32, f32)>) {
    list.resize(numbers.len(), (0, 0.0));
    let mut count = 0;
    for (place, number) in numbers.iter().enumerate() {
        list[count] = (place as u32, *number);
        count += usize::from(*number != 0.0);
    }
    list.truncate(count);
}

fn at(lanes: &mut [Lane], unit: usize) -> &mut f32 {
    &mut lanes[unit / LANES][unit % LANES]
}

#[cfg(test)]
mod tests;
