//! Private federations over the network: whose the noise is, and that nothing is released twice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use posse_core::wire::v1;
use posse_core::{Algorithm, AsyncLinUcb, PrivacyConfig};
use posse_net::agent::{Carriage, NoiseOrigin};
use posse_net::coordinator::Running;
use posse_net::federation::FederationConfig;
use posse_net::log::read;
use posse_net::{Agent, AgentConfig};
use prost::Message;

use crate::support::{config, coordinator, federation, interact};

/// Releases after 5, 10, 20 … observations.
pub(crate) fn private() -> FederationConfig {
    let privacy = PrivacyConfig {
        max_releases: 8,
        max_trees: 1,
        first_release: 5,
        release_growth: 2.0,
        ..Default::default()
    };
    federation(Algorithm::AsyncLinUcb(AsyncLinUcb { privacy: Some(privacy), ..Default::default() }))
}

fn by_hand(running: &Running, state: Option<&Path>) -> AgentConfig {
    let state = state.map(Path::to_owned);
    AgentConfig { state, carriage: Carriage::ByHand, ..config(running.address, 1) }
}

async fn start(config: AgentConfig) -> Agent {
    Agent::start(config).await.unwrap()
}

/// Says and hears everything.
async fn carry(agent: &Agent) {
    while agent.exchange().await.unwrap() {}
}

/// Messages that were said and have not been acknowledged.
fn leaving(agent: &Agent) -> Vec<v1::Uplink> {
    v1::EndpointState::decode(&agent.save()[..]).unwrap().queue
}

/// Interacts until there is a release; returns it.
fn release(agent: &Agent, step: &mut u64) -> Vec<v1::Uplink> {
    while leaving(agent).is_empty() {
        interact(agent, *step);
        *step += 1;
    }
    leaving(agent)
}

/// Messages that the coordinator accepted, in order.
fn accepted(data: &Path) -> Vec<v1::Uplink> {
    let contents = read(&data.join("federations").join("test")).unwrap();
    let message = |bytes: &Vec<u8>| match v1::LogEntry::decode(&bytes[..]).unwrap().event {
        Some(v1::log_entry::Event::Accepted(frame)) => frame.message,
        _ => None,
    };
    contents.entries.iter().filter_map(message).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_crashed_before_it_sent_a_release_sends_the_same_bits() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), private()).await;
    let settings = by_hand(&running, Some(state.path()));
    let mut agent = start(settings.clone()).await;
    carry(&agent).await;
    let (mut step, mut all) = (0, Vec::new());
    for _ in 0..3 {
        let released = release(&agent, &mut step);
        // Twice: what is drawn at a start changes nothing that was released before it.
        for _ in 0..2 {
            agent.abort().await;
            agent = start(settings.clone()).await;
            assert_eq!(leaving(&agent), released);
        }
        carry(&agent).await;
        all.extend(released);
        assert_eq!(accepted(data.path()), all, "what was kept is what left");
    }
    let report = agent.inspect(|machine| machine.privacy()).expect("it is private");
    assert_eq!((report.releases, report.trees, report.life), (3, 1, 1));
    assert!(report.uncovered().iter().all(|channel| !channel.contains("earlier lives")));
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_is_the_systems_and_no_seed_repeats_it() {
    let mut releases = Vec::new();
    for noise in [NoiseOrigin::Seed, NoiseOrigin::Seed, NoiseOrigin::System, NoiseOrigin::System] {
        let data = tempfile::tempdir().unwrap();
        let running = coordinator(data.path(), private()).await;
        let agent = start(AgentConfig { noise, ..by_hand(&running, None) }).await;
        carry(&agent).await;
        releases.push(release(&agent, &mut 0));
    }
    assert_eq!(releases[0], releases[1], "the same observations, the same seed");
    assert_ne!(releases[2], releases[3], "the same observations");
    assert!(releases[2] != releases[0] && releases[3] != releases[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_its_state_opens_a_new_tree_and_says_so() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), private()).await;
    let mut releases = Vec::new();
    for life in 1..=2 {
        let agent = start(by_hand(&running, None)).await;
        carry(&agent).await;
        releases.push(release(&agent, &mut 0));
        carry(&agent).await;
        let report = agent.inspect(|machine| machine.privacy()).expect("it is private");
        assert_eq!((report.life, report.trees, report.releases), (life, 1, 1));
        let said = report.uncovered().iter().any(|channel| channel.contains("earlier lives"));
        assert_eq!(said, life == 2);
        agent.abort().await;
    }
    assert_ne!(releases[0], releases[1], "the same node of another tree: other noise over the same sums");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_brought_back_from_a_copy_draws_other_noise() {
    let (data, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), private()).await;
    let (state, copy) = (home.path().join("state"), home.path().join("copy"));
    let agent = start(by_hand(&running, Some(&state))).await;
    carry(&agent).await;
    agent.clone().close().await.unwrap();
    let mode = fs::metadata(&state).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "a state is its owner's alone");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(&state).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let mut releases = Vec::new();
    for directory in [&state, &copy] {
        let agent = start(by_hand(&running, Some(directory))).await;
        releases.push(release(&agent, &mut 0));
        agent.abort().await;
    }
    assert_ne!(releases[0], releases[1], "with the same noise, other observations would be bare");
}
