//! Recommenders: who liked what, and items described by their tags.
//!
//! Tags become words, words TF-IDF weights ([`text`]), and weights a few features by a truncated singular value
//! decomposition ([`svd`]). [`prepare()`] puts them together with the events. [`prepare_events`] does the same for any
//! file of who took what, with features of the caller's own. [`prepare_user_clusters`] needs no
//! tags: it finds clusters of users in who liked what.

mod events;
mod features;
mod files;
mod prepare;
mod ratings;
pub mod svd;
pub mod text;
mod user_clusters;

pub use events::{EventFiles, EventFormat, prepare_events};
pub use files::{Event, RecommenderFiles, Shape};
pub use prepare::{EVENTS, ITEMS, MAX_FEATURES, Normalise, POOLS, RecommenderSettings, USERS, prepare};
pub use ratings::{OwnRatings, Ratings};
pub use user_clusters::{CENTRES, MEMBERS, UserClusterSettings, prepare_user_clusters};

#[cfg(test)]
mod tests;
