//! The coordinator of FN-UCB: it adds up what agents have seen, averages their networks and sends both to all
//! agents.

mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fn_agent::nothing_known;
use super::fn_ucb::FnUcb;
use super::inverse::Column;
use super::message::{NetworkModel, NetworkPart, NetworkState, Weights};
use super::network::Layout;
use super::open_round::{OpenNetworkRound, check_network, check_part};
use super::seat_width::{SeatWidth, add_all, mean_of_all, take_in_all};
use super::widths::{is_worth_lowering, lowered, widths};
use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::exchange::JoinPolicy;
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::message::{Downlink, Outgoing, Uplink};
use crate::workers::{ThisThread, Workers};

const NAME: &str = "fn-ucb";

/// The coordinator of rounds that end with statistics and a network.
#[derive(Clone, Debug)]
pub(crate) struct NetworkRounds {
    config: FnUcb,
    layout: Layout,
    version: Version,
    shared: Arc<NetworkState>,
    /// ln det(V/λ) of the shared statistic.
    information: f64,
    /// A fingerprint of the parameters that networks start from, as the first part of a round named it; not
    /// set before.
    start: Option<u64>,
    seats: BTreeMap<AgentId, NetworkSeat>,
    /// Whether the shared widths are the mean over exactly these seats.
    averaged: bool,
    round: RoundId,
    open: Option<OpenNetworkRound>,
    workers: Arc<dyn Workers>,
}

/// What the coordinator knows of an agent, or of a relay.
#[derive(Clone, Debug)]
struct NetworkSeat {
    /// How many observations of its life are in the shared statistic.
    contained: u64,
    width: SeatWidth,
}

impl NetworkRounds {
    pub(crate) fn new(config: &FnUcb, dimension: usize) -> Self {
        let layout = config.neural.layout(dimension);
        Self {
            shared: Arc::new(nothing_known(config, layout.parameters(), 1)),
            config: config.clone(),
            layout,
            version: Version(0),
            information: 0.0,
            start: None,
            seats: BTreeMap::new(),
            averaged: false,
            round: RoundId(0),
            open: None,
            workers: Arc::new(ThisThread),
        }
    }

    /// An agent asks for a round. If one is open that it has answered already, it has news while others are still waited
    /// for: those are asked to answer with what they have.
    fn begin(&mut self, now: Tick, from: AgentId, observations: u64) -> Vec<Outgoing> {
        if let Some(open) = &self.open {
            let hurries = open.step == 0 && open.parts.contains_key(&from);
            return if hurries { open.hurry(self.round) } else { Vec::new() };
        }
        if self.seats.is_empty() {
            return Vec::new();
        }
        self.round = RoundId(self.round.0 + 1);
        self.open = Some(OpenNetworkRound::new(now, self.seats.keys().copied().collect()));
        vec![Outgoing::to_everyone(Downlink::NetworkCollect { round: self.round, observations })]
    }

    /// Ends the open round without a result.
    fn abort(&mut self) -> Vec<Outgoing> {
        let Some(_) = self.open.take() else { return Vec::new() };
        vec![Outgoing::to_everyone(Downlink::Abort { round: self.round })]
    }

    /// What comes too late for its round counts for nothing: its agent hears in the model that it did not.
    fn late(&self, round: RoundId) -> Result<Vec<Outgoing>, ProtocolError> {
        if round > self.round { Err(ProtocolError::Round(round)) } else { Ok(Vec::new()) }
    }

    /// Adds an agent's part to the open round, or refuses it unchanged.
    fn add(&mut self, now: Tick, from: AgentId, part: NetworkPart) -> Result<Vec<Outgoing>, ProtocolError> {
        self.check(&part)?;
        let (round, open_round) = (part.round, self.round);
        let waits = |open: &&mut OpenNetworkRound| {
            round == open_round && open.step == 0 && open.waiting.contains(&from)
        };
        let Some(open) = self.open.as_mut().filter(waits) else { return self.late(round) };
        if part.networks() > 0 {
            self.start.get_or_insert(part.start);
        }
        // Below a relay that hurries, an agent has news while others are still waited for.
        let hurries = part.sum.as_ref().is_some_and(|sum| sum.hurried);
        open.insert(from, part);
        let hurried = if hurries { open.hurry(open_round) } else { Vec::new() };
        Ok(hurried.into_iter().chain(self.go_on(now)).collect())
    }

