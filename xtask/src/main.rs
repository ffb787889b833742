//! `cargo xtask <command>`: the project's own commands.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod browser;
mod codegen;
mod verify;

const USAGE: &str = "\
cargo xtask <command>

  test              everything that must hold: format, lints, tests, doctests, docs (never writes)
  fix               format and regenerate what is generated
  codegen [--check] the wire format's Rust types from crates/core/proto";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = workspace_root();
    let result = match arguments[..] {
        ["test"] => verify::test(&root),
        ["fix"] => codegen::run(&root, false).and_then(|()| verify::cargo(&root, &["fmt", "--all"])),
        ["codegen"] => codegen::run(&root, false),
        ["codegen", "--check"] => codegen::run(&root, true),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace").to_owned()
}
