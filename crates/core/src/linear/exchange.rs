//! The coordinator of the asynchronous protocols: adds uploads and decides who needs to hear of it.
//!
//! Memory is O(d² + N): the papers' download buffer per agent is not needed. An upload by i leaves what
//! every other agent has unchanged, and i says how much information its own view holds; so a number per
//! agent, compared with the coordinator's own information, decides everything. The literal version with a
//! matrix per agent lives in the tests as the oracle.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::exchange::JoinPolicy;
use crate::exchange::roster::Roster;
use crate::ids::{AgentId, Tick, Version};
use crate::message::{Downlink, EvidenceUpload, Outgoing, Snapshot, Uplink};
use crate::ridge::Ridge;
use crate::trigger::Threshold;
use crate::wire::{self, v1};
use crate::workers::{ThisThread, Workers};

/// Who is sent a snapshot, and when.
#[derive(Clone, Debug)]
pub(crate) enum DownloadPolicy {
    /// After each upload, every agent whose view is too far behind gets a snapshot.
    Threshold {
        everybody: Threshold,
        own: BTreeMap<AgentId, Threshold>,
        /// Answer the upload of an agent that is behind with a snapshot.
        in_receipt: bool,
    },
    /// The agent that uploaded gets a snapshot in answer, each time. Other agents get none.
    AfterUpload,
}

impl DownloadPolicy {
    /// By how much the coordinator's information may exceed that of what `agent` has.
    fn patience(&self, agent: AgentId) -> f64 {
        match self {
            Self::Threshold { everybody, own, .. } => own.get(&agent).unwrap_or(everybody).ln(),
            Self::AfterUpload => f64::INFINITY,
        }
    }

    fn answers_with_snapshot(&self, in_sync: bool) -> bool {
        match self {
            Self::Threshold { in_receipt, .. } => *in_receipt && !in_sync,
            Self::AfterUpload => true,
        }
    }
}

/// The coordinator of `async-lin-ucb`, `async-lin-ts`, `async-lin-phe`, `fed-lin-ucb` and, on the shared
/// features, `async-lin-ucb-am`.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    name: &'static str,
    policy: DownloadPolicy,
    join: JoinPolicy,
    version: Version,
    evidence: Arc<Evidence>,
    model: Ridge,
    roster: Roster,
    workers: Arc<dyn Workers>,
}

impl Exchange {
    pub(crate) fn new(name: &'static str, model: Ridge, policy: DownloadPolicy, join: JoinPolicy) -> Self {
        let evidence = Arc::new(Evidence::none(model.dimension()));
        let (roster, workers) = (Roster::default(), Arc::new(ThisThread));
        Self { name, policy, join, version: Version(0), evidence, model, roster, workers }
    }

    /// A snapshot for an agent, remembered as sent.
    fn snapshot_to(&mut self, agent: AgentId, contains: u64, authoritative: bool) -> Outgoing {
        let information = self.model.information();
        self.roster.set(agent, information, self.policy.patience(agent), self.version, contains);
        self.snapshot(agent, contains, authoritative)
    }

    fn snapshot(&self, agent: AgentId, contains: u64, authoritative: bool) -> Outgoing {
        let (version, evidence) = (self.version, Arc::clone(&self.evidence));
        let information = self.model.information();
        let snapshot = Snapshot { authoritative, version, contains, information, evidence };
        Outgoing::to(agent, Downlink::Snapshot(snapshot))
    }

    /// Replaces all evidence, as a relay does that heard from its parent, or changes nothing. Then `everybody` gets
    /// a snapshot, or those that are too far behind now.
    pub(crate) fn replace(
        &mut self,
        mut evidence: Evidence,
        everybody: bool,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        self.model.refresh_noting(&mut evidence, &*self.workers)?;
        self.evidence = Arc::new(evidence);
        self.version = self.version.next();
        if !everybody {
            return Ok(self.snapshots_due());
        }
        let seats: Vec<_> = self.roster.iter().map(|seat| (seat.agent, seat.uploads)).collect();
        Ok(seats.into_iter().map(|(agent, uploads)| self.snapshot_to(agent, uploads, false)).collect())
    }

    /// A snapshot for everyone who is too far behind, by rising agent.
    fn snapshots_due(&mut self) -> Vec<Outgoing> {
        let information = self.model.information();
        let mut due = Vec::new();
        while let Some((number, seat)) = self.roster.first_due(information) {
            let (agent, uploads) = (seat.agent, seat.uploads);
            self.roster.change(number, information, self.policy.patience(agent), self.version, uploads);
            due.push((agent, uploads));
        }
        // The same agents are due in any order. By agent, the order does not depend on how they were found.
        due.sort_unstable();
        due.into_iter().map(|(agent, uploads)| self.snapshot(agent, uploads, false)).collect()
    }

