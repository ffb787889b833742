//! Relays of rounds that end with a model, message by message: what they add up, and what they do when observations that
//! the model contains are gone.

use std::sync::Arc;

use crate::support::{NOW, random_evidence};
use posse_core::*;

const FEDERATION: Federation = Federation { agents: 3, horizon: 1000, seed: Seed(11) };
const SHAPE: Shape = Shape::shared(2);

fn algorithm(round_deadline: Option<TimeSpan>) -> FedGlbUcb {
    let rounds = RoundConfig { round_deadline, ..Default::default() };
    // A link without bounds on rewards, so that any gradient is possible.
    let model = GlmConfig { link: LinkFunction::Identity, ..Default::default() };
    FedGlbUcb { model, rounds, ..Default::default() }
}

/// A relay of the root with children 0, 1 and 2.
fn relay_of(algorithm: &Algorithm) -> Box<dyn Relay> {
    let levels = Levels::new(algorithm, &FEDERATION, &vec![LevelConfig::default(); 2]).unwrap();
    let mut relay = levels.relay(1, SHAPE).unwrap();
    for child in 0..3 {
        assert_eq!(relay.join(NOW, AgentId(child), Entrance::NewLife), Passed::default());
    }
    relay
}

fn relay() -> Box<dyn Relay> {
    relay_of(&Algorithm::FedGlbUcb(algorithm(None)))
}

fn collect(relay: &mut dyn Relay, round: u64, whole: bool) -> Passed {
    relay.hear(NOW, Downlink::Collect { round: RoundId(round), whole }).unwrap()
}

fn part(relay: &mut dyn Relay, child: u64, round: u64, observations: u64) -> Vec<Uplink> {
    let evidence = Parcel::wrap(&random_evidence(2, observations, child));
    let message = Uplink::RoundEvidence { round: RoundId(round), evidence };
    relay.receive(NOW, AgentId(child), message).unwrap().up
}

fn model(version: u64, contains: u64, authoritative: bool) -> Downlink {
    Downlink::Model(Model {
        authoritative,
        version: Version(version),
        contains,
        evidence: Arc::new(random_evidence(2, 20, 9)),
        estimate: Arc::new(vec![0.1, 0.2]),
        fit: Fit::Minimised { gap: 0.0, information: 1.0, unit_information: 1.0 },
    })
}

fn request(round: u64, step: u64) -> Downlink {
    let point = Arc::new(vec![0.0, 0.0]);
    Downlink::GradientRequest { round: RoundId(round), step, point, curvature: false }
}

/// To whom a message went, and the observations that it says the model contains of each, or the round it names.
fn told(passed: &Passed) -> Vec<(u64, u64)> {
    let number = |message: &Downlink| match message {
        Downlink::Model(model) => model.contains,
        Downlink::Collect { round, .. } | Downlink::GradientRequest { round, .. } => round.0,
        other => panic!("{other:?}"),
    };
    let to = |outgoing: &Outgoing| match outgoing.to {
        Recipient::Agent(agent) => agent.0,
        other => panic!("{other:?}"),
    };
    passed.down.iter().map(|outgoing| (to(outgoing), number(&outgoing.message))).collect()
}

fn loss(round: u64, shared: bool) -> Vec<Uplink> {
    vec![Uplink::RoundLoss { round: RoundId(round), shared }]
}

/// A relay whose children have 2, 1 and 0 observations in the model of version 1.
fn with_a_model(mut relay: Box<dyn Relay>) -> Box<dyn Relay> {
    collect(&mut *relay, 5, false);
    assert_eq!(part(&mut *relay, 0, 1, 2), []);
    assert_eq!(part(&mut *relay, 1, 1, 1), []);
    let answered = part(&mut *relay, 2, 1, 0);
    assert!(
        matches!(&answered[..], [Uplink::RoundEvidence { round: RoundId(5), evidence }] if evidence.count() == 3)
    );
    assert_eq!(told(&relay.hear(NOW, model(1, 3, false)).unwrap()), [(0, 2), (1, 1), (2, 0)]);
    relay
}

