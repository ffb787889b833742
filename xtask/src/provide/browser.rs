//! Chromium for the test of the report.

use super::apt;
use crate::run::works;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Makes sure that there is a browser. Installs Chromium if this is root on a system with apt-get.
pub(crate) fn browser() -> Result<(), String> {
    let named = std::env::var_os("CHROMIUM").is_some();
    if named || is_there() {
        return Ok(());
    }
    apt::install("chromium", "the report is not opened in a browser: there is no Chromium", is_there)
}

fn is_there() -> bool {
    NAMES.iter().any(|name| works(name, &["--version"]))
}
