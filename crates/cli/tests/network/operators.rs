//! What operators do to a coordinator, and what their machines do: signals, checks before a start, too few open files.

use std::io::{BufRead, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use posse_core::Seed;
use serde_json::{Value, json};

use crate::support::{Process, agent, call, coordinator, directory, free_port, interact, posse, request};

fn signal(process: &Process, name: &str) {
    let pid = process.child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// The address of the admin port, which is printed second.
fn admin(process: &mut Process) -> String {
    let mut line = String::new();
    process.output.read_line(&mut line).unwrap();
    line.trim().split("//").nth(1).unwrap().split('/').next().unwrap().to_owned()
}

fn metrics(admin: &str) -> String {
    let mut text = String::new();
    request(admin, "GET", "/metrics", &Value::Null).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn add_to_file(directory: &Path, lines: &str) {
    let path = directory.join("federation.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}{lines}")).unwrap();
}

#[test]
fn a_hangup_reads_the_limits_again_and_ends_nothing() {
    let directory = directory(free_port());
    let mut running = coordinator(directory.path());
    // From the first line on it does not end the process.
    signal(&running, "-HUP");
    let admin = admin(&mut running);
    let _first = TcpStream::connect(running.address()).unwrap();
    add_to_file(directory.path(), "[limits]\nconnections = 1\n");
    signal(&running, "-HUP");
    // The connection that comes second is closed at once, as soon as the file was read.
    while !metrics(&admin).contains("reason=\"crowded\"") {
        drop(TcpStream::connect(running.address()).unwrap());
    }
    assert_eq!(running.terminate(), Some(0));
}

#[test]
fn a_coordinator_that_is_ended_right_after_its_first_line_ends_in_order() {
    let directory = directory(free_port());
    for _ in 0..3 {
        assert_eq!(coordinator(directory.path()).terminate(), Some(0));
    }
    let verify = ["log", "verify", "data/federations/shop"];
    assert_eq!(posse().args(verify).current_dir(directory.path()).output().unwrap().status.code(), Some(0));
}

#[test]
fn a_check_finds_certificates_that_are_missing_and_settings_that_have_changed() {
    let directory = directory(free_port());
    let check = || {
        let arguments = ["serve", "--config", "federation.toml", "--check"];
        let output = posse().args(arguments).current_dir(directory.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(check().0, Some(0));
    let path = directory.path().join("federation.toml");
    let sound = std::fs::read_to_string(&path).unwrap();
    add_to_file(directory.path(), "[tls]\ncertificate = \"missing.pem\"\nkey = \"missing.key\"\n");
    let (code, why) = check();
    assert!(code == Some(2) && why.contains("missing.pem"), "{why}");
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(coordinator(directory.path()).terminate(), Some(0));
    assert_eq!(check().0, Some(0), "a log that fits is in order");
    std::fs::write(&path, sound.replace("threshold = 1.1", "threshold = 1.2")).unwrap();
    let (code, why) = check();
    assert!(code == Some(2) && why.contains("was begun with") && why.contains("1.1"), "{why}");
}

#[test]
fn without_free_descriptors_it_warns_and_takes_connections_again_when_there_are_some() {
    let port = free_port();
    let directory = directory(port);
    let binary = env!("CARGO_BIN_EXE_posse");
    let script = format!("ulimit -n 64; exec '{binary}' serve --config federation.toml 2>warnings");
    let running = Process::start(directory.path(), Command::new("sh").args(["-c", &script]));
    // More than it can have open. They wait in the system's queue.
    let crowd: Vec<TcpStream> = (0..100).filter_map(|_| TcpStream::connect(running.address()).ok()).collect();
    assert!(crowd.len() > 64, "{} connections", crowd.len());
    while !std::fs::read_to_string(directory.path().join("warnings")).unwrap().contains("ulimit -n") {
        std::thread::yield_now();
    }
    drop(crowd);
    let agent = agent(directory.path(), port, 1);
    assert_eq!(interact(&agent, &mut Seed(1).stream("descriptors", 0, 0)), 1);
    while call(agent.address(), "GET", "/healthz", &Value::Null).unwrap().1["connected"] != json!(true) {
        std::thread::yield_now();
    }
    assert_eq!(agent.terminate(), Some(0));
    assert_eq!(running.terminate(), Some(0));
}
