//! What communication costs: one function on the message types, every unit at once.

use serde::{Deserialize, Serialize};

use crate::evidence::packed;
use crate::message::{
    Downlink, Extension, Fit, NetworkEvidence, SecureDownlink, SecureOutcome, SecureUplink, Uplink,
};
use crate::wire;

/// The cost of one message, or the sum over many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Messages that carry statistics: what the papers count as one transfer.
    pub messages: u64,
    /// Messages that carry none: receipts, requests, acknowledgements.
    pub control: u64,
    /// Numbers in the statistics, as they travel: packed triangles or low-rank factors.
    pub scalars: u64,
    /// Numbers as the papers count them, with whole matrices: d² + d for a matrix and a vector, d² + 1 for what
    /// FedGLB-UCB uploads, 2d² + d + 1 for what FedGLB-UCB₃ downloads.
    pub paper_scalars: u64,
    /// Bytes of the protobuf encoding.
    pub bytes: u64,
}

impl Cost {
    /// A message with a matrix and a vector of dimension `d`.
    const fn payload(d: usize, scalars: u64, bytes: usize) -> Self {
        let paper_scalars = (d * d + d) as u64;
        Self { messages: 1, control: 0, scalars, paper_scalars, bytes: bytes as u64 }
    }

    /// A message with so many numbers, which the papers count as they are.
    const fn numbers(count: usize, bytes: usize) -> Self {
        let count = count as u64;
        Self { messages: 1, control: 0, scalars: count, paper_scalars: count, bytes: bytes as u64 }
    }

    fn of_extension(extension: &Extension, bytes: usize) -> Self {
        match usize::try_from(extension.scalars).unwrap_or(usize::MAX) {
            0 => Self::control(bytes),
            scalars => Self::numbers(scalars, bytes),
        }
    }

    /// Returns the cost of a message that carries no statistics.
    #[must_use]
    pub const fn control(bytes: usize) -> Self {
        Self { messages: 0, control: 1, scalars: 0, paper_scalars: 0, bytes: bytes as u64 }
    }

    /// Adds every unit of another cost to this one.
    pub fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.control += other.control;
        self.scalars += other.scalars;
        self.paper_scalars += other.paper_scalars;
        self.bytes += other.bytes;
    }
}

impl Uplink {
    /// Returns what sending this message costs.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let bytes = wire::uplink_len(self);
        match self {
            // The matrix, the vector, the count and the information.
            Self::Evidence(upload) => {
                Cost::payload(upload.evidence.dimension(), upload.evidence.scalars() + 2, bytes)
            }
            // The same and the doubt.
            Self::Pull(pull) => pull.upload.as_ref().map_or(Cost::control(bytes), |upload| {
                Cost::payload(upload.evidence.dimension(), upload.evidence.scalars() + 3, bytes)
            }),
            // The matrix, the vector and the count. Without a vector it is a part of a round of gradients, which the
            // generalized linear papers count as d² + 1.
            Self::RoundEvidence { evidence, .. } => {
                let d = evidence.dimension();
                let cost = Cost::payload(d, evidence.scalars() + 1, bytes);
                let paper_scalars = (d * d + 1) as u64;
                if evidence.has_moment() { cost } else { Cost { paper_scalars, ..cost } }
            }
            // One message, with the same for each agent that has something to say.
            Self::RoundParts { parts, .. } => parts.iter().fold(
                Cost { messages: 1, control: 0, ..Cost::control(bytes) },
                |mut sum, part| {
                    let d = part.evidence.dimension();
                    let one = Cost::payload(d, part.evidence.scalars() + 1, 0);
                    sum.add(Cost { messages: 0, ..one });
                    sum
                },
            ),
            // The matrix, the vector and the count. Keys and shares carry no statistics.
            Self::Secure(SecureUplink::Masked { sums, .. }) => Cost::numbers(sums.len(), bytes),
            Self::Secure(_)
            | Self::RoundRequest { .. }
            | Self::RoundLoss { .. }
            | Self::NetworkRequest { .. } => Cost::control(bytes),
            Self::Extension(extension) => Cost::of_extension(extension, bytes),
            // The matrix, the vector, the network and its alpha, and of a relay the widths of the agents below it; in the
            // paper the agent's own matrix too.
            Self::NetworkPart(part) => {
                let p = part.evidence.parameters();
                let matrix = match part.evidence {
                    NetworkEvidence::Full(_) => p * p,
                    NetworkEvidence::Diagonal { .. } => p,
                };
                let widths = part.sum.as_ref().map_or(0, |sum| sum.widths.entries.len());
                let scalars = part.evidence.scalars() + part.weights.len() + 1 + widths;
                let paper_scalars = (2 * matrix + 2 * p + 1) as u64;
                Cost { paper_scalars, ..Cost::numbers(scalars, bytes) }
            }
            Self::Weights(weights) => Cost::numbers(weights.weights.len(), bytes),
            Self::Gradient(gradient) => Cost::numbers(
                gradient.gradient.len() + gradient.curvature.as_ref().map_or(0, Vec::len),
                bytes,
            ),
            // The matrix, the vector, the count and the information.
            Self::Cluster(upload) => {
                let d = upload.evidence.dimension();
                Cost::payload(d, (packed(d) + d + 2) as u64, bytes)
            }
            // As many messages as there are clusters with news.
            Self::Clusters(list) => list.uploads.iter().fold(Cost::control(bytes), |mut sum, upload| {
                let d = upload.evidence.dimension();
                sum.add(Cost::payload(d, (packed(d) + d + 2) as u64, 0));
                Cost { control: 0, ..sum }
            }),
        }
    }
}

