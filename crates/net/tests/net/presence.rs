//! Leases: rounds do not wait for agents that are away, and an agent that comes back has lost nothing.

use posse_core::wire::v1;
use posse_core::{Algorithm, Arms, FedGlbUcb, RoundConfig, SyncLinUcb, Threshold, TimeSpan, UserId};
use posse_net::coordinator::Running;
use posse_net::federation::{FederationConfig, FederationView};
use posse_net::{Agent, AgentConfig};
use prost::Message;

use crate::support::{
    DIMENSION, agent, config, coordinator, federation, in_a_minute, interact, look, unsent,
};

/// Rounds that would wait for an hour, and leases of a moment.
fn patient() -> FederationConfig {
    let rounds = SyncLinUcb { round_threshold: Threshold(0.5), ..SyncLinUcb::default() };
    FederationConfig {
        deadline: TimeSpan::from_secs(3600),
        lease: TimeSpan::from_millis(50),
        ..federation(Algorithm::SyncLinUcb(rounds))
    }
}

/// What a coordinator of gradient rounds holds when all agents are gone and no round is open.
async fn idle(running: &Running) -> FederationView {
    loop {
        let held = look(running).await;
        let is_open = v1::GlmCoordinatorState::decode(&*held.state).unwrap().open;
        if running.federations[0].standing().connected == 0 && !is_open {
            return held;
        }
        tokio::task::yield_now().await;
    }
}

async fn observations(running: &Running, agent: &Agent, at_least: u64) {
    let mut step = 1000;
    in_a_minute(async {
        while look(running).await.observations < at_least {
            interact(agent, step);
            step += 1;
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_do_not_wait_for_an_agent_beyond_its_lease_and_its_life_goes_on_when_it_is_back() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), patient()).await;
    let with_state = AgentConfig { state: Some(state.path().into()), ..config(running.address, 1) };
    let (leaves, stays) = (Agent::start(with_state.clone()).await.unwrap(), agent(running.address, 2).await);
    in_a_minute(leaves.settled()).await;
    in_a_minute(stays.settled()).await;
    interact(&leaves, 0);
    leaves.close().await.unwrap();
    observations(&running, &stays, 5).await;
    let known = running.federations[0].agents().await;
    let away: Vec<(u64, bool)> = known.iter().map(|known| (known.agent, known.away)).collect();
    assert_eq!(away, [(1, true), (2, false)]);
    assert_eq!(running.federations[0].standing().away, 1);
    assert!(running.metrics.text().contains("posse_agents_away{federation=\"test\"} 1"));
    let audit = std::fs::read_to_string(data.path().join("federations/test/audit.jsonl")).unwrap();
    assert!(audit.contains("lost contact"), "{audit}");

    let back = Agent::start(with_state).await.unwrap();
    in_a_minute(back.settled()).await;
    assert_eq!(back.status().life, 1);
    in_a_minute(async {
        while unsent(&back) > 0 || back.inspect(|machine| machine.inspect().in_flight.is_some()) {
            interact(&stays, 1);
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(running.federations[0].standing().away, 0);
    // A deadline that passed early passes in a replay, too. Nothing changes once both are gone and no round is open.
    stays.close().await.unwrap();
    back.close().await.unwrap();
    let held = in_a_minute(async {
        loop {
            let held = look(&running).await;
            if !v1::CoordinatorState::decode(&*held.state).unwrap().collecting {
                break held;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    running.abort().await;
    let running = coordinator(data.path(), patient()).await;
    assert_eq!(look(&running).await.state, held.state);
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_are_away_do_not_count_for_a_quorum_and_a_replay_knows_who_was() {
    let data = tempfile::tempdir().unwrap();
    let rounds = RoundConfig { quorum: 0.9, ..RoundConfig::default() };
    let rounds = FedGlbUcb { round_threshold: Threshold(0.0), rounds, ..FedGlbUcb::default() };
    let patient = FederationConfig { algorithm: Algorithm::FedGlbUcb(rounds), ..patient() };
    let running = coordinator(data.path(), patient.clone()).await;
    let gone = [agent(running.address, 1).await, agent(running.address, 2).await];
    let stays = agent(running.address, 3).await;
    for agent in gone.iter().chain([&stays]) {
        in_a_minute(agent.settled()).await;
    }
    for agent in gone {
        agent.close().await.unwrap();
    }
    let arms = Arms::from_rows(DIMENSION, &[[0.5; DIMENSION]]).unwrap();
    in_a_minute(async {
        while look(&running).await.observations < 3 {
            let chosen = stays.choose(UserId(0), &arms).unwrap();
            stays.reward(chosen.id, 1.0).unwrap();
            stays.settled().await;
        }
    })
    .await;
    stays.close().await.unwrap();
    let held = in_a_minute(idle(&running)).await;
    running.abort().await;
    let running = coordinator(data.path(), patient).await;
    assert_eq!(look(&running).await.state, held.state);
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_an_earlier_start_have_a_lease_too() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), patient()).await;
    let (first, second) = (agent(running.address, 1).await, agent(running.address, 2).await);
    in_a_minute(first.settled()).await;
    in_a_minute(second.settled()).await;
    running.drain().await;
    let running = coordinator(data.path(), patient()).await;
    // Neither comes back to the new address; a third one does not wait for them.
    let third = agent(running.address, 3).await;
    in_a_minute(third.settled()).await;
    observations(&running, &third, 5).await;
}
