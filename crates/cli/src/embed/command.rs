//! Commands that a program runs inside itself.

use super::in_words;
use crate::Cli;

/// Runs `posse` with these arguments, the program's own name left out, and returns what it would print on stdout.
///
/// Only `data`, `evaluate` and `merge` can be run. Warnings go to stderr. A command that ran but found something wrong
/// returns what it printed, as the command does with exit code 1.
pub fn command(arguments: &[String]) -> Result<String, String> {
    let (ending, printed) = Cli::embedded(arguments)?;
    ending.map(|_| printed).map_err(|error| in_words(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> Result<String, String> {
        command(&line.split(' ').map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_a_command_prints_is_returned() {
        let list = run("data list --json").unwrap();
        assert!(list.contains("\"shuttle\""), "{list}");
    }

    #[test]
    fn mistakes_are_those_of_the_command() {
        assert!(run("data inspect nowhere").unwrap_err().contains("nowhere"));
        assert!(run("evaluate --alogrithm lin-ucb").unwrap_err().contains("--alogrithm"));
        assert!(run("demo").unwrap_err().contains("only data, evaluate and merge"));
    }
}