impl Downlink {
    /// What sending this message to one recipient costs.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let bytes = wire::downlink_len(self);
        match self {
            Self::Snapshot(snapshot) => {
                let d = snapshot.evidence.dimension();
                Cost::payload(d, (packed(d) + d + 2) as u64, bytes)
            }
            // The snapshot, and information, agents, rate and doubt of the news.
            Self::Answer(answer) => answer.snapshot.as_ref().map_or(Cost::control(bytes), |snapshot| {
                let d = snapshot.evidence.dimension();
                let numbers = answer.rounded.as_ref().map_or(packed(d) + d, |rounded| rounded.scalars());
                Cost::payload(d, (numbers + 6) as u64, bytes)
            }),
            Self::Commit { evidence, .. } => {
                let d = evidence.dimension();
                Cost::payload(d, (packed(d) + d + 1) as u64, bytes)
            }
            Self::Group(group) => {
                let d = group.snapshot.evidence.dimension();
                Cost::payload(d, (packed(d) + d + 2) as u64, bytes)
            }
            // The matrix, the vector, the count and the variance.
            Self::Secure(SecureDownlink::Outcome(SecureOutcome { evidence, .. })) => {
                let d = evidence.dimension();
                Cost::payload(d, (packed(d) + d + 2) as u64, bytes)
            }
            Self::Secure(_) => Cost::control(bytes),
            Self::GradientRequest { point, .. } => Cost::numbers(point.len(), bytes),
            Self::Model(model) => {
                let d = model.estimate.len();
                // The matrix and the estimate; then count, gap and two logarithms, or the moment, the
                // curvature, the count and two sums.
                let (scalars, paper) = match &model.fit {
                    Fit::Minimised { .. } => (packed(d) + d + 4, d * d + d),
                    Fit::Online { .. } => (2 * packed(d) + 2 * d + 3, 2 * d * d + d + 1),
                };
                Cost { paper_scalars: paper as u64, ..Cost::payload(d, scalars as u64, bytes) }
            }
            Self::Average(weights) => Cost::numbers(weights.weights.len(), bytes),
            Self::Extension(extension) => Cost::of_extension(extension, bytes),
            // The matrix, the vector, the network, its alpha and the widths.
            Self::Network(model) => {
                let (shared, p) = (&model.shared, model.shared.parameters());
                let full = shared.matrix().len() != p;
                let (packed, square) = if full { (packed(p), p * p) } else { (p, p) };
                let matrices = shared.widths.len() + 1;
                let others = p + shared.weights.len() + 1;
                let paper_scalars = (matrices * square + others) as u64;
                Cost { paper_scalars, ..Cost::numbers(matrices * packed + others, bytes) }
            }
            Self::Receipt { .. }
            | Self::NetworkCollect { .. }
            | Self::Collect { .. }
            | Self::Abort { .. }
            | Self::ClusterReceipt { .. }
            | Self::Regroup { .. } => Cost::control(bytes),
        }
    }
}
