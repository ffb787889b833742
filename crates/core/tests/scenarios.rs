//! Failures by name: what must happen, one by one.

use crate::support::link::{AGENTS, Link, RESEND};
use posse_core::session::{LogEvent, UpFrame};
use posse_core::*;

/// Uploads after every observation; downloads rarely.
fn exchange() -> Algorithm {
    exchange_with(4000.0)
}

fn exchange_with(download: f64) -> Algorithm {
    let protocol = ProtocolConfig {
        upload_threshold: Threshold(2.0),
        download_threshold: Threshold(download),
        ..Default::default()
    };
    Algorithm::AsyncLinUcb(AsyncLinUcb { protocol, ..Default::default() })
}

fn count(link: &Link) -> u64 {
    link.hub.coordinator().inspect().observations
}

fn uploads(link: &Link, id: u64) -> u64 {
    link.hub.coordinator().agent(AgentId(id)).expect("it has joined").uploads
}

fn in_flight(link: &Link, id: usize) -> bool {
    link.endpoints[id].agent().inspect().in_flight.is_some()
}

#[test]
fn a_lost_upload_is_sent_again_under_its_number() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    let (_, lost) = link.up.pop().unwrap();
    link.pass(RESEND - 1);
    assert!(link.up.is_empty(), "not before its time");
    link.pass(1);
    assert_eq!(link.up, [(AgentId(0), lost)]);
    link.settle();
    assert_eq!((count(&link), uploads(&link, 0), in_flight(&link, 0)), (1, 1, false));
}

#[test]
fn a_repeated_upload_counts_once_and_is_acknowledged_again() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    let (from, frame) = link.up[0].clone();
    link.deliver_up();
    let answer = link.down.clone();
    link.down.clear();
    let log = link.log.len();
    link.arrive_up(from, &frame);
    assert_eq!((count(&link), link.log.len()), (1, log));
    assert_eq!(link.down[0].1.acknowledged, answer[0].1.acknowledged);
    link.settle();
    assert_eq!((count(&link), in_flight(&link, 0)), (1, false));
}

#[test]
fn a_lost_receipt_is_sent_again_and_clears_what_was_in_flight() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    link.deliver_up();
    link.down.clear();
    assert!(in_flight(&link, 0));
    link.pass(RESEND);
    link.drain();
    assert_eq!((count(&link), in_flight(&link, 0)), (1, false));
    link.settle();
}

#[test]
fn a_snapshot_acknowledges_the_upload_it_contains() {
    let mut link = Link::joined(exchange());
    let agent = |link: &mut Link, message| {
        let mut agent = link.algorithm.agent(
            AgentId(0),
            Shape::shared(2),
            &Federation { agents: 1, horizon: 9, seed: Seed(0) },
        );
        let agent = agent.as_mut().unwrap();
        let said = agent.learn(UserId(0), &[1.0, 0.0], 1.0).unwrap();
        assert!(matches!(said, Some(Uplink::Evidence(EvidenceUpload { number: 1, .. }))));
        agent.receive(message).unwrap();
        let view = agent.inspect();
        (view.in_flight.is_some(), view.shared)
    };
    let snapshot = |contains| {
        let evidence = crate::support::random_evidence(2, 5, 1).into();
        let version = Version(3);
        Downlink::Snapshot(Snapshot { authoritative: false, version, contains, information: 2.0, evidence })
    };
    assert_eq!(agent(&mut link, snapshot(0)), (true, 5));
    assert_eq!(agent(&mut link, snapshot(1)), (false, 5), "without its number it would count twice");
}

#[test]
fn a_lost_snapshot_is_sent_again_and_only_the_newest() {
    let mut link = Link::joined(exchange_with(1.0));
    // Agent 1 hears nothing while agent 0 uploads four times.
    for _ in 0..4 {
        link.learn(0);
        link.deliver_up();
        let for_others = |to: AgentId| to != AgentId(0);
        link.down.retain(|(to, _)| !for_others(*to));
        link.drain_for(AgentId(0));
    }
    let mut received = 0;
    for _ in 0..20 {
        link.pass(RESEND);
        received +=
            link.down.iter().filter(|(to, frame)| *to == AgentId(1) && frame.message.is_some()).count();
        link.drain();
        if !link.waits() {
            break;
        }
    }
    assert_eq!(received, 1, "one snapshot stands for all of them");
    let view = link.endpoints[1].agent().inspect();
    assert_eq!((view.version, view.shared), (Version(4), 4));
}

