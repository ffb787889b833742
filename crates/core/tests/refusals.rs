//! What every algorithm refuses, and that a refusal changes nothing.

use std::sync::Arc;

use crate::support::host::{Case, Host, cases};
use crate::support::{NOW, random_evidence};
use posse_core::FedLinUcb;
use posse_core::wire::{decode_uplink, v1};
use posse_core::{
    AgentId, Algorithm, Answer, Arms, ClusterId, ClusterList, ClusterUpload, DecodeError, Downlink, Evidence,
    EvidenceUpload, GroupSnapshot, InputError, News, Parcel, PhaseId, ProtocolError, Pull, RoundId, Shape,
    Snapshot, Threshold, TimeSpan, Uplink, UserId, Version, packed,
};
use prost::Message;

/// Every pair of features is possible in it, all of them together are not.
fn indefinite(d: usize) -> Evidence {
    let entries = (0..d).flat_map(|i| (0..=i).map(move |j| if i == j { 9e6 } else { -8e6 }));
    Evidence::from_parts(entries.collect(), vec![1.0; d], 100).expect("possible pair by pair")
}

fn upload(number: u64, evidence: &Evidence) -> EvidenceUpload {
    EvidenceUpload { number, based_on: Version(0), information: 1.0, evidence: Parcel::wrap(evidence) }
}

fn snapshot(version: u64, evidence: Evidence) -> Snapshot {
    let (version, evidence) = (Version(version), Arc::new(evidence));
    Snapshot { authoritative: false, version, contains: 0, information: 1.0, evidence }
}

fn commit(version: u64, evidence: Evidence) -> Downlink {
    let (version, evidence) = (Version(version), Arc::new(evidence));
    Downlink::Commit { round: RoundId(9), included: true, version, evidence }
}

fn exchanges_uploads(case: &Case) -> bool {
    let name = case.algorithm.name();
    let clustered = name.contains("club") || name.contains("homo") || name == "user-lin-ucb";
    let private = case.algorithm.privacy().is_some();
    !(case.algorithm.link_function().is_some()
        || clustered
        || private
        || matches!(name, "lin-ucb" | "central-lin-ucb" | "sync-lin-ucb" | "lin-ts" | "fn-ucb")
        || name.starts_with("kernel")
        || name.starts_with("neural"))
}

#[test]
fn bad_input_is_refused_by_kind_and_changes_nothing() {
    for case in cases() {
        let d = case.shape.dimension();
        let mut host = Host::after(&case, 25);
        let agent = &mut host.agents[0];
        let before = agent.save();
        let offers = [
            (Arms::new(d), InputError::NoArms),
            (Arms::new(d + 1), InputError::Dimension { expected: d, got: d + 1 }),
            (
                Arms::from_rows(d - 1, &[vec![1.0; d - 1]]).unwrap(),
                InputError::Dimension { expected: d, got: d - 1 },
            ),
        ];
        for (arms, error) in offers {
            assert_eq!(agent.choose(UserId(0), &arms), Err(error), "{case:?}");
        }
        let feature = |value: f64| {
            let mut x = vec![1.0; d];
            x[1] = value;
            x
        };
        let observations = [
            (vec![1.0; d + 1], 1.0, "Dimension"),
            (vec![1.0; d - 1], 1.0, "Dimension"),
            (vec![], 1.0, "Dimension"),
            (feature(f64::NAN), 1.0, "Feature"),
            (feature(f64::INFINITY), 1.0, "Feature"),
            (feature(f64::NEG_INFINITY), 1.0, "Feature"),
            (feature(1e200), 1.0, "Overflow"),
            (feature(1.0), f64::NAN, "Reward"),
            (feature(1.0), f64::INFINITY, "Reward"),
            (feature(1.0), -1e200, "Overflow"),
        ];
        for (x, reward, kind) in observations {
            let error = agent.learn(UserId(0), &x, reward).unwrap_err();
            assert!(format!("{error:?}").starts_with(kind), "{case:?}: {error:?} for {x:?}, {reward}");
        }
        assert_eq!(agent.save(), before, "{case:?}");
    }
}

