//! The coordinator of synchronous rounds: it collects evidence from all agents, adds it up and sends the sum
//! to all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;

use crate::coordinator::{AgentAccount, AgentStanding, Coordinator, CoordinatorView, Entrance, Suspicion};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::exchange::JoinPolicy;
use crate::ids::{AgentId, AgentPath, RoundId, Tick, Version};
use crate::linear::parts::ListLimits;
use crate::linear::trust::Trust;
use crate::message::{AgentPart, Downlink, Outgoing, Snapshot, Uplink};
use crate::parcel::Parcel;
use crate::ridge::Ridge;
use crate::time_span::TimeSpan;
use crate::wire::{self, v1};
use crate::workers::{ThisThread, Workers};

/// The coordinator of `sync-lin-ucb`: it runs one round at a time.
#[derive(Clone, Debug)]
pub(crate) struct EvidenceRounds {
    join: JoinPolicy,
    patience: Option<TimeSpan>,
    version: Version,
    evidence: Arc<Evidence>,
    model: Ridge,
    /// Who has joined, with the newest round that has a part of this life in the evidence.
    agents: BTreeMap<AgentId, RoundId>,
    round: RoundId,
    open: Option<OpenEvidenceRound>,
    /// Evidence of each agent by itself, kept only if `robust` lets the coordinator leave agents out.
    trust: Option<Trust>,
    /// What children may say that are relays, where these send the parts of their agents one by one.
    lists: Option<ListLimits>,
    workers: Arc<dyn Workers>,
}

/// A round that is collecting.
#[derive(Clone, Debug)]
struct OpenEvidenceRound {
    opened: Tick,
    waiting: BTreeSet<AgentId>,
    included: BTreeSet<AgentId>,
    sum: Evidence,
    /// The parts of the round by agent, where agents are held against each other; `sum` has them too.
    parts: BTreeMap<AgentPath, Evidence>,
}

impl EvidenceRounds {
    pub(crate) fn new(
        model: Ridge,
        join: JoinPolicy,
        patience: Option<TimeSpan>,
        trust: Option<Trust>,
    ) -> Self {
        Self {
            join,
            patience,
            version: Version(0),
            evidence: Arc::new(Evidence::none(model.dimension())),
            model,
            agents: BTreeMap::new(),
            round: RoundId(0),
            open: None,
            trust,
            lists: None,
            workers: Arc::new(ThisThread),
        }
    }

    /// The same coordinator with children that are relays and may send lists within these limits.
    pub(crate) fn with_relays(self, lists: Option<ListLimits>) -> Self {
        Self { lists, ..self }
    }

    fn start(&mut self, now: Tick) -> Vec<Outgoing> {
        if self.open.is_some() || self.agents.is_empty() {
            return Vec::new();
        }
        self.round = RoundId(self.round.0 + 1);
        self.open = Some(OpenEvidenceRound {
            opened: now,
            waiting: self.agents.keys().copied().collect(),
            included: BTreeSet::new(),
            sum: Evidence::clone(&self.evidence),
            parts: BTreeMap::new(),
        });
        vec![Outgoing::to_everyone(Downlink::Collect { round: self.round, whole: false })]
    }

    /// Whether a part of the round comes too late.
    fn is_over(&self, round: RoundId) -> bool {
        round < self.round || self.open.is_none()
    }

