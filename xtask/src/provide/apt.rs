//! Packages of the system, for root on a system with apt-get.

use std::process::{Command, Stdio};

use crate::run::works;

/// Installs a package and says whether `is_there` then. The error says why it could not be, after `missing`.
pub(super) fn install(package: &str, missing: &str, is_there: impl Fn() -> bool) -> Result<(), String> {
    if !works("apt-get", &["--version"]) || !is_root() {
        return Err(format!("{missing}, and only root on a system with apt-get can install it from here"));
    }
    let install = ["install", "-y", "-qq", "--no-install-recommends", package];
    // Lists of packages may be old, or not there at all.
    let installed = apt(&install) || (apt(&["update", "-qq"]) && apt(&install));
    if installed && is_there() { Ok(()) } else { Err(format!("{missing}, and apt-get could not install it")) }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn apt(arguments: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
