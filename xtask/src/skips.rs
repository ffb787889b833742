//! What was not tested, and why.

use std::path::{Path, PathBuf};

/// The variable that makes a skip a failure; tests read it too.
const REQUIRE_ALL: &str = "POSSE_REQUIRE_ALL";

/// The skipped parts of one run of the test command.
#[derive(Debug)]
pub(crate) struct Skips {
    /// Tests append a line for each skip to this file.
    pub(crate) file: PathBuf,
    reasons: Vec<String>,
    require_all: bool,
}

impl Skips {
    /// No skips yet. Removes the list of the last run.
    pub(crate) fn begin(root: &Path) -> Result<Self, String> {
        let file = root.join("target/xtask/skips.txt");
        let say = |error: std::io::Error| format!("{}: {error}", file.display());
        std::fs::create_dir_all(file.parent().expect("a file in a directory")).map_err(say)?;
        if file.exists() {
            std::fs::remove_file(&file).map_err(say)?;
        }
        let require_all = std::env::var_os(REQUIRE_ALL).is_some_and(|value| value == "1");
        Ok(Self { file, reasons: Vec::new(), require_all })
    }

    /// The value, or a skip for the reason why there is none; with `POSSE_REQUIRE_ALL=1`, a failure.
    pub(crate) fn or_skip<T>(&mut self, found: Result<T, String>) -> Result<Option<T>, String> {
        match found {
            Ok(value) => Ok(Some(value)),
            Err(reason) if self.require_all => Err(format!("{REQUIRE_ALL}=1, but {reason}")),
            Err(reason) => {
                println!("SKIPPED: {reason}");
                self.reasons.push(reason);
                Ok(None)
            }
        }
    }

    /// Lists what was skipped. An error if something was and nothing may be.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        let by_tests = std::fs::read_to_string(&self.file).unwrap_or_default();
        self.reasons.extend(by_tests.lines().map(str::to_owned));
        if self.reasons.is_empty() {
            println!("── everything was tested, and everything holds");
            return Ok(());
        }
        println!("── what was tested holds; SKIPPED:");
        self.reasons.iter().for_each(|reason| println!("   {reason}"));
        if self.require_all { Err(format!("{REQUIRE_ALL}=1, but something was skipped")) } else { Ok(()) }
    }
}
