//! The relay of rounds of networks: what its children send goes up as one part, models come down.
//!
//! Observations stay with the agents until a round has them, so a relay holds nothing that could get lost. It keeps the statistic
//! of each agent below it, as the coordinator does without relays, and tells its parent the sum of their inverses: the mean at
//! the root is then the mean over all agents. Versions and rounds that children count by are the relay's own. They go on when the
//! parent has lost part of its history, and so children need no epoch.
//!
//! With privacy, statistics stay with agents and only updates with noise travel. A relay averages those and adds no noise.

mod round;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fn_agent::nothing_known;
use super::fn_ucb::FnUcb;
use super::message::{NetworkModel, NetworkState};
use super::network::{Layout, Network};
use super::seat_width::SeatWidth;
use super::update_agent::no_updates;
use crate::agent::AgentView;
use crate::coordinator::{AgentStanding, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::exchange::JoinPolicy;
use crate::exchange::shares::{Settled, Shares};
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::message::{Downlink, Outgoing, Uplink};
use crate::relay::{Passed, Relay, UpperLink};
use crate::time_span::TimeSpan;
use round::OpenNetworkRelayRound;

const NAME: &str = "fn-ucb";

/// The relay of `fn-ucb`.
#[derive(Clone, Debug)]
pub(crate) struct NetworkRelay {
    config: FnUcb,
    layout: Layout,
    /// How long each exchange of a round waits for children.
    patience: Option<TimeSpan>,
    /// What the children were told last, by the relay's own version.
    version: Version,
    shared: Arc<NetworkState>,
    parent_version: Version,
    /// The newest round of the parent that was heard of.
    parent_round: RoundId,
    /// A fingerprint of the parameters that networks start from, as the first part of a round named it; not set before.
    start: Option<u64>,
    /// A round was asked for and has not ended.
    requested: bool,
    /// Who has joined, with how many observations of each are in what the children were told.
    shares: Shares,
    /// The same children with their widths. Empty where statistics stay with agents.
    widths: BTreeMap<AgentId, SeatWidth>,
    /// The sum of the inverses of those children that are agents, if it is known.
    inverses: Option<Vec<f64>>,
    round: RoundId,
    open: Option<OpenNetworkRelayRound>,
}

impl NetworkRelay {
    pub(crate) fn new(config: &FnUcb, dimension: usize, above: UpperLink) -> Self {
        let layout = config.neural.layout(dimension);
        let shared = match config.privacy {
            Some(_) => no_updates(),
            None => nothing_known(config, layout.parameters(), 1),
        };
        Self {
            patience: config.rounds.round_deadline.map(|deadline| above.patience(deadline)),
            config: config.clone(),
            layout,
            version: Version(0),
            shared: Arc::new(shared),
            parent_version: Version(0),
            parent_round: RoundId(0),
            start: None,
            requested: false,
            shares: Shares::default(),
            widths: BTreeMap::new(),
            inverses: None,
            round: RoundId(0),
            open: None,
        }
    }

    const fn is_private(&self) -> bool {
        self.config.privacy.is_some()
    }

    /// A child asks for a round. If one is open that it has answered already, it has news while others are still waited for.
    fn ask_for_round(&mut self, from: AgentId, observations: u64) -> Passed {
        if let Some(open) = &self.open {
            let answered = open.round.step == 0 && open.round.parts.contains_key(&from);
            return if answered { self.hurry(observations) } else { Passed::default() };
        }
        let asks = !self.requested;
        self.requested = true;
        let up = asks.then_some(Uplink::NetworkRequest { observations }).into_iter().collect();
        Passed { up, down: Vec::new() }
    }

    /// Takes over what the parent says is known, or changes nothing. Whatever round was open is over.
    fn adopt(&mut self, model: &NetworkModel) -> Result<Passed, ProtocolError> {
        self.check_model(model)?;
        let sent = self.open.as_ref().filter(|open| open.answered).map(OpenNetworkRelayRound::sent);
        let judged = self.shares.judge(model.contains, model.version, self.parent_version, sent.as_ref());
        match (judged, sent) {
            (Settled::Included, Some(sent)) => {
                self.shares.include(&sent);
                self.renew_widths();
            }
            (Settled::Included | Settled::Unchanged, _) => {}
            // Agents have forgotten what the parent lost. It is gone, and they keep their counts.
            (Settled::Nothing | Settled::Unknown, _) if model.authoritative => {}
            (Settled::Nothing | Settled::Unknown, _) => {
                let (expected, got) = (self.shares.parent, model.contains);
                return Err(ProtocolError::Sequence { expected, got });
            }
        }
        self.shares.note(model.contains, model.version);
        self.shared = Arc::clone(&model.shared);
        (self.version, self.parent_version) = (self.version.next(), model.version);
        if model.authoritative {
            self.parent_round = RoundId(0);
        }
        (self.open, self.requested) = (None, false);
        let children = self.shares.children.keys();
        let down = children.map(|child| Outgoing::to(*child, self.told_to(*child, false))).collect();
        Ok(Passed { up: Vec::new(), down })
    }

    /// The parts of the open round are in what the parent shares.
    fn renew_widths(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        for (child, width) in &mut self.widths {
            if let Some(own) = open.after.remove(child) {
                *width = SeatWidth::new(own);
            } else if let Some(sum) = open.round.parts.get(child).and_then(|part| part.sum.as_ref()) {
                width.below = Some(sum.widths.clone());
            }
        }
        self.inverses = open.inverses_after;
    }

    fn check_model(&self, model: &NetworkModel) -> Result<(), ProtocolError> {
        let (expected, got) = (self.shared.parameters(), model.shared.parameters());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let widths = if self.is_private() { 0 } else { 1 };
        if model.shared.statistic.kind() != self.shared.statistic.kind()
            || model.shared.widths.len() != widths
        {
            return Err(ProtocolError::Model("its matrices are of another kind"));
        }
        let weights = &model.shared.weights;
        if weights.is_empty() || Network::from_parameters(self.layout, weights).is_some() {
            Ok(())
        } else {
            Err(ProtocolError::Model("its parameters are not those of a network"))
        }
    }

    fn end_without_result(&mut self) -> Passed {
        (self.open, self.requested) = (None, false);
        let abort = Outgoing::to_everyone(Downlink::Abort { round: self.round });
        Passed { up: Vec::new(), down: vec![abort] }
    }

    fn told_to(&self, child: AgentId, authoritative: bool) -> Downlink {
        Downlink::Network(NetworkModel {
            authoritative,
            version: self.version,
            contains: self.shares.children.get(&child).copied().unwrap_or(0),
            shared: Arc::clone(&self.shared),
        })
    }

    /// Gives a child a seat if it has none.
    fn seat(&mut self, child: AgentId) {
        self.shares.children.entry(child).or_insert(0);
        if !self.is_private() && !self.widths.contains_key(&child) {
            let none = self.config.neural.none(self.layout.parameters());
            self.widths.insert(child, SeatWidth::new(none));
            self.forget_inverses();
        }
    }

    /// Others are children now than those whose inverses were added up.
    fn forget_inverses(&mut self) {
        self.inverses = None;
        if let Some(open) = &mut self.open {
            open.inverses_after = None;
        }
    }
}

impl Relay for NetworkRelay {
    fn join(&mut self, _now: Tick, child: AgentId, entrance: Entrance) -> Passed {
        let known = self.shares.children.contains_key(&child);
        self.seat(child);
        if entrance == Entrance::Returning {
            // It forgets the round it was in. What the parent has of it may still count; then the model says so.
            let Passed { up, down } = self.leave_out(child, false);
            let told = Outgoing::to(child, self.told_to(child, true));
            return Passed { up, down: [told].into_iter().chain(down).collect() };
        }
        let changed = if known { self.leave_out(child, true) } else { Passed::default() };
        self.shares.children.insert(child, 0);
        let told = self.version > Version(0) && (known || self.config.rounds.join == JoinPolicy::PullOnJoin);
        let model = told.then(|| Outgoing::to(child, self.told_to(child, false)));
        Passed { up: changed.up, down: model.into_iter().chain(changed.down).collect() }
    }

    fn leave(&mut self, _now: Tick, child: AgentId) -> Passed {
        self.shares.children.remove(&child);
        if self.widths.remove(&child).is_some() {
            self.forget_inverses();
        }
        self.leave_out(child, true)
    }

    fn receive(&mut self, _now: Tick, from: AgentId, message: Uplink) -> Result<Passed, ProtocolError> {
        if !self.shares.children.contains_key(&from) {
            return Err(ProtocolError::UnknownAgent(from));
        }
        match message {
            Uplink::NetworkRequest { observations } => Ok(self.ask_for_round(from, observations)),
            Uplink::NetworkPart(part) => self.add(from, part),
            Uplink::Weights(weights) => self.add_network(from, weights),
            other => Err(ProtocolError::Unexpected { algorithm: NAME, message: other.kind() }),
        }
    }

    fn hear(&mut self, now: Tick, message: Downlink) -> Result<Passed, ProtocolError> {
        match message {
            Downlink::NetworkCollect { round, observations } => Ok(self.collect(now, round, observations)),
            Downlink::Average(average) => self.pass_average(now, &average),
            Downlink::Network(model) => {
                let is_news = model.authoritative || model.version > self.parent_version;
                if is_news { self.adopt(&model) } else { Ok(Passed::default()) }
            }
            Downlink::Abort { round } if round == self.parent_round && round > RoundId(0) => {
                Ok(self.end_without_result())
            }
            Downlink::Abort { .. } => Ok(Passed::default()),
            other => Err(ProtocolError::Unexpected { algorithm: NAME, message: other.kind() }),
        }
    }

    fn tick(&mut self, now: Tick) -> Passed {
        self.tick_without(now, &BTreeSet::new())
    }

    fn tick_without(&mut self, now: Tick, absent: &BTreeSet<AgentId>) -> Passed {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.pass_deadline(absent)
        } else {
            Passed::default()
        }
    }

    fn deadline(&self) -> Option<Tick> {
        let open = self.open.as_ref().filter(|open| !open.round.waiting.is_empty())?;
        Some(open.round.opened.after(self.patience?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.open.as_ref().map(|open| &open.round.waiting).filter(|waiting| !waiting.is_empty())
    }

    /// Without the information: the determinant stays with the root.
    fn below(&self) -> CoordinatorView<'_> {
        CoordinatorView {
            version: self.version,
            observations: self.shared.count,
            information: 0.0,
            agents: self.shares.children.len(),
            evidence: None,
        }
    }

    fn above(&self) -> AgentView<'_> {
        AgentView { version: self.parent_version, shared: self.shared.count, ..AgentView::alone(0, 0.0) }
    }

    fn child(&self, child: AgentId) -> Option<AgentStanding> {
        let uploads = *self.shares.children.get(&child)?;
        Some(AgentStanding { uploads, version: self.version, information: 0.0 })
    }

    fn save(&self) -> Vec<u8> {
        self.encode()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.decode(state)
    }
}
