//! The parent of a federation that is a relay: where it is, and who the relay is there.

use std::path::{Path, PathBuf};

use posse_core::settings::Described;
use posse_core::{AgentId, Incarnation, Threshold};
use serde::{Deserialize, Serialize};

use crate::log::LogError;

/// Where a relay's parent is, and how the relay speaks to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(deny_unknown_fields)]
pub struct ParentConfig {
    /// The address of the parent: `http://host:port`, or `https://` with TLS.
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
    /// of the algorithm.
    #[serde(default)]
    pub upload_threshold: Option<Threshold>,
    /// Who the relay is at its parent, once it has joined.
    #[serde(skip)]
    pub(crate) identity: RelayIdentity,
}

/// Who a relay is at its parent. Kept beside its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RelayIdentity {
    pub(crate) agent: u64,
    pub(crate) life: u64,
    /// The processes that spoke for this relay, the newest last.
    pub(crate) instances: Vec<u64>,
}

#[cfg_attr(not(feature = "agent"), expect(dead_code, reason = "relays need the feature `agent`"))]
impl RelayIdentity {
    /// How many processes are remembered: the parent knows one of the last few.
    const REMEMBERED: usize = 16;

    fn path(directory: &Path) -> PathBuf {
        directory.join("parent.json")
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
