//! `posse bench`: what things cost here, beside a baseline in the same run.

use std::fmt::Write;

use posse_bench::{
    Effort, Measurements, Simulated, clustered, gradient_sums, interactions, nonlinear, phase_step,
    simulated, simulated_clicks, solved, uploads,
};

use super::{Ending, print, print_json};

/// Measure what an interaction, an upload and a simulation cost on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse bench --quick

Run it in a release build and on a quiet machine; compare ratios, not seconds.")]
pub(crate) struct Args {
    /// A look in a few seconds instead of numbers to quote
    #[arg(long)]
    quick: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let dimensions = [10, 25, 100].into_iter();
    let agents = [10, 1_000, if args.quick { 10_000 } else { 100_000 }].into_iter();
    let measured = Measurements {
        interactions: dimensions.map(|d| interactions(d, effort)).collect::<Result<_, _>>()?,
        uploads: agents.map(|n| uploads(n, effort)).collect::<Result<_, _>>()?,
        simulations: simulated(effort)?,
        clicks: simulated_clicks(effort)?,
        solvers: solved(effort)?,
        gradients: [10, 25, 100].into_iter().map(|d| gradient_sums(d, effort)).collect::<Result<_, _>>()?,
        clustered: clustered(effort)?,
        phases: [100, 1000, if args.quick { 3000 } else { 10_000 }]
            .into_iter()
            .map(phase_step)
            .collect::<Result<_, _>>()?,
        nonlinear: nonlinear(effort)?,
    };
    if args.json {
        print_json(&measured)?;
    } else {
        print(&tables(&measured))?;
    }
    Ok(Ending::Done)
}

fn tables(measured: &Measurements) -> String {
    let mut text = String::new();
    let out = &mut text;
    if cfg!(debug_assertions) {
        line(out, "This is a debug build: its numbers say little. Use `cargo run --release -- bench`.\n");
    }
    line(out, "Choose among 25 arms and learn, one core (plain: Sherman-Morrison in plain loops)");
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
    line(
        out,
        "\nSimulate 1000 agents, 25 arms of 25 features (published: the authors' Python code, elsewhere)",
    );
    simulations(out, &measured.simulations);
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
    text
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
