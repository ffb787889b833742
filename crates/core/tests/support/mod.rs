//! Messages of every kind, for tests of whatever carries them.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod host;
pub(crate) mod link;

use std::sync::Arc;

use posse_core::privacy::SecretShare;
use posse_core::session::{DownFrame, LogEntry, LogEvent, UpFrame};
use posse_core::wire::{decode_downlink, encode_downlink};
use posse_core::{
    AgentId, AgentPart, AgentPath, Answer, ClusterId, ClusterList, ClusterUpload, Downlink, Epoch, Evidence,
    EvidenceUpload, Extension, Fit, Gradient, GroupSnapshot, Incarnation, Model, NetworkEvidence,
    NetworkModel, NetworkPart, NetworkState, NetworkSum, News, OpenedShare, Parcel, PhaseId, PublicKeys,
    Pull, RoundId, SealedShares, SecureDownlink, SecureOutcome, SecureUplink, Seed, Snapshot, Tick, Uplink,
    Version, Weights, WidthSum, packed,
};
use proptest::option;
use proptest::prelude::*;

/// When tests begin: far from zero, as every real clock is. At zero, a time that was never set would look right.
pub(crate) const NOW: Tick = Tick(1_700_000_000_000_000);

/// The evidence of `n` observations with normal features and rewards.
pub(crate) fn random_evidence(d: usize, n: u64, seed: u64) -> Evidence {
    let mut stream = Seed(seed).stream("evidence", 0, 0);
    let mut evidence = Evidence::none(d);
    for _ in 0..n {
        let x: Vec<f64> = (0..d).map(|_| stream.normal()).collect();
        evidence.observe(&x, stream.normal()).expect("normals are finite");
    }
    evidence
}

/// Small and large integers: every length of a varint, zero among them.
pub(crate) fn integers() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 0u64..300, (0u32..64).prop_map(|bits| 1 << bits)]
}

fn informations() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(-0.0), 0.0..1e3, Just(f64::MAX), Just(f64::MIN_POSITIVE)]
}

pub(crate) fn evidences() -> impl Strategy<Value = Evidence> {
    (0usize..9, 0u64..12, any::<u64>()).prop_map(|(d, n, seed)| random_evidence(d, n, seed))
}

fn extensions() -> impl Strategy<Value = Extension> {
    (option::of(Just("my-algorithm")), integers(), integers(), proptest::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(name, version, scalars, bytes)| {
            let algorithm = name.unwrap_or_default().to_owned();
            // Costs add up: beyond this a sum of two would overflow.
            Extension { algorithm, version, scalars: scalars >> 8, bytes }
        })
}

pub(crate) fn uplinks() -> impl Strategy<Value = Uplink> {
    let parcels = || {
        (evidences(), any::<bool>()).prop_map(|(evidence, rounded)| {
            if rounded { Parcel::wrap_rounded(&evidence) } else { Parcel::wrap(&evidence) }
        })
    };
    let uploads = (integers(), integers(), informations(), parcels());
    prop_oneof![
        uploads.prop_map(|(number, based_on, information, evidence)| {
            Uplink::Evidence(EvidenceUpload { number, based_on: Version(based_on), information, evidence })
        }),
        (integers(), informations(), option::of((integers(), informations(), parcels())))
            .prop_map(|(based_on, doubt, upload)| {
                let based_on = Version(based_on);
                let upload = upload.map(|(number, information, evidence)| EvidenceUpload {
                    number,
                    based_on,
                    information,
                    evidence,
                });
                Uplink::Pull(Pull { based_on, doubt, upload })
            })
            .boxed(),
        any::<u64>().prop_map(|observations| Uplink::RoundRequest { observations }),
        (any::<u64>(), any::<bool>())
            .prop_map(|(round, shared)| Uplink::RoundLoss { round: RoundId(round), shared }),
        extensions().prop_map(Uplink::Extension),
        (integers(), proptest::collection::vec(agent_parts(), 0..4))
            .prop_map(|(round, parts)| Uplink::RoundParts { round: RoundId(round), parts })
            .boxed(),
        (integers(), parcels())
            .prop_map(|(round, evidence)| Uplink::RoundEvidence { round: RoundId(round), evidence }),
        (integers(), integers(), vectors(), any::<bool>()).prop_map(|(round, step, gradient, curved)| {
            let curvature = curved.then(|| vec![0.5; packed(gradient.len())]);
            Uplink::Gradient(Gradient { round: RoundId(round), step, gradient, curvature })
        }),
        // In boxes: proptest keeps trees of values for all alternatives on the stack.
        cluster_uploads().prop_map(Uplink::Cluster).boxed(),
        (
            integers(),
            proptest::collection::vec(integers(), 0..4),
            proptest::collection::vec(cluster_uploads(), 0..3)
        )
            .prop_map(|(phase, kept, uploads)| {
                let kept = kept.into_iter().map(ClusterId).collect();
                Uplink::Clusters(ClusterList { phase: PhaseId(phase), kept, uploads })
            })
            .boxed(),
        integers().prop_map(|observations| Uplink::NetworkRequest { observations }),
        network_parts().prop_map(Uplink::NetworkPart).boxed(),
        weights().prop_map(Uplink::Weights).boxed(),
        secure_uplinks().prop_map(Uplink::Secure).boxed(),
    ]
}

