//! The simulator: a world, an algorithm and a network, run to the end in virtual time. Other threads may prepare what the
//! world offers, let agents look ahead, let agents work whose work concerns no other agent yet, and share what a coordinator
//! hands out.

mod ahead;
mod errands;
mod ideal;
mod linked;
mod population;
mod queue;

use std::sync::Arc;

use posse_core::{
    Algorithm, ConfigError, Federation, InputError, JoinPolicy, Levels, Placement, ProtocolError, Relay,
    Seed, Shape, Sharing, ThisThread, Workers,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::adversary::AdversaryConfig;
use crate::network::{FaultConfig, NetworkConfig};
use crate::observer::Observer;
use crate::tally::Tally;
use crate::threads::Threads;
use crate::topology::TopologyConfig;
use crate::world::{ArrivalConfig, Arrivals, Offer, World, WorldConfig};
use ahead::Ahead;
use errands::Errands;
use population::Population;

/// Everything that determines a run. The same configuration gives the same bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// The seed from which every random stream of the run is derived.
    pub seed: Seed,
    /// How many agents there are.
    pub agents: u64,
    /// How many interactions there are, over all agents.
    pub horizon: u64,
    /// The world: what is offered to agents, and what it is worth.
    #[serde(rename = "environment")]
    pub world: WorldConfig,
    /// The order in which agents act, unless the world itself decides it.
    pub arrival: ArrivalConfig,
    /// How messages travel between agents and the coordinator.
    pub network: NetworkConfig,
    /// What goes wrong with machines.
    pub faults: FaultConfig,
    /// Which agents lie, and how.
    #[serde(default, skip_serializing_if = "AdversaryConfig::is_empty")]
    pub adversaries: AdversaryConfig,
    /// Relays between agents and the coordinator.
    // Left out without relays, so that cells of experiments without them keep their ids.
    #[serde(default, skip_serializing_if = "TopologyConfig::is_flat")]
    pub topology: TopologyConfig,
    /// The algorithm that agents and coordinator run, with its settings.
    pub algorithm: Algorithm,
}

/// A run that could not start or go on.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum RunError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An agent refused what the world offered.
    #[error("interaction {step}: {error}")]
    Input {
        /// The interaction at which it happened, counted from 0.
        step: u64,
        /// Why the agent refused its input.
        error: InputError,
    },
    /// A machine refused what another one said: a bug in one of them.
    #[error("the machines disagree: {0}")]
    Protocol(#[from] ProtocolError),
    /// An observer answered with `Break`.
    #[error("stopped after {interactions} interactions")]
    Stopped {
        /// How many interactions there were before the run was stopped.
        interactions: u64,
    },
}

/// Tells `observer` how far the run has come. Returns [`RunError::Stopped`] if the observer answers with
/// `Break`.
fn report(tally: &Tally, observer: &mut dyn Observer) -> Result<(), RunError> {
    let stopped = RunError::Stopped { interactions: tally.interactions };
    if observer.interacted(tally).is_break() { Err(stopped) } else { Ok(()) }
}

impl RunConfig {
    /// A run with seed 0 in which agents take turns at random, messages are never lost, no machine fails and no
    /// agent lies. Change the fields that should differ: `RunConfig { seed, ..RunConfig::new(…) }`.
    #[must_use]
    pub fn new(world: WorldConfig, agents: u64, horizon: u64, algorithm: Algorithm) -> Self {
        Self {
            seed: Seed(0),
            agents,
            horizon,
            world,
            arrival: ArrivalConfig::Uniform,
            network: NetworkConfig::default(),
            faults: FaultConfig::default(),
            adversaries: AdversaryConfig::default(),
            topology: TopologyConfig::default(),
            algorithm,
        }
    }

