//! `cargo xtask <command>`: the project's own commands.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod codegen;
mod counts;
mod dist;
mod fuzz;
mod provide;
mod python;
mod run;
mod skips;
mod upgrade;
mod verify;

const USAGE: &str = "\
cargo xtask <command>

  test              everything that must hold (never writes to the tree); lists at its end what was skipped.
                    With POSSE_REQUIRE_ALL=1 a skip is a failure
  fix               format and regenerate what is generated
  codegen [--check] the wire format's Rust types from crates/core/proto
  fuzz [TARGET] [--seconds N]
                    libFuzzer over all targets of fuzz/, or one, for N seconds each (10)
  counts [--update] instructions of small kernels by callgrind, against crates/bench/counts.tsv
  dist [--target TRIPLE]
                    an archive in target/dist: static binary, completions, manual pages, SBOM, checksum
  python            only the tests of the Python package, after building it
  python --all      the same, and those against Ray, coba, river, scikit-learn, Gymnasium and pyright, which it installs
  python --pages    run the notebooks, keep their pictures, and write the reference of all names
  python --compare  the speed of the package beside others, with the wheel as it is published
  wheel             the Python package as one wheel for all Pythons, in target/xtask/wheel/out
  upgrade OLD [NEW] upgrade a running federation from one posse binary to another, in both orders
  audit [AGENTS]    attack private federations, with so many agents (200) where guesses are counted
  second-opinion    compare privacy accounting and noise with OpenDP and dp-accounting; needs the network
  advisories        ask the RustSec database about our dependencies; needs the network";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = workspace_root();
    let result = match arguments[..] {
        ["test"] => verify::test(&root),
        ["fix"] => codegen::run(&root, false).and_then(|()| run::cargo(&root, &["fmt", "--all"])),
        ["codegen"] => codegen::run(&root, false),
        ["codegen", "--check"] => codegen::run(&root, true),
        ["fuzz", ref options @ ..] => fuzz::command(&root, options),
        ["counts"] => counts::run(&root, false),
        ["counts", "--update"] => counts::run(&root, true),
        ["dist", ref options @ ..] => dist::command(&root, options),
        ["python"] => python::test_alone(&root),
        ["python", "--all"] => python::test_all(&root),
        ["python", "--pages"] => python::pages(&root),
        ["python", "--compare"] => python::compare(&root),
        ["wheel"] => python::wheel(&root),
        ["upgrade", ref binaries @ ..] => upgrade::command(&root, binaries),
        ["audit"] => verify::audit(&root, "200"),
        ["audit", agents] => verify::audit(&root, agents),
        ["second-opinion"] => verify::second_opinion(&root),
        ["advisories"] => provide::deny(&root).and_then(|deny| verify::advisories(&root, &deny)),
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