/// Parts as relays pass them on: with features, and in no form that says less than the agent knows.
fn agent_parts() -> impl Strategy<Value = AgentPart> {
    let relays = proptest::collection::vec(integers().prop_map(AgentId), 0..3);
    let possible = evidences().prop_filter("it has features", |evidence| evidence.dimension() > 0);
    (integers(), relays, possible).prop_map(|(agent, relays, evidence)| AgentPart {
        agent: AgentPath { agent: AgentId(agent), relays },
        evidence: Parcel::wrap(&evidence),
    })
}

fn public_keys() -> impl Strategy<Value = PublicKeys> {
    (integers(), any::<[u8; 32]>(), any::<[u8; 32]>()).prop_map(|(agent, sealing, masking)| PublicKeys {
        agent: AgentId(agent),
        sealing,
        masking,
        seed: [7; 32],
    })
}

fn boxes() -> impl Strategy<Value = Vec<SealedShares>> {
    let one = (integers(), proptest::collection::vec(any::<u8>(), 0..100), any::<[u8; 32]>());
    let one = one.prop_map(|(agent, sealed, seed)| SealedShares {
        agent: AgentId(agent),
        sealed,
        seed,
        key: [9; 32],
    });
    proptest::collection::vec(one, 0..4)
}

fn opened_shares() -> impl Strategy<Value = Vec<OpenedShare>> {
    let one = (integers(), any::<[u32; 10]>()).prop_map(|(agent, words)| {
        // Half the bits of a number, so that it is below the prime.
        let bytes: Vec<u8> = words[..5].iter().flat_map(|word| u64::from(*word).to_le_bytes()).collect();
        OpenedShare { agent: AgentId(agent), share: SecretShare::from_bytes(&bytes).unwrap() }
    });
    proptest::collection::vec(one, 0..4)
}

fn secure_uplinks() -> impl Strategy<Value = SecureUplink> {
    let round = || integers().prop_map(RoundId);
    prop_oneof![
        (round(), integers(), public_keys())
            .prop_map(|(round, slot, keys)| SecureUplink::Keys { round, slot, keys })
            .boxed(),
        (round(), boxes()).prop_map(|(round, boxes)| SecureUplink::Shares { round, boxes }).boxed(),
        (round(), proptest::collection::vec(any::<u128>(), 0..9))
            .prop_map(|(round, sums)| SecureUplink::Masked { round, sums })
            .boxed(),
        (round(), opened_shares(), opened_shares())
            .prop_map(|(round, seeds, keys)| SecureUplink::Opened { round, seeds, keys })
            .boxed(),
    ]
}

fn secure_downlinks() -> impl Strategy<Value = SecureDownlink> {
    let round = || integers().prop_map(RoundId);
    prop_oneof![
        round().prop_map(|round| SecureDownlink::Begin { round }).boxed(),
        (round(), integers(), proptest::collection::vec(public_keys(), 0..4))
            .prop_map(|(round, slot, peers)| SecureDownlink::Peers { round, slot, peers: Arc::new(peers) })
            .boxed(),
        (round(), boxes()).prop_map(|(round, boxes)| SecureDownlink::Boxes { round, boxes }).boxed(),
        (round(), proptest::collection::vec(integers(), 0..4))
            .prop_map(|(round, survivors)| SecureDownlink::Open {
                round,
                survivors: Arc::new(survivors.into_iter().map(AgentId).collect()),
            })
            .boxed(),
        (any::<[bool; 2]>(), round(), integers(), integers(), informations(), evidences())
            .prop_map(|([authoritative, included], round, slot, version, information, evidence)| {
                SecureDownlink::Outcome(SecureOutcome {
                    authoritative,
                    round,
                    included,
                    slot,
                    version: Version(version),
                    members: slot,
                    variance: information.min(1e250),
                    evidence: Arc::new(evidence),
                })
            })
            .boxed(),
    ]
}

fn weights() -> impl Strategy<Value = Weights> {
    (integers(), integers(), vectors()).prop_map(|(round, step, weights)| Weights {
        round: RoundId(round),
        step,
        weights: Arc::new(weights),
    })
}

