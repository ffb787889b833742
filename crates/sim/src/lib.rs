//! A deterministic simulator for posse's agents and coordinators.
//!
//! A [`RunConfig`] says everything that determines a run: the algorithm, the [`world`] that offers arms and
//! pays rewards, whose turn it is, the [`network`] that carries messages, what goes wrong with machines, and
//! the seed. [`RunConfig::run`] plays it to the end in virtual time on one thread and returns a [`Tally`]:
//! regret, reward, and what communication cost in both directions. The same configuration gives the same
//! bits.
//!
//! ```
//! use posse_core::{Algorithm, AsyncLinUcb, LinUcb, Seed};
//! use posse_sim::RunConfig;
//! use posse_sim::world::{LinearConfig, WorldConfig};
//!
//! let world = WorldConfig::Linear(LinearConfig { dimension: 8, arms: 10, ..Default::default() });
//! let algorithm = Algorithm::LinUcb(LinUcb::default());
//! let alone = RunConfig { seed: Seed(1), ..RunConfig::new(world, 20, 2000, algorithm) };
//! let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
//! let together = RunConfig { algorithm, ..alone.clone() };
//!
//! // `()` is the observer that ignores everything.
//! let (alone, together) = (alone.run(&mut ())?, together.run(&mut ())?);
//! assert!(together.regret < 0.5 * alone.regret);
//! assert_eq!(alone.messages(), 0);
//! assert!(together.messages() < 2000);
//! # Ok::<(), posse_sim::RunError>(())
//! ```
//!
//! # Two networks
//!
//! With the default [`NetworkConfig`](network::NetworkConfig) and no faults, every message is delivered and
//! answered before the next interaction: the papers' model. Anything else puts every machine behind a
//! [session](posse_core::session): frames are lost, doubled, delayed and reordered, agents crash, the
//! coordinator restarts from its log. Links that do nothing wrong give the same choices and messages as the
//! papers' model.
//!
//! # Watching
//!
//! An [`Observer`] is called after every [`Event`] and may look at all machines. [`Invariants`] is one: it
//! checks after each event that evidence is conserved, models are those of their views, nothing goes
//! backwards, and in the end no machine waits for an answer.
//!
//! [`Curve`] and [`AgentGroups`] are others: what the run adds up to over time, for all agents or for the busy
//! and the quiet ones. [`Ledger`] divides the sums by agent and by kind of message.
//!
//! `examples/federation.rs` shows the machines without the simulator.
#![forbid(unsafe_code)]

mod adversary;
mod agent_groups;
mod curve;
mod gauge;
mod invariants;
mod ledger;
pub mod network;
mod observer;
mod simulation;
mod tally;
mod threads;
mod topology;
pub mod world;

pub use adversary::{AdversaryConfig, Lie};
pub use agent_groups::{AgentGroups, GroupBy};
pub use curve::Curve;
pub use gauge::Clustering;
pub use invariants::Invariants;
pub use ledger::{Ledger, Share};
pub use observer::{Direction, Event, Observer, Sent, Stage};
pub use simulation::{RunConfig, RunError};
pub use tally::{LevelCost, Tally};
pub use threads::Threads;
pub use topology::{LevelLinks, TopologyConfig};
