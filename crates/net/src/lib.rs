//! posse over a network: the coordinator's service, the agent's runtime and the durable log.
//!
//! The machines are those of `posse-core`, and so are the sessions, the messages and their encoding; this
//! crate carries frames over gRPC, keeps logs on disks, and asks who is speaking.
//!
//! An agent in a program of yours:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use posse_net::{Agent, AgentConfig, Arms, UserId};
//!
//! let config = AgentConfig {
//!     coordinator: "https://coordinator.example:7447".into(),
//!     token: Some(std::env::var("POSSE_TOKEN")?),
//!     state: Some("agent-state".into()),
//!     ..AgentConfig::default()
//! };
//! let agent = Agent::start(config).await?;
//!
//! let arms = Arms::from_rows(2, &[[0.1, 0.9], [0.8, 0.2]])?;
//! let chosen = agent.choose(UserId(3), &arms)?; // never waits for the network
//! agent.reward(chosen.id, 1.0)?; // now or days later
//! agent.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/embed.rs` is a whole program with a coordinator beside the agent.
//!
//! Features, on by default: `agent` is the library above and needs no server; `sidecar` adds the agent over HTTP;
//! `coordinator` is the service. It runs on Unix. `postgres`, off by default, lets coordinators share a database.
//!
//! - [`agent`]: the runtime around an agent, and the sidecar.
//! - [`coordinator`]: the service, its settings, tokens and limits.
//! - [`federation`]: one federation, its rules and the thread that owns it.
//! - [`log`]: what is kept, and how it is read back with suspicion.
//!
//! `docs/guides` in the repository has a guide for operators and one for embedding.
#![forbid(unsafe_code)]

#[cfg(any(feature = "agent", feature = "coordinator"))]
mod address;
#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "coordinator")]
mod audit;
mod clock;
mod codec;
#[cfg(feature = "coordinator")]
pub mod coordinator;
#[cfg(feature = "coordinator")]
pub mod federation;
#[cfg(feature = "coordinator")]
mod gathered;
#[cfg(any(feature = "sidecar", feature = "coordinator"))]
mod http;
mod lengths;
#[cfg(all(feature = "agent", feature = "coordinator"))]
pub mod load;
pub mod log;
#[cfg(feature = "coordinator")]
mod metrics;
mod protocol;
/// What clients and proxies that speak the protocol themselves receive.
#[cfg(any(feature = "agent", feature = "coordinator"))]
#[doc(hidden)]
pub mod received;
#[cfg(all(feature = "agent", feature = "coordinator"))]
mod relay;
#[cfg(any(feature = "agent", feature = "coordinator"))]
mod trace;
mod upgrade;
/// The types generated from `proto/posse/v1`, for clients and proxies that speak the protocol themselves. They follow
/// the generators' versions, not this crate's.
#[doc(hidden)]
#[allow(missing_docs, unreachable_pub, missing_debug_implementations, clippy::all, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod v1;

#[cfg(any(feature = "agent", feature = "coordinator"))]
pub use address::is_local;
#[cfg(feature = "agent")]
pub use agent::{Agent, AgentConfig};
pub use clock::Clock;
#[cfg(feature = "coordinator")]
pub use metrics::Metrics;
/// The machines and their types, which this crate's functions take and return.
pub use posse_core;
pub use protocol::{OLDEST_PROTOCOL, PROTOCOL};
#[cfg(all(feature = "agent", feature = "coordinator"))]
pub use relay::RelayError;
#[cfg(any(feature = "agent", feature = "coordinator"))]
pub use trace::Tracer;

pub use posse_core::{AgentId, Arms, ConfigError, Incarnation, InputError, UserId};

/// The published description of the protocol: an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTION: &[u8] = include_bytes!("v1.bin");

/// The metadata of a refusal that names its reason, in the words that metrics use.
pub(crate) const REASON: &str = "posse-reason";

/// The metadata of a refusal that names the coordinator which leads the federation.
pub(crate) const LEADER: &str = "posse-leader";

/// The metadata of an answer to a join: number and checksum of the newest message that was accepted of the agent's life.
pub(crate) const LAST_WORD: &str = "posse-last-word";

/// The metadata of an answer to a join: the epoch, and the number of the newest message that the agent's life has said to
/// have received in it.
pub(crate) const LAST_HEARD: &str = "posse-last-heard";

/// The metadata of an answer to a join: the number of the coordinator's history. Another number means another coordinator, or
/// one that began again from nothing, which cannot know what was said before.
pub(crate) const HISTORY: &str = "posse-history";

/// The metadata of every call but a join by which a process says which one it is: the instance of its join.
pub(crate) const INSTANCE: &str = "posse-instance";

/// An error followed by what caused it.
#[cfg(any(feature = "agent", feature = "postgres"))]
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
