//! The tables of `posse bench`.

use std::fmt::Write;

use posse_bench::{Measurements, Simulated};

use super::Round;
use crate::command::load;

/// Every table of the last round; with several rounds `--json` has them all.
pub(super) fn tables(rounds: &[Round]) -> String {
    let mut text = String::new();
    let out = &mut text;
    if cfg!(debug_assertions) {
        line(out, "This is a debug build: its numbers say little. Use `cargo run --release -- bench`.\n");
    }
    let Some(Round { measured, network }) = rounds.last() else { return text };
    kernels(out, measured);
    agent(out, measured);
    coordinator(out, measured);
    simulation(out, measured);
    families(out, measured);
    if let Some(network) = network {
        line(out, "\nOver the network");
        out.push_str(&load::table(network));
    }
    text.trim_start_matches('\n').to_owned()
}

fn kernels(out: &mut String, measured: &Measurements) {
    if let Some(roofline) = &measured.roofline {
        let (operations, bytes) = (roofline.operations_per_second / 1e9, roofline.bytes_per_second / 1e9);
        line(
            out,
            &format!(
                "One core at most: {operations:.1} G multiplications and additions, {bytes:.1} GB read a second"
            ),
        );
    }
    if measured.kernels.is_empty() {
        return;
    }
    line(
        out,
        "\nKernels, one core if nothing else is said (bound: what arithmetic or memory allows one core, with --roofline)",
    );
    line(out, "                                              features         time   of the bound");
    for row in &measured.kernels {
        let fraction =
            measured.roofline.map_or("-".to_owned(), |roofline| format!("{:.2}", row.fraction(&roofline)));
        line(out, &format!("  {:<44} {:>8} {:>9.3} us {fraction:>14}", row.name, row.dimension, row.micros));
    }
}

fn agent(out: &mut String, measured: &Measurements) {
    if measured.interactions.is_empty() {
        return;
    }
    line(out, "\nChoose among 25 arms and learn, one core (plain: Sherman-Morrison in plain loops)");
    line(out, "  features    posse        plain       ratio   interactions/s");
    for row in &measured.interactions {
        let (posse, plain) = (row.posse_micros, row.plain_micros);
        let rate = 1e6 / posse;
        line(
            out,
            &format!(
                "{:>10} {posse:>8.2} us {plain:>9.2} us {:>8.1}x {rate:>14.0}",
                row.dimension, row.ratio
            ),
        );
    }
}

fn coordinator(out: &mut String, measured: &Measurements) {
    if measured.uploads.is_empty() {
        return;
    }
    line(out, "\nTake in an upload, 25 features (literal: the paper's matrix per agent)");
    line(out, "    agents    posse        literal        ratio   bytes/agent   literal");
    for row in &measured.uploads {
        let bytes = row.bytes_per_agent.map_or("-".to_owned(), |bytes| format!("{bytes:.0}"));
        line(
            out,
            &format!(
                "{:>10} {:>8.2} us {:>12.1} us {:>9.0}x {bytes:>12} {:>9}",
                row.agents, row.posse_micros, row.literal_micros, row.ratio, row.literal_bytes_per_agent
            ),
        );
    }
}

fn simulation(out: &mut String, measured: &Measurements) {
    if measured.simulations.is_empty() {
        return;
    }
    line(
        out,
        "\nSimulate 1000 agents, 25 arms of 25 features (published: the authors' Python code, elsewhere)",
    );
    simulations(out, &measured.simulations);
    line(out, "\nSimulate very many agents, five interactions each, 25 arms of 25 features");
    line(out, "                       agents      time   interaction     messages       memory   an agent");
    for row in &measured.populations {
        let (memory, each) = row.bytes.map_or(("-".to_owned(), "-".to_owned()), |bytes| {
            (format!("{:.0} MB", bytes as f64 / 1e6), format!("{:.0} B", bytes as f64 / row.agents as f64))
        });
        let (seconds, micros) = (row.seconds, row.micros);
        let run = format!(
            "{:<16} {:>12} {seconds:>7.1} s {micros:>10.2} us {:>12}",
            row.name, row.agents, row.messages
        );
        line(out, &format!("  {run} {memory:>12} {each:>10}"));
    }
}

fn families(out: &mut String, measured: &Measurements) {
    if measured.clicks.is_empty() {
        return;
    }
    line(out, "\nSimulate 20 agents that take turns, 25 arms of 10 features, clicks (published: likewise)");
    simulations(out, &measured.clicks);
    line(out, "\nFind the minimum of 20 agents' loss over n clicks, from zero to within 1/n²");
    line(out, "  features       n  solver           gradients   scalars/agent");
    for row in &measured.solvers {
        let solver = serde_json::to_value(row.solver).map_or(String::new(), |name| name.to_string());
        line(
            out,
            &format!(
                "{:>10} {:>7}  {:<16} {:>9} {:>15}",
                row.dimension,
                row.observations,
                solver.trim_matches('"'),
                row.gradients,
                row.scalars
            ),
        );
    }
    line(
        out,
        "\nAdd up a gradient over an agent's clicks, one core (memory: a plain sum of as many numbers)",
    );
    line(out, "  features   clicks     posse       memory     ratio");
    for row in &measured.gradients {
        let (posse, memory, ratio) = (row.posse_rate, row.memory_rate, row.ratio);
        let size = format!("{:>10} {:>8}", row.dimension, row.observations);
        line(out, &format!("{size} {posse:>6.1} GB/s {memory:>7.1} GB/s {ratio:>8.2}x"));
    }
    line(out, "\nSimulate 40 clustered users, 5 agents, 10 arms of 10 features (published: likewise)");
    simulations(out, &measured.clustered);
    line(out, "\nBegin a phase at one agent: estimates, edges, components, 10 features");
    line(out, "     users         time   clusters   bytes/user");
    for row in &measured.phases {
        let bytes = row.bytes_per_user.map_or("-".to_owned(), |bytes| format!("{bytes:.0}"));
        let (users, time, clusters) = (row.users, row.milliseconds, row.clusters);
        line(out, &format!("{users:>10} {time:>9.1} ms {clusters:>10} {bytes:>12}"));
    }
    line(
        out,
        "\nChoose among 4 arms of 10 features and learn, not linear, one core (plain: inverses in plain loops)",
    );
    line(out, "                             size       posse        plain       ratio   interactions/s");
    for row in &measured.nonlinear {
        let (posse, plain, ratio) = (row.posse_micros, row.plain_micros, row.ratio);
        let rate = 1e6 / posse;
        line(
            out,
            &format!(
                "  {:<24} {:>6} {posse:>8.1} us {plain:>9.1} us {ratio:>8.1}x {rate:>14.0}",
                row.name, row.size
            ),
        );
    }
}

fn simulations(out: &mut String, rows: &[Simulated]) {
    line(
        out,
        "                                          posse    published    ratio   interactions/s   regret   messages    scalars",
    );
    for row in rows {
        line(
            out,
            &format!(
                "  {:<36} {:>6.2} us {:>9.0} us {:>7.0}x {:>16.0} {:>8.0} {:>10} {:>10}",
                row.name,
                row.micros,
                row.published_micros,
                row.ratio,
                row.interactions_per_second,
                row.regret,
                row.messages,
                row.scalars
            ),
        );
    }
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{text}");
}
