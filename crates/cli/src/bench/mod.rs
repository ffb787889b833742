//! Measurements, each beside a baseline in the same run: seconds differ from machine to machine, ratios
//! much less.

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

pub(crate) use clustered::{PhaseStep, phase_step, simulated as clustered};
pub(crate) use coordinator::{Uploads, uploads};
pub(crate) use gradient::{GradientSum, gradient_sums};
pub(crate) use interaction::{Interactions, interactions};
pub(crate) use nonlinear::{Nonlinear, nonlinear};
pub(crate) use simulation::{Simulated, simulated, simulated_clicks};
pub(crate) use solver::{Solved, solved};

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A look: a few seconds.
    Quick,
    /// Numbers to quote.
    Full,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Measurements {
    /// Choosing among 25 arms and learning the reward.
    pub(crate) interactions: Vec<Interactions>,
    /// Taking in an upload when nobody is due for a download.
    pub(crate) uploads: Vec<Uploads>,
    /// Whole simulations.
    pub(crate) simulations: Vec<Simulated>,
    /// Whole simulations of the generalized linear family.
    pub(crate) clicks: Vec<Simulated>,
    /// Global updates of the generalized linear family.
    pub(crate) solvers: Vec<Solved>,
    /// Sums over what an agent of that family stored.
    pub(crate) gradients: Vec<GradientSum>,
    /// Whole simulations with clustered users.
    pub(crate) clustered: Vec<Simulated>,
    /// The step between two phases at one agent.
    pub(crate) phases: Vec<PhaseStep>,
    /// Choosing among 4 arms and learning the reward, with gradients of networks and with kernels.
    pub(crate) nonlinear: Vec<Nonlinear>,
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
