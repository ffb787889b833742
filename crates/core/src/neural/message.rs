//! What agents and the coordinator say about networks.

use std::sync::Arc;

use super::statistic::{Precondition, Statistic};
use crate::error::ProtocolError;
use crate::evidence::packed;
use crate::ids::{RoundId, Version};
use crate::parcel::LowRank;

/// An agent's part of a round of networks, or a relay's, which is the sum of its children's.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkPart {
    /// The number of the round that this answers.
    pub round: RoundId,
    /// A fingerprint of the parameters θ₀ that networks start from: gradients at other parameters do not add
    /// up.
    pub start: u64,
    /// What the gradients of its observations add up to since the last round that included it.
    pub evidence: NetworkEvidence,
    /// θ: the parameters of its network; of a relay the mean of its children's networks, empty if it has none.
    pub weights: Vec<f64>,
    /// α: how far it would trust the network, between 0 and 1.
    pub alpha: f64,
    /// Whether the network was trained for this round.
    pub trained: bool,
    /// Of a relay: what its numbers are over.
    pub sum: Option<NetworkSum>,
}

/// What the numbers of a relay's part are over, and the widths of the agents below it.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkSum {
    /// How many networks the mean is over.
    pub networks: u64,
    /// How many observations those networks were trained on, or could have been: the weight of the mean.
    pub seen: u64,
    /// The inverses of the matrices of all agents below the relay, as they are with this part.
    pub widths: WidthSum,
    /// An agent below the relay has answered and has news already: who is still waited for answers with what there is.
    pub hurried: bool,
}

/// The sum of the inverses of some agents' own matrices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WidthSum {
    /// How many agents' inverses these are.
    pub agents: u64,
    /// Their sum, packed or diagonal; empty without agents, and where statistics stay with agents.
    pub entries: Vec<f64>,
}

/// What gradients φ of chosen arms and their rewards y add up to.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkEvidence {
    /// Σφφᵀ as a factor, which never has more scalars than the packed matrix, and Σφy.
    Full(LowRank),
    /// The diagonal of Σφφᵀ, and Σφy.
    Diagonal {
        /// The diagonal Σφ², one number for each parameter.
        squares: Vec<f64>,
        /// The vector Σφy, one number for each parameter.
        moment: Vec<f64>,
        /// How many observations these sums are over.
        count: u64,
    },
}

/// The parameters of a network at a step of a round: an agent's, or the average of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The round they belong to.
    pub round: RoundId,
    /// The number of the average in its round.
    pub step: u64,
    /// The parameters θ, in the order of the network's layout.
    pub weights: Arc<Vec<f64>>,
}

/// All the coordinator knows of networks: absolute, like a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkModel {
    /// The coordinator lost part of its history: this replaces what the agent believes, older or not.
    pub authoritative: bool,
    /// The version of the coordinator's state that this is.
    pub version: Version,
    /// How many observations of the receiving agent are in it: the oldest ones of its life.
    pub contains: u64,
    /// What it knows, shared by all recipients of a version.
    pub shared: Arc<NetworkState>,
}

/// What a coordinator of networks knows after a round.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkState {
    /// How many observations are in the statistics.
    pub count: u64,
    pub(crate) statistic: Statistic,
    /// θ: the average of the agents' networks; empty before the first round.
    pub weights: Vec<f64>,
    /// α: how far the network is trusted.
    pub alpha: f64,
    /// The inverses of the agents' own matrices, packed or diagonal, or their mean alone.
    pub widths: Vec<Arc<Vec<f64>>>,
}

impl NetworkPart {
    /// How many networks the part holds: of an agent 1, or 0 if it has nothing to share.
    #[must_use]
    pub fn networks(&self) -> u64 {
        self.sum.as_ref().map_or(u64::from(!self.weights.is_empty()), |sum| sum.networks)
    }
}

impl NetworkEvidence {
    /// Returns how many observations the sums are over.
    #[must_use]
    pub const fn count(&self) -> u64 {
        match self {
            Self::Full(factor) => factor.count,
            Self::Diagonal { count, .. } => *count,
        }
    }

    /// p₀: how many parameters the network has.
    #[must_use]
    pub const fn parameters(&self) -> usize {
        match self {
            Self::Full(factor) => factor.moment.len(),
            Self::Diagonal { moment, .. } => moment.len(),
        }
    }