#[test]
fn parts_and_gradients_of_children_go_up_as_one() {
    let mut relay = relay();
    assert_eq!(
        told(&collect(&mut *relay, 5, false)),
        [(0, 1), (1, 1), (2, 1)],
        "the relay's own first round"
    );
    part(&mut *relay, 2, 1, 0);
    part(&mut *relay, 0, 1, 2);
    let up = part(&mut *relay, 1, 1, 1);
    let [Uplink::RoundEvidence { round: RoundId(5), evidence }] = &up[..] else { panic!("{up:?}") };
    let mut sum = random_evidence(2, 2, 0);
    sum.add(&random_evidence(2, 1, 1));
    assert_eq!(evidence.evidence().gram(), sum.gram());
    let asked = relay.hear(NOW, request(5, 0)).unwrap();
    assert_eq!(told(&asked), [(0, 1), (1, 1)], "who has nothing is not asked");
    let gradient = |values: [f64; 2]| {
        Uplink::Gradient(Gradient { round: RoundId(1), step: 0, gradient: values.to_vec(), curvature: None })
    };
    assert_eq!(relay.receive(NOW, AgentId(0), gradient([1.0, 0.5])).unwrap(), Passed::default());
    let up = relay.receive(NOW, AgentId(1), gradient([0.25, 2.0])).unwrap().up;
    let [Uplink::Gradient(sum)] = &up[..] else { panic!("{up:?}") };
    assert_eq!((sum.round, sum.step, &sum.gradient[..]), (RoundId(5), 0, &[1.25, 2.5][..]));
    assert_eq!(relay.receive(NOW, AgentId(1), gradient([0.0, 0.0])).unwrap(), Passed::default(), "too late");
}

#[test]
fn a_child_that_takes_shared_observations_along_makes_the_next_round_begin_anew() {
    let mut relay = with_a_model(relay());
    assert_eq!(relay.leave(NOW, AgentId(1)), Passed::default(), "there is no hurry");
    let passed = collect(&mut *relay, 6, false);
    assert_eq!((passed.up, passed.down), (loss(6, true), Vec::new()));
    assert_eq!(relay.hear(NOW, request(6, 0)).unwrap(), Passed::default(), "that round is over");
    assert_eq!(told(&collect(&mut *relay, 7, true)), [(0, 3), (2, 3)]);
    part(&mut *relay, 0, 3, 4);
    assert_eq!(part(&mut *relay, 2, 3, 1).len(), 1);
    assert_eq!(told(&relay.hear(NOW, model(2, 5, false)).unwrap()), [(0, 4), (2, 1)]);
    assert_eq!(collect(&mut *relay, 8, false).up, [], "everything is accounted for again");
}

#[test]
fn a_child_without_shared_observations_may_go() {
    let mut relay = with_a_model(relay());
    relay.leave(NOW, AgentId(2));
    assert_eq!(told(&collect(&mut *relay, 6, false)), [(0, 2), (1, 2)]);
}

#[test]
fn a_child_that_goes_between_gradients_ends_the_round_at_once() {
    for (observations, shared) in [(1, true), (0, true)] {
        let mut relay = with_a_model(relay());
        collect(&mut *relay, 6, false);
        (0..3).for_each(|child| drop(part(&mut *relay, child, 2, observations)));
        relay.hear(NOW, request(6, 0)).unwrap();
        assert_eq!(relay.leave(NOW, AgentId(0)).up, loss(6, shared));
        // The parent had ended the round before it heard of that: what the child had is in the model.
        let contains = 3 + 3 * observations;
        assert_eq!(
            told(&relay.hear(NOW, model(2, contains, false)).unwrap()),
            [(1, 1 + observations), (2, observations)]
        );
        assert_eq!(collect(&mut *relay, 7, false).up, loss(7, true));
    }
    // What it had is in no model yet: the others' news are collected once more.
    let mut relay = relay();
    collect(&mut *relay, 5, false);
    part(&mut *relay, 0, 1, 2);
    assert_eq!(relay.leave(NOW, AgentId(0)).up, loss(5, false));
    assert_eq!(told(&collect(&mut *relay, 6, false)), [(1, 2), (2, 2)]);
}

#[test]
fn silent_children_are_left_out_and_a_relay_answers_before_its_parent_gives_up() {
    let whole = TimeSpan::from_millis(400);
    let mut relay = with_a_model(relay_of(&Algorithm::FedGlbUcb(algorithm(Some(whole)))));
    collect(&mut *relay, 6, false);
    part(&mut *relay, 0, 2, 1);
    part(&mut *relay, 2, 2, 1);
    let deadline = relay.deadline().unwrap();
    assert_eq!(deadline, NOW.after(TimeSpan::from_millis(200)), "half as long as the root");
    assert_eq!(relay.tick(NOW), Passed::default());
    assert_eq!(relay.tick(deadline).up, loss(6, true), "child 1 has an observation in the model");
    let again = collect(&mut *relay, 7, true);
    assert_eq!(told(&again), [(0, 3), (2, 3)], "it is not waited for twice");
    part(&mut *relay, 0, 3, 3);
    assert_eq!(part(&mut *relay, 2, 3, 1).len(), 1);
    assert_eq!(told(&relay.hear(NOW, model(2, 4, false)).unwrap()), [(0, 3), (1, 0), (2, 1)]);
    // Now that nothing of it is in the model, a round ends without it.
    collect(&mut *relay, 8, false);
    part(&mut *relay, 0, 4, 0);
    part(&mut *relay, 2, 4, 0);
    let up = relay.tick(deadline).up;
    assert!(matches!(&up[..], [Uplink::RoundEvidence { round: RoundId(8), .. }]), "{up:?}");
    // One of three is no quorum: as an agent that does not answer.
    relay.hear(NOW, model(3, 4, false)).unwrap();
    collect(&mut *relay, 9, false);
    part(&mut *relay, 0, 5, 1);
    assert_eq!(relay.tick(deadline), Passed::default());
    assert_eq!(relay.deadline(), None);
}

