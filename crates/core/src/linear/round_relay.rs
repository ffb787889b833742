//! The relay of synchronous rounds: a sum of its children's parts goes up as one part, results come down.
//!
//! Where the root holds agents against each other, a sum would hide who said what: there the parts of all agents go up in
//! one message, each by itself.
//!
//! Parts stay with the agents until a round has them, so a relay holds nothing that could get lost: it adds up, and
//! remembers whose parts are in the sum. Versions and rounds that children count by are the relay's own. They go on
//! when the parent has lost part of its history, and so children need no epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;

use crate::agent::AgentView;
use crate::coordinator::{AgentStanding, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::exchange::JoinPolicy;
use crate::ids::{AgentId, AgentPath, RoundId, Tick, Version};
use crate::linear::parts::{Listing, checked, speaks_for};
use crate::message::{AgentPart, Downlink, Outgoing, Snapshot, Uplink};
use crate::parcel::Parcel;
use crate::relay::{Passed, Relay};
use crate::ridge::Ridge;
use crate::time_span::TimeSpan;
use crate::wire::{self, v1};
use crate::workers::ThisThread;

/// The relay of `sync-lin-ucb`.
#[derive(Clone, Debug)]
pub(crate) struct RoundRelay {
    join: JoinPolicy,
    /// How long a round waits for children.
    patience: Option<TimeSpan>,
    /// What the parent said last is known, with the version that the relay gave it.
    version: Version,
    evidence: Arc<Evidence>,
    model: Ridge,
    /// The same in the parent's count.
    parent_version: Version,
    /// The newest round of the parent that was answered or is open here.
    parent_round: RoundId,
    /// A round was asked for and has not ended.
    requested: bool,
    /// Who has joined, with the newest round that has a part of this life in the evidence.
    children: BTreeMap<AgentId, RoundId>,
    round: RoundId,
    open: Option<OpenRelayRound>,
    /// For whom the relay speaks, if it sends the parts of agents one by one.
    listing: Option<Listing>,
}

/// A round of the parent, from its beginning to its end.
#[derive(Clone, Debug)]
struct OpenRelayRound {
    opened: Tick,
    waiting: BTreeSet<AgentId>,
    included: BTreeSet<AgentId>,
    sum: Evidence,
    /// The parts of the sum by agent, until they are sent, where they go up one by one.
    parts: BTreeMap<AgentPath, AgentPart>,
    /// The sum, or the list of parts, was sent to the parent.
    answered: bool,
}

impl RoundRelay {
    pub(crate) fn new(
        model: Ridge,
        join: JoinPolicy,
        patience: Option<TimeSpan>,
        listing: Option<Listing>,
    ) -> Self {
        Self {
            join,
            patience,
            version: Version(0),
            evidence: Arc::new(Evidence::none(model.dimension())),
            model,
            parent_version: Version(0),
            parent_round: RoundId(0),
            requested: false,
            children: BTreeMap::new(),
            round: RoundId(0),
            open: None,
            listing,
        }
    }

    /// Begins a round of the parent here.
    fn collect(&mut self, now: Tick, parent_round: RoundId) -> Passed {
        if parent_round <= self.parent_round {
            return Passed::default();
        }
        self.parent_round = parent_round;
        self.round = RoundId(self.round.0 + 1);
        self.open = Some(OpenRelayRound {
            opened: now,
            waiting: self.children.keys().copied().collect(),
            included: BTreeSet::new(),
            sum: Evidence::none(self.evidence.dimension()),
            parts: BTreeMap::new(),
            answered: false,
        });
        let ask = Outgoing::to_everyone(Downlink::Collect { round: self.round, whole: false });
        Passed { up: self.answer_if_complete(), down: vec![ask] }
    }

    /// Whether a child's part of the round comes too late.
    fn is_over(&self, round: RoundId) -> bool {
        round < self.round || self.open.as_ref().is_none_or(|open| open.answered)
    }

    /// Adds a child's part to the open round, or refuses it unchanged.
    fn add(&mut self, from: AgentId, round: RoundId, part: &Parcel) -> Result<(), ProtocolError> {
        let (expected, got) = (self.evidence.dimension(), part.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let (current, unknown) = (self.round, ProtocolError::Round(round));
        let open = self.open.as_mut().filter(|_| round == current).ok_or(unknown.clone())?;
        if !open.waiting.contains(&from) {
            return Err(unknown);
        }
        if !part.is_nothing() {
            let part = part.evidence();
            part.check()?;
            let sum = open.sum.checked_sum(part)?;
            // The root factorises the sum of everything; here it is enough that this sum can be.
            self.model.clone().refresh([&sum].into_iter())?;
            open.sum = sum;
        }
        open.waiting.remove(&from);
        open.included.insert(from);
        Ok(())
    }

    /// Adds the parts of agents below a child to the open round one by one, or refuses all of them unchanged. If the relay
    /// would then speak for more agents than it may, the parts are left out and the round no longer waits for the child.
    fn add_list(
        &mut self,
        from: AgentId,
        round: RoundId,
        parts: Vec<AgentPart>,
    ) -> Result<(), ProtocolError> {
        let (current, unknown) = (self.round, ProtocolError::Round(round));
        let open = self.open.as_mut().filter(|_| round == current).ok_or(unknown.clone())?;
        if !open.waiting.contains(&from) {
            return Err(unknown);
        }
        let add = |sum: Evidence, part: &AgentPart| sum.checked_sum(part.evidence.evidence());
        let sum = parts.iter().try_fold(open.sum.clone(), add)?;
        // The parent would refuse a sum that no model fits, and with it the parts of all other agents.
        self.model.check_fit(&self.evidence.checked_sum(&sum)?, &ThisThread)?;
        open.waiting.remove(&from);
        if self.listing.as_mut().is_some_and(|listing| listing.name(&parts)) {
            open.sum = sum;
            open.parts.extend(parts.into_iter().map(|part| (part.agent.clone(), part)));
            open.included.insert(from);
        }
        Ok(())
    }

    /// What a child says in a round, agent by agent.
    fn listed(&self, from: AgentId, message: Uplink) -> Result<(RoundId, Vec<AgentPart>), ProtocolError> {
        let dimension = self.evidence.dimension();
        let limits = self.listing.as_ref().and_then(|listing| listing.children);
        match (message, limits) {
            (Uplink::RoundEvidence { round, evidence }, _) => {
                let part = checked(AgentPart { agent: from.into(), evidence }, dimension)?;
                Ok((round, if part.evidence.is_nothing() { Vec::new() } else { vec![part] }))
            }
            (Uplink::RoundParts { round, parts }, Some(limits)) => {
                Ok((round, limits.check(from, dimension, parts)?))
            }
            (other, _) => Err(ProtocolError::Unexpected { algorithm: "sync-lin-ucb", message: other.kind() }),
        }
    }

    /// The relay's part of the parent's round, once nobody is waited for.
    fn answer_if_complete(&mut self) -> Vec<Uplink> {
        let Some(open) = self.open.as_mut().filter(|open| open.waiting.is_empty() && !open.answered) else {
            return Vec::new();
        };
        open.answered = true;
        if self.listing.is_some() {
            let parts = std::mem::take(&mut open.parts).into_values().collect();
            return vec![Uplink::RoundParts { round: self.parent_round, parts }];
        }
        vec![Uplink::RoundEvidence { round: self.parent_round, evidence: Parcel::wrap(&open.sum) }]
    }

    /// Takes over what the parent says is known, or changes nothing. Whatever round was open is over, and its parts
    /// are `included` or not.
    fn end(
        &mut self,
        version: Version,
        evidence: &Arc<Evidence>,
        included: bool,
    ) -> Result<Passed, ProtocolError> {
        self.take_over(version, evidence)?;
        let open = self.open.take().filter(|open| included && open.answered);
        let parts = open.map_or_else(BTreeSet::new, |open| open.included);
        self.requested = false;
        for child in &parts {
            self.children.entry(*child).and_modify(|newest| *newest = self.round);
        }
        let commit = |child: AgentId| Downlink::Commit {
            round: self.round,
            included: parts.contains(&child),
            version: self.version,
            evidence: Arc::clone(&self.evidence),
        };
        let down = self.children.keys().map(|child| Outgoing::to(*child, commit(*child))).collect();
        Ok(Passed { up: Vec::new(), down })
    }

    fn take_over(&mut self, version: Version, evidence: &Arc<Evidence>) -> Result<(), ProtocolError> {
        let (expected, got) = (self.evidence.dimension(), evidence.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let mut model = self.model.clone();
        model.refresh_to(evidence)?;
        (self.model, self.evidence) = (model, Arc::clone(evidence));
        (self.parent_version, self.version) = (version, self.version.next());
        Ok(())
    }

    fn adopt(&mut self, snapshot: &Snapshot) -> Result<Passed, ProtocolError> {
        if !(snapshot.information.is_finite() && snapshot.information >= 0.0) {
            return Err(ProtocolError::Evidence("the information is not a finite number"));
        }
        if snapshot.authoritative {
            // The parent's rounds before this are over. Perhaps only word of the last one's end was lost.
            let arrived = self.parent_round > RoundId(0) && snapshot.contains == self.parent_round.0;
            let passed = self.end(snapshot.version, &snapshot.evidence, arrived)?;
            self.parent_round = RoundId(0);
            return Ok(passed);
        }
        if snapshot.version <= self.parent_version {
            return Ok(Passed::default());
        }
        self.take_over(snapshot.version, &snapshot.evidence)?;
        let down = self.children.keys().map(|child| Outgoing::to(*child, self.snapshot(*child, false)));
        Ok(Passed { up: Vec::new(), down: down.collect() })
    }

    fn snapshot(&self, child: AgentId, authoritative: bool) -> Downlink {
        Downlink::Snapshot(Snapshot {
            authoritative,
            version: self.version,
            contains: self.children.get(&child).map_or(0, |round| round.0),
            information: self.model.information(),
            evidence: Arc::clone(&self.evidence),
        })
    }

    /// What becomes of the open round when a child joins in the middle of it.
    fn interrupt(&mut self, child: AgentId, returning: bool) {
        let Some(open) = &mut self.open else { return };
        open.waiting.remove(&child);
        if !returning {
            // A new life does not answer for the old one.
            open.included.remove(&child);
        } else if open.included.contains(&child) && !open.answered && self.listing.is_some() {
            // The child must learn now whether its part counts. It does not; those of the others do.
            open.included.remove(&child);
            open.parts.retain(|agent, _| !speaks_for(child, agent));
            open.sum.clear();
            open.parts.values().for_each(|part| open.sum.add(part.evidence.evidence()));
        } else if open.included.contains(&child) && !open.answered {
            // The child must learn now whether its part counts, and nothing can be taken out of a sum: the round goes
            // on without any part from here, and every child sends its own again.
            open.sum.clear();
            open.included.clear();
            open.waiting.clear();
        } else if open.included.remove(&child) {
            // The part is with the parent, where it may count. It must not be sent again.
            self.children.insert(child, self.round);
        }
    }
}

impl Relay for RoundRelay {
    fn join(&mut self, _now: Tick, child: AgentId, entrance: Entrance) -> Passed {
        let returning = entrance == Entrance::Returning;
        let known = self.children.contains_key(&child);
        if !(returning && known) {
            self.children.insert(child, RoundId(0));
        }
        self.interrupt(child, returning);
        let up = self.answer_if_complete();
        let pull = known || self.join == JoinPolicy::PullOnJoin;
        let told = returning || (pull && self.version > Version(0));
        let down = told.then(|| Outgoing::to(child, self.snapshot(child, returning))).into_iter().collect();
        Passed { up, down }
    }

    fn leave(&mut self, _now: Tick, child: AgentId) -> Passed {
        self.children.remove(&child);
        if let Some(open) = &mut self.open {
            open.waiting.remove(&child);
        }
        Passed { up: self.answer_if_complete(), down: Vec::new() }
    }

    fn receive(&mut self, _now: Tick, from: AgentId, message: Uplink) -> Result<Passed, ProtocolError> {
        if !self.children.contains_key(&from) {
            return Err(ProtocolError::UnknownAgent(from));
        }
        let up = match message {
            Uplink::RoundRequest { .. } if self.requested || self.open.is_some() => Vec::new(),
            Uplink::RoundRequest { observations } => {
                self.requested = true;
                vec![Uplink::RoundRequest { observations }]
            }
            message @ (Uplink::RoundEvidence { .. } | Uplink::RoundParts { .. })
                if self.listing.is_some() =>
            {
                let (round, parts) = self.listed(from, message)?;
                if !self.is_over(round) {
                    self.add_list(from, round, parts)?;
                }
                self.answer_if_complete()
            }
            // Too late for its round: its agent hears that in the commit and sends it again.
            Uplink::RoundEvidence { round, .. } if self.is_over(round) => Vec::new(),
            Uplink::RoundEvidence { round, evidence } => {
                self.add(from, round, &evidence)?;
                self.answer_if_complete()
            }
            other => {
                return Err(ProtocolError::Unexpected { algorithm: "sync-lin-ucb", message: other.kind() });
            }
        };
        Ok(Passed { up, down: Vec::new() })
    }

    fn hear(&mut self, now: Tick, message: Downlink) -> Result<Passed, ProtocolError> {
        match message {
            Downlink::Collect { round, .. } => Ok(self.collect(now, round)),
            Downlink::Commit { version, .. } if version <= self.parent_version => Ok(Passed::default()),
            Downlink::Commit { round, included, version, evidence } => {
                self.end(version, &evidence, included && round == self.parent_round)
            }
            Downlink::Snapshot(snapshot) => self.adopt(&snapshot),
            other => Err(ProtocolError::Unexpected { algorithm: "sync-lin-ucb", message: other.kind() }),
        }
    }

    fn tick(&mut self, now: Tick) -> Passed {
        if self.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(open) = &mut self.open
        {
            open.waiting.clear();
        }
        Passed { up: self.answer_if_complete(), down: Vec::new() }
    }

    fn deadline(&self) -> Option<Tick> {
        let open = self.open.as_ref().filter(|open| !open.answered)?;
        Some(open.opened.after(self.patience?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.open.as_ref().filter(|open| !open.answered).map(|open| &open.waiting)
    }

    fn below(&self) -> CoordinatorView<'_> {
        CoordinatorView::of(self.version, &self.evidence, self.model.information(), self.children.len())
    }

    fn above(&self) -> AgentView<'_> {
        AgentView { version: self.parent_version, shared: self.evidence.count(), ..AgentView::alone(0, 0.0) }
    }

    fn child(&self, child: AgentId) -> Option<AgentStanding> {
        let (uploads, information) = (self.children.get(&child)?.0, self.model.information());
        Some(AgentStanding { uploads, version: self.version, information })
    }

    fn save(&self) -> Vec<u8> {
        let ids = |set: &BTreeSet<AgentId>| set.iter().map(|a| a.0).collect::<Vec<_>>();
        let roster = self.children.iter().map(|(child, newest)| v1::RosterEntry {
            agent: child.0,
            uploads: newest.0,
            ..Default::default()
        });
        let mut below = v1::CoordinatorState {
            version: self.version.0,
            evidence: Some(wire::evidence_to_wire(&self.evidence)),
            model: Some(self.model.save()),
            roster: roster.collect(),
            round: self.round.0,
            ..Default::default()
        };
        if let Some(open) = &self.open {
            below.collecting = true;
            below.collected = Some(wire::evidence_to_wire(&open.sum));
            below.waiting = ids(&open.waiting);
            below.included = ids(&open.included);
            below.opened = open.opened.0;
        }
        v1::RoundRelayState {
            below: Some(below),
            parent_version: self.parent_version.0,
            parent_round: self.parent_round.0,
            requested: self.requested,
            answered: self.open.as_ref().is_some_and(|open| open.answered),
            parts: self
                .open
                .iter()
                .flat_map(|open| open.parts.values().map(wire::agent_part_to_wire))
                .collect(),
            named: self
                .listing
                .iter()
                .flat_map(|listing| listing.named.iter().map(wire::name_to_wire))
                .collect(),
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::RoundRelayState = wire::decode(state)?;
        let below = state.below.unwrap_or_default();
        let dimension = self.evidence.dimension();
        let evidence = |part: Option<v1::Evidence>| {
            let evidence = wire::evidence_from_wire(part.unwrap_or_default())?;
            if evidence.dimension() != dimension {
                return Err(DecodeError::invalid("evidence", "it has another dimension"));
            }
            Ok(evidence)
        };
        let set = |ids: &[u64]| ids.iter().map(|&id| AgentId(id)).collect();
        let shared = evidence(below.evidence)?;
        let part = |part| {
            let part = wire::agent_part_from_wire(part)?;
            if part.evidence.dimension() != dimension {
                return Err(DecodeError::invalid("part", "it has another dimension"));
            }
            Ok((part.agent.clone(), part))
        };
        let parts = state.parts.into_iter().map(part).collect::<Result<_, DecodeError>>()?;
        let open = if below.collecting {
            Some(OpenRelayRound {
                opened: Tick(below.opened),
                waiting: set(&below.waiting),
                included: set(&below.included),
                sum: evidence(below.collected)?,
                parts,
                answered: state.answered,
            })
        } else {
            None
        };
        self.model.restore(&below.model.unwrap_or_default())?;
        (self.version, self.evidence) = (Version(below.version), Arc::new(shared));
        (self.parent_version, self.parent_round) =
            (Version(state.parent_version), RoundId(state.parent_round));
        self.requested = state.requested;
        self.children =
            below.roster.iter().map(|entry| (AgentId(entry.agent), RoundId(entry.uploads))).collect();
        self.round = RoundId(below.round);
        self.open = open;
        if let Some(listing) = &mut self.listing {
            listing.named = state.named.into_iter().map(wire::name_from_wire).collect();
        }
        Ok(())
    }
}
