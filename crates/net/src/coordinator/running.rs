//! A coordinator that runs: what can change meanwhile, and how it stops.

#[cfg(feature = "agent")]
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posse_core::ConfigError;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic_health::ServingStatus;
use tracing::{info, warn};

use super::incoming::{Addresses, Places};
use super::limits::Limits;
use super::service::ServiceState;
use super::tls::Certificates;
use super::tokens::Tokens;
use crate::federation::{Command, FederationHandle};
use crate::metrics::Metrics;

/// How often tokens, health and gauges are looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// A coordinator that runs, until [`drain`](Self::drain) or [`abort`](Self::abort) stops it.
#[derive(Debug)]
pub struct Running {
    /// The address that agents connect to, with the port that the system chose if 0 was configured.
    pub address: SocketAddr,
    /// The address of metrics and health, if they are served.
    pub admin: Option<SocketAddr>,
    /// Handles of all federations, in the order of the configuration.
    pub federations: Vec<FederationHandle>,
    /// The counters that `/metrics` shows.
    pub metrics: Metrics,
    pub(super) changeable: Arc<Changeable>,
    pub(super) limits: Mutex<Limits>,
    /// Relays that speak to their parents by hand, by the name of their federation.
    #[cfg(feature = "agent")]
    pub(super) by_hand: BTreeMap<String, tokio::sync::Mutex<crate::relay::ByHand>>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) tasks: Vec<JoinHandle<()>>,
}

/// What can change while the coordinator runs.
pub(super) struct Changeable {
    pub(super) tokens: Option<Arc<Tokens>>,
    pub(super) certificates: Option<Arc<Certificates>>,
    pub(super) shared: Arc<ServiceState>,
    pub(super) places: Arc<Places>,
    pub(super) addresses: Arc<Addresses>,
}

impl std::fmt::Debug for Changeable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Changeable")
    }
}

impl Running {
    /// Reads tokens and certificates again at once. Otherwise a change is noticed within a second.
    pub async fn reload(&self) {
        reload(&self.changeable, &self.federations).await;
    }

    /// Sets other limits. They hold for what comes from now on: connections that are open stay. Returns the names of
    /// those that hold only after a restart. Fails and changes nothing if a limit is out of its range.
    pub fn set_limits(&self, limits: &Limits) -> Result<Vec<&'static str>, ConfigError> {
        limits.check()?;
        let mut current = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let Changeable { shared, places, addresses, .. } = &*self.changeable;
        places.set(limits.connections);
        addresses.set(limits.connections_per_address);
        shared.rates.set(limits.frames_per_second);
        shared.room.set(limits.waiting_megabytes);
        let fixed = [
            ("streams_per_connection", current.streams_per_connection, limits.streams_per_connection),
            ("patience", current.patience.as_micros(), limits.patience.as_micros()),
        ];
        let Limits { streams_per_connection, patience, .. } = *current;
        *current = Limits { streams_per_connection, patience, ..limits.clone() };
        Ok(fixed.into_iter().filter(|(_, was, is)| was != is).map(|(name, ..)| name).collect())
    }

    /// Returns the federation called `name`, if this coordinator serves it.
    #[must_use]
    pub fn federation(&self, name: &str) -> Option<&FederationHandle> {
        self.federations.iter().find(|federation| federation.config().name == name)
    }

    /// Sends what the relay of a federation has to say to its parent, or asks, and takes in what waits there. Says whether
    /// there is more to send; `false` for a federation that is no relay. Only with [`Options::relays_by_hand`](super::Options::relays_by_hand).
    #[cfg(feature = "agent")]
    pub async fn exchange_with_parent(&self, federation: &str) -> Result<bool, crate::RelayError> {
        match self.by_hand.get(federation) {
            Some(relay) => relay.lock().await.exchange().await,
            None => Ok(false),
        }
    }

    /// Whether the relay of a federation has something to say to its parent. Only with [`Options::relays_by_hand`](super::Options::relays_by_hand).
    #[cfg(feature = "agent")]
    pub async fn has_mail_for_parent(&self, federation: &str) -> bool {
        match self.by_hand.get(federation) {
            Some(relay) => relay.lock().await.has_mail(),
            None => false,
        }
    }

    /// Finishes what was begun, saves every state and stops.
    pub async fn drain(self) {
        for federation in &self.federations {
            federation.drain().await;
        }
        let _ = self.stop.send(true);
        for task in self.tasks {
            let _ = tokio::time::timeout(Duration::from_secs(5), task).await;
        }
        info!("stopped");
    }

    /// Stops as if the power had failed.
    pub async fn abort(self) {
        for task in &self.tasks {
            task.abort();
        }
        let _ = self.stop.send(true);
        for federation in &self.federations {
            federation.abort().await;
        }
    }
}

/// Says over gRPC whether all federations are well and led from here.
pub(super) async fn tell(health: &tonic_health::server::HealthReporter, federations: &[FederationHandle]) {
    let well =
        federations.iter().map(FederationHandle::standing).all(|own| own.trouble.is_none() && own.leads);
    let status = if well { ServingStatus::Serving } else { ServingStatus::NotServing };
    health.set_service_status("posse.v1.Coordinator", status).await;
    health.set_service_status("", status).await;
}

/// Notices changed tokens and certificates, and says how the federations are.
pub(super) async fn housekeeping(
    federations: Vec<FederationHandle>,
    changeable: Arc<Changeable>,
    health: tonic_health::server::HealthReporter,
    mut stopped: watch::Receiver<bool>,
) {
    let mut interval = tokio::time::interval(HOUSEKEEPING);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        tell(&health, &federations).await;
        reload(&changeable, &federations).await;
    }
}

/// Reads tokens and certificates again if their files have changed.
async fn reload(changeable: &Changeable, federations: &[FederationHandle]) {
    if let Some(tokens) = &changeable.tokens {
        reload_tokens(Arc::clone(tokens), federations).await;
    }
    if let Some(Err(error)) = changeable.certificates.as_deref().map(Certificates::reload) {
        warn!(%error, "the certificates cannot be read again: the old ones stay");
    }
}

/// Reads the tokens again, and cuts the links of agents whose tokens are void.
async fn reload_tokens(tokens: Arc<Tokens>, federations: &[FederationHandle]) {
    // Tokens in a database take a moment.
    let Ok(reloaded) = tokio::task::spawn_blocking(move || tokens.reload()).await else { return };
    match reloaded {
        Ok(agents) => {
            for agent in agents {
                for federation in federations {
                    federation.send(Command::CutLink { agent, why: "the token is not valid any more" }).await;
                }
            }
        }
        Err(error) => warn!(%error, "tokens cannot be read again: the old ones stay"),
    }
}
