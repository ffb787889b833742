//! Real processes, really killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use posse_core::Seed;
use posse_net::agent::Carriage;
use posse_net::{Agent, AgentConfig, Clock};
use serde_json::{Value, json};

const FEDERATION: &str = r#"
listen = "127.0.0.1:PORT"
admin = "127.0.0.1:0"
data = "data"
authentication = "none"
[[federation]]
name = "shop"
dimension = 3
resend_after = 100
[federation.algorithm]
name = "async-lin-ucb"
threshold = 1.1
"#;

/// A process that is killed when it is forgotten.
struct Process {
    child: Child,
    /// The address that it printed.
    url: String,
    output: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(directory: &Path, program: &mut Command) -> Self {
        program.current_dir(directory).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = program.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut url = String::new();
        output.read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned(), output }
    }

    fn address(&self) -> &str {
        self.url.split("//").nth(1).unwrap_or_else(|| panic!("{:?} is no address", self.url))
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and how it ended.
    fn terminate(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn posse() -> Command {
    Command::new(env!("CARGO_BIN_EXE_posse"))
}

/// A port that was free a moment ago, so that a coordinator can come back to it.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn directory(port: u16) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let text = FEDERATION.replace("PORT", &port.to_string());
    std::fs::write(directory.path().join("federation.toml"), text).unwrap();
    directory
}

fn coordinator(directory: &Path) -> Process {
    Process::start(directory, posse().args(["serve", "--config", "federation.toml"]))
}

fn agent(directory: &Path, port: u16, number: usize) -> Process {
    let (number, url) = (number.to_string(), format!("http://127.0.0.1:{port}"));
    let state = format!("agent-{number}");
    let arguments =
        ["agent", "--agent", &number, "--coordinator", &url, "--state", &state, "--listen", "127.0.0.1:0"];
    Process::start(directory, posse().args(arguments))
}

fn call(address: &str, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let body = answer.split_once("\r\n\r\n")?.1;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// An interaction through the sidecar. Counts if the agent said that it learned.
fn interact(agent: &Process, stream: &mut posse_core::Stream) -> u64 {
    let mut arm = || (0..3).map(|_| stream.uniform() - 0.5).collect::<Vec<f64>>();
    let arms = [arm(), arm(), arm()];
    let Some((200, chosen)) = call(agent.address(), "POST", "/choose", &json!({ "arms": arms })) else {
        return 0;
    };
    let reward = arms[chosen["arm"].as_u64().unwrap() as usize].iter().sum::<f64>();
    let answer = call(agent.address(), "POST", "/reward", &json!({ "id": chosen["id"], "reward": reward }));
    u64::from(matches!(answer, Some((200, _))))
}

/// What an agent has and has not sent, and what is on its way: its state says.
async fn unsent(directory: &Path, port: u16, number: usize) -> (u64, u64) {
    let config = AgentConfig {
        coordinator: format!("http://127.0.0.1:{port}"),
        agent: Some(number as u64),
        state: Some(directory.join(format!("agent-{number}"))),
        carriage: Carriage::ByHand,
        ..AgentConfig::default()
    };
    let agent = Agent::start(config, Clock::system()).await.unwrap();
    let counts = agent.inspect(|machine| {
        let view = machine.inspect();
        (view.buffer.count() + view.withheld, view.in_flight.map_or(0, |(_, evidence)| evidence.count()))
    });
    agent.abort().await;
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_processes_are_killed() {
    let port = free_port();
    let directory = directory(port);
    let here = directory.path();
    let mut coordinator_process = Some(coordinator(here));
    let mut agents: Vec<Option<Process>> = (0..3).map(|number| Some(agent(here, port, number))).collect();
    let mut random = Seed(1).stream("kill", 0, 0);
    let mut learned = 0;
    for _ in 0..15 {
        for _ in 0..8 {
            let number = random.below(3) as usize;
            learned += interact(agents[number].as_ref().unwrap(), &mut random);
        }
        match random.below(3) {
            0 => {
                coordinator_process.take().unwrap().kill();
                coordinator_process = Some(coordinator(here));
            }
            1 => {
                let number = random.below(3) as usize;
                agents[number].take().unwrap().kill();
                agents[number] = Some(agent(here, port, number));
            }
            _ => {}
        }
    }
    assert_eq!(learned, 120, "every interaction was answered");
    // Everybody is killed; then each agent tells the rest of what it knows, one after the other.
    agents.into_iter().flatten().for_each(Process::kill);
    for number in 0..3 {
        let config = AgentConfig {
            coordinator: format!("http://127.0.0.1:{port}"),
            agent: Some(number),
            state: Some(here.join(format!("agent-{number}"))),
            ..AgentConfig::default()
        };
        let agent = Agent::start(config, Clock::system()).await.unwrap();
        agent.settled().await;
        agent.close().await.unwrap();
    }
    assert_eq!(coordinator_process.take().unwrap().terminate(), Some(0));
    let output =
        posse().args(["log", "replay", "data/federations/shop", "--json"]).current_dir(here).output();
    let replayed: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let inspect = posse()
        .args(["log", "inspect", "data/federations/shop", "--entries", "3"])
        .current_dir(here)
        .output();
    assert_eq!(inspect.unwrap().status.code(), Some(0));
    let mut held = replayed["observations"].as_u64().unwrap();
    assert!(held > 30, "{replayed}");
    for number in 0..3 {
        let (buffer, in_flight) = unsent(here, port, number).await;
        assert_eq!(in_flight, 0);
        held += buffer;
    }
    assert_eq!(held, learned);
}

#[test]
fn a_full_disk_stops_nothing_but_sharing_until_there_is_room() {
    let port = free_port();
    let directory = directory(port);
    // Files may not grow beyond 24 blocks of 512 bytes; the signal for it is ignored, so writing fails.
    let binary = env!("CARGO_BIN_EXE_posse");
    let script = format!("trap '' XFSZ; ulimit -f 24; exec '{binary}' serve --config federation.toml");
    let mut small = Process::start(directory.path(), Command::new("sh").args(["-c", &script]));
    let mut admin = String::new();
    small.output.read_line(&mut admin).unwrap();
    let admin = admin.trim().split("//").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let agent = agent(directory.path(), port, 0);
    let mut random = Seed(2).stream("full", 0, 0);
    let mut learned = 0;
    let why = loop {
        learned += interact(&agent, &mut random);
        let (status, health) = call(&admin, "GET", "/healthz", &Value::Null).unwrap();
        if status == 503 {
            break health["federations"][0]["why"].as_str().unwrap().to_owned();
        }
        assert!(learned < 20_000, "the disk is never full");
    };
    assert!(why.contains(".log"), "{why}");
    learned += interact(&agent, &mut random);
    small.kill();
    // With room again, everything goes on.
    let roomy = coordinator(directory.path());
    let connected =
        || call(agent.address(), "GET", "/healthz", &Value::Null).unwrap().1["connected"] == json!(true);
    while !connected() {
        std::thread::yield_now();
    }
    assert_eq!(agent.terminate(), Some(0));
    assert_eq!(roomy.terminate(), Some(0));
    let verify =
        posse().args(["log", "verify", "data/federations/shop"]).current_dir(directory.path()).output();
    assert_eq!(verify.unwrap().status.code(), Some(0));
    assert!(learned > 0);
}

#[test]
fn a_damaged_log_is_refused_with_its_place_and_verify_says_the_same() {
    let port = free_port();
    let directory = directory(port);
    let running = coordinator(directory.path());
    let agent = agent(directory.path(), port, 0);
    let mut random = Seed(4).stream("damage", 0, 0);
    let log = directory.path().join("data/federations/shop").join(format!("{:020}.log", 0));
    while std::fs::metadata(&log).map_or(0, |file| file.len()) < 2000 {
        interact(&agent, &mut random);
    }
    agent.kill();
    running.kill();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let verify =
        posse().args(["log", "verify", "data/federations/shop"]).current_dir(directory.path()).output();
    let verify = verify.unwrap();
    assert_eq!(verify.status.code(), Some(1));
    let said = String::from_utf8(verify.stdout).unwrap();
    assert!(said.contains("is damaged at byte"), "{said}");
    let serve = posse()
        .args(["serve", "--config", "federation.toml"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_eq!(serve.status.code(), Some(2));
    assert!(String::from_utf8(serve.stderr).unwrap().contains("is damaged at byte"));
}

#[test]
fn tokens_are_made_listed_and_revoked() {
    let directory = directory(free_port());
    let token = |arguments: &[&str]| {
        let output = posse().arg("token").args(arguments).current_dir(directory.path()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, made, _) = token(&["create", "--agent", "7", "--federation", "shop", "--json"]);
    assert_eq!(code, Some(0));
    let made: Value = serde_json::from_str(&made).unwrap();
    let (id, secret) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let (_, listed, _) = token(&["list"]);
    assert!(listed.contains(id) && listed.contains("valid") && !listed.contains(secret), "{listed}");
    assert_eq!(token(&["revoke", id]).0, Some(0));
    assert!(token(&["list"]).1.contains("revoked"));
    assert_eq!(token(&["revoke", "nobody"]).0, Some(2));
    let (code, _, why) = token(&["create", "--agent", "7", "--federation", "shoe"]);
    assert!(code == Some(2) && why.contains("it has shop"), "{why}");
}

#[test]
fn the_demonstration_ends_well() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["demo", "--seconds", "1", "--interactions", "1600", "--agents", "6", "--out", "d"];
    let output = posse().args(arguments).current_dir(directory.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("nothing was lost or counted twice"), "{said}");
    assert!(said.contains("coordinator killed") && said.contains("agents killed"), "{said}");
    let page = std::fs::read_to_string(directory.path().join("d/index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("federated"));
}

#[test]
fn the_demonstration_refuses_what_it_cannot_show_and_removes_nothing_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let demo = |arguments: &[&str]| {
        let output = posse().arg("demo").args(arguments).current_dir(directory.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (option, value) in
        [("--seconds", "nan"), ("--seconds", "0"), ("--agents", "1"), ("--interactions", "99")]
    {
        let (code, why) = demo(&[option, value]);
        assert!(
            code == Some(2) && why.contains(option) && why.contains("between"),
            "{option} {value}: {why}"
        );
    }
    let precious = directory.path().join("data/precious");
    std::fs::create_dir(directory.path().join("data")).unwrap();
    std::fs::write(&precious, "mine").unwrap();
    let (code, why) = demo(&["--out", "."]);
    assert!(code == Some(2) && why.contains("choose another --out"), "{why}");
    assert!(precious.exists());
}