#[test]
fn the_older_of_two_reordered_snapshots_is_rejected() {
    let mut link = Link::joined(exchange_with(1.0));
    link.learn(0);
    link.drain();
    let mut copies = Vec::new();
    for _ in 0..2 {
        link.learn(0);
        link.deliver_up();
        copies.extend(link.down.iter().filter(|(to, _)| *to == AgentId(1)).cloned());
        link.drain();
    }
    let version = link.endpoints[1].agent().inspect().version;
    for (to, frame) in copies.into_iter().rev() {
        let before = link.endpoints[1].save();
        link.arrive_down(to, &frame);
        assert_eq!(link.endpoints[1].save(), before);
    }
    assert_eq!(link.endpoints[1].agent().inspect().version, version);
    link.settle();
}

#[test]
fn a_restarted_agent_sends_again_what_was_on_its_way() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    link.up.clear();
    link.restart(0);
    assert_eq!(
        link.endpoints[0].deadline(),
        Some(crate::support::NOW.after(TimeSpan::from_micros(RESEND))),
        "at once"
    );
    link.settle();
    assert_eq!((count(&link), in_flight(&link, 0)), (1, false));
}

#[test]
fn a_new_life_starts_from_a_snapshot_and_its_old_frames_are_void() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    link.settle();
    link.learn(0);
    let (_, late) = link.up.pop().unwrap();
    link.begin_life(0);
    link.settle();
    assert_eq!((count(&link), uploads(&link, 0)), (1, 0));
    assert_eq!(link.endpoints[0].agent().inspect().shared, 1, "what its old life had sent");
    let before = link.hub.save();
    link.arrive_up(AgentId(0), &late);
    assert_eq!(link.hub.save(), before);
    assert!(link.down.is_empty());
    link.learn(0);
    link.settle();
    assert_eq!((count(&link), uploads(&link, 0)), (2, 1), "numbers begin again");
}

#[test]
fn an_upload_that_arrived_before_its_agent_died_counts_once() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    let (from, frame) = link.up[0].clone();
    link.deliver_up();
    link.down.clear();
    link.begin_life(0);
    link.arrive_up(from, &frame);
    link.settle();
    link.arrive_up(from, &frame);
    link.settle();
    assert_eq!((count(&link), link.endpoints[0].agent().inspect().shared), (1, 1));
}

#[test]
fn frames_for_an_old_life_are_void_to_the_new_one() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    link.deliver_up();
    let old = link.down.clone();
    link.begin_life(0);
    for (to, frame) in old {
        let before = link.endpoints[0].save();
        link.arrive_down(to, &frame);
        assert_eq!(link.endpoints[0].save(), before);
    }
    link.settle();
}

#[test]
fn a_replayed_log_gives_the_same_bits_and_answers_repetitions() {
    let mut link = Link::joined(exchange_with(3.0));
    for id in [0, 1, 2, 0, 1, 0] {
        link.learn(id);
        link.drain();
    }
    link.learn(2);
    let (from, frame) = link.up[0].clone();
    link.deliver_up();
    link.down.clear();
    link.replay(0);
    assert!(link.down.is_empty(), "nothing unasked");
    link.arrive_up(from, &frame);
    link.settle();
    assert_eq!((count(&link), in_flight(&link, 2)), (7, false));
}

