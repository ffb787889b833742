//! Logs of decisions: who was offered what, what was taken with which probability, and what it earned.

pub(crate) mod files;
pub(crate) mod prepare;
mod table;

pub use files::{GenericLog, LogFiles};
pub use prepare::{DECISIONS, LEAST_PROPENSITY, LOG_ITEMS, prepare_log};
pub use table::{ContextUse, DecisionLog, load_log};

#[cfg(test)]
mod tests;
