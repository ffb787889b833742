//! The coordinator's service: federations behind gRPC, with tokens, TLS, limits, metrics and health.

mod admin;
pub(crate) mod files;
mod guard;
mod incoming;
mod limits;
mod opening;
mod serve;
mod service;
mod tls;
mod tokens;

pub use admin::AdminAccess;
pub use limits::Limits;
pub use serve::{Authentication, LogKind, Options, Running, ServeConfig, ServeError, TlsFiles, serve};
#[cfg(feature = "postgres")]
pub(crate) use tokens::secret;
pub use tokens::{Grant, TokenError, TokenInfo, Tokens};
