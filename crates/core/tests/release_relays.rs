//! Relays of private sums: what goes up is the sum of what each child released last, with its noise once, whatever children
//! come, go and lie.

use crate::support::NOW;
use posse_core::wire::v1;
use posse_core::*;

const FEDERATION: Federation = Federation { agents: 3, horizon: 1000, seed: Seed(11) };
const SHAPE: Shape = Shape::shared(2);

fn exchange() -> Algorithm {
    let privacy = Some(PrivacyConfig::default());
    Algorithm::AsyncLinUcb(AsyncLinUcb { privacy, ..Default::default() })
}

fn relay(algorithm: &Algorithm) -> Box<dyn Relay> {
    let levels = Levels::new(algorithm, &FEDERATION, &vec![LevelConfig::default(); 2]).unwrap();
    levels.relay(1, SHAPE).unwrap()
}

/// Sums with noise in them: no observations give this matrix.
fn release(number: u64, value: f64, count: u64, variance: f64, members: u64) -> ClusterUpload {
    let mut one = Evidence::none(2);
    one.observe(&[value, 0.0], 1.0).unwrap();
    let mut evidence = Evidence::none(2);
    (0..count).for_each(|_| evidence.add(&one));
    let (cluster, based_on) = (ClusterId(1), Version(0));
    ClusterUpload { cluster, number, based_on, information: 0.0, evidence, released: true, variance, members }
}

/// The same sums times a factor, as the wire would bring them.
fn signed(evidence: &Evidence, factor: f64) -> Evidence {
    let times = |values: &[f64]| values.iter().map(|value| factor * value).collect();
    let packed = v1::Packed { entries: times(evidence.gram()) };
    let matrix = Some(v1::evidence::Matrix::Packed(packed));
    let (moment, count) = (times(evidence.moment()), evidence.count());
    let wire = v1::Evidence { moment, count, matrix, ..Default::default() };
    let upload = v1::ClusterUpload {
        cluster: 1,
        number: 1,
        evidence: Some(wire),
        released: true,
        ..Default::default()
    };
    let message = v1::uplink::Kind::Cluster(upload);
    let uplink = v1::Uplink { kind: Some(message) };
    match posse_core::wire::decode_uplink(&prost::Message::encode_to_vec(&uplink)) {
        Ok(Uplink::Cluster(upload)) => upload.evidence,
        other => panic!("{other:?}"),
    }
}

fn said(passed: Result<Passed, ProtocolError>) -> Option<ClusterUpload> {
    let mut up = passed.expect("it is taken in").up;
    match up.pop()? {
        Uplink::Cluster(upload) => Some(upload),
        other => panic!("{other:?}"),
    }
}

/// What the root says after it has the relay's upload `contains`.
fn answer(version: u64, contains: u64) -> Downlink {
    let evidence = std::sync::Arc::new(release(1, 1.0, 9, 0.0, 1).evidence);
    let version = Version(version);
    let snapshot = Snapshot { authoritative: false, version, contains, information: 1.0, evidence };
    Downlink::Group(GroupSnapshot { cluster: ClusterId(1), members: 7, snapshot, variance: 3.0 })
}

