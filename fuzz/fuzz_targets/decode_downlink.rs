//! An agent that decodes whatever it is sent, receives what decodes, and goes on choosing and learning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use posse_core::wire::{decode_downlink, encode_downlink};
use posse_core::{AgentId, Algorithm, Arms, Federation, Seed, Shape, UserId};

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = decode_downlink(bytes) else { return };
    assert_eq!(encode_downlink(&message).len() as u64, message.cost().bytes);
    assert_eq!(decode_downlink(&encode_downlink(&message)).as_ref(), Ok(&message));
    let federation = Federation { agents: 2, horizon: 100, seed: Seed(1) };
    let arms = Arms::from_rows(2, &[[1.0, 0.0], [0.5, 0.5]]).expect("two features each");
    for algorithm in Algorithm::all() {
        let mut agent =
            algorithm.agent(AgentId(0), Shape::shared(2), &federation).expect("defaults are in range");
        for _ in 0..3 {
            let saved = agent.save();
            if agent.receive(message.clone()).is_err() {
                assert_eq!(agent.save(), saved);
            }
            let saved = agent.save();
            agent.restore(&saved).expect("its own state");
            // Enormous evidence may leave no arm with a score; that is an error, not a panic.
            let _ = agent.choose(UserId(0), &arms);
            let _ = agent.learn(UserId(0), arms.row(1), 1.0).expect("a small observation");
        }
    }
});
