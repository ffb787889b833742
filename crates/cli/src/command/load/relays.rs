//! `posse load --relays`: a federation of several levels on this machine, a process for each relay.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use posse_net::load::upload;
use serde::Serialize;

use super::{DIMENSION, Process, SETTINGS};

/// The most processes that are started: each has threads, a log and a port.
const MOST: usize = 200;

/// What a federation with relays did under load, as the JSON document has it.
#[derive(Debug, Serialize)]
pub(super) struct MeasuredTree {
    /// Agents that uploaded at a time, spread over the lowest relays.
    agents: usize,
    /// How long they did.
    seconds: f64,
    /// Uploads that the lowest relays had on their disks, a second.
    uploads_per_second: f64,
    /// Milliseconds from an upload to its acknowledgement, for half of them and for 99 %, at the relay where that is longest.
    p50: f64,
    p99: f64,
    /// The root first, and below it level after level.
    levels: Vec<MeasuredLevel>,
}

/// The processes of one level together.
#[derive(Debug, Serialize)]
struct MeasuredLevel {
    processes: usize,
    /// Messages that they kept and sent, by their metrics.
    messages_up: u64,
    messages_down: u64,
    /// Observations that they hold; of relays the most of all.
    observations: u64,
    /// The same a second, for messages upwards.
    up_per_second: f64,
    /// Bytes of memory of the largest process.
    resident: f64,
}

/// Measures a federation with `fan_out[0]` relays below the root, `fan_out[1]` below each of those, and so on.
pub(super) async fn measure(
    data: &Path,
    fan_out: &[usize],
    agents: usize,
    connections: usize,
    duration: Duration,
) -> anyhow::Result<MeasuredTree> {
    let counts: Vec<usize> = fan_out.iter().scan(1_usize, |all, own| Some(scale(all, *own))).collect();
    let total = counts.iter().fold(1_usize, |sum, count| sum.saturating_add(*count));
    if fan_out.contains(&0) || total > MOST {
        bail!("--relays must be at least 1 at each level, and at most {MOST} processes in all");
    }
    let mut levels = vec![vec![start(data, fan_out.len() + 1, 0, 0, None)?]];
    for (depth, count) in counts.iter().enumerate() {
        let above = &levels[depth];
        let relay = |number| {
            start(data, fan_out.len() + 1, depth + 1, number, Some(&above[number % above.len()].url))
        };
        levels.push((0..*count).map(relay).collect::<anyhow::Result<_>>()?);
    }
    let leaves = levels.last().context("there is a root")?;
    let mut sides = tokio::task::JoinSet::new();
    for (number, leaf) in leaves.iter().enumerate() {
        let own = agents / leaves.len() + usize::from(number < agents % leaves.len());
        let (url, connections) = (leaf.url.clone(), connections.min(own.max(1)));
        sides.spawn(async move { upload(&url, own, connections, DIMENSION, duration).await });
    }
    let (mut acknowledged, mut seconds, mut p50, mut p99) = (0, 0.0_f64, 0.0_f64, 0.0_f64);
    while let Some(side) = sides.join_next().await {
        let side = side??;
        acknowledged += side.acknowledged;
        (seconds, p50, p99) = (seconds.max(side.seconds), p50.max(side.p50), p99.max(side.p99));
    }
    let measured = levels.iter_mut().map(|level| MeasuredLevel::of(level, seconds));
    let levels = measured.collect::<anyhow::Result<_>>()?;
    Ok(MeasuredTree { agents, seconds, uploads_per_second: acknowledged as f64 / seconds, p50, p99, levels })
}

fn scale(all: &mut usize, own: usize) -> usize {
    *all = all.saturating_mul(own);
    *all
}

/// A coordinator, or a relay of the one at `parent`.
fn start(
    data: &Path,
    levels: usize,
    depth: usize,
    number: usize,
    parent: Option<&str>,
) -> anyhow::Result<Process> {
    let name = format!("level-{depth}-{number}");
    let mut text = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nauthentication = \"none\"\ndata = \"{name}\"\n{SETTINGS}\
         [[federation]]\nname = \"load\"\ndimension = {DIMENSION}\nlevels = {levels}\n\
         observations_per_second = 100000000\n[federation.algorithm]\nname = \"async-lin-ucb\"\n\
         upload_threshold = 5\ndownload_threshold = inf\n"
    );
    if let Some(parent) = parent {
        let _ = write!(
            text,
            "[federation.parent]\ncoordinator = \"{parent}\"\nagent = {number}\ndepth = {depth}\n"
        );
    }
    let file = data.join(format!("{name}.toml"));
    std::fs::write(&file, text)?;
    let command = if parent.is_some() { "relay" } else { "serve" };
    Process::start(&[command, "--config", &file.to_string_lossy()])
}

impl MeasuredLevel {
    fn of(level: &mut [Process], seconds: f64) -> anyhow::Result<Self> {
        let mut own = Self {
            processes: level.len(),
            messages_up: 0,
            messages_down: 0,
            observations: 0,
            up_per_second: 0.0,
            resident: 0.0,
        };
        for process in level {
            let metrics = process.metrics()?;
            let of = |name: &str| metric(&metrics, name).unwrap_or(0.0) as u64;
            own.messages_up += of("posse_uploads_total");
            own.messages_down += of("posse_downloads_total");
            own.observations = own.observations.max(of("posse_observations"));
            own.resident = own.resident.max(process.resident()?);
        }
        own.up_per_second = own.messages_up as f64 / seconds;
        Ok(own)
    }
}

/// The value of a metric that has one series, in the text that Prometheus reads.
fn metric(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let line = lines.find(|rest| rest.starts_with('{') || rest.starts_with(' '))?;
    line.rsplit(' ').next()?.parse().ok()
}

pub(super) fn table(measured: &MeasuredTree) -> String {
    let mut text = String::new();
    let MeasuredTree { agents, seconds, uploads_per_second, p50, p99, levels } = measured;
    let _ = writeln!(
        text,
        "{agents} agents uploaded {DIMENSION} features for {seconds:.1} s: {uploads_per_second:.0} a second, acknowledged after \
         {p50:.1} ms (half), {p99:.1} ms (99 %)\n"
    );
    let _ = writeln!(
        text,
        "{:<22} {:>9} {:>12} {:>12} {:>12} {:>14} {:>12}",
        "level", "processes", "up", "up a second", "down", "observations", "memory, MB"
    );
    for (depth, level) in levels.iter().enumerate() {
        let name = match depth {
            0 => "root".to_owned(),
            _ if depth + 1 == levels.len() => "relays of agents".to_owned(),
            _ => format!("relays of depth {depth}"),
        };
        let MeasuredLevel { processes, messages_up, messages_down, observations, up_per_second, resident } =
            level;
        let _ = writeln!(
            text,
            "{name:<22} {processes:>9} {messages_up:>12} {up_per_second:>12.1} {messages_down:>12} {observations:>14} {:>12.1}",
            resident / 1e6
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::metric;

    #[test]
    fn metrics_are_found_by_their_whole_name() {
        let text =
            "posse_uploads_total_more{federation=\"load\"} 1\nposse_uploads_total{federation=\"load\"} 12\n";
        assert_eq!(metric(text, "posse_uploads_total"), Some(12.0));
        assert_eq!(metric(text, "posse_downloads_total"), None);
    }
}
