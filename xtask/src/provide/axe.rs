//! axe-core for the test of the pages' accessibility.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{run, works};

/// The version that is tested with: a newer one may know more rules.
const VERSION: &str = "4.14.0";

/// The script `axe.min.js`: the one that `AXE` names, or one in `target/xtask/axe`, from npm. Nothing of it is shipped.
pub(crate) fn axe(root: &Path) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("AXE") {
        return Ok(named.into());
    }
    let home = root.join("target/xtask/axe");
    let script = home.join("package/axe.min.js");
    let is_ours = |text: String| text.starts_with(&format!("/*! axe v{VERSION}"));
    if std::fs::read_to_string(&script).is_ok_and(is_ours) {
        return Ok(script);
    }
    let missing = "the accessibility of pages is not tested";
    if !works("npm", &["--version"]) {
        return Err(format!("{missing}: there is no npm to get axe-core with, and AXE names no axe.min.js"));
    }
    std::fs::create_dir_all(&home).map_err(|error| format!("{missing}: {}: {error}", home.display()))?;
    let package = format!("axe-core@{VERSION}");
    let mut pack = Command::new("npm");
    pack.current_dir(&home).args(["pack", "--silent", &package]);
    run(&mut pack).map_err(|error| format!("{missing}: npm could not get {package}: {error}"))?;
    let mut unpack = Command::new("tar");
    unpack.current_dir(&home).args(["xzf", &format!("axe-core-{VERSION}.tgz")]);
    run(&mut unpack).map_err(|error| format!("{missing}: {error}"))?;
    Ok(script)
}
