//! Running other programs.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs cargo in the workspace.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    run(cargo_command(root).args(arguments))
}

/// The cargo that runs this command, in the workspace, still without arguments.
pub(crate) fn cargo_command(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    // The cargo that started this program told it where its own manifest is. ring is built again whenever that variable changes,
    // and with it everything that speaks over the network: by each test command after a `cargo test`, and the other way round.
    command.current_dir(root).env_remove("CARGO_MANIFEST_DIR");
    command
}

/// Runs a command to its end; an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("failed: {command:?}")) }
}

/// Whether a program is there and ends well. Nothing it says is shown.
pub(crate) fn works(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What a program writes to its standard output, if it ends well.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("failed: {command:?}")) }
}