    /// Numbers of matrix and vector, as they travel.
    #[must_use]
    pub const fn scalars(&self) -> usize {
        match self {
            Self::Full(factor) => factor.columns.len() + factor.moment.len(),
            Self::Diagonal { squares, moment, .. } => squares.len() + moment.len(),
        }
    }

    /// Whether some observations can have given these numbers.
    pub(crate) fn check(&self) -> Result<(), ProtocolError> {
        const LARGEST: f64 = 1e200;
        let sound = |v: &f64| v.abs() <= LARGEST;
        match self {
            Self::Full(factor) => {
                let d = factor.moment.len();
                if factor.columns.len() != LowRank::column_scalars(d, factor.pivots.len()) {
                    return Err(ProtocolError::Evidence("the factor does not fit the vector"));
                }
                if !factor.columns.iter().chain(&factor.moment).all(|v| v.abs() <= 1e100) {
                    return Err(ProtocolError::Evidence("not all numbers are finite"));
                }
                if factor.pivots.len() as u64 > factor.count {
                    return Err(ProtocolError::Evidence("more numbers than observations"));
                }
            }
            Self::Diagonal { squares, moment, .. } => {
                if squares.len() != moment.len() {
                    return Err(ProtocolError::Evidence(
                        "the matrix and the vector have different dimensions",
                    ));
                }
                if !squares.iter().chain(moment).all(sound) {
                    return Err(ProtocolError::Evidence("not all numbers are finite"));
                }
                if squares.iter().any(|v| *v < 0.0) {
                    return Err(ProtocolError::Evidence("a negative sum of squares"));
                }
            }
        }
        let nothing = match self {
            Self::Full(factor) => factor.moment.iter().all(|v| *v == 0.0),
            Self::Diagonal { squares, moment, .. } => squares.iter().chain(moment).all(|v| *v == 0.0),
        };
        if self.count() == 0 && !nothing {
            return Err(ProtocolError::Evidence("numbers without observations"));
        }
        if self.count() > 1 << 53 {
            return Err(ProtocolError::Evidence("more observations than can be counted"));
        }
        Ok(())
    }
}

impl NetworkState {
    /// From its numbers: `matrix` and `vector` are the inverse of V, packed, and the estimate, or for a
    /// diagonal V and the moment. An error if they do not fit together.
    pub fn from_parts(
        count: u64,
        matrix: Vec<f64>,
        vector: Vec<f64>,
        weights: Vec<f64>,
        alpha: f64,
        widths: Vec<Arc<Vec<f64>>>,
    ) -> Result<Self, ProtocolError> {
        let parameters = vector.len();
        let kind = match matrix.len() {
            length if length == parameters => Precondition::Diagonal,
            length if length == packed(parameters) => Precondition::Full,
            _ => return Err(ProtocolError::Model("the matrix and the vector have different dimensions")),
        };
        let length = matrix.len();
        let statistic = Statistic::from_parts(kind, matrix, vector, 0.0)
            .ok_or(ProtocolError::Model("its matrix is not that of any observations"))?;
        if !(0.0..=1.0).contains(&alpha) {
            return Err(ProtocolError::Model("its alpha does not lie between 0 and 1"));
        }
        // Private rounds share weights without statistics.
        let fits = weights.is_empty() || parameters == 0 || weights.len() == parameters;
        if !fits || !weights.iter().all(|v| v.is_finite()) {
            return Err(ProtocolError::Model("its parameters are not those of a network"));
        }
        let fits = |width: &Arc<Vec<f64>>| width.len() == length && width.iter().all(|v| v.is_finite());
        if !widths.iter().all(fits) {
            return Err(ProtocolError::Model("a width does not fit the matrix"));
        }
        Ok(Self { count, statistic, weights, alpha, widths })
    }

    /// p₀: how many parameters the network has.
    #[must_use]
    pub const fn parameters(&self) -> usize {
        self.statistic.vector.len()
    }

    /// The inverse of V = λI + Σφφᵀ, packed; of a diagonal, V.
    #[must_use]
    pub fn matrix(&self) -> &[f64] {
        self.statistic.told()
    }

    /// V⁻¹Σφy; of a diagonal, Σφy.
    #[must_use]
    pub fn vector(&self) -> &[f64] {
        &self.statistic.vector
    }
}