#[test]
fn a_lost_end_of_the_log_loses_what_was_confirmed_and_nothing_else() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    link.drain();
    link.learn(0);
    link.drain();
    link.learn(0);
    link.deliver_up();
    link.down.clear();
    // The second upload was confirmed and is lost, the third was accepted and is lost.
    link.replay(2);
    assert_eq!((link.hub.epoch(), count(&link)), (Epoch(1), 1));
    link.settle();
    assert_eq!((count(&link), uploads(&link, 0), in_flight(&link, 0)), (2, 2, false));
    assert_eq!(link.shared()[..3], [1.0, 0.0, 1.0]);
    assert_eq!(link.endpoints[0].agent().inspect().shared, 2);
    link.learn(0);
    link.settle();
    assert_eq!((count(&link), uploads(&link, 0)), (3, 3));
}

#[test]
fn an_agent_whose_joining_was_lost_is_introduced_again() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    link.settle();
    let entries = link.log.len();
    link.replay(entries);
    assert_eq!(link.hub.incarnation(AgentId(0)), None);
    link.learn(0);
    link.settle();
    link.learn(0);
    link.settle();
    assert_eq!(link.shared()[..3], [0.0, 1.0, 1.0]);
    assert_eq!(uploads(&link, 0), 2);
}

#[test]
fn the_first_thing_heard_in_an_epoch_is_what_is_left() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    link.settle();
    link.replay(1);
    // The introduction is lost, and the agent says hello again before it is repeated.
    link.hello(0);
    link.deliver_up();
    link.down.clear();
    link.hello(0);
    link.deliver_up();
    assert!(matches!(&link.down[0].1.message, Some(Downlink::Snapshot(s)) if s.authoritative));
    link.deliver_down();
    link.learn(0);
    link.settle();
    assert_eq!(link.shared()[..2], [0.0, 1.0]);
}

#[test]
fn nothing_but_what_an_epoch_begins_with_is_the_first_thing_heard_in_it() {
    let mut link = Link::joined(exchange_with(1.0));
    let old = link.endpoints[0].save();
    link.hub.begin_epoch(link.now, Epoch(1));
    link.hello(0);
    link.settle();
    // The agent has heard what is left, and news are on their way to it, when an old copy of it greets in the epoch before.
    link.hello(1);
    link.settle();
    link.learn(1);
    link.deliver_up();
    link.down.clear();
    link.endpoints[0].restore(&old).unwrap();
    link.hello(0);
    link.deliver_up();
    let to_copy: Vec<_> = link.down.iter().filter(|(to, _)| *to == AgentId(0)).collect();
    assert!(to_copy.is_empty(), "{to_copy:?}");
    assert!(link.hub.received_by(AgentId(0)) > 0, "the host can tell that the copy is old");
}

#[test]
fn the_hub_knows_what_an_agent_has_received_also_after_a_restart() {
    let mut link = Link::joined(exchange_with(1.0));
    let agent = AgentId(0);
    let old = link.endpoints[0].received();
    (0..3).for_each(|other| link.learn(other));
    link.settle();
    let (_, received) = link.endpoints[0].received();
    assert!(received > old.1);
    assert_eq!(link.hub.received_by(agent), received);
    link.restore_hub();
    assert_eq!(link.hub.received_by(agent), received);
    // Acknowledgements without a message are not in the log. What is forgotten is sent again.
    link.replay(0);
    assert!(link.hub.received_by(agent) <= received);
    link.settle();
    assert_eq!((link.hub.received_by(agent), link.endpoints[0].received().1), (received, received));
    // An agent cannot have received what it was not sent.
    let (epoch, incarnation) = (link.hub.epoch(), link.endpoints[0].incarnation());
    let boast = UpFrame { epoch, incarnation, acknowledged: 999, sequence: 0, message: None, greeting: 0 };
    link.arrive_up(agent, &boast);
    assert_eq!(link.hub.received_by(agent), received);
    link.begin_life(0);
    link.deliver_up();
    assert_eq!(link.hub.received_by(agent), 0);
}

#[test]
fn a_hello_is_repeated_until_it_is_answered_and_then_no_more() {
    let mut link = Link::new(exchange());
    for _ in 0..3 {
        assert_eq!(link.up.len(), AGENTS as usize);
        link.up.clear();
        link.pass(RESEND);
    }
    link.drain();
    assert!(!link.waits());
    link.pass(100 * RESEND);
    assert!(link.up.is_empty() && link.down.is_empty());
}

