//! What `posse bench` measures, each beside a baseline in the same run: seconds differ from machine to
//! machine, ratios much less.
//!
//! It is a crate of its own so that the baselines are compiled for speed like the machines they are compared
//! with, while the rest of the command is compiled for a short build (decision 0061). It has no promise of a
//! stable interface.
#![forbid(unsafe_code)]

mod clustered;
mod coordinator;
mod gradient;
mod interaction;
mod literal;
mod nonlinear;
mod plain;
mod plain_nonlinear;
mod simulation;
mod solver;

use std::time::Instant;

use serde::Serialize;

pub use clustered::{PhaseStep, phase_step, simulated as clustered};
pub use coordinator::{Uploads, uploads};
pub use gradient::{GradientSum, gradient_sums};
pub use interaction::{Interactions, interactions};
pub use nonlinear::{Nonlinear, nonlinear};
pub use simulation::{Simulated, simulated, simulated_clicks};
pub use solver::{Solved, solved};

/// How long the benchmarks measure, and so how far their numbers can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A few seconds in all, for a first look.
    Quick,
    /// Sizes and repetitions for numbers that are to be quoted.
    Full,
}

/// The results of all benchmarks of one call of `posse bench`.
#[derive(Debug, Serialize)]
pub struct Measurements {
    /// Choosing among 25 arms and learning the reward.
    pub interactions: Vec<Interactions>,
    /// Taking in an upload when no agent is due for a download.
    pub uploads: Vec<Uploads>,
    /// Whole simulations of the linear family.
    pub simulations: Vec<Simulated>,
    /// Whole simulations of the generalized linear family.
    pub clicks: Vec<Simulated>,
    /// Global updates of the generalized linear family.
    pub solvers: Vec<Solved>,
    /// Sums over what an agent of that family stored.
    pub gradients: Vec<GradientSum>,
    /// Whole simulations with clustered users.
    pub clustered: Vec<Simulated>,
    /// The step between two phases at one agent.
    pub phases: Vec<PhaseStep>,
    /// Choosing among 4 arms and learning the reward, with gradients of networks and with kernels.
    pub nonlinear: Vec<Nonlinear>,
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
