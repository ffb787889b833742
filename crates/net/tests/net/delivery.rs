//! What agents learn reaches the coordinator once, through restarts of either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posse_core::wire::v1;
use posse_core::{Algorithm, Arms, SyncLinUcb, Threshold, Tick, TimeSpan, UserId};
use posse_net::agent::{AgentTls, Carriage};
use posse_net::coordinator::{Options, Running, ServeConfig, serve};
use posse_net::federation::FederationConfig;
use posse_net::{Agent, AgentConfig, Clock};
use prost::Message;

use crate::support::{
    DIMENSION, agent, config, coordinator, federation, held, in_a_minute, interact, look, talkative, unsent,
};

#[tokio::test(flavor = "multi_thread")]
async fn every_observation_is_with_the_coordinator_or_in_a_buffer() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let mut agents = Vec::new();
    for id in 0..4 {
        agents.push(agent(running.address, id).await);
    }
    for step in 0..200 {
        for agent in &agents {
            interact(agent, step);
            if step % 20 == 0 {
                agent.settled().await;
            }
        }
    }
    for agent in &agents {
        agent.settled().await;
        agent.clone().close().await.unwrap();
    }
    assert_eq!(held(&running, &agents).await, 800);
    let view = look(&running).await;
    assert!(view.version > 4, "{view:?}");
    assert!(agents.iter().all(|agent| agent.status().downlinks > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_comes_back_with_the_same_bits_however_it_ended() {
    for graceful in [true, false] {
        let data = tempfile::tempdir().unwrap();
        let running = coordinator(data.path(), talkative()).await;
        let agent = agent(running.address, 1).await;
        for step in 0..100 {
            interact(&agent, step);
        }
        agent.settled().await;
        agent.clone().close().await.unwrap();
        let before = look(&running).await;
        if graceful {
            running.drain().await;
        } else {
            running.abort().await;
        }
        let running = coordinator(data.path(), talkative()).await;
        let after = look(&running).await;
        assert_eq!(before.state, after.state);
        assert!(after.observations > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_a_state_goes_on_where_a_crash_left_it() {
    let data = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let mut settings = config(running.address, 3);
    settings.state = Some(state.path().into());
    for crash in 0..5 {
        let agent = Agent::start(settings.clone()).await.unwrap();
        assert_eq!(agent.status().life, 1);
        for step in 0..20 {
            interact(&agent, 20 * crash + step);
        }
        let bits = agent.inspect(|machine| machine.save());
        agent.abort().await;
        // Offline: only the journal speaks.
        let mut offline = settings.clone();
        offline.carriage = Carriage::ByHand;
        let agent = Agent::start(offline).await.unwrap();
        assert_eq!(agent.inspect(|machine| machine.save()), bits);
        agent.abort().await;
    }
    let agent = Agent::start(settings).await.unwrap();
    agent.settled().await;
    assert_eq!(look(&running).await.observations + unsent(&agent), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_a_state_begins_a_new_life_and_counts_nothing_twice() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let mut total = 0;
    for life in 1..=3 {
        let agent = agent(running.address, 9).await;
        assert_eq!(agent.status().life, life);
        for step in 0..30 {
            interact(&agent, step);
        }
        agent.settled().await;
        total += 30 - unsent(&agent);
        assert_eq!(look(&running).await.observations, total);
        agent.abort().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_behind_proxies_exchange_by_calls() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let mut settings = config(running.address, 5);
    settings.carriage = Carriage::ByHand;
    let agent = Agent::start(settings).await.unwrap();
    for step in 0..50 {
        interact(&agent, step);
        while agent.exchange().await.unwrap() {}
    }
    assert_eq!(look(&running).await.observations + unsent(&agent), 50);
    assert!(agent.status().downlinks > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_comes_back_with_the_same_bits_whatever_it_has_heard() {
    let (data, states) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), talkative()).await;
    let settings = |agent: u64| AgentConfig {
        state: Some(states.path().join(agent.to_string())),
        ..config(running.address, agent)
    };
    let mut agents = Vec::new();
    for agent in 0..3 {
        agents.push(Agent::start(settings(agent)).await.unwrap());
    }
    for step in 0..600 {
        let place = step as usize % 3;
        interact(&agents[place], step);
        if step % 7 == 0 {
            agents[place].settled().await;
        }
        if step % 20 == 19 {
            let crashed = agents[place].clone();
            crashed.clone().abort().await;
            let offline = AgentConfig { carriage: Carriage::ByHand, ..settings(place as u64) };
            let again = Agent::start(offline).await.unwrap();
            assert!(again.save() == crashed.save(), "after {step} interactions");
            again.abort().await;
            agents[place] = Agent::start(settings(place as u64)).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_end_with_their_coordinator_also_when_nobody_speaks() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let address = running.address;
    let agent = agent(address, 1).await;
    interact(&agent, 0);
    agent.settled().await;
    running.abort().await;
    // It notices without having anything to say, and comes back by itself.
    while agent.is_settled() {
        tokio::task::yield_now().await;
    }
    let config = ServeConfig { listen: address, ..ServeConfig::on_loopback(data.path(), vec![talkative()]) };
    let running = loop {
        match serve(config.clone(), Options::default()).await {
            Ok(running) => break running,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    agent.settled().await;
    agent.clone().close().await.unwrap();
    assert_eq!(held(&running, &[agent]).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_calls_settles_like_one_with_a_link() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let every = std::time::Duration::from_millis(20);
    let settings = AgentConfig { carriage: Carriage::Exchange(every), ..config(running.address, 5) };
    let agent = Agent::start(settings).await.unwrap();
    for step in 0..50 {
        interact(&agent, step);
        if step % 10 == 9 {
            in_a_minute(agent.settled()).await;
        }
    }
    agent.clone().close().await.unwrap();
    assert_eq!(held(&running, &[agent]).await, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expires_while_an_agent_chooses_is_shared_without_waiting_for_more() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let time = Arc::new(AtomicU64::new(1));
    let clock = Arc::clone(&time);
    let settings = AgentConfig {
        expire_after: Some(std::time::Duration::from_secs(3600)),
        default_reward: Some(1.0),
        ..config(running.address, 2)
    };
    let agent = Agent::start(AgentConfig {
        clock: Clock::new(move || Tick(clock.load(Ordering::SeqCst))),
        ..settings
    })
    .await
    .unwrap();
    let arms = Arms::from_rows(DIMENSION, &[[1.0, 0.0, 0.0, 0.0]]).unwrap();
    agent.choose(UserId(0), &arms).unwrap();
    agent.settled().await;
    // An hour passes for the agent, and none for whoever carries its messages: only the choice notices.
    time.store(3_700_000_000, Ordering::SeqCst);
    agent.choose(UserId(0), &arms).unwrap();
    in_a_minute(async {
        while look(&running).await.observations == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    agent.abort().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_on_when_the_operator_changes_how_long_to_wait_and_not_when_the_rules_change() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let with_state = |address| AgentConfig { state: Some(data.path().join("agent")), ..config(address, 1) };
    let agent = Agent::start(with_state(running.address)).await.unwrap();
    agent.settled().await;
    agent.clone().close().await.unwrap();
    running.drain().await;

    let patient = FederationConfig { resend_after: TimeSpan::from_secs(5), ..talkative() };
    let running = coordinator(data.path(), patient).await;
    let agent = Agent::start(with_state(running.address)).await.unwrap();
    in_a_minute(agent.settled()).await;
    assert_eq!(agent.status().life, 1);
    agent.clone().close().await.unwrap();
    running.drain().await;

    let elsewhere = tempfile::tempdir().unwrap();
    let other = FederationConfig { horizon: 77, ..talkative() };
    let running = coordinator(elsewhere.path(), other).await;
    let agent = Agent::start(with_state(running.address)).await.unwrap();
    let trouble = in_a_minute(async {
        loop {
            match agent.status().trouble {
                Some(trouble) => break trouble,
                None => tokio::task::yield_now().await,
            }
        }
    });
    assert!(trouble.await.contains("remove its state"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_can_never_be_reached_is_refused_at_once() {
    for (address, why) in [
        ("nonsense", "it must look like"),
        ("127.0.0.1:7447", "it must look like"),
        ("ftp://127.0.0.1:7447", "it must look like"),
    ] {
        let config = AgentConfig { coordinator: address.into(), agent: Some(1), ..AgentConfig::default() };
        let error = in_a_minute(Agent::start(config)).await.unwrap_err();
        assert!(error.to_string().contains(why), "{address}: {error}");
    }
    let tls = AgentTls { authority: Some(b"not a certificate".to_vec()), ..AgentTls::default() };
    let (coordinator, agent) = ("https://127.0.0.1:7447".into(), Some(1));
    let config = AgentConfig { coordinator, agent, tls, ..AgentConfig::default() };
    let error = in_a_minute(Agent::start(config)).await.unwrap_err();
    assert!(error.to_string().contains("it must hold one in PEM form"), "{error}");
}

/// A coordinator of rounds with a deadline of 30 s, by a clock that the test moves.
async fn rounds_by_a_clock(data: &std::path::Path) -> (Running, Arc<AtomicU64>) {
    let rounds = SyncLinUcb {
        round_threshold: Threshold(0.0),
        round_deadline: Some(TimeSpan::from_secs(30)),
        ..SyncLinUcb::default()
    };
    let federation = federation(Algorithm::SyncLinUcb(rounds));
    let time = Arc::new(AtomicU64::new(1_700_000_000_000_000));
    let shown = Arc::clone(&time);
    let clock = Clock::new(move || Tick(shown.load(Ordering::SeqCst)));
    let options = Options { clock, ..Options::default() };
    (serve(ServeConfig::on_loopback(data, vec![federation]), options).await.unwrap(), time)
}

/// Waits until every agent has heard that everything it learned was counted.
async fn all_shared(agents: &[Agent]) {
    let is_shared = |agent: &Agent| {
        agent.inspect(|machine| {
            let view = machine.inspect();
            view.unsent == 0 && view.in_flight.is_none()
        })
    };
    while !agents.iter().all(is_shared) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_over_grpc_with_everybody_alive_collects_all() {
    let data = tempfile::tempdir().unwrap();
    let (running, time) = rounds_by_a_clock(data.path()).await;
    let agents = [agent(running.address, 0).await, agent(running.address, 1).await];
    for step in 0..40 {
        for agent in &agents {
            // An hour passes between interactions, and none during a round.
            time.fetch_add(3_600_000_000, Ordering::SeqCst);
            interact(agent, step);
            in_a_minute(all_shared(&agents)).await;
        }
    }
    let view = look(&running).await;
    assert_eq!(view.observations, 80, "nothing was left out of a round");
    assert!(view.version <= 80, "{} rounds for 80 observations: some were empty", view.version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_over_grpc_with_everybody_alive_and_slow_collects_what_arrived() {
    let data = tempfile::tempdir().unwrap();
    let (running, time) = rounds_by_a_clock(data.path()).await;
    // Their frames travel when the test says so.
    let mut agents = Vec::new();
    for id in 0..3 {
        let slow = AgentConfig { carriage: Carriage::ByHand, ..config(running.address, id) };
        agents.push(Agent::start(slow).await.unwrap());
    }
    let observations = async || {
        // The coordinator answers a look before it acts on the time, and so it has acted when it answers the second.
        look(&running).await;
        look(&running).await.observations
    };
    let say_everything = async || {
        // What one agent says may give another something to answer.
        for _ in 0..4 {
            for agent in &agents {
                while agent.exchange().await.unwrap() {}
            }
        }
    };
    say_everything().await;
    // Every interaction asks for a round, and the answer to the question asks for a part of it.
    let open = async |step| {
        time.fetch_add(3_600_000_000, Ordering::SeqCst);
        for agent in &agents {
            interact(agent, step);
            assert!(agent.exchange().await.unwrap(), "its part of the round waits to be sent");
        }
    };

    open(0).await;
    time.fetch_add(29_999_999, Ordering::SeqCst);
    agents[0].exchange().await.unwrap();
    agents[1].exchange().await.unwrap();
    assert_eq!(observations().await, 0, "the round waits for the third part");
    time.fetch_add(1, Ordering::SeqCst);
    assert_eq!(observations().await, 2, "it took what was there");
    agents[2].exchange().await.unwrap();
    assert_eq!(observations().await, 2, "the third part came too late");
    say_everything().await;
    assert_eq!(observations().await + unsent(&agents[2]), 3, "and is still with its agent");

    let before = observations().await;
    open(1).await;
    time.fetch_add(30_000_000, Ordering::SeqCst);
    assert_eq!(observations().await, before, "nothing arrived in time");
    say_everything().await;
    open(2).await;
    say_everything().await;
    assert_eq!(observations().await, 9, "in time, a round collects all, also what was late before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_over_grpc_does_not_wait_for_an_agent_that_stopped() {
    let data = tempfile::tempdir().unwrap();
    let (running, time) = rounds_by_a_clock(data.path()).await;
    let (alive, stopped) = (agent(running.address, 0).await, agent(running.address, 1).await);
    interact(&stopped, 0);
    in_a_minute(stopped.settled()).await;
    in_a_minute(alive.settled()).await;
    let before = look(&running).await;
    stopped.abort().await;
    interact(&alive, 1);
    // The round is open and has the answer of the agent that is there.
    let has_answer = async || {
        let state = look(&running).await.state;
        !v1::CoordinatorState::decode(&*state).expect("its own state").included.is_empty()
    };
    in_a_minute(async {
        while !has_answer().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    time.fetch_add(29_999_999, Ordering::SeqCst);
    assert_eq!(look(&running).await.version, before.version, "it waits");
    time.fetch_add(1, Ordering::SeqCst);
    in_a_minute(async {
        while look(&running).await.version == before.version {
            tokio::task::yield_now().await;
        }
    })
    .await;
    in_a_minute(alive.settled()).await;
    assert_eq!(look(&running).await.observations, before.observations + 1, "what arrived is in it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_made_while_an_agent_is_idle_expires_in_its_time() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let expire_after = Some(std::time::Duration::from_millis(20));
    let settings = AgentConfig { expire_after, default_reward: Some(0.0), ..config(running.address, 1) };
    let idle = Agent::start(settings).await.unwrap();
    // Nothing is left to wait for: without a reason it would sleep for an hour.
    in_a_minute(idle.settled()).await;
    idle.choose(UserId(0), &Arms::from_rows(DIMENSION, &[[1.0; DIMENSION]]).unwrap()).unwrap();
    in_a_minute(idle.until(|status| status.expired == 1)).await;
    in_a_minute(idle.settled()).await;
    assert_eq!(look(&running).await.observations, 1, "its default reward was shared at once");
}
