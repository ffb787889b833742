//! The baselines for networks and kernels: as anybody would write them first, in plain loops. Keep them plain.

use crate::plain::PlainLinUcb;

/// FN-UCB's linear bound over the gradients of a network with one hidden layer.
pub(super) struct PlainGradientUcb {
    dimension: usize,
    units: usize,
    /// Weights from each input to all units, biases, weights to the output, its bias.
    parameters: Vec<f64>,
    matrix: Matrix,
    width: f64,
    /// The gradients of an offer.
    gradients: Vec<f64>,
}

enum Matrix {
    Full(PlainLinUcb),
    /// The diagonal of the matrix, and Σφy.
    Diagonal(Vec<f64>, Vec<f64>),
}

impl PlainGradientUcb {
    /// `width` is what a bound adds for each unit of ‖φ‖.
    pub(super) fn new(
        dimension: usize,
        units: usize,
        parameters: Vec<f64>,
        diagonal: bool,
        regularization: f64,
        width: f64,
    ) -> Self {
        let count = parameters.len();
        let matrix = if diagonal {
            Matrix::Diagonal(vec![regularization; count], vec![0.0; count])
        } else {
            Matrix::Full(PlainLinUcb::new(count, regularization))
        };
        Self { dimension, units, parameters, matrix, width, gradients: Vec::new() }
    }

    pub(super) fn choose(&mut self, arms: &[f64]) -> usize {
        let count = self.parameters.len();
        let mut gradients = std::mem::take(&mut self.gradients);
        gradients.clear();
        gradients.resize(arms.len() / self.dimension * count, 0.0);
        for (x, gradient) in arms.chunks_exact(self.dimension).zip(gradients.chunks_exact_mut(count)) {
            self.gradient(x, gradient);
        }
        let best = match &mut self.matrix {
            Matrix::Full(model) => model.choose_with(&gradients, self.width),
            Matrix::Diagonal(diagonal, sums) => {
                let (mut best, mut best_score) = (0, f64::NEG_INFINITY);
                for (k, phi) in gradients.chunks_exact(count).enumerate() {
                    let (mut mean, mut square) = (0.0, 0.0);
                    for ((g, v), b) in phi.iter().zip(diagonal.iter()).zip(sums.iter()) {
                        mean += g * b / v;
                        square += g * g / v;
                    }
                    let score = mean + self.width * square.sqrt();
                    if score > best_score {
                        (best, best_score) = (k, score);
                    }
                }
                best
            }
        };
        self.gradients = gradients;
        best
    }

    pub(super) fn learn(&mut self, x: &[f64], reward: f64) {
        let mut phi = vec![0.0; self.parameters.len()];
        self.gradient(x, &mut phi);
        match &mut self.matrix {
            Matrix::Full(model) => model.learn(&phi, reward),
            Matrix::Diagonal(diagonal, sums) => {
                for ((g, v), b) in phi.iter().zip(diagonal).zip(sums) {
                    *v += g * g;
                    *b += g * reward;
                }
            }
        }
    }

    /// ∂f/∂θ of f = b₂ + Σ w₂·max(0, W₁x + b₁); f itself comes back.
    fn gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let (d, m) = (self.dimension, self.units);
        let (hidden, rest) = self.parameters.split_at(d * m);
        let (biases, output) = rest.split_at(m);
        let mut value = output[m];
        for unit in 0..m {
            let pre = biases[unit] + (0..d).map(|input| x[input] * hidden[input * m + unit]).sum::<f64>();
            let slope = if pre > 0.0 { output[unit] } else { 0.0 };
            for (input, x) in x.iter().enumerate() {
                gradient[input * m + unit] = slope * x;
            }
            gradient[d * m + unit] = slope;
            gradient[d * m + m + unit] = pre.max(0.0);
            value += output[unit] * pre.max(0.0);
        }
        gradient[d * m + 2 * m] = 1.0;
        value
    }
}

/// Kernel UCB with the inverse of K + λI, k = exp(−‖x − x'‖).
pub(super) struct PlainKernelUcb {
    dimension: usize,
    regularization: f64,
    /// λν, the factor of the squared width of the bound.
    variance: f64,
    points: Vec<Vec<f64>>,
    rewards: Vec<f64>,
    /// A row for each point.
    inverse: Vec<Vec<f64>>,
}

impl PlainKernelUcb {
    pub(super) fn new(dimension: usize, regularization: f64, exploration: f64) -> Self {
        let variance = regularization * exploration;
        let (points, rewards, inverse) = (Vec::new(), Vec::new(), Vec::new());
        Self { dimension, regularization, variance, points, rewards, inverse }
    }

    pub(super) fn choose(&self, arms: &[f64]) -> usize {
        let (mut best, mut best_score) = (0, f64::NEG_INFINITY);
        for (arm, x) in arms.chunks_exact(self.dimension).enumerate() {
            let (k, product) = self.against(x);
            let score =
                dot(&product, &self.rewards) + (self.variance * (1.0 - dot(&k, &product)).max(0.0)).sqrt();
            if score > best_score {
                (best, best_score) = (arm, score);
            }
        }
        best
    }

