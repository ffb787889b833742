//! The baseline in numpy, in a process of its own that takes turns with ours.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context;

const PROGRAM: &str = include_str!("numpy_lin_ucb.py");

/// What the table and the document say where there is no Python with numpy.
pub(super) const NOT_FOUND: &str = "not found";

/// A Python process with numpy that waits for its turns.
#[derive(Debug)]
pub(super) struct Numpy {
    process: Child,
    requests: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
    version: String,
}

impl Numpy {
    /// Starts the Python that the variable `PYTHON` names, otherwise `python3`. Returns `None` if there is none or if it has
    /// no numpy.
    pub(super) fn start() -> Option<Self> {
        let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
        let mut command = Command::new(python);
        command.args(["-c", PROGRAM]);
        Self::of(command)
    }

    fn of(mut command: Command) -> Option<Self> {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let (requests, answers) = process.stdin.take().zip(process.stdout.take())?;
        let (requests, answers) = (BufWriter::new(requests), BufReader::new(answers));
        let mut numpy = Self { process, requests, answers, version: String::new() };
        // The program says its version first; one without numpy ends without a word.
        let line = numpy.line().ok()?;
        numpy.version = line.strip_prefix("numpy ")?.to_owned();
        Some(numpy)
    }

    /// For example `2.4.6`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Begins a new learner for these offers, each of `arms` rows of `dimension` features.
    pub(super) fn offer(&mut self, offers: &[Vec<f64>], arms: usize, dimension: usize) -> anyhow::Result<()> {
        writeln!(self.requests, "offers {} {arms} {dimension}", offers.len())?;
        for value in offers.iter().flatten() {
            self.requests.write_all(&value.to_le_bytes())?;
        }
        Ok(self.requests.flush()?)
    }

    /// Lets the learner have so many interactions; returns the seconds it took.
    pub(super) fn play(&mut self, rounds: usize) -> anyhow::Result<f64> {
        writeln!(self.requests, "play {rounds}")?;
        self.requests.flush()?;
        let line = self.line()?;
        line.parse().with_context(|| format!("numpy's answer `{line}` is not a time"))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line)?;
        anyhow::ensure!(read > 0, "the Python process with the numpy baseline ended early");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Numpy {
    fn drop(&mut self) {
        // It is never in the middle of anything that matters, and a child that is not waited for stays in the table of processes.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A shell that stands for Python.
    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_machine_without_python_or_without_numpy_has_no_baseline() {
        assert!(Numpy::of(Command::new("/there/is/no/python")).is_none());
        assert!(Numpy::of(shell("exit 1")).is_none());
    }

    #[test]
    fn a_python_with_numpy_is_given_offers_and_answers_with_seconds() {
        // Six numbers are 48 bytes; one more or fewer, and the next line is not the request to play.
        let script = "echo numpy 9.9; read offers; head -c 48 > /dev/null; read play; \
                      [ \"$offers, $play\" = 'offers 1 3 2, play 10' ] && echo 0.25; read more";
        let mut numpy = Numpy::of(shell(script)).unwrap();
        assert_eq!(numpy.version(), "9.9");
        numpy.offer(&[vec![1.0; 6]], 3, 2).unwrap();
        assert!((numpy.play(10).unwrap() - 0.25).abs() < 1e-12);
    }

    #[test]
    fn a_baseline_that_ends_in_the_middle_is_an_error_and_not_a_time() {
        let mut numpy = Numpy::of(shell("echo numpy 9.9; read offers")).unwrap();
        assert!(numpy.offer(&[], 0, 0).and_then(|()| numpy.play(10)).is_err());
    }
}
