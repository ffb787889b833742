//! Settings of a coordinator process, and whether they can work.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use posse_core::ConfigError;
use serde::{Deserialize, Serialize};

use super::limits::Limits;
use super::options::ServeError;
use super::tls::Certificates;
use super::tokens::Tokens;
use crate::address::is_own;
use crate::federation::{FederationConfig, ParentConfig};
use crate::log::{StorageConfig, StorageKind};

/// Settings of a coordinator process, as its configuration file has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeConfig {
    /// Where agents come to. Beyond loopback TLS is needed.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// Where metrics and health are, over plain HTTP. Default: nowhere.
    #[serde(default)]
    pub admin: Option<SocketAddr>,
    /// Where logs and tokens are kept.
    #[serde(default = "default_data")]
    pub data: PathBuf,
    /// Which kind of log is kept. Default: files in `data`.
    #[serde(default)]
    pub storage: StorageConfig,
    /// How agents prove who they are. Default: by tokens.
    #[serde(default)]
    pub authentication: Authentication,
    /// Certificates for TLS. Default: none, which is refused beyond loopback unless `Options::insecure` is
    /// set.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// Limits on connections, calls and frames.
    #[serde(default)]
    pub limits: Limits,
    /// The federations that this coordinator serves, each with its own log.
    #[serde(default, rename = "federation")]
    pub federations: Vec<FederationConfig>,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7447))
}

fn default_data() -> PathBuf {
    "posse-data".into()
}

/// How agents prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authentication {
    /// Each agent sends a token of its own.
    #[default]
    Token,
    /// Agents are believed who they say they are: for loopback.
    None,
}

/// Files with the certificates and keys of a coordinator, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate, with those that vouch for it.
    pub certificate: PathBuf,
    /// The private key of `certificate`.
    pub key: PathBuf,
    /// Who vouches for agents' certificates. If it is given, agents need one.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
}

impl ServeConfig {
    /// A coordinator on a free port of loopback that believes its agents, for tests and demonstrations.
    #[must_use]
    pub fn on_loopback(data: &Path, federations: Vec<FederationConfig>) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin: None,
            data: data.into(),
            storage: StorageConfig::default(),
            authentication: Authentication::None,
            tls: None,
            limits: Limits::default(),
            federations,
        }
    }

    /// `Ok` if every setting is in its range and nothing dangerous is asked for.
    pub fn check(&self, insecure: bool) -> Result<(), ConfigError> {
        self.limits.check()?;
        self.storage.check()?;
        if cfg!(not(feature = "postgres")) && self.storage.kind == StorageKind::Postgres {
            let allowed = "this build of posse knows only files: build it with the feature `postgres`";
            return Err(ConfigError::new("kind", "postgres", allowed));
        }
        if self.federations.is_empty() {
            return Err(ConfigError::new(
                "federation",
                "missing",
                "there must be at least one [[federation]]",
            ));
        }
        let beyond = !self.listen.ip().is_loopback();
        if beyond && self.tls.is_none() && !insecure {
            let allowed = "beyond loopback [tls] is needed, or --insecure";
            return Err(ConfigError::new("listen", self.listen, allowed));
        }
        if beyond && self.authentication == Authentication::None && !insecure {
            let allowed = "beyond loopback tokens are needed, or --insecure";
            return Err(ConfigError::new("authentication", "none", allowed));
        }
        for (index, federation) in self.federations.iter().enumerate() {
            federation.check()?;
            if let Some(parent) = &federation.parent {
                self.check_parent(parent, &federation.name, insecure)?;
            }
            if self.federations[..index].iter().any(|other| other.name == federation.name) {
                let allowed = "every federation needs a name of its own";
                return Err(ConfigError::new("name", &federation.name, allowed));
            }
        }
        Ok(())
    }

    /// `Ok` if the coordinator of this federation can be a relay of `parent`.
    fn check_parent(
        &self,
        parent: &ParentConfig,
        federation: &str,
        insecure: bool,
    ) -> Result<(), ConfigError> {
        if self.storage.kind != StorageKind::Files {
            // Who a relay is at its parent is kept beside its log, in files.
            let allowed = "a relay keeps its log in files: leave out [storage]";
            return Err(ConfigError::new("parent", federation, allowed));
        }
        if let Some(own) = parent.coordinator.split(',').map(str::trim).find(|url| is_own(url, self.listen)) {
            return Err(ConfigError::new("coordinator", own, "a relay cannot be its own parent"));
        }
        if insecure { Ok(()) } else { parent.check_secrecy() }
    }

    /// `Ok` if the files that the settings name can be used: certificates are there and in order, and federations that
    /// have a log were begun with these settings. Changes nothing.
    pub fn check_files(&self) -> Result<(), ServeError> {
        self.tls.as_ref().map(Certificates::open).transpose()?;
        if self.storage.kind != StorageKind::Files {
            // What a database holds is looked at by `posse storage status`, and at the start.
            return Ok(());
        }
        if self.authentication == Authentication::Token {
            Tokens::open(&self.token_file())?;
        }
        for federation in &self.federations {
            let check = |parent: &ParentConfig| parent.check_files();
            federation.parent.as_ref().map_or(Ok(()), check).map_err(ServeError::Data)?;
            let begun = federation.check_begun(&self.log_directory(&federation.name));
            begun.map_err(|error| ServeError::Federation { name: federation.name.clone(), error })?;
        }
        Ok(())
    }

    /// Returns the path of the file with the tokens.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.data.join("tokens.json")
    }

    /// Returns the directory of a federation's log.
    #[must_use]
    pub fn log_directory(&self, federation: &str) -> PathBuf {
        self.data.join("federations").join(federation)
    }
}
