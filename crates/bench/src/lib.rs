//! What `posse bench` measures, each beside a baseline in the same run: seconds differ from machine to
//! machine, ratios much less.
//!
//! It is a crate of its own so that the baselines are compiled for speed like the machines they are compared
//! with, while the rest of the command is compiled for a short build (decision 0061). It has no promise of a
//! stable interface.
#![forbid(unsafe_code)]

mod clock;
mod clustered;
mod coordinator;
mod gradient;
mod growth;
mod interaction;
mod kernels;
mod literal;
mod memory;
mod nonlinear;
mod numpy;
mod plain;
mod plain_nonlinear;
mod plain_refactorising;
mod population;
mod published;
mod roofline;
mod simulation;
mod solver;

use std::time::Instant;

use serde::Serialize;

use interaction::interactions;
use numpy::Numpy;

pub use clustered::{PhaseStep, phase_step, simulated as clustered};
pub use coordinator::{Uploads, uploads};
pub use gradient::{GradientSum, gradient_sums};
pub use growth::{Along, GrowthPoint, growth};
pub use interaction::Interactions;
pub use kernels::{KernelTime, kernels};
pub use memory::{MemoryAtRest, memory_at_rest, memory_rows};
pub use nonlinear::{Nonlinear, nonlinear};
pub use population::{PopulationTime, population, populations};
pub use published::{Published, PublishedRun, Repository, Versions};
pub use roofline::{Roofline, roofline};
pub use simulation::{Origin, Simulated, simulated, simulated_clicks};
pub use solver::{Solved, solved};

/// How long the benchmarks measure, and so how far their numbers can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A few seconds in all, for a first look.
    Quick,
    /// Sizes and repetitions for numbers that are to be quoted.
    Full,
}

/// A group of benchmarks that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// Single kernels of the linear and the generalized linear family.
    Kernels,
    /// Choosing and learning by one agent, beside plain loops and numpy.
    Agent,
    /// Taking in uploads, beside a literal coordinator.
    Coordinator,
    /// Whole simulations of the size of published figures, and of up to a million agents.
    Simulation,
    /// How the time of an interaction grows with arms, features, agents and interactions.
    Growth,
    /// The other families: generalized linear, clustered, networks and kernels.
    Families,
}

/// The results of one round of `posse bench`. What was not asked for is empty.
#[derive(Debug, Default, Serialize)]
pub struct Measurements {
    /// What one core can do at most, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roofline: Option<Roofline>,
    /// Memory of agents at rest, which the caller measures in processes of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryAtRest>,
    /// Single kernels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelTime>,
    /// Choosing among 25 arms and learning the reward.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interactions: Vec<Interactions>,
    /// The version of numpy that interactions were compared with, or `not found`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numpy: Option<String>,
    /// Taking in an upload when no agent is due for a download.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uploads: Vec<Uploads>,
    /// What ran the programs of papers' authors, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Versions>,
    /// Whole simulations of the linear family.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub simulations: Vec<Simulated>,
    /// Simulations of very many agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub populations: Vec<PopulationTime>,
    /// Simulations that differ in one size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<GrowthPoint>,
    /// Whole simulations of the generalized linear family.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clicks: Vec<Simulated>,
    /// Global updates of the generalized linear family.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub solvers: Vec<Solved>,
    /// Sums over what an agent of that family stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gradients: Vec<GradientSum>,
    /// Whole simulations with clustered users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clustered: Vec<Simulated>,
    /// The step between two phases at one agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseStep>,
    /// Choosing among 4 arms and learning the reward, with gradients of networks and with kernels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nonlinear: Vec<Nonlinear>,
}

impl Measurements {
    /// Runs the benchmarks of a suite and adds what they measure; simulations beside the programs of papers' authors that are
    /// `published`.
    pub fn add(&mut self, suite: Suite, effort: Effort, published: Option<&Published>) -> anyhow::Result<()> {
        let quick = effort == Effort::Quick;
        match suite {
            Suite::Kernels => self.kernels = kernels(effort)?,
            Suite::Agent => {
                let mut numpy = Numpy::start();
                self.interactions = [10, 25, 100]
                    .map(|d| interactions(d, &mut numpy, effort))
                    .into_iter()
                    .collect::<Result<_, _>>()?;
                self.numpy = Some(numpy.map_or(numpy::NOT_FOUND.to_owned(), |own| own.version().to_owned()));
            }
            Suite::Coordinator => {
                let agents = [10, 1_000, if quick { 10_000 } else { 1_000_000 }];
                self.uploads =
                    agents.map(|agents| uploads(agents, effort)).into_iter().collect::<Result<_, _>>()?;
            }
            Suite::Simulation => {
                self.simulations = simulated(effort, published)?;
                // The memory of a process does not shrink when agents are gone, so the largest federation comes last.
                for agents in [1_000, 10_000, 100_000, 1_000_000] {
                    for (place, algorithm) in populations().into_iter().enumerate() {
                        let most = match (quick, place) {
                            (true, _) => 10_000,
                            (false, 0) => 1_000_000,
                            (false, _) => 100_000,
                        };
                        if agents <= most {
                            self.populations.push(population(algorithm, agents)?);
                        }
                    }
                }
            }
            Suite::Growth => self.growth = growth(effort)?,
            Suite::Families => {
                self.clicks = simulated_clicks(effort, published)?;
                self.solvers = solved(effort)?;
                self.gradients =
                    [10, 25, 100].map(|d| gradient_sums(d, effort)).into_iter().collect::<Result<_, _>>()?;
                self.clustered = clustered(effort, published)?;
                let users = [100, 1000, if quick { 3000 } else { 10_000 }];
                self.phases = users.map(phase_step).into_iter().collect::<Result<_, _>>()?;
                self.nonlinear = nonlinear(effort)?;
            }
        }
        Ok(())
    }
}

/// The shortest of several times that `work` took, in seconds: what else the machine does only adds.
fn shortest(repetitions: u32, mut work: impl FnMut()) -> f64 {
    (0..repetitions)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}
