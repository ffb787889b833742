//! The algorithm does what every algorithm must, in every host, without a change to posse.

use posse_core::{Algorithm, Seed, Shape};
use posse_sim::network::{NetworkConfig, Preset};
use posse_sim::world::{ArrivalConfig, LinearConfig, WorldConfig};
use posse_sim::{Event, Invariants, Observer, RunConfig, Stage};
use shared_greedy::SharedGreedy;

fn run(algorithm: Algorithm, network: NetworkConfig) -> RunConfig {
    RunConfig {
        seed: Seed(7),
        agents: 20,
        horizon: 2000,
        world: WorldConfig::Linear(LinearConfig { dimension: 5, arms: 10, ..LinearConfig::default() }),
        arrival: ArrivalConfig::Uniform,
        network,
        faults: Default::default(),
        algorithm,
    }
}

struct Nobody;

impl Observer for Nobody {
    fn observe(&mut self, _event: &Event<'_>, _stage: &dyn Stage) {}
}

#[test]
fn it_keeps_every_promise_of_the_conformance_suite() {
    for upload_every in [1, 4, 1000] {
        let algorithm = SharedGreedy { upload_every, ..SharedGreedy::default() }.algorithm();
        posse_conformance::check(&algorithm, Shape::shared(4)).unwrap();
    }
}

#[test]
fn sharing_lowers_regret_in_the_simulator_and_is_counted() {
    let every = |upload_every| {
        let settings = SharedGreedy { upload_every, exploration: 0.0, ..SharedGreedy::default() };
        run(settings.algorithm(), NetworkConfig::default()).run(&mut Nobody).unwrap()
    };
    let (alone, shared) = (every(1_000_000), every(10));
    assert!(shared.regret < 0.9 * alone.regret, "{} shared, {} alone", shared.regret, alone.regret);
    // An answer to each newcomer; an upload and an answer for every ten observations of an agent.
    assert!(alone.up.messages == 0 && shared.up.messages > 150, "{} uploads", shared.up.messages);
    assert_eq!(shared.down.messages, shared.up.messages + 20);
    // A count, a triangle of 15 and a vector of 5 in every message.
    assert_eq!(shared.up.scalars, 21 * shared.up.messages);
}

#[test]
fn nothing_is_lost_or_doubled_over_hostile_links() {
    let algorithm = SharedGreedy::default().algorithm();
    let mut invariants = Invariants::of(&algorithm);
    let hostile = NetworkConfig::preset(Preset::Hostile);
    let tally = run(algorithm, hostile).run(&mut invariants).unwrap();
    assert_eq!(invariants.violation(), None);
    assert_eq!(tally.interactions, 2000);
}
