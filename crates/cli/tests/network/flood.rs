//! A coordinator that is flooded by strangers holds its memory, and serves its agents afterwards.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Child;

use posse_core::Seed;
use serde_json::{Value, json};

use crate::support::{Process, call, interact, posse};

const CONNECTIONS: usize = 100;
/// What the guide says that a connection without a token can make the coordinator hold.
const EACH: u64 = 281_000;
const FILE: &str = r#"
listen = "127.0.0.1:0"
data = "data"
[limits]
connections_per_address = 100
patience = "2s"
[[federation]]
name = "shop"
dimension = 3
[federation.algorithm]
name = "async-lin-ucb"
threshold = 1.1
"#;

/// The largest memory that a process has had, in bytes.
fn peak(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call without a token, in HPACK without a table.
fn headers() -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [
        // POST, http
        vec![0x83, 0x86],
        [vec![0x04], text("/posse.v1.Coordinator/Exchange")].concat(),
        [vec![0x01], text("localhost")].concat(),
        [vec![0x00], text("content-type"), text("application/grpc")].concat(),
        [vec![0x00], text("te"), text("trailers")].concat(),
    ]
    .concat()
}

/// Opens a connection and sends as much of calls that never end as the coordinator allows.
fn attack(address: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").ok()?;
    stream.write_all(&frame(4, 0, 0, &[])).ok()?;
    // Its settings, and the window that it gives.
    let mut answer = [0; 64];
    if stream.read(&mut answer).ok()? == 0 {
        return None;
    }
    let body = vec![0; 16_000];
    for call in 0..15 {
        let number = 2 * call + 1;
        stream.write_all(&frame(1, 4, number, &headers())).ok()?;
        stream.write_all(&frame(0, 0, number, &body)).ok()?;
    }
    Some(stream)
}

#[test]
fn a_coordinator_flooded_without_tokens_holds_its_memory_and_serves_its_agents_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("federation.toml"), FILE).unwrap();
    let create = ["token", "create", "--agent", "1", "--federation", "shop", "--out", "token"];
    assert!(posse().args(create).current_dir(directory.path()).output().unwrap().status.success());
    let running = Process::start(directory.path(), posse().args(["serve", "--config", "federation.toml"]));
    let before = peak(&running.child);
    let address: SocketAddr = running.address().parse().unwrap();
    // Twice as many as have a place.
    let attackers: Vec<TcpStream> = (0..2 * CONNECTIONS).filter_map(|_| attack(address)).collect();
    assert!(attackers.len() >= CONNECTIONS / 2, "{} of them got in", attackers.len());
    let bound = CONNECTIONS as u64 * EACH + (8 << 20);
    let grown = peak(&running.child) - before;
    assert!(grown <= bound, "it grew by {grown} bytes, and {bound} are stated");

    // The strangers are still there; their places go to others when patience is over.
    let url = format!("http://{address}");
    let arguments = ["agent", "--coordinator", &url, "--token-file", "token", "--listen", "127.0.0.1:0"];
    let agent = Process::start(directory.path(), posse().args(arguments));
    let mut random = Seed(1).stream("flood", 0, 0);
    assert_eq!(interact(&agent, &mut random), 1);
    while call(agent.address(), "GET", "/healthz", &Value::Null).unwrap().1["connected"] != json!(true) {
        std::thread::yield_now();
    }
    let grown = peak(&running.child) - before;
    assert!(grown <= bound, "it grew by {grown} bytes, and {bound} are stated");
    drop(attackers);
    assert_eq!(agent.terminate(), Some(0));
    assert_eq!(running.terminate(), Some(0));
}
