//! The coordinator of private FN-UCB: it averages updates with noise, shrinks the average by what noise explains, and tells all
//! agents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;

use super::fn_ucb::FnUcb;
use super::message::{NetworkModel, NetworkPart, NetworkState, WidthSum};
use super::network::{Layout, Network};
use super::update_agent::no_updates;
use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::exchange::JoinPolicy;
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::message::{Downlink, Outgoing, Uplink};
use crate::wire::{self, v1};

const NAME: &str = "fn-ucb";

/// The coordinator of rounds that collect updates with noise. It never sees statistics.
#[derive(Clone, Debug)]
pub(crate) struct UpdateRounds {
    config: FnUcb,
    layout: Layout,
    /// The variance of the noise in every number of an update.
    variance: f64,
    version: Version,
    /// What all agents are told; its weights are differences from θ₀, which the coordinator does not know.
    shared: Arc<NetworkState>,
    /// A fingerprint of θ₀, as the first part of a round named it; not set before.
    start: Option<u64>,
    /// How many interactions of each agent's life are in the shared state.
    seats: BTreeMap<AgentId, u64>,
    round: RoundId,
    open: Option<OpenUpdateRound>,
}

/// A round that has begun and not ended.
#[derive(Clone, Debug)]
struct OpenUpdateRound {
    opened: Tick,
    waiting: BTreeSet<AgentId>,
    parts: BTreeMap<AgentId, NetworkPart>,
}

impl UpdateRounds {
    pub(crate) fn new(config: &FnUcb, dimension: usize) -> Self {
        let sigma = config.update_budget(dimension).map_or(0.0, |budget| budget.cluster.sigma);
        Self {
            layout: config.neural.layout(dimension),
            config: config.clone(),
            variance: sigma * sigma,
            version: Version(0),
            shared: Arc::new(no_updates()),
            start: None,
            seats: BTreeMap::new(),
            round: RoundId(0),
            open: None,
        }
    }

    fn begin(&mut self, now: Tick, observations: u64) -> Vec<Outgoing> {
        if self.open.is_some() {
            return Vec::new();
        }
        self.round = RoundId(self.round.0 + 1);
        let waiting = self.seats.keys().copied().collect();
        self.open = Some(OpenUpdateRound { opened: now, waiting, parts: BTreeMap::new() });
        vec![Outgoing::to_everyone(Downlink::NetworkCollect { round: self.round, observations })]
    }

    fn check(&self, part: &NetworkPart) -> Result<(), ProtocolError> {
        check_update(self.layout, self.start, part)
    }

    /// Adds an agent's part to the open round, or refuses it unchanged.
    fn add(&mut self, from: AgentId, part: NetworkPart) -> Result<Vec<Outgoing>, ProtocolError> {
        self.check(&part)?;
        let (round, open_round) = (part.round, self.round);
        let waits = |open: &&mut OpenUpdateRound| round == open_round && open.waiting.contains(&from);
        let Some(open) = self.open.as_mut().filter(waits) else {
            // What comes too late for its round counts for nothing: its agent hears in the model that it did not.
            return if round > self.round { Err(ProtocolError::Round(round)) } else { Ok(Vec::new()) };
        };
        if part.sum.is_none() || part.networks() > 0 {
            self.start.get_or_insert(part.start);
        }
        open.waiting.remove(&from);
        open.parts.insert(from, part);
        Ok(self.go_on())
    }

    /// Ends the open round if it does not wait for any agent.
    fn go_on(&mut self) -> Vec<Outgoing> {
        match self.open.take_if(|open| open.waiting.is_empty()) {
            Some(open) if open.parts.values().any(|part| !part.weights.is_empty()) => self.commit(&open),
            Some(_) => vec![Outgoing::to_everyone(Downlink::Abort { round: self.round })],
            None => Vec::new(),
        }
    }

