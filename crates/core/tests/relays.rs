//! Relays: agents upwards, coordinators downwards, and nothing counted twice on the way.

use std::sync::Arc;

use crate::support::NOW;
use crate::support::host::cases;
use posse_conformance::planted::{Fault, with_faulty_relays};
use posse_core::*;

const FEDERATION: Federation = Federation { agents: 3, horizon: 1000, seed: Seed(11) };
const SHAPE: Shape = Shape::shared(2);

fn can_be_relayed(algorithm: &Algorithm) -> bool {
    let relaying = algorithm.with_recipe(|recipe| recipe.relaying(&FEDERATION));
    !matches!(relaying, Relaying::No(_))
}

#[test]
fn every_algorithm_with_relays_keeps_their_promises() {
    let mut checked = Vec::new();
    for case in cases().into_iter().filter(|case| can_be_relayed(&case.algorithm)) {
        if let Err(violation) = posse_conformance::check_relays(&case.algorithm, case.shape) {
            panic!("{case:?}: {violation}");
        }
        checked.push(case.algorithm.name());
    }
    for name in [
        "async-lin-ucb",
        "async-lin-ts",
        "async-lin-phe",
        "async-lin-ucb-am",
        "fed-lin-ucb",
        "sync-lin-ucb",
        "fed-glb-ucb",
        "fed-glb-ucb-1",
        "fed-glb-ucb-2",
        "fed-glb-ucb-3",
        "fed-ucb",
        "private-glm-ucb",
        "fn-ucb",
    ] {
        assert!(checked.contains(&name), "{name} has relays");
    }
}

#[test]
fn an_algorithm_without_relays_says_why() {
    for algorithm in Algorithm::all().iter().filter(|algorithm| !can_be_relayed(algorithm)) {
        assert!(Levels::new(algorithm, &FEDERATION, &[LevelConfig::default()]).is_ok(), "one level has none");
        let error = Levels::new(algorithm, &FEDERATION, &vec![LevelConfig::default(); 2]).unwrap_err();
        assert_eq!((error.name, error.value.as_str()), ("name", algorithm.name()));
        assert!(error.allowed.len() > 20, "{}", error.allowed);
    }
}

fn algorithm(upload: f64, download: f64) -> Algorithm {
    let protocol = ProtocolConfig {
        upload_threshold: Threshold(upload),
        download_threshold: Threshold(download),
        ..Default::default()
    };
    Algorithm::AsyncLinUcb(AsyncLinUcb { protocol, ..Default::default() })
}

#[test]
fn thresholds_of_levels_multiply_to_those_of_the_algorithm() {
    let whole = LinkThresholds { upload: Threshold(8.0), download: Threshold(27.0) };
    let level = LevelConfig::default().resolve(whole, 3);
    assert!((level.upload.0 - 2.0).abs() < 1e-12 && (level.download.0 - 3.0).abs() < 1e-12);
    assert_eq!(
        LevelConfig::default().resolve(whole, 1),
        whole,
        "one level is the algorithm as it was written"
    );
    let set = LevelConfig { upload_threshold: Some(Threshold(1.5)), ..Default::default() };
    assert_eq!(set.resolve(whole, 3).upload, Threshold(1.5));
    let wrong = LevelConfig { download_threshold: Some(Threshold(0.5)), ..Default::default() };
    let error = Levels::new(&algorithm(2.0, 2.0), &FEDERATION, &[wrong.clone(), wrong]).unwrap_err();
    assert_eq!(error.name, "download_threshold");
}

/// A relay whose parent hears of everything at once, with two children, and the evidence of one observation.
fn relay(upload: f64) -> Box<dyn Relay> {
    let above = LevelConfig { upload_threshold: Some(Threshold(upload)), ..Default::default() };
    let below = LevelConfig { download_threshold: Some(Threshold(1e9)), ..Default::default() };
    let levels = Levels::new(&algorithm(1.0, 1.0), &FEDERATION, &[above, below]).unwrap();
    let mut relay = levels.relay(1, SHAPE).unwrap();
    for child in 0..2 {
        assert_eq!(relay.join(NOW, AgentId(child), Entrance::NewLife), Passed::default());
    }
    relay
}

fn upload(number: u64, x: [f64; 2]) -> Uplink {
    let mut evidence = Evidence::none(2);
    evidence.observe(&x, 1.0).unwrap();
    let evidence = Parcel::wrap(&evidence);
    Uplink::Evidence(EvidenceUpload { number, based_on: Version(0), information: 0.1, evidence })
}

fn snapshot(version: u64, contains: u64, authoritative: bool, observations: u64) -> Downlink {
    let mut evidence = Evidence::none(2);
    (0..observations).for_each(|_| evidence.observe(&[0.0, 1.0], 1.0).unwrap());
    let information = 1.0;
    let (version, evidence) = (Version(version), Arc::new(evidence));
    Downlink::Snapshot(Snapshot { authoritative, version, contains, information, evidence })
}

