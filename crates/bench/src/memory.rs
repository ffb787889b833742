//! How much memory agents of every family hold while nobody acts, and how much their coordinator holds for each of them.

use std::collections::VecDeque;

use anyhow::{Context, anyhow};
use posse_core::{
    Agent, AgentId, Algorithm, Arms, AsyncLinUcb, ClusterConfig, Coordinator, Entrance, FclubDc, Federation,
    FnUcb, KernelConfig, NeuralConfig, Outgoing, Precondition, PrivacyConfig, Recipient, ScheduledGlbUcb,
    Seed, Shape, Stream, Threshold, Tick, UserId,
};
use serde::{Deserialize, Serialize};

use crate::Effort;
use crate::coordinator::resident_bytes;

const NOW: Tick = Tick(1_700_000_000_000_000);
const DIMENSION: usize = 25;
const ARMS: usize = 4;
/// Copies of a coordinator, so that their memory is more than what the system counts in pages.
const COPIES: u32 = 4;

/// Memory of one agent at rest, and of the coordinator for one agent. `None` where the system does not report memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryAtRest {
    /// The algorithm and what matters of its settings.
    pub name: String,
    /// What an agent's memory grows with: `observations`, `clicks`, `users`.
    pub unit: String,
    /// How many of them each agent has.
    pub size: u64,
    /// How many agents there are.
    pub agents: u64,
    /// Bytes of an agent.
    pub bytes_per_agent: Option<f64>,
    /// Bytes at the coordinator for each agent.
    pub coordinator_bytes_per_agent: Option<f64>,
}

/// What one row measures.
struct Case {
    name: &'static str,
    unit: &'static str,
    size: u64,
    agents: u64,
    observations: u64,
    users: u64,
    /// For so many agents.
    algorithm: Box<dyn Fn(u64) -> Algorithm>,
}

/// How many rows [`memory_at_rest`] can measure.
#[must_use]
pub fn memory_rows(effort: Effort) -> usize {
    cases(effort).len()
}

/// Measures one row; `None` if there is none of that number. Belongs into a process of its own, whose allocator gives back at once
/// what is freed: memory that was freed before would be used again and hide what is measured, and memory that is given back late
/// would be added to it.
pub fn memory_at_rest(row: usize, effort: Effort) -> anyhow::Result<Option<MemoryAtRest>> {
    cases(effort).into_iter().nth(row).map(|case| measure(&case)).transpose()
}

fn cases(effort: Effort) -> Vec<Case> {
    let quick = effort == Effort::Quick;
    let agents = |full: u64| if quick { (full / 10).max(1) } else { full };
    let linear = |name, privacy, observations| Case {
        name,
        unit: "observations",
        size: observations,
        agents: agents(2_000),
        observations,
        users: 1,
        algorithm: always(Algorithm::AsyncLinUcb(AsyncLinUcb { privacy, ..Default::default() })),
    };
    let clicks = |clicks: u64, full| Case {
        name: "fed-glb-ucb-1, one round at the end",
        unit: "clicks",
        size: clicks,
        agents: agents(full),
        observations: clicks,
        users: 1,
        // The round begins with the last click of all.
        algorithm: Box::new(move |agents| {
            let round_every = agents * clicks;
            Algorithm::FedGlbUcb1(ScheduledGlbUcb { round_every, ..Default::default() })
        }),
    };
    let users = |users: u64, full| Case {
        name: "fclub-dc, two kinds of users",
        unit: "users",
        size: users,
        agents: agents(full),
        observations: 20 * users,
        users,
        algorithm: always(Algorithm::FclubDc(FclubDc {
            clusters: ClusterConfig { edge_scale: Threshold(0.4), ..Default::default() },
            ..Default::default()
        })),
    };
    let history = |history: u64, full| Case {
        name: "kernel-ucb",
        unit: "observations",
        size: history,
        agents: agents(full),
        observations: history,
        users: 1,
        algorithm: always(Algorithm::KernelUcb(KernelConfig {
            max_history: history as usize,
            ..Default::default()
        })),
    };
    let network = |name, statistic, full| Case {
        name,
        unit: "observations",
        size: 10,
        agents: agents(full),
        observations: 10,
        users: 1,
        algorithm: always(Algorithm::FnUcb(FnUcb {
            neural: NeuralConfig { statistic, hidden_width: 20, ..Default::default() },
            ..Default::default()
        })),
    };
    let private = Some(PrivacyConfig::default());
    vec![
        linear("async-lin-ucb", None, 100),
        linear("async-lin-ucb, private", private, 100),
        clicks(10, 2_000),
        clicks(100, 1_000),
        clicks(1_000, 100),
        users(10, 250),
        users(100, 40),
        history(100, 400),
        history(if quick { 300 } else { 1_000 }, 20),
        network("fn-ucb, 20 units, diagonals", Precondition::Diagonal, 400),
        network("fn-ucb, 20 units, whole matrices", Precondition::Full, 20),
    ]
}

fn always(algorithm: Algorithm) -> Box<dyn Fn(u64) -> Algorithm> {
    Box::new(move |_agents| algorithm.clone())
}

fn measure(case: &Case) -> anyhow::Result<MemoryAtRest> {
    let (name, agents) = (case.name, case.agents);
    let before = resident_bytes();
    let driven = Driven::new(case, agents).with_context(|| format!("memory of {name}"))?;
    let together = grown_since(before).map(|bytes| bytes / agents as f64);
    let state = driven.coordinator.save();
    let coordinator = copies(&(case.algorithm)(agents), &state)?.map(|bytes| bytes / agents as f64);
    drop(driven);
    Ok(MemoryAtRest {
        name: name.to_owned(),
        unit: case.unit.to_owned(),
        size: case.size,
        agents,
        bytes_per_agent: together.zip(coordinator).map(|(both, coordinator)| both - coordinator),
        coordinator_bytes_per_agent: coordinator,
    })
}