/// An answer with news of this rate.
fn answer(snapshot: Option<Snapshot>, rate: f64) -> Downlink {
    let news =
        News { version: Version(9), count: 9, information: 1.0, agents: 3, rate, doubt: 1.0, forgotten: 0 };
    Downlink::Answer(Answer { pulled: true, number: 0, version: None, news, snapshot, rounded: None })
}

#[test]
fn malformed_and_stale_messages_change_nothing_in_an_agent() {
    for case in cases() {
        let d = case.shared();
        let good = |version| snapshot(version, random_evidence(d, 9, 1));
        let authoritative = |snapshot: Snapshot| Snapshot { authoritative: true, ..snapshot };
        for steps in [0, 5, 40] {
            let mut host = Host::after(&case, steps);
            for agent in &mut host.agents {
                let now = agent.inspect().version.0;
                let messages = [
                    Downlink::Snapshot(snapshot(now + 5, random_evidence(d + 1, 3, 1))),
                    Downlink::Snapshot(snapshot(now + 5, random_evidence(d - 1, 3, 1))),
                    Downlink::Snapshot(snapshot(now + 5, Evidence::none(0))),
                    Downlink::Snapshot(snapshot(now + 5, indefinite(d))),
                    Downlink::Snapshot(authoritative(snapshot(0, indefinite(d)))),
                    Downlink::Snapshot(authoritative(snapshot(0, random_evidence(d + 1, 3, 1)))),
                    Downlink::Snapshot(Snapshot { information: f64::NAN, ..good(now + 5) }),
                    Downlink::Snapshot(Snapshot { information: f64::INFINITY, ..good(now + 5) }),
                    Downlink::Snapshot(Snapshot { information: -1.0, ..good(now + 5) }),
                    answer(Some(snapshot(now + 5, random_evidence(d + 1, 3, 1))), 1.0),
                    answer(Some(snapshot(now + 5, indefinite(d))), 1.0),
                    answer(Some(authoritative(snapshot(0, indefinite(d)))), 1.0),
                    answer(Some(Snapshot { information: f64::NAN, ..good(now + 5) }), 1.0),
                    answer(Some(good(now + 5)), f64::NAN),
                    answer(None, f64::INFINITY),
                    answer(None, -1.0),
                    // Stale, and a repetition.
                    Downlink::Snapshot(good(0)),
                    Downlink::Snapshot(good(now)),
                    Downlink::Receipt { number: 0, version: None },
                    Downlink::Receipt { number: 1 << 40, version: Some(Version(1 << 40)) },
                    Downlink::Collect { round: RoundId(0), whole: true },
                    commit(now + 5, random_evidence(d + 1, 3, 1)),
                    commit(now + 5, indefinite(d)),
                    commit(now, random_evidence(d, 3, 1)),
                ];
                let group = |snapshot| {
                    Downlink::Group(GroupSnapshot {
                        cluster: ClusterId(1),
                        members: 1,
                        snapshot,
                        variance: 0.0,
                    })
                };
                let far = Version(now + 5);
                let clustered = [
                    group(snapshot(now + 5, random_evidence(d + 1, 3, 1))),
                    group(snapshot(now + 5, indefinite(d))),
                    group(authoritative(good(now + 5))),
                    group(Snapshot { information: f64::NAN, ..good(now + 5) }),
                    group(Snapshot { contains: u64::MAX, ..good(now + 5) }),
                    group(good(0)),
                    Downlink::Group(GroupSnapshot {
                        cluster: ClusterId(1 << 40),
                        members: 1,
                        snapshot: good(now + 5),
                        variance: 0.0,
                    }),
                    Downlink::Group(GroupSnapshot {
                        cluster: ClusterId(1),
                        members: 1,
                        snapshot: good(now + 5),
                        variance: f64::NAN,
                    }),
                    Downlink::ClusterReceipt { cluster: ClusterId(1), number: 0, version: None },
                    Downlink::ClusterReceipt { cluster: ClusterId(1), number: 1 << 40, version: Some(far) },
                    Downlink::ClusterReceipt { cluster: ClusterId(1 << 40), number: 1, version: Some(far) },
                    Downlink::Regroup { phase: PhaseId(0), anew: false },
                ];
                let before = agent.save();
                for message in messages.into_iter().chain(clustered) {
                    let answer = agent.receive(message.clone());
                    assert!(matches!(answer, Err(_) | Ok(None)), "{case:?}: {message:?}");
                    assert_eq!(agent.save(), before, "{case:?}: {message:?}");
                }
            }
        }
    }
}

