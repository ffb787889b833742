//! What a coordinator or a relay of networks knows of the width of one that joined it: an agent's own statistic, or for a relay
//! the sum of the inverses of all agents below it.

use super::downdate::subtracted;
use super::inverse::Column;
use super::message::{NetworkEvidence, NetworkPart, WidthSum};
use super::rows::unwrap;
use super::statistic::Statistic;
use crate::error::DecodeError;
use crate::wire::{self, v1};
use crate::workers::{Piece, ThisThread, Workers, evenly, pieces_of};

/// What a number costs that has to come from memory, in multiplications.
const FROM_MEMORY: usize = 8;

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

/// Adds to every width the part of its child, and returns what is subtracted from inverses of whole matrices, in this order.
/// Workers take whole children, each some of them.
pub(crate) fn take_in_all(
    mut children: Vec<(&mut SeatWidth, &NetworkPart)>,
    workers: &dyn Workers,
) -> Vec<Column> {
    let take_in = |(seat, part): &mut (&mut SeatWidth, &NetworkPart)| {
        let mut told = Vec::new();
        seat.take_in(part, |column| told.push(column.clone()));
        told
    };
    let multiplications = children.iter().map(|(seat, _)| FROM_MEMORY * seat.own.held()).sum();
    let count = pieces_of(multiplications, workers);
    if count < 2 {
        return children.iter_mut().flat_map(take_in).collect();
    }
    let mut told = vec![Vec::new(); children.len()];
    let (mut rest, mut rest_told) = (children.as_mut_slice(), told.as_mut_slice());
    let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(count);
    for range in evenly(std::iter::repeat_n(1, rest.len()), count) {
        let (mine, later) = rest.split_at_mut(range.len());
        let (mine_told, later_told) = rest_told.split_at_mut(range.len());
        (rest, rest_told) = (later, later_told);
        pieces.push(Box::new(move || {
            mine.iter_mut().zip(mine_told).for_each(|(child, told)| *told = take_in(child));
        }));
    }
    workers.run(pieces);
    told.into_iter().flatten().collect()
}

/// The sum of the inverses of agents, lowered by what was subtracted from single ones or else added up anew.
pub(crate) fn sum_of_agents<'a>(
    before: Option<&[f64]>,
    news: &[Column],
    agents: impl ExactSizeIterator<Item = &'a Statistic>,
) -> Vec<f64> {
    match before.filter(|_| super::widths::is_worth_lowering(news.len(), agents.len())) {
        Some(before) => subtracted(before, news, &ThisThread),
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
            statistic.learn_all(&rows, tell, &ThisThread);
        }
        NetworkEvidence::Diagonal { squares, moment, .. } => {
            statistic.add_diagonal(squares, moment);
        }
    }
}

/// Adds the evidence of several agents, which was checked, to a statistic.
pub(crate) fn add_all<'e>(
    statistic: &mut Statistic,
    parts: impl Iterator<Item = &'e NetworkEvidence>,
    workers: &dyn Workers,
) {
    let mut rows = Vec::new();
    for evidence in parts {
        match evidence {
            NetworkEvidence::Full(factor) => {
                rows.extend(unwrap(factor).expect("it was checked when it came"));
            }
            NetworkEvidence::Diagonal { .. } => add(statistic, evidence, |_| ()),
        }
    }
    statistic.learn_all(&rows, |_| (), workers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RoundId;
    use crate::neural::rows::{Row, wrap};
    use crate::neural::sparse::Sparse;
    use crate::neural::statistic::Precondition;
    use crate::random::Seed;
    use crate::workers::tests::Backwards;

    /// More children than workers, as many and fewer, of which one has nothing to say.
    #[test]
    fn any_number_of_workers_gives_the_bits_of_one() {
        const P: usize = 740;
        let mut stream = Seed(1).stream("test", 0, 0);
        let mut row = || {
            let mut entry = |_| if stream.below(5) == 0 { stream.normal() } else { 0.0 };
            let phi = Sparse::from_dense(&(0..P).map(&mut entry).collect::<Vec<_>>());
            Row { phi, reward: 0.5 }
        };
        let mut part = |rows: usize| {
            let rows: Vec<Row> = (0..rows).map(|_| row()).collect();
            let evidence = wrap(Precondition::Full, &rows, P);
            let (round, start, weights, alpha) = (RoundId(1), 0, Vec::new(), 0.0);
            NetworkPart { round, start, evidence, weights, alpha, trained: false, sum: None }
        };
        let parts = [part(2), part(0), part(1), part(3), part(2)];
        let mut own = Statistic::new(Precondition::Full, P, 0.5);
        own.fold();
        for count in [2, 5] {
            let play = |workers: usize| {
                let mut seats = vec![SeatWidth::new(own.clone()); count];
                let told = take_in_all(seats.iter_mut().zip(&parts).collect(), &Backwards(workers));
                (seats.into_iter().map(|seat| seat.own).collect::<Vec<_>>(), told)
            };
            let alone = play(1);
            assert_eq!(alone.1.len(), if count == 2 { 2 } else { 8 });
            assert!(
                pieces_of(FROM_MEMORY * own.held() * count, &Backwards(2)) > 1,
                "it is enough to be shared"
            );
            for workers in [2, 3, 5] {
                assert!(play(workers) == alone, "{count} children, {workers} workers");
            }
        }
    }
}
