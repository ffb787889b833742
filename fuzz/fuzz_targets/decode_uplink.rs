//! A coordinator that decodes whatever it is sent, and receives what decodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use posse_core::wire::{decode_uplink, encode_uplink};
use posse_core::{AgentId, Algorithm, Entrance, Shape, Tick};

/// Far from zero, as every real clock is.
const NOW: Tick = Tick(1_700_000_000_000_000);

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = decode_uplink(bytes) else { return };
    assert_eq!(encode_uplink(&message).len() as u64, message.cost().bytes);
    assert_eq!(decode_uplink(&encode_uplink(&message)).as_ref(), Ok(&message));
    for algorithm in Algorithm::all() {
        let mut coordinator = algorithm.coordinator(Shape::shared(2)).expect("defaults are in range");
        coordinator.join(NOW, AgentId(0), Entrance::NewLife);
        let before = coordinator.save();
        for _ in 0..2 {
            if coordinator.receive(NOW, AgentId(0), message.clone()).is_err() {
                break;
            }
            // What was accepted can be saved and brought back.
            let saved = coordinator.save();
            coordinator.restore(&saved).expect("its own state");
        }
        coordinator.restore(&before).expect("its own state");
    }
});
