//! `posse load`: what a coordinator and an agent take on this machine.

mod relays;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use posse_core::{AgentId, Algorithm, Arms, Federation, Seed, Shape, UserId};
use posse_net::agent::Carriage;
use posse_net::load::{Uploaded, choose_over_http, idle, upload};
use posse_net::{Agent, AgentConfig};
use serde::Serialize;

use super::runtime::runtime;
use super::{Ending, print, print_json};

const DIMENSION: usize = 25;
const ARMS: usize = 25;
/// Choices with their rewards in a batch.
const BATCH: usize = 100;
/// Connections of applications to a busy sidecar.
const APPLICATIONS: usize = 16;
/// As long as a batch of one upload.
const RECORD: usize = 3000;
/// Limits of a coordinator's file that do not stand in the way of a load from one address.
const SETTINGS: &str = "[limits]\nframes_per_second = 1000000\nconnections = 100000\nconnections_per_address = 100000\n\
                        streams_per_connection = 100000\n";

/// Measure a coordinator and an agent under load on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse load --agents 1000 --seconds 5
  posse load --relays 2,2 --agents 10000 --seconds 10

A coordinator is started as a process of its own, on loopback and on the disk of --data; the load comes from
here and takes processors from it. Run it in a release build and on a quiet machine.")]
pub(crate) struct Args {
    /// Agents that upload at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    agents: usize,
    /// How many connections the agents share
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    connections: usize,
    /// How many seconds agents upload
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,
    /// Idle agents, each with a connection of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    idle: usize,
    /// Measure a federation with relays instead: how many below the root, and below each of those, with commas between
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    relays: Vec<usize>,
    /// Where the coordinator keeps its log; it is removed afterwards
    #[arg(long, value_name = "DIR", default_value = "results/load")]
    data: std::path::PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What `posse load` measured, as its JSON document has it.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    /// Milliseconds of an append and a sync of one upload, alone.
    sync_millis: f64,
    uploads: Uploaded,
    /// Microseconds of processor time for one upload, of the coordinator and of the sender.
    coordinator_micros: f64,
    sender_micros: f64,
    /// Idle agents that were connected at once, and bytes that the coordinator took for each.
    idle_agents: usize,
    bytes_per_idle_agent: f64,
    /// Choices and rewards in a second: the machine of core, the library around it, and over HTTP.
    core_per_second: f64,
    library_per_second: f64,
    durable_per_second: f64,
    /// With a state on the disk, in batches that are written at once.
    batched_per_second: f64,
    sidecar_per_second: f64,
    /// Over several connections at a time.
    busy_sidecar_per_second: f64,
}

