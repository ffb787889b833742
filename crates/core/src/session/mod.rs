//! Exactly-once, in-order delivery over links that lose, repeat, delay and reorder.
//!
//! An [`Endpoint`] wraps an agent, a [`Hub`] wraps the coordinator. Both are pure state machines: frames
//! and time go in, frames come out. Carry the frames by whatever means; the machines inside see every
//! message once and in order, however often a link dropped or doubled it.
//!
//! - **Uplinks** are numbered and sent one at a time: the next leaves when the last was acknowledged, and
//!   an unanswered one is sent again.
//! - **Downlinks** are numbered when they are made, also one at a time per agent. A snapshot that waits is
//!   replaced by a newer one, so a slow agent is only ever behind, never buried.
//! - **Incarnation.** An agent that lost its state begins a new life; what its old life sent and was sent
//!   is void.
//! - **Epoch.** A coordinator that lost part of its history begins a new epoch; each agent that comes back
//!   is introduced again and receives an authoritative snapshot.
//! - **Relays.** A relay's hub has the lower end of a link to its parent as well. What it hears there is logged
//!   like what it accepts from its children.
//! - **Log.** Whatever changes a hub is handed out as a [`LogEntry`]. Keep the entries before sending the
//!   frames that come with them, and [`Hub::replay`] brings the hub back with the same bits.

mod endpoint;
mod frame;
mod hub;
mod log;
mod relayed;
mod seats;
mod upstream;

pub use endpoint::Endpoint;
pub use frame::{DownFrame, UpFrame};
pub use hub::{Hub, Step};
pub use log::{LogEntry, LogEvent};
