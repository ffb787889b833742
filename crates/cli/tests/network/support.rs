//! The command as processes: started, asked, killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

const FEDERATION: &str = r#"
listen = "127.0.0.1:PORT"
admin = "127.0.0.1:0"
data = "data"
authentication = "none"
[[federation]]
name = "shop"
dimension = 3
resend_after = "100ms"
[federation.algorithm]
name = "async-lin-ucb"
threshold = 1.1
"#;

/// A process that is killed when it is forgotten.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// The address that it printed.
    pub(crate) url: String,
    pub(crate) output: BufReader<std::process::ChildStdout>,
}

impl Process {
    pub(crate) fn start(directory: &Path, program: &mut Command) -> Self {
        program.current_dir(directory).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = program.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut url = String::new();
        output.read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned(), output }
    }

    pub(crate) fn address(&self) -> &str {
        self.url.split("//").nth(1).unwrap_or_else(|| panic!("{:?} is no address", self.url))
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and how it ended.
    pub(crate) fn terminate(mut self) -> Option<i32> {
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

pub(crate) fn posse() -> Command {
    Command::new(env!("CARGO_BIN_EXE_posse"))
}

/// A port that was free a moment ago, so that a coordinator can come back to it.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn directory(port: u16) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let text = FEDERATION.replace("PORT", &port.to_string());
    std::fs::write(directory.path().join("federation.toml"), text).unwrap();
    directory
}

pub(crate) fn coordinator(directory: &Path) -> Process {
    Process::start(directory, posse().args(["serve", "--config", "federation.toml"]))
}

pub(crate) fn agent(directory: &Path, port: u16, number: usize) -> Process {
    let (number, url) = (number.to_string(), format!("http://127.0.0.1:{port}"));
    let state = format!("agent-{number}");
    let arguments =
        ["agent", "--agent", &number, "--coordinator", &url, "--state", &state, "--listen", "127.0.0.1:0"];
    Process::start(directory, posse().args(arguments))
}

/// Asks, and does not wait for the answer.
pub(crate) fn request(address: &str, method: &str, path: &str, body: &Value) -> Option<TcpStream> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    Some(stream)
}

pub(crate) fn call(address: &str, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let mut stream = request(address, method, path, body)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let body = answer.split_once("\r\n\r\n")?.1;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// Three arms of three features.
pub(crate) fn offer(stream: &mut posse_core::Stream) -> [Vec<f64>; 3] {
    std::array::from_fn(|_| (0..3).map(|_| stream.uniform() - 0.5).collect())
}

/// An interaction through the sidecar. Counts if the agent said that it learned.
pub(crate) fn interact(agent: &Process, stream: &mut posse_core::Stream) -> u64 {
    let arms = offer(stream);
    let Some((200, chosen)) = call(agent.address(), "POST", "/choose", &json!({ "arms": arms })) else {
        return 0;
    };
    let reward = arms[chosen["arm"].as_u64().unwrap() as usize].iter().sum::<f64>();
    let answer = call(agent.address(), "POST", "/reward", &json!({ "id": chosen["id"], "reward": reward }));
    u64::from(matches!(answer, Some((200, _))))
}
