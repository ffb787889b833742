//! What a program says when it starts a coordinator, beside the settings, and why that failed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_core::ConfigError;
use thiserror::Error;

use super::tokens::TokenError;
use crate::clock::Clock;
use crate::federation::FederationError;
use crate::log::{FileLog, Log, LogError};
use crate::trace::Tracer;

/// What is not a matter of configuration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Listen beyond loopback without TLS or tokens.
    pub insecure: bool,
    /// Use a database that does not replicate synchronously, and may lose what it confirmed.
    pub allow_unreplicated: bool,
    /// The clock that gives every federation its time.
    pub clock: Clock,
    /// How the log in a directory is opened.
    pub log: LogKind,
    /// Where traces of uploads are sent. Default: nowhere.
    pub tracer: Option<Tracer>,
    /// The commit that the program was built from, for `posse_build_info`.
    pub commit: Option<String>,
    /// Do not link relays to their parents: their frames travel only when
    /// [`Running::exchange_with_parent`](super::Running::exchange_with_parent) is called. For tests that decide who speaks when.
    pub relays_by_hand: bool,
}

/// A kind of log: what opens one in a directory.
#[derive(Clone)]
pub struct LogKind(pub(super) Arc<Opener>);

pub(super) type Opener = dyn Fn(&Path) -> Result<Box<dyn Log>, LogError> + Send + Sync;

impl LogKind {
    /// Makes a kind of log from a function that opens the log in a directory.
    pub fn new(open: impl Fn(&Path) -> Result<Box<dyn Log>, LogError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }
}

impl Default for LogKind {
    fn default() -> Self {
        Self::new(|directory| Ok(Box::new(FileLog::open(directory)?)))
    }
}

impl std::fmt::Debug for LogKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogKind")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            insecure: false,
            allow_unreplicated: false,
            clock: Clock::system(),
            log: LogKind::default(),
            tracer: None,
            commit: None,
            relays_by_hand: false,
        }
    }
}

/// A coordinator that could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A federation cannot be brought back.
    #[error("federation \"{name}\": {error}")]
    Federation {
        /// The name of the federation.
        name: String,
        /// The error that kept the federation from opening.
        error: FederationError,
    },
    /// A relay does not find its parent, or is not taken there.
    #[error("federation \"{name}\" is a relay: {why}")]
    Relay {
        /// The name of the federation.
        name: String,
        /// What kept the relay from joining.
        why: String,
    },
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// A file of certificates cannot be read.
    #[error("{}: {error}", path.display())]
    Certificate {
        /// The file that could not be read.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// A file in the data directory cannot be written, or a database cannot be used.
    #[error(transparent)]
    Data(LogError),
    /// The coordinator cannot listen on the address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address from the configuration.
        address: SocketAddr,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The transport refused its settings.
    #[error("TLS: {0}")]
    Transport(String),
}
