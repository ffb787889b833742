//! Chromium for the test of the report.

use std::process::{Command, Stdio};

use crate::run::works;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Makes sure that there is a browser. Installs Chromium if this is root on a system with apt-get.
pub(crate) fn browser() -> Result<(), String> {
    let named = std::env::var_os("CHROMIUM").is_some();
    if named || is_there() {
        return Ok(());
    }
    let missing = "the report is not opened in a browser: there is no Chromium";
    if !works("apt-get", &["--version"]) || !is_root() {
        return Err(format!("{missing}, and only root on a system with apt-get can install it from here"));
    }
    let install = ["install", "-y", "-qq", "--no-install-recommends", "chromium"];
    // Lists of packages may be old, or not there at all.
    let installed = apt(&install) || (apt(&["update", "-qq"]) && apt(&install));
    if installed && is_there() { Ok(()) } else { Err(format!("{missing}, and apt-get could not install it")) }
}

fn is_there() -> bool {
    NAMES.iter().any(|name| works(name, &["--version"]))
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