    /// Adds the mean of the updates, as much of it as noise does not explain, and tells all agents.
    fn commit(&mut self, open: &OpenUpdateRound) -> Vec<Outgoing> {
        let n = open.parts.values().map(NetworkPart::networks).fold(0, u64::saturating_add) as f64;
        let mut mean = vec![0.0; self.layout.parameters()];
        for part in open.parts.values() {
            // A relay's mean counts as often as there are updates in it. The noise of each is in the sum once.
            let networks = part.networks() as f64;
            mean.iter_mut().zip(&part.weights).for_each(|(sum, value)| *sum += value * networks / n);
        }
        let factor = kept(&mean, self.variance / n);
        let mut weights = self.shared.weights.clone();
        weights.resize(mean.len(), 0.0);
        weights.iter_mut().zip(&mean).for_each(|(weight, move_by)| *weight += factor * move_by);
        let mut count = self.shared.count;
        for (agent, part) in &open.parts {
            count = count.saturating_add(part.evidence.count());
            if let Some(contained) = self.seats.get_mut(agent) {
                *contained = contained.saturating_add(part.evidence.count());
            }
        }
        let next = NetworkState { count, weights, ..(*self.shared).clone() };
        self.shared = Arc::new(next);
        self.version = self.version.next();
        self.seats.keys().map(|&agent| Outgoing::to(agent, self.told(agent, false))).collect()
    }

    fn told(&self, agent: AgentId, authoritative: bool) -> Downlink {
        Downlink::Network(NetworkModel {
            authoritative,
            version: self.version,
            contains: self.seats.get(&agent).copied().unwrap_or(0),
            shared: Arc::clone(&self.shared),
        })
    }

    /// An agent's life is over: it is not waited for, and what it said for an open round does not count.
    fn bereave(&mut self, agent: AgentId) -> Vec<Outgoing> {
        let Some(open) = &mut self.open else { return Vec::new() };
        open.waiting.remove(&agent);
        open.parts.remove(&agent);
        self.go_on()
    }
}

/// `Ok` if a part can be an update of a network that starts from parameters with the fingerprint `start`, or a relay's mean of
/// several.
pub(super) fn check_update(
    layout: Layout,
    start: Option<u64>,
    part: &NetworkPart,
) -> Result<(), ProtocolError> {
    // A relay whose children have nothing to share knows of no start.
    let knows_start = part.sum.is_none() || part.networks() > 0;
    if knows_start && start.is_some_and(|start| start != part.start) {
        return Err(ProtocolError::Model("its network started from other parameters"));
    }
    if let Some(sum) = &part.sum {
        let alone = sum.seen == 0 && sum.widths == WidthSum::default() && sum.networks <= 1 << 53;
        if !alone || (sum.networks == 0) != part.weights.is_empty() {
            return Err(ProtocolError::Model("its mean is over other updates than it says"));
        }
    }
    part.evidence.check()?;
    if part.evidence.parameters() != 0 {
        return Err(ProtocolError::Evidence("statistics stay with agents here"));
    }
    if part.weights.is_empty() {
        let silent = part.evidence.count() == 0 && !part.trained;
        return if silent { Ok(()) } else { Err(ProtocolError::Evidence("observations without an update")) };
    }
    let update = Network::from_parameters(layout, &part.weights);
    let sound = update.is_some_and(|update| update.is_sound());
    if sound { Ok(()) } else { Err(ProtocolError::Model("its update is not one of a network")) }
}

/// The part of a mean update to keep, where noise has this variance in each of its numbers: James and Stein's factor. Near 0 the
/// mean is as long as noise alone would be.
fn kept(mean: &[f64], variance: f64) -> f64 {
    let length: f64 = mean.iter().map(|v| v * v).sum();
    if length > 0.0 { (1.0 - mean.len() as f64 * variance / length).max(0.0) } else { 0.0 }
}

impl Coordinator for UpdateRounds {
    fn join(&mut self, _now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        let known = self.seats.contains_key(&agent);
        self.seats.entry(agent).or_insert(0);
        if entrance == Entrance::Returning {
            let told = Outgoing::to(agent, self.told(agent, true));
            // It forgets the round it was in.
            return [told].into_iter().chain(self.bereave(agent)).collect();
        }
        let changed = if known { self.bereave(agent) } else { Vec::new() };
        self.seats.insert(agent, 0);
        let told = self.version > Version(0) && (known || self.config.rounds.join == JoinPolicy::PullOnJoin);
        let model = told.then(|| Outgoing::to(agent, self.told(agent, false)));
        model.into_iter().chain(changed).collect()
    }