#[test]
fn an_agent_refuses_snapshots_with_uploads_it_never_made() {
    for case in cases().iter().filter(|case| exchanges_uploads(case)) {
        for authoritative in [false, true] {
            let mut agent = Host::after(case, 30).agents.remove(0);
            let before = agent.save();
            let evidence = random_evidence(case.shared(), 9, 1);
            let impossible = Snapshot { authoritative, contains: u64::MAX, ..snapshot(1 << 30, evidence) };
            let refused = match case.algorithm.name().starts_with("exchange-") {
                true => agent.receive(answer(Some(impossible), 1.0)),
                false => agent.receive(Downlink::Snapshot(impossible)),
            };
            assert!(matches!(refused, Err(ProtocolError::Sequence { .. })), "{case:?}: {refused:?}");
            assert_eq!(agent.save(), before);
        }
    }
}

#[test]
fn own_observations_may_hide_that_a_snapshot_is_impossible_but_not_break_the_agent() {
    let silent = FedLinUcb { upload_threshold: Some(Threshold::NEVER), ..Default::default() };
    let silent = Case { algorithm: Algorithm::FedLinUcb(silent), shape: Shape::shared(4) };
    for case in cases().into_iter().chain([silent]) {
        let d = case.shape.dimension();
        let mut agent = case.agent(0);
        for i in 0..3 * d {
            let mut x = vec![1e4; d];
            x[i % d] = -1e4;
            let _ = agent.learn(UserId(0), &x, 1.0).unwrap();
            let _ = agent.learn(UserId(0), &vec![1e5; d], 1.0).unwrap();
        }
        let before = agent.save();
        let hidden = Downlink::Snapshot(snapshot(5, indefinite(case.shared())));
        if agent.receive(hidden).is_err() {
            assert_eq!(agent.save(), before, "{case:?}");
        }
        let arms = Arms::from_rows(d, &[vec![0.5; d]]).unwrap();
        agent.choose(UserId(0), &arms).unwrap();
        let state = agent.save();
        agent.restore(&state).unwrap();
    }
}

fn pull(doubt: f64, upload: Option<EvidenceUpload>) -> Uplink {
    Uplink::Pull(Pull { based_on: Version(0), doubt, upload })
}

