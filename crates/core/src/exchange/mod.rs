//! What the families share of the protocol: what an agent believes, whom a coordinator knows, how newcomers come
//! in, how long rounds wait. Families build on these parts and do not know each other.

pub(crate) mod belief;
mod join;
pub(crate) mod roster;
mod rounds;
pub(crate) mod shares;
mod silent;

pub use join::JoinPolicy;
pub use rounds::RoundConfig;
pub(crate) use silent::Silent;
