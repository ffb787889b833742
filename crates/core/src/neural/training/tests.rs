//! Training against steps of the plain network.

use super::super::network::{product, rectify, total};
use super::super::plain::Plain;
use super::*;
use crate::random::Seed;

fn data(dimension: usize, count: usize) -> (Observations, Vec<(Vec<f64>, f64)>) {
    let mut stream = Seed(4).stream("test", 0, 0);
    let mut observations = Observations::new(dimension);
    let rows: Vec<(Vec<f64>, f64)> = (0..count)
        .map(|index| {
            let x: Vec<f64> =
                (0..dimension).map(|j| if (index + j) % 3 == 0 { 0.0 } else { stream.normal() }).collect();
            (x, stream.normal())
        })
        .collect();
    rows.iter().for_each(|(x, y)| observations.push(x, *y));
    (observations, rows)
}

/// A step as it is written down.
fn plain_step(plain: &Plain, start: &[f64], layout: Layout, rows: &[(Vec<f64>, f64)], t: Training) -> Plain {
    let (n, m) = (rows.len() as f64, layout.width as f64);
    let mut gradient = vec![0.0; plain.parameters.len()];
    for (x, y) in rows {
        let (value, slopes) = plain.gradient(x);
        let scale = f64::from(layout.output_scale());
        for (sum, slope) in gradient.iter_mut().zip(slopes) {
            *sum += (value - y) * scale * slope;
        }
    }
    let mut next = plain.clone();
    for (index, parameter) in next.parameters.iter_mut().enumerate() {
        let (rate, slope) = match layout.kind {
            NetworkKind::Plain => {
                (t.rate, 2.0 * gradient[index] / n + t.regularization / n * plain.parameters[index])
            }
            NetworkKind::Tangent => {
                let depth = layout.layers as f64 + 1.0;
                let drawn = m * t.regularization * (plain.parameters[index] - start[index]);
                (t.rate / (m * t.regularization + m * n * depth), gradient[index] + drawn)
            }
        };
        *parameter -= rate * slope;
    }
    next
}

#[test]
fn steps_are_those_of_a_plain_network() {
    let layout = |kind, dimension, width, layers| Layout { kind, dimension, width, layers };
    for layout in [
        layout(NetworkKind::Plain, 4, 20, 1),
        layout(NetworkKind::Plain, 3, 9, 3),
        layout(NetworkKind::Tangent, 3, 10, 1),
        layout(NetworkKind::Tangent, 2, 8, 2),
    ] {
        for count in [1, 4, 11] {
            let (observations, rows) = data(layout.dimension, count);
            let start = Network::start(layout, &mut Seed(1).stream("test", 0, 0));
            let training = Training { rate: 0.002, regularization: 0.3 };
            let (mut network, mut plain) = (start.clone(), Plain::of(&start));
            for _ in 0..5 {
                plain = plain_step(&plain, &start.parameters(), layout, &rows, training);
            }
            assert!(training.fit(&mut network, &start, &observations, 5));
            for (a, b) in network.parameters().iter().zip(&plain.parameters) {
                assert!((a - b).abs() <= 1e-4 * (1.0 + b.abs()), "{layout:?} {count}: {a} and {b}");
            }
            assert_ne!(network, start);
        }
    }
}

/// The inputs of a layer, where their weights begin, and what it puts out for each observation of a block.
type LiteralLayer = (Vec<ObservationBlock>, Vec<usize>, Vec<Vec<f32>>);