#[test]
fn a_parent_that_lost_history_is_told_to_begin_anew_where_nobody_can_tell_what_it_has() {
    let mut relay = with_a_model(relay());
    let version = relay.below().version;
    // Two of three observations: of whom?
    let passed = relay.hear(NOW, model(0, 2, true)).unwrap();
    let abort = Outgoing::to_everyone(Downlink::Abort { round: RoundId(1) });
    assert_eq!((passed.up, passed.down), (Vec::new(), vec![abort]));
    assert_eq!(relay.below().version, version, "children keep the model that they have");
    assert_eq!(collect(&mut *relay, 2, false).up, loss(2, true));

    let mut relay = with_a_model(self::relay());
    let passed = relay.hear(NOW, model(0, 0, true)).unwrap();
    assert_eq!(told(&passed), [(0, 0), (1, 0), (2, 0)], "nothing is left, and everybody has everything");
    assert!(relay.below().version > version);
    assert_eq!(told(&collect(&mut *relay, 1, false)), [(0, 2), (1, 2), (2, 2)]);

    // Nothing of this relay was lost, only of others.
    let mut relay = with_a_model(self::relay());
    assert_eq!(told(&relay.hear(NOW, model(1, 3, true)).unwrap()), [(0, 2), (1, 1), (2, 0)]);
}

#[test]
fn models_that_do_not_fit_are_refused_and_change_nothing() {
    let mut relay = with_a_model(relay());
    let before = relay.save();
    let Downlink::Model(good) = model(2, 3, false) else { unreachable!() };
    let online = Fit::Online { curvature: Arc::new(vec![0.0; 3]), potential: 0.0, squares: 0.0 };
    for bad in [
        Model { contains: 4, ..good.clone() },
        Model { estimate: Arc::new(vec![0.1; 3]), ..good.clone() },
        Model { estimate: Arc::new(vec![f64::NAN; 2]), ..good.clone() },
        Model { evidence: Arc::new(random_evidence(3, 20, 9)), ..good.clone() },
        Model { fit: online, ..good.clone() },
    ] {
        assert!(relay.hear(NOW, Downlink::Model(bad)).is_err());
        assert_eq!(relay.save(), before);
    }
    assert!(relay.hear(NOW, Downlink::Model(good)).is_ok());
}

#[test]
fn a_relay_tells_of_observations_by_tenths_until_a_round_is_due() {
    let scheduled = ScheduledGlbUcb { round_every: 100, ..Default::default() };
    let mut relay = relay_of(&Algorithm::FedGlbUcb1(scheduled));
    let mut report = |child, observations| {
        let up = relay.receive(NOW, AgentId(child), Uplink::RoundRequest { observations }).unwrap().up;
        match &up[..] {
            [] => None,
            [Uplink::RoundRequest { observations }] => Some(*observations),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(report(0, 40), Some(40));
    assert_eq!(report(1, 3), None, "less than a tenth more");
    assert_eq!(report(1, 4), Some(44));
    assert_eq!(report(0, 95), Some(99));
    assert_eq!(report(1, 5), Some(100), "that begins a round, whatever others have");
}

#[test]
fn a_root_begins_anew_when_a_relay_says_that_observations_are_gone() {
    let mut root = Algorithm::FedGlbUcb(algorithm(None)).coordinator(SHAPE).unwrap();
    for child in 0..2 {
        root.join(NOW, AgentId(child), Entrance::NewLife);
    }
    let mut say = |child, message| root.receive(NOW, AgentId(child), message).unwrap();
    let asked = |outgoing: &[Outgoing]| match outgoing {
        [Outgoing { message: Downlink::Collect { round, whole }, .. }] => (round.0, *whole),
        other => panic!("{other:?}"),
    };
    assert_eq!(asked(&say(0, Uplink::RoundRequest { observations: 0 })), (1, false));
    let lost = |round, shared| Uplink::RoundLoss { round: RoundId(round), shared };
    assert_eq!(asked(&say(1, lost(1, false))), (2, false));
    assert_eq!(say(1, lost(1, false)), [], "that round is over already");
    assert_eq!(asked(&say(1, lost(2, true))), (3, true));
    assert!(root.receive(NOW, AgentId(0), lost(9, false)).is_err());
}
