//! Rounds that lose agents, parts and memory: every part counts once.

use crate::support::link::{AGENTS, Link, RESEND};
use posse_core::session::LogEvent;
use posse_core::*;
use posse_core::{SyncLinUcb, TimeSpan};

fn rounds(round_deadline: Option<TimeSpan>) -> Algorithm {
    let round_threshold = Threshold(2.0);
    Algorithm::SyncLinUcb(SyncLinUcb { round_threshold, round_deadline, ..Default::default() })
}

#[test]
fn a_part_whose_commit_was_lost_with_the_epoch_counts_once() {
    let mut link = Link::joined(rounds(None));
    link.learn(0);
    // The request, the calls, the parts; the round ends and word of it reaches agent 1 alone.
    link.deliver_up();
    link.deliver_down();
    link.deliver_up();
    assert_eq!(link.shared()[0], 1.0);
    link.drain_for(AgentId(1));
    link.learn(1);
    link.deliver_up();
    let lost = link.log.len() - 1 - link.log.iter().rposition(is_part).expect("a round ended");
    assert_eq!(lost, 1, "the second request");
    link.up.clear();
    link.down.clear();
    link.replay(lost);
    (0..AGENTS).for_each(|id| link.hello(id));
    link.settle();
    link.learn(2);
    link.settle();
    assert_eq!(link.everywhere()[..3], [1.0; 3]);
    assert_eq!(link.shared()[..3], [1.0; 3]);
}

#[test]
fn a_part_in_a_round_that_was_open_when_the_end_was_lost_counts_once() {
    let mut link = Link::joined(rounds(None));
    link.learn(0);
    link.deliver_up();
    link.deliver_down();
    // Two of three parts arrive; the second is lost with the end of the log.
    let parts = std::mem::take(&mut link.up);
    for (from, frame) in parts.into_iter().filter(|(from, _)| from.0 < 2) {
        link.arrive_up(from, &frame);
    }
    link.down.clear();
    link.replay(1);
    (0..AGENTS).for_each(|id| link.hello(id));
    link.settle();
    link.learn(1);
    link.settle();
    assert_eq!(link.everywhere()[..2], [1.0; 2]);
}

#[test]
fn an_agent_that_left_does_not_stand_in_for_a_late_one() {
    let mut link = Link::joined(rounds(Some(TimeSpan::from_micros(5 * RESEND))));
    link.learn(0);
    link.learn(1);
    link.deliver_up();
    link.deliver_down();
    // The parts of agents 0 and 2 arrive, that of 1 is late; 0 leaves and the deadline passes.
    let late: Vec<_> = link.up.extract_if(.., |(from, _)| *from == AgentId(1)).collect();
    link.deliver_up();
    link.drain_for(AgentId(0));
    let step = link.hub.leave(link.now, AgentId(0));
    link.take(step);
    link.pass(5 * RESEND);
    link.up.extend(late);
    link.settle();
    assert_eq!(link.shared()[..2], [1.0, 0.0]);
    assert_eq!(link.everywhere()[1], 1.0, "agent 1 still has what was left out");
}

#[test]
fn a_round_ends_at_its_deadline_and_a_late_part_joins_a_later_one() {
    let mut link = Link::joined(rounds(Some(TimeSpan::from_micros(5 * RESEND))));
    link.learn(0);
    link.learn(1);
    link.deliver_up();
    link.deliver_down();
    let late: Vec<_> = link.up.extract_if(.., |(from, _)| *from == AgentId(1)).collect();
    link.deliver_up();
    assert_eq!(link.shared()[..2], [0.0; 2], "it waits for everybody");
    link.pass(5 * RESEND);
    assert_eq!(link.shared()[..2], [1.0, 0.0], "but not for ever");
    link.up.extend(late);
    link.settle();
    assert_eq!((link.shared()[1], link.everywhere()[1]), (0.0, 1.0), "too late for this one");
    link.learn(2);
    link.settle();
    assert_eq!(link.shared()[..3], [1.0; 3]);
    link.replay(0);
}

fn is_part(entry: &posse_core::session::LogEntry) -> bool {
    let LogEvent::Accepted(_, frame) = &entry.event else { return false };
    matches!(frame.message, Some(Uplink::RoundEvidence { .. }))
}