/// What all observations say about the slope, unit by unit: the order in which everything is rounded.
fn literal_slopes(network: &Network, observations: &Observations) -> Gradients {
    let layout = network.layout;
    let (chunks, width) = (layout.chunks(), layout.chunks() * LANES);
    let mut sums =
        Gradients { hidden: network.hidden.clone(), output: network.output.clone(), output_bias: 0.0 };
    sums.clear();
    for group in observations.groups() {
        for (features, rewards, count) in group.blocks() {
            let mut entered = vec![[0.0; BLOCK]; offsets(layout, group).len()];
            enter(layout.kind, features, &mut entered);
            let mut layers: Vec<LiteralLayer> = Vec::new();
            for (index, layer) in network.hidden.iter().enumerate() {
                let (inputs, begin) = match layers.last() {
                    None => (entered.clone(), offsets(layout, group)),
                    Some((_, _, out)) => (
                        (0..layout.width).map(|unit| std::array::from_fn(|place| out[place][unit])).collect(),
                        (0..layout.width).map(|unit| unit * width).collect(),
                    ),
                };
                let (weights, bias) =
                    (network.hidden[index].weights.as_flattened(), layer.bias.as_flattened());
                let put_out = |place: usize, unit: usize| {
                    let mut sum = bias[unit];
                    for (input, begin) in inputs.iter().zip(&begin) {
                        sum += input[place] * weights[begin + unit];
                    }
                    rectify(sum)
                };
                let out =
                    (0..BLOCK).map(|place| (0..width).map(|unit| put_out(place, unit)).collect()).collect();
                layers.push((inputs, begin, out));
            }
            let last = &layers.last().unwrap().2;
            let (output, scale) = (network.output.as_flattened(), layout.output_scale());
            let mut errors = [0.0; BLOCK];
            for place in 0..count {
                let mut lanes = [0.0; LANES];
                (0..width).for_each(|unit| lanes[unit % LANES] += output[unit] * last[place][unit]);
                errors[place] = (scale * (network.output_bias + total(&lanes)) - rewards[place]) * scale;
            }
            let four = |[a, b, c, d]: [f32; BLOCK]| (a + b) + (c + d);
            sums.output_bias += four(errors);
            let mut slopes = vec![vec![0.0; width]; BLOCK];
            for (place, slopes) in slopes.iter_mut().enumerate() {
                for (unit, slope) in slopes.iter_mut().enumerate() {
                    let active = last[place][unit];
                    sums.output.as_flattened_mut()[unit] += errors[place] * active;
                    *slope = if active > 0.0 { errors[place] * output[unit] } else { 0.0 };
                }
            }
            for index in (0..layout.layers).rev() {
                let (inputs, begin, _) = &layers[index];
                for unit in 0..width {
                    let sum = &mut sums.hidden[index];
                    let slopes: [f32; BLOCK] = std::array::from_fn(|place| slopes[place][unit]);
                    sum.bias.as_flattened_mut()[unit] += four(slopes);
                    for (input, begin) in inputs.iter().zip(begin) {
                        let scaled = std::array::from_fn(|place| input[place] * slopes[place]);
                        sum.weights.as_flattened_mut()[begin + unit] += four(scaled);
                    }
                }
                if index > 0 {
                    let above = slopes.clone();
                    for (place, above) in above.iter().enumerate() {
                        let above: Vec<Lane> =
                            above.chunks(LANES).map(|lane| lane.try_into().unwrap()).collect();
                        for (unit, slope) in slopes[place][..layout.width].iter_mut().enumerate() {
                            let weights = &network.hidden[index].weights[unit * chunks..][..chunks];
                            let alive = layers[index - 1].2[place][unit] > 0.0;
                            *slope = if alive { product(weights, &above) } else { 0.0 };
                        }
                        slopes[place][layout.width..].fill(0.0);
                    }
                }
            }
        }
    }
    sums
}

#[test]
fn blocks_have_the_bits_of_one_unit_after_the_other() {
    for (kind, dimension, width, layers) in [
        (NetworkKind::Plain, 9, 50, 1),
        (NetworkKind::Plain, 5, 20, 1),
        (NetworkKind::Plain, 3, 32, 2),
        (NetworkKind::Plain, 3, 9, 3),
        (NetworkKind::Tangent, 4, 10, 2),
        (NetworkKind::Tangent, 4, 64, 1),
    ] {
        let layout = Layout { kind, dimension, width, layers };
        let mut network = Network::start(layout, &mut Seed(1).stream("test", 0, 0));
        let (start, (observations, _)) = (network.clone(), data(dimension, 27));
        let mut literal = network.clone();
        let training = Training { rate: 0.002, regularization: 0.3 };
        assert!(training.fit(&mut network, &start, &observations, 3));
        let (rate, slope, decay) = training.factors(layout, observations.len());
        for _ in 0..3 {
            let anchor = (kind == NetworkKind::Tangent).then_some(&start);
            literal_slopes(&literal, &observations).apply(&mut literal, anchor, rate, slope, decay);
        }
        assert_eq!(network, literal, "{layout:?}");
    }
}

#[test]
fn training_lowers_the_loss() {
    let layout = Layout { kind: NetworkKind::Plain, dimension: 5, width: 20, layers: 1 };
    let (observations, rows) = data(5, 60);
    let start = Network::start(layout, &mut Seed(2).stream("test", 0, 0));
    let loss = |network: &Network| {
        let plain = Plain::of(network);
        rows.iter().map(|(x, y)| plain.gradient(x).0 - y).map(|e| e * e).sum::<f64>() / 60.0
    };
    let mut network = start.clone();
    assert!(Training { rate: 0.005, regularization: 0.1 }.fit(&mut network, &start, &observations, 300));
    assert!(loss(&network) < 0.3 * loss(&start), "{} from {}", loss(&network), loss(&start));
}

#[test]
fn training_that_diverges_leaves_the_network_as_it_was() {
    let layout = Layout { kind: NetworkKind::Plain, dimension: 2, width: 20, layers: 1 };
    let start = Network::start(layout, &mut Seed(2).stream("test", 0, 0));
    let (mut network, mut observations) = (start.clone(), Observations::new(2));
    observations.push(&[1e9, -1e9], 1.0);
    assert!(!Training { rate: 0.01, regularization: 0.1 }.fit(&mut network, &start, &observations, 30));
    assert_eq!(network, start);
}

#[test]
fn nothing_to_learn_from_changes_nothing() {
    let layout = Layout { kind: NetworkKind::Plain, dimension: 2, width: 3, layers: 1 };
    let start = Network::start(layout, &mut Seed(2).stream("test", 0, 0));
    let mut network = start.clone();
    assert!(Training { rate: 0.01, regularization: 0.1 }.fit(
        &mut network,
        &start,
        &Observations::new(2),
        30
    ));
    assert_eq!(network, start);
}
