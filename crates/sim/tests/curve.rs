//! Curves pass through what a shorter run would have ended with, and end with what the run adds up to.

use std::ops::ControlFlow;

use posse_core::{JoinPolicy, TimeSpan};
use posse_sim::network::{FaultConfig, NetworkConfig, Preset};
use posse_sim::{Curve, Event, Observer, RunConfig, RunError, Stage, Tally};

use crate::support::{async_lin_ucb, protocol, small};

fn config(horizon: u64) -> RunConfig {
    small(3, 6, horizon, async_lin_ucb(protocol(1.5, 1.5, JoinPolicy::Lazy)))
}

fn curve(config: &RunConfig) -> (Tally, Vec<Tally>) {
    let mut curve = Curve::new(config.horizon);
    let tally = config.run(&mut curve).unwrap();
    (tally, curve.into_points())
}

#[test]
fn every_point_is_where_a_run_of_that_length_ends() {
    let config = config(200);
    let (tally, points) = curve(&config);
    assert_eq!(points.last(), Some(&tally));
    assert!(tally.messages() > 0);
    for point in &points {
        let shorter = RunConfig { horizon: point.interactions, ..config.clone() };
        assert_eq!(*point, shorter.run(&mut ()).unwrap());
    }
}

#[test]
fn over_links_the_last_point_holds_what_arrived_late() {
    let config = RunConfig {
        network: NetworkConfig {
            preset: Preset::Cellular,
            reward_delay: TimeSpan::from_millis(500),
            ..NetworkConfig::default()
        },
        faults: FaultConfig { agent_crash: 0.02, ..FaultConfig::default() },
        ..config(300)
    };
    let (tally, points) = curve(&config);
    assert_eq!(points.last(), Some(&tally));
    assert!(points.is_sorted_by(|a, b| a.interactions < b.interactions && a.up.bytes <= b.up.bytes));
}

#[test]
fn an_observer_can_stop_a_run() {
    struct Enough;
    impl Observer for Enough {
        fn observe(&mut self, _event: &Event<'_>, _stage: &dyn Stage) {}

        fn interacted(&mut self, tally: &Tally) -> ControlFlow<()> {
            if tally.interactions == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    assert_eq!(config(20).run(&mut Enough), Err(RunError::Stopped { interactions: 7 }));
}
