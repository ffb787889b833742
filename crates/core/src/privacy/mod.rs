//! Differential privacy of what leaves an agent.
//!
//! An agent's sums are released again and again as they grow, each time with the noise of a few nodes of a
//! [`Tree`]. The [`Accountant`] records every release and refuses what the budget does not allow; its
//! [`PrivacyReport`] says what may be claimed. Whatever is computed from releases afterwards, such as
//! [`repair()`], costs nothing more.

mod accountant;
mod config;
/// Conversions between zero-concentrated and (ε, δ) differential privacy.
pub mod conversion;
mod noise;
mod plan;
pub(crate) mod privatizer;
mod repair;
mod report;
mod tree;

pub use accountant::{Accountant, Exhausted};
pub use config::{Bounds, Calibration, Clip, PrivacyConfig};
pub use noise::{Node, NoiseSource, SeededNoise};
pub use plan::{Advice, Plan, PlanRequest};
pub use repair::{repair, smallest_eigenvalue};
pub use report::{PrivacyReport, Statement};
pub use tree::{Tree, depth};
