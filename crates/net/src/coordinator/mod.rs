//! The coordinator's service: federations behind gRPC, with tokens, TLS, limits, metrics and health.

mod admin;
mod config;
pub(crate) mod files;
mod guard;
mod incoming;
mod limits;
mod opening;
mod options;
mod running;
mod serve;
mod service;
mod tls;
mod tokens;

pub use admin::AdminAccess;
pub use config::{Authentication, ServeConfig, TlsFiles};
pub use limits::Limits;
pub use options::{LogKind, Options, ServeError};
pub use running::Running;
pub use serve::serve;
#[cfg(feature = "postgres")]
pub(crate) use tokens::secret;
pub use tokens::{Grant, TokenError, TokenInfo, Tokens};
