//! `posse relay` as an operator meets it: checked, started, killed, ended.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use posse_core::Seed;
use serde_json::Value;

use crate::support::{Process, agent, coordinator, directory, free_port, interact, posse, request};

/// A relay's file, beside that of its parent. `PARENT` and `PORT` are ports.
const RELAY: &str = r#"
listen = "127.0.0.1:PORT"
admin = "127.0.0.1:0"
data = "relay"
authentication = "none"
[[federation]]
name = "shop"
dimension = 3
resend_after = "100ms"
[federation.algorithm]
name = "async-lin-ucb"
threshold = 1.0
[federation.parent]
coordinator = "http://127.0.0.1:PARENT"
agent = 7
"#;

fn write_relay(directory: &Path, parent: u16, port: u16) -> String {
    let text = RELAY.replace("PARENT", &parent.to_string()).replace("PORT", &port.to_string());
    std::fs::write(directory.join("relay.toml"), &text).unwrap();
    text
}

fn relay(directory: &Path) -> Process {
    Process::start(directory, posse().args(["relay", "--config", "relay.toml"]))
}

/// The address of health and metrics, which is the second line that a process prints.
fn admin(process: &mut Process) -> String {
    let mut line = String::new();
    process.output.read_line(&mut line).unwrap();
    line.trim().split("//").nth(1).unwrap().split('/').next().unwrap().to_owned()
}

/// How many observations a coordinator or a relay holds, by its metrics.
fn observations(admin: &str) -> Option<f64> {
    let mut stream = request(admin, "GET", "/metrics", &Value::Null)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let line = text.lines().find(|line| line.starts_with("posse_observations{"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn what_an_agent_of_a_relay_learns_reaches_the_root_though_the_relay_is_killed() {
    let (above, below) = (free_port(), free_port());
    let directory = directory(above);
    let mut root = coordinator(directory.path());
    let at_root = admin(&mut root);
    write_relay(directory.path(), above, below);
    let between = relay(directory.path());
    assert_eq!(between.url, format!("http://127.0.0.1:{below}"));
    let agent = agent(directory.path(), below, 0);
    let mut random = Seed(6).stream("relay", 0, 0);
    let learned: u64 = (0..60).map(|_| interact(&agent, &mut random)).sum();
    between.kill();
    let more: u64 = (0..60).map(|_| interact(&agent, &mut random)).sum();
    let between = relay(directory.path());
    // Every observation exceeds the thresholds of agent and relay, so that nothing stays below.
    let total = (learned + more) as f64;
    while observations(&at_root).unwrap_or(0.0) < total {
        std::thread::yield_now();
    }
    assert_eq!(observations(&at_root), Some(total), "nothing counts twice");
    assert_eq!(agent.terminate(), Some(0));
    assert_eq!(between.terminate(), Some(0));
    assert_eq!(root.terminate(), Some(0));
}

#[test]
fn a_check_refuses_what_cannot_be_a_relay_and_says_where() {
    let (above, below) = (free_port(), free_port());
    let directory = directory(above);
    let sound = write_relay(directory.path(), above, below);
    let path = directory.path().join("relay.toml");
    let check = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let arguments = ["relay", "--config", "relay.toml", "--check"];
        let output = posse().args(arguments).current_dir(directory.path()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = check(&sound);
    assert!(code == Some(0) && said.contains("shop, a relay of http://127.0.0.1"), "{said}");
    let good = format!("http://127.0.0.1:{above}");
    let own = format!("http://localhost:{below}");
    let wrong = [
        ("root.example:7447", "it must look like"),
        ("http://root.example:70000", "its port must be between 1 and 65535"),
        ("http://root.example:7447/shop", "it must end with the port"),
        (&own, "a relay cannot be its own parent"),
    ];
    for (address, why) in wrong {
        let (code, said) = check(&sound.replace(&good, address));
        assert!(code == Some(2) && said.contains(why) && said.contains("relay.toml:14:15"), "{said}");
    }
    let (code, said) = check(&sound.replace("agent = 7", "depth = 1"));
    assert!(code == Some(2) && said.contains("a relay needs a token_file"), "{said}");
    let (code, said) = check(&sound.replace("agent = 7", "agent = 7\ndepth = 1"));
    assert!(code == Some(2) && said.contains("set `levels` too"), "{said}");
    let deep = sound.replace("dimension = 3", "dimension = 3\nlevels = 3");
    let (code, said) = check(&deep.replace("agent = 7", "agent = 7\ndepth = 3"));
    assert!(code == Some(2) && said.contains("below `levels`"), "{said}");
    assert_eq!(check(&deep).0, Some(0));
    let (code, said) = check(&sound.replace("agent = 7", "token_file = \"missing.token\""));
    assert!(code == Some(2) && said.contains("missing.token"), "{said}");
    let (code, said) = check(
        &sound.replace("agent = 7", "token_file = \"relay.token\"").replace(&good, "http://root.example"),
    );
    assert!(code == Some(2) && said.contains("unencrypted"), "{said}");
    let asking = sound.replace("\"async-lin-ucb\"", "\"exchange-lin-ucb\"").replace("threshold = 1.0\n", "");
    let (code, said) = check(&asking);
    assert!(code == Some(2) && said.contains("only the root knows"), "{said}");
    let (code, said) = check(sound.split("[federation.parent]").next().unwrap());
    assert!(code == Some(2) && said.contains("or run it by `posse serve`"), "{said}");
}

#[test]
fn a_relay_whose_parent_is_not_there_waits_and_ends_when_it_is_told_to() {
    let (above, below) = (free_port(), free_port());
    let directory = directory(above);
    write_relay(directory.path(), above, below);
    let mut relay = posse();
    relay.args(["relay", "--config", "relay.toml"]).current_dir(directory.path());
    let mut child = relay.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("cannot be reached")));
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
