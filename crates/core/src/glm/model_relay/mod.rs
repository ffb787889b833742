//! The relay of rounds that end with a model: sums of its children's parts and gradients go up, models come down.
//!
//! Observations stay with the agents, so a relay holds nothing that could get lost. To its parent it is an agent with
//! the observations of all its children: it remembers how many of each child are in the model, and tells the parent when
//! some of those are gone. Versions and rounds that children count by are the relay's own. They go on when the parent has
//! lost part of its history, and so children need no epoch.

mod round;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use super::config::Constants;
use super::model_rounds::ModelRounds;
use crate::agent::AgentView;
use crate::coordinator::{AgentStanding, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::packed;
use crate::exchange::shares::{Settled, Shares};
use crate::exchange::{JoinPolicy, RoundConfig};
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::message::{Downlink, Fit, Model, Outgoing, Uplink};
use crate::relay::{Passed, Relay, UpperLink};
use crate::ridge::Ridge;
use crate::time_span::TimeSpan;
use round::OpenModelRelayRound;

/// The relay of `fed-glb-ucb` and its variants.
#[derive(Clone, Debug)]
pub(crate) struct ModelRelay {
    name: &'static str,
    constants: Constants,
    regularization: f64,
    join: JoinPolicy,
    quorum: f64,
    /// How long each exchange of a round waits for children.
    patience: Option<TimeSpan>,
    /// Rounds find a minimum: they need the gradients of all observations in the model.
    minimises: bool,
    /// On a schedule: how many observations of all agents begin a round.
    every: Option<u64>,
    /// What the children were told last, in the relay's own versions.
    shared: Model,
    information: f64,
    parent_version: Version,
    /// The newest round of the parent that was heard of.
    parent_round: RoundId,
    /// A round was asked for at once and has not ended.
    requested: bool,
    /// Observations that are in no model: told by each child, and told to the parent.
    reported: BTreeMap<AgentId, u64>,
    told: u64,
    shares: Shares,
    /// The parent's model contains observations that no child has any more.
    orphaned: bool,
    /// Children that did not answer in time, and are left out when the parent begins anew.
    silent: BTreeSet<AgentId>,
    round: RoundId,
    open: Option<OpenModelRelayRound>,
}

impl ModelRelay {
    /// A relay of the federation that `root` coordinates.
    pub(crate) fn new(root: &ModelRounds, rounds: &RoundConfig, above: UpperLink) -> Self {
        Self {
            name: root.name(),
            constants: root.constants(),
            regularization: root.regularization(),
            join: rounds.join,
            quorum: rounds.quorum,
            patience: rounds.round_deadline.map(|deadline| above.patience(deadline)),
            minimises: root.minimises(),
            every: root.every(),
            shared: root.model_of(AgentId(0), false),
            information: 0.0,
            parent_version: Version(0),
            parent_round: RoundId(0),
            requested: false,
            reported: BTreeMap::new(),
            told: 0,
            shares: Shares::default(),
            orphaned: false,
            silent: BTreeSet::new(),
            round: RoundId(0),
            open: None,
        }
    }

    fn dimension(&self) -> usize {
        self.shared.estimate.len()
    }

    /// A child asks for a round, or tells of observations that count towards the next one.
    fn ask_for_round(&mut self, from: AgentId, observations: u64) -> Vec<Uplink> {
        if observations == 0 {
            let asks = !self.requested && self.open.is_none();
            self.requested |= asks;
            return asks.then_some(Uplink::RoundRequest { observations: 0 }).into_iter().collect();
        }
        self.reported.insert(from, observations);
        let known = self.reported.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        // The parent is a tenth behind at most. What begins a round whatever others have is told at once.
        let is_news = known >= self.told.saturating_add((self.told / 10).max(1));
        let begins = known > self.told && self.every.is_some_and(|every| known >= every);
        if !is_news && !begins {
            return Vec::new();
        }
        self.told = known;
        vec![Uplink::RoundRequest { observations: known }]
    }

    /// Takes over a model of the parent, or changes nothing. Whatever round was open is over.
    fn adopt(&mut self, model: &Model) -> Result<Passed, ProtocolError> {
        let information = self.check_model(model)?;
        let sent = self.open.as_ref().filter(|open| open.answered);
        let judged = self.shares.judge(
            model.contains,
            model.version,
            self.parent_version,
            sent.map(|open| &open.sent),
        );
        match judged {
            Settled::Included => {
                let open = self.open.take().expect("its parts are included");
                self.shares.include(&open.sent);
                self.orphaned = open.void || (self.orphaned && !open.sent.whole);
            }
            Settled::Unchanged => {}
            Settled::Nothing if self.minimises => {
                self.shares.clear();
                self.orphaned = false;
            }
            // Agents of online rounds have forgotten what the parent lost. It is gone, and they keep their counts.
            Settled::Nothing | Settled::Unknown if !self.minimises && model.authoritative => {}
            // Nobody can tell which observations the parent still has. Children keep the model that they have; the next
            // round begins anew with everything.
            Settled::Unknown if model.authoritative => {
                self.orphaned = true;
                self.shares.note(model.contains, model.version);
                return Ok(self.forget_rounds(model.version));
            }
            Settled::Nothing | Settled::Unknown => {
                let (expected, got) = (self.shares.parent, model.contains);
                return Err(ProtocolError::Sequence { expected, got });
            }
        }
        self.shares.note(model.contains, model.version);
        let version = self.shared.version.next();
        self.shared = Model { authoritative: false, version, ..model.clone() };
        self.information = information;
        self.parent_version = model.version;
        if model.authoritative {
            self.parent_round = RoundId(0);
        }
        self.open = None;
        self.silent.clear();
        self.requested = false;
        // Children that made more observations meanwhile report them again, counted from this model.
        self.reported.clear();
        self.told = 0;
        let children = self.shares.children.keys();
        Ok(Passed {
            up: Vec::new(),
            down: children.map(|child| Outgoing::to(*child, self.told_to(*child, false))).collect(),
        })
    }

    /// The parent's rounds before this are over, without a result here.
    fn forget_rounds(&mut self, version: Version) -> Passed {
        (self.parent_version, self.parent_round) = (version, RoundId(0));
        self.reported.clear();
        self.told = 0;
        self.end_without_result()
    }

    fn end_without_result(&mut self) -> Passed {
        self.open = None;
        self.silent.clear();
        self.requested = false;
        let abort = Outgoing::to_everyone(Downlink::Abort { round: self.round });
        Passed { up: Vec::new(), down: vec![abort] }
    }

    /// The information of a model's evidence, or what is wrong with the model.
    fn check_model(&self, model: &Model) -> Result<f64, ProtocolError> {
        let (expected, got) = (self.dimension(), model.estimate.len());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let (numbers, fits) = match &model.fit {
            Fit::Minimised { gap, information, unit_information } => {
                (vec![*gap, *information, *unit_information], self.minimises)
            }
            Fit::Online { curvature, potential, squares } => {
                if curvature.len() != packed(expected) || !curvature.iter().all(|v| v.is_finite()) {
                    return Err(ProtocolError::Model("its numbers do not fit together"));
                }
                (vec![*potential, *squares], !self.minimises)
            }
        };
        if !fits {
            return Err(ProtocolError::Model("it was found in another way"));
        }
        if !model.estimate.iter().chain(&numbers).all(|v| v.is_finite()) {
            return Err(ProtocolError::Model("not all numbers are finite"));
        }
        if model.evidence.dimension() != expected {
            return Err(ProtocolError::Dimension { expected, got: model.evidence.dimension() });
        }
        Ridge::check(&model.evidence, self.regularization)
    }

    fn told_to(&self, child: AgentId, authoritative: bool) -> Downlink {
        let contains = self.shares.children.get(&child).copied().unwrap_or(0);
        Downlink::Model(Model { authoritative, contains, ..self.shared.clone() })
    }

    /// A child's life is over: what it had is gone, and what it was asked will not be answered.
    fn bereave(&mut self, child: AgentId) -> Passed {
        let share = self.shares.children.remove(&child).unwrap_or(0);
        self.reported.remove(&child);
        self.silent.remove(&child);
        self.orphaned |= self.minimises && share > 0;
        let Some(open) = self.open.as_mut().filter(|open| !open.void) else { return Passed::default() };
        let asked = open.waiting.remove(&child);
        let part = open.sent.parts.remove(&child);
        // A part that is in the sum stays there.
        open.sent.gone = open.sent.gone.saturating_add(part.unwrap_or(0));
        if self.minimises && (asked || part.is_some()) && (share > 0 || part.unwrap_or(0) > 0) {
            return Passed { up: self.lose(self.orphaned), down: Vec::new() };
        }
        self.go_on()
    }
}

impl Relay for ModelRelay {
    fn join(&mut self, _now: Tick, child: AgentId, entrance: Entrance) -> Passed {
        let known = self.shares.children.contains_key(&child);
        if entrance == Entrance::Returning {
            self.shares.children.entry(child).or_insert(0);
            // It forgets the round it was in, so that cannot go on.
            let takes_part = self.open.as_ref().is_some_and(|open| !open.void && open.has(child));
            let up = if takes_part { self.lose(self.orphaned) } else { Vec::new() };
            return Passed { up, down: vec![Outgoing::to(child, self.told_to(child, true))] };
        }
        let changed = if known { self.bereave(child) } else { Passed::default() };
        self.shares.children.insert(child, 0);
        let told = self.shared.version > Version(0) && (known || self.join == JoinPolicy::PullOnJoin);
        let model = told.then(|| Outgoing::to(child, self.told_to(child, false)));
        Passed { up: changed.up, down: model.into_iter().chain(changed.down).collect() }
    }

    fn leave(&mut self, _now: Tick, child: AgentId) -> Passed {
        self.bereave(child)
    }

    fn receive(&mut self, _now: Tick, from: AgentId, message: Uplink) -> Result<Passed, ProtocolError> {
        if !self.shares.children.contains_key(&from) {
            return Err(ProtocolError::UnknownAgent(from));
        }
        match message {
            Uplink::RoundRequest { observations } => {
                Ok(Passed { up: self.ask_for_round(from, observations), down: Vec::new() })
            }
            Uplink::RoundEvidence { round, evidence } => self.add(from, round, &evidence),
            Uplink::Gradient(gradient) => self.add_gradient(from, &gradient),
            Uplink::RoundLoss { round, shared } => self.hear_of_loss(from, round, shared),
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
        }
    }

    fn hear(&mut self, now: Tick, message: Downlink) -> Result<Passed, ProtocolError> {
        match message {
            Downlink::Collect { round, whole } => Ok(self.collect(now, round, whole)),
            Downlink::GradientRequest { round, step, point, curvature } => {
                self.ask_for_gradients(now, round, step, &point, curvature)
            }
            Downlink::Model(model) => {
                let is_news = model.authoritative || model.version > self.parent_version;
                if is_news { self.adopt(&model) } else { Ok(Passed::default()) }
            }
            Downlink::Abort { round } if round == self.parent_round && round > RoundId(0) => {
                Ok(self.end_without_result())
            }
            Downlink::Abort { .. } => Ok(Passed::default()),
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
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
        let open = self.open.as_ref().filter(|open| !open.waiting.is_empty())?;
        Some(open.opened.after(self.patience?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.open.as_ref().map(|open| &open.waiting).filter(|waiting| !waiting.is_empty())
    }

    fn below(&self) -> CoordinatorView<'_> {
        let agents = self.shares.children.len();
        CoordinatorView::of(self.shared.version, &self.shared.evidence, self.information, agents)
    }

    fn above(&self) -> AgentView<'_> {
        let shared = self.shared.evidence.count();
        AgentView { version: self.parent_version, shared, ..AgentView::alone(0, 0.0) }
    }

    fn child(&self, child: AgentId) -> Option<AgentStanding> {
        let uploads = *self.shares.children.get(&child)?;
        Some(AgentStanding { uploads, version: self.shared.version, information: self.information })
    }

    fn save(&self) -> Vec<u8> {
        self.encode()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.decode(state)
    }
}