#[test]
fn malformed_messages_change_nothing_in_a_coordinator() {
    for case in cases() {
        let d = case.shared();
        let mut host = Host::after(&case, 40);
        let known = AgentId(0);
        let coordinator = &mut host.coordinator;
        let next = coordinator.agent(known).map_or(0, |standing| standing.uploads) + 1;
        let good = random_evidence(d, 3, 2);
        let named = |information: f64| EvidenceUpload { information, ..upload(next, &good) };
        let mut empty = upload(next, &good);
        empty.evidence = Parcel::wrap(&Evidence::none(d));
        let mut messages = vec![
            (AgentId(77), Uplink::Evidence(upload(1, &good))),
            (AgentId(77), Uplink::RoundRequest { observations: 0 }),
            (known, Uplink::Evidence(upload(next, &random_evidence(d + 1, 3, 2)))),
            (known, Uplink::Evidence(upload(next, &random_evidence(d - 1, 30, 2)))),
            (known, Uplink::Evidence(upload(next - 1, &good))),
            (known, Uplink::Evidence(upload(next + 1, &good))),
            (known, Uplink::Evidence(upload(0, &good))),
            (known, pull(f64::NAN, None)),
            (known, pull(-1.0, Some(upload(next, &good)))),
            (known, pull(1.0, Some(upload(next + 1, &good)))),
            (known, pull(1.0, Some(upload(next, &random_evidence(d + 1, 3, 2))))),
            (known, pull(1.0, Some(named(f64::NAN)))),
            (AgentId(77), pull(1.0, None)),
            (known, Uplink::Evidence(named(f64::NAN))),
            (known, Uplink::Evidence(named(f64::INFINITY))),
            (known, Uplink::Evidence(named(-1.0))),
            (known, Uplink::Evidence(empty)),
            (known, Uplink::Evidence(upload(next, &indefinite(d)))),
            // Of a round that is over, and of one that never began.
            (known, Uplink::RoundEvidence { round: RoundId(1), evidence: Parcel::wrap(&good) }),
            (known, Uplink::RoundEvidence { round: RoundId(1 << 40), evidence: Parcel::wrap(&good) }),
        ];
        if exchanges_uploads(&case) {
            messages.push((known, Uplink::RoundRequest { observations: 0 }));
        }
        let (cluster, based_on, phase) = (ClusterId(1 << 40), Version(0), PhaseId(0));
        let of_cluster = |evidence: Evidence, released| ClusterUpload {
            cluster,
            number: 1,
            based_on,
            information: 1.0,
            evidence,
            released,
            variance: 0.0,
            members: 1,
        };
        let list = |kept, uploads, phase| Uplink::Clusters(ClusterList { phase, kept, uploads });
        messages.extend([
            (AgentId(77), Uplink::Cluster(of_cluster(good.clone(), false))),
            (known, Uplink::Cluster(of_cluster(good.clone(), false))),
            (known, Uplink::Cluster(of_cluster(good.clone(), true))),
            (known, Uplink::Cluster(ClusterUpload { number: 99, ..of_cluster(good.clone(), false) })),
            (AgentId(77), list(vec![], vec![], phase)),
            (known, list(vec![ClusterId(1), ClusterId(1)], vec![], phase)),
            (known, list(vec![], vec![], PhaseId(1 << 40))),
            (known, list(vec![], vec![of_cluster(random_evidence(d + 1, 3, 2), false)], phase)),
            (known, list(vec![], vec![of_cluster(Evidence::none(d), false)], phase)),
            (known, list(vec![cluster], vec![of_cluster(good.clone(), false)], phase)),
        ]);
        let before = coordinator.save();
        for (from, message) in messages {
            let answer = coordinator.receive(NOW, from, message.clone());
            assert!(answer.is_err() || answer.as_ref().is_ok_and(Vec::is_empty), "{case:?}: {message:?}");
            assert_eq!(coordinator.save(), before, "{case:?}: {message:?}");
        }
    }
}

#[test]
fn a_round_refuses_what_no_observations_give_and_still_ends() {
    // Where rounds are private, agents upload releases and ask for no round.
    let is_plain =
        |case: &&Case| case.algorithm.name() == "sync-lin-ucb" && case.algorithm.privacy().is_none();
    for case in cases().iter().filter(is_plain) {
        let d = case.shared();
        let mut host = Host::after(case, 40);
        let coordinator = &mut host.coordinator;
        assert_eq!(
            coordinator.receive(NOW, AgentId(0), Uplink::RoundRequest { observations: 0 }).unwrap().len(),
            1
        );
        let round = (1..).map(RoundId).find(|&round| {
            let evidence = Parcel::wrap(&Evidence::none(d + 1));
            let answer = coordinator.receive(NOW, AgentId(0), Uplink::RoundEvidence { round, evidence });
            matches!(answer, Err(ProtocolError::Dimension { .. }))
        });
        let round = round.expect("one round is open");
        let before = coordinator.save();
        let part =
            |round, evidence: &Evidence| Uplink::RoundEvidence { round, evidence: Parcel::wrap(evidence) };
        let later = RoundId(round.0 + 1);
        coordinator.receive(NOW, AgentId(1), part(round, &indefinite(d))).unwrap_err();
        coordinator.receive(NOW, AgentId(1), part(later, &Evidence::none(d))).unwrap_err();
        coordinator.receive(NOW, AgentId(9), part(round, &Evidence::none(d))).unwrap_err();
        assert_eq!(coordinator.save(), before);
        coordinator.receive(NOW, AgentId(1), part(round, &random_evidence(d, 2, 3))).unwrap();
        let with_part = coordinator.save();
        coordinator.receive(NOW, AgentId(1), part(round, &random_evidence(d, 2, 3))).unwrap_err();
        assert_eq!(coordinator.save(), with_part, "a repetition");
        let (count, version) = (coordinator.inspect().observations, coordinator.inspect().version);
        coordinator.receive(NOW, AgentId(0), part(round, &Evidence::none(d))).unwrap();
        let last = coordinator.receive(NOW, AgentId(2), part(round, &Evidence::none(d))).unwrap();
        assert!(matches!(last[0].message, Downlink::Commit { included: true, .. }));
        assert_eq!(coordinator.inspect().observations, count + 2);
        assert_eq!(coordinator.inspect().version, version.next());
        assert!(coordinator.tick(NOW.after(TimeSpan::from_micros(1 << 40))).is_empty());
    }
}

