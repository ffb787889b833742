//! Deadlines count from the moment a round opens, by a time that every event brings along.

use crate::support::NOW;
use crate::support::link::{Link, RESEND};
use posse_core::TimeSpan;
use posse_core::session::{Endpoint, Hub};
use posse_core::*;

const HOUR: TimeSpan = TimeSpan::from_secs(3600);
/// How long rounds and phases wait, in microseconds.
const PATIENCE: TimeSpan = TimeSpan::from_secs(30);
/// A microsecond less than [`PATIENCE`].
const NEARLY: TimeSpan = TimeSpan::from_micros(29_999_999);

fn sync(round_deadline: Option<TimeSpan>) -> Algorithm {
    let round_threshold = Threshold(0.1);
    Algorithm::SyncLinUcb(SyncLinUcb { round_threshold, round_deadline, ..Default::default() })
}

/// One algorithm of every family whose coordinator waits for its agents.
fn waiting() -> Vec<Algorithm> {
    let rounds = || RoundConfig { round_deadline: Some(PATIENCE), ..Default::default() };
    let clusters = ClusterConfig {
        phase_deadline: Some(PATIENCE),
        phase_base: 2,
        merge_gate: Threshold(f64::INFINITY),
        ..Default::default()
    };
    let neural = NeuralConfig { hidden_width: 4, training_steps: 2, ..Default::default() };
    vec![
        sync(Some(PATIENCE)),
        Algorithm::FedGlbUcb(FedGlbUcb { rounds: rounds(), ..Default::default() }),
        Algorithm::FedGlbUcb3(FedGlbUcb3 { rounds: rounds(), round_every: 3, ..Default::default() }),
        Algorithm::FnUcb(FnUcb { rounds: rounds(), neural, lockstep: false, ..Default::default() }),
        Algorithm::FclubDc(FclubDc { clusters, upload_threshold: Threshold(1.0), ..Default::default() }),
    ]
}

#[test]
fn a_round_has_its_whole_deadline_however_long_nothing_happened_before() {
    for algorithm in waiting() {
        let shape = Shape::shared(2);
        let federation = Federation { agents: 2, horizon: 100, seed: Seed(7) };
        let mut coordinator = algorithm.coordinator(shape).unwrap();
        let mut agents: Vec<_> =
            (0..2).map(|id| algorithm.agent(AgentId(id), shape, &federation).unwrap()).collect();
        (0..2).for_each(|id| drop(coordinator.join(NOW, AgentId(id), Entrance::NewLife)));
        let (mut now, mut opened) = (NOW, 0);
        for step in 0..40_u64 {
            now = now.after(HOUR);
            let mut up: Vec<_> = Vec::new();
            let x = if step % 3 == 0 { [1.0, 0.2] } else { [0.3, 0.9] };
            for id in 0..2 {
                let said = agents[id as usize].learn(UserId(id), &x, 0.5).unwrap();
                up.extend(said.map(|message| (AgentId(id), message)));
            }
            while let Some((from, message)) = up.pop() {
                let was_open = coordinator.deadline().is_some();
                let outgoing = coordinator.receive(now, from, message).unwrap();
                if coordinator.deadline().is_some() && !was_open {
                    opened += 1;
                    assert_eq!(coordinator.deadline(), Some(now.after(PATIENCE)), "{}", algorithm.name());
                    let state = coordinator.save();
                    assert!(coordinator.tick(now.after(NEARLY)).is_empty(), "{}", algorithm.name());
                    assert_eq!(coordinator.save(), state, "{}: nothing is due yet", algorithm.name());
                }
                for Outgoing { to, message } in outgoing {
                    for id in (0..2).map(AgentId).filter(|id| to.includes(*id)) {
                        let answer = agents[id.0 as usize].receive(message.clone()).unwrap();
                        up.extend(answer.map(|message| (id, message)));
                    }
                }
            }
        }
        assert!(opened > 1, "{} opened {opened} rounds", algorithm.name());
    }
}

/// Sixteen microseconds are enough for three agents, after a day of silence.
#[test]
fn a_round_with_everybody_in_time_collects_all() {
    let mut link = Link::joined(sync(Some(TimeSpan::from_micros(4 * RESEND))));
    link.pass(24 * HOUR.as_micros());
    link.drain();
    (0..3).for_each(|id| link.learn(id));
    for _ in 0..2 {
        link.deliver_up();
        link.pass(1);
        link.deliver_down();
        link.pass(1);
    }
    link.deliver_up();
    assert_eq!(link.shared()[..3], [1.0; 3], "the round ended with everybody's part");
    link.settle();
    assert_eq!(link.everywhere()[..3], [1.0; 3]);
}