    fn check(&self, part: &NetworkPart) -> Result<(), ProtocolError> {
        check_part(&self.config, self.layout, self.start, part)
    }

    /// Adds an agent's network to the average under way, or refuses it unchanged.
    fn add_network(
        &mut self,
        now: Tick,
        from: AgentId,
        answer: Weights,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        check_network(self.layout, &answer.weights)?;
        let (round, open_round) = (answer.round, self.round);
        let waits = |open: &&mut OpenNetworkRound| {
            round == open_round && open.step == answer.step && open.step > 0 && open.waiting.contains(&from)
        };
        let Some(open) = self.open.as_mut().filter(waits) else { return self.late(round) };
        open.waiting.remove(&from);
        open.networks.insert(from, Arc::unwrap_or_clone(answer.weights));
        Ok(self.go_on(now))
    }

    /// Continues the open round if it does not wait for any agent. Returns what to send next, if anything.
    fn go_on(&mut self, now: Tick) -> Vec<Outgoing> {
        let Some(mut open) = self.open.take_if(|open| open.waiting.is_empty()) else { return Vec::new() };
        if open.networks.is_empty() {
            self.open = Some(open);
            return self.abort();
        }
        let average = open.mean(|agent| self.seats.get(agent).map_or(0, |seat| seat.contained)).weights;
        let trains = open.parts.values().any(|part| part.trained);
        if trains && open.step + 1 < self.config.averages() {
            open.step += 1;
            open.opened = now;
            open.waiting = open.networks.keys().copied().collect();
            let weights = Arc::new(average);
            let message = Downlink::Average(Weights { round: self.round, step: open.step, weights });
            let outgoing = if self.seats.keys().eq(&open.waiting) {
                vec![Outgoing::to_everyone(message)]
            } else {
                open.waiting.iter().map(|agent| Outgoing::to(*agent, message.clone())).collect()
            };
            // Who does not answer is counted with what it said last.
            self.open = Some(open);
            return outgoing;
        }
        self.commit(open, average)
    }

    /// Adds the result of a round to the shared state and returns the messages that tell all agents.
    fn commit(&mut self, open: OpenNetworkRound, average: Vec<f64>) -> Vec<Outgoing> {
        let mut statistic = self.shared.statistic.clone();
        let before = statistic.information;
        let news = open.parts.values().map(|part| &part.evidence).filter(|evidence| evidence.count() > 0);
        add_all(&mut statistic, news, &*self.workers);
        statistic.fold_on(&*self.workers);
        if !statistic.is_sound() {
            // Nothing usable came out: the last state stays, and nothing is lost.
            self.open = Some(open);
            return self.abort();
        }
        let mut news = Vec::with_capacity(open.parts.len());
        for (agent, seat) in &mut self.seats {
            news.extend(open.parts.get(agent).map(|part| (&mut seat.width, part)));
        }
        let subtracted = take_in_all(news, &*self.workers);
        self.information += statistic.information - before;
        statistic.information = 0.0;
        let mut count = self.shared.count;
        for (agent, part) in &open.parts {
            count += part.evidence.count();
            if let Some(seat) = self.seats.get_mut(agent) {
                seat.contained += part.evidence.count();
            }
        }
        let alpha = open.parts.values().map(|part| part.alpha).fold(1.0, f64::min);
        self.shared = Arc::new(NetworkState {
            count,
            statistic,
            weights: average,
            alpha,
            widths: self.renewed_widths(&subtracted),
        });
        self.version = self.version.next();
        self.seats.keys().map(|&agent| Outgoing::to(agent, self.told(agent, false))).collect()
    }

