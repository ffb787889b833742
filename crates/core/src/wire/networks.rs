//! Encodes and decodes the messages of the neural family: parts of rounds, weights and shared models.

use std::sync::Arc;

use super::{are_pivots, required, v1};
use crate::error::DecodeError;
use crate::ids::{RoundId, Version};
use crate::neural::{
    NetworkEvidence, NetworkModel, NetworkPart, NetworkState, NetworkSum, Weights, WidthSum,
};
use crate::parcel::LowRank;

pub(super) fn weights_to_wire(weights: &Weights) -> v1::Weights {
    v1::Weights { round: weights.round.0, step: weights.step, weights: weights.weights.to_vec() }
}

pub(super) fn weights_from_wire(weights: v1::Weights) -> Weights {
    Weights { round: RoundId(weights.round), step: weights.step, weights: Arc::new(weights.weights) }
}

pub(crate) fn part_to_wire(part: &NetworkPart) -> v1::NetworkPart {
    let (count, moment, matrix) = match &part.evidence {
        NetworkEvidence::Full(factor) => {
            let (pivots, columns) = (factor.pivots.clone(), factor.columns.clone());
            let matrix = v1::network_part::Matrix::LowRank(v1::LowRank { pivots, columns });
            (factor.count, factor.moment.clone(), matrix)
        }
        NetworkEvidence::Diagonal { squares, moment, count } => {
            let diagonal = v1::Diagonal { entries: squares.clone() };
            (*count, moment.clone(), v1::network_part::Matrix::Diagonal(diagonal))
        }
    };
    v1::NetworkPart {
        round: part.round.0,
        start: part.start,
        count,
        moment,
        weights: part.weights.clone(),
        alpha: part.alpha,
        trained: part.trained,
        matrix: Some(matrix),
        sum: part.sum.as_ref().map(|sum| v1::NetworkSum {
            networks: sum.networks,
            seen: sum.seen,
            widths: Some(width_sum_to_wire(&sum.widths)),
            hurried: sum.hurried,
        }),
    }
}

pub(crate) fn width_sum_to_wire(sum: &WidthSum) -> v1::WidthSum {
    v1::WidthSum { agents: sum.agents, entries: sum.entries.clone() }
}

pub(crate) fn width_sum_from_wire(sum: v1::WidthSum) -> WidthSum {
    WidthSum { agents: sum.agents, entries: sum.entries }
}

pub(crate) fn part_from_wire(part: v1::NetworkPart) -> Result<NetworkPart, DecodeError> {
    let (moment, count) = (part.moment, part.count);
    let evidence = match required(part.matrix)? {
        v1::network_part::Matrix::LowRank(v1::LowRank { pivots, columns }) => {
            let d = moment.len();
            if !are_pivots(d, &pivots) || columns.len() != LowRank::column_scalars(d, pivots.len()) {
                return Err(DecodeError::invalid("evidence", "the factor does not fit the vector"));
            }
            NetworkEvidence::Full(LowRank::new(pivots, columns, moment, count))
        }
        v1::network_part::Matrix::Diagonal(v1::Diagonal { entries: squares }) => {
            NetworkEvidence::Diagonal { squares, moment, count }
        }
    };
    evidence.check().map_err(|_| DecodeError::invalid("evidence", "no observations give these numbers"))?;
    Ok(NetworkPart {
        round: RoundId(part.round),
        start: part.start,
        evidence,
        weights: part.weights,
        alpha: part.alpha,
        trained: part.trained,
        sum: part.sum.map(|sum| NetworkSum {
            networks: sum.networks,
            seen: sum.seen,
            widths: width_sum_from_wire(sum.widths.unwrap_or_default()),
            hurried: sum.hurried,
        }),
    })
}

pub(crate) fn model_to_wire(model: &NetworkModel) -> v1::NetworkModel {
    let shared = &model.shared;
    v1::NetworkModel {
        authoritative: model.authoritative,
        version: model.version.0,
        contains: model.contains,
        count: shared.count,
        matrix: shared.matrix().to_vec(),
        vector: shared.vector().to_vec(),
        weights: shared.weights.clone(),
        alpha: shared.alpha,
        widths: shared.widths.iter().map(|entries| v1::Diagonal { entries: entries.to_vec() }).collect(),
    }
}

pub(crate) fn model_from_wire(model: v1::NetworkModel) -> Result<NetworkModel, DecodeError> {
    let widths = model.widths.into_iter().map(|width| std::sync::Arc::new(width.entries)).collect();
    let shared =
        NetworkState::from_parts(model.count, model.matrix, model.vector, model.weights, model.alpha, widths)
            .map_err(|_| DecodeError::invalid("network", "its numbers do not fit together"))?;
    Ok(NetworkModel {
        authoritative: model.authoritative,
        version: Version(model.version),
        contains: model.contains,
        shared: Arc::new(shared),
    })
}
