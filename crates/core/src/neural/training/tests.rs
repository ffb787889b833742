//! Training against steps of the plain network.

use super::super::network::Layout;
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
