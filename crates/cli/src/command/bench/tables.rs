//! The tables of `posse bench`.

use std::fmt::Write;

use posse_bench::{Along, Measurements};

use super::Round;
use super::simulations::simulations;
use crate::command::load;

/// Every table of the last round; with several rounds `--json` has them all.
pub(super) fn tables(rounds: &[Round]) -> String {
    let mut text = String::new();
    let out = &mut text;
    if cfg!(debug_assertions) {
        line(out, "This is a debug build: its numbers say little. Use `cargo run --release -- bench`.\n");
    }
    let Some(Round { measured, network }) = rounds.last() else { return text };
    memory(out, measured);
    kernels(out, measured);
    agent(out, measured);
    coordinator(out, measured);
    simulation(out, measured);
    growth(out, measured);
    families(out, measured);
    if let Some(network) = network {
        line(out, "\nOver the network");
        out.push_str(&load::table(network));
    }
    text.trim_start_matches('\n').to_owned()
}

fn memory(out: &mut String, measured: &Measurements) {
    if measured.memory.is_empty() {
        return;
    }
    line(
        out,
        "\nMemory at rest, 25 features, bytes (each: what every agent has of what its memory grows with)",
    );
    line(
        out,
        "                                          each                  agents    an agent   at coordinator",
    );
    for row in &measured.memory {
        let bytes = |bytes: Option<f64>| bytes.map_or("-".to_owned(), |bytes| format!("{bytes:.0}"));
        let (own, coordinator) = (bytes(row.bytes_per_agent), bytes(row.coordinator_bytes_per_agent));
        let (name, size, unit, agents) = (&row.name, row.size, &row.unit, row.agents);
        line(out, &format!("  {name:<36} {size:>7} {unit:<12} {agents:>8} {own:>11} {coordinator:>16}"));
    }
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
    line(
        out,
        "\nChoose among 25 arms and learn, one core, and how many times as long others take in the same run",
    );
    line(
        out,
        "plain: Sherman-Morrison in plain loops; refactorising: plain loops that factorise at every observation;",
    );
    let numpy = measured.numpy.as_deref().unwrap_or_default();
    line(out, &format!("numpy: {numpy}"));
    line(out, "  features    posse   interactions/s        plain           refactorising          numpy");
    for row in &measured.interactions {
        let beside = |micros: f64, ratio: f64| format!("{micros:.2} us {ratio:>5.1}x");
        let numpy = row
            .numpy_micros
            .zip(row.numpy_ratio)
            .map_or("-".to_owned(), |(micros, ratio)| beside(micros, ratio));
        let (plain, refactorising) =
            (beside(row.plain_micros, row.ratio), beside(row.refactorising_micros, row.refactorising_ratio));
        let (posse, rate) = (row.posse_micros, 1e6 / row.posse_micros);
        line(
            out,
            &format!(
                "{:>10} {posse:>8.2} us {rate:>13.0} {plain:>17} {refactorising:>19} {numpy:>18}",
                row.dimension
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
    line(out, "\nSimulate 1000 agents, 25 arms of 25 features");
    simulations(out, &measured.simulations, measured.published.as_ref());
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

fn growth(out: &mut String, measured: &Measurements) {
    if measured.growth.is_empty() {
        return;
    }
    line(
        out,
        "\nMicroseconds of processor time of an interaction as one size grows; the others: 25 arms, 25 features, 100 agents,",
    );
    line(out, "20 000 interactions (with more agents, at least five interactions each)");
    for along in Along::ALL {
        let points = || measured.growth.iter().filter(|point| point.along == along);
        let mut sizes: Vec<u64> = points().map(|point| point.size).collect();
        sizes.dedup();
        if sizes.is_empty() {
            continue;
        }
        let header: String = sizes.iter().map(|size| format!("{size:>9}")).collect();
        line(out, &format!("  {:<30}{header}", along.word()));
        let mut names: Vec<&str> = points().map(|point| point.name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let times: String = points()
                .filter(|point| point.name == name)
                .map(|point| format!("{:>9.2}", point.micros))
                .collect();
            line(out, &format!("    {name:<28}{times}"));
        }
    }
}

fn families(out: &mut String, measured: &Measurements) {
    if measured.clicks.is_empty() {
        return;
    }
    line(out, "\nSimulate 20 agents that take turns, 25 arms of 10 features, clicks");
    simulations(out, &measured.clicks, measured.published.as_ref());
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
    line(out, "\nSimulate 40 clustered users, 5 agents, 10 arms of 10 features");
    simulations(out, &measured.clustered, measured.published.as_ref());
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

pub(super) fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use posse_bench::{GrowthPoint, Interactions, MemoryAtRest};

    use super::*;

    /// The tables of one round.
    fn text(measured: Measurements) -> String {
        tables(&[Round { measured, network: None }])
    }

    fn interactions(numpy: Option<f64>) -> Measurements {
        let row = Interactions {
            dimension: 25,
            posse_micros: 0.5,
            plain_micros: 2.0,
            ratio: 4.0,
            refactorising_micros: 5.0,
            refactorising_ratio: 10.0,
            numpy_micros: numpy,
            numpy_ratio: numpy.map(|micros| micros / 0.5),
        };
        let version = numpy.map_or("not found", |_| "2.4.6").to_owned();
        Measurements { interactions: vec![row], numpy: Some(version), ..Default::default() }
    }

    #[test]
    fn the_table_of_an_agent_has_every_baseline_and_says_where_numpy_is_not_there() {
        let with = text(interactions(Some(8.0)));
        for part in ["numpy: 2.4.6", "2.00 us   4.0x", "5.00 us  10.0x", "8.00 us  16.0x"] {
            assert!(with.contains(part), "{part} in\n{with}");
        }
        let without = text(interactions(None));
        assert!(without.contains("numpy: not found"), "{without}");
        assert!(without.lines().last().unwrap().ends_with(" -"), "{without}");
        let document = serde_json::to_value(interactions(None)).unwrap();
        assert_eq!(document["numpy"], "not found");
        assert!(document["interactions"][0]["numpy_micros"].is_null());
    }

    #[test]
    fn memory_that_the_system_does_not_tell_is_a_dash() {
        let row = MemoryAtRest {
            name: "fclub-dc".to_owned(),
            unit: "users".to_owned(),
            size: 10,
            agents: 500,
            bytes_per_agent: Some(184_809.4),
            coordinator_bytes_per_agent: None,
        };
        let text = text(Measurements { memory: vec![row], ..Default::default() });
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["fclub-dc", "10", "users", "500", "184809", "-"]);
    }

    #[test]
    fn growth_has_a_line_for_each_algorithm_and_a_column_for_each_size() {
        let along = Along::Arms;
        let point = |name, size, micros| GrowthPoint { name, along, size, micros, messages: 0.0 };
        let growth = vec![point("a", 5, 1.0), point("b", 5, 2.0), point("a", 50, 3.0), point("b", 50, 4.0)];
        let text = text(Measurements { growth, ..Default::default() });
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        let at = lines.iter().position(|line| line == "arms 5 50").expect("a header of sizes");
        assert_eq!(lines[at + 1..at + 3], ["a 1.00 3.00", "b 2.00 4.00"]);
    }
}