    /// Checks every setting without running anything.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.prepare().map(drop)
    }

    /// How many interactions each agent has in this run, in the order of ids. It does not depend on the
    /// algorithm.
    pub fn activity(&self) -> Result<Vec<u64>, ConfigError> {
        let mut arrivals = self.arrivals()?;
        let mut activity = vec![0; usize::try_from(self.agents).expect("agents fit in memory")];
        for step in 0..self.horizon {
            activity[arrivals.agent(step).0 as usize] += 1;
        }
        Ok(activity)
    }

    /// Runs all interactions and returns what the run adds up to. Fails before the first interaction if a
    /// setting is out of range, and later if a machine refuses its input or `observer` stops the run.
    pub fn run(&self, observer: &mut dyn Observer) -> Result<Tally, RunError> {
        self.play(self.prepare()?, observer, None)
    }

    /// Like [`run`](Self::run), with the same bits, on up to `threads` threads. The others prepare what the world offers, let
    /// agents of linear algorithms look for their arms ahead of their turns, let agents with networks choose, learn and train
    /// while the coordinator has nothing to say to any other agent, and share the coordinator's work on large matrices. A world from outside of posse is asked on this thread alone;
    /// an observer that [looks at machines](Observer::looks_at_machines) keeps agents on it, too.
    ///
    /// Helps in large runs: agents that act again within 64 interactions cannot look ahead, nor can one learner for all. What
    /// linear agents learn, and what the coordinator does with small messages, stays on this thread.
    pub fn run_on(&self, threads: usize, observer: &mut dyn Observer) -> Result<Tally, RunError> {
        self.run_ahead(threads, false, observer)
    }

    /// Runs on several threads with agents that look ahead in every batch, whether that saves time or not. Tests use it to
    /// show that it changes no bit; it is no part of the interface.
    #[doc(hidden)]
    pub fn run_rehearsed(&self, threads: usize, observer: &mut dyn Observer) -> Result<Tally, RunError> {
        self.run_ahead(threads, true, observer)
    }

    fn run_ahead(
        &self,
        threads: usize,
        is_patient: bool,
        observer: &mut dyn Observer,
    ) -> Result<Tally, RunError> {
        let mut cast = self.prepare()?;
        if threads < 2 {
            return self.play(cast, observer, None);
        }
        cast.workers = Arc::new(Threads(threads));
        let is_outside = matches!(self.world, WorldConfig::Outside(_));
        let world = |_| Ok((self.world.build(self.agents, self.seed)?, self.arrivals()?));
        let worlds = (1..threads).filter(|_| !is_outside);
        let worlds = worlds.map(world).collect::<Result<Vec<_>, ConfigError>>()?;
        std::thread::scope(|scope| {
            if !is_outside {
                let mut ahead = Ahead::start(scope, worlds, self.horizon);
                ahead.is_patient = is_patient;
                cast.ahead = Some(ahead);
            }
            let may_be_ahead = !observer.looks_at_machines();
            let errands = may_be_ahead.then(|| Errands::start(scope, threads - 1));
            self.play(cast, observer, errands)
        })
    }

    fn play(
        &self,
        cast: Cast,
        observer: &mut dyn Observer,
        errands: Option<Errands>,
    ) -> Result<Tally, RunError> {
        if self.network.is_ideal() && self.faults.is_empty() && !self.topology.has_trouble() {
            ideal::run(self, cast, observer, ideal::AWAKE, errands)
        } else {
            linked::run(self, cast, observer, false)
        }
    }

    /// Runs as if the coordinator counted every upload twice. Tests of the invariants use it to show that the
    /// invariants would notice; it is no part of the interface.
    #[doc(hidden)]
    pub fn run_with_planted_bug(&self, observer: &mut dyn Observer) -> Result<Tally, RunError> {
        linked::run(self, self.prepare()?, observer, true)
    }

    /// Runs with only so many agents awake at a time. Tests use it to show that resting changes no bit; it is no part of the
    /// interface.
    #[doc(hidden)]
    pub fn run_with_awake(&self, awake: usize, observer: &mut dyn Observer) -> Result<Tally, RunError> {
        ideal::run(self, self.prepare()?, observer, awake, None)
    }

    fn prepare(&self) -> Result<Cast, ConfigError> {
        if self.horizon == 0 {
            return Err(ConfigError::new("horizon", 0, "it must be at least 1"));
        }
        let world = self.world.build(self.agents, self.seed)?;
        if world.length().is_some_and(|length| self.horizon > length) {
            let allowed = "the data has fewer interactions; `posse data inspect` counts them as events";
            return Err(ConfigError::new("horizon", self.horizon, allowed));
        }
        if world.length().is_some() && self.arrival != ArrivalConfig::Uniform {
            let allowed = "recorded interactions have arrivals of their own: leave out [arrival]";
            return Err(ConfigError::new("kind", "not uniform", allowed));
        }
        let arrivals = self.arrivals()?;
        self.network.check()?;
        self.faults.check()?;
        self.adversaries.check(self.agents)?;
        let rounds = matches!(&self.algorithm, Algorithm::SyncLinUcb(config) if config.privacy.is_none());
        let uploads = self.algorithm.sharing() == Sharing::Uploads && !self.algorithm.takes_local_features();
        let plain = rounds || uploads;
        if !self.adversaries.is_empty() && !plain {
            let allowed =
                "[adversaries] needs an algorithm whose agents upload evidence, such as exchange-lin-ucb";
            return Err(ConfigError::new("name", self.algorithm.name(), allowed));
        }
        let shapes = || (0..self.agents).map(|agent| world.shape(posse_core::AgentId(agent)));
        let first = world.shape(posse_core::AgentId(0));
        self.algorithm.check(first)?;
        if !self.algorithm.takes_local_features() && shapes().any(|shape| shape != first) {
            let allowed = "agents with different numbers of features need async-lin-ucb-am or lin-ucb";
            return Err(ConfigError::new("name", self.algorithm.name(), allowed));
        }
        if let (Some(link), Some(rewards)) = (self.algorithm.link_function(), world.rewards())
            && !rewards.fit(link)
        {
            return Err(ConfigError::new("link", link.name(), rewards.allowed_links()));
        }
        let central = self.algorithm.placement() == Placement::Central;
        let separate = self.network != NetworkConfig::default() || !self.faults.is_empty();
        if central && separate {
            let allowed = "a central learner has no network: leave out [network] and [faults]";
            return Err(ConfigError::new("name", self.algorithm.name(), allowed));
        }
        self.topology.check()?;
        let federation = self.federation();
        let relaying = self.algorithm.with_recipe(|recipe| recipe.relaying(&federation));
        let levels = Levels::new(&self.algorithm, &federation, &self.topology.thresholds(&relaying))?;
        Ok(Cast { world, arrivals, ahead: None, workers: Arc::new(ThisThread), shape: first, levels })
    }

    fn arrivals(&self) -> Result<Box<dyn Arrivals>, ConfigError> {
        self.arrival.build(self.agents, self.horizon, self.seed)
    }

    /// New relays, by depth.
    fn relays(&self, cast: &Cast) -> Result<Vec<Vec<Box<dyn Relay>>>, ConfigError> {
        let at = |(depth, count): (usize, u64)| {
            (0..count).map(|_| cast.levels.relay(depth + 1, cast.shape)).collect::<Result<_, _>>()
        };
        self.topology.relays().into_iter().enumerate().map(at).collect()
    }

    fn federation(&self) -> Federation {
        Federation { agents: self.agents, horizon: self.horizon, seed: self.seed }
    }

    fn population(&self, cast: &Cast) -> Population {
        let of_agents = cast.levels.algorithm(cast.levels.depth() - 1).clone();
        Population::new(of_agents, self.federation(), &self.adversaries)
    }

    fn joins_at_start(&self) -> bool {
        self.algorithm.join_policy() == JoinPolicy::Eager
    }
}

/// The world and the arrivals of one run, built from its configuration.
struct Cast {
    world: Box<dyn World>,
    arrivals: Box<dyn Arrivals>,
    /// Where offers come from, if other threads prepare them.
    ahead: Option<Ahead>,
    /// Who shares the coordinator's work.
    workers: Arc<dyn Workers>,
    /// The arms' shape as the coordinator sees it.
    shape: Shape,
    /// The algorithm, spread over the levels of the topology.
    levels: Levels,
}

impl Cast {
    /// Fills in the offer of interaction `step`: whose turn it is, and what that agent meets. Interactions are asked for in
    /// their order.
    fn next(&mut self, step: u64, offer: &mut Offer) {
        match &mut self.ahead {
            Some(ahead) => {
                ahead.next(&mut *self.world, &mut *self.arrivals, step, offer);
                ahead.hand_out();
            }
            None => ahead::ask(&mut *self.world, &mut *self.arrivals, step, offer),
        }
    }
}