    /// The widths after these vectors were subtracted from the seats' inverses.
    fn renewed_widths(&mut self, subtracted: &[Column]) -> Vec<Arc<Vec<f64>>> {
        let (mean, agents) = (self.config.less_communication, self.seats.len());
        if self.seats.values().any(|seat| seat.width.below.is_some()) {
            self.averaged = false;
            let all = mean_of_all(self.seats.values().map(|seat| &seat.width));
            return all.map_or_else(|| self.shared.widths.clone(), |mean| vec![Arc::new(mean)]);
        }
        let lowers =
            std::mem::replace(&mut self.averaged, mean) && is_worth_lowering(subtracted.len(), agents);
        match self.shared.widths.as_slice() {
            [before] if lowers => vec![lowered(before, subtracted, agents, &*self.workers)],
            _ => widths(self.seats.values_mut().map(|seat| &mut seat.width.own), mean),
        }
    }

    fn told(&self, agent: AgentId, authoritative: bool) -> Downlink {
        Downlink::Network(NetworkModel {
            authoritative,
            version: self.version,
            contains: self.seats.get(&agent).map_or(0, |seat| seat.contained),
            shared: Arc::clone(&self.shared),
        })
    }

    /// An agent's life is over: what it was asked will not be answered, what it said for an open round does
    /// not count.
    fn bereave(&mut self, now: Tick, agent: AgentId) -> Vec<Outgoing> {
        let Some(open) = &mut self.open else { return Vec::new() };
        open.forget(agent);
        self.go_on(now)
    }
}

impl Coordinator for NetworkRounds {
    fn join(&mut self, now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        let known = self.seats.contains_key(&agent);
        if !known {
            let own = self.config.neural.none(self.layout.parameters());
            self.seats.insert(agent, NetworkSeat { contained: 0, width: SeatWidth::new(own) });
            self.averaged = false;
        }
        if entrance == Entrance::Returning {
            let takes_part =
                |open: &OpenNetworkRound| open.waiting.contains(&agent) || open.parts.contains_key(&agent);
            // It forgets the round it was in, so that cannot go on.
            let aborted = if self.open.as_ref().is_some_and(takes_part) { self.abort() } else { Vec::new() };
            return [Outgoing::to(agent, self.told(agent, true))].into_iter().chain(aborted).collect();
        }
        let changed = if known { self.bereave(now, agent) } else { Vec::new() };
        if let Some(seat) = self.seats.get_mut(&agent) {
            seat.contained = 0;
        }
        let told = self.version > Version(0) && (known || self.config.rounds.join == JoinPolicy::PullOnJoin);
        let model = told.then(|| Outgoing::to(agent, self.told(agent, false)));
        model.into_iter().chain(changed).collect()
    }

    fn leave(&mut self, now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.averaged &= self.seats.remove(&agent).is_none();
        self.bereave(now, agent)
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        if !self.seats.contains_key(&from) {
            return Err(ProtocolError::UnknownAgent(from));
        }
        match message {
            Uplink::NetworkRequest { observations } => Ok(self.begin(now, from, observations)),
            Uplink::NetworkPart(part) => self.add(now, from, part),
            Uplink::Weights(weights) => self.add_network(now, from, weights),
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
        let (answered, quorum) = (open.parts.len() as f64, self.config.rounds.quorum);
        if open.step == 0 && answered < quorum * there as f64 {
            return self.abort();
        }
        self.go_on(now)
    }

    fn deadline(&self) -> Option<Tick> {
        Some(self.open.as_ref()?.opened.after(self.config.rounds.round_deadline?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.open.as_ref().map(|open| &open.waiting)
    }

    /// A round goes on when the last of those that it waits for has answered.
    fn only_notes(&self, agents: &[AgentId]) -> bool {
        let waiting = self.open.as_ref().map(|open| &open.waiting);
        waiting.is_some_and(|waiting| {
            waiting.len() > agents.len() && agents.iter().all(|agent| waiting.contains(agent))
        })
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        CoordinatorView {
            version: self.version,
            observations: self.shared.count,
            information: self.information,
            agents: self.seats.len(),
            evidence: None,
        }
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        let uploads = self.seats.get(&agent)?.contained;
        Some(AgentStanding { uploads, version: self.version, information: self.information })
    }

    fn use_workers(&mut self, workers: Arc<dyn Workers>) {
        self.workers = workers;
    }

    fn save(&self) -> Vec<u8> {
        self.encode()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.decode(state)
    }
}

#[cfg(test)]
mod tests;
