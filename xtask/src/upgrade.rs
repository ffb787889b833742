//! An upgrade of a running federation, with a binary of an earlier commit: coordinator first, then agents one by one; and an
//! agent that is upgraded before its coordinator. Every observation must be there once, in the same lives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{cargo, output};

/// How many interactions each agent has at each stage.
const EACH: u64 = 20;
/// How long an agent may take to reach the coordinator.
const PATIENCE: Duration = Duration::from_secs(60);

const FILE: &str = r#"
listen = "127.0.0.1:PORT"
data = "data"
authentication = "none"
[[federation]]
name = "shop"
dimension = 2
[federation.algorithm]
name = "async-lin-ucb"
threshold = 1.000001
"#;

/// `cargo xtask upgrade OLD [NEW]`: paths of two `posse` binaries. Without NEW, the one of this tree is built.
pub(crate) fn command(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (old, new) = match arguments {
        [old] => {
            cargo(root, &["build", "--locked", "--package", "posse-cli"])?;
            (PathBuf::from(old), root.join("target/debug/posse"))
        }
        [old, new] => (PathBuf::from(old), PathBuf::from(new)),
        _ => return Err("cargo xtask upgrade OLD [NEW]: paths of two posse binaries".into()),
    };
    let absolute = |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    let (old, new) = (absolute(&old)?, absolute(&new)?);
    let place = root.join("target/xtask/upgrade");
    let _ = std::fs::remove_dir_all(&place);
    coordinator_first(&place.join("coordinator-first"), &old, &new)?;
    agent_first(&place.join("agent-first"), &old, &new)?;
    println!("upgraded without a loss: coordinator first, and agent first");
    Ok(())
}

fn coordinator_first(place: &Path, old: &Path, new: &Path) -> Result<(), String> {
    let federation = Federation::new(place)?;
    let coordinator = federation.coordinator(old)?;
    let first = federation.agent(old, 1)?;
    let second = federation.agent(old, 2)?;
    first.interact()?;
    second.interact()?;
    coordinator.end()?;
    println!("the coordinator is upgraded; its agents are not");
    let coordinator = federation.coordinator(new)?;
    first.interact()?;
    second.interact()?;
    first.end()?;
    println!("the first agent is upgraded; the second is not");
    let first = federation.agent(new, 1)?;
    first.interact()?;
    second.interact()?;
    second.end()?;
    let second = federation.agent(new, 2)?;
    second.interact()?;
    federation.will_hold(new, 7 * EACH, 2)?;
    first.end()?;
    second.end()?;
    coordinator.end()?;
    federation.holds(new, 7 * EACH, 2)
}

fn agent_first(place: &Path, old: &Path, new: &Path) -> Result<(), String> {
    let federation = Federation::new(place)?;
    let coordinator = federation.coordinator(old)?;
    let agent = federation.agent(old, 1)?;
    agent.interact()?;
    agent.end()?;
    println!("the agent is upgraded; its coordinator is not");
    let agent = federation.agent(new, 1)?;
    agent.interact()?;
    coordinator.end()?;
    let coordinator = federation.coordinator(new)?;
    agent.interact()?;
    federation.will_hold(new, 3 * EACH, 1)?;
    agent.end()?;
    coordinator.end()?;
    federation.holds(new, 3 * EACH, 1)
}

struct Federation {
    place: PathBuf,
    port: u16,
}

/// A process and the address that it printed.
struct Process {
    child: Child,
    address: String,
}

impl Federation {
    fn new(place: &Path) -> Result<Self, String> {
        let error = |error: std::io::Error| format!("{}: {error}", place.display());
        std::fs::create_dir_all(place).map_err(error)?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(error)?;
        let port = listener.local_addr().map_err(error)?.port();
        std::fs::write(place.join("federation.toml"), FILE.replace("PORT", &port.to_string()))
            .map_err(error)?;
        Ok(Self { place: place.into(), port })
    }

    fn coordinator(&self, posse: &Path) -> Result<Process, String> {
        self.start(posse, &["serve", "--config", "federation.toml"])
    }

    fn agent(&self, posse: &Path, number: u64) -> Result<Process, String> {
        let (number, url) = (number.to_string(), format!("http://127.0.0.1:{}", self.port));
        let state = format!("agent-{number}");
        let options = ["--coordinator", &url, "--state", &state, "--listen", "127.0.0.1:0"];
        self.start(posse, &[&["agent", "--agent", &number], &options[..]].concat())
    }

    fn start(&self, posse: &Path, arguments: &[&str]) -> Result<Process, String> {
        let mut command = Command::new(posse);
        command.args(arguments).current_dir(&self.place).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", posse.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("it has no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        match line.trim().split_once("//") {
            Some((_, address)) => Ok(Process { child, address: address.to_owned() }),
            None => Err(format!("{} {} did not start", posse.display(), arguments.join(" "))),
        }
    }

    /// Waits until the log of a running coordinator holds so much: uploads are on their way for a moment.
    fn will_hold(&self, posse: &Path, observations: u64, agents: u64) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.holds(posse, observations, agents) {
                Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(100)),
                held => return held,
            }
        }
    }

    /// The log is sound, and its coordinator holds so many observations of so many agents, each in its first life.
    fn holds(&self, posse: &Path, observations: u64, agents: u64) -> Result<(), String> {
        let log = |action: &str| {
            output(
                Command::new(posse).args(["log", action, "data/federations/shop"]).current_dir(&self.place),
            )
        };
        log("verify")?;
        let said = log("replay")?;
        let has = |count: u64, what: &str| said.lines().any(|line| line.trim() == format!("{what}: {count}"));
        if has(observations, "observations") && has(agents, "agents") {
            return Ok(());
        }
        Err(format!(
            "{observations} observations of {agents} agents were expected, and the log says:\n{said}"
        ))
    }
}

impl Process {
    /// So many interactions, and until the coordinator has all of them.
    fn interact(&self) -> Result<(), String> {
        for step in 0..EACH {
            let arm = step as f64 / EACH as f64;
            let chosen = self.ask("POST", "/choose", &format!("{{\"arms\": [[1, {arm}]]}}"))?;
            let id = value(&chosen, "id").ok_or_else(|| format!("no choice in {chosen}"))?.to_owned();
            self.ask("POST", "/reward", &format!("{{\"id\": {id}, \"reward\": 1}}"))?;
        }
        let began = Instant::now();
        loop {
            let health = self.ask("GET", "/healthz", "")?;
            let is_first_life = value(&health, "life") == Some("1");
            if value(&health, "connected") == Some("true") && is_first_life {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("the agent is not heard, or in another life: {health}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let error = |error: std::io::Error| format!("{path}: {error}");
        let mut stream = TcpStream::connect(&self.address).map_err(error)?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).map_err(error)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(error)?;
        if answer.starts_with("HTTP/1.1 200") { Ok(answer) } else { Err(format!("{path}: {answer}")) }
    }

    /// SIGTERM, and everything was saved.
    fn end(mut self) -> Result<(), String> {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        let ended = told.and_then(|_| self.child.wait()).map_err(|error| error.to_string())?;
        if ended.success() { Ok(()) } else { Err(format!("a process ended with {ended}")) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of a key in a JSON document without spaces, as it is written.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("\"{key}\":"))?;
    rest.split([',', '}']).next()
}