    /// Adds an upload, or refuses it unchanged.
    fn add(&mut self, upload: &EvidenceUpload) -> Result<(), ProtocolError> {
        let (expected, got) = (self.evidence.dimension(), upload.evidence.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        if upload.evidence.count() == 0 {
            return Err(ProtocolError::Evidence("an upload without observations"));
        }
        if !(upload.information.is_finite() && upload.information >= 0.0) {
            return Err(ProtocolError::Evidence("the information is not a finite number"));
        }
        let increment = upload.evidence.evidence();
        increment.check()?;
        let mut sum = self.evidence.checked_sum(increment)?;
        self.model.refresh_noting(&mut sum, &*self.workers)?;
        self.evidence = Arc::new(sum);
        self.version = self.version.next();
        Ok(())
    }
}

impl Coordinator for Exchange {
    fn join(&mut self, _now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        let known = self.roster.get(agent).map(|seat| seat.uploads);
        let uploads = if entrance == Entrance::Returning { known.unwrap_or(0) } else { 0 };
        self.roster.set(agent, 0.0, self.policy.patience(agent), Version(0), uploads);
        // An agent that was here before has lost what it had; the paper's newcomers wait for an upload.
        let pull = known.is_some() || self.join == JoinPolicy::PullOnJoin;
        let returning = entrance == Entrance::Returning;
        if returning || (pull && self.version > Version(0)) {
            return vec![self.snapshot_to(agent, uploads, returning)];
        }
        Vec::new()
    }

    fn leave(&mut self, _now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.roster.remove(agent);
        Vec::new()
    }

    fn receive(
        &mut self,
        _now: Tick,
        from: AgentId,
        message: Uplink,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        let Uplink::Evidence(upload) = message else {
            return Err(ProtocolError::Unexpected { algorithm: self.name, message: message.kind() });
        };
        let seat = *self.roster.get(from).ok_or(ProtocolError::UnknownAgent(from))?;
        let (expected, got) = (seat.uploads + 1, upload.number);
        if expected != got {
            return Err(ProtocolError::Sequence { expected, got });
        }
        let before = self.version;
        self.add(&upload)?;
        let information = self.model.information();

        // Up to date before means up to date after, to the last bit of the information.
        let in_sync = seat.version == before && upload.based_on == before;
        let first = if self.policy.answers_with_snapshot(in_sync) {
            self.snapshot_to(from, got, false)
        } else {
            let (has, version) =
                if in_sync { (information, self.version) } else { (upload.information, upload.based_on) };
            self.roster.set(from, has.min(information), self.policy.patience(from), version, got);
            let version = in_sync.then_some(self.version);
            Outgoing::to(from, Downlink::Receipt { number: got, version })
        };
        Ok(std::iter::once(first).chain(self.snapshots_due()).collect())
    }

    fn tick(&mut self, _now: Tick) -> Vec<Outgoing> {
        Vec::new()
    }

    fn deadline(&self) -> Option<Tick> {
        None
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        CoordinatorView::of(self.version, &self.evidence, self.model.information(), self.roster.len())
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        self.roster.get(agent).map(|seat| AgentStanding {
            uploads: seat.uploads,
            version: seat.version,
            information: seat.information,
        })
    }

    fn use_workers(&mut self, workers: Arc<dyn Workers>) {
        self.workers = workers;
    }

    fn save(&self) -> Vec<u8> {
        let roster = self.roster.iter().map(|seat| v1::RosterEntry {
            agent: seat.agent.0,
            version: seat.version.0,
            uploads: seat.uploads,
            information: seat.information,
        });
        v1::CoordinatorState {
            version: self.version.0,
            evidence: Some(wire::evidence_to_wire(&self.evidence)),
            model: Some(self.model.save()),
            roster: roster.collect(),
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::CoordinatorState = wire::decode(state)?;
        let evidence = wire::evidence_from_wire(state.evidence.unwrap_or_default())?;
        if evidence.dimension() != self.evidence.dimension() {
            return Err(DecodeError::invalid("evidence", "it has another dimension"));
        }
        if state.roster.iter().any(|entry| !entry.information.is_finite()) {
            return Err(DecodeError::invalid("roster", "an agent's information is not finite"));
        }
        self.model.restore(&state.model.unwrap_or_default())?;
        self.evidence = Arc::new(evidence);
        self.version = Version(state.version);
        self.roster = Roster::default();
        for entry in state.roster {
            let agent = AgentId(entry.agent);
            let patience = self.policy.patience(agent);
            self.roster.set(agent, entry.information, patience, Version(entry.version), entry.uploads);
        }
        Ok(())
    }
}