fn network_parts() -> impl Strategy<Value = NetworkPart> {
    let evidence = (2usize..9, any::<u64>(), any::<bool>()).prop_map(|(d, seed, full)| {
        // Fewer observations than half the dimension travel as a factor.
        let evidence = random_evidence(2 * d, 1, seed);
        match Parcel::wrap(&evidence) {
            Parcel::LowRank(factor) if full => NetworkEvidence::Full(factor),
            _ => {
                let squares = (0..2 * d).map(|i| evidence.gram()[packed(i) + i]).collect();
                let (moment, count) = (evidence.moment().to_vec(), evidence.count());
                NetworkEvidence::Diagonal { squares, moment, count }
            }
        }
    });
    let sum = (integers(), integers(), integers(), vectors(), any::<bool>()).prop_map(
        |(networks, seen, agents, entries, hurried)| NetworkSum {
            networks,
            seen,
            widths: WidthSum { agents, entries },
            hurried,
        },
    );
    let sum = option::of(sum);
    (integers(), any::<u64>(), evidence, vectors(), 0.0..=1.0f64, any::<bool>(), sum).prop_map(
        |(round, start, evidence, weights, alpha, trained, sum)| NetworkPart {
            round: RoundId(round),
            start,
            evidence,
            weights,
            alpha,
            trained,
            sum,
        },
    )
}

fn networks() -> impl Strategy<Value = Downlink> {
    let numbers = (2usize..6, any::<bool>(), any::<bool>(), 0usize..4, 0.0..=1.0f64);
    (any::<bool>(), integers(), integers(), integers(), numbers).prop_map(
        |(authoritative, version, contains, count, (p, full, trained, widths, alpha))| {
            let length = if full { packed(p) } else { p };
            let weights = if trained { vec![0.25; p] } else { Vec::new() };
            let widths = (0..widths).map(|_| Arc::new(vec![0.5; length])).collect();
            let shared =
                NetworkState::from_parts(count, vec![1.5; length], vec![-0.5; p], weights, alpha, widths);
            let shared = Arc::new(shared.expect("numbers that fit"));
            Downlink::Network(NetworkModel { authoritative, version: Version(version), contains, shared })
        },
    )
}

fn cluster_uploads() -> impl Strategy<Value = ClusterUpload> {
    (integers(), integers(), integers(), informations(), evidences(), any::<bool>()).prop_map(
        |(cluster, number, based_on, information, evidence, released)| {
            let (cluster, based_on) = (ClusterId(cluster), Version(based_on));
            ClusterUpload {
                cluster,
                number,
                based_on,
                information,
                evidence,
                released,
                variance: information.min(1e250),
                members: number % 3 + 1,
            }
        },
    )
}

fn vectors() -> impl Strategy<Value = Vec<f64>> {
    proptest::collection::vec(-9.0..9.0f64, 1..7)
}

fn models() -> impl Strategy<Value = Downlink> {
    let fits = (any::<bool>(), informations(), informations(), informations());
    (any::<bool>(), integers(), integers(), evidences(), fits).prop_map(
        |(authoritative, version, contains, evidence, (online, a, b, c))| {
            let d = evidence.dimension();
            let fit = if online {
                Fit::Online { curvature: Arc::new(vec![a; packed(d)]), potential: b, squares: c }
            } else {
                Fit::Minimised { gap: a, information: b, unit_information: c }
            };
            let model = Model {
                authoritative,
                version: Version(version),
                contains,
                evidence: Arc::new(evidence),
                estimate: Arc::new((0..d).map(|i| i as f64 / 4.0 - 1.0).collect()),
                fit,
            };
            // The moment of a minimised model is what its estimate predicts: let decoding fill it in.
            decode_downlink(&encode_downlink(&Downlink::Model(model))).expect("a good model")
        },
    )
}

fn news() -> impl Strategy<Value = News> {
    let counts = (integers(), integers(), integers(), integers());
    (counts, informations(), informations(), informations()).prop_map(
        |((version, count, agents, forgotten), information, rate, doubt)| News {
            version: Version(version),
            count,
            information,
            agents,
            rate,
            doubt,
            forgotten,
        },
    )
}

