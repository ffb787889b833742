//! The length of a message's encoding, without encoding it: what a simulator asks millions of times.

use prost::encoding::encoded_len_varint;

use crate::evidence::{Evidence, packed};
use crate::message::{
    AgentPart, ClusterUpload, Downlink, EvidenceUpload, Extension, Fit, Model, NetworkEvidence, NetworkModel,
    NetworkPart, NetworkSum, News, OpenedShare, PublicKeys, SealedShares, SecureDownlink, SecureUplink,
    Snapshot, Uplink, Weights,
};
use crate::parcel::Parcel;
use crate::privacy::SecretShare;
use crate::rounded::{Rounded, RoundedMoment};
use crate::wire::{is_zero, said_members};

/// Every field number here but two is below 16, so its key takes one byte.
const KEY: usize = 1;
const DOUBLE: usize = 8;
const SINGLE: usize = 4;

/// Returns how many bytes the encoded message has, without encoding it.
pub(crate) fn uplink_len(message: &Uplink) -> usize {
    embedded(match message {
        // The number of its field is 16, which takes one byte more.
        Uplink::RoundParts { round, parts } => {
            let parts: usize = parts.iter().map(|part| embedded(part_len(part))).sum();
            return KEY + embedded(integer(round.0) + parts);
        }
        Uplink::Evidence(upload) => upload_len(upload),
        Uplink::Pull(pull) => {
            let upload = pull.upload.as_ref().map_or(0, |upload| embedded(upload_len(upload)));
            integer(pull.based_on.0) + double(pull.doubt) + upload
        }
        Uplink::RoundEvidence { round, evidence } => integer(round.0) + embedded(parcel_len(evidence)),
        Uplink::RoundLoss { round, shared } => integer(round.0) + integer(u64::from(*shared)),
        Uplink::Gradient(gradient) => {
            let curvature = gradient.curvature.as_ref().map_or(0, |matrix| embedded(doubles(matrix.len())));
            integer(gradient.round.0) + integer(gradient.step) + doubles(gradient.gradient.len()) + curvature
        }
        Uplink::Secure(part) => secure_uplink_len(part),
        Uplink::Cluster(upload) => cluster_len(upload),
        Uplink::RoundRequest { observations } | Uplink::NetworkRequest { observations } => {
            integer(*observations)
        }
        Uplink::NetworkPart(part) => network_part_len(part),
        Uplink::Weights(weights) => weights_len(weights),
        Uplink::Extension(extension) => extension_len(extension),
        Uplink::Clusters(list) => {
            let kept = list.kept.iter().map(|cluster| encoded_len_varint(cluster.0)).sum();
            let uploads = list.uploads.iter().map(|upload| embedded(cluster_len(upload)));
            integer(list.phase.0) + nonempty(kept) + uploads.sum::<usize>()
        }
    })
}

/// Returns how many bytes the encoded message has, without encoding it.
pub(crate) fn downlink_len(message: &Downlink) -> usize {
    embedded(match message {
        // The number of its field is 16, which takes one byte more.
        Downlink::Secure(call) => return KEY + embedded(secure_downlink_len(call)),
        Downlink::Snapshot(snapshot) => snapshot_len(snapshot),
        Downlink::Answer(answer) => {
            let version = answer.version.map_or(0, |version| KEY + encoded_len_varint(version.0));
            let snapshot = answer.snapshot.as_ref().map_or(0, |snapshot| {
                let evidence = match &answer.rounded {
                    None => dense_len(&snapshot.evidence),
                    Some(rounded) => rounded_len(rounded),
                };
                embedded(snapshot_with(snapshot, evidence))
            });
            integer(u64::from(answer.pulled))
                + integer(answer.number)
                + version
                + embedded(news_len(&answer.news))
                + snapshot
        }
        Downlink::Group(group) => {
            integer(group.cluster.0)
                + integer(group.members)
                + embedded(snapshot_len(&group.snapshot))
                + double(group.variance)
        }
        Downlink::ClusterReceipt { cluster, number, version } => {
            let version = version.map_or(0, |version| KEY + encoded_len_varint(version.0));
            integer(cluster.0) + integer(*number) + version
        }
        Downlink::Regroup { phase, anew } => integer(phase.0) + integer(u64::from(*anew)),
        Downlink::Receipt { number, version } => {
            integer(*number) + version.map_or(0, |version| KEY + encoded_len_varint(version.0))
        }
        Downlink::Collect { round, whole } => integer(round.0) + integer(u64::from(*whole)),
        Downlink::Commit { round, included, version, evidence } => {
            integer(round.0)
                + integer(u64::from(*included))
                + integer(version.0)
                + embedded(dense_len(evidence))
        }
        Downlink::GradientRequest { round, step, point, curvature } => {
            integer(round.0) + integer(*step) + doubles(point.len()) + integer(u64::from(*curvature))
        }
        Downlink::Model(model) => model_len(model),
        Downlink::NetworkCollect { round, observations } => integer(round.0) + integer(*observations),
        Downlink::Average(weights) => weights_len(weights),
        Downlink::Network(model) => network_len(model),
        Downlink::Abort { round } => integer(round.0),
        Downlink::Extension(extension) => extension_len(extension),
    })
}

