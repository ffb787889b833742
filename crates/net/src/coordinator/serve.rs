//! Starting a coordinator.

#[cfg(feature = "agent")]
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::Server;
use tracing::{info, warn};

use super::admin::{self, AdminAccess};
use super::config::ServeConfig;
use super::guard::{Guarded, Turns};
use super::incoming::{Addresses, Incoming, Places};
use super::limits::{Rates, Room};
use super::opening::{Opened, open};
use super::options::{Options, ServeError};
use super::running::{Changeable, Running, housekeeping, tell};
use super::service::{Service, ServiceState};
use super::tls::{Certificates, Doorway};
use crate::federation::FederationConfig;
use crate::http::Limited;
use crate::metrics::Metrics;
use crate::v1::coordinator_server::CoordinatorServer;

/// Connections at a time to the admin port.
const ADMIN_CONNECTIONS: usize = 256;

/// Starts a coordinator: opens every federation from its log, then listens for agents. Fails if the settings
/// are impossible, a file cannot be read or an address is taken.
pub fn serve(
    config: ServeConfig,
    options: Options,
) -> Pin<Box<dyn Future<Output = Result<Running, ServeError>> + Send>> {
    // The compiler translates the body of an `async fn` in the crate that polls it, and with it all of HTTP/2. As an object
    // it is translated here, with the optimisation of this crate and not that of the program around it.
    Box::pin(start(config, options))
}

async fn start(mut config: ServeConfig, options: Options) -> Result<Running, ServeError> {
    config.check(options.insecure)?;
    let metrics = Metrics::default();
    metrics.build(options.commit.as_deref());
    let certificates = config.tls.as_ref().map(Certificates::open).transpose()?.map(Arc::new);
    let listen = |address: SocketAddr| async move {
        TcpListener::bind(address).await.map_err(|error| ServeError::Listen { address, error })
    };
    let listener = listen(config.listen).await?;
    let address =
        listener.local_addr().map_err(|error| ServeError::Listen { address: config.listen, error })?;
    for federation in &mut config.federations {
        let directory = config.data.join("federations").join(&federation.name);
        *federation = introduced(federation, &directory).await?;
    }
    let Opened { tokens, federations } = open(&config, &options, &metrics, address).await?;
    let shared = Arc::new(ServiceState {
        federations: federations.clone(),
        tokens: tokens.clone(),
        rates: Rates::new(config.limits.frames_per_second),
        turns: Turns::default(),
        room: Room::new(config.limits.waiting_megabytes),
        metrics: metrics.clone(),
        links: AtomicU64::new(1),
    });
    let longest = config.federations.iter().map(FederationConfig::longest_frame).max().unwrap_or(0);
    // What is a little too long is refused by name; what is far too long is not even read.
    let unread = (longest + (3 * longest).min(1 << 20)) as usize + (64 << 10);
    let service = CoordinatorServer::new(Service(Arc::clone(&shared))).max_decoding_message_size(unread);
    let service = Guarded { service, shared: Arc::clone(&shared), metrics: metrics.clone() };
    let (health, health_service) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(crate::DESCRIPTION)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the committed descriptions are descriptions");
    let patience = Duration::from(config.limits.patience);
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(patience))
        .http2_keepalive_timeout(Some(patience))
        .max_concurrent_streams(u32::try_from(config.limits.streams_per_connection).unwrap_or(u32::MAX))
        // Room for a hundred uploads of 25 features on one connection while a batch is being synced.
        .initial_connection_window_size(Some(1 << 18))
        .http2_max_header_list_size(8 << 10);
    let places = Places::new(config.limits.connections);
    let addresses = Addresses::new(config.limits.connections_per_address);
    let changeable = Changeable {
        tokens,
        certificates: certificates.clone(),
        shared,
        places: Arc::clone(&places),
        addresses: Arc::clone(&addresses),
    };
    let incoming = Incoming { listener, places, addresses, patience, metrics: metrics.clone(), rest: None };
    let incoming = Doorway { incoming, certificates, patience, handshakes: JoinSet::new() };
    let (stop, stopped) = watch::channel(false);
    let until = |mut stopped: watch::Receiver<bool>| async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    // Health must be right before the first request can come.
    tell(&health, &federations).await;
    let router = server.add_service(service).add_service(health_service).add_service(reflection);
    let shutdown = until(stopped.clone());
    let mut tasks = vec![tokio::spawn(async move {
        if let Err(error) = router.serve_with_incoming_shutdown(incoming, shutdown).await {
            warn!(%error, "the service ended");
        }
    })];
    let mut admin_address = None;
    if let Some(wanted) = config.admin {
        let listener = listen(wanted).await?;
        let address = listener.local_addr().map_err(|error| ServeError::Listen { address: wanted, error })?;
        admin_address = Some(address);
        let access = AdminAccess::publish(address, &config.data).map_err(ServeError::Data)?;
        let site = admin::site(federations.clone(), metrics.clone(), &access);
        let shutdown = until(stopped.clone());
        tasks.push(tokio::spawn(async move {
            let listener = Limited::new(listener, ADMIN_CONNECTIONS, patience);
            let _ = axum::serve(listener, site).with_graceful_shutdown(shutdown).await;
        }));
    }
    #[cfg(feature = "agent")]
    let mut by_hand = BTreeMap::new();
    #[cfg(feature = "agent")]
    for relay in federations.iter().filter(|federation| federation.config().parent.is_some()) {
        if !options.relays_by_hand {
            tasks.push(tokio::spawn(crate::relay::drive(relay.clone(), stopped.clone())));
        } else if let Some(made) = crate::relay::ByHand::new(relay.clone()) {
            let name = relay.config().name.clone();
            let refused =
                |error: crate::RelayError| ServeError::Relay { name: name.clone(), why: error.to_string() };
            by_hand.insert(name.clone(), tokio::sync::Mutex::new(made.map_err(refused)?));
        }
    }
    let changeable = Arc::new(changeable);
    tasks.push(tokio::spawn(housekeeping(federations.clone(), Arc::clone(&changeable), health, stopped)));
    info!(%address, federations = federations.len(), tls = config.tls.is_some(), "listening");
    let limits = Mutex::new(config.limits);
    Ok(Running {
        address,
        admin: admin_address,
        federations,
        metrics,
        changeable,
        limits,
        #[cfg(feature = "agent")]
        by_hand,
        stop,
        tasks,
    })
}

/// The settings of a federation, with who it is at its parent if it is a relay.
#[cfg(feature = "agent")]
async fn introduced(federation: &FederationConfig, directory: &Path) -> Result<FederationConfig, ServeError> {
    let introduced = crate::relay::introduce(federation.clone(), directory).await;
    introduced.map_err(|error| ServeError::Relay { name: federation.name.clone(), why: error.to_string() })
}

/// A program that was built without agents cannot be one to a parent.
#[cfg(not(feature = "agent"))]
async fn introduced(
    federation: &FederationConfig,
    _directory: &Path,
) -> Result<FederationConfig, ServeError> {
    if federation.parent.is_some() {
        let why = "this program was built without the feature `agent`".to_owned();
        return Err(ServeError::Relay { name: federation.name.clone(), why });
    }
    Ok(federation.clone())
}