pub(crate) fn downlinks() -> impl Strategy<Value = Downlink> {
    let evidences = || evidences().prop_map(Arc::new);
    let snapshots = (any::<bool>(), integers(), integers(), informations(), evidences());
    prop_oneof![
        snapshots.prop_map(|(authoritative, version, contains, information, evidence)| {
            let version = Version(version);
            Downlink::Snapshot(Snapshot { authoritative, version, contains, information, evidence })
        }),
        ((any::<bool>(), integers(), option::of(integers())), news(), option::of((integers(), evidences())))
            .prop_map(|((pulled, number, version), news, told)| {
                // Every second snapshot is rounded.
                let rounded = told.as_ref().filter(|(contains, _)| contains % 2 == 1).and_then(|told| {
                    match Parcel::wrap_rounded(&told.1) {
                        Parcel::Rounded(rounded) => Some(Arc::new(rounded)),
                        _ => None,
                    }
                });
                let told = told.map(|(contains, evidence)| match &rounded {
                    Some(rounded) => {
                        (contains, Arc::new(Parcel::Rounded((**rounded).clone()).evidence().clone()))
                    }
                    None => (contains, evidence),
                });
                let snapshot = told.map(|(contains, evidence)| {
                    let information = news.information;
                    Snapshot { authoritative: pulled, version: news.version, contains, information, evidence }
                });
                let version = version.map(Version);
                Downlink::Answer(Answer { pulled, number, version, news, snapshot, rounded })
            })
            .boxed(),
        (integers(), option::of(integers()))
            .prop_map(|(number, version)| Downlink::Receipt { number, version: version.map(Version) }),
        (integers(), any::<bool>())
            .prop_map(|(round, whole)| Downlink::Collect { round: RoundId(round), whole }),
        integers().prop_map(|round| Downlink::Abort { round: RoundId(round) }),
        extensions().prop_map(Downlink::Extension),
        (integers(), integers(), vectors(), any::<bool>()).prop_map(|(round, step, point, curvature)| {
            Downlink::GradientRequest { round: RoundId(round), step, point: Arc::new(point), curvature }
        }),
        models().boxed(),
        (integers(), any::<bool>(), integers(), evidences()).prop_map(
            |(round, included, version, evidence)| {
                Downlink::Commit { round: RoundId(round), included, version: Version(version), evidence }
            }
        ),
        (integers(), integers(), any::<bool>(), integers(), informations(), evidences())
            .prop_map(|(cluster, members, authoritative, version, information, evidence)| {
                let (version, contains) = (Version(version), members);
                let snapshot = Snapshot { authoritative, version, contains, information, evidence };
                Downlink::Group(GroupSnapshot {
                    cluster: ClusterId(cluster),
                    members,
                    snapshot,
                    variance: information.min(1e250),
                })
            })
            .boxed(),
        (integers(), integers(), option::of(integers()))
            .prop_map(|(cluster, number, version)| {
                let version = version.map(Version);
                Downlink::ClusterReceipt { cluster: ClusterId(cluster), number, version }
            })
            .boxed(),
        (integers(), any::<bool>())
            .prop_map(|(phase, anew)| Downlink::Regroup { phase: PhaseId(phase), anew }),
        (integers(), integers()).prop_map(|(round, observations)| Downlink::NetworkCollect {
            round: RoundId(round),
            observations
        }),
        weights().prop_map(Downlink::Average).boxed(),
        secure_downlinks().prop_map(Downlink::Secure).boxed(),
        networks().boxed(),
    ]
}

pub(crate) fn up_frames() -> impl Strategy<Value = UpFrame> {
    let message = option::of((1u64.., uplinks()));
    (integers(), integers(), integers(), message, integers()).prop_map(
        |(epoch, incarnation, acknowledged, message, greeting)| {
            let (sequence, message) = message.map_or((0, None), |(sequence, m)| (sequence, Some(m)));
            let (epoch, incarnation) = (Epoch(epoch), Incarnation(incarnation));
            UpFrame { epoch, incarnation, acknowledged, sequence, message, greeting }
        },
    )
}

pub(crate) fn down_frames() -> impl Strategy<Value = DownFrame> {
    let message = option::of((1u64.., downlinks()));
    (integers(), integers(), integers(), message, integers()).prop_map(
        |(epoch, incarnation, acknowledged, message, greeting)| {
            let (sequence, message) = message.map_or((0, None), |(sequence, m)| (sequence, Some(m)));
            let (epoch, incarnation) = (Epoch(epoch), Incarnation(incarnation));
            DownFrame { epoch, incarnation, acknowledged, sequence, message, greeting }
        },
    )
}

pub(crate) fn log_entries() -> impl Strategy<Value = LogEntry> {
    let agents = || integers().prop_map(AgentId);
    let events = prop_oneof![
        (agents(), integers()).prop_map(|(agent, life)| LogEvent::Joined(agent, Incarnation(life))),
        agents().prop_map(LogEvent::Returned),
        agents().prop_map(LogEvent::Left),
        agents().prop_map(LogEvent::Retracted),
        (agents(), up_frames()).prop_map(|(agent, frame)| LogEvent::Accepted(agent, frame)),
        down_frames().prop_map(LogEvent::Heard),
        Just(LogEvent::Ticked),
        proptest::collection::btree_set(any::<u64>().prop_map(AgentId), 1..4)
            .prop_map(LogEvent::TickedWithout),
        integers().prop_map(|epoch| LogEvent::EpochBegan(Epoch(epoch))),
    ];
    (integers(), events).prop_map(|(tick, event)| LogEntry { tick: Tick(tick), event })
}