#[test]
fn more_observations_than_can_be_counted_are_refused() {
    for case in cases() {
        let d = case.shared();
        let wire = v1::Uplink {
            kind: Some(v1::uplink::Kind::Evidence(v1::EvidenceUpload {
                number: 1,
                based_on: 0,
                information: 1.0,
                evidence: Some(v1::Evidence {
                    count: u64::MAX,
                    moment: vec![0.0; d],
                    matrix: Some(v1::evidence::Matrix::LowRank(v1::LowRank::default())),
                    dimension: 0,
                }),
            })),
        };
        let Ok(Uplink::Evidence(mut upload)) = decode_uplink(&wire.encode_to_vec()) else { continue };
        let mut coordinator = case.coordinator();
        coordinator.join(NOW, AgentId(0), posse_core::Entrance::NewLife);
        for number in 1..4 {
            upload.number = number;
            coordinator.receive(NOW, AgentId(0), Uplink::Evidence(upload.clone())).unwrap_err();
        }
        assert!(coordinator.inspect().observations == 0);
    }
    Evidence::from_parts(vec![0.0; packed(2)], vec![0.0; 2], u64::MAX).unwrap_err();
}

#[test]
fn evidence_at_the_edge_of_overflow_is_refused_before_it_spoils_the_sum() {
    for case in cases().iter().filter(|case| exchanges_uploads(case)) {
        let d = case.shared();
        let mut gram = vec![0.0; packed(d)];
        gram[0] = f64::MAX / 2.0;
        let large = Evidence::from_parts(gram, vec![0.0; d], 50).unwrap();
        let moment = Evidence::from_parts(vec![0.0; packed(d)], vec![f64::MAX / 2.0; d], 50).unwrap();
        let mut coordinator = case.coordinator();
        coordinator.join(NOW, AgentId(0), posse_core::Entrance::NewLife);
        let mut number = 1;
        for evidence in [&large, &moment, &large, &moment, &large, &moment] {
            let before = coordinator.save();
            match coordinator.receive(NOW, AgentId(0), Uplink::Evidence(upload(number, evidence))) {
                Ok(_) => number += 1,
                Err(_) => assert_eq!(coordinator.save(), before),
            }
            let state = coordinator.save();
            coordinator.restore(&state).expect("whatever was accepted can be restored");
        }
        assert!(number <= 3, "{case:?}");
    }
}

#[test]
fn garbage_and_other_dimensions_are_not_restored() {
    for case in cases() {
        let mut wider = case.clone();
        wider.shape.shared += 1;
        let mut host = Host::after(&case, 30);
        let before = host.save();
        let other = Host::after(&wider, 30).save();
        let whole = |bytes: &[u8]| bytes[..bytes.len() - bytes.len().min(1)].to_vec();
        for (agent, state) in host.agents.iter_mut().zip(&before) {
            for garbage in [&[][..], &[0xff, 0xff][..], &other[0], &whole(state)] {
                let refused = agent.restore(garbage);
                assert!(matches!(refused, Err(DecodeError::Invalid { .. } | DecodeError::Malformed(_))));
            }
        }
        let silent = host.coordinator.save().is_empty();
        for garbage in [&[0xff, 0xff][..], &[0x08, 1][..], &other[3], &whole(&before[3])] {
            if !(silent && garbage.is_empty()) {
                host.coordinator.restore(garbage).unwrap_err();
            }
        }
        assert_eq!(host.save(), before, "{case:?}");
    }
}
