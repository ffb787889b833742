//! Learners without a model of their own making: rewards of similar arms are similar, and a kernel says how
//! similar arms are. One regression an agent, nothing said.

pub(crate) mod config;
pub(crate) mod factor;
pub(crate) mod function;
pub(crate) mod learner;
pub(crate) mod regression;

pub use config::KernelConfig;
pub use function::Kernel;
