//! N-ONS-GLM: every agent learns alone by online Newton steps (GLOC, Jun et al. 2017).

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::config::{Constants, GlmConfig};
use super::ons::Ons;
use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::evidence::check_observation;
use crate::exchange::belief::Belief;
use crate::ids::UserId;
use crate::message::{Downlink, Uplink};
use crate::ridge::Ridge;
use crate::scoring::{check_arms, upper_confidence};
use crate::wire::{self, v1};

/// Settings of `n-ons-glm`: each agent learns alone, with online Newton steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct OnsGlm {
    /// The model and its width.
    #[serde(flatten)]
    pub model: GlmConfig,
}

impl OnsGlm {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()
    }

    pub(crate) fn agent(&self, dimension: usize) -> OnsGlmAgent {
        let constants = self.model.constants();
        let potential = 2.0 * constants.smallest * constants.lambda * constants.radius * constants.radius;
        OnsGlmAgent {
            constants,
            view: Belief::new(Ridge::new(dimension, constants.lambda)),
            ons: Ons::new(dimension, potential),
        }
    }
}

/// An agent that learns alone, a step an observation.
#[derive(Clone, Debug)]
pub(crate) struct OnsGlmAgent {
    constants: Constants,
    view: Belief,
    ons: Ons,
}

impl Agent for OnsGlmAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.view.dimension(), arms)?;
        let width = self.ons.width(&self.constants, &self.view, self.constants.confidence);
        upper_confidence(self.view.model(), width, arms)
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.view.dimension(), arm, reward)?;
        self.constants.link.check_reward(reward)?;
        self.ons.step(&self.constants, &mut self.view, arm, reward);
        Ok(None)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        Err(ProtocolError::Unexpected { algorithm: "n-ons-glm", message: message.kind() })
    }

    fn inspect(&self) -> AgentView<'_> {
        self.view.inspect()
    }

    fn save(&self) -> Vec<u8> {
        v1::GlmAgentState {
            view: Some(self.view.save()),
            iterate: self.ons.iterate.clone(),
            squares: self.ons.squares,
            potential: self.ons.potential,
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::GlmAgentState = wire::decode(state)?;
        let finite = state.iterate.iter().chain([&state.squares, &state.potential]).all(|v| v.is_finite());
        if state.iterate.len() != self.view.dimension() || !finite {
            return Err(DecodeError::invalid("iterate", "it does not fit this federation"));
        }
        self.view = self.view.restored(state.view.unwrap_or_default())?;
        let (squares, potential) = (state.squares, state.potential);
        self.ons = Ons { iterate: state.iterate, squares, potential, shift: 0.0 };
        Ok(())
    }
}
