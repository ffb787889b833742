//! The `posse` command, and what other programs use of it.
//!
//! [`main`] is the command. [`embed`] is for programs that run experiments inside themselves, such as the Python
//! package; everything else is private.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 ran but something in it failed,
//! 2 could not run, 130 interrupted.

#![forbid(unsafe_code)]

mod calibrate;
mod check;
mod command;
mod demo;
pub mod embed;
mod experiment;
mod federation;
mod fetch;
mod figures;
mod gallery;
mod interrupt;
mod metric;
mod processor;
mod progress;
mod report;
mod results;
mod row;
mod runner;
mod settings;
mod shard;
mod share;
mod shelf;
mod silence;
mod statement;
mod statistics;
mod suggest;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use command::{
    Ending, agent, agents, algorithms, backup, bench, compare, completions, data, demo as demo_command,
    doctor, evaluate, init, load, log, merge, privacy, relay, report as report_command, reproduce, run,
    serve, start, storage, token, worlds,
};
use experiment::Report;

/// Federated contextual bandits: simulate them, compare them, run them
#[derive(Debug, Parser)]
#[command(
    name = "posse",
    version,
    after_help = "\
Examples:
  posse demo
  posse new experiment mine
  posse run experiments/async-fig2a.toml --out results/async-fig2a
  posse report results/async-fig2a

Exit codes: 0 done, 1 ran but something in it failed, 2 could not run, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    New(start::Args),
    Run(run::Args),
    Reproduce(reproduce::Args),
    Merge(merge::Args),
    Compare(compare::Args),
    Report(report_command::Args),
    Algorithms(algorithms::Args),
    Worlds(worlds::Args),
    Data(data::Args),
    Evaluate(evaluate::Args),
    Privacy(privacy::Args),
    Bench(bench::Args),
    Demo(demo_command::Args),
    Doctor(doctor::Args),
    Init(init::Args),
    Serve(serve::Args),
    Relay(relay::Args),
    Agent(agent::Args),
    Storage(storage::Args),
    Token(token::Args),
    Agents(agents::Args),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    Log(log::Args),
    Load(load::Args),
    Completions(completions::Args),
    Manual(completions::ManualArgs),
}

impl Cli {
    /// The command that prepares or inspects data, evaluates or merges, if these arguments name one of them. Others keep
    /// the process busy, or take it over.
    fn embedded(arguments: &[String]) -> Result<(anyhow::Result<Ending>, String), String> {
        let words = std::iter::once("posse").chain(arguments.iter().map(String::as_str));
        let cli = Self::try_parse_from(words).map_err(|error| error.render().to_string())?;
        Ok(match &cli.command {
            Command::Data(args) => command::printed(|| data::run(args)),
            Command::Evaluate(args) => command::printed(|| evaluate::run(args)),
            Command::Merge(args) => command::printed(|| merge::run(args)),
            _ => return Err("only data, evaluate and merge can be run inside another program".into()),
        })
    }
}

/// Runs the command that the arguments of this process name. Returns the code that the process exits with.
#[must_use]
pub fn main() -> ExitCode {
    let result = match &Cli::parse().command {
        Command::New(args) => start::run(args),
        Command::Run(args) => run::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Report(args) => report_command::run(args),
        Command::Algorithms(args) => algorithms::run(args),
        Command::Worlds(args) => worlds::run(args),
        Command::Data(args) => data::run(args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Privacy(args) => privacy::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Demo(args) => demo_command::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Init(args) => init::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Relay(args) => relay::run(args),
        Command::Agent(args) => agent::run(args),
        Command::Storage(args) => storage::run(args),
        Command::Token(args) => token::run(args),
        Command::Agents(args) => agents::run(args),
        Command::Backup(args) => backup::backup(args),
        Command::Restore(args) => backup::restore(args),
        Command::Log(args) => log::run(args),
        Command::Load(args) => load::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Manual(args) => completions::manual(args),
    };
    match result {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Failed) => ExitCode::from(1),
        Ok(Ending::Interrupted) => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = io::stderr().lock();
            let _ = match error.downcast_ref::<Report>() {
                Some(report) => write!(stderr, "{report}"),
                None => writeln!(stderr, "error: {error:#}"),
            };
            ExitCode::from(2)
        }
    }
}

/// Whether stdout was closed by the program that reads it, as `posse … | head` does. That is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
