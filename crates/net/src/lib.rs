//! posse over a network: the coordinator's service, the agent's runtime and the durable log.
//!
//! The machines are those of `posse-core`, and so are the sessions, the messages and their encoding; this
//! crate carries frames over gRPC, keeps logs on disks, and asks who is speaking.
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
