//! Messages that the coordinator refuses for good: put in a file, so that the agent can go on without them.

use std::path::{Path, PathBuf};

use prost::Message;

use crate::log::{LogError, private_directory, replace};
use crate::v1::SetAside;

/// How often the same message must be refused before it is set aside. More than once, because the operator may
/// just have replaced the coordinator's bounds by mistake; fewer than the ten after which the coordinator
/// quarantines the agent by default.
pub(super) const REFUSALS: u32 = 3;

/// Whether saying the same again is pointless: the coordinator found fault with the message itself.
pub(super) fn is_final(reason: &str) -> bool {
    matches!(reason, "malformed" | "too-large" | "dimension" | "impossible" | "unexpected")
}

/// How many lives were set aside in an agent's state directory.
pub(super) fn count(state: &Path) -> u64 {
    let files = std::fs::read_dir(state.join("set-aside")).into_iter().flatten().flatten();
    files.filter(|file| file.path().extension().is_some_and(|own| own == "life")).count() as u64
}

/// Writes a life to `state/set-aside/LIFE-FRAME.life` and returns the path.
pub(super) fn keep(state: &Path, life: u64, frame: u64, what: &SetAside) -> Result<PathBuf, LogError> {
    let directory = state.join("set-aside");
    private_directory(&directory)?;
    let path = directory.join(format!("{life}-{frame}.life"));
    replace(&path, &what.encode_to_vec())?;
    Ok(path)
}
