//! The coordinator of the family: it collects what agents have seen, finds the model of all of it and sends
//! that model to all agents.

mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::config::{Constants, GlmConfig, SolverConfig};
use super::online::Online;
use super::solver::{Measured, Minimiser, Problem, Solution};
use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::{Evidence, add_assign, packed};
use crate::exchange::JoinPolicy;
use crate::exchange::RoundConfig;
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::message::{Downlink, Fit, Gradient, Model, Outgoing, Uplink};
use crate::parcel::Parcel;
use crate::ridge::Ridge;

/// The coordinator of rounds that end with a model.
///
/// A minimiser needs the gradients of *all* observations in the loss, so the evidence holds observations
/// of agents that can still be asked, and no others. When an agent is gone (it left, lost its data, or did
/// not answer in time), the next round collects everything anew from those who are there.
#[derive(Clone, Debug)]
pub(crate) struct ModelRounds {
    name: &'static str,
    constants: Constants,
    config: RoundConfig,
    version: Version,
    evidence: Arc<Evidence>,
    /// Of the evidence, for information and for solving.
    model: Ridge,
    estimate: Arc<Vec<f64>>,
    update: ModelUpdate,
    /// Who has joined, with how many of its observations are in the evidence.
    agents: BTreeMap<AgentId, u64>,
    /// The evidence holds observations of an agent that is gone.
    orphaned: bool,
    /// On a schedule: how many observations that are in no model begin a round.
    every: Option<u64>,
    /// How many such observations agents have told of, each the newest number.
    reported: BTreeMap<AgentId, u64>,
    round: RoundId,
    open: Option<OpenModelRound>,
}

/// What a round does with what it collected.
#[derive(Clone, Debug)]
pub(crate) enum ModelUpdate {
    /// Ask for gradients until the loss is at its minimum.
    Minimise { solver: SolverConfig, gap: f64, unit_information: f64, measured: Measured },
    /// Take one online Newton step with the gradients that came (FedGLB-UCB₃).
    Online(Online),
}

/// A round that has begun and not ended: first agents send their evidence, then gradients (`solving`).
#[derive(Clone, Debug)]
struct OpenModelRound {
    /// When the exchange it waits for began.
    opened: Tick,
    /// Parts are everything an agent has, not only news.
    whole: bool,
    waiting: BTreeSet<AgentId>,
    /// Who has answered, with how many observations.
    parts: BTreeMap<AgentId, u64>,
    sum: Evidence,
    solving: Option<Solving>,
}

/// The second half of a round: the coordinator asks for gradients until the minimum is found.
#[derive(Clone, Debug)]
struct Solving {
    minimiser: Minimiser,
    /// The matrix of everything that this round collected, factorised.
    model: Ridge,
    gradient: Vec<f64>,
    curvature: Option<Vec<f64>>,
}

impl ModelRounds {
    pub(crate) fn minimising(
        name: &'static str,
        model: &GlmConfig,
        rounds: &RoundConfig,
        solver: &SolverConfig,
        dimension: usize,
    ) -> Self {
        let update = ModelUpdate::Minimise {
            solver: solver.clone(),
            gap: 0.0,
            unit_information: 0.0,
            measured: Measured::default(),
        };
        let constants = model.constants();
        Self::new(name, constants, rounds, update, Ridge::new(dimension, constants.ridge()))
    }

    pub(crate) fn new(
        name: &'static str,
        constants: Constants,
        rounds: &RoundConfig,
        update: ModelUpdate,
        model: Ridge,
    ) -> Self {
        let dimension = model.dimension();
        Self {
            name,
            constants,
            config: rounds.clone(),
            version: Version(0),
            evidence: Arc::new(Evidence::none(dimension)),
            model,
            estimate: Arc::new(vec![0.0; dimension]),
            update,
            agents: BTreeMap::new(),
            orphaned: false,
            every: None,
            reported: BTreeMap::new(),
            round: RoundId(0),
            open: None,
        }
    }

