//! Starting and stopping a coordinator.

#[cfg(feature = "agent")]
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posse_core::ConfigError;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tracing::{info, warn};

use super::admin::{self, AdminAccess};
use super::guard::{Guarded, Turns};
use super::incoming::{Addresses, Incoming, Places};
use super::limits::{Limits, Rates, Room};
use super::opening::{Opened, open};
use super::service::{Service, ServiceState};
use super::tls::{Certificates, Doorway};
use super::tokens::{TokenError, Tokens};
use crate::address::is_own;
use crate::clock::Clock;
use crate::federation::{Command, FederationConfig, FederationError, FederationHandle, ParentConfig};
use crate::http::Limited;
use crate::log::{FileLog, Log, LogError, StorageConfig, StorageKind};
use crate::metrics::Metrics;
use crate::trace::Tracer;
use crate::v1::coordinator_server::CoordinatorServer;

/// Connections at a time to the admin port.
const ADMIN_CONNECTIONS: usize = 256;
/// How often tokens, health and gauges are looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Settings of a coordinator process, as its configuration file has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeConfig {
    /// Where agents come to. Beyond loopback TLS is needed.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// Where metrics and health are, over plain HTTP. Default: nowhere.
    #[serde(default)]
    pub admin: Option<SocketAddr>,
    /// Where logs and tokens are kept.
    #[serde(default = "default_data")]
    pub data: PathBuf,
    /// Which kind of log is kept. Default: files in `data`.
    #[serde(default)]
    pub storage: StorageConfig,
    /// How agents prove who they are. Default: by tokens.
    #[serde(default)]
    pub authentication: Authentication,
    /// Certificates for TLS. Default: none, which is refused beyond loopback unless `Options::insecure` is
    /// set.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// Limits on connections, calls and frames.
    #[serde(default)]
    pub limits: Limits,
    /// The federations that this coordinator serves, each with its own log.
    #[serde(default, rename = "federation")]
    pub federations: Vec<FederationConfig>,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7447))
}

fn default_data() -> PathBuf {
    "posse-data".into()
}

/// How agents prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authentication {
    /// Each agent sends a token of its own.
    #[default]
    Token,
    /// Agents are believed who they say they are: for loopback.
    None,
}

/// Files with the certificates and keys of a coordinator, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate, with those that vouch for it.
    pub certificate: PathBuf,
    /// The private key of `certificate`.
    pub key: PathBuf,
    /// Who vouches for agents' certificates. If it is given, agents need one.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
}

/// What is not a matter of configuration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Listen beyond loopback without TLS or tokens.
    pub insecure: bool,
    /// Use a database that does not replicate synchronously, and may lose what it confirmed.
    pub allow_unreplicated: bool,
    /// The clock that gives every federation its time.
    pub clock: Clock,
    /// How the log in a directory is opened.
    pub log: LogKind,
    /// Where traces of uploads are sent. Default: nowhere.
    pub tracer: Option<Tracer>,
    /// The commit that the program was built from, for `posse_build_info`.
    pub commit: Option<String>,
    /// Do not link relays to their parents: their frames travel only when
    /// [`Running::exchange_with_parent`](Running::exchange_with_parent) is called. For tests that decide who speaks when.
    pub relays_by_hand: bool,
}

/// A kind of log: what opens one in a directory.
#[derive(Clone)]
pub struct LogKind(pub(super) Arc<Opener>);

pub(super) type Opener = dyn Fn(&Path) -> Result<Box<dyn Log>, LogError> + Send + Sync;

impl LogKind {
    /// Makes a kind of log from a function that opens the log in a directory.
    pub fn new(open: impl Fn(&Path) -> Result<Box<dyn Log>, LogError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }
}

impl Default for LogKind {
    fn default() -> Self {
        Self::new(|directory| Ok(Box::new(FileLog::open(directory)?)))
    }
}

impl std::fmt::Debug for LogKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogKind")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            insecure: false,
            allow_unreplicated: false,
            clock: Clock::system(),
            log: LogKind::default(),
            tracer: None,
            commit: None,
            relays_by_hand: false,
        }
    }
}

/// A coordinator that could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A federation cannot be brought back.
    #[error("federation \"{name}\": {error}")]
    Federation {
        /// The name of the federation.
        name: String,
        /// The error that kept the federation from opening.
        error: FederationError,
    },
    /// A relay does not find its parent, or is not taken there.
    #[error("federation \"{name}\" is a relay: {why}")]
    Relay {
        /// The name of the federation.
        name: String,
        /// What kept the relay from joining.
        why: String,
    },
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// A file of certificates cannot be read.
    #[error("{}: {error}", path.display())]
    Certificate {
        /// The file that could not be read.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// A file in the data directory cannot be written, or a database cannot be used.
    #[error(transparent)]
    Data(LogError),
    /// The coordinator cannot listen on the address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address from the configuration.
        address: SocketAddr,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The transport refused its settings.
    #[error("TLS: {0}")]
    Transport(String),
}

