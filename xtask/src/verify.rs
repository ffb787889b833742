//! The one test command.

use std::path::Path;
use std::process::Command;

/// Runs every check and stops at the first that fails.
pub(crate) fn test(root: &Path) -> Result<(), String> {
    step("generated code is fresh");
    crate::codegen::run(root, true)?;
    step("format");
    cargo(root, &["fmt", "--all", "--check"])?;
    step("lints");
    cargo(root, &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    step("a browser for the report's test");
    let browser = crate::browser::provide();
    if let Err(why) = &browser {
        println!("{why}");
    }
    step("tests and doctests");
    cargo(root, &["test", "--workspace", "--locked"])?;
    step("documentation");
    let docs = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
    run(Command::new(env!("CARGO")).args(docs).env("RUSTDOCFLAGS", "-D warnings").current_dir(root))?;
    if let Err(why) = browser {
        println!("── all that could be tested holds; SKIPPED: {why}");
    }
    Ok(())
}

fn step(name: &str) {
    println!("── {name}");
}

/// Runs cargo in the workspace.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    run(Command::new(env!("CARGO")).args(arguments).current_dir(root))
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("failed: {command:?}")) }
}