#[test]
fn a_round_with_everybody_alive_and_slow_collects_what_arrived() {
    let mut link = Link::joined(sync(Some(TimeSpan::from_micros(4 * RESEND))));
    link.pass(24 * HOUR.as_micros());
    link.drain();
    (0..3).for_each(|id| link.learn(id));
    link.deliver_up();
    link.deliver_down();
    // The parts of agents 0 and 1 arrive in time, that of 2 a moment after the deadline.
    let late: Vec<_> = link.up.extract_if(.., |(from, _)| *from == AgentId(2)).collect();
    link.deliver_up();
    link.pass(4 * RESEND - 1);
    assert_eq!(link.shared()[..3], [0.0; 3], "it still waits");
    link.pass(1);
    assert_eq!(link.shared()[..3], [1.0, 1.0, 0.0], "it took what was there");
    link.up.extend(late);
    link.settle();
    assert_eq!(link.everywhere()[..3], [1.0; 3], "what was late is still with its agent");
    link.learn(0);
    link.settle();
    assert_eq!(link.shared()[..4], [1.0; 4], "and comes with the next round");
    link.replay(0);
}

/// A hub with two agents and an open round, and the time at which it opened.
fn open_round() -> (Hub, Tick) {
    let algorithm = sync(Some(PATIENCE));
    let shape = Shape::shared(2);
    let federation = Federation { agents: 2, horizon: 100, seed: Seed(7) };
    let mut hub = Hub::new(algorithm.coordinator(shape).unwrap(), TimeSpan::from_secs(1));
    let opened = NOW.after(HOUR);
    let mut frames = Vec::new();
    for id in (0..2).map(AgentId) {
        let agent = algorithm.agent(id, shape, &federation).unwrap();
        let mut endpoint = Endpoint::new(id, Incarnation(1), agent, TimeSpan::from_secs(1));
        let step = hub.receive(NOW, id, endpoint.hello(NOW)).unwrap();
        for (_, frame) in step.frames {
            frames.extend(endpoint.receive(NOW, frame).unwrap());
        }
        if id == AgentId(0) {
            let said = endpoint.learn(opened, UserId(0), &[1.0, 0.0], 1.0).unwrap();
            frames.extend(said);
            for frame in frames.drain(..) {
                hub.receive(opened, id, frame).unwrap();
            }
        }
    }
    (hub, opened)
}

/// Whether the round ends at `now`.
fn ends_at(hub: &mut Hub, now: Tick) -> bool {
    hub.tick(now);
    hub.coordinator().deadline().is_none()
}

#[test]
fn a_clock_that_was_set_back_does_not_put_off_a_deadline() {
    let (mut hub, opened) = open_round();
    assert_eq!(hub.coordinator().deadline(), Some(opened.after(PATIENCE)));
    assert!(!ends_at(&mut hub, Tick(opened.0 - 24 * HOUR.as_micros())));
    assert_eq!(hub.latest(), opened, "time does not go back");
    assert!(!ends_at(&mut hub, opened.after(NEARLY)));
    assert!(ends_at(&mut hub, opened.after(PATIENCE)));
}

#[test]
fn a_restored_hub_says_where_its_time_goes_on_and_keeps_the_deadline() {
    let (hub, opened) = open_round();
    let mut again =
        Hub::new(sync(Some(PATIENCE)).coordinator(Shape::shared(2)).unwrap(), TimeSpan::from_secs(1));
    again.restore(&hub.save()).unwrap();
    assert_eq!((again.latest(), again.save()), (hub.latest(), hub.save()));
    let goes_on = again.latest();
    assert!(!ends_at(&mut again, goes_on.after(NEARLY)));
    assert!(ends_at(&mut again, opened.after(PATIENCE)));
}

/// A state without a time is of version 0.1, whose clock was another one.
#[test]
fn a_round_in_a_state_of_version_0_1_does_not_hang() {
    use posse_core::wire::v1::HubState;
    use prost::Message;
    let (hub, _) = open_round();
    let state = HubState::decode(hub.save().as_slice()).unwrap();
    let old = HubState { latest: 0, ..state }.encode_to_vec();
    let mut again =
        Hub::new(sync(Some(PATIENCE)).coordinator(Shape::shared(2)).unwrap(), TimeSpan::from_secs(1));
    again.restore(&old).unwrap();
    assert!(ends_at(&mut again, Tick(1)), "by a clock that shows a time long before");
}