    /// The same with rounds whenever all agents together have told of `every` observations that are in no model.
    pub(crate) fn on_schedule(self, every: u64) -> Self {
        Self { every: Some(every), ..self }
    }

    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) const fn constants(&self) -> Constants {
        self.constants
    }

    pub(super) const fn regularization(&self) -> f64 {
        self.model.regularization()
    }

    pub(super) const fn every(&self) -> Option<u64> {
        self.every
    }

    /// Whether rounds find a minimum, for which agents are asked for gradients of all observations.
    pub(super) const fn minimises(&self) -> bool {
        matches!(self.update, ModelUpdate::Minimise { .. })
    }

    /// An agent asks for a round, or tells of observations that count towards the next one.
    fn ask_for_round(&mut self, now: Tick, from: AgentId, observations: u64) -> Vec<Outgoing> {
        if observations > 0 {
            self.reported.insert(from, observations);
        }
        let known: u128 = self.reported.values().map(|count| u128::from(*count)).sum();
        let due = observations == 0 || self.every.is_none_or(|every| known >= u128::from(every));
        if self.open.is_some() || !due {
            return Vec::new();
        }
        self.start(now, self.agents.keys().copied().collect(), self.orphaned)
    }

    /// Begins a round among `participants`; whatever was under way is void.
    fn start(&mut self, now: Tick, participants: BTreeSet<AgentId>, whole: bool) -> Vec<Outgoing> {
        if participants.is_empty() {
            // Agents that missed the deadline of the round under way wait to hear how it ended.
            return self.abort();
        }
        self.open = None;
        self.round = RoundId(self.round.0 + 1);
        let nothing = Evidence::none(self.model.dimension());
        let mut sum = if whole { nothing.clone() } else { (*self.evidence).clone() };
        // Only what agents say in this round.
        sum.set_moment(nothing.moment());
        let collect = Downlink::Collect { round: self.round, whole };
        let outgoing = self.to_each(&participants, &collect);
        self.open = Some(OpenModelRound {
            opened: now,
            whole,
            waiting: participants,
            parts: BTreeMap::new(),
            sum,
            solving: None,
        });
        outgoing
    }

    fn to_each(&self, agents: &BTreeSet<AgentId>, message: &Downlink) -> Vec<Outgoing> {
        if self.agents.keys().eq(agents) {
            return vec![Outgoing::to_everyone(message.clone())];
        }
        agents.iter().map(|agent| Outgoing::to(*agent, message.clone())).collect()
    }

    /// Ends the open round without a result.
    fn abort(&mut self) -> Vec<Outgoing> {
        let Some(_) = self.open.take() else { return Vec::new() };
        vec![Outgoing::to_everyone(Downlink::Abort { round: self.round })]
    }

    /// Adds an agent's part to the open round, or refuses it unchanged.
    fn add(
        &mut self,
        now: Tick,
        from: AgentId,
        round: RoundId,
        part: &Parcel,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        let (expected, got) = (self.model.dimension(), part.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let open_round = self.round;
        let waits = |open: &&mut OpenModelRound| {
            round == open_round && open.solving.is_none() && open.waiting.contains(&from)
        };
        let Some(open) = self.open.as_mut().filter(waits) else { return self.late(round) };
        if !part.is_nothing() {
            let part = part.evidence();
            part.check()?;
            let sum = open.sum.checked_sum(part)?;
            self.model.clone().refresh([&sum].into_iter())?;
            open.sum = sum;
        }
        open.waiting.remove(&from);
        open.parts.insert(from, part.count());
        Ok(self.go_on(now))
    }

    /// What comes too late for its round counts for nothing: its agent hears in the model that it did not.
    fn late(&self, round: RoundId) -> Result<Vec<Outgoing>, ProtocolError> {
        if round > self.round { Err(ProtocolError::Round(round)) } else { Ok(Vec::new()) }
    }

    /// Adds an agent's gradient to the open round, or refuses it unchanged.
    fn add_gradient(
        &mut self,
        now: Tick,
        from: AgentId,
        part: &Gradient,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        let (expected, got) = (self.model.dimension(), part.gradient.len());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let (round, open_round) = (part.round, self.round);
        let waits = |open: &&mut OpenModelRound| round == open_round && open.waiting.contains(&from);
        let Some(open) = self.open.as_mut().filter(waits) else { return self.late(round) };
        let current = |solving: &&mut Solving| solving.minimiser.evaluations() == part.step;
        let Some(solving) = open.solving.as_mut().filter(current) else { return self.late(round) };
        check_gradient(&self.constants, &open.sum, part, solving.curvature.is_some())?;
        add_assign(&mut solving.gradient, &part.gradient);
        if let (Some(sum), Some(matrix)) = (&mut solving.curvature, &part.curvature) {
            add_assign(sum, matrix);
        }
        open.waiting.remove(&from);
        Ok(self.go_on(now))
    }

    /// Continues the open round if it does not wait for any agent. Returns what to send next, if anything.
    fn go_on(&mut self, now: Tick) -> Vec<Outgoing> {
        let Some(open) = self.open.take_if(|open| open.waiting.is_empty()) else { return Vec::new() };
        if open.solving.is_some() {
            return self.solve(now, open);
        }
        if let ModelUpdate::Online(online) = &self.update {
            let (mut online, mut collected) = (online.clone(), open.sum.clone());
            let estimate = online.step(&self.constants, &self.evidence, &mut collected, &self.estimate);
            if self.model.clone().refresh([&collected].into_iter()).is_err() {
                self.open = Some(open);
                return self.abort();
            }
            self.update = ModelUpdate::Online(online);
            return self.commit(&open, collected, estimate);
        }
        let missing =
            |(agent, contained): (&AgentId, &u64)| *contained > 0 && !open.parts.contains_key(agent);
        if !open.whole && self.agents.iter().any(missing) {
            return self.start(now, open.parts.keys().copied().collect(), true);
        }
        if open.sum.is_empty() {
            self.open = Some(open);
            return self.abort();
        }
        let mut model = self.model.clone();
        model.refresh([&open.sum].into_iter()).expect("every part was checked with the sum so far");
        let ModelUpdate::Minimise { solver, measured, .. } = &self.update else {
            unreachable!("handled above")
        };
        let minimiser = Minimiser::new(solver.solver, measured, &self.estimate);
        let solving = Solving { minimiser, model, gradient: Vec::new(), curvature: None };
        self.ask(now, OpenModelRound { solving: Some(solving), ..open })
    }

    /// Asks every agent that has observations in this round for the gradient at the minimiser's next point.
    fn ask(&mut self, now: Tick, mut open: OpenModelRound) -> Vec<Outgoing> {
        let Some(solving) = &mut open.solving else { unreachable!("only asked while solving") };
        let d = self.model.dimension();
        let curvature = solving.minimiser.needs_curvature();
        solving.gradient = vec![0.0; d];
        solving.curvature = curvature.then(|| vec![0.0; packed(d)]);
        let request = Downlink::GradientRequest {
            round: self.round,
            step: solving.minimiser.evaluations(),
            point: Arc::new(solving.minimiser.point().to_vec()),
            curvature,
        };
        let contained =
            |agent: &AgentId| if open.whole { 0 } else { self.agents.get(agent).copied().unwrap_or(0) };
        let has_data = |(agent, count): &(&AgentId, &u64)| **count + contained(agent) > 0;
        open.waiting = open.parts.iter().filter(has_data).map(|(agent, _)| *agent).collect();
        open.opened = now;
        let outgoing = self.to_each(&open.waiting, &request);
        self.open = Some(open);
        outgoing
    }

    fn solve(&mut self, now: Tick, mut open: OpenModelRound) -> Vec<Outgoing> {
        let ModelUpdate::Minimise { solver, .. } = &self.update else {
            unreachable!("only minimisers solve")
        };
        let Some(solving) = &mut open.solving else { unreachable!("only called while solving") };
        let gap = solver.gap(open.sum.count());
        let problem = Problem { constants: &self.constants, evidence: &open.sum, model: &solving.model, gap };
        let most = solver.max_evaluations;
        let (gradient, curvature) = (&solving.gradient, solving.curvature.as_deref());
        let Some(found) = solving.minimiser.advance(&problem, gradient, curvature, most) else {
            return self.ask(now, open);
        };
        let Solution { estimate, gap, .. } = found;
        let used = solving.minimiser.clone();
        let evidence = open.sum.with_predictions_of(&estimate);
        if !gap.is_finite()
            || !evidence.is_finite()
            || self.model.clone().refresh([&evidence].into_iter()).is_err()
        {
            // Nothing usable came out: the last model stays, and nothing is lost.
            self.open = Some(open);
            return self.abort();
        }
        let mut unit = Ridge::new(evidence.dimension(), 1.0);
        let unit_information = unit.refresh([&evidence].into_iter()).map_or(0.0, |()| unit.information());
        if let ModelUpdate::Minimise { gap: last, unit_information: information, measured, .. } =
            &mut self.update
        {
            (*last, *information) = (gap, unit_information);
            measured.note(&used);
        }
        self.commit(&open, evidence, estimate)
    }

    /// Makes the result of a round the shared model.
    fn commit(&mut self, open: &OpenModelRound, evidence: Evidence, estimate: Vec<f64>) -> Vec<Outgoing> {
        self.model.refresh([&evidence].into_iter()).expect("it was checked before");
        (self.evidence, self.estimate) = (Arc::new(evidence), Arc::new(estimate));
        self.version = self.version.next();
        // Agents that made more observations meanwhile report them again, counted from this model.
        self.reported.clear();
        for (agent, contained) in &mut self.agents {
            let part = open.parts.get(agent).copied();
            *contained = if open.whole { part.unwrap_or(0) } else { *contained + part.unwrap_or(0) };
        }
        self.orphaned &= !open.whole;
        self.agents.keys().map(|&agent| Outgoing::to(agent, self.told(agent, false))).collect()
    }

    fn told(&self, agent: AgentId, authoritative: bool) -> Downlink {
        Downlink::Model(self.model_of(agent, authoritative))
    }

    /// The shared model as an agent is told of it.
    pub(super) fn model_of(&self, agent: AgentId, authoritative: bool) -> Model {
        let fit = match &self.update {
            ModelUpdate::Minimise { gap, unit_information, .. } => Fit::Minimised {
                gap: *gap,
                information: self.model.information(),
                unit_information: *unit_information,
            },
            ModelUpdate::Online(online) => online.fit(),
        };
        Model {
            authoritative,
            version: self.version,
            contains: self.agents.get(&agent).copied().unwrap_or(0),
            evidence: Arc::clone(&self.evidence),
            estimate: Arc::clone(&self.estimate),
            fit,
        }
    }

    /// An agent's life is over: what it had is gone, and what it was asked will not be answered.
    fn bereave(&mut self, now: Tick, agent: AgentId) -> Vec<Outgoing> {
        let contained = self.agents.remove(&agent).unwrap_or(0);
        self.reported.remove(&agent);
        let minimises = self.minimises();
        self.orphaned |= minimises && contained > 0;
        let Some(open) = &mut self.open else { return Vec::new() };
        let part = open.parts.get(&agent).copied().unwrap_or(0);
        if minimises
            && (part > 0 || contained > 0)
            && (open.waiting.contains(&agent) || open.parts.contains_key(&agent))
        {
            let mut left: BTreeSet<AgentId> = open.parts.keys().chain(&open.waiting).copied().collect();
            left.remove(&agent);
            return self.start(now, left, self.orphaned);
        }
        open.waiting.remove(&agent);
        open.parts.remove(&agent);
        self.go_on(now)
    }

    /// A relay says that it cannot go on with a round: observations below it are gone, or agents there are silent.
    fn begin_anew(
        &mut self,
        now: Tick,
        from: AgentId,
        round: RoundId,
        shared: bool,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        if round > self.round {
            return Err(ProtocolError::Round(round));
        }
        self.orphaned |= shared && self.minimises();
        let takes_part =
            |open: &&OpenModelRound| open.waiting.contains(&from) || open.parts.contains_key(&from);
        let Some(open) = self.open.as_ref().filter(takes_part).filter(|_| round == self.round) else {
            return Ok(Vec::new());
        };
        let all = open.parts.keys().chain(&open.waiting).copied().collect();
        Ok(self.start(now, all, self.orphaned))
    }

    /// Whether so many answers are a quorum of the agents that have joined and are not away.
    fn enough(&self, answered: usize, absent: usize) -> bool {
        let there = self.agents.len().saturating_sub(absent);
        answered > 0 && answered as f64 >= self.config.quorum * there as f64
    }
}

