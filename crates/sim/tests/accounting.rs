//! O26: what communication is said to cost is what was really sent.

use posse_core::{
    Algorithm, AsyncLinUcb, AsyncLinUcbAm, Cost, Downlink, FedLinUcb, Fit, JoinPolicy, ModelConfig,
    NetworkEvidence, Parcel, ProtocolConfig, SecureDownlink, SecureUplink, SyncLinUcb, Threshold, Uplink,
    packed, wire,
};
use posse_sim::RunConfig;
use posse_sim::world::{HeterogeneousConfig, WorldConfig};

use crate::support::{Entry, Log, async_lin_ucb, central, lin_ucb, linear, protocol, run, small, world_for};

/// Numbers in a parcel as the wire carries them: a packed triangle or the columns of a factor, a vector.
fn parcel_scalars(parcel: &Parcel) -> u64 {
    let d = parcel.dimension() as u64;
    let n = parcel.count().min(d);
    // Fewer than (d+1)/2 observations travel as n columns, each one shorter than the one before.
    let factor = n * d - (n * n - n) / 2;
    let triangle = packed(parcel.dimension()) as u64;
    // A vector of zeros stays at home.
    let moment = if parcel.evidence().moment().iter().all(|&v| v == 0.0) { 0 } else { d };
    (if 2 * parcel.count() < d + 1 { factor } else { triangle }) + moment
}

fn payload(d: usize, scalars: u64) -> Cost {
    Cost { messages: 1, scalars, paper_scalars: (d * d + d) as u64, ..Cost::default() }
}

fn numbers(count: usize) -> Cost {
    Cost { messages: 1, scalars: count as u64, paper_scalars: count as u64, ..Cost::default() }
}

fn uplink_cost(message: &Uplink) -> Cost {
    let cluster = |d: usize| payload(d, (packed(d) + d + 2) as u64);
    let mut cost = match message {
        Uplink::Extension(_) => unreachable!("posse's own algorithms do not send it"),
        Uplink::Evidence(upload) => {
            payload(upload.evidence.dimension(), parcel_scalars(&upload.evidence) + 2)
        }
        Uplink::Pull(pull) => match &pull.upload {
            Some(upload) => payload(upload.evidence.dimension(), parcel_scalars(&upload.evidence) + 3),
            None => Cost { control: 1, ..Cost::default() },
        },
        Uplink::RoundEvidence { evidence, .. } => {
            let d = evidence.dimension();
            let cost = payload(d, parcel_scalars(evidence) + 1);
            // Without rewards it is the matrix and the count: how FedGLB-UCB's paper counts an upload.
            let silent = evidence.evidence().moment().iter().all(|&v| v == 0.0);
            if silent { Cost { paper_scalars: (d * d + 1) as u64, ..cost } } else { cost }
        }
        Uplink::RoundParts { .. } => unreachable!("agents do not send it"),
        Uplink::RoundRequest { .. } | Uplink::RoundLoss { .. } | Uplink::NetworkRequest { .. } => {
            Cost { control: 1, ..Cost::default() }
        }
        Uplink::NetworkPart(part) => {
            let p = part.weights.len();
            let matrix = match &part.evidence {
                NetworkEvidence::Full(_) => p * p,
                NetworkEvidence::Diagonal { squares, .. } => squares.len(),
            };
            let widths = part.sum.as_ref().map_or(0, |sum| sum.widths.entries.len());
            let sent = part.evidence.scalars() + p + 1 + widths;
            Cost { paper_scalars: (2 * matrix + 2 * p + 1) as u64, ..numbers(sent) }
        }
        Uplink::Weights(weights) => numbers(weights.weights.len()),
        Uplink::Secure(SecureUplink::Masked { sums, .. }) => numbers(sums.len()),
        Uplink::Secure(_) => Cost { control: 1, ..Cost::default() },
        Uplink::Gradient(gradient) => {
            numbers(gradient.gradient.len() + gradient.curvature.as_ref().map_or(0, Vec::len))
        }
        Uplink::Cluster(upload) => cluster(upload.evidence.dimension()),
        Uplink::Clusters(list) if list.uploads.is_empty() => Cost { control: 1, ..Cost::default() },
        Uplink::Clusters(list) => {
            let mut sum = Cost::default();
            list.uploads.iter().for_each(|upload| sum.add(cluster(upload.evidence.dimension())));
            sum
        }
    };
    cost.bytes = wire::encode_uplink(message).len() as u64;
    cost
}