#[test]
fn acknowledgements_are_not_acknowledged() {
    let mut link = Link::joined(exchange());
    let before = link.sent;
    link.learn(0);
    link.drain();
    // The upload, its receipt, and word that it came.
    assert_eq!(link.sent - before, 3);
    assert!(!link.waits());
}

#[test]
fn a_partition_delays_and_loses_nothing() {
    let mut link = Link::joined(exchange());
    for _ in 0..5 {
        link.learn(0);
        link.pass(3 * RESEND);
        link.up.clear();
    }
    let view = link.endpoints[0].agent().inspect();
    assert_eq!((view.in_flight.map(|(number, _)| number), view.unsent), (Some(1), 4));
    link.settle();
    assert_eq!((count(&link), uploads(&link, 0)), (5, 2));
}

#[test]
fn a_frame_out_of_order_or_of_an_unknown_epoch_is_refused_unchanged() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    let (from, frame) = link.up.pop().unwrap();
    let before = link.hub.save();
    let gap = UpFrame { sequence: 7, ..frame.clone() };
    let refused = link.hub.receive(link.now, from, gap);
    assert_eq!(refused, Err(ProtocolError::FrameGap { expected: 1, got: 7 }));
    let ahead = UpFrame { epoch: Epoch(4), ..frame.clone() };
    let refused = link.hub.receive(link.now, from, ahead);
    assert_eq!(refused, Err(ProtocolError::Epoch { expected: 0, got: 4 }));
    assert_eq!(link.hub.save(), before);

    let endpoint = &mut link.endpoints[0];
    let before = endpoint.save();
    let impossible = posse_core::session::DownFrame {
        epoch: Epoch(0),
        incarnation: Incarnation(0),
        acknowledged: u64::MAX,
        sequence: 0,
        message: None,
        greeting: 0,
    };
    endpoint.receive(link.now, impossible).unwrap_err();
    assert_eq!(endpoint.save(), before);
}

#[test]
fn a_life_that_begins_with_a_bad_message_is_logged() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    let (_, frame) = link.up.pop().unwrap();
    let bad = UpFrame { sequence: 5, incarnation: Incarnation(9), ..frame };
    let step = link.hub.receive(link.now, AgentId(0), bad.clone()).unwrap();
    assert_eq!(step.log[0].event, LogEvent::Joined(AgentId(0), Incarnation(9)));
    link.take(step);
    link.hub.receive(link.now, AgentId(0), bad).unwrap_err();
    link.replay(0);
    assert_eq!(link.hub.incarnation(AgentId(0)), Some(Incarnation(9)));
}

#[test]
fn another_agents_state_is_not_restored() {
    let mut link = Link::joined(exchange());
    link.learn(0);
    let (state, before) = (link.endpoints[0].save(), link.endpoints[1].save());
    link.endpoints[1].restore(&state).unwrap_err();
    link.endpoints[1].restore(&[0xff]).unwrap_err();
    assert_eq!(link.endpoints[1].save(), before);
    let before = link.hub.save();
    link.hub.restore(&state).unwrap_err();
    assert_eq!(link.hub.save(), before);
}

#[test]
fn an_old_state_hears_in_a_new_epoch_too_that_another_copy_of_it_has_spoken() {
    let mut link = Link::joined(exchange());
    let old = link.endpoints[0].save();
    link.learn(0);
    link.settle();
    // The old state is put back, and makes another first upload before it is answered.
    link.endpoints[0].restore(&old).unwrap();
    link.endpoints[0].finish_replay();
    let hello = link.endpoints[0].hello(link.now);
    link.learn(0);
    link.hub.begin_epoch(link.now, Epoch(1));
    let step = link.hub.receive(link.now, AgentId(0), hello).unwrap();
    let (_, snapshot) = step.frames[0].clone();
    let before = link.endpoints[0].save();
    let refused = link.endpoints[0].receive(link.now, snapshot);
    assert_eq!(refused, Err(ProtocolError::FrameGap { expected: 0, got: 1 }));
    assert_eq!(link.endpoints[0].save(), before, "what it has learned is not taken for the other's upload");
}