fn secure_uplink_len(part: &SecureUplink) -> usize {
    let step = match part {
        SecureUplink::Keys { slot, keys, .. } => integer(*slot) + embedded(keys_len(keys)),
        SecureUplink::Shares { boxes, .. } => boxes_len(boxes),
        SecureUplink::Masked { sums, .. } => 16 * sums.len(),
        SecureUplink::Opened { seeds, keys, .. } => seeds.iter().chain(keys).map(opened_len).sum(),
    };
    integer(part.round().0) + embedded(step)
}

fn secure_downlink_len(call: &SecureDownlink) -> usize {
    let (round, step) = match call {
        SecureDownlink::Begin { round } => (round, 0),
        SecureDownlink::Peers { round, slot, peers } => {
            let peers: usize = peers.iter().map(|keys| embedded(keys_len(keys))).sum();
            (round, integer(*slot) + peers)
        }
        SecureDownlink::Boxes { round, boxes } => (round, boxes_len(boxes)),
        SecureDownlink::Open { round, survivors } => {
            (round, nonempty(survivors.iter().map(|survivor| encoded_len_varint(survivor.0)).sum()))
        }
        SecureDownlink::Outcome(outcome) => {
            let step = integer(u64::from(outcome.authoritative))
                + integer(u64::from(outcome.included))
                + integer(outcome.slot)
                + integer(outcome.version.0)
                + integer(outcome.members)
                + double(outcome.variance)
                + embedded(dense_len(&outcome.evidence));
            (&outcome.round, step)
        }
    };
    integer(round.0) + embedded(step)
}

fn keys_len(keys: &PublicKeys) -> usize {
    integer(keys.agent.0) + 3 * embedded(32)
}

fn boxes_len(boxes: &[SealedShares]) -> usize {
    let one =
        |sealed: &SealedShares| integer(sealed.agent.0) + nonempty(sealed.sealed.len()) + 2 * embedded(32);
    boxes.iter().map(|sealed| embedded(one(sealed))).sum()
}

fn opened_len(opened: &OpenedShare) -> usize {
    embedded(integer(opened.agent.0) + embedded(SecretShare::BYTES))
}

fn upload_len(upload: &EvidenceUpload) -> usize {
    integer(upload.number)
        + integer(upload.based_on.0)
        + double(upload.information)
        + embedded(parcel_len(&upload.evidence))
}

fn news_len(news: &News) -> usize {
    integer(news.version.0)
        + integer(news.count)
        + double(news.information)
        + integer(news.agents)
        + double(news.rate)
        + double(news.doubt)
        + integer(news.forgotten)
}

fn snapshot_len(snapshot: &Snapshot) -> usize {
    snapshot_with(snapshot, dense_len(&snapshot.evidence))
}

/// The length of a snapshot whose evidence takes so many bytes.
fn snapshot_with(snapshot: &Snapshot, evidence: usize) -> usize {
    integer(u64::from(snapshot.authoritative))
        + integer(snapshot.version.0)
        + integer(snapshot.contains)
        + double(snapshot.information)
        + embedded(evidence)
}

fn cluster_len(upload: &ClusterUpload) -> usize {
    integer(upload.cluster.0)
        + integer(upload.number)
        + integer(upload.based_on.0)
        + double(upload.information)
        + embedded(dense_len(&upload.evidence))
        + integer(u64::from(upload.released))
        + double(upload.variance)
        + integer(said_members(upload))
}

fn parcel_len(parcel: &Parcel) -> usize {
    match parcel {
        Parcel::Dense(evidence) => dense_len(evidence),
        Parcel::LowRank(parcel) => {
            let pivots = parcel.pivots.iter().map(|&p| encoded_len_varint(u64::from(p))).sum();
            let factor = nonempty(pivots) + doubles(parcel.columns.len());
            integer(parcel.count) + moment_len(&parcel.moment) + embedded(factor)
        }
        Parcel::Rounded(parcel) => rounded_len(parcel),
    }
}

