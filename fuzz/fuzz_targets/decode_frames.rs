//! Both ends of a link and the log, fed with whatever decodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use posse_core::session::{DownFrame, Endpoint, Hub, LogEntry, UpFrame};
use posse_core::{AgentId, Algorithm, Federation, Incarnation, Seed, Shape, Tick, UserId};

/// Far from zero, as every real clock is.
const NOW: Tick = Tick(1_700_000_000_000_000);

fuzz_target!(|bytes: &[u8]| {
    let shape = Shape::shared(2);
    let federation = Federation { agents: 2, horizon: 100, seed: Seed(1) };
    let up = UpFrame::decode(bytes);
    let down = DownFrame::decode(bytes);
    let entry = LogEntry::decode(bytes);
    if up.is_err() && down.is_err() && entry.is_err() {
        return;
    }
    for algorithm in Algorithm::all() {
        let mut hub = Hub::new(algorithm.coordinator(shape).expect("defaults are in range"), 10);
        if let Ok(frame) = &up {
            for _ in 0..2 {
                let saved = hub.save();
                if hub.receive(NOW, AgentId(0), frame.clone()).is_err() {
                    assert_eq!(hub.save(), saved);
                }
            }
            hub.tick(NOW.after(100));
        }
        if let Ok(entry) = &entry {
            let _ = hub.replay(entry.clone());
            let _ = hub.replay(entry.clone());
        }
        if let Ok(frame) = &down {
            let agent = algorithm.agent(AgentId(0), shape, &federation).expect("defaults are in range");
            let mut endpoint = Endpoint::new(AgentId(0), Incarnation(frame.incarnation.0), agent, 10);
            for _ in 0..3 {
                let saved = endpoint.save();
                if endpoint.receive(NOW, frame.clone()).is_err() {
                    assert_eq!(endpoint.save(), saved);
                }
                let _ = endpoint.learn(NOW, UserId(0), &[1.0, 0.5], 1.0).expect("a small observation");
                endpoint.tick(NOW.after(100));
            }
        }
    }
});