fn downlink_cost(message: &Downlink) -> Cost {
    let dense = |d: usize, more: u64| payload(d, (packed(d) + d) as u64 + more);
    let mut cost = match message {
        Downlink::Extension(_) => unreachable!("posse's own algorithms do not send it"),
        Downlink::Snapshot(snapshot) => dense(snapshot.evidence.dimension(), 2),
        Downlink::Answer(answer) => match &answer.snapshot {
            Some(snapshot) => dense(snapshot.evidence.dimension(), 6),
            None => Cost { control: 1, ..Cost::default() },
        },
        Downlink::Commit { evidence, .. } => dense(evidence.dimension(), 1),
        Downlink::Group(group) => dense(group.snapshot.evidence.dimension(), 2),
        Downlink::Secure(SecureDownlink::Outcome(outcome)) => dense(outcome.evidence.dimension(), 2),
        Downlink::Secure(_) => Cost { control: 1, ..Cost::default() },
        Downlink::GradientRequest { point, .. } => numbers(point.len()),
        Downlink::Model(model) => {
            let d = model.estimate.len();
            match model.fit {
                Fit::Minimised { .. } => dense(d, 4),
                // Two matrices, the estimate and the count.
                Fit::Online { .. } => {
                    Cost { paper_scalars: (2 * d * d + d + 1) as u64, ..dense(d, (packed(d) + d) as u64 + 3) }
                }
            }
        }
        Downlink::Average(weights) => numbers(weights.weights.len()),
        Downlink::Network(model) => {
            let (shared, p) = (&model.shared, model.shared.vector().len());
            let sent = shared.matrix().len() + shared.widths.iter().map(|width| width.len()).sum::<usize>();
            let square = if shared.matrix().len() == p { p } else { p * p };
            let paper = square * (shared.widths.len() + 1) + p + shared.weights.len() + 1;
            let numbers = numbers(sent + p + shared.weights.len() + 1);
            Cost { paper_scalars: paper as u64, ..numbers }
        }
        Downlink::Receipt { .. }
        | Downlink::NetworkCollect { .. }
        | Downlink::Collect { .. }
        | Downlink::Abort { .. }
        | Downlink::ClusterReceipt { .. }
        | Downlink::Regroup { .. } => Cost { control: 1, ..Cost::default() },
    };
    cost.bytes = wire::encode_downlink(message).len() as u64;
    cost
}

/// Both directions and the rounds, recomputed from what was said.
fn recount(log: &Log) -> (Cost, Cost, u64) {
    let (mut up, mut down, mut rounds) = (Cost::default(), Cost::default(), 0);
    for entry in &log.0 {
        match entry {
            Entry::Up { message, .. } => up.add(uplink_cost(message)),
            Entry::Down { message, .. } => {
                down.add(downlink_cost(message));
                if let Downlink::Collect { round, .. } | Downlink::NetworkCollect { round, .. } = message {
                    rounds = rounds.max(round.0);
                }
            }
            _ => {}
        }
    }
    (up, down, rounds)
}

fn sync(threshold: f64, join: JoinPolicy) -> Algorithm {
    Algorithm::SyncLinUcb(SyncLinUcb { round_threshold: Threshold(threshold), join, ..SyncLinUcb::default() })
}

#[test]
fn o26_costs_are_what_the_messages_say() {
    let mut algorithms = Algorithm::all();
    algorithms.extend([
        async_lin_ucb(protocol(1.0, 1.0, JoinPolicy::Eager)),
        async_lin_ucb(ProtocolConfig {
            snapshot_in_receipt: true,
            min_upload: 4,
            ..protocol(1.2, 9.0, JoinPolicy::PullOnJoin)
        }),
        sync(0.0, JoinPolicy::Eager),
        sync(5.0, JoinPolicy::PullOnJoin),
    ]);
    for algorithm in algorithms {
        for dimension in [1, 4, 12] {
            let config = RunConfig {
                world: world_for(&algorithm, linear(dimension, 6)),
                ..small(1, 7, 300, algorithm.clone())
            };
            let (log, tally) = run(&config);
            let (up, down, rounds) = recount(&log);
            assert_eq!((tally.up, tally.down), (up, down), "{algorithm:?}");
            assert_eq!(tally.rounds, rounds, "{algorithm:?}");
            assert_eq!(tally.messages(), up.messages + down.messages);
            assert_eq!((tally.interactions, tally.agents_seen), (300, 7));
        }
    }
}

#[test]
fn o26_nothing_said_costs_nothing() {
    for algorithm in [lin_ucb(), central()] {
        let tally = run(&small(2, 5, 200, algorithm)).1;
        assert_eq!((tally.up, tally.down, tally.rounds), Default::default());
    }
}

/// Regret and reward in the tally are sums over the steps of the world.
#[test]
fn o26_rewards_add_up() {
    let (log, tally) = run(&small(3, 5, 400, lin_ucb()));
    let rewards = log.0.iter().filter_map(|entry| match entry {
        Entry::Learned { reward, .. } => Some(*reward),
        _ => None,
    });
    assert_eq!(tally.reward, rewards.fold(0.0, |sum, reward| sum + reward));
}

