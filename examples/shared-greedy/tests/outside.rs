//! The algorithm does what every algorithm must, in every host, without a change to posse.

use posse_core::{Algorithm, Arms, Registry, Seed, Shape, UserId};
use posse_net::coordinator::{Options, ServeConfig, serve};
use posse_net::federation::FederationConfig;
use posse_net::{Agent, AgentConfig};
use posse_sim::network::{NetworkConfig, Preset};
use posse_sim::world::{LinearConfig, WorldConfig};
use posse_sim::{Event, Invariants, Observer, RunConfig, Stage};
use shared_greedy::SharedGreedy;

fn run(algorithm: Algorithm, network: NetworkConfig) -> RunConfig {
    let world = WorldConfig::Linear(LinearConfig { dimension: 5, arms: 10, ..LinearConfig::default() });
    RunConfig { seed: Seed(7), network, ..RunConfig::new(world, 20, 2000, algorithm) }
}

struct Nobody;

impl Observer for Nobody {
    fn observe(&mut self, _event: &Event<'_>, _stage: &dyn Stage) {}
}

#[test]
fn it_keeps_every_promise_of_the_conformance_suite() {
    for upload_every in [1, 4, 1000] {
        let algorithm = SharedGreedy { upload_every, ..SharedGreedy::default() }.algorithm();
        posse_conformance::check(&algorithm, Shape::shared(4)).unwrap();
    }
}

#[test]
fn sharing_lowers_regret_in_the_simulator_and_is_counted() {
    let every = |upload_every| {
        let settings = SharedGreedy { upload_every, exploration: 0.0, ..SharedGreedy::default() };
        run(settings.algorithm(), NetworkConfig::default()).run(&mut Nobody).unwrap()
    };
    let (alone, shared) = (every(1_000_000), every(10));
    assert!(shared.regret < 0.9 * alone.regret, "{} shared, {} alone", shared.regret, alone.regret);
    // An answer to each newcomer; an upload and an answer for every ten observations of an agent.
    assert!(alone.up.messages == 0 && shared.up.messages > 150, "{} uploads", shared.up.messages);
    assert_eq!(shared.down.messages, shared.up.messages + 20);
    // A count, a triangle of 15 and a vector of 5 in every message.
    assert_eq!(shared.up.scalars, 21 * shared.up.messages);
}

#[test]
fn nothing_is_lost_or_doubled_over_hostile_links() {
    let algorithm = SharedGreedy::default().algorithm();
    let mut invariants = Invariants::of(&algorithm);
    let hostile = NetworkConfig::preset(Preset::Hostile);
    let tally = run(algorithm, hostile).run(&mut invariants).unwrap();
    assert_eq!(invariants.violation(), None);
    assert_eq!(tally.interactions, 2000);
}

/// Two agents over gRPC, a coordinator that restarts from its log in the middle, and an agent that restarts from its
/// state: every observation is counted once.
#[tokio::test(flavor = "multi_thread")]
async fn it_runs_over_grpc_through_restarts() {
    let (data, states) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let algorithm = SharedGreedy { upload_every: 3, ..SharedGreedy::default() }.algorithm();
    let federation = FederationConfig::new("outside", algorithm, 4);
    let mut registry = Registry::default();
    shared_greedy::register(&mut registry).unwrap();
    let start = async |address: std::net::SocketAddr, agent: u64| {
        let config = AgentConfig {
            coordinator: format!("http://{address}"),
            agent: Some(agent),
            state: Some(states.path().join(agent.to_string())),
            registry: registry.clone(),
            ..AgentConfig::default()
        };
        Agent::start(config).await.unwrap()
    };
    let interact = |agent: &Agent, step: u64| {
        let mut stream = Seed(3).stream("arms", agent.id().0, step);
        let mut arms = Arms::new(4);
        for _ in 0..3 {
            let features: Vec<f64> = (0..4).map(|_| stream.uniform() - 0.5).collect();
            arms.push(&features).unwrap();
        }
        let chosen = agent.choose(UserId(0), &arms).unwrap();
        agent.reward(chosen.id, arms.row(chosen.arm).iter().sum()).unwrap();
    };
    for round in 0..2 {
        let config = ServeConfig::on_loopback(data.path(), vec![federation.clone()]);
        let running = serve(config, Options::default()).await.unwrap();
        let agents = [start(running.address, 1).await, start(running.address, 2).await];
        for step in 0..20 {
            for agent in &agents {
                interact(agent, 20 * round + step);
                agent.settled().await;
            }
        }
        let shared = running.federations[0].look().await.unwrap().observations;
        let held: u64 = agents.iter().map(|agent| agent.inspect(|machine| machine.inspect().held())).sum();
        assert_eq!(shared + held, 40 * (round + 1), "{shared} are shared, {held} wait");
        assert!(shared >= 36 * (round + 1), "only {shared} are shared");
        for agent in agents {
            agent.close().await.unwrap();
        }
        running.drain().await;
    }
}

/// An agent that does not know the algorithm says so and does not join.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_the_registration_is_told_what_is_missing() {
    let data = tempfile::tempdir().unwrap();
    let federation = FederationConfig::new("outside", SharedGreedy::default().algorithm(), 4);
    let running =
        serve(ServeConfig::on_loopback(data.path(), vec![federation]), Options::default()).await.unwrap();
    let config = AgentConfig {
        coordinator: format!("http://{}", running.address),
        agent: Some(1),
        ..AgentConfig::default()
    };
    let error = Agent::start(config).await.unwrap_err().to_string();
    assert!(error.contains("not known here") && error.contains("shared-greedy"), "{error}");
}
