//! `posse completions` and the manual pages, both made from the description of the command line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::{Ending, print};
use crate::Cli;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse completions bash > ~/.local/share/bash-completion/completions/posse
  posse completions zsh > ~/.zfunc/_posse
  posse completions fish > ~/.config/fish/completions/posse.fish")]
pub(crate) struct Args {
    /// The shell to write completions for
    shell: Shell,
}

/// Write a manual page for each command to a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse manual ~/.local/share/man/man1")]
pub(crate) struct ManualArgs {
    /// Where to write them; made if it is not there
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "posse", &mut script);
    print(&String::from_utf8(script)?)?;
    Ok(Ending::Done)
}

pub(crate) fn manual(args: &ManualArgs) -> anyhow::Result<Ending> {
    let shown = args.directory.display();
    std::fs::create_dir_all(&args.directory).with_context(|| format!("cannot make {shown}"))?;
    clap_mangen::generate_to(Cli::command(), &args.directory)
        .with_context(|| format!("cannot write to {shown}"))?;
    writeln!(std::io::stderr(), "manual pages: {shown}")?;
    Ok(Ending::Done)
}
