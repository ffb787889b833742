//! A round of the parent as it goes on below a relay: parts are collected, then gradients, as often as it asks.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ModelRelay;
use crate::error::ProtocolError;
use crate::evidence::{Evidence, add_assign, packed};
use crate::exchange::shares::SentParts;
use crate::glm::model_rounds::check_gradient;
use crate::ids::{AgentId, RoundId, Tick};
use crate::message::{Downlink, Gradient, Outgoing, Uplink};
use crate::parcel::Parcel;
use crate::relay::Passed;
use crate::ridge::Ridge;

/// A round of the parent, from its beginning to its end.
#[derive(Clone, Debug)]
pub(super) struct OpenModelRelayRound {
    /// When the exchange it waits for began.
    pub(super) opened: Tick,
    pub(super) waiting: BTreeSet<AgentId>,
    pub(super) sent: SentParts,
    pub(super) sum: Evidence,
    /// The sum was sent to the parent.
    pub(super) answered: bool,
    /// The parent was told that it cannot go on with this round.
    pub(super) void: bool,
    pub(super) asking: Option<Asking>,
}

/// Gradients that the parent has asked for.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) step: u64,
    pub(super) gradient: Vec<f64>,
    pub(super) curvature: Option<Vec<f64>>,
}

impl OpenModelRelayRound {
    /// Whether a child takes part.
    pub(super) fn has(&self, child: AgentId) -> bool {
        self.waiting.contains(&child) || self.sent.parts.contains_key(&child)
    }
}

impl ModelRelay {
    /// Begins a round of the parent here.
    pub(super) fn collect(&mut self, now: Tick, parent_round: RoundId, whole: bool) -> Passed {
        if parent_round <= self.parent_round {
            return Passed::default();
        }
        self.parent_round = parent_round;
        self.round = RoundId(self.round.0 + 1);
        let left_out = std::mem::take(&mut self.silent);
        let asked = |child: &&AgentId| !(whole && left_out.contains(child));
        let waiting: BTreeSet<AgentId> = self.shares.children.keys().filter(asked).copied().collect();
        self.open = Some(OpenModelRelayRound {
            opened: now,
            waiting,
            sent: SentParts { whole, ..SentParts::default() },
            sum: Evidence::none(self.dimension()),
            answered: false,
            void: false,
            asking: None,
        });
        if self.minimises && self.orphaned && !whole {
            // The parent would ask for gradients of observations that nobody has.
            return Passed { up: self.lose(true), down: Vec::new() };
        }
        let down = self.to_waiting(&Downlink::Collect { round: self.round, whole });
        Passed { up: self.go_on().up, down }
    }

    fn to_waiting(&self, message: &Downlink) -> Vec<Outgoing> {
        let waiting = self.open.iter().flat_map(|open| &open.waiting);
        waiting.map(|child| Outgoing::to(*child, message.clone())).collect()
    }

    /// Tells the parent that observations which it counts on are gone, or that children are silent: the round cannot end
    /// here. `shared` if some of them are in the model, so that everything has to be collected anew.
    pub(super) fn lose(&mut self, shared: bool) -> Vec<Uplink> {
        if let Some(open) = &mut self.open {
            open.void = true;
            open.waiting.clear();
            open.asking = None;
        }
        vec![Uplink::RoundLoss { round: self.parent_round, shared }]
    }

    /// A child that is a relay says that it cannot go on with a round.
    pub(super) fn hear_of_loss(
        &mut self,
        from: AgentId,
        round: RoundId,
        shared: bool,
    ) -> Result<Passed, ProtocolError> {
        if round > self.round {
            return Err(ProtocolError::Round(round));
        }
        self.orphaned |= self.minimises && shared;
        let takes_part = |open: &OpenModelRelayRound| !open.void && open.has(from);
        let ends = round == self.round && self.open.as_ref().is_some_and(takes_part);
        let up = if ends { self.lose(self.orphaned) } else { Vec::new() };
        Ok(Passed { up, down: Vec::new() })
    }

