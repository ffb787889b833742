//! Real processes, really killed: with SIGKILL, at any point, over connections that break.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use posse_core::{Seed, Stream};
use posse_net::agent::Carriage;
use posse_net::{Agent, AgentConfig};
use posse_testing::gate::{Gate, Luck};
use serde_json::{Value, json};

use crate::support::{Process, agent, call, coordinator, directory, free_port, offer, posse, request};

const AGENTS: usize = 3;
const ROUNDS: u64 = 60;

/// A federation of processes, and how many interactions its agents have learned from.
struct Victim {
    directory: tempfile::TempDir,
    /// The port of a gate before the coordinator at which connections break.
    breaking: u16,
    coordinator: Option<Process>,
    agents: Vec<Option<Process>>,
    random: Stream,
    learned: u64,
}

impl Victim {
    fn new(port: u16, seed: u64) -> Self {
        let directory = directory(port);
        let coordinator = Some(coordinator(directory.path()));
        let luck = move |direction| -> Luck {
            let mut random = Seed(seed).stream("gate", direction, 0);
            Box::new(move |limit| random.below(limit))
        };
        let breaking = Gate::breaking(luck).before_port(port);
        let start = |number| Some(agent(directory.path(), breaking, number));
        let agents = (0..AGENTS).map(start).collect();
        Self { breaking, coordinator, agents, random: Seed(seed).stream("kill", 0, 0), learned: 0, directory }
    }

    fn here(&self) -> &Path {
        self.directory.path()
    }

    /// An agent chooses; what became of it, and what it is worth.
    fn choose(&mut self, number: usize) -> (Value, f64) {
        let arms = offer(&mut self.random);
        let address = self.agents[number].as_ref().unwrap().address();
        let Some((200, chosen)) = call(address, "POST", "/choose", &json!({ "arms": arms })) else {
            panic!("agent {number} does not choose")
        };
        let reward = arms[chosen["arm"].as_u64().unwrap() as usize].iter().sum::<f64>();
        (chosen["id"].clone(), reward)
    }

    fn reward(&mut self, number: usize, id: &Value, reward: f64) -> u16 {
        let address = self.agents[number].as_ref().unwrap().address();
        call(address, "POST", "/reward", &json!({ "id": id, "reward": reward })).expect("it is alive").0
    }

    fn interact(&mut self) {
        let number = self.random.below(AGENTS as u64) as usize;
        let (id, reward) = self.choose(number);
        assert_eq!(self.reward(number, &id, reward), 200);
        self.learned += 1;
    }

    /// Kills an agent while it is being told a reward, and tells it again.
    fn kill_agent(&mut self) {
        let number = self.random.below(AGENTS as u64) as usize;
        let (id, reward) = self.choose(number);
        let process = self.agents[number].take().unwrap();
        let _unread = request(process.address(), "POST", "/reward", &json!({ "id": id, "reward": reward }));
        process.kill();
        self.agents[number] = Some(agent(self.here(), self.breaking, number));
        // Either it had learned and knows the choice no more, or it learns now: once, in any case.
        let status = self.reward(number, &id, reward);
        assert!(status == 200 || status == 404, "{status}");
        self.learned += 1;
    }

    /// Kills the coordinator, as often as not in the middle of a write.
    fn kill_coordinator(&mut self) {
        self.coordinator.take().unwrap().kill();
        let torn: Vec<u8> = (0..self.random.below(60)).map(|_| self.random.below(256) as u8).collect();
        let log = self.here().join("data/federations/shop").join(format!("{:020}.log", 0));
        OpenOptions::new().append(true).open(log).unwrap().write_all(&torn).unwrap();
        self.coordinator = Some(coordinator(self.here()));
    }

    fn suffer(&mut self) {
        for _ in 0..3 {
            self.interact();
        }
        match self.random.below(5) {
            0 | 1 => self.kill_coordinator(),
            2 | 3 => self.kill_agent(),
            _ => {}
        }
    }
}

fn state(directory: &Path, port: u16, number: usize, carriage: Carriage) -> AgentConfig {
    AgentConfig {
        coordinator: format!("http://127.0.0.1:{port}"),
        agent: Some(number as u64),
        state: Some(directory.join(format!("agent-{number}"))),
        carriage,
        ..AgentConfig::default()
    }
}

async fn nothing_is_lost(seed: u64) {
    let port = free_port();
    let mut victim = Victim::new(port, seed);
    for _ in 0..ROUNDS {
        victim.suffer();
    }
    // Everybody is killed; then each agent tells the rest of what it knows, one after the other.
    std::mem::take(&mut victim.agents).into_iter().flatten().for_each(Process::kill);
    for number in 0..AGENTS {
        let config = state(victim.here(), port, number, Carriage::Link);
        let agent = Agent::start(config).await.unwrap();
        agent.settled().await;
        agent.clone().close().await.unwrap();
    }
    assert_eq!(victim.coordinator.take().unwrap().terminate(), Some(0));
    let log = |arguments: &[&str]| {
        let command = posse().arg("log").args(arguments).current_dir(victim.here()).output().unwrap();
        assert_eq!(command.status.code(), Some(0), "{}", String::from_utf8_lossy(&command.stderr));
        command.stdout
    };
    log(&["verify", "data/federations/shop"]);
    let replayed: Value =
        serde_json::from_slice(&log(&["replay", "data/federations/shop", "--json"])).unwrap();
    let mut held = replayed["observations"].as_u64().unwrap();
    assert!(held > victim.learned / 4, "little was shared: {replayed}");
    for number in 0..AGENTS {
        let config = state(victim.here(), port, number, Carriage::ByHand);
        let agent = Agent::start(config).await.unwrap();
        held += agent.inspect(|machine| {
            let view = machine.inspect();
            assert!(view.in_flight.is_none());
            view.unsent + view.withheld
        });
        agent.abort().await;
    }
    assert_eq!(held, victim.learned, "seed {seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_counted_twice_when_processes_are_killed_for_hundreds_of_rounds() {
    for seed in 0..4 {
        nothing_is_lost(seed).await;
    }
}