    /// The inverse of a matrix with one more row and column.
    pub(super) fn learn(&mut self, x: &[f64], reward: f64) {
        let (k, product) = self.against(x);
        let rest = 1.0 + self.regularization - dot(&k, &product);
        for (row, a) in self.inverse.iter_mut().zip(&product) {
            for (value, b) in row.iter_mut().zip(&product) {
                *value += a * b / rest;
            }
            row.push(-a / rest);
        }
        let last = product.iter().map(|p| -p / rest).chain([1.0 / rest]).collect();
        self.inverse.push(last);
        self.points.push(x.to_vec());
        self.rewards.push(reward);
    }

    /// The kernel between an arm and every point, and the inverse times it.
    fn against(&self, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let distance =
            |point: &Vec<f64>| point.iter().zip(x).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
        let k: Vec<f64> = self.points.iter().map(|point| (-distance(point)).exp()).collect();
        let product = self.inverse.iter().map(|row| dot(row, &k)).collect();
        (k, product)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use posse_core::wire::v1::NeuralAgentState;
    use posse_core::{
        Agent, AgentId, Algorithm, AlphaRule, Arms, Federation, FnUcb, KernelConfig, NeuralConfig,
        Precondition, Seed, Shape, Threshold, UserId,
    };
    use prost::Message;

    use super::*;

    fn agent(algorithm: &Algorithm) -> Box<dyn Agent> {
        let federation = Federation { agents: 1, horizon: 200, seed: Seed(0) };
        algorithm.agent(AgentId(0), Shape::shared(3), &federation).unwrap()
    }

    /// Plays both, and expects the same choices.
    fn assert_alike(
        real: &mut dyn Agent,
        rounds: u32,
        mut plain: impl FnMut(&[f64], Option<(usize, f64)>) -> usize,
    ) {
        let mut stream = Seed(4).stream("bench", 0, 0);
        for round in 0..rounds {
            let features: Vec<f64> = (0..4 * 3).map(|_| stream.normal()).collect();
            let rows: Vec<&[f64]> = features.chunks_exact(3).collect();
            let arm = real.choose(UserId(0), &Arms::from_rows(3, &rows).unwrap()).unwrap().arm;
            assert_eq!(arm, plain(&features, None), "round {round}");
            let reward = rows[arm][0].cos() + 0.1 * stream.normal();
            real.learn(UserId(0), rows[arm], reward).unwrap();
            plain(&features, Some((arm, reward)));
        }
    }

    #[test]
    fn the_kernel_baseline_and_the_real_one_choose_alike() {
        let config = KernelConfig::default();
        let mut plain = PlainKernelUcb::new(3, config.regularization, config.exploration);
        let mut real = agent(&Algorithm::KernelUcb(config));
        assert_alike(&mut *real, 200, |arms, learned| match learned {
            None => plain.choose(arms),
            Some((arm, reward)) => {
                plain.learn(&arms[3 * arm..][..3], reward);
                arm
            }
        });
    }

    #[test]
    fn the_gradient_baseline_and_the_real_one_choose_alike() {
        for statistic in [Precondition::Full, Precondition::Diagonal] {
            let neural = NeuralConfig { statistic, hidden_width: 5, training_stop: 0, ..Default::default() };
            let width = 0.1 * neural.regularization.sqrt();
            let config = FnUcb {
                neural,
                linear_width: 0.1,
                alpha: AlphaRule::Zero,
                round_threshold: Threshold::NEVER,
                ..Default::default()
            };
            let lambda = config.neural.regularization;
            let mut real = agent(&Algorithm::FnUcb(config));
            let start = NeuralAgentState::decode(real.save().as_slice()).unwrap().learner.unwrap().weights;
            let diagonal = statistic == Precondition::Diagonal;
            let mut plain = PlainGradientUcb::new(3, 5, start, diagonal, lambda, width);
            assert_alike(&mut *real, 100, |arms, learned| match learned {
                None => plain.choose(arms),
                Some((arm, reward)) => {
                    plain.learn(&arms[3 * arm..][..3], reward);
                    arm
                }
            });
        }
    }

    #[test]
    fn the_gradient_baseline_has_the_gradient_of_its_network() {
        let (d, m) = (3, 5);
        let mut stream = Seed(4).stream("bench", 0, 0);
        let parameters: Vec<f64> = (0..m * (d + 2) + 1).map(|_| stream.normal()).collect();
        let x: Vec<f64> = (0..d).map(|_| stream.normal()).collect();
        let with = |parameters| PlainGradientUcb::new(d, m, parameters, true, 0.1, 0.1);
        let mut gradient = vec![0.0; parameters.len()];
        with(parameters.clone()).gradient(&x, &mut gradient);
        for (place, slope) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut parameters = parameters.clone();
                parameters[place] += by;
                with(parameters).gradient(&x, &mut vec![0.0; gradient.len()])
            };
            assert!((slope - (moved(1e-6) - moved(-1e-6)) / 2e-6).abs() < 1e-6, "{place}");
        }
    }
}
