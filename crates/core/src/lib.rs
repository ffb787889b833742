//! posse core.
#![forbid(unsafe_code)]
mod aligned;
mod agent;
mod arms;
mod coordinator;
mod cost;
mod error;
mod evidence;
mod factor;
mod ids;
mod message;
mod parcel;
mod random;
mod ridge;
pub mod wire;

pub use agent::*;
pub use arms::Arms;
pub use coordinator::*;
pub use cost::Cost;
pub use error::*;
pub use evidence::{packed, Evidence};
pub use ids::*;
pub use message::*;
pub use parcel::{LowRank, Parcel};
pub use random::{Domain, Seed, Stream};
pub use ridge::Ridge;
