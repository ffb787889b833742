//! Machines that restore whatever they are given, or change nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use posse_core::session::{Endpoint, Hub};
use posse_core::{AgentId, Algorithm, Arms, Federation, Incarnation, Seed, Shape, UserId};

fuzz_target!(|bytes: &[u8]| {
    let shape = Shape { shared: 1, local: 1 };
    let federation = Federation { agents: 2, horizon: 100, seed: Seed(1) };
    let arms = Arms::from_rows(2, &[[1.0, 0.0], [0.5, 0.5]]).expect("two features each");
    for algorithm in Algorithm::all() {
        let build = || algorithm.agent(AgentId(0), shape, &federation).expect("defaults are in range");
        let mut agent = build();
        let before = agent.save();
        if agent.restore(bytes).is_ok() {
            let saved = agent.save();
            agent.restore(&saved).expect("its own state");
            let _ = agent.choose(UserId(0), &arms);
        } else {
            assert_eq!(agent.save(), before);
        }
        let mut coordinator = algorithm.coordinator(shape).expect("defaults are in range");
        let before = coordinator.save();
        if coordinator.restore(bytes).is_ok() {
            let saved = coordinator.save();
            coordinator.restore(&saved).expect("its own state");
        } else {
            assert_eq!(coordinator.save(), before);
        }
        let mut endpoint = Endpoint::new(AgentId(0), Incarnation(0), build(), 10);
        let before = endpoint.save();
        if endpoint.restore(bytes).is_err() {
            assert_eq!(endpoint.save(), before);
        }
        let mut hub = Hub::new(algorithm.coordinator(shape).expect("defaults are in range"), 10);
        let before = hub.save();
        if hub.restore(bytes).is_err() {
            assert_eq!(hub.save(), before);
        }
    }
});