impl Args {
    /// What the network suite of `posse bench` measures.
    pub(super) fn for_bench(quick: bool) -> Self {
        let (agents, seconds, idle) = if quick { (100, 0.5, 200) } else { (1000, 5.0, 2000) };
        let data = std::env::temp_dir().join(format!("posse-bench-{}", std::process::id()));
        Self { agents, connections: 8, seconds, idle, relays: Vec::new(), data, json: false }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    if !args.relays.is_empty() {
        let measured = in_directory(args, async {
            let seconds = Duration::try_from_secs_f64(args.seconds).context("--seconds is not a time")?;
            relays::measure(&args.data, &args.relays, args.agents, args.connections, seconds).await
        })?;
        if args.json {
            print_json(&measured)?;
        } else {
            print(&(warning() + &relays::table(&measured)))?;
        }
        return Ok(Ending::Done);
    }
    let measured = measured(args)?;
    if args.json {
        print_json(&measured)?;
    } else {
        print(&table(&measured))?;
    }
    Ok(Ending::Done)
}

/// Measures everything, and removes what the coordinator kept.
pub(super) fn measured(args: &Args) -> anyhow::Result<Measured> {
    in_directory(args, measure(args))
}

/// Measures something with the directory for data there, which is removed afterwards.
fn in_directory<T>(args: &Args, measure: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    if args.agents == 0 || args.connections == 0 {
        bail!("--agents and --connections must be at least 1");
    }
    std::fs::create_dir_all(&args.data).with_context(|| format!("cannot make {}", args.data.display()))?;
    let measured = runtime()?.block_on(measure);
    let _ = std::fs::remove_dir_all(&args.data);
    measured
}

async fn measure(args: &Args) -> anyhow::Result<Measured> {
    let sync_millis = sync(&args.data)?;
    let coordinator = Process::coordinator(&args.data, "busy")?;
    let seconds = Duration::try_from_secs_f64(args.seconds).context("--seconds is not a time")?;
    let pid = coordinator.child.id().to_string();
    let (ours, theirs) = (processor_seconds("self")?, processor_seconds(&pid)?);
    let uploads = upload(&coordinator.url, args.agents, args.connections, DIMENSION, seconds).await?;
    let each = |after: f64, before: f64| 1e6 * (after - before) / uploads.acknowledged.max(1) as f64;
    let sender_micros = each(processor_seconds("self")?, ours);
    let coordinator_micros = each(processor_seconds(&pid)?, theirs);
    drop(coordinator);
    let coordinator = Process::coordinator(&args.data, "idle")?;
    // The first few warm up what all share.
    let warm = idle(&coordinator.url, 100).await?;
    let before = coordinator.resident()?;
    let crowd = idle(&coordinator.url, args.idle).await?;
    let after = coordinator.resident()?;
    let bytes_per_idle_agent = (after - before) / crowd.len().max(1) as f64;
    let idle_agents = crowd.len();
    drop((warm, crowd));
    let Choices { core: core_per_second, library: library_per_second, .. } =
        choices(&coordinator.url, None).await?;
    let state = args.data.join("agent");
    let Choices { library: durable_per_second, batches: batched_per_second, .. } =
        choices(&coordinator.url, Some(&state)).await?;
    let sidecar = sidecar(&coordinator.url, &args.data)?;
    let sidecar_per_second = over_http(&sidecar, 1, 2000).await?;
    let busy_sidecar_per_second = over_http(&sidecar, APPLICATIONS, 2000).await?;
    Ok(Measured {
        sync_millis,
        uploads,
        coordinator_micros,
        sender_micros,
        idle_agents,
        bytes_per_idle_agent,
        core_per_second,
        library_per_second,
        durable_per_second,
        batched_per_second,
        sidecar_per_second,
        busy_sidecar_per_second,
    })
}

/// What stands before numbers of a build that is not made for speed.
fn warning() -> String {
    let debug = "This is a debug build: its numbers say little. Use `cargo run --release -- load`.\n\n";
    if cfg!(debug_assertions) { debug.to_owned() } else { String::new() }
}

pub(super) fn table(measured: &Measured) -> String {
    let mut text = warning();
    let Measured { uploads, .. } = measured;
    let _ = writeln!(
        text,
        "A write and a sync of one upload on this disk      {:>10.2} ms",
        measured.sync_millis
    );
    let _ = writeln!(
        text,
        "Durable uploads, {DIMENSION} features, {} agents          {:>10.0} a second\n  acknowledged after {:.1} ms (half), {:.1} ms (99 %)",
        uploads.agents, uploads.per_second, uploads.p50, uploads.p99
    );
    let _ = writeln!(
        text,
        "  processor time an upload: coordinator {:.0} µs, sender {:.0} µs",
        measured.coordinator_micros, measured.sender_micros
    );
    let _ = writeln!(
        text,
        "{} idle agents, a connection each              {:>10.1} kB an agent at the coordinator",
        measured.idle_agents,
        measured.bytes_per_idle_agent / 1000.0
    );
    let _ = writeln!(
        text,
        "Choices among {ARMS} arms with rewards, the machine     {:>10.0} a second",
        measured.core_per_second
    );
    let _ = writeln!(
        text,
        "  the same through the library                    {:>10.0} a second",
        measured.library_per_second
    );
    let _ = writeln!(
        text,
        "  the same with a state on the disk               {:>10.0} a second",
        measured.durable_per_second
    );
    let _ = writeln!(
        text,
        "  the same in batches of {BATCH}                      {:>10.0} a second",
        measured.batched_per_second
    );
    let _ = writeln!(
        text,
        "  the same over HTTP, two requests, one connection{:>10.0} a second",
        measured.sidecar_per_second
    );
    let _ = writeln!(
        text,
        "  the same over HTTP, {APPLICATIONS} connections             {:>10.0} a second",
        measured.busy_sidecar_per_second
    );
    text
}

/// What the disk takes for one small durable write: the median of many.
fn sync(data: &Path) -> anyhow::Result<f64> {
    let path = data.join("sync");
    let mut file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let record = vec![7; RECORD];
    let mut times = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        file.write_all(&record)?;
        file.sync_data()?;
        times.push(1000.0 * began.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// A process of ours that ends with us.
struct Process {
    child: Child,
    url: String,
    /// The lines after its address.
    output: BufReader<ChildStdout>,
    /// Where its metrics are, once they were asked for.
    admin: Option<String>,
}

impl Process {
    fn coordinator(data: &Path, name: &str) -> anyhow::Result<Self> {
        let file = data.join(format!("{name}.toml"));
        let text = format!(
            "listen = \"127.0.0.1:0\"\nauthentication = \"none\"\ndata = \"{name}\"\n{SETTINGS}[[federation]]\nname = \"load\"\ndimension = {DIMENSION}\n[federation.algorithm]\n\
             name = \"async-lin-ucb\"\nupload_threshold = 2\ndownload_threshold = inf\n"
        );
        std::fs::write(&file, text)?;
        Self::start(&["serve", "--config", &file.to_string_lossy()])
    }

    fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("the process has no output")?);
        let mut url = String::new();
        output.read_line(&mut url)?;
        if url.is_empty() {
            bail!("`posse {}` did not start", arguments.join(" "));
        }
        Ok(Self { child, url: url.trim().to_owned(), output, admin: None })
    }

    /// The text of its metrics. Only for a process whose file has `admin`.
    fn metrics(&mut self) -> anyhow::Result<String> {
        let address = if let Some(address) = &self.admin {
            address.clone()
        } else {
            // The second line is http://ADDRESS/metrics.
            let mut line = String::new();
            self.output.read_line(&mut line)?;
            let address = line.trim().trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
            self.admin.insert(address).clone()
        };
        let mut stream = std::net::TcpStream::connect(&address)
            .with_context(|| format!("cannot ask {address} for metrics"))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Bytes of memory that it occupies.
    fn resident(&self) -> anyhow::Result<f64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes =
            line.and_then(|line| line.split_whitespace().next()).and_then(|n| n.parse::<f64>().ok());
        Ok(1024.0 * kilobytes.context("the system does not say how much memory a process has")?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time that a process has taken. Linux counts it in hundredths of a second.
fn processor_seconds(process: &str) -> anyhow::Result<f64> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name, in brackets, may hold anything; twelve fields after it come user and system time.
    let fields = text.rsplit_once(") ").map(|(_, rest)| rest.split(' ').skip(11).take(2));
    let hundredths = fields.into_iter().flatten().map(str::parse::<f64>).sum::<Result<f64, _>>();
    Ok(hundredths.with_context(|| format!("{path} is not understood"))? / 100.0)
}

fn offers() -> anyhow::Result<Vec<Arms>> {
    let mut stream = Seed(1).stream("load", 1, 0);
    let mut row = || (0..DIMENSION).map(|_| 0.2 * stream.normal()).collect::<Vec<f64>>();
    let offer = |_| Ok(Arms::from_rows(DIMENSION, &(0..ARMS).map(|_| row()).collect::<Vec<_>>())?);
    (0..64).map(offer).collect()
}

/// Interactions in a second.
struct Choices {
    /// Of the machine alone.
    core: f64,
    /// Of the library around it.
    library: f64,
    /// Of the library, in batches.
    batches: f64,
}

/// Measures interactions of the machine, of the library and in batches, in turns.
async fn choices(url: &str, state: Option<&Path>) -> anyhow::Result<Choices> {
    const MANY: usize = 20_000;
    let config = AgentConfig {
        coordinator: url.into(),
        agent: Some(1_000_000),
        state: state.map(Into::into),
        carriage: Carriage::ByHand,
        ..AgentConfig::default()
    };
    let agent = Agent::start(config).await?;
    let algorithm: Algorithm = serde_json::from_value(serde_json::json!({
        "name": "async-lin-ucb", "upload_threshold": 2.0, "download_threshold": "inf"
    }))?;
    let federation = Federation { agents: 100, horizon: 1_000_000, seed: Seed(0) };
    let mut machine = algorithm.agent(AgentId(1_000_000), Shape::shared(DIMENSION), &federation)?;
    let offers = offers()?;
    let mut shortest = [f64::INFINITY; 3];
    for _ in 0..5 {
        let began = Instant::now();
        for round in 0..MANY {
            let offer = &offers[round % offers.len()];
            let choice = machine.choose(UserId(0), offer)?;
            machine.learn(UserId(0), offer.row(choice.arm), (round % 3) as f64)?;
        }
        shortest[0] = shortest[0].min(began.elapsed().as_secs_f64());
        let began = Instant::now();
        for round in 0..MANY {
            let chosen = agent.choose(UserId(0), &offers[round % offers.len()])?;
            agent.reward(chosen.id, (round % 3) as f64)?;
        }
        shortest[1] = shortest[1].min(began.elapsed().as_secs_f64());
        let began = Instant::now();
        for first in (0..MANY).step_by(BATCH) {
            let batch = agent.batch();
            for round in first..first + BATCH {
                let chosen = batch.choose(UserId(0), &offers[round % offers.len()])?;
                batch.reward(chosen.id, (round % 3) as f64)?;
            }
            batch.end();
        }
        shortest[2] = shortest[2].min(began.elapsed().as_secs_f64());
    }
    agent.abort().await;
    let [core, library, batches] = shortest.map(|seconds| MANY as f64 / seconds);
    Ok(Choices { core, library, batches })
}

/// An agent with a state, as a process that applications ask over HTTP.
fn sidecar(url: &str, data: &Path) -> anyhow::Result<Process> {
    let state = data.join("sidecar");
    let state = state.to_string_lossy();
    let arguments =
        ["agent", "--agent", "1000001", "--coordinator", url, "--state", &state, "--listen", "127.0.0.1:0"];
    Process::start(&arguments)
}

/// Interactions in a second through a sidecar, over so many connections with `each` interactions, one after the other.
async fn over_http(sidecar: &Process, connections: usize, each: usize) -> anyhow::Result<f64> {
    let address = sidecar.url.split("//").nth(1).context("no address")?;
    let rows = |offer: &Arms| (0..offer.len()).map(|arm| offer.row(arm).to_vec()).collect::<Vec<_>>();
    let body = |offer: &Arms| serde_json::json!({ "arms": rows(offer) }).to_string();
    let bodies = offers()?.iter().map(body).collect::<Vec<_>>();
    Ok(choose_over_http(address, &bodies, connections, each).await?)
}