fn grown_since(before: Option<u64>) -> Option<f64> {
    before.zip(resident_bytes()).map(|(before, now)| now as f64 - before as f64)
}

/// Bytes of one coordinator, from several that are restored from one state. The first is not counted: it leaves free memory
/// behind, which the decoding of the others uses.
fn copies(algorithm: &Algorithm, state: &[u8]) -> anyhow::Result<Option<f64>> {
    let restored = || -> anyhow::Result<Box<dyn Coordinator>> {
        let mut coordinator = algorithm.coordinator(Shape::shared(DIMENSION))?;
        coordinator.restore(state).map_err(|error| anyhow!("{error}"))?;
        Ok(coordinator)
    };
    let mut kept = vec![restored()?];
    let before = resident_bytes();
    for _ in 0..COPIES {
        kept.push(restored()?);
    }
    let bytes = grown_since(before).map(|bytes| bytes / f64::from(COPIES));
    drop(kept);
    Ok(bytes)
}

/// A federation that acted and rests.
struct Driven {
    coordinator: Box<dyn Coordinator>,
    agents: Vec<Box<dyn Agent>>,
}

impl Driven {
    fn new(case: &Case, agents: u64) -> anyhow::Result<Self> {
        let horizon = agents * case.observations;
        let federation = Federation { agents, horizon, seed: Seed(0) };
        let shape = Shape::shared(DIMENSION);
        let algorithm = (case.algorithm)(agents);
        let coordinator = algorithm.coordinator(shape)?;
        let mut driven = Self { coordinator, agents: Vec::new() };
        for agent in (0..agents).map(AgentId) {
            driven.agents.push(algorithm.agent(agent, shape, &federation)?);
            let welcome = driven.coordinator.join(NOW, agent, Entrance::NewLife);
            driven.deliver(welcome)?;
        }
        let mut stream = Seed(3).stream("bench", 0, 0);
        for round in 0..case.observations {
            let user = round % case.users;
            for agent in (0..agents).map(AgentId) {
                driven.interact(agent, UserId(agent.0 * case.users + user), &mut stream)?;
            }
        }
        driven.agents.iter_mut().for_each(|agent| agent.rest());
        Ok(driven)
    }

    /// One choice, its reward, and all that is said because of it.
    fn interact(&mut self, from: AgentId, user: UserId, stream: &mut Stream) -> anyhow::Result<()> {
        let scale = (DIMENSION as f64).sqrt().recip();
        let features: Vec<f64> =
            (0..ARMS * DIMENSION).map(|_| scale * (2.0 * stream.uniform() - 1.0)).collect();
        let rows: Vec<&[f64]> = features.chunks_exact(DIMENSION).collect();
        let agent = &mut self.agents[from.0 as usize];
        let choice = agent.choose(user, &Arms::from_rows(DIMENSION, &rows)?)?;
        let x = rows[choice.arm];
        // Two kinds of users want opposite things. Clicks are 0 or 1, which suits the other families as well.
        let liked = (x[0] > 0.0) == user.0.is_multiple_of(2);
        let said = agent.learn(user, x, f64::from(u8::from(liked)))?;
        let Some(said) = said else { return Ok(()) };
        let answers = self.coordinator.receive(NOW, from, said).context("an upload of the benchmark")?;
        self.deliver(answers)
    }

    /// Delivers messages and what is said about them until all is quiet.
    fn deliver(&mut self, messages: Vec<Outgoing>) -> anyhow::Result<()> {
        let mut waiting = VecDeque::from(messages);
        while let Some(Outgoing { to, message }) = waiting.pop_front() {
            let recipients = match to {
                Recipient::Agent(agent) => agent.0..agent.0 + 1,
                Recipient::Everyone | Recipient::EveryoneBut(_) => 0..self.agents.len() as u64,
            };
            for agent in recipients.map(AgentId) {
                if to == Recipient::EveryoneBut(agent) {
                    continue;
                }
                let said = self.agents[agent.0 as usize]
                    .receive(message.clone())
                    .map_err(|error| anyhow!("{error}"))?;
                if let Some(said) = said {
                    waiting.extend(
                        self.coordinator.receive(NOW, agent, said).context("an answer of the benchmark")?,
                    );
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_row() {
        let effort = Effort::Quick;
        let rows: Vec<MemoryAtRest> =
            (0..memory_rows(effort)).map(|row| memory_at_rest(row, effort).unwrap().unwrap()).collect();
        assert!(memory_at_rest(rows.len(), effort).unwrap().is_none());
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let families = ["async-lin-ucb, private", "fed-glb-ucb-1", "fclub-dc", "kernel-ucb", "fn-ucb"];
        for name in families {
            assert!(names.iter().any(|own| own.starts_with(name)), "{name} of {names:?}");
        }
        // Other tests of this process take and free memory, too, so that the numbers themselves say nothing here.
        let told = resident_bytes().is_some();
        assert!(rows.iter().all(|row| row.bytes_per_agent.is_some() == told));
    }

    #[test]
    fn agents_have_shared_what_they_learned_before_they_rest() {
        for case in cases(Effort::Quick) {
            let driven = Driven::new(&case, 3).unwrap();
            let (name, observations) = (case.name, case.observations);
            assert_eq!(driven.agents.len(), 3);
            if name == "kernel-ucb" {
                assert_eq!(driven.coordinator.inspect().observations, 0, "kernels are learned alone");
            } else {
                assert!(driven.coordinator.inspect().observations >= observations, "{name}");
            }
        }
    }
}
