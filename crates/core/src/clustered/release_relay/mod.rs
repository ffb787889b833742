//! The relay of private sums: the sum of its children's last releases goes up as its own, what the root knows comes down.
//!
//! A release replaces the one before, so a relay keeps the last one of every child and says the sum of all whenever one has changed.
//! It adds no noise: it computes only with what was released, and the noise of every agent is in the root's sums once. With
//! the sum go the number of agents that it is over and the variance of its noise, from which agents compute their widths. Children
//! are told what the root said, by the relay's own versions and by their own numbers; a child hears that its release has arrived
//! once the root has it.

mod above;
mod below;
mod releases;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::AgentView;
use crate::clustered::config::ClusterPlan;
use crate::clustered::fclub::FIRST;
use crate::clustered::release_relay::releases::Releases;
use crate::coordinator::{AgentStanding, CoordinatorView, Entrance, KnownCluster};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::exchange::roster::Roster;
use crate::ids::{AgentId, PhaseId, Tick, Version};
use crate::message::{Downlink, Outgoing, Uplink};
use crate::relay::{Passed, Relay, UpperLink};
use crate::time_span::TimeSpan;

/// The relay of private linear algorithms, whose agents are all in one group.
#[derive(Debug)]
pub(crate) struct ReleaseRelay {
    name: &'static str,
    dimension: usize,
    regularization: f64,
    /// ln γ_D: a child is told what the root knows when it is behind by more.
    patience: f64,
    /// Releases are collected in rounds, and a round waits so long for children.
    in_rounds: bool,
    deadline: Option<TimeSpan>,
    /// What the parent said last, with the version that the relay gave it.
    version: Version,
    told: Told,
    parent_version: Version,
    children: BTreeMap<AgentId, ReleaseSeat>,
    roster: Roster,
    /// The last releases of lives that have ended.
    departed: Releases,
    /// Uploads of this life to the parent, and how many observations were in the last one and in the last that arrived.
    number: u64,
    sent: u64,
    arrived: u64,
    /// The upload that is on its way, by the number of each child's release in it.
    in_flight: Option<BTreeMap<AgentId, u64>>,
    /// A release has come in since the last upload.
    news: bool,
    /// The newest round of the parent, and the relay's own.
    parent_phase: PhaseId,
    phase: PhaseId,
    open: Option<OpenReleaseRound>,
    awaits: Option<Awaits>,
}

/// What a relay that has answered a round will hear from its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    /// First that its upload has arrived, then the end of the round.
    Receipt,
    /// The end of the round, which is for all children.
    End,
}

/// What all know, as the root says.
#[derive(Clone, Debug)]
struct Told {
    members: u64,
    evidence: Arc<Evidence>,
    variance: f64,
    information: f64,
}

/// What a relay knows of a child.
#[derive(Clone, Debug)]
struct ReleaseSeat {
    /// The last release, or what a child that is a relay said last.
    release: Releases,
    /// The number of that upload, and of the newest one that the parent has.
    number: u64,
    contained: u64,
    /// It was asked to say everything again and has not yet: it hears nothing until then.
    away: bool,
}

/// A round of the parent that waits for children.
#[derive(Clone, Debug)]
struct OpenReleaseRound {
    opened: Tick,
    waiting: BTreeSet<AgentId>,
}

impl ReleaseRelay {
    pub(crate) fn new(plan: &ClusterPlan<'_>, dimension: usize, above: UpperLink) -> Self {
        Self {
            name: plan.name,
            dimension,
            regularization: plan.model.regularization,
            patience: plan.download.ln(),
            in_rounds: plan.rounds.is_some(),
            deadline: plan.rounds.flatten().map(|deadline| above.patience(deadline)),
            version: Version(0),
            told: Told {
                members: 0,
                evidence: Arc::new(Evidence::none(dimension)),
                variance: 0.0,
                information: 0.0,
            },
            parent_version: Version(0),
            children: BTreeMap::new(),
            roster: Roster::default(),
            departed: Releases::none(dimension),
            number: 0,
            sent: 0,
            arrived: 0,
            in_flight: None,
            news: false,
            parent_phase: PhaseId(1),
            phase: PhaseId(1),
            open: None,
            awaits: None,
        }
    }

    /// The phase that children are asked by: those without rounds count none.
    const fn asked_phase(&self) -> PhaseId {
        if self.in_rounds { self.phase } else { PhaseId(0) }
    }
}

impl Relay for ReleaseRelay {
    fn join(&mut self, _now: Tick, child: AgentId, entrance: Entrance) -> Passed {
        let release = Releases::none(self.dimension);
        let new = ReleaseSeat { release, number: 0, contained: 0, away: false };
        if entrance == Entrance::Returning {
            self.children.entry(child).or_insert(new).away = true;
            self.roster.remove(child);
            self.no_longer_carries(child);
            let ask = Downlink::Regroup { phase: self.asked_phase(), anew: true };
            return Passed { up: Vec::new(), down: vec![Outgoing::to(child, ask)] };
        }
        let up = self.bereave(child);
        self.children.insert(child, new);
        self.roster.set(child, 0.0, self.patience, Version(0), 0);
        let down = if self.version > Version(0) { vec![self.snapshot_to(child)] } else { Vec::new() };
        Passed { up, down }
    }

    fn leave(&mut self, _now: Tick, child: AgentId) -> Passed {
        Passed { up: self.bereave(child), down: Vec::new() }
    }

    fn receive(&mut self, _now: Tick, from: AgentId, message: Uplink) -> Result<Passed, ProtocolError> {
        if !self.children.contains_key(&from) {
            return Err(ProtocolError::UnknownAgent(from));
        }
        match message {
            Uplink::Cluster(upload) => {
                Ok(Passed { up: self.receive_upload(from, upload)?, down: Vec::new() })
            }
            Uplink::Clusters(list) => self.receive_list(from, list),
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
        }
    }

    fn hear(&mut self, now: Tick, message: Downlink) -> Result<Passed, ProtocolError> {
        match message {
            Downlink::Group(group) => self.adopt(&group),
            Downlink::Regroup { phase, anew } => self.regroup(now, phase, anew),
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
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
        Some(self.open.as_ref()?.opened.after(self.deadline?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.open.as_ref().map(|open| &open.waiting)
    }

    fn below(&self) -> CoordinatorView<'_> {
        CoordinatorView::of(self.version, &self.told.evidence, self.told.information, self.children.len())
    }

    fn above(&self) -> AgentView<'_> {
        let known = self.known();
        let on_its_way = self.sent.saturating_sub(self.arrived);
        AgentView {
            version: self.parent_version,
            shared: self.told.evidence.count(),
            in_flight: self.in_flight.as_ref().map(|_| (self.number, on_its_way)),
            ..AgentView::alone(known.saturating_sub(self.sent), 0.0)
        }
    }

    fn child(&self, child: AgentId) -> Option<AgentStanding> {
        let uploads = self.children.get(&child)?.number;
        let seat = self.roster.get(child);
        let (version, information) = seat.map_or((Version(0), 0.0), |seat| (seat.version, seat.information));
        Some(AgentStanding { uploads, version, information })
    }

    fn clusters(&self) -> Vec<KnownCluster> {
        let known = |(agent, seat): (&AgentId, &ReleaseSeat)| KnownCluster {
            agent: *agent,
            orphan: false,
            cluster: FIRST,
            group: 1,
            uploads: seat.number,
            count: seat.release.evidence.count(),
        };
        self.children.iter().map(known).collect()
    }

    fn save(&self) -> Vec<u8> {
        self.encode()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.decode(state)
    }
}