/// The published sizes at d = 25: 650 numbers as the paper counts, 352 as they travel.
#[test]
fn o26_an_exchange_of_25_features_has_the_published_size() {
    let world = linear(25, 10);
    let protocol = ProtocolConfig { min_upload: 13, ..protocol(2.0, 2.0, JoinPolicy::Lazy) };
    let (log, tally) = run(&RunConfig { world, ..small(4, 3, 600, async_lin_ucb(protocol)) });
    let mut dense = 0;
    for entry in &log.0 {
        let cost = match entry {
            Entry::Up { message, .. } => message.cost(),
            Entry::Down { message, .. } => message.cost(),
            _ => continue,
        };
        if cost.messages == 0 {
            continue;
        }
        assert_eq!(cost.paper_scalars, 650);
        // 352 numbers are 2816 bytes; the rest is numbers of things and the encoding.
        assert_eq!(cost.scalars, 352);
        assert!((2816..2880).contains(&cost.bytes), "{} bytes", cost.bytes);
        dense += 1;
    }
    assert!(dense > 3);
    assert_eq!(tally.up.paper_scalars + tally.down.paper_scalars, 650 * dense);
}

/// An upload of n < 13 observations of 25 features is sent as n columns.
#[test]
fn o26_a_small_upload_is_smaller() {
    let algorithm = async_lin_ucb(protocol(1.0, f64::INFINITY, JoinPolicy::Lazy));
    let (_, tally) = run(&RunConfig { world: linear(25, 10), ..small(5, 3, 50, algorithm) });
    assert_eq!(tally.up.messages, 50);
    assert_eq!(tally.up.scalars, 50 * (25 + 25 + 2));
    assert_eq!(tally.up.paper_scalars, 50 * 650);
}

/// A round of N agents is 2N messages of 351 numbers, if every agent has 13 observations or more.
#[test]
fn o26_a_round_of_25_features_has_the_published_size() {
    let agents = 8;
    let config = small(6, agents, 4000, sync(1000.0, JoinPolicy::Eager));
    let config =
        RunConfig { world: linear(25, 10), arrival: posse_sim::world::ArrivalConfig::RoundRobin, ..config };
    let (_, tally) = run(&config);
    assert!(tally.rounds > 2);
    assert_eq!(tally.messages(), 2 * agents * tally.rounds);
    assert_eq!(tally.up.scalars + tally.down.scalars, 2 * agents * 351 * tally.rounds);
    // One request, and a call to every agent.
    assert_eq!((tally.up.control, tally.down.control), (tally.rounds, agents * tally.rounds));
}

/// Only the shared block travels: 154 numbers for 16 of 25 features, 272 as the paper counts.
#[test]
fn o26_local_features_stay_at_home() {
    let world = WorldConfig::Heterogeneous(HeterogeneousConfig::default());
    let algorithm = Algorithm::AsyncLinUcbAm(AsyncLinUcbAm {
        protocol: protocol(1e4, 2.0, JoinPolicy::Lazy),
        ..AsyncLinUcbAm::default()
    });
    let (_, tally) = run(&RunConfig { world, ..small(7, 3, 400, algorithm) });
    assert!(tally.messages() > 3);
    assert_eq!(tally.up.scalars + tally.down.scalars, 154 * tally.messages());
    assert_eq!(tally.up.paper_scalars + tally.down.paper_scalars, 272 * tally.messages());
}

/// Every exchange of FedLinUCB is an upload and the snapshot that answers it.
#[test]
fn o26_an_exchange_is_two_messages() {
    let exchange = FedLinUcb { upload_threshold: Some(Threshold(1.5)), ..FedLinUcb::default() };
    let (_, tally) = run(&small(8, 6, 500, Algorithm::FedLinUcb(exchange)));
    assert!(tally.up.messages > 6);
    assert_eq!(tally.up.messages, tally.down.messages);
    assert_eq!((tally.up.control, tally.down.control), (0, 0));
}

/// Widths, noise and confidence decide what is chosen, never what a message costs.
#[test]
fn o26_the_width_has_no_price() {
    let model = ModelConfig { fixed_width: Some(0.2), ..ModelConfig::default() };
    let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb {
        model,
        protocol: protocol(1.0, 1.0, JoinPolicy::Eager),
        privacy: None,
    });
    let tally = run(&small(9, 4, 100, algorithm)).1;
    let theory = run(&small(9, 4, 100, async_lin_ucb(protocol(1.0, 1.0, JoinPolicy::Eager)))).1;
    assert_eq!((tally.up.scalars, tally.down.scalars), (theory.up.scalars, theory.down.scalars));
}