fn told(passed: &Passed) -> Vec<(Recipient, u64, u64)> {
    let told = passed.down.iter().map(|outgoing| match &outgoing.message {
        Downlink::Group(group) => (outgoing.to, group.snapshot.contains, group.members),
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[test]
fn what_goes_up_is_the_sum_of_the_last_releases_of_all_children() {
    let mut relay = relay(&exchange());
    let (one, two) = (AgentId(1), AgentId(2));
    for child in [one, two] {
        relay.join(NOW, child, Entrance::NewLife);
    }
    let upload = said(relay.receive(NOW, one, Uplink::Cluster(release(1, 2.0, 5, 0.5, 1)))).unwrap();
    assert_eq!((upload.evidence.gram()[0], upload.evidence.count()), (20.0, 5));
    assert_eq!((upload.number, upload.variance, upload.members), (1, 0.5, 1));
    // The first upload is on its way: what comes now waits for its answer. A relay among the children speaks for three.
    assert_eq!(said(relay.receive(NOW, two, Uplink::Cluster(release(1, 1.0, 4, 0.25, 3)))), None);
    assert_eq!(said(relay.receive(NOW, two, Uplink::Cluster(release(2, 3.0, 6, 0.75, 3)))), None);
    let passed = relay.hear(NOW, answer(1, 1)).unwrap();
    let contained = told(&passed);
    assert!(contained.contains(&(Recipient::Agent(one), 1, 7)), "its release has arrived: {contained:?}");
    assert!(!contained.iter().any(|(to, contains, _)| *to == Recipient::Agent(two) && *contains > 0));
    let upload = said(Ok(passed)).unwrap();
    // 5 · 2² and 6 · 3²: of the second child what it said last, not both.
    assert_eq!((upload.evidence.gram()[0], upload.evidence.count()), (20.0 + 54.0, 11));
    assert_eq!((upload.number, upload.variance, upload.members), (2, 1.25, 4));
    let contained = told(&relay.hear(NOW, answer(2, 2)).unwrap());
    assert!(contained.contains(&(Recipient::Agent(two), 2, 7)), "{contained:?}");
}

#[test]
fn a_child_that_begins_a_new_life_leaves_its_last_release_behind() {
    let mut relay = relay(&exchange());
    let child = AgentId(1);
    relay.join(NOW, child, Entrance::NewLife);
    said(relay.receive(NOW, child, Uplink::Cluster(release(1, 2.0, 5, 0.5, 1)))).unwrap();
    relay.hear(NOW, answer(1, 1)).unwrap();
    relay.join(NOW, child, Entrance::NewLife);
    let upload = said(relay.receive(NOW, child, Uplink::Cluster(release(1, 1.0, 2, 0.5, 1)))).unwrap();
    assert_eq!((upload.evidence.gram()[0], upload.evidence.count()), (22.0, 7));
    assert_eq!((upload.variance, upload.members), (1.0, 2), "noise of two lives is in it");
}

#[test]
fn a_parent_that_lost_history_is_told_the_sum_again_and_children_are_not_asked() {
    let mut relay = relay(&exchange());
    let child = AgentId(1);
    relay.join(NOW, child, Entrance::NewLife);
    said(relay.receive(NOW, child, Uplink::Cluster(release(1, 2.0, 5, 0.5, 1)))).unwrap();
    relay.hear(NOW, answer(5, 1)).unwrap();
    let passed = relay.hear(NOW, Downlink::Regroup { phase: PhaseId(0), anew: true }).unwrap();
    assert!(passed.down.is_empty(), "a child that is asked again and again could be made to release more");
    let [Uplink::Clusters(list)] = &passed.up[..] else { panic!("{:?}", passed.up) };
    assert_eq!((list.uploads[0].number, list.uploads[0].evidence.count()), (1, 5));
    // The parent counts its versions from the beginning, and is believed.
    assert_eq!(told(&relay.hear(NOW, answer(1, 1)).unwrap()).len(), 1);
}

/// A child that lies can spoil its own releases, and not keep the relay from being heard.
#[test]
fn releases_that_no_parent_would_take_are_refused_and_change_nothing() {
    let mut relay = relay(&exchange());
    let (one, two) = (AgentId(1), AgentId(2));
    for child in [one, two] {
        relay.join(NOW, child, Entrance::NewLife);
    }
    said(relay.receive(NOW, one, Uplink::Cluster(release(1, 9e74, 1, 0.0, 1)))).unwrap();
    let before = relay.save();
    let good = || release(1, 1.0, 3, 0.5, 1);
    let exact = ClusterUpload { released: false, ..good() };
    let lies = [
        ("numbers that overflow with those of others", release(1, 9e74, 1, 0.0, 1)),
        ("too much noise", release(1, 1.0, 3, 1e251, 1)),
        ("noise that is no number", release(1, 1.0, 3, f64::NAN, 1)),
        ("nobody", ClusterUpload { members: 0, ..good() }),
        ("more agents than can be counted", ClusterUpload { members: u64::MAX, ..good() }),
        ("more agents than can be counted, together", ClusterUpload { members: 1 << 53, ..good() }),
        ("no noise", exact),
        ("another cluster", ClusterUpload { cluster: ClusterId(2), ..good() }),
        ("a number that is not the next", release(2, 1.0, 3, 0.5, 1)),
        ("nothing", release(1, 1.0, 0, 0.5, 1)),
    ];
    for (what, lie) in lies {
        let list = ClusterList { phase: PhaseId(0), kept: Vec::new(), uploads: vec![lie.clone()] };
        assert!(relay.receive(NOW, two, Uplink::Cluster(lie)).is_err(), "{what}");
        if what != "a number that is not the next" {
            assert!(relay.receive(NOW, two, Uplink::Clusters(list)).is_err(), "{what}, in a list");
        }
        assert!(relay.save() == before, "{what}");
    }
}

/// Releases of two children cancel in the sum of all, and not in that of those who have left.
#[test]
fn children_that_cancel_each_other_out_may_leave() {
    let mut relay = relay(&exchange());
    let negative = |number| {
        let mut upload = release(number, 1.0, 1, 0.0, 1);
        upload.evidence = signed(&release(number, 8e74, 1, 0.0, 1).evidence, -1.0);
        upload
    };
    for child in [1, 2, 3] {
        relay.join(NOW, AgentId(child), Entrance::NewLife);
    }
    // 6.4e149 each, of which no parent takes two.
    relay.receive(NOW, AgentId(1), Uplink::Cluster(release(1, 8e74, 1, 0.0, 1))).unwrap();
    relay.receive(NOW, AgentId(2), Uplink::Cluster(negative(1))).unwrap();
    relay.receive(NOW, AgentId(3), Uplink::Cluster(release(1, 8e74, 1, 0.0, 1))).unwrap();
    relay.leave(NOW, AgentId(1));
    relay.leave(NOW, AgentId(3));
    let upload = said(relay.hear(NOW, answer(1, 1))).unwrap();
    assert!((upload.evidence.gram()[0] - 6.4e149).abs() < 1e140, "{:?}", upload.evidence.gram());
}

/// The numbers of uploads cannot run out, whatever a child calls its first one.
#[test]
fn a_child_that_numbers_its_uploads_wildly_is_refused_afterwards() {
    let mut relay = relay(&exchange());
    let levels = Levels::new(&exchange(), &FEDERATION, &[LevelConfig::default()]).unwrap();
    let mut root = levels.coordinator(SHAPE).unwrap();
    let (child, last) = (AgentId(1), || release(u64::MAX, 1.0, 3, 0.5, 1));
    relay.join(NOW, child, Entrance::NewLife);
    root.join(NOW, child, Entrance::NewLife);
    let list = || ClusterList { phase: PhaseId(0), kept: Vec::new(), uploads: vec![last()] };
    relay.receive(NOW, child, Uplink::Clusters(list())).unwrap();
    root.receive(NOW, child, Uplink::Clusters(list())).unwrap();
    for number in [0, 1] {
        assert!(relay.receive(NOW, child, Uplink::Cluster(release(number, 1.0, 4, 0.5, 1))).is_err());
        assert!(root.receive(NOW, child, Uplink::Cluster(release(number, 1.0, 4, 0.5, 1))).is_err());
    }
}

/// Sums of several agents hide the clusters that groups are made of.
#[test]
fn a_coordinator_of_clusters_takes_no_sums_of_several_agents() {
    let clustered = Algorithm::CdpFclubDc(CdpFclubDc::default());
    for (algorithm, fits) in [(clustered, false), (exchange(), true)] {
        let levels = Levels::new(&algorithm, &FEDERATION, &[LevelConfig::default()]).unwrap();
        let mut root = levels.coordinator(SHAPE).unwrap();
        root.join(NOW, AgentId(1), Entrance::NewLife);
        let upload = release(1, 1.0, 3, 0.5, 4);
        let answer = root.receive(NOW, AgentId(1), Uplink::Cluster(upload));
        assert_eq!(answer.is_ok(), fits, "{}: {answer:?}", algorithm.name());
    }
}

#[test]
fn secure_aggregation_has_no_relays_and_says_why() {
    let privacy = Some(PrivacyConfig::default());
    let secure_aggregation = Some(privacy::SecureAggregation::default());
    let algorithm = Algorithm::SyncLinUcb(SyncLinUcb { privacy, secure_aggregation, ..Default::default() });
    let error = Levels::new(&algorithm, &FEDERATION, &vec![LevelConfig::default(); 2]).unwrap_err();
    assert!(error.allowed.contains("secure_aggregation"), "{error}");
}