fn sent(passed: &Passed) -> Option<(u64, u64)> {
    match passed.up.as_slice() {
        [] => None,
        [Uplink::Evidence(upload)] => Some((upload.number, upload.evidence.count())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn uploads_of_children_go_up_as_one_sum_while_another_is_on_its_way() {
    let mut relay = relay(1.0);
    let first = relay.receive(NOW, AgentId(0), upload(1, [1.0, 0.0])).unwrap();
    assert_eq!(sent(&first), Some((1, 1)));
    assert_eq!(sent(&relay.receive(NOW, AgentId(1), upload(1, [0.0, 1.0])).unwrap()), None);
    assert_eq!(sent(&relay.receive(NOW, AgentId(0), upload(2, [1.0, 1.0])).unwrap()), None);
    let view = relay.above();
    assert_eq!((view.shared, view.in_flight, view.unsent), (0, Some((1, 1)), 2));
    assert_eq!(relay.below().observations, 3, "children see all of it");
    let next = relay.hear(NOW, Downlink::Receipt { number: 1, version: None }).unwrap();
    assert_eq!(sent(&next), Some((2, 2)));
    assert_eq!(next.down, [], "nothing new for the children");
}

#[test]
fn a_snapshot_from_above_is_added_to_what_waits_here() {
    let mut relay = relay(1e9);
    relay.receive(NOW, AgentId(0), upload(1, [1.0, 0.0])).unwrap();
    assert_eq!(
        relay.hear(NOW, snapshot(5, 0, false, 10)).unwrap(),
        Passed::default(),
        "nobody is behind by 1e9"
    );
    assert_eq!(relay.below().observations, 11);
    assert_eq!(relay.hear(NOW, snapshot(4, 0, false, 3)).unwrap(), Passed::default());
    assert_eq!(relay.below().observations, 11, "an older one changes nothing");
    assert!(relay.hear(NOW, snapshot(6, 1, false, 10)).is_err(), "it contains an upload that was never sent");
    assert_eq!(relay.below().observations, 11);
}

#[test]
fn what_the_parent_lost_is_taken_back_from_every_child_and_sent_again_once() {
    let mut relay = relay(1.0);
    relay.receive(NOW, AgentId(0), upload(1, [1.0, 0.0])).unwrap();
    relay.hear(NOW, Downlink::Receipt { number: 1, version: Some(Version(1)) }).unwrap();
    relay.receive(NOW, AgentId(1), upload(1, [0.0, 1.0])).unwrap();
    relay.receive(NOW, AgentId(0), upload(2, [1.0, 1.0])).unwrap();
    let version = relay.below().version;

    // The parent confirmed the first upload and lost it. The second is on its way, the third waits.
    let passed = relay.hear(NOW, snapshot(0, 0, true, 0)).unwrap();
    assert_eq!(sent(&passed), Some((1, 1)), "what was on its way is the first upload now");
    assert_eq!(relay.below().observations, 2, "the confirmed one is gone");
    assert!(relay.below().version > version, "versions go on");
    let contained: Vec<(u64, bool)> = passed
        .down
        .iter()
        .map(|outgoing| match &outgoing.message {
            Downlink::Snapshot(snapshot) => (snapshot.contains, snapshot.authoritative),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(contained, [(2, false), (1, false)], "every child, by the uploads that it counts");
    let next = relay.hear(NOW, Downlink::Receipt { number: 1, version: None }).unwrap();
    assert_eq!(sent(&next), Some((2, 1)));
}

/// Relays of rounds that count parts twice or forget them, or add gradients up twice, break the promise that is about it.
#[test]
fn relays_of_rounds_that_add_up_wrongly_are_found_out() {
    let small = NeuralConfig { hidden_width: 4, training_steps: 3, ..Default::default() };
    let neural = NeuralConfig { statistic: Precondition::Diagonal, ..small };
    let networks = Algorithm::FnUcb(FnUcb { neural, ..Default::default() });
    let models = Algorithm::FedGlbUcb(FedGlbUcb { round_threshold: Threshold(1.0), ..Default::default() });
    let online = Algorithm::FedGlbUcb3(FedGlbUcb3 { round_every: 10, ..Default::default() });
    let shape = Shape::shared(4);
    let found = |algorithm: &Algorithm, fault| {
        let faulty = with_faulty_relays(algorithm, fault);
        posse_conformance::check_relays(&faulty, shape).unwrap_err()
    };
    for algorithm in [&networks, &models, &online] {
        posse_conformance::check_relays(algorithm, shape).unwrap();
        for fault in [Fault::CountsTwice, Fault::Forgets] {
            let violation = found(algorithm, fault);
            assert!(
                violation.promise.contains("counted once"),
                "{}, {fault:?}: {violation}",
                algorithm.name()
            );
        }
    }
    let apart = Algorithm::SyncLinUcb(SyncLinUcb { robust: Robust::Trimmed, ..Default::default() });
    posse_conformance::check_relays(&apart, shape).unwrap();
    for fault in [Fault::CountsTwice, Fault::Forgets, Fault::Misnames] {
        let violation = found(&apart, fault);
        assert!(violation.promise.contains("counted once"), "{fault:?}: {violation}");
    }
    // Where nothing bounds rewards, no gradient is impossible.
    let link = LinkFunction::Identity;
    let model = GlmConfig { link, ..Default::default() };
    let update = SolverConfig { solver: Solver::Newton, ..Default::default() };
    let models = FedGlbUcb { model, update, round_threshold: Threshold(1.0), ..Default::default() };
    let violation = found(&Algorithm::FedGlbUcb(models), Fault::DoublesGradients);
    assert!(violation.promise.contains("choose as they would"), "{violation}");
}

#[test]
fn a_relay_that_says_everything_twice_is_found_out() {
    let faulty = with_faulty_relays(&Algorithm::AsyncLinUcb(AsyncLinUcb::default()), Fault::CountsTwice);
    let violation = posse_conformance::check_relays(&faulty, Shape::shared(4)).unwrap_err();
    assert!(violation.promise.contains("counted once"), "{violation}");
}
