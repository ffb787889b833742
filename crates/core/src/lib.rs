//! Federated contextual bandits as pure state machines.
//!
//! Many **agents** choose among **arms** for their own users and learn from the **rewards**. They share what
//! they learned through a **coordinator**: sums over observations ([`Evidence`]), never the observations one
//! by one, and only when sharing is worth a message.
//!
//! This crate holds the algorithms and nothing around them. It does no input or output, reads no clock,
//! starts no thread and draws no random number that was not named in its configuration.
//!
//! # How to drive it
//!
//! [`Algorithm`] is the one list of algorithms. It builds an [`Agent`] for each agent and one
//! [`Coordinator`]. Then it is your turn:
//!
//! 1. [`Coordinator::join`] when an agent appears.
//! 2. [`Agent::choose`] with an offer of [`Arms`]; play the arm it names.
//! 3. [`Agent::learn`] with the features of that arm and its reward, whenever the reward comes.
//! 4. Bring every [`Uplink`] that an agent returns to [`Coordinator::receive`], and every message of an
//!    [`Outgoing`] that the coordinator returns to [`Agent::receive`] of its recipients: once each, in order.
//! 5. [`Coordinator::tick`] at [`Coordinator::deadline`], if it names one.
//!
//! Nothing is queued inside and no method waits. An `Err` means that nothing has changed. The same calls in
//! the same order give the same bits on every processor.
//!
//! Two agents, one coordinator, a hundred interactions:
//!
//! ```
//! use posse_core::{
//!     AgentId, Algorithm, Arms, AsyncLinUcb, Entrance, Federation, Outgoing, Seed, Shape, Tick, UserId,
//! };
//!
//! let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
//! let federation = Federation { agents: 2, horizon: 100, seed: Seed(7) };
//! let shape = Shape::shared(2); // two features that mean the same to all agents
//! let mut coordinator = algorithm.coordinator(shape)?;
//! let mut agents = Vec::new();
//! let now = Tick(1_700_000_000_000_000); // microseconds of any clock that does not jump
//! for id in [AgentId(0), AgentId(1)] {
//!     agents.push(algorithm.agent(id, shape, &federation)?);
//!     coordinator.join(now, id, Entrance::NewLife);
//! }
//!
//! let arms = Arms::from_rows(2, &[[1.0, 0.0], [0.6, 0.8]])?;
//! let mut uploads = 0;
//! for step in 0..100 {
//!     let id = AgentId(step % 2);
//!     let agent = &mut agents[id.0 as usize];
//!     let arm = agent.choose(UserId(0), &arms)?.arm;
//!     let reward = [0.2, 0.7][arm];
//!
//!     // What the agent says, and everything that is said because of it.
//!     let mut said = Vec::from_iter(agent.learn(UserId(0), arms.row(arm), reward)?.map(|up| (id, up)));
//!     while let Some((from, uplink)) = said.pop() {
//!         uploads += 1;
//!         for Outgoing { to, message } in coordinator.receive(now, from, uplink)? {
//!             for id in [AgentId(0), AgentId(1)].into_iter().filter(|id| to.includes(*id)) {
//!                 let answer = agents[id.0 as usize].receive(message.clone())?;
//!                 said.extend(answer.map(|up| (id, up)));
//!             }
//!         }
//!     }
//! }
//!
//! // Every observation is with the coordinator or in the buffer of the agent that made it.
//! let unsent: u64 = agents.iter().map(|agent| agent.inspect().unsent).sum();
//! assert_eq!(coordinator.inspect().observations + unsent, 100);
//! assert!(uploads < 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Real links lose, repeat, delay and reorder. [`session`] stands between them and the machines and makes
//! step 4 hold: an [`Endpoint`](session::Endpoint) around each agent, a [`Hub`](session::Hub) around the
//! coordinator. [`wire`] is the encoding of messages, frames, logs and saved states.
//!
//! # Where to go next
//!
//! - [`Agent`] and [`Coordinator`] have the contract in full; [`Uplink`] and [`Downlink`] are all the messages.
//! - [`Cost`] is what a message costs, in messages, scalars and bytes.
//! - `posse-sim` drives these machines through worlds and over faulty links; its tests are the oracles.
//! - `docs/algorithms` in the repository has a page for each algorithm, `docs/protocol.md` the rules of
//!   delivery.
#![forbid(unsafe_code)]
// The derive of `settings` names this crate as its users do.
extern crate self as posse_core;

mod agent;
mod algorithm;
mod aligned;
mod arm_draws;
mod arms;
mod buffer;
mod clustered;
mod columns;
mod coordinator;
mod cost;
mod error;
mod evidence;
mod exchange;
mod exponential;
mod factor;
mod federation;
mod glm;
mod ids;
mod kernel;
mod lanes;
mod linear;
mod message;
mod neural;
mod outer;
mod parcel;
pub mod privacy;
mod random;
mod recipe;
mod relay;
mod ridge;
mod rounded;
mod scoring;
pub mod session;
pub mod settings;
mod time_span;
mod trigger;
mod width;
pub mod wire;
mod workers;

pub use agent::*;
pub use algorithm::{Algorithm, Levels, Outside, OutsideFactory, Registry};
pub use arms::Arms;
pub use clustered::{
    CdpFclubDc, Club, ClusterConfig, Fclub, FclubDc, Homo, HomoDc, Linkage, Sclub, UserLinUcb,
};
pub use coordinator::*;
pub use cost::Cost;
pub use error::*;
pub use evidence::{Evidence, packed};
pub use exchange::{JoinPolicy, RoundConfig};
pub use federation::{Federation, Placement};
pub use glm::{
    FedGlbUcb, FedGlbUcb3, GlmConfig, LinkFunction, OnsGlm, Precision, PrivateGlmUcb, RoundClock,
    ScheduledGlbUcb, Solver, SolverConfig, UcbGlm,
};
pub use ids::*;
pub use kernel::{Kernel, KernelConfig};
pub use linear::{
    AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, ExchangeConfig, ExchangeLinIgw, ExchangeLinTs,
    ExchangeLinUcb, FedLinUcb, FedUcb, LinTs, LinUcb, Memory, Override, Perturbation, ProtocolConfig, Robust,
    SyncLinUcb,
};
pub use message::*;
pub use neural::{
    AlphaRule, FeaturePoint, FnUcb, NetworkKind, NeuralConfig, NeuralUcb, Precondition, TrainingData,
    TrainingMode, Trigger,
};
pub use parcel::{LowRank, Parcel};
pub use privacy::{NoiseSource, PrivacyConfig, PrivacyReport, SecureAggregation};
pub use random::{Domain, Seed, Stream, normal};
pub use recipe::{Payload, Recipe, Sharing};
pub use relay::*;
pub use ridge::Ridge;
pub use rounded::Rounded;
pub use time_span::{NotATimeSpan, TimeSpan};
pub use trigger::Threshold;
pub use width::{ModelConfig, WidthForm};
pub use workers::{Piece, ThisThread, Workers};