    /// Adds an agent's part to the open round, or refuses it unchanged.
    fn add(&mut self, from: AgentId, round: RoundId, part: &Parcel) -> Result<(), ProtocolError> {
        let (expected, got) = (self.evidence.dimension(), part.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let (round_open, unknown) = (self.round, ProtocolError::Round(round));
        let open = self.open.as_mut().filter(|_| round == round_open).ok_or(unknown.clone())?;
        if !open.waiting.contains(&from) {
            return Err(unknown);
        }
        // Most parts of a large round are empty.
        if !part.is_nothing() {
            let part = part.evidence();
            part.check()?;
            let sum = open.sum.checked_sum(part)?;
            self.model.check_fit(&sum, &*self.workers)?;
            open.sum = sum;
            if self.trust.is_some() {
                open.parts.insert(from.into(), part.clone());
            }
        }
        open.waiting.remove(&from);
        open.included.insert(from);
        Ok(())
    }

    /// Adds the parts of the agents below a relay to the open round, or refuses all of them unchanged.
    fn add_list(
        &mut self,
        from: AgentId,
        round: RoundId,
        parts: Vec<AgentPart>,
    ) -> Result<(), ProtocolError> {
        let (Some(lists), Some(trust)) = (&self.lists, &self.trust) else {
            let message = Uplink::RoundParts { round, parts }.kind();
            return Err(ProtocolError::Unexpected { algorithm: "sync-lin-ucb", message });
        };
        let parts = lists.check(from, self.evidence.dimension(), parts)?;
        let (round_open, unknown) = (self.round, ProtocolError::Round(round));
        let open = self.open.as_mut().filter(|_| round == round_open).ok_or(unknown.clone())?;
        if !open.waiting.contains(&from) {
            return Err(unknown);
        }
        let add = |sum: Evidence, part: &AgentPart| sum.checked_sum(part.evidence.evidence());
        let sum = parts.iter().try_fold(open.sum.clone(), add)?;
        self.model.check_fit(&sum, &*self.workers)?;
        open.waiting.remove(&from);
        let spoken_for = trust.agents().filter(|agent| agent.relays.first() == Some(&from)).count();
        let new = parts.iter().filter(|part| !trust.knows(&part.agent)).count();
        // A relay that speaks for too many is not an error, which would stop it for good: it is told that its parts are in no
        // round, like a relay that was late.
        if spoken_for + new <= lists.agents() {
            open.sum = sum;
            let own = parts.into_iter().map(|part| (part.agent, part.evidence.to_evidence()));
            open.parts.extend(own);
            open.included.insert(from);
        }
        Ok(())
    }

    fn finish_if_complete(&mut self) -> Vec<Outgoing> {
        let Some(open) = self.open.take_if(|open| open.waiting.is_empty()) else { return Vec::new() };
        let mut sum = self.believed(open.parts).unwrap_or(open.sum);
        // Without trust, every part was checked with the sum so far. Part of a sum that has a model has one, too; should
        // rounding say otherwise, all stays as it was until the next round.
        if self.model.refresh_noting(&mut sum, &*self.workers).is_ok() {
            self.evidence = Arc::new(sum);
        }
        self.version = self.version.next();
        for agent in &open.included {
            self.agents.entry(*agent).and_modify(|newest| *newest = self.round);
        }
        let commit = |included| Downlink::Commit {
            round: self.round,
            included,
            version: self.version,
            evidence: Arc::clone(&self.evidence),
        };
        if self.agents.keys().eq(&open.included) {
            return vec![Outgoing::to_everyone(commit(true))];
        }
        self.agents.keys().map(|&a| Outgoing::to(a, commit(open.included.contains(&a)))).collect()
    }

    /// Takes the parts of a round into the accounts of their agents, judges all agents if it is time, and returns the
    /// sum over agents that are believed. `None` if all agents are believed.
    fn believed(&mut self, parts: BTreeMap<AgentPath, Evidence>) -> Option<Evidence> {
        let trust = self.trust.as_mut()?;
        for (agent, part) in parts {
            // Only a sum that overflows is refused, and the sum of everybody did not.
            let sums = trust.sums_with(&agent, &part);
            if let Ok((account, _)) = sums.and_then(|sums| trust.examine(&agent, sums, &self.model)) {
                trust.keep(agent, account);
            }
        }
        trust.judge_if_due(trust.total());
        Some(trust.believed(self.evidence.dimension(), None))
    }

    fn snapshot(&self, agent: AgentId, authoritative: bool) -> Downlink {
        Downlink::Snapshot(Snapshot {
            authoritative,
            version: self.version,
            contains: self.agents.get(&agent).map_or(0, |round| round.0),
            information: self.model.information(),
            evidence: Arc::clone(&self.evidence),
        })
    }
}

impl Coordinator for EvidenceRounds {
    fn join(&mut self, _now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        let returning = entrance == Entrance::Returning;
        let known = self.agents.contains_key(&agent);
        if !(returning && known) {
            self.agents.insert(agent, RoundId(0));
        }
        if let Some(open) = &mut self.open {
            open.waiting.remove(&agent);
            if !returning {
                // A new life does not answer for the old one.
                open.included.remove(&agent);
            } else if open.included.contains(&agent) {
                // It must learn whether its part counts; so that is decided now.
                open.waiting.clear();
            }
        }
        let ended = self.finish_if_complete();
        let pull = known || self.join == JoinPolicy::PullOnJoin;
        let told = returning || (pull && self.version > Version(0));
        let snapshot = told.then(|| Outgoing::to(agent, self.snapshot(agent, returning)));
        snapshot.into_iter().chain(ended).collect()
    }

