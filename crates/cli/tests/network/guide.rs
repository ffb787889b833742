//! The operator's guide, followed word for word: every command on the page is run in its order.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Process, call, free_port, posse};

const GUIDE: &str = "../../docs/guides/run-a-federation.md";
/// The id in the guide's examples.
const SOME_TOKEN: &str = "3f9a01c2";

/// The lines of all blocks marked `sh`, in order.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page.split("\n```sh\n").skip(1);
    blocks.flat_map(|block| block.split("\n```").next().unwrap().lines()).collect()
}

/// Someone who follows the guide.
struct Operator<'a> {
    home: &'a Path,
    /// Ports of the guide, and free ones in their place.
    ports: [(&'static str, String); 3],
    coordinator: Option<(Process, String)>,
    agent: Option<Process>,
    token: Option<String>,
}

impl Operator<'_> {
    fn translate(&self, text: &str) -> String {
        let text = self.ports.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        match &self.token {
            Some(token) => text.replace(SOME_TOKEN, token),
            None => text,
        }
    }

    fn shell(line: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_posse"));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", format!("{}:{path}", binary.parent().unwrap().display()));
        command
    }

    fn start(&self, line: &str) -> Process {
        Process::start(self.home, &mut Self::shell(&format!("exec {line}")))
    }

    fn health(&self) -> (u16, Value) {
        let agent = self.agent.as_ref().expect("the guide has started it");
        call(agent.address(), "GET", "/healthz", &Value::Null).expect("it listens")
    }

    fn wait_until(&self, happened: impl Fn(u16, &Value) -> bool) {
        loop {
            let (status, health) = self.health();
            if happened(status, &health) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Does what a line says and returns what was printed.
    fn follow(&mut self, line: &str) -> String {
        let line = &*self.translate(line);
        if line.starts_with("posse serve") && !line.contains("--check") || line == "systemctl start posse" {
            let line = self.coordinator.take().map_or_else(|| line.to_owned(), |(_, line)| line);
            let process = self.start(&line);
            let url = process.url.clone();
            self.coordinator = Some((process, line));
            return url;
        }
        if line == "systemctl stop posse" {
            let (process, line) = self.coordinator.take().expect("it runs");
            assert_eq!(process.terminate(), Some(0));
            // What is started next is the same.
            let stopped = self.start("true");
            self.coordinator = Some((stopped, line));
            return String::new();
        }
        if line.starts_with("posse agent ") {
            self.agent = Some(self.start(line));
            self.wait_until(|_, health| health["connected"] == json!(true));
            return String::new();
        }
        if line.ends_with("/new-life") {
            self.wait_until(|status, _| status == 503);
        }
        let output = Self::shell(line).current_dir(self.home).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}\n{said}\n{why}");
        if line.ends_with("/new-life") {
            self.wait_until(|status, health| status == 200 && health["connected"] == json!(true));
        }
        if line.starts_with("posse init") {
            let file = self.home.join("shop/federation.toml");
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(file, self.translate(&text)).unwrap();
        }
        if line.starts_with("posse token create") {
            self.token = said.split(' ').next().map(str::to_owned);
        }
        said
    }
}

#[test]
fn the_operators_guide_works_word_for_word() {
    if Command::new("curl").arg("--version").output().is_err() {
        return posse_testing::skip("the operator's guide is not followed: there is no curl");
    }
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(GUIDE)).unwrap();
    let home = tempfile::tempdir().unwrap();
    let ports = ["7447", "7448", "9447"].map(|port| (port, free_port().to_string()));
    let mut operator = Operator { home: home.path(), ports, coordinator: None, agent: None, token: None };
    let mut said = Vec::new();
    for line in commands(&page) {
        said.push((line, operator.follow(line)));
    }
    let answer = |words: &str| {
        let found = said.iter().rev().find(|(line, _)| line.contains(words));
        found.unwrap_or_else(|| panic!("the guide has no {words}")).1.as_str()
    };
    let chosen: Value = serde_json::from_str(answer("/choose")).unwrap();
    assert_eq!(chosen["id"], "1-1");
    assert!(!answer("/reward").contains("error"), "{}", answer("/reward"));
    assert!(answer("--check").contains("is in order: shop"));
    assert!(answer("/healthz").contains("\"healthy\":true"));
    assert!(answer("agents show 1").contains("state: connected"), "{}", answer("agents show 1"));
    assert!(answer("agents retract 1").contains("0 observations of 1 are left, in epoch 1"));
    assert!(answer("token revoke").contains("is revoked"));
    assert!(answer("posse restore").contains("shop: "));
    // After the restore the agent is known again, by its third life.
    let listed = answer("agents list");
    assert!(listed.lines().any(|line| line.trim_start().starts_with("1      3")), "{listed}");
    let mode = |name: &str| std::fs::metadata(home.path().join(name)).unwrap().permissions().mode() & 0o777;
    for name in ["shop/ca.key", "shop/coordinator.key", "shop/agents/1/token", "shop/data/tokens.json"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

#[test]
fn init_writes_a_federation_for_other_machines_with_certificates_bound_to_agents_or_nothing() {
    let home = tempfile::tempdir().unwrap();
    let init = |arguments: &[&str]| {
        let output = posse().arg("init").args(arguments).current_dir(home.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, why) = init(&["far", "--dimension", "5", "--algorithm", "async-lin-ucbb"]);
    assert!(code == Some(2) && why.contains("async-lin-ucb"), "{why}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left of it");
    let whole = ["far", "--dimension", "5", "--agents", "2", "--host", "localhost", "--client-certificates"];
    assert_eq!(init(&whole), (Some(0), String::new()));
    let (code, why) = init(&whole);
    assert!(code == Some(2) && why.contains("is there already"), "{why}");
    let unit = std::fs::read_to_string(home.path().join("far/posse.service")).unwrap();
    let config = home.path().canonicalize().unwrap().join("far/federation.toml");
    assert!(unit.contains(&format!("--config \"{}\"", config.display())), "{unit}");

    let file = home.path().join("far/federation.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("listen = \"0.0.0.0:7447\""), "{text}");
    std::fs::write(&file, text.replace("0.0.0.0:7447", "127.0.0.1:0").replace("9447", "0")).unwrap();
    let running = Process::start(home.path(), posse().args(["serve", "--config", "far/federation.toml"]));
    let port = running.address().rsplit(':').next().unwrap();
    let agent = |number: &str, certificate: &str| {
        let own = |name: &str| format!("far/agents/{number}/{name}");
        let shown = |name: &str| format!("far/agents/{certificate}/{name}");
        let mut command = posse();
        command.args([
            "agent",
            "--coordinator",
            &format!("https://localhost:{port}"),
            "--listen",
            "127.0.0.1:0",
        ]);
        command.args(["--ca", &own("ca.pem"), "--token-file", &own("token")]);
        command.args(["--certificate", &shown("certificate.pem"), "--key", &shown("certificate.key")]);
        command
    };
    let first = Process::start(home.path(), &mut agent("1", "1"));
    assert!(first.url.starts_with("http://127.0.0.1:"), "{}", first.url);
    // With the certificate of another agent it is refused.
    let refused = agent("2", "1").current_dir(home.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}