impl Coordinator for ModelRounds {
    fn join(&mut self, now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        let known = self.agents.contains_key(&agent);
        if entrance == Entrance::Returning {
            self.agents.entry(agent).or_insert(0);
            let takes_part =
                |open: &OpenModelRound| open.waiting.contains(&agent) || open.parts.contains_key(&agent);
            // It forgets the round it was in, so that cannot go on.
            let aborted = if self.open.as_ref().is_some_and(takes_part) { self.abort() } else { Vec::new() };
            return [Outgoing::to(agent, self.told(agent, true))].into_iter().chain(aborted).collect();
        }
        let changed = if known { self.bereave(now, agent) } else { Vec::new() };
        self.agents.insert(agent, 0);
        let told = self.version > Version(0) && (known || self.config.join == JoinPolicy::PullOnJoin);
        let model = told.then(|| Outgoing::to(agent, self.told(agent, false)));
        model.into_iter().chain(changed).collect()
    }

    fn leave(&mut self, now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.bereave(now, agent)
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        if !self.agents.contains_key(&from) {
            return Err(ProtocolError::UnknownAgent(from));
        }
        match message {
            Uplink::RoundRequest { observations } => Ok(self.ask_for_round(now, from, observations)),
            Uplink::RoundEvidence { round, evidence } => self.add(now, from, round, &evidence),
            Uplink::Gradient(gradient) => self.add_gradient(now, from, &gradient),
            Uplink::RoundLoss { round, shared } => self.begin_anew(now, from, round, shared),
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
        }
    }

