//! A round of the parent as it goes on below a relay: parts are collected, then networks, as often as it averages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::NetworkRelay;
use crate::error::ProtocolError;
use crate::exchange::shares::SentParts;
use crate::ids::{AgentId, RoundId, Tick};
use crate::message::{Downlink, NetworkPart, NetworkSum, Outgoing, Uplink, Weights, WidthSum};
use crate::neural::inverse::Column;
use crate::neural::open_round::{NetworkMean, OpenNetworkRound, check_network, check_part};
use crate::neural::rows::joined;
use crate::neural::seat_width::{add, sum_of_agents};
use crate::neural::statistic::{Precondition, Statistic};
use crate::neural::update_rounds::check_update;
use crate::relay::Passed;

/// A round of the parent, from its beginning to its end.
#[derive(Clone, Debug)]
pub(super) struct OpenNetworkRelayRound {
    pub(super) round: OpenNetworkRound,
    /// The part was sent to the parent.
    pub(super) answered: bool,
    /// The parent waits for the part, or for a network.
    pub(super) asked: bool,
    /// The parent goes on without this relay.
    pub(super) void: bool,
    /// Whether the parent knows, or learns with the part, that an agent below this relay has new observations already.
    pub(super) hurried: bool,
    /// Children whose parts were sent and whose lives are over.
    pub(super) departed: BTreeSet<AgentId>,
    /// The statistics of children that are agents, as they are with their parts.
    pub(super) after: BTreeMap<AgentId, Statistic>,
    /// The sum of the inverses of all children that are agents, as it is with their parts.
    pub(super) inverses_after: Option<Vec<f64>>,
}

impl OpenNetworkRelayRound {
    fn new(opened: Tick, waiting: BTreeSet<AgentId>) -> Self {
        Self {
            round: OpenNetworkRound::new(opened, waiting),
            answered: false,
            asked: true,
            void: false,
            hurried: false,
            departed: BTreeSet::new(),
            after: BTreeMap::new(),
            inverses_after: None,
        }
    }

    /// How many observations of each child the parent was sent.
    pub(super) fn sent(&self) -> SentParts {
        let mut sent = SentParts::default();
        for (child, part) in &self.round.parts {
            let count = part.evidence.count();
            if self.departed.contains(child) {
                sent.gone = sent.gone.saturating_add(count);
            } else {
                sent.parts.insert(*child, count);
            }
        }
        sent
    }
}

impl NetworkRelay {
    /// Begins a round of the parent here. If the round is open already, an agent elsewhere has new observations, and children are
    /// asked to answer at once.
    pub(super) fn collect(&mut self, now: Tick, parent_round: RoundId, observations: u64) -> Passed {
        if parent_round < self.parent_round {
            return Passed::default();
        }
        if parent_round == self.parent_round {
            let waits = self.open.as_ref().filter(|open| open.asked && open.round.step == 0);
            let down = waits.map_or_else(Vec::new, |open| open.round.hurry(self.round));
            return Passed { up: Vec::new(), down };
        }
        self.parent_round = parent_round;
        self.round = RoundId(self.round.0 + 1);
        let waiting = self.shares.children.keys().copied().collect();
        self.open = Some(OpenNetworkRelayRound::new(now, waiting));
        let ask = Outgoing::to_everyone(Downlink::NetworkCollect { round: self.round, observations });
        Passed { up: self.go_on(), down: vec![ask] }
    }

    /// A child that has answered has news: who is still waited for answers with what there is, here and elsewhere.
    pub(super) fn hurry(&mut self, observations: u64) -> Passed {
        let round = self.round;
        let Some(open) = self.open.as_mut().filter(|open| !open.void && open.round.step == 0) else {
            return Passed::default();
        };
        let tells = open.answered && !open.hurried;
        open.hurried = true;
        let up = tells.then_some(Uplink::NetworkRequest { observations }).into_iter().collect();
        Passed { up, down: open.round.hurry(round) }
    }

