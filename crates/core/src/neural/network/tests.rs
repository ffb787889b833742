//! The network against a plain one in `f64`, whose gradient is compared with finite differences.

use super::super::plain::Plain;
use super::*;
use crate::random::Seed;

fn layouts() -> Vec<Layout> {
    let layout = |kind, dimension, width, layers| Layout { kind, dimension, width, layers };
    use NetworkKind::{Plain, Tangent};
    vec![
        layout(Plain, 1, 1, 1),
        layout(Plain, 10, 20, 1),
        layout(Plain, 4, 50, 1),
        layout(Plain, 3, 7, 2),
        layout(Plain, 5, 9, 3),
        layout(Tangent, 3, 8, 1),
        layout(Tangent, 4, 20, 1),
        layout(Tangent, 2, 6, 3),
    ]
}

fn started(layout: Layout) -> Network {
    Network::start(layout, &mut Seed(8).stream("test", 0, 0))
}

/// A network away from its start, where both halves of a tangent network are alike.
fn moved(layout: Layout) -> Network {
    let mut stream = Seed(9).stream("test", 0, 0);
    let parameters = started(layout).parameters();
    let parameters: Vec<f64> = parameters.iter().map(|v| v + 0.3 * stream.normal()).collect();
    Network::from_parameters(layout, &parameters).unwrap()
}

fn points(dimension: usize) -> Vec<Vec<f64>> {
    let mut stream = Seed(10).stream("test", 0, 0);
    let mut sparse = |k: u64| {
        (0..dimension).map(|_| if stream.below(3) < k { stream.normal() } else { 0.0 }).collect::<Vec<f64>>()
    };
    (0..12).map(|index| sparse(1 + index % 3)).collect()
}

fn dense(sparse: &Sparse, length: usize) -> Vec<f64> {
    let mut dense = vec![0.0; length];
    sparse.add_to(1.0, &mut dense);
    dense
}

#[test]
fn parameters_come_back_as_they_were() {
    for layout in layouts() {
        let network = moved(layout);
        let parameters = network.parameters();
        assert_eq!(parameters.len(), layout.parameters());
        assert_eq!(Network::from_parameters(layout, &parameters), Some(network));
        assert_eq!(Network::from_parameters(layout, &parameters[1..]), None);
        let broken: Vec<f64> = parameters.iter().map(|_| 1e300).collect();
        assert_eq!(Network::from_parameters(layout, &broken), None);
    }
}

#[test]
fn one_hidden_layer_has_m_times_d_plus_2_plus_1_parameters() {
    let count =
        |dimension, width| Layout { kind: NetworkKind::Plain, dimension, width, layers: 1 }.parameters();
    assert_eq!([count(10, 20), count(20, 20), count(63, 20), count(63, 50)], [241, 441, 1301, 3251]);
}

#[test]
fn values_and_gradients_are_those_of_a_plain_network() {
    for layout in layouts() {
        let network = moved(layout);
        let plain = Plain::of(&network);
        let (mut scratch, mut gradient) = (Scratch::default(), Sparse::default());
        for x in points(layout.dimension) {
            let value = network.gradient(&x, &mut scratch, &mut gradient);
            assert_eq!(value, network.value(&x, &mut scratch));
            let (expected, slopes) = plain.gradient(&x);
            assert!((value - expected).abs() <= 1e-4 * (1.0 + expected.abs()), "{layout:?}");
            for (a, b) in dense(&gradient, layout.parameters()).iter().zip(&slopes) {
                assert!((a - b).abs() <= 1e-4 * (1.0 + b.abs()), "{layout:?}: {a} and {b}");
            }
        }
    }
}

#[test]
fn the_gradient_of_the_plain_network_is_that_of_finite_differences() {
    for layout in layouts() {
        let plain = Plain::of(&moved(layout));
        for x in points(layout.dimension) {
            let (_, slopes) = plain.gradient(&x);
            for (index, slope) in slopes.iter().enumerate() {
                let shifted = |step: f64| {
                    let mut other = plain.clone();
                    other.parameters[index] += step;
                    other.gradient(&x).0
                };
                let (step, scale) = (1e-7, f64::from(layout.output_scale()));
                let difference = (shifted(step) - shifted(-step)) / (2.0 * step);
                // Features of the tangent network are the gradient over √m.
                let difference = difference / scale;
                // A unit that switches within the step makes the difference meaningless; none does here.
                assert!((difference - slope).abs() <= 1e-4 * (1.0 + slope.abs()), "{layout:?} {index}");
            }
        }
    }
}

#[test]
fn a_tangent_network_says_nothing_at_its_start() {
    for layout in layouts().into_iter().filter(|layout| layout.kind == NetworkKind::Tangent) {
        let (network, mut scratch) = (started(layout), Scratch::default());
        let mut gradient = Sparse::default();
        for x in points(layout.dimension) {
            let value = network.gradient(&x, &mut scratch, &mut gradient);
            assert!(value.abs() <= 1e-6, "{value}");
            assert!(!gradient.is_empty() || x.iter().all(|v| *v == 0.0) || layout.width < 20);
        }
    }
}

#[test]
fn the_start_depends_on_the_seed_alone() {
    let layout = layouts()[1];
    assert_eq!(started(layout), started(layout));
    assert_ne!(started(layout), Network::start(layout, &mut Seed(9).stream("test", 0, 0)));
}
