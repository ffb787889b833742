//! Saves and restores the state of the family's coordinator, an open round included.

use std::sync::Arc;

use prost::Message;

use super::{ModelRounds, ModelUpdate, OpenModelRound, Solving};
use crate::error::DecodeError;
use crate::evidence::{Evidence, packed};
use crate::glm::solver::{Measured, Minimiser};
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::wire::{self, v1};

impl ModelRounds {
    pub(super) fn encode(&self) -> Vec<u8> {
        let part = |(agent, count): (&AgentId, &u64)| v1::GlmPart { agent: agent.0, count: *count };
        let mut state = v1::GlmCoordinatorState {
            version: self.version.0,
            evidence: Some(wire::evidence_to_wire(&self.evidence)),
            model: Some(self.model.save()),
            agents: self.agents.iter().map(part).collect(),
            orphaned: self.orphaned,
            estimate: self.estimate.to_vec(),
            round: self.round.0,
            reported: self.reported.iter().map(part).collect(),
            ..Default::default()
        };
        match &self.update {
            ModelUpdate::Minimise { gap, unit_information, measured, .. } => {
                (state.gap, state.unit_information) = (*gap, *unit_information);
                state.preconditioned_evaluations = measured.preconditioned;
                state.newton_evaluations = measured.newton;
            }
            ModelUpdate::Online(online) => online.save(&mut state),
        }
        if let Some(open) = &self.open {
            state.open = true;
            state.opened = open.opened.0;
            state.whole = open.whole;
            state.waiting = open.waiting.iter().map(|agent| agent.0).collect();
            state.parts = open.parts.iter().map(part).collect();
            state.sum = Some(wire::evidence_to_wire(&open.sum));
            if let Some(solving) = &open.solving {
                state.minimiser = Some(solving.minimiser.save());
                state.gradient.clone_from(&solving.gradient);
                state.curvature = solving.curvature.clone().map(|entries| v1::Packed { entries });
            }
        }
        state.encode_to_vec()
    }

    pub(super) fn decode(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::GlmCoordinatorState = wire::decode(state)?;
        let dimension = self.model.dimension();
        let fits = |v: &[f64]| v.len() == dimension && v.iter().all(|v| v.is_finite());
        if !fits(&state.estimate) {
            return Err(DecodeError::invalid("estimate", "it does not fit this federation"));
        }
        let evidence = |part: Option<v1::Evidence>| {
            let evidence = wire::evidence_from_wire(part.unwrap_or_default())?;
            if evidence.dimension() != dimension {
                return Err(DecodeError::invalid("evidence", "it has another dimension"));
            }
            Ok(evidence)
        };
        let shared = evidence(state.evidence.clone())?;
        let open = state.open.then(|| self.open_round(&state, evidence(state.sum.clone())?)).transpose()?;
        let mut model = self.model.clone();
        model.restore(&state.model.clone().unwrap_or_default())?;
        match &mut self.update {
            ModelUpdate::Minimise { gap, unit_information, measured, .. } => {
                (*gap, *unit_information) = (state.gap, state.unit_information);
                *measured = Measured {
                    preconditioned: state.preconditioned_evaluations,
                    newton: state.newton_evaluations,
                };
            }
            ModelUpdate::Online(online) => online.restore(&state)?,
        }
        self.version = Version(state.version);
        self.evidence = Arc::new(shared);
        self.model = model;
        self.agents = state.agents.iter().map(|part| (AgentId(part.agent), part.count)).collect();
        self.orphaned = state.orphaned;
        self.reported = state.reported.iter().map(|part| (AgentId(part.agent), part.count)).collect();
        self.estimate = Arc::new(state.estimate);
        self.round = RoundId(state.round);
        self.open = open;
        Ok(())
    }

    fn open_round(
        &self,
        state: &v1::GlmCoordinatorState,
        sum: Evidence,
    ) -> Result<OpenModelRound, DecodeError> {
        let dimension = self.model.dimension();
        let solving = match &state.minimiser {
            None => None,
            Some(minimiser) => {
                let curvature = state.curvature.clone().map(|matrix| matrix.entries);
                let matrix = curvature.as_ref().is_none_or(|matrix| matrix.len() == packed(dimension));
                let mut model = self.model.clone();
                if state.gradient.len() != dimension || !matrix || model.refresh([&sum].into_iter()).is_err()
                {
                    return Err(DecodeError::invalid("round", "it does not fit this federation"));
                }
                let minimiser = Minimiser::restored(minimiser.clone(), dimension)?;
                Some(Solving { minimiser, model, gradient: state.gradient.clone(), curvature })
            }
        };
        let parts = state.parts.iter().map(|part| (AgentId(part.agent), part.count)).collect();
        let waiting = state.waiting.iter().map(|&agent| AgentId(agent)).collect();
        Ok(OpenModelRound { opened: Tick(state.opened), whole: state.whole, waiting, parts, sum, solving })
    }
}
