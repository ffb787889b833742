//! Coordinators that share a database: one leads, the others follow and take over.

use std::net::SocketAddr;
use std::time::Duration;

use posse_core::{Arms, Seed, TimeSpan, UserId};
use posse_net::agent::Carriage;
use posse_net::coordinator::{Options, Running, ServeConfig, serve};
use posse_net::federation::FederationView;
use posse_net::log::{FileLog, Log, Replay, StorageConfig};
use posse_net::{Agent, AgentConfig};

use crate::support::{DIMENSION, Place, federation};

async fn coordinator(place: &Place, process: &str, lease: TimeSpan) -> Running {
    let storage = StorageConfig { lease, ..place.storage() };
    let data = place.directory.path().join(process);
    let federations = vec![federation()];
    let config = ServeConfig { storage, ..ServeConfig::on_loopback(&data, federations) };
    let config = ServeConfig { admin: Some(SocketAddr::from(([127, 0, 0, 1], 0))), ..config };
    serve(config, Options { allow_unreplicated: true, ..Options::default() }).await.unwrap()
}

async fn agent(number: u64, coordinators: &[&Running]) -> Agent {
    let urls: Vec<String> = coordinators.iter().map(|own| format!("http://{}", own.address)).collect();
    Agent::start(AgentConfig {
        coordinator: urls.join(","),
        agent: Some(number),
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(20),
        carriage: Carriage::Link,
        ..AgentConfig::default()
    })
    .await
    .unwrap()
}

fn interact(agent: &Agent, step: u64) {
    let mut stream = Seed(11).stream("arms", agent.id().0, step);
    let mut arms = Arms::new(DIMENSION as usize);
    for _ in 0..3 {
        let features: Vec<f64> = (0..DIMENSION).map(|_| stream.uniform() - 0.5).collect();
        arms.push(&features).unwrap();
    }
    let chosen = agent.choose(UserId(0), &arms).unwrap();
    let reward = arms.row(chosen.arm).iter().sum::<f64>() + 0.1 * stream.normal();
    agent.reward(chosen.id, reward).unwrap();
}

/// Observations that the coordinator or the agent holds, each once; the agent is silent.
async fn held(running: &Running, agent: &Agent) -> u64 {
    let uploads = running.federations[0].agent(agent.id()).await.map_or(0, |standing| standing.uploads);
    look(running).await.observations + unheard(agent, uploads)
}

/// Observations that the agent has and a coordinator that has heard so many uploads of it has not.
fn unheard(agent: &Agent, uploads: u64) -> u64 {
    agent.inspect(|machine| {
        let view = machine.inspect();
        let in_flight = view.in_flight.filter(|(number, _)| *number > uploads);
        view.unsent + view.withheld + in_flight.map_or(0, |(_, count)| count)
    })
}

async fn look(running: &Running) -> FederationView {
    running.federations[0].look().await.expect("it leads")
}

async fn leads(running: &Running) {
    while !running.federations[0].standing().leads {
        tokio::task::yield_now().await;
    }
}