    fn tick(&mut self, now: Tick) -> Vec<Outgoing> {
        self.tick_without(now, &BTreeSet::new())
    }

    fn tick_without(&mut self, now: Tick, absent: &BTreeSet<AgentId>) -> Vec<Outgoing> {
        let due = self.deadline().is_some_and(|deadline| deadline <= now);
        let Some(open) = self.open.as_mut().filter(|_| due) else { return Vec::new() };
        let missing = std::mem::take(&mut open.waiting);
        let absent = missing.intersection(absent).count();
        let answered: BTreeSet<AgentId> =
            open.parts.keys().filter(|agent| !missing.contains(agent)).copied().collect();
        let solving = open.solving.is_some();
        if !self.enough(answered.len(), absent) {
            return self.abort();
        }
        if solving {
            // The gradients of an agent are missing, so its observations must be left out too.
            return self.start(now, answered, true);
        }
        self.go_on(now)
    }

    fn deadline(&self) -> Option<Tick> {
        Some(self.open.as_ref()?.opened.after(self.config.round_deadline?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.open.as_ref().map(|open| &open.waiting)
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        CoordinatorView::of(self.version, &self.evidence, self.model.information(), self.agents.len())
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        let (uploads, information) = (*self.agents.get(&agent)?, self.model.information());
        Some(AgentStanding { uploads, version: self.version, information })
    }

    fn save(&self) -> Vec<u8> {
        self.encode()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.decode(state)
    }
}

/// Whether observations in `sum` can have given this gradient.
pub(super) fn check_gradient(
    constants: &Constants,
    sum: &Evidence,
    part: &Gradient,
    curvature: bool,
) -> Result<(), ProtocolError> {
    let matrix = part.curvature.as_deref().unwrap_or(&[]);
    if !part.gradient.iter().chain(matrix).all(|v| v.is_finite()) {
        return Err(ProtocolError::Gradient("not all numbers are finite"));
    }
    if part.curvature.is_some() != curvature || (curvature && matrix.len() != packed(part.gradient.len())) {
        return Err(ProtocolError::Gradient("it is not what was asked for"));
    }
    let Some(error) = constants.link.largest_error() else { return Ok(()) };
    for (i, slope) in part.gradient.iter().enumerate() {
        // Cauchy and Schwarz: |Σ x_i·e| ≤ √(Σ x_i²)·√n·max|e|.
        let most = error * (sum.gram()[packed(i) + i] * sum.count() as f64).sqrt();
        if slope.abs() > most * (1.0 + 1e-6) + f64::MIN_POSITIVE.sqrt() {
            return Err(ProtocolError::Gradient("it is larger than the evidence allows"));
        }
    }
    Ok(())
}
