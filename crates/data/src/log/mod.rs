//! Logs of decisions: who was offered what, what was taken with which probability, and what it earned.

mod files;
mod prepare;
mod table;

pub use files::{GenericLog, LogFiles};
pub use prepare::{DECISIONS, LOG_ITEMS, prepare_log};
pub use table::{ContextUse, Log, load_log};

#[cfg(test)]
mod tests;