    /// What comes too late for its round counts for nothing: the child hears in the model that it did not.
    fn late(&self, round: RoundId) -> Result<Passed, ProtocolError> {
        if round > self.round { Err(ProtocolError::Round(round)) } else { Ok(Passed::default()) }
    }

    pub(super) fn check(&self, part: &NetworkPart) -> Result<(), ProtocolError> {
        if self.is_private() {
            check_update(self.layout, self.start, part)
        } else {
            check_part(&self.config, self.layout, self.start, part)
        }
    }

    /// Adds a child's part to the open round, or refuses it unchanged.
    pub(super) fn add(&mut self, from: AgentId, part: NetworkPart) -> Result<Passed, ProtocolError> {
        self.check(&part)?;
        let (round, current) = (part.round, self.round);
        let waits = |open: &&mut OpenNetworkRelayRound| {
            round == current && !open.answered && open.round.waiting.contains(&from)
        };
        let Some(open) = self.open.as_mut().filter(waits) else { return self.late(round) };
        if part.sum.is_none() || part.networks() > 0 {
            self.start.get_or_insert(part.start);
        }
        let hurries = part.sum.as_ref().is_some_and(|sum| sum.hurried);
        open.round.insert(from, part);
        let down = if hurries { self.hurry(0).down } else { Vec::new() };
        Ok(Passed { up: self.go_on(), down })
    }

    /// Adds a child's network to the average under way, or refuses it unchanged.
    pub(super) fn add_network(&mut self, from: AgentId, answer: Weights) -> Result<Passed, ProtocolError> {
        check_network(self.layout, &answer.weights)?;
        let (round, current) = (answer.round, self.round);
        let waits = |open: &&mut OpenNetworkRelayRound| {
            let step = open.round.step;
            round == current && step > 0 && step == answer.step && open.round.waiting.contains(&from)
        };
        let Some(open) = self.open.as_mut().filter(waits) else { return self.late(round) };
        open.round.waiting.remove(&from);
        open.round.networks.insert(from, Arc::unwrap_or_clone(answer.weights));
        Ok(Passed { up: self.go_on(), down: Vec::new() })
    }

    /// The parent has averaged the networks: all children that have one train on from there.
    pub(super) fn pass_average(&mut self, now: Tick, average: &Weights) -> Result<Passed, ProtocolError> {
        check_network(self.layout, &average.weights)?;
        let is_open = average.round == self.parent_round;
        let goes_on = |open: &&mut OpenNetworkRelayRound| is_open && open.answered && !open.void;
        let Some(open) = self.open.as_mut().filter(goes_on) else { return Ok(Passed::default()) };
        let children = &self.shares.children;
        let asked = |child: &&AgentId| children.contains_key(child) && !open.departed.contains(child);
        let waiting = open.round.networks.keys().filter(asked).copied().collect();
        (open.round.step, open.round.opened, open.asked) = (average.step, now, true);
        open.round.waiting = waiting;
        let message = Downlink::Average(Weights { round: self.round, ..average.clone() });
        let down = open.round.waiting.iter().map(|child| Outgoing::to(*child, message.clone())).collect();
        Ok(Passed { up: self.go_on(), down })
    }

    /// Answers the parent if it waits and no child is waited for.
    fn go_on(&mut self) -> Vec<Uplink> {
        let is_done =
            |open: &OpenNetworkRelayRound| open.asked && open.round.waiting.is_empty() && !open.void;
        let Some(mut open) = self.open.take_if(|open| is_done(open)) else { return Vec::new() };
        open.asked = false;
        let shares = &self.shares.children;
        let mean = match self.is_private() {
            true => open.round.plain_mean(),
            false => open.round.mean(|child| shares.get(child).copied().unwrap_or(0)),
        };
        let said = if open.answered {
            // Children that are gone, or did not answer, are counted with what they said last.
            let (round, step, weights) = (self.parent_round, open.round.step, Arc::new(mean.weights));
            Uplink::Weights(Weights { round, step, weights })
        } else {
            open.answered = true;
            Uplink::NetworkPart(self.sum_up(&mut open, mean))
        };
        self.open = Some(open);
        vec![said]
    }

