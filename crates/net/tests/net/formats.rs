//! Files of earlier versions are read, and those of later ones are refused by name.
//!
//! `fixtures/format-1` and `format-2` hold what a coordinator and an agent of these formats left: a log with a saved state and
//! entries after it, and a state with a journal. Its agent had made 30 observations. In format 2, another agent's part was
//! retracted before that.

use std::path::{Path, PathBuf};

use posse_net::log::{FileLog, LogError, read, verify};
use posse_net::{Agent, AgentConfig};

use crate::silence::copy;
use crate::support::{config, coordinator, in_a_minute, interact, look, talkative, unsent};

fn fixture(format: u32, name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(format!("format-{format}")).join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_states_and_journals_of_format_1_are_read_and_go_on() {
    are_read_and_go_on(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_states_and_journals_of_format_2_are_read_and_go_on() {
    are_read_and_go_on(2).await;
}

async fn are_read_and_go_on(format: u32) {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("federations/test");
    copy(&fixture(format, "log"), &log);
    copy(&fixture(format, "agent"), &data.path().join("agent"));
    let before = read(&log).unwrap();
    assert!(before.state.is_some() && !before.entries.is_empty(), "the fixture has both kinds of files");
    let running = coordinator(data.path(), talkative()).await;
    let held = look(&running).await;
    let state = Some(data.path().join("agent"));
    let agent = Agent::start(AgentConfig { state, ..config(running.address, 1) }).await.unwrap();
    in_a_minute(agent.settled()).await;
    assert_eq!(agent.status().life, 1, "its life goes on");
    assert_eq!(held.observations + unsent(&agent), TOTAL);
    for step in 100..130 {
        interact(&agent, step);
        in_a_minute(agent.settled()).await;
    }
    assert_eq!(look(&running).await.observations + unsent(&agent), TOTAL + 30);
    agent.close().await.unwrap();
    running.abort().await;
    // What was added is in a file of its own, and both are sound together.
    let after = read(&log).unwrap();
    assert_eq!(after.segments.iter().map(|own| own.version).collect::<Vec<_>>(), [format, 3]);
    assert_eq!(after.entries[..before.entries.len()], before.entries[..]);
    verify::<LogError>(&log, |_, _| Ok(())).unwrap();
}

/// Observations that the agent of the fixture had made.
const TOTAL: u64 = 30;

/// Makes files of a later version of what is in a directory.
fn from_the_future(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.extension().and_then(|own| own.to_str()).unwrap_or_default().to_owned();
        if kind == "log" || kind == "snap" {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[8..12].copy_from_slice(&99_u32.to_le_bytes());
            if kind == "log" {
                let crc = crc32c::crc32c(&bytes[..20]);
                bytes[20..24].copy_from_slice(&crc.to_le_bytes());
            }
            std::fs::write(path, bytes).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_later_version_are_refused_by_name_and_left_as_they_are() {
    let data = tempfile::tempdir().unwrap();
    for name in ["log", "agent"] {
        let place = data.path().join(name);
        copy(&fixture(2, name), &place);
        from_the_future(&place);
        let sizes = || {
            let files = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap());
            let mut sizes: Vec<_> =
                files.map(|file| (file.file_name(), file.metadata().unwrap().len())).collect();
            sizes.sort();
            sizes.retain(|(name, _)| name != "lock");
            sizes
        };
        let before = sizes();
        let refused = match name {
            "log" => FileLog::open(&place).unwrap_err().to_string(),
            _ => {
                let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
                let config = AgentConfig { state: Some(place.clone()), ..config(nowhere, 1) };
                Agent::start(config).await.unwrap_err().to_string()
            }
        };
        assert!(
            refused.contains("is of format 99") && refused.contains("written by a newer one"),
            "{refused}"
        );
        assert_eq!(sizes(), before, "nothing was cut or added");
    }
}
