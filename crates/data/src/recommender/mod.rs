//! Recommenders: who liked what, and items described by their tags.
//!
//! Tags become words, words TF-IDF weights ([`text`]), and weights a few features by a truncated singular value
//! decomposition ([`svd`]). [`prepare()`] puts them together with the events.

mod files;
mod prepare;
pub mod svd;
pub mod text;

pub use files::{Event, RecommenderFiles, Shape};
pub use prepare::{EVENTS, ITEMS, Normalise, RecommenderSettings, USERS, prepare};

#[cfg(test)]
mod tests;
