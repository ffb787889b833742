//! What each target does with its bytes. A panic is a bug: whatever is refused must leave the machine as it was.

use posse_core::session::{DownFrame, Endpoint, Hub, LogEntry, UpFrame};
use posse_core::{
    AgentId, Algorithm, Arms, Entrance, Federation, Incarnation, Seed, Shape, Tick, TimeSpan, UserId, wire,
};

const RESEND_AFTER: TimeSpan = TimeSpan::from_micros(10);
/// Far from zero, as every real clock is.
const NOW: Tick = Tick(1_700_000_000_000_000);

/// A coordinator of each algorithm receives the message that `bytes` decode to, if they decode.
///
/// # Panics
/// If there is a bug.
pub fn decode_uplink(bytes: &[u8]) {
    let Ok(message) = wire::decode_uplink(bytes) else { return };
    // Encodings are compared, because a number that is not one equals nothing.
    let encoded = wire::encode_uplink(&message);
    assert_eq!(encoded.len() as u64, message.cost().bytes);
    assert_eq!(wire::decode_uplink(&encoded).map(|again| wire::encode_uplink(&again)), Ok(encoded));
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
}

/// An agent of each algorithm receives the message that `bytes` decode to, and goes on choosing and learning.
///
/// # Panics
/// If there is a bug.
pub fn decode_downlink(bytes: &[u8]) {
    let Ok(message) = wire::decode_downlink(bytes) else { return };
    let encoded = wire::encode_downlink(&message);
    assert_eq!(encoded.len() as u64, message.cost().bytes);
    assert_eq!(wire::decode_downlink(&encoded).map(|again| wire::encode_downlink(&again)), Ok(encoded));
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
}

/// Both ends of a link and the log take the frame or the log entry that `bytes` decode to.
///
/// # Panics
/// If there is a bug.
pub fn decode_frames(bytes: &[u8]) {
    let shape = Shape::shared(2);
    let federation = Federation { agents: 2, horizon: 100, seed: Seed(1) };
    let up = UpFrame::decode(bytes);
    let down = DownFrame::decode(bytes);
    let entry = LogEntry::decode(bytes);
    if up.is_err() && down.is_err() && entry.is_err() {
        return;
    }
    for algorithm in Algorithm::all() {
        let mut hub = Hub::new(algorithm.coordinator(shape).expect("defaults are in range"), RESEND_AFTER);
        if let Ok(frame) = &up {
            for _ in 0..2 {
                let saved = hub.save();
                if hub.receive(NOW, AgentId(0), frame.clone()).is_err() {
                    assert_eq!(hub.save(), saved);
                }
            }
            hub.tick(NOW.after(TimeSpan::from_micros(100)));
        }
        if let Ok(entry) = &entry {
            let _ = hub.replay(entry.clone());
            let _ = hub.replay(entry.clone());
        }
        if let Ok(frame) = &down {
            let agent = algorithm.agent(AgentId(0), shape, &federation).expect("defaults are in range");
            let mut endpoint =
                Endpoint::new(AgentId(0), Incarnation(frame.incarnation.0), agent, RESEND_AFTER);
            for _ in 0..3 {
                let saved = endpoint.save();
                if endpoint.receive(NOW, frame.clone()).is_err() {
                    assert_eq!(endpoint.save(), saved);
                }
                let _ = endpoint.learn(NOW, UserId(0), &[1.0, 0.5], 1.0).expect("a small observation");
                endpoint.tick(NOW.after(TimeSpan::from_micros(100)));
            }
        }
    }
}

/// Machines, ends of links and hubs of each algorithm restore their state from `bytes`, or change nothing.
///
/// # Panics
/// If there is a bug.
pub fn restore_state(bytes: &[u8]) {
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
        let mut endpoint = Endpoint::new(AgentId(0), Incarnation(0), build(), RESEND_AFTER);
        let before = endpoint.save();
        if endpoint.restore(bytes).is_err() {
            assert_eq!(endpoint.save(), before);
        }
        let mut hub = Hub::new(algorithm.coordinator(shape).expect("defaults are in range"), RESEND_AFTER);
        let before = hub.save();
        if hub.restore(bytes).is_err() {
            assert_eq!(hub.save(), before);
        }
    }
}