    fn leave(&mut self, _now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.agents.remove(&agent);
        if let Some(open) = &mut self.open {
            open.waiting.remove(&agent);
        }
        self.finish_if_complete()
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        if !self.agents.contains_key(&from) {
            return Err(ProtocolError::UnknownAgent(from));
        }
        match message {
            Uplink::RoundRequest { .. } => Ok(self.start(now)),
            // Too late for its round: its agent hears that in the commit and sends it again.
            Uplink::RoundEvidence { round, .. } if self.is_over(round) => Ok(Vec::new()),
            Uplink::RoundParts { round, .. } if self.lists.is_some() && self.is_over(round) => Ok(Vec::new()),
            Uplink::RoundEvidence { round, evidence } => {
                self.add(from, round, &evidence)?;
                Ok(self.finish_if_complete())
            }
            Uplink::RoundParts { round, parts } => {
                self.add_list(from, round, parts)?;
                Ok(self.finish_if_complete())
            }
            other => Err(ProtocolError::Unexpected { algorithm: "sync-lin-ucb", message: other.kind() }),
        }
    }

    fn tick(&mut self, now: Tick) -> Vec<Outgoing> {
        if self.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(open) = &mut self.open
        {
            open.waiting.clear();
        }
        self.finish_if_complete()
    }

    fn deadline(&self) -> Option<Tick> {
        Some(self.open.as_ref()?.opened.after(self.patience?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.open.as_ref().map(|open| &open.waiting)
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        CoordinatorView::of(self.version, &self.evidence, self.model.information(), self.agents.len())
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        let (uploads, information) = (self.agents.get(&agent)?.0, self.model.information());
        Some(AgentStanding { uploads, version: self.version, information })
    }

    fn suspicion(&self, agent: AgentId) -> Option<Suspicion> {
        self.trust.as_ref()?.suspicion_of(&agent.into())
    }

    fn accounts(&self) -> Vec<AgentAccount> {
        self.trust.as_ref().map_or_else(Vec::new, Trust::accounts)
    }

    fn set_aside(&self) -> u64 {
        self.trust.as_ref().map_or(0, Trust::set_aside)
    }

    fn use_workers(&mut self, workers: Arc<dyn Workers>) {
        self.workers = workers;
    }

    fn save(&self) -> Vec<u8> {
        let ids = |set: &BTreeSet<AgentId>| set.iter().map(|a| a.0).collect::<Vec<_>>();
        let roster = self.agents.iter().map(|(agent, newest)| v1::RosterEntry {
            agent: agent.0,
            uploads: newest.0,
            ..Default::default()
        });
        let mut state = v1::CoordinatorState {
            version: self.version.0,
            evidence: Some(wire::evidence_to_wire(&self.evidence)),
            model: Some(self.model.save()),
            roster: roster.collect(),
            round: self.round.0,
            trust: self.trust.as_ref().map(Trust::save),
            ..Default::default()
        };
        if let Some(open) = &self.open {
            state.collecting = true;
            state.collected = Some(wire::evidence_to_wire(&open.sum));
            state.waiting = ids(&open.waiting);
            state.included = ids(&open.included);
            state.opened = open.opened.0;
            let part = |(agent, part): (&AgentPath, &Evidence)| v1::AccountState {
                agent: agent.agent.0,
                relays: wire::path_to_wire(agent),
                sums: Some(wire::evidence_to_wire(part)),
                ..Default::default()
            };
            state.parts = open.parts.iter().map(part).collect();
        }
        state.encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::CoordinatorState = wire::decode(state)?;
        let dimension = self.evidence.dimension();
        let evidence = |part: Option<v1::Evidence>| {
            let evidence = wire::evidence_from_wire(part.unwrap_or_default())?;
            if evidence.dimension() != dimension {
                return Err(DecodeError::invalid("evidence", "it has another dimension"));
            }
            Ok(evidence)
        };
        let set = |ids: &[u64]| ids.iter().map(|&id| AgentId(id)).collect();
        let shared = evidence(state.evidence)?;
        let parts = state
            .parts
            .into_iter()
            .map(|part| Ok((wire::path_from_wire(part.agent, part.relays), evidence(part.sums)?)))
            .collect::<Result<_, DecodeError>>()?;
        let trust = match &self.trust {
            None => None,
            Some(trust) => Some(trust.restored(state.trust.unwrap_or_default(), dimension)?),
        };
        let open = if state.collecting {
            Some(OpenEvidenceRound {
                opened: Tick(state.opened),
                waiting: set(&state.waiting),
                included: set(&state.included),
                sum: evidence(state.collected)?,
                parts,
            })
        } else {
            None
        };
        self.model.restore(&state.model.unwrap_or_default())?;
        self.version = Version(state.version);
        self.evidence = Arc::new(shared);
        self.agents =
            state.roster.iter().map(|entry| (AgentId(entry.agent), RoundId(entry.uploads))).collect();
        self.round = RoundId(state.round);
        self.open = open;
        self.trust = trust;
        Ok(())
    }
}
