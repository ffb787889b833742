//! The policies by which newcomers become known to a coordinator.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

/// When a newcomer becomes known to the coordinator, and what it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum JoinPolicy {
    /// Known from its first interaction, which it plays blind; nothing is sent before the next upload.
    /// What the paper and its code do.
    #[default]
    Lazy,
    /// Known as soon as it joins, before its first interaction.
    Eager,
    /// Known from its first interaction, before which it is sent a snapshot. For deployments.
    PullOnJoin,
}
