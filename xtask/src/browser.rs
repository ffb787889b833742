//! Chromium for the test of the report: found, or installed where that can be done.

use std::process::{Command, Stdio};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Makes sure that there is a browser, or says why there is none. Its test is skipped then, and says so too.
pub(crate) fn provide() -> Result<(), String> {
    let named = std::env::var_os("CHROMIUM").is_some();
    if named || is_there() {
        return Ok(());
    }
    let missing = "the report is not opened in a browser: there is no Chromium";
    if !runs("apt-get", &["--version"]) || !is_root() {
        return Err(format!("{missing}, and only root on a system with apt-get can install it from here"));
    }
    let install = ["install", "-y", "-qq", "--no-install-recommends", "chromium"];
    // Lists of packages may be old, or not there at all.
    let installed = apt(&install) || (apt(&["update", "-qq"]) && apt(&install));
    if installed && is_there() { Ok(()) } else { Err(format!("{missing}, and apt-get could not install it")) }
}

fn is_there() -> bool {
    NAMES.iter().any(|name| runs(name, &["--version"]))
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

/// Whether a command is there and ends well.
fn runs(name: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
