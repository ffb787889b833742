//! Choices and rewards that are written to the agent's journal together.

use posse_core::{Arms, UserId};
use posse_net::agent::Carriage;
use posse_net::{Agent, AgentConfig};

use crate::support::{DIMENSION, config, coordinator, talkative};

fn arms(step: u64) -> Arms {
    let row = |arm: u64| -> Vec<f64> {
        (0..DIMENSION as u64).map(|feature| ((step + 3 * arm + feature) % 7) as f64 / 7.0).collect()
    };
    Arms::from_rows(DIMENSION, &[row(0), row(1), row(2)]).unwrap()
}

async fn start(config: &AgentConfig) -> Agent {
    Agent::start(AgentConfig { carriage: Carriage::ByHand, ..config.clone() }).await.unwrap()
}

/// Observations that the agent holds and has not shared.
fn held(agent: &Agent) -> u64 {
    agent.inspect(|machine| {
        let view = machine.inspect();
        view.unsent + view.withheld + view.in_flight.map_or(0, |(_, count)| count)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_has_ended_outlives_a_crash_of_the_process() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), talkative()).await;
    let config = AgentConfig { state: Some(state.path().into()), ..config(running.address, 1) };
    let agent = start(&config).await;
    let batch = agent.batch();
    let waits = batch.choose(UserId(1), &arms(0)).unwrap();
    for step in 1..20 {
        let chosen = batch.choose(UserId(0), &arms(step)).unwrap();
        batch.reward(chosen.id, 0.5).unwrap();
    }
    batch.end();
    let (before, learned) = (agent.save(), held(&agent));
    agent.abort().await;
    let agent = start(&config).await;
    assert_eq!((agent.save(), held(&agent)), (before, learned));
    assert_eq!(learned, 19);
    agent.reward(waits.id, 1.0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_changes_nothing_but_when_things_are_written() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), talkative()).await;
    let state_of = |name: &str| Some(state.path().join(name));
    let one = start(&AgentConfig { state: state_of("one"), ..config(running.address, 1) }).await;
    let other = start(&AgentConfig { state: state_of("other"), ..config(running.address, 1) }).await;
    let batch = other.batch();
    for step in 0..50 {
        let (chosen, also) =
            (one.choose(UserId(0), &arms(step)).unwrap(), batch.choose(UserId(0), &arms(step)).unwrap());
        assert_eq!(chosen.arm, also.arm);
        one.reward(chosen.id, step as f64 / 50.0).unwrap();
        batch.reward(also.id, step as f64 / 50.0).unwrap();
    }
    batch.end();
    assert_eq!(one.inspect(|machine| machine.save()), other.inspect(|machine| machine.save()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_a_batch_loses_its_end_and_nothing_that_the_coordinator_was_told() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), talkative()).await;
    let config = AgentConfig { state: Some(state.path().into()), ..config(running.address, 1) };
    let agent = start(&config).await;
    // Said hello before anything was learned.
    while agent.exchange().await.unwrap() {}
    let batch = agent.batch();
    let interact = |step| {
        let chosen = batch.choose(UserId(0), &arms(step)).unwrap();
        batch.reward(chosen.id, 1.0).unwrap();
        chosen.id
    };
    for step in 0..10 {
        interact(step);
    }
    assert!(held(&agent) > 0, "there is something to tell");
    while agent.exchange().await.unwrap() {}
    let shared = 10 - agent.inspect(|machine| machine.inspect().unsent);
    assert!(shared > 0, "the coordinator was told");
    let lost = interact(10);
    agent.clone().abort().await;
    drop(batch);
    drop(agent);
    let agent = start(&config).await;
    while agent.exchange().await.unwrap() {}
    assert_eq!(agent.status().life, 1, "the life goes on: it knows all that was said");
    assert_eq!(held(&agent) + shared, 10, "what was told counts once, and the end is lost");
    assert!(agent.reward(lost, 1.0).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_outside_of_a_batch_keeps_what_the_batch_holds_too() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), talkative()).await;
    let config = AgentConfig { state: Some(state.path().into()), ..config(running.address, 1) };
    let agent = start(&config).await;
    let batch = agent.batch();
    let within = batch.choose(UserId(0), &arms(0)).unwrap();
    let outside = agent.choose(UserId(0), &arms(1)).unwrap();
    let last = batch.choose(UserId(0), &arms(2)).unwrap();
    agent.clone().abort().await;
    drop(batch);
    drop(agent);
    let agent = start(&config).await;
    agent.reward(within.id, 1.0).unwrap();
    agent.reward(outside.id, 1.0).unwrap();
    assert!(agent.reward(last.id, 1.0).is_err(), "the batch had not ended");
}
