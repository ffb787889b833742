//! The linear family: rewards are linear in an arm's features.

pub(crate) mod ages;
pub(crate) mod alternating;
pub(crate) mod async_lin_ucb;
pub(crate) mod async_lin_ucb_am;
pub(crate) mod evidence_rounds;
pub(crate) mod exchange;
pub(crate) mod exchange_agent;
pub(crate) mod exchange_coordinator;
pub(crate) mod exchange_lin_ucb;
pub(crate) mod exchange_price;
pub(crate) mod exchange_relay;
pub(crate) mod fed_lin_ucb;
pub(crate) mod fed_ucb;
pub(crate) mod inverse_gap;
pub(crate) mod lin_phe;
pub(crate) mod lin_ts;
pub(crate) mod lin_ucb;
pub(crate) mod parts;
pub(crate) mod round_relay;
pub(crate) mod rule;
pub(crate) mod span;
pub(crate) mod sync_lin_ucb;
pub(crate) mod trust;
pub(crate) mod warnings;
pub(crate) mod windows;

pub use async_lin_ucb::{AsyncLinPhe, AsyncLinTs, AsyncLinUcb, Override, ProtocolConfig};
pub use async_lin_ucb_am::AsyncLinUcbAm;
pub use exchange_lin_ucb::{ExchangeConfig, ExchangeLinIgw, ExchangeLinTs, ExchangeLinUcb, Memory, Robust};
pub use fed_lin_ucb::FedLinUcb;
pub use fed_ucb::FedUcb;
pub use lin_phe::Perturbation;
pub use lin_ucb::{LinTs, LinUcb};
pub use sync_lin_ucb::SyncLinUcb;
