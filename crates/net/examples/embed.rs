//! An agent inside a program, with a coordinator beside it so that it runs anywhere: `cargo run --example embed`.
//!
//! A service of yours needs the second half only, with the address of your coordinator and a token.
#![allow(clippy::print_stdout, reason = "it is a command")]

use posse_net::coordinator::{Options, ServeConfig, serve};
use posse_net::federation::FederationConfig;
use posse_net::posse_core::{Algorithm, AsyncLinUcb};
use posse_net::{Agent, AgentConfig, Arms, UserId};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The coordinator: on a free port of this machine, believing its agents who they say they are.
    let data = std::env::temp_dir().join(format!("posse-embed-{}", std::process::id()));
    let federation = FederationConfig::new("example", Algorithm::AsyncLinUcb(AsyncLinUcb::default()), 2);
    let coordinator = serve(ServeConfig::on_loopback(&data, vec![federation]), Options::default()).await?;

    // The agent: with a state it would go on after a crash where it was.
    let agent = Agent::start(AgentConfig {
        coordinator: format!("http://{}", coordinator.address),
        agent: Some(7),
        ..AgentConfig::default()
    })
    .await?;

    // Two arms with two features each. The first is worth 0.1 + 0.9, the second 0.8 - 0.2.
    let arms = Arms::from_rows(2, &[[0.1, 0.9], [0.8, -0.2]])?;
    let mut chosen_first = 0;
    for _ in 0..100 {
        let chosen = agent.choose(UserId(3), &arms)?; // from memory, never waits for the network
        let reward = arms.row(chosen.arm).iter().sum();
        agent.reward(chosen.id, reward)?; // now or days later
        chosen_first += u32::from(chosen.arm == 0);
    }
    agent.settled().await;
    let shared = coordinator.federations[0].look().await.map_or(0, |view| view.observations);
    println!("chose the better arm {chosen_first} times of 100; {shared} observations are shared");

    agent.close().await?;
    coordinator.drain().await;
    std::fs::remove_dir_all(data)?;
    Ok(())
}
