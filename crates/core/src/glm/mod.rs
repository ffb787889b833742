//! The generalized linear family: expected rewards are a link function of what is linear in an arm's
//! features. Clicks, counts and choices.

pub(crate) mod config;
pub(crate) mod fed_glb_ucb;
pub(crate) mod fed_glb_ucb_3;
pub(crate) mod history;
pub(crate) mod link;
pub(crate) mod model_relay;
pub(crate) mod model_rounds;
pub(crate) mod online;
pub(crate) mod ons;
pub(crate) mod ons_glm;
pub(crate) mod private_glm_ucb;
pub(crate) mod projection;
pub(crate) mod record;
pub(crate) mod solver;
mod sums;
pub(crate) mod ucb_glm;

pub use config::{GlmConfig, Precision, SolverConfig};
pub use fed_glb_ucb::{FedGlbUcb, RoundClock, ScheduledGlbUcb};
pub use fed_glb_ucb_3::FedGlbUcb3;
pub use link::LinkFunction;
pub use ons_glm::OnsGlm;
pub use private_glm_ucb::PrivateGlmUcb;
pub use solver::Solver;
pub use ucb_glm::UcbGlm;
