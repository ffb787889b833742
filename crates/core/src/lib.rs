//! posse core.
#![forbid(unsafe_code)]
mod agent;
mod algorithm;
mod aligned;
mod arms;
mod coordinator;
mod cost;
mod error;
mod evidence;
mod factor;
mod ids;
mod linear;
mod message;
mod parcel;
mod random;
mod ridge;
pub mod session;
mod trigger;
mod width;
pub mod wire;

pub use agent::*;
pub use algorithm::{Algorithm, Federation, Placement};
pub use arms::Arms;
pub use coordinator::*;
pub use cost::Cost;
pub use error::*;
pub use evidence::{Evidence, packed};
pub use ids::*;
pub use linear::{
    AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, FedLinUcb, JoinPolicy, LinUcb, Override,
    Perturbation, ProtocolConfig, SyncLinUcb,
};
pub use message::*;
pub use parcel::{LowRank, Parcel};
pub use random::{Domain, Seed, Stream};
pub use ridge::Ridge;
pub use trigger::Threshold;
pub use width::{ModelConfig, WidthForm};
