//! How long messages may be, from what is agreed on in a federation. Agents and coordinators compute the same.

use posse_core::{Algorithm, Payload};

/// How often a message may hold vectors and a matrix, and how many numbers those have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    upload: (u64, u64, u64),
    /// Numbers of the matrices in the largest message to an agent.
    matrices: u64,
}

impl Lengths {
    /// The lengths of an algorithm's messages in a federation of `agents` with arms of `dimension` shared features and so many
    /// `levels` of links.
    pub(crate) fn new(algorithm: &Algorithm, dimension: u64, agents: u64, levels: u64) -> Self {
        algorithm.with_recipe(|recipe| {
            let Payload { parts, vector, matrix } = match levels {
                0 | 1 => recipe.largest_upload(dimension),
                _ => recipe.largest_relayed(dimension),
            };
            Self { upload: (parts, vector, matrix), matrices: recipe.largest_download(dimension, agents) }
        })
    }

    /// Bytes of the longest frame from an agent: a whole matrix, a few vectors and what is around them, as often as
    /// one message may hold them.
    pub(crate) const fn frame(&self) -> u64 {
        let (parts, vector, matrix) = self.upload;
        bytes(parts, vector, matrix)
    }

    /// Bytes of a frame with one matrix: what every algorithm must be able to send.
    #[cfg(feature = "coordinator")]
    pub(crate) const fn least(&self) -> u64 {
        let (_, vector, matrix) = self.upload;
        bytes(1, vector, matrix)
    }

    /// Bytes of the longest frame to an agent, if frames from agents have at most `frame` bytes.
    pub(crate) fn answer(&self, frame: u64) -> u64 {
        let (_, vector, matrix) = self.upload;
        // Models hold up to twice what an upload does, and a few vectors.
        frame.max(bytes(1, vector, matrix)).saturating_mul(4).max(self.download())
    }

    /// Bytes of the largest message to an agent, as its algorithm counts them.
    pub(crate) const fn download(&self) -> u64 {
        bytes(1, self.upload.1, self.matrices)
    }
}

/// Bytes of a message with so many parts, each with a few vectors and a matrix, and what is around them.
const fn bytes(parts: u64, vector: u64, matrix: u64) -> u64 {
    let numbers = matrix.saturating_add(4 * vector);
    parts.saturating_mul(numbers.saturating_mul(8).saturating_add(64)).saturating_add(4096)
}