/// The moment of a part travels also if it is zero throughout.
fn part_len(part: &AgentPart) -> usize {
    let evidence = parcel_len(&part.evidence);
    let left_out = part.evidence.dimension() > 0 && !part.evidence.has_moment();
    let moment = part.evidence.dimension();
    let evidence = if left_out { evidence - integer(moment as u64) + doubles(moment) } else { evidence };
    let relays = part.agent.relays.iter().map(|relay| encoded_len_varint(relay.0)).sum();
    integer(part.agent.agent.0) + nonempty(relays) + embedded(evidence)
}

fn rounded_len(rounded: &Rounded) -> usize {
    let pivots = rounded.pivots.iter().map(|&p| encoded_len_varint(u64::from(p))).sum();
    let (RoundedMoment::Along(numbers) | RoundedMoment::Whole(numbers)) = &rounded.moment;
    let singles = |count: usize| nonempty(count * SINGLE);
    let factor = nonempty(pivots)
        + singles(rounded.roots.len())
        + integer(u64::from(rounded.bits))
        + nonempty(rounded.shares.len())
        + singles(numbers.len());
    integer(rounded.count) + embedded(factor) + integer(rounded.dimension as u64)
}

fn dense_len(evidence: &Evidence) -> usize {
    let matrix = embedded(doubles(packed(evidence.dimension())));
    integer(evidence.count()) + moment_len(evidence.moment()) + matrix
}

fn moment_len(moment: &[f64]) -> usize {
    if is_zero(moment) { integer(moment.len() as u64) } else { doubles(moment.len()) }
}

fn model_len(model: &Model) -> usize {
    let d = model.estimate.len();
    let (moment, fit) = match &model.fit {
        Fit::Minimised { gap, information, unit_information } => {
            (0, double(*gap) + double(*information) + double(*unit_information))
        }
        Fit::Online { curvature, potential, squares } => {
            (doubles(d), embedded(doubles(curvature.len())) + double(*potential) + double(*squares))
        }
    };
    let evidence = integer(model.evidence.count()) + moment + embedded(doubles(packed(d)));
    integer(u64::from(model.authoritative))
        + integer(model.version.0)
        + integer(model.contains)
        + embedded(evidence)
        + doubles(d)
        + embedded(fit)
}

fn network_part_len(part: &NetworkPart) -> usize {
    let (moment, matrix) = match &part.evidence {
        NetworkEvidence::Full(factor) => {
            let pivots = factor.pivots.iter().map(|&p| encoded_len_varint(u64::from(p))).sum();
            (factor.moment.len(), nonempty(pivots) + doubles(factor.columns.len()))
        }
        NetworkEvidence::Diagonal { squares, moment, .. } => (moment.len(), doubles(squares.len())),
    };
    let start = if part.start == 0 { 0 } else { KEY + DOUBLE };
    integer(part.round.0)
        + start
        + integer(part.evidence.count())
        + doubles(moment)
        + embedded(matrix)
        + doubles(part.weights.len())
        + double(part.alpha)
        + integer(u64::from(part.trained))
        + part.sum.as_ref().map_or(0, |sum| embedded(network_sum_len(sum)))
}

fn network_sum_len(sum: &NetworkSum) -> usize {
    let widths = integer(sum.widths.agents) + doubles(sum.widths.entries.len());
    integer(sum.networks) + integer(sum.seen) + embedded(widths) + integer(u64::from(sum.hurried))
}

fn extension_len(extension: &Extension) -> usize {
    nonempty(extension.algorithm.len())
        + integer(extension.version)
        + integer(extension.scalars)
        + nonempty(extension.bytes.len())
}

fn weights_len(weights: &Weights) -> usize {
    integer(weights.round.0) + integer(weights.step) + doubles(weights.weights.len())
}

fn network_len(model: &NetworkModel) -> usize {
    let shared = &model.shared;
    integer(u64::from(model.authoritative))
        + integer(model.version.0)
        + integer(model.contains)
        + integer(shared.count)
        + doubles(shared.matrix().len())
        + doubles(shared.parameters())
        + doubles(shared.weights.len())
        + double(shared.alpha)
        + shared.widths.iter().map(|width| embedded(doubles(width.len()))).sum::<usize>()
}

/// Zero is the default and is left out.
fn integer(value: u64) -> usize {
    if value == 0 { 0 } else { KEY + encoded_len_varint(value) }
}

fn double(value: f64) -> usize {
    if value == 0.0 { 0 } else { KEY + DOUBLE }
}

fn doubles(count: usize) -> usize {
    nonempty(count * DOUBLE)
}

fn nonempty(length: usize) -> usize {
    if length == 0 { 0 } else { embedded(length) }
}

fn embedded(length: usize) -> usize {
    KEY + encoded_len_varint(length as u64) + length
}
