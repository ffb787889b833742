//! The network as it is written on paper, in `f64` and one number at a time: what tests compare with.

use super::network::{Network, NetworkKind};

/// Parameters in the order of [`Network::parameters`].
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    kind: NetworkKind,
    dimension: usize,
    width: usize,
    layers: usize,
    pub(crate) parameters: Vec<f64>,
}

impl Plain {
    pub(crate) fn of(network: &Network) -> Self {
        let layout = network.layout;
        Self {
            kind: layout.kind,
            dimension: layout.dimension,
            width: layout.width,
            layers: layout.layers,
            parameters: network.parameters(),
        }
    }

    fn has_biases(&self) -> bool {
        self.kind == NetworkKind::Plain
    }

    fn scale(&self) -> f64 {
        if self.has_biases() { 1.0 } else { (self.width as f64).sqrt() }
    }

    /// f(x), and ∂f/∂θ divided by what the output is multiplied with.
    pub(crate) fn gradient(&self, x: &[f64]) -> (f64, Vec<f64>) {
        assert_eq!(x.len(), self.dimension);
        let mut inputs = vec![match self.kind {
            NetworkKind::Plain => x.to_vec(),
            NetworkKind::Tangent => x.iter().chain(x).map(|v| v / 2f64.sqrt()).collect(),
        }];
        let (mut offset, mut offsets) = (0, Vec::new());
        for _ in 0..self.layers {
            let input = inputs.last().unwrap();
            offsets.push(offset);
            let bias = offset + input.len() * self.width;
            let unit = |unit: usize| {
                let sum: f64 = (0..input.len())
                    .map(|j| input[j] * self.parameters[offset + j * self.width + unit])
                    .sum();
                (sum + if self.has_biases() { self.parameters[bias + unit] } else { 0.0 }).max(0.0)
            };
            let active: Vec<f64> = (0..self.width).map(unit).collect();
            offset = bias + if self.has_biases() { self.width } else { 0 };
            inputs.push(active);
        }
        let last = inputs.last().unwrap();
        let output = &self.parameters[offset..offset + self.width];
        let mut value: f64 = output.iter().zip(last).map(|(w, a)| w * a).sum();
        let mut gradient = vec![0.0; self.parameters.len()];
        gradient[offset..offset + self.width].copy_from_slice(last);
        if self.has_biases() {
            value += self.parameters[offset + self.width];
            gradient[offset + self.width] = 1.0;
        }
        let mut slopes: Vec<f64> = output.to_vec();
        for layer in (0..self.layers).rev() {
            let (input, active) = (&inputs[layer], &inputs[layer + 1]);
            for unit in 0..self.width {
                slopes[unit] *= f64::from(active[unit] > 0.0);
                for j in 0..input.len() {
                    gradient[offsets[layer] + j * self.width + unit] = input[j] * slopes[unit];
                }
                if self.has_biases() {
                    gradient[offsets[layer] + input.len() * self.width + unit] = slopes[unit];
                }
            }
            let weight = |j: usize, unit: usize| self.parameters[offsets[layer] + j * self.width + unit];
            let below = |j: usize| (0..self.width).map(|unit| weight(j, unit) * slopes[unit]).sum::<f64>();
            slopes = (0..input.len()).map(below).collect();
        }
        (self.scale() * value, gradient)
    }
}
