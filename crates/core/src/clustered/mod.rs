//! Clustered users: an agent serves many users, some of whom are alike, and alike ones may be served by
//! different agents.

pub(crate) mod club;
pub(crate) mod config;
pub(crate) mod fclub;
mod graph;
pub(crate) mod groups;
mod local;
pub(crate) mod merging;
pub(crate) mod message;
mod own;
mod phases;
mod private;
pub(crate) mod release_relay;
pub(crate) mod sclub;
pub(crate) mod secure_agent;
pub(crate) mod secure_rounds;
mod users;
mod width;

pub use config::{CdpFclubDc, Club, ClusterConfig, Fclub, FclubDc, Homo, HomoDc, Sclub, UserLinUcb};
pub use merging::Linkage;
