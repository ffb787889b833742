//! The `posse` command. Everything it does is in the library beside it, which the Python package calls too.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    posse_cli::main()
}
