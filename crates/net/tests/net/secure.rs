//! Secure aggregation over gRPC: agents that are killed in the middle of each exchange, and what the coordinator's log holds.

use std::path::Path;

use posse_core::wire::v1;
use posse_core::{Algorithm, PrivacyConfig, SecureAggregation, SyncLinUcb};
use posse_net::agent::Carriage;
use posse_net::coordinator::Running;
use posse_net::federation::FederationConfig;
use posse_net::log::read;
use posse_net::{Agent, AgentConfig};
use prost::Message;

use crate::support::{config, coordinator, federation, interact, look};

const AGENTS: u64 = 5;
/// The agent that is killed.
const VICTIM: u64 = 3;
const EACH: u64 = 5;

/// A round is asked for after five observations. There is no deadline: an agent drops out when a new life of it begins. So little is
/// promised that noise is far below the units of sums, so that sums can be searched for.
fn rounds(secure_aggregation: Option<SecureAggregation>) -> FederationConfig {
    let privacy = PrivacyConfig { epsilon: 1e30, first_release: EACH, max_releases: 4, ..Default::default() };
    federation(Algorithm::SyncLinUcb(SyncLinUcb {
        privacy: Some(privacy),
        secure_aggregation,
        ..Default::default()
    }))
}

fn secure() -> FederationConfig {
    rounds(Some(SecureAggregation { survivors: 3, colluders: 1 }))
}

async fn start(running: &Running, id: u64, state: Option<&Path>) -> Agent {
    let state = state.map(Path::to_owned);
    Agent::start(AgentConfig { state, carriage: Carriage::ByHand, ..config(running.address, id) })
        .await
        .unwrap()
}

/// The exchanges of messages that wait to be sent: 0 for keys, then 1, 2, 3.
fn waiting(agent: &Agent) -> Vec<usize> {
    let queue = v1::EndpointState::decode(&agent.save()[..]).unwrap().queue;
    queue.iter().filter_map(exchange).collect()
}

fn exchange(message: &v1::Uplink) -> Option<usize> {
    use v1::secure_uplink::Step;
    let Some(v1::uplink::Kind::Secure(part)) = &message.kind else { return None };
    Some(match part.step.as_ref()? {
        Step::Keys(_) => 0,
        Step::Shares(_) => 1,
        Step::Masked(_) => 2,
        Step::Opened(_) => 3,
    })
}

async fn carry(agents: &[Agent]) {
    loop {
        let mut more = false;
        for agent in agents {
            while agent.exchange().await.unwrap() {
                more = true;
            }
        }
        if !more {
            return;
        }
    }
}

/// Plays until the victim is about to send its message of this exchange.
async fn play_until(agents: &[Agent], victim: &Agent, stop: usize) {
    for _ in 0..1000 {
        if waiting(victim).contains(&stop) {
            return;
        }
        for agent in agents.iter().chain([victim]) {
            agent.exchange().await.unwrap();
            if agent.id() == victim.id() && waiting(victim).contains(&stop) {
                return;
            }
        }
    }
    panic!("the victim never came to exchange {stop}");
}

/// Everything that the coordinator accepted, in order.
fn accepted(data: &Path) -> Vec<v1::Uplink> {
    let contents = read(&data.join("federations").join("test")).unwrap();
    let message = |bytes: &Vec<u8>| match v1::LogEntry::decode(&bytes[..]).unwrap().event {
        Some(v1::log_entry::Event::Accepted(frame)) => frame.message,
        _ => None,
    };
    contents.entries.iter().filter_map(message).collect()
}

/// Kills an agent before it sends its message of exchange `stop`, and brings it back with its state or without.
async fn killed_in(stop: usize, keeps_state: bool) -> u64 {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), secure()).await;
    let kept = keeps_state.then(|| state.path().join("agent"));
    let mut agents = Vec::new();
    for id in (0..AGENTS).filter(|id| *id != VICTIM) {
        agents.push(start(&running, id, None).await);
    }
    let victim = start(&running, VICTIM, kept.as_deref()).await;
    // All are known before anybody asks for a round.
    carry(&agents).await;
    carry(std::slice::from_ref(&victim)).await;
    for agent in agents.iter().chain([&victim]) {
        (0..EACH).for_each(|step| interact(agent, step));
    }
    play_until(&agents, &victim, stop).await;
    victim.abort().await;
    agents.push(start(&running, VICTIM, kept.as_deref()).await);
    carry(&agents).await;
    let view = look(&running).await;
    assert_eq!(view.version, 1, "the round ended with a result");
    for agent in &agents {
        let shared = agent.inspect(|machine| machine.inspect().shared);
        assert_eq!(shared, view.observations, "agent {} has heard it", agent.id().0);
    }
    let log = accepted(data.path());
    let only_sums = log.iter().all(|message| {
        exchange(message).is_some() || matches!(message.kind, Some(v1::uplink::Kind::RoundRequest(_)))
    });
    assert!(only_sums && log.iter().filter(|message| exchange(message) == Some(2)).count() >= 4);
    view.observations
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_go_on_without_an_agent_that_lost_its_state_in_any_exchange() {
    for stop in 0..4 {
        // Numbers that arrived count, also if their agent is gone.
        let arrived = if stop == 3 { AGENTS } else { AGENTS - 1 };
        assert_eq!(killed_in(stop, false).await, EACH * arrived, "killed in exchange {stop}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_and_comes_back_with_its_state_goes_on_where_it_was() {
    for stop in 0..4 {
        assert_eq!(killed_in(stop, true).await, EACH * AGENTS, "killed in exchange {stop}");
    }
}

/// The agents whose sums are in the coordinator's log as they are, after a round of all agents.
async fn found_in_log(federation: FederationConfig) -> Vec<u64> {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), federation).await;
    let mut agents = Vec::new();
    for id in 0..AGENTS {
        agents.push(start(&running, id, None).await);
    }
    carry(&agents).await;
    let mut sums = Vec::new();
    for agent in &agents {
        (0..EACH).for_each(|step| interact(agent, step));
        sums.push(agent.inspect(|machine| {
            let linear = machine.inspect().linear.expect("it has a linear model");
            let own = if linear.buffer.is_empty() { linear.in_flight.unwrap() } else { linear.buffer };
            own.gram().iter().chain(own.moment()).copied().collect::<Vec<f64>>()
        }));
    }
    carry(&agents).await;
    assert_eq!(look(&running).await.observations, EACH * AGENTS, "everything was shared");
    let log = read(&data.path().join("federations").join("test")).unwrap().entries.concat();
    let holds = |number: &[u8]| log.windows(number.len()).any(|window| window == number);
    let is_found = |own: &Vec<f64>| {
        own.iter().any(|v| {
            // As a number of a message, or as an integer on whatever lattice.
            let on_lattice = |power: i32| ((v * f64::from(power).exp2()) as i128).to_le_bytes();
            holds(&v.to_le_bytes()) || (30..=75).any(|power| holds(&on_lattice(power)))
        })
    };
    (0..AGENTS).filter(|id| is_found(&sums[*id as usize])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_holds_no_sums_of_one_agent_and_without_masks_the_search_finds_those_of_all() {
    assert_eq!(found_in_log(secure()).await, Vec::<u64>::new());
    assert_eq!(found_in_log(rounds(None)).await, (0..AGENTS).collect::<Vec<_>>());
}
