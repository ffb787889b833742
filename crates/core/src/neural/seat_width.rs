//! What a coordinator or a relay of networks knows of the width of one that joined it: an agent's own statistic, or for a relay
//! the sum of the inverses of all agents below it.

use super::downdate::subtracted;
use super::inverse::Column;
use super::message::{NetworkEvidence, NetworkPart, WidthSum};
use super::rows::unwrap;
use super::statistic::Statistic;
use crate::error::DecodeError;
use crate::wire::{self, v1};

/// The width of one child.
#[derive(Clone, Debug)]
pub(crate) struct SeatWidth {
    /// The statistic of everything that came from an agent.
    pub(crate) own: Statistic,
    /// Of a relay, the sum that its newest part in the shared state named.
    pub(crate) below: Option<WidthSum>,
}

impl SeatWidth {
    /// The width of a child of which nothing is known; it counts as an agent without observations.
    pub(crate) const fn new(own: Statistic) -> Self {
        Self { own, below: None }
    }

    /// Adds a part that is in the shared state now, and says what is subtracted from the inverse of a whole matrix.
    pub(crate) fn take_in(&mut self, part: &NetworkPart, tell: impl FnMut(&Column)) {
        self.below = part.sum.as_ref().map(|sum| sum.widths.clone());
        if self.below.is_none() && part.evidence.count() > 0 {
            add(&mut self.own, &part.evidence, tell);
        }
    }

    pub(crate) fn save(&self, agent: u64, contained: u64) -> v1::NetworkSeatState {
        let below = self.below.as_ref().map(wire::width_sum_to_wire);
        v1::NetworkSeatState { agent, contained, own: Some(self.own.save()), below }
    }

    /// The width that was saved; `none` is a statistic without observations.
    pub(crate) fn restored(state: v1::NetworkSeatState, none: &Statistic) -> Result<Self, DecodeError> {
        let own = none.restored(state.own.unwrap_or_default())?;
        let below = state.below.map(wire::width_sum_from_wire);
        let length = Statistic::scalars(own.kind(), own.vector.len());
        let fits = |sum: &WidthSum| {
            let expected = if sum.agents == 0 { 0 } else { length };
            sum.entries.len() == expected && sum.entries.iter().all(|v| v.is_finite())
        };
        if below.as_ref().is_none_or(fits) {
            Ok(Self { own, below })
        } else {
            Err(DecodeError::invalid("widths", "they do not fit the network"))
        }
    }
}

/// The sum of the inverses of agents, lowered by what was subtracted from single ones or else added up anew.
pub(crate) fn sum_of_agents<'a>(
    before: Option<&[f64]>,
    news: &[Column],
    agents: impl ExactSizeIterator<Item = &'a Statistic>,
) -> Vec<f64> {
    match before.filter(|_| super::widths::is_worth_lowering(news.len(), agents.len())) {
        Some(before) => subtracted(before, news),
        None => Statistic::weighted_inverses(agents, 1.0),
    }
}

/// The mean of the inverses of all agents, those below relays among them; nothing if there are none.
pub(crate) fn mean_of_all<'a>(seats: impl Iterator<Item = &'a SeatWidth>) -> Option<Vec<f64>> {
    let seats: Vec<&SeatWidth> = seats.collect();
    let count = |seat: &&SeatWidth| seat.below.as_ref().map_or(1, |sum| sum.agents);
    let agents = seats.iter().map(count).fold(0_u64, u64::saturating_add);
    if agents == 0 {
        return None;
    }
    let share = 1.0 / agents as f64;
    let own: Vec<&Statistic> =
        seats.iter().filter(|seat| seat.below.is_none()).map(|seat| &seat.own).collect();
    let mut mean = Statistic::weighted_inverses(own.into_iter(), share);
    for sum in seats.iter().filter_map(|seat| seat.below.as_ref()) {
        mean.resize(mean.len().max(sum.entries.len()), 0.0);
        mean.iter_mut().zip(&sum.entries).for_each(|(mean, entry)| *mean += share * entry);
    }
    Some(mean)
}

/// Adds evidence that was checked to a statistic, and says what is subtracted from the inverse of a whole matrix.
pub(crate) fn add(statistic: &mut Statistic, evidence: &NetworkEvidence, tell: impl FnMut(&Column)) {
    match evidence {
        NetworkEvidence::Full(factor) => {
            let rows = unwrap(factor).expect("it was checked when it came");
            statistic.learn_all(&rows, tell);
        }
        NetworkEvidence::Diagonal { squares, moment, .. } => {
            statistic.add_diagonal(squares, moment);
        }
    }
}

/// Adds the evidence of several agents, which was checked, to a statistic.
pub(crate) fn add_all<'e>(statistic: &mut Statistic, parts: impl Iterator<Item = &'e NetworkEvidence>) {
    let mut rows = Vec::new();
    for evidence in parts {
        match evidence {
            NetworkEvidence::Full(factor) => {
                rows.extend(unwrap(factor).expect("it was checked when it came"));
            }
            NetworkEvidence::Diagonal { .. } => add(statistic, evidence, |_| ()),
        }
    }
    statistic.learn_all(&rows, |_| ());
}
