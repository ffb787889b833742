//! Measures memory at rest, each row in a process of its own.

use std::process::{Command, Stdio};

use anyhow::Context;
use posse_bench::{Effort, MemoryAtRest, memory_rows};

/// Runs this program once for every row.
pub(super) fn measured(effort: Effort) -> anyhow::Result<Vec<MemoryAtRest>> {
    let program = std::env::current_exe().context("cannot find this program, to run it for each row")?;
    (0..memory_rows(effort))
        .map(|row| {
            let mut command = Command::new(&program);
            command.args(["bench", "memory", "--memory-row", &row.to_string()]);
            if effort == Effort::Quick {
                command.arg("--quick");
            }
            // The allocator of the command otherwise keeps what was freed for a second, and that would count.
            command.env("MIMALLOC_PURGE_DELAY", "0").stderr(Stdio::inherit());
            let output = command.output().context("cannot run this program for a row")?;
            anyhow::ensure!(output.status.success(), "row {row} of the memory at rest: {}", output.status);
            serde_json::from_slice(&output.stdout).with_context(|| format!("row {row} of the memory at rest"))
        })
        .collect()
}