    /// The relay's part: what its children's parts add up to.
    fn sum_up(&self, open: &mut OpenNetworkRelayRound, mean: NetworkMean) -> NetworkPart {
        let (kind, parameters) = match self.is_private() {
            true => (Precondition::Diagonal, 0),
            false => (self.config.neural.statistic, self.layout.parameters()),
        };
        let widths = if self.is_private() { WidthSum::default() } else { self.widths_after(open) };
        let parts = || open.round.parts.values();
        let evidence = joined(kind, parts().map(|part| &part.evidence), parameters);
        let NetworkMean { weights, networks, seen } = mean;
        NetworkPart {
            round: self.parent_round,
            start: if networks > 0 { self.start.unwrap_or(0) } else { 0 },
            evidence,
            weights,
            alpha: parts().map(|part| part.alpha).fold(1.0, f64::min),
            trained: parts().any(|part| part.trained),
            sum: Some(NetworkSum { networks, seen, widths, hurried: open.hurried }),
        }
    }

    /// The sum of the inverses of all agents below this relay, as they are with the parts of the open round.
    fn widths_after(&self, open: &mut OpenNetworkRelayRound) -> WidthSum {
        let mut subtracted: Vec<Column> = Vec::new();
        for (child, part) in &open.round.parts {
            let seat = self.widths.get(child).filter(|_| part.sum.is_none() && part.evidence.count() > 0);
            if let Some(seat) = seat {
                let mut own = seat.own.clone();
                add(&mut own, &part.evidence, |column| subtracted.push(column.clone()));
                open.after.insert(*child, own);
            }
        }
        let (mut agents, mut below) = (Vec::new(), Vec::new());
        for (child, seat) in &self.widths {
            let part = open.round.parts.get(child);
            match part.map_or(seat.below.as_ref(), |part| part.sum.as_ref().map(|sum| &sum.widths)) {
                Some(sum) => below.push(sum),
                None => agents.push(open.after.get(child).unwrap_or(&seat.own)),
            }
        }
        let count = agents.len() as u64;
        let inverses = sum_of_agents(self.inverses.as_deref(), &subtracted, agents.into_iter());
        let mut sum = WidthSum { agents: count, entries: inverses.clone() };
        for other in below {
            sum.agents = sum.agents.saturating_add(other.agents);
            sum.entries.resize(sum.entries.len().max(other.entries.len()), 0.0);
            sum.entries.iter_mut().zip(&other.entries).for_each(|(sum, entry)| *sum += entry);
        }
        open.inverses_after = Some(inverses);
        sum
    }

    /// A child is left out of the open round: its life `ends`, or it has forgotten the round. What the parent has of it
    /// stays there.
    pub(super) fn leave_out(&mut self, child: AgentId, ends: bool) -> Passed {
        let Some(open) = &mut self.open else { return Passed::default() };
        if !open.answered {
            open.round.forget(child);
        } else {
            open.round.waiting.remove(&child);
            if ends && open.round.parts.contains_key(&child) {
                open.departed.insert(child);
            }
        }
        Passed { up: self.go_on(), down: Vec::new() }
    }

    /// The children that are waited for have not answered in time, or are `absent`.
    pub(super) fn pass_deadline(&mut self, absent: &BTreeSet<AgentId>) -> Passed {
        let children = self.shares.children.len();
        let Some(open) = &mut self.open else { return Passed::default() };
        let missing = std::mem::take(&mut open.round.waiting);
        let there = children.saturating_sub(missing.intersection(absent).count());
        let (answered, quorum) = (open.round.parts.len(), self.config.rounds.quorum);
        if !open.answered && (answered == 0 || (answered as f64) < quorum * there as f64) {
            // Without a quorum of its children a relay does not answer, as they would not: the parent goes on without it.
            open.void = true;
        }
        Passed { up: self.go_on(), down: Vec::new() }
    }
}
