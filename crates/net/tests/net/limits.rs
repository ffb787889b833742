//! Long messages: what an algorithm needs is allowed unless the settings say otherwise.

use posse_core::{Algorithm, FnUcb, NeuralConfig, TimeSpan};
use posse_net::federation::FederationConfig;

use crate::support::{DIMENSION, agent, coordinator, federation, in_a_minute, interact};

const AGENTS: u64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn matrices_of_many_megabytes_travel_with_the_default_limits() {
    // What everybody is sent holds a matrix of each agent beside that of all, and an upload one.
    let neural = NeuralConfig { hidden_width: 75, training_steps: 2, ..NeuralConfig::default() };
    let networks = FnUcb { neural, less_communication: false, ..FnUcb::default() };
    let federation = FederationConfig {
        agents: AGENTS,
        // Nothing has to be said twice just because all this runs on a busy machine.
        resend_after: TimeSpan::from_secs(60),
        ..federation(Algorithm::FnUcb(networks))
    };
    let upload = federation.longest_frame();
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), federation).await;
    let mut agents = Vec::new();
    for number in 0..AGENTS {
        let one = agent(running.address, number).await;
        in_a_minute(one.settled()).await;
        agents.push(one);
    }
    for agent in &agents {
        interact(agent, DIMENSION as u64);
    }
    let all_know = || agents.iter().all(|agent| agent.inspect(|machine| machine.inspect().version.0) > 0);
    in_a_minute(async {
        while !all_know() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let received = agents[0].status().bytes;
    assert!(received > 4 * upload, "{received} bytes prove nothing about limits of {upload}");
}
