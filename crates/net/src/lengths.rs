//! How long messages may be, from what is agreed on in a federation. Agents and coordinators compute the same.

use posse_core::{Algorithm, FnUcb, Precondition};

/// Clusters of users that one agent may speak of at once, unless the settings say how long a frame may be.
pub(crate) const CLUSTERS: u64 = 256;

/// How often a message may hold vectors and a matrix, and how many numbers those have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    parts: u64,
    vector: u64,
    matrix: u64,
    /// Bytes of the longest model of networks, where there are networks.
    network: u64,
}

impl Lengths {
    /// The lengths of an algorithm's messages in a federation of `agents` with arms of `dimension` shared features.
    pub(crate) fn new(algorithm: &Algorithm, dimension: u64, agents: u64) -> Self {
        let packed = |d: u64| d * (d + 1) / 2;
        let d = dimension;
        match algorithm {
            Algorithm::Fclub(_) | Algorithm::FclubDc(_) | Algorithm::CdpFclubDc(_) => {
                Self { parts: CLUSTERS, vector: d, matrix: packed(d), network: 0 }
            }
            Algorithm::FnUcb(config) => {
                let p = config.neural.parameters(d as usize) as u64;
                let is_full = config.neural.statistic == Precondition::Full;
                let matrix = if is_full { packed(p) } else { p };
                Self { parts: 1, vector: p, matrix, network: network_model(config, agents, p, matrix) }
            }
            _ => Self { parts: 1, vector: d, matrix: packed(d), network: 0 },
        }
    }

    /// Bytes of the longest frame from an agent: a whole matrix, a few vectors and what is around them, as often as
    /// one message may hold them.
    pub(crate) fn frame(&self) -> u64 {
        bytes(self.parts, self.vector, self.matrix)
    }

    /// Bytes of a frame with one matrix: what every algorithm must be able to send.
    pub(crate) fn least(&self) -> u64 {
        bytes(1, self.vector, self.matrix)
    }

    /// Bytes of the longest frame to an agent, if frames from agents have at most `frame` bytes.
    pub(crate) fn answer(&self, frame: u64) -> u64 {
        // Models hold up to twice what an upload does, and a few vectors.
        frame.max(self.least()).saturating_mul(4).max(self.network)
    }

    /// Bytes of the longest model of networks; 0 where there are none.
    pub(crate) const fn network(&self) -> u64 {
        self.network
    }
}

/// The same for networks: the matrix of all and the agents' own ones, or their mean.
fn network_model(config: &FnUcb, agents: u64, vector: u64, matrix: u64) -> u64 {
    let widths = if config.less_communication { 1 } else { agents };
    bytes(1, vector, matrix.saturating_mul(widths.saturating_add(1)))
}

/// Bytes of a message with so many parts, each with a few vectors and a matrix, and what is around them.
const fn bytes(parts: u64, vector: u64, matrix: u64) -> u64 {
    let numbers = matrix.saturating_add(4 * vector);
    parts.saturating_mul(numbers.saturating_mul(8).saturating_add(64)).saturating_add(4096)
}
