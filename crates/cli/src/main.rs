//! The `posse` command. Everything it does is in the library beside it, which the Python package calls too.

#![forbid(unsafe_code)]

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    posse_cli::main()
}
