//! A coordinator on loopback, agents around it, and a little world for them.

use std::path::Path;
use std::time::Duration;

use posse_core::{Algorithm, Arms, AsyncLinUcb, Seed, TimeSpan, UserId};
use posse_net::agent::Carriage;
use posse_net::coordinator::{Options, Running, ServeConfig, serve};
use posse_net::federation::{FederationConfig, FederationView};
use posse_net::{Agent, AgentConfig};

pub(crate) const DIMENSION: usize = 4;

/// A federation that shares often.
pub(crate) fn talkative() -> FederationConfig {
    let mut algorithm = AsyncLinUcb::default();
    algorithm.protocol.upload_threshold = posse_core::Threshold(1.05);
    algorithm.protocol.download_threshold = posse_core::Threshold(1.05);
    federation(Algorithm::AsyncLinUcb(algorithm))
}

pub(crate) fn federation(algorithm: Algorithm) -> FederationConfig {
    FederationConfig {
        resend_after: TimeSpan::from_millis(50),
        ..FederationConfig::new("test", algorithm, DIMENSION as u64)
    }
}

pub(crate) async fn coordinator(data: &Path, federation: FederationConfig) -> Running {
    serve(ServeConfig::on_loopback(data, vec![federation]), Options::default()).await.unwrap()
}

pub(crate) fn config(address: std::net::SocketAddr, agent: u64) -> AgentConfig {
    AgentConfig {
        coordinator: format!("http://{address}"),
        agent: Some(agent),
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(20),
        carriage: Carriage::Link,
        ..AgentConfig::default()
    }
}

pub(crate) async fn agent(address: std::net::SocketAddr, agent: u64) -> Agent {
    Agent::start(config(address, agent)).await.unwrap()
}

/// An interaction: three arms of the agent's own, a linear reward.
pub(crate) fn interact(agent: &Agent, step: u64) {
    interact_and_report(agent, step, 1.0);
}

/// The same, with `sign` times the reward: an agent with −1 reports the opposite of what it got.
pub(crate) fn interact_and_report(agent: &Agent, step: u64, sign: f64) {
    let mut stream = Seed(11).stream("arms", agent.id().0, step);
    let mut arms = Arms::new(DIMENSION);
    for _ in 0..3 {
        let features: Vec<f64> = (0..DIMENSION).map(|_| stream.uniform() - 0.5).collect();
        arms.push(&features).unwrap();
    }
    let chosen = agent.choose(UserId(0), &arms).unwrap();
    let reward = arms.row(chosen.arm).iter().sum::<f64>() + 0.1 * stream.normal();
    agent.reward(chosen.id, sign * reward).unwrap();
}

/// Observations that an agent has made and the coordinator may not have.
pub(crate) fn unsent(agent: &Agent) -> u64 {
    agent.inspect(|machine| {
        let view = machine.inspect();
        view.unsent + view.withheld
    })
}

/// Observations that agents have made and the coordinator or relay that they joined does not have. Nobody may be speaking.
pub(crate) async fn waiting(running: &Running, agents: &[Agent]) -> u64 {
    let mut waiting = 0;
    for agent in agents {
        let uploads = running.federations[0].agent(agent.id()).await.map_or(0, |standing| standing.uploads);
        waiting += unsent(agent)
            + agent.inspect(|machine| match machine.inspect().in_flight {
                Some((number, count)) if number > uploads => count,
                _ => 0,
            });
    }
    waiting
}

/// Observations that the coordinator or one of `agents` holds, each counted once. Nobody may be speaking.
pub(crate) async fn held(running: &Running, agents: &[Agent]) -> u64 {
    look(running).await.observations + waiting(running, agents).await
}

/// What the coordinator holds.
pub(crate) async fn look(running: &Running) -> FederationView {
    running.federations[0].look().await.expect("its log is in order")
}

/// What `wait` waits for. The minute is only there so that a failure ends too.
pub(crate) async fn in_a_minute<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it never happened")
}
