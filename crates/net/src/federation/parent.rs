//! The parent of a federation that is a relay: where it is, and who the relay is there.

use std::path::{Path, PathBuf};

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Incarnation, Threshold};
use serde::{Deserialize, Serialize};

use crate::address::{addresses, is_local};
use crate::log::{LogError, RELAY_IDENTITY};

/// Where a relay's parent is, and how the relay speaks to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(deny_unknown_fields)]
pub struct ParentConfig {
    /// The address of the parent: `http://host:port`, or `https://` with TLS. Several addresses, with commas between
    /// them, are those of coordinators that take over from each other.
    pub coordinator: String,
    /// The name of the federation there. Not set: the only one.
    #[serde(default)]
    pub federation: Option<String>,
    /// A file with the relay's token, read again for every connection.
    #[serde(default)]
    pub token_file: Option<String>,
    /// The relay's number among the parent's children, where no tokens are asked for.
    #[serde(default)]
    pub agent: Option<u64>,
    /// A file with the certificate authority that vouches for the parent. Not set: those of the operating system.
    #[serde(default)]
    pub authority: Option<String>,
    /// γ_U in [1, ∞]: the relay uploads when what it has not sent multiplied its determinant by more. Not set: that
    /// of the algorithm, divided over the levels of the federation.
    #[serde(default)]
    pub upload_threshold: Option<Threshold>,
    /// ≥ 1: how many links lie between this relay and the root, 1 for a child of the root. Not set: one less than the
    /// federation has `levels`, as for a relay whose children are agents.
    #[serde(default)]
    pub depth: Option<u64>,
    /// Who the relay is at its parent, once it has joined.
    #[serde(skip)]
    pub(crate) identity: RelayIdentity,
}

impl ParentConfig {
    /// `Ok` if this can be the parent of a relay in a federation of so many `levels`.
    pub(super) fn check(&self, levels: u64) -> Result<(), ConfigError> {
        addresses("coordinator", &self.coordinator)?;
        if self.token_file.is_none() && self.agent.is_none() {
            let allowed = "a relay needs a token_file, or agent, its number, where no tokens are asked for";
            return Err(ConfigError::new("parent", &self.coordinator, allowed));
        }
        if let Some(Threshold(threshold)) = self.upload_threshold {
            let allowed = "it must be at least 1; inf means never";
            ConfigError::require(threshold >= 1.0, "upload_threshold", threshold, allowed)?;
        }
        match self.depth {
            Some(depth) if levels == 1 => {
                let allowed = "it says where a relay is among the levels of a federation: set `levels` too";
                Err(ConfigError::new("depth", depth, allowed))
            }
            Some(depth) if depth == 0 || depth >= levels => {
                let allowed = "it must be at least 1 and below `levels`";
                Err(ConfigError::new("depth", depth, allowed))
            }
            _ => Ok(()),
        }
    }

    /// `Ok` if the relay's token is shown over encrypted connections, or on this machine only.
    pub(crate) fn check_secrecy(&self) -> Result<(), ConfigError> {
        let hidden = |url: &str| url.trim().starts_with("https:") || is_local(url.trim());
        if self.token_file.is_none() || self.coordinator.split(',').all(hidden) {
            return Ok(());
        }
        let allowed = "it would be sent the token unencrypted: use https, or --insecure";
        Err(ConfigError::new("coordinator", &self.coordinator, allowed))
    }

    /// `Ok` if the files that the settings name can be read.
    pub(crate) fn check_files(&self) -> Result<(), LogError> {
        let files = [&self.token_file, &self.authority].into_iter().flatten();
        files.map(|path| std::fs::read(path).map_err(LogError::io(path))).try_for_each(|read| read.map(drop))
    }

    /// How many links lie between this relay and the root, in a federation of so many `levels`.
    pub(super) fn depth(&self, levels: u64) -> u64 {
        self.depth.unwrap_or(levels - 1)
    }
}

/// Who a relay is at its parent. Kept beside its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RelayIdentity {
    pub(crate) agent: u64,
    pub(crate) life: u64,
    /// The processes that spoke for this relay, the newest last.
    pub(crate) instances: Vec<u64>,
    /// The number of the parent's history. Parents of earlier versions do not tell it.
    #[serde(default)]
    pub(crate) history: Option<u64>,
}

#[cfg_attr(not(feature = "agent"), expect(dead_code, reason = "relays need the feature `agent`"))]
impl RelayIdentity {
    /// How many processes are remembered: the parent knows one of the last few.
    const REMEMBERED: usize = 16;

    fn path(directory: &Path) -> PathBuf {
        directory.join(RELAY_IDENTITY)
    }

    /// The identity in a relay's directory, if it has joined before.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, LogError> {
        let path = Self::path(directory);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LogError::io(&path)(error)),
        };
        let broken = |error: serde_json::Error| LogError::io(&path)(std::io::Error::other(error));
        serde_json::from_slice(&text).map(Some).map_err(broken)
    }

    /// The identity with one more process, kept before that process speaks.
    pub(crate) fn with_process(mut self, instance: u64, directory: &Path) -> Result<Self, LogError> {
        self.instances.push(instance);
        let surplus = self.instances.len().saturating_sub(Self::REMEMBERED);
        self.instances.drain(..surplus);
        crate::log::private_directory(directory)?;
        let text = serde_json::to_vec(&self).expect("numbers can be written");
        crate::log::replace(&Self::path(directory), &text)?;
        Ok(self)
    }
}

impl RelayIdentity {
    pub(crate) fn id(&self) -> AgentId {
        AgentId(self.agent)
    }

    pub(crate) fn life(&self) -> Incarnation {
        Incarnation(self.life)
    }
}