    /// Adds a child's part to the open round, or refuses it unchanged.
    pub(super) fn add(
        &mut self,
        from: AgentId,
        round: RoundId,
        part: &Parcel,
    ) -> Result<Passed, ProtocolError> {
        let (expected, got) = (self.dimension(), part.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let current = self.round;
        let waits = |open: &&mut OpenModelRelayRound| {
            round == current && !open.answered && open.waiting.contains(&from)
        };
        let regularization = self.regularization;
        let Some(open) = self.open.as_mut().filter(waits) else { return self.late(round) };
        if !part.is_nothing() {
            let part = part.evidence();
            part.check()?;
            let sum = open.sum.checked_sum(part)?;
            // The root factorises the sum of everything; here it is enough that this sum can be.
            Ridge::new(expected, regularization).refresh([&sum].into_iter())?;
            open.sum = sum;
        }
        open.waiting.remove(&from);
        open.sent.parts.insert(from, part.count());
        Ok(self.go_on())
    }

    /// What comes too late for its round counts for nothing: the child hears in the model that it did not.
    fn late(&self, round: RoundId) -> Result<Passed, ProtocolError> {
        if round > self.round { Err(ProtocolError::Round(round)) } else { Ok(Passed::default()) }
    }

    /// Answers the parent if no child is waited for.
    pub(super) fn go_on(&mut self) -> Passed {
        let (shares, minimises) = (&self.shares.children, self.minimises);
        let is_done = |open: &&mut OpenModelRelayRound| open.waiting.is_empty() && !open.void;
        let Some(open) = self.open.as_mut().filter(is_done) else { return Passed::default() };
        let up = if let Some(asking) = open.asking.take() {
            let Asking { step, gradient, curvature } = asking;
            vec![Uplink::Gradient(Gradient { round: self.parent_round, step, gradient, curvature })]
        } else if open.answered {
            Vec::new()
        } else {
            let is_missing =
                |(child, share): (&AgentId, &u64)| *share > 0 && !open.sent.parts.contains_key(child);
            if minimises && !open.sent.whole && shares.iter().any(is_missing) {
                return Passed { up: self.lose(true), down: Vec::new() };
            }
            open.answered = true;
            let evidence = Parcel::wrap(&open.sum);
            let evidence = if minimises { evidence.without_moment() } else { evidence };
            vec![Uplink::RoundEvidence { round: self.parent_round, evidence }]
        };
        Passed { up, down: Vec::new() }
    }

    /// The parent asks for the gradient at a point: so do all children that have observations in the round.
    pub(super) fn ask_for_gradients(
        &mut self,
        now: Tick,
        round: RoundId,
        step: u64,
        point: &Arc<Vec<f64>>,
        curvature: bool,
    ) -> Result<Passed, ProtocolError> {
        let (expected, got) = (self.dimension(), point.len());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        if !self.minimises || !point.iter().all(|v| v.is_finite()) {
            return Err(ProtocolError::Gradient("no gradients are asked for at this point"));
        }
        let current = |open: &&mut OpenModelRelayRound| open.answered && !open.void;
        let is_open = round == self.parent_round;
        let shares = &self.shares.children;
        let Some(open) = self.open.as_mut().filter(current).filter(|_| is_open) else {
            return Ok(Passed::default());
        };
        let before =
            |child: &AgentId| if open.sent.whole { 0 } else { shares.get(child).copied().unwrap_or(0) };
        let has_data = |(child, part): &(&AgentId, &u64)| **part > 0 || before(child) > 0;
        open.waiting = open.sent.parts.iter().filter(has_data).map(|(child, _)| *child).collect();
        open.opened = now;
        open.asking = Some(Asking {
            step,
            gradient: vec![0.0; expected],
            curvature: curvature.then(|| vec![0.0; packed(expected)]),
        });
        let point = Arc::clone(point);
        let down = self.to_waiting(&Downlink::GradientRequest { round: self.round, step, point, curvature });
        Ok(Passed { up: self.go_on().up, down })
    }

    /// Adds a child's gradient to those that the parent has asked for, or refuses it unchanged.
    pub(super) fn add_gradient(&mut self, from: AgentId, part: &Gradient) -> Result<Passed, ProtocolError> {
        let (expected, got) = (self.dimension(), part.gradient.len());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        let (round, current) = (part.round, self.round);
        let waits = |open: &&mut OpenModelRelayRound| round == current && open.waiting.contains(&from);
        let (constants, shared) = (self.constants, &self.shared.evidence);
        let Some(open) = self.open.as_mut().filter(waits) else { return self.late(round) };
        let asked = |asking: &&mut Asking| asking.step == part.step;
        let Some(asking) = open.asking.as_mut().filter(asked) else { return self.late(round) };
        // A child may have any of the observations in the model, as far as is known here.
        let bound = if open.sent.whole { open.sum.clone() } else { open.sum.checked_sum(shared)? };
        check_gradient(&constants, &bound, part, asking.curvature.is_some())?;
        add_assign(&mut asking.gradient, &part.gradient);
        if let (Some(sum), Some(matrix)) = (&mut asking.curvature, &part.curvature) {
            add_assign(sum, matrix);
        }
        open.waiting.remove(&from);
        Ok(self.go_on())
    }

    /// The children that are waited for have not answered in time, or are `absent`.
    pub(super) fn pass_deadline(&mut self, absent: &BTreeSet<AgentId>) -> Passed {
        let children = self.shares.children.len();
        let Some(open) = &mut self.open else { return Passed::default() };
        let missing = std::mem::take(&mut open.waiting);
        let answered = open.sent.parts.keys().filter(|child| !missing.contains(child)).count();
        let there = children.saturating_sub(missing.intersection(absent).count());
        if answered == 0 || (answered as f64) < self.quorum * there as f64 {
            // Without a quorum of its children a relay does not answer, as they would not: the parent goes on without it.
            open.void = true;
            open.asking = None;
            return Passed::default();
        }
        let solving = open.asking.is_some();
        self.silent = missing;
        // The gradients of a child are missing, so its observations must be left out too.
        if solving { Passed { up: self.lose(true), down: Vec::new() } } else { self.go_on() }
    }
}