    fn leave(&mut self, _now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.seats.remove(&agent);
        self.bereave(agent)
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        if !self.seats.contains_key(&from) {
            return Err(ProtocolError::UnknownAgent(from));
        }
        match message {
            Uplink::NetworkRequest { observations } => Ok(self.begin(now, observations)),
            Uplink::NetworkPart(part) => self.add(from, part),
            other => Err(ProtocolError::Unexpected { algorithm: NAME, message: other.kind() }),
        }
    }

    fn tick(&mut self, now: Tick) -> Vec<Outgoing> {
        self.tick_without(now, &BTreeSet::new())
    }

    fn tick_without(&mut self, now: Tick, absent: &BTreeSet<AgentId>) -> Vec<Outgoing> {
        let due = self.deadline().is_some_and(|deadline| deadline <= now);
        let Some(open) = self.open.as_mut().filter(|_| due) else { return Vec::new() };
        let missing = std::mem::take(&mut open.waiting);
        let there = self.seats.len().saturating_sub(missing.intersection(absent).count());
        if (open.parts.len() as f64) < self.config.rounds.quorum * there as f64 {
            open.parts.clear();
        }
        self.go_on()
    }

    fn deadline(&self) -> Option<Tick> {
        Some(self.open.as_ref()?.opened.after(self.config.rounds.round_deadline?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.open.as_ref().map(|open| &open.waiting)
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        CoordinatorView {
            version: self.version,
            observations: self.shared.count,
            information: 0.0,
            agents: self.seats.len(),
            evidence: None,
        }
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        let uploads = *self.seats.get(&agent)?;
        Some(AgentStanding { uploads, version: self.version, information: 0.0 })
    }

    fn save(&self) -> Vec<u8> {
        let seat = |(agent, contained): (&AgentId, &u64)| v1::NetworkSeatState {
            agent: agent.0,
            contained: *contained,
            ..Default::default()
        };
        let mut state = v1::NetworkCoordinatorState {
            version: self.version.0,
            count: self.shared.count,
            weights: self.shared.weights.clone(),
            start: self.start,
            seats: self.seats.iter().map(seat).collect(),
            round: self.round.0,
            ..Default::default()
        };
        if let Some(open) = &self.open {
            state.open = true;
            state.opened = open.opened.0;
            state.waiting = open.waiting.iter().map(|agent| agent.0).collect();
            let part = |(agent, part): (&AgentId, &_)| v1::NetworkPartState {
                agent: agent.0,
                part: Some(wire::part_to_wire(part)),
            };
            state.parts = open.parts.iter().map(part).collect();
        }
        state.encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::NetworkCoordinatorState = wire::decode(state)?;
        let invalid = |reason| DecodeError::invalid("network", reason);
        // There are weights from the first round on.
        let weights = if state.version > 0 { self.layout.parameters() } else { 0 };
        if state.weights.len() != weights {
            return Err(invalid("it does not fit this federation"));
        }
        let none = Vec::new;
        let shared = NetworkState::from_parts(state.count, none(), none(), state.weights, 0.0, Vec::new())
            .map_err(|_| invalid("its numbers do not fit together"))?;
        let mut open = None;
        if state.open {
            let mut parts = BTreeMap::new();
            for part in state.parts {
                let own = wire::part_from_wire(part.part.unwrap_or_default())?;
                self.check(&own).map_err(|_| DecodeError::invalid("round", "a part does not fit"))?;
                parts.insert(AgentId(part.agent), own);
            }
            let waiting = state.waiting.into_iter().map(AgentId).collect();
            open = Some(OpenUpdateRound { opened: Tick(state.opened), waiting, parts });
        }
        self.version = Version(state.version);
        self.shared = Arc::new(shared);
        self.seats = state.seats.iter().map(|seat| (AgentId(seat.agent), seat.contained)).collect();
        (self.start, self.round, self.open) = (state.start, RoundId(state.round), open);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
