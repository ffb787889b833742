//! Running `posse` in a directory of its own.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// What a command printed and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The JSON document on stdout of a command that went well.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// Runs `posse` with `arguments` in `directory`.
pub(crate) fn posse(directory: &Path, arguments: &[&str]) -> Ran {
    let output = command(directory).args(arguments).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}

/// `posse` in `directory`, still without arguments.
pub(crate) fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posse"));
    command.current_dir(directory);
    command
}

/// A new directory with a file `x.toml` in it.
pub(crate) fn directory_with(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("x.toml"), text).unwrap();
    directory
}