/// What `GET path` on the admin port answers: its status.
async fn status(running: &Running, path: &str) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(running.admin.unwrap()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

const LONG: TimeSpan = TimeSpan::from_secs(3600);
const SHORT: TimeSpan = TimeSpan::from_millis(500);

#[test]
fn the_same_entries_in_files_lead_to_the_same_bits() {
    let Some(place) = Place::single("same_bits") else { return };
    let view = place.runtime.block_on(async {
        let running = coordinator(&place, "one", LONG).await;
        leads(&running).await;
        let agents = [agent(1, &[&running]).await, agent(2, &[&running]).await];
        for step in 0..60 {
            let agent = &agents[step as usize % 2];
            interact(agent, step);
            // One upload after the other: many entries.
            agent.settled().await;
        }
        let view = look(&running).await;
        running.drain().await;
        view
    });
    assert!(view.observations > 20 && view.next_entry > 10, "{view:?}");
    // The state that was saved, and the entries from the beginning, put into files.
    let mut log = place.log("reader");
    let replay: Replay = log.replay().unwrap();
    let entries = log.history().unwrap().expect("nothing was dropped");
    let directory = tempfile::tempdir().unwrap();
    let mut file = FileLog::open(directory.path()).unwrap();
    file.append(&entries).unwrap();
    file.sync(0).unwrap();
    drop(file);
    let from_files = FileLog::open(directory.path()).unwrap().replay().unwrap();
    assert_eq!(federation().replay(&from_files).unwrap().coordinator().save(), view.state);
    // And what a coordinator starts from, with its saved state.
    assert!(replay.state.is_some() && replay.entries.is_empty());
    assert_eq!(federation().replay(&replay).unwrap().coordinator().save(), view.state);
}

#[test]
fn a_coordinator_that_follows_sends_agents_to_the_one_that_leads_and_takes_over_when_it_ends() {
    let Some(place) = Place::single("takes_over") else { return };
    place.runtime.block_on(async {
        let first = coordinator(&place, "one", SHORT).await;
        leads(&first).await;
        let second = coordinator(&place, "two", SHORT).await;
        // It asks the one that follows first.
        let agent = agent(1, &[&second, &first]).await;
        for step in 0..30 {
            interact(&agent, step);
        }
        agent.settled().await;
        assert_eq!(held(&first, &agent).await, 30);
        assert!(!second.federations[0].standing().leads && second.federations[0].look().await.is_none());
        assert_eq!((status(&first, "/ready").await, status(&first, "/healthz").await), (200, 200));
        while status(&second, "/healthz").await != 200 {
            tokio::task::yield_now().await;
        }
        assert_eq!(status(&second, "/ready").await, 503);
        let before = look(&first).await;
        // As if the power had failed.
        first.abort().await;
        leads(&second).await;
        assert_eq!(look(&second).await.state, before.state, "the same bits, read by another process");
        assert_eq!(status(&second, "/ready").await, 200);
        for step in 30..60 {
            interact(&agent, step);
        }
        agent.settled().await;
        assert_eq!(held(&second, &agent).await, 60);
        assert_eq!(look(&second).await.epoch, before.epoch, "nothing was lost");
    });
}

#[test]
fn a_coordinator_that_stops_in_order_is_followed_without_waiting_for_its_lease() {
    let Some(place) = Place::single("stops") else { return };
    place.runtime.block_on(async {
        // A lease of an hour would outlast the test. Looking is then rare, so the second one starts when the first ends.
        let first = coordinator(&place, "one", LONG).await;
        leads(&first).await;
        let agent_one = agent(1, &[&first]).await;
        for step in 0..20 {
            interact(&agent_one, step);
        }
        agent_one.settled().await;
        let before = look(&first).await;
        first.drain().await;
        let second = coordinator(&place, "two", LONG).await;
        leads(&second).await;
        assert_eq!(look(&second).await.state, before.state);
    });
}

#[test]
fn a_leader_that_was_deposed_without_noticing_answers_no_upload() {
    let Some(place) = Place::single("unnoticed") else { return };
    place.runtime.block_on(async {
        let first = coordinator(&place, "one", LONG).await;
        leads(&first).await;
        let lonely = agent(1, &[&first]).await;
        for step in 0..20 {
            interact(&lonely, step);
        }
        lonely.settled().await;
        let before = look(&first).await;
        // Another process takes over, as if the first had been paused for an hour.
        place.end_lease();
        let second = coordinator(&place, "two", LONG).await;
        leads(&second).await;
        for step in 20..40 {
            interact(&lonely, step);
        }
        while first.federations[0].standing().leads {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            look(&second).await.observations,
            before.observations,
            "nothing of it was taken by anybody"
        );
        let uploads = second.federations[0].agent(lonely.id()).await.unwrap().uploads;
        assert_eq!(before.observations + unheard(&lonely, uploads), 40, "and the agent still has it");
    });
}

#[test]
fn two_coordinators_do_not_give_out_the_same_life() {
    let Some(place) = Place::single("given_out") else { return };
    place.runtime.block_on(async {
        let first = coordinator(&place, "one", LONG).await;
        leads(&first).await;
        // It joined and never spoke: no entry of the log knows its life.
        let silent = agent(1, &[&first]).await;
        let given = silent.status().life;
        silent.abort().await;
        first.abort().await;
        place.end_lease();
        let second = coordinator(&place, "two", LONG).await;
        leads(&second).await;
        let other = agent(1, &[&second]).await;
        assert!(other.status().life > given, "{} after {given}", other.status().life);
    });
}
