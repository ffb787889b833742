//! posse over a network: the coordinator's service, the agent's runtime and the durable log.
//!
//! The machines are those of `posse-core`, and so are the sessions, the messages and their encoding; this
//! crate carries frames over gRPC, keeps logs on disks, and asks who is speaking.
//!
//! An agent in a program of yours:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use posse_core::{Arms, UserId};
//! use posse_net::{Agent, AgentConfig, Clock};
//!
//! let config = AgentConfig {
//!     coordinator: "https://coordinator.example:7447".into(),
//!     token: Some(std::env::var("POSSE_TOKEN")?),
//!     state: Some("agent-state".into()),
//!     ..AgentConfig::default()
//! };
//! let agent = Agent::start(config, Clock::system()).await?;
//!
//! let arms = Arms::from_rows(2, &[[0.1, 0.9], [0.8, 0.2]])?;
//! let chosen = agent.choose(UserId(3), &arms)?; // never waits for the network
//! agent.reward(chosen.id, 1.0)?; // now or days later
//! agent.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`agent`]: the runtime around an agent, and the sidecar.
//! - [`coordinator`]: the service, its settings, tokens and limits.
//! - [`federation`]: one federation, its rules and the thread that owns it.
//! - [`log`]: what is kept, and how it is read back with suspicion.
//!
//! `docs/guides` in the repository has a guide for operators and one for embedding.
#![forbid(unsafe_code)]

pub mod agent;
mod clock;
mod codec;
pub mod coordinator;
pub mod federation;
pub mod load;
pub mod log;
mod metrics;
/// The types generated from `proto/posse/v1`.
#[allow(missing_docs, unreachable_pub, missing_debug_implementations, clippy::all, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod v1;

pub use agent::{Agent, AgentConfig};
pub use clock::Clock;
pub use metrics::Metrics;

/// The published description of the protocol: an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTION: &[u8] = include_bytes!("v1.bin");

/// The version of the protocol that is spoken here.
pub const PROTOCOL: u32 = 1;
