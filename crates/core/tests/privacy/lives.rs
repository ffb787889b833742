//! What an agent says after a restart, with its state and without.

use posse_core::*;

use super::{agent, clustered, observation, privacy, release};

#[test]
fn an_agent_with_its_state_says_the_same_again_and_one_without_opens_a_new_stream() {
    let algorithm = clustered(privacy(), f64::INFINITY);
    let (x, y) = observation(0, 1.0);
    let mut first = agent(&algorithm, 5);
    first.begin_life(Incarnation(1));
    let (x2, y2) = observation(1, 1.0);
    release(&mut *first, &x, y).unwrap();
    let saved = first.save();
    let second = release(&mut *first, &x2, y2).unwrap();

    let mut restored = agent(&algorithm, 5);
    restored.begin_life(Incarnation(1));
    restored.restore(&saved).unwrap();
    assert_eq!(release(&mut *restored, &x2, y2), Some(second.clone()), "bit for bit");
    assert_eq!(restored.privacy(), first.privacy());

    // It lost everything: other noise for the same node, or the difference would be the data.
    let mut without = agent(&algorithm, 5);
    without.begin_life(Incarnation(2));
    let again = release(&mut *without, &x, y).unwrap();
    let mut before = agent(&algorithm, 5);
    before.begin_life(Incarnation(1));
    let original = release(&mut *before, &x, y).unwrap();
    assert_ne!(again.evidence, original.evidence);
    let report = without.privacy().unwrap();
    assert_eq!(report.releases, 1, "the accountant of the new life starts anew");
}