impl ServeConfig {
    /// A coordinator on a free port of loopback that believes its agents, for tests and demonstrations.
    #[must_use]
    pub fn on_loopback(data: &Path, federations: Vec<FederationConfig>) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin: None,
            data: data.into(),
            storage: StorageConfig::default(),
            authentication: Authentication::None,
            tls: None,
            limits: Limits::default(),
            federations,
        }
    }

    /// `Ok` if every setting is in its range and nothing dangerous is asked for.
    pub fn check(&self, insecure: bool) -> Result<(), ConfigError> {
        self.limits.check()?;
        self.storage.check()?;
        if cfg!(not(feature = "postgres")) && self.storage.kind == StorageKind::Postgres {
            let allowed = "this build of posse knows only files: build it with the feature `postgres`";
            return Err(ConfigError::new("kind", "postgres", allowed));
        }
        if self.federations.is_empty() {
            return Err(ConfigError::new(
                "federation",
                "missing",
                "there must be at least one [[federation]]",
            ));
        }
        let beyond = !self.listen.ip().is_loopback();
        if beyond && self.tls.is_none() && !insecure {
            let allowed = "beyond loopback [tls] is needed, or --insecure";
            return Err(ConfigError::new("listen", self.listen, allowed));
        }
        if beyond && self.authentication == Authentication::None && !insecure {
            let allowed = "beyond loopback tokens are needed, or --insecure";
            return Err(ConfigError::new("authentication", "none", allowed));
        }
        for (index, federation) in self.federations.iter().enumerate() {
            federation.check()?;
            if let Some(parent) = &federation.parent {
                self.check_parent(parent, &federation.name, insecure)?;
            }
            if self.federations[..index].iter().any(|other| other.name == federation.name) {
                let allowed = "every federation needs a name of its own";
                return Err(ConfigError::new("name", &federation.name, allowed));
            }
        }
        Ok(())
    }

    /// `Ok` if the coordinator of this federation can be a relay of `parent`.
    fn check_parent(
        &self,
        parent: &ParentConfig,
        federation: &str,
        insecure: bool,
    ) -> Result<(), ConfigError> {
        if self.storage.kind != StorageKind::Files {
            // Who a relay is at its parent is kept beside its log, in files.
            let allowed = "a relay keeps its log in files: leave out [storage]";
            return Err(ConfigError::new("parent", federation, allowed));
        }
        if let Some(own) = parent.coordinator.split(',').map(str::trim).find(|url| is_own(url, self.listen)) {
            return Err(ConfigError::new("coordinator", own, "a relay cannot be its own parent"));
        }
        if insecure { Ok(()) } else { parent.check_secrecy() }
    }

    /// `Ok` if the files that the settings name can be used: certificates are there and in order, and federations that
    /// have a log were begun with these settings. Changes nothing.
    pub fn check_files(&self) -> Result<(), ServeError> {
        self.tls.as_ref().map(Certificates::open).transpose()?;
        if self.storage.kind != StorageKind::Files {
            // What a database holds is looked at by `posse storage status`, and at the start.
            return Ok(());
        }
        if self.authentication == Authentication::Token {
            Tokens::open(&self.token_file())?;
        }
        for federation in &self.federations {
            let check = |parent: &ParentConfig| parent.check_files();
            federation.parent.as_ref().map_or(Ok(()), check).map_err(ServeError::Data)?;
            let begun = federation.check_begun(&self.log_directory(&federation.name));
            begun.map_err(|error| ServeError::Federation { name: federation.name.clone(), error })?;
        }
        Ok(())
    }

    /// Returns the path of the file with the tokens.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.data.join("tokens.json")
    }

    /// Returns the directory of a federation's log.
    #[must_use]
    pub fn log_directory(&self, federation: &str) -> PathBuf {
        self.data.join("federations").join(federation)
    }
}

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
    changeable: Arc<Changeable>,
    limits: Mutex<Limits>,
    /// Relays that speak to their parents by hand, by the name of their federation.
    #[cfg(feature = "agent")]
    by_hand: BTreeMap<String, tokio::sync::Mutex<crate::relay::ByHand>>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// What can change while the coordinator runs.
struct Changeable {
    tokens: Option<Arc<Tokens>>,
    certificates: Option<Arc<Certificates>>,
    shared: Arc<ServiceState>,
    places: Arc<Places>,
    addresses: Arc<Addresses>,
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
    /// there is more to send; `false` for a federation that is no relay. Only with [`Options::relays_by_hand`].
    #[cfg(feature = "agent")]
    pub async fn exchange_with_parent(&self, federation: &str) -> Result<bool, crate::RelayError> {
        match self.by_hand.get(federation) {
            Some(relay) => relay.lock().await.exchange().await,
            None => Ok(false),
        }
    }

    /// Whether the relay of a federation has something to say to its parent. Only with [`Options::relays_by_hand`].
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

/// Starts a coordinator: opens every federation from its log, then listens for agents. Fails if the settings
/// are impossible, a file cannot be read or an address is taken.
pub async fn serve(mut config: ServeConfig, options: Options) -> Result<Running, ServeError> {
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

/// Says over gRPC whether all federations are well and led from here.
async fn tell(health: &tonic_health::server::HealthReporter, federations: &[FederationHandle]) {
    let well =
        federations.iter().map(FederationHandle::standing).all(|own| own.trouble.is_none() && own.leads);
    let status = if well { ServingStatus::Serving } else { ServingStatus::NotServing };
    health.set_service_status("posse.v1.Coordinator", status).await;
    health.set_service_status("", status).await;
}

/// Notices changed tokens and certificates, and says how the federations are.
async fn housekeeping(
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
