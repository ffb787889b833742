//! Which versions of the protocol are spoken here, and which one two ends agree on.
//!
//! An agent names the newest and the oldest version that it speaks when it joins; the coordinator answers with the
//! newest that both speak. So agents and coordinators can be upgraded one by one, in any order, as long as their
//! ranges overlap.

/// The newest version of the protocol that is spoken here.
pub const PROTOCOL: u32 = 1;
/// The oldest version of the protocol that is spoken here.
pub const OLDEST_PROTOCOL: u32 = 1;

/// The versions that one end speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) oldest: u32,
    pub(crate) newest: u32,
}

impl Versions {
    /// The versions that are spoken here.
    pub(crate) const OURS: Self = Self { oldest: OLDEST_PROTOCOL, newest: PROTOCOL };

    /// The versions in a join. Agents from before versions were negotiated name one version and no oldest.
    #[cfg(feature = "coordinator")]
    pub(crate) const fn of_join(newest: u32, oldest: u32) -> Self {
        Self { oldest: if oldest == 0 { newest } else { oldest }, newest }
    }

    /// The newest version that both ends speak.
    #[cfg(feature = "coordinator")]
    pub(crate) fn agree(self, agent: Self) -> Result<u32, String> {
        let common = self.newest.min(agent.newest);
        if common >= self.oldest.max(agent.oldest) {
            return Ok(common);
        }
        let older = if agent.newest < self.oldest { "the agent" } else { "the coordinator" };
        Err(format!("the agent speaks {agent} of the protocol, this coordinator {self}: upgrade {older}"))
    }

    /// `Ok` if an answer in this version is understood.
    #[cfg(feature = "agent")]
    pub(crate) fn understand(self, version: u32) -> Result<(), String> {
        if (self.oldest..=self.newest).contains(&version) {
            return Ok(());
        }
        Err(format!(
            "the coordinator answered in version {version} of the protocol, this agent speaks {self}"
        ))
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { oldest, newest } if oldest == newest => write!(f, "version {newest}"),
            Self { oldest, newest } => write!(f, "versions {oldest} to {newest}"),
        }
    }
}

#[cfg(all(test, feature = "agent", feature = "coordinator"))]
mod tests {
    use super::*;

    #[test]
    fn two_ends_speak_the_newest_version_that_both_know_whichever_was_upgraded_first() {
        let versions = |oldest, newest| Versions { oldest, newest };
        let (old, both, new) = (versions(1, 1), versions(1, 2), versions(2, 3));
        assert_eq!(both.agree(old), Ok(1));
        assert_eq!(old.agree(both), Ok(1));
        assert_eq!(both.agree(new), Ok(2));
        assert_eq!(new.agree(both), Ok(2));
        let why = new.agree(old).unwrap_err();
        assert_eq!(
            why,
            "the agent speaks version 1 of the protocol, this coordinator versions 2 to 3: upgrade the agent"
        );
        assert!(old.agree(new).unwrap_err().ends_with("upgrade the coordinator"));
        // Agents from before versions were negotiated.
        assert_eq!(both.agree(Versions::of_join(1, 0)), Ok(1));
        assert!(both.understand(2).is_ok() && both.understand(3).is_err());
    }
}
