//! Differential privacy of what leaves an agent.
//!
//! An agent's sums are released again and again as they grow. A [`Budget`] divides the promise of a [`PrivacyConfig`]
//! between the releases of clusters and those of users, and says how much noise each needs; [`Factors`] say which
//! combinations of the data are measured with it. Observations are integers and noise is a discrete Gaussian
//! ([`discrete_gaussian`]), so that what is proved about numbers holds for what is computed. The [`Accountant`] records
//! every release and refuses what the budget does not allow; its [`PrivacyReport`] says what may be claimed. An agent's
//! [`PrivacyPolicy`] says what it accepts from a coordinator. Whatever is computed from releases afterwards, such as
//! [`repair()`], costs nothing more.
//!
//! Under [`SecureAggregation`] agents share the work: each adds a part of the noise, and only sums over many agents come out.

mod accountant;
mod budget;
mod config;
/// Conversions between Gaussian, zero-concentrated and (ε, δ) differential privacy.
pub mod conversion;
mod factorisation;
mod fixed;
pub(crate) mod intake;
pub(crate) mod masking;
mod noise;
mod plan;
mod policy;
pub(crate) mod privatizer;
mod repair;
mod report;
pub(crate) mod response;
mod sampler;
pub(crate) mod shared_noise;
pub(crate) mod shared_sums;
mod stream;
mod update_plan;
pub(crate) mod updates;

pub use accountant::{Accountant, Exhausted};
pub use budget::{Budget, Calibration, Share};
pub use config::{Clip, PrivacyConfig, Unit};
pub use factorisation::{Factors, MAX_RELEASES, Mechanism};
pub use masking::{
    MOST_PARTICIPANTS, OpenedShare, PublicKeys, SealedShares, SecretShare, SecureAggregation, SecureDownlink,
    SecureOutcome, SecureUplink,
};
pub use noise::{Measurement, NoiseSource, SeededNoise, StreamId};
pub use plan::{Advice, Plan, PlanRequest};
pub use policy::{PolicyBreach, PrivacyPolicy};
pub use repair::{repair, smallest_eigenvalue};
pub use report::{PrivacyReport, Statement};
pub use sampler::{Bits, discrete_gaussian};
pub use stream::{Release, ReleaseStream};
pub use update_plan::{UpdatePlan, UpdatePlanRequest};
