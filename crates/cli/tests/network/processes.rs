//! The command as an operator meets it: full disks, damaged logs, tokens, the demonstration.

use std::io::BufRead;
use std::process::Command;

use posse_core::Seed;
use serde_json::{Value, json};

use crate::support::{Process, agent, call, coordinator, directory, free_port, interact, posse};

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
fn a_log_that_lacks_its_end_is_not_sound_and_a_directory_without_one_is_no_log() {
    let port = free_port();
    let directory = directory(port);
    let running = coordinator(directory.path());
    let agent = agent(directory.path(), port, 0);
    let mut random = Seed(5).stream("damage", 0, 0);
    let log = directory.path().join("data/federations/shop").join(format!("{:020}.log", 0));
    while std::fs::metadata(&log).map_or(0, |file| file.len()) < 2000 {
        interact(&agent, &mut random);
    }
    agent.kill();
    running.kill();
    let look = |action: &str, place: &str, more: &[&str]| {
        let command = posse().args(["log", action, place]).args(more).current_dir(directory.path()).output();
        let output = command.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let shop = "data/federations/shop";
    assert_eq!(look("verify", shop, &[]).0, Some(0));
    let (code, said) = look("replay", shop, &["--until", "100000"]);
    assert!(code == Some(2) && said.contains("--until must be at most"), "{said}");
    std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(1000).unwrap();
    let (code, said) = look("verify", shop, &[]);
    assert!(code == Some(1) && said.contains("were durable and are gone"), "{said}");
    for action in ["inspect", "verify", "replay"] {
        let (code, said) = look(action, "data", &[]);
        assert!(code == Some(2) && said.contains("holds no log"), "{said}");
    }
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
    let audit = std::fs::read_to_string(directory.path().join("data/audit.jsonl")).unwrap();
    let events: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_token: Vec<&Value> = events.iter().filter(|event| event["token"] == id).collect();
    assert!(of_token.len() == 2 && !audit.contains(secret), "{audit}");
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
