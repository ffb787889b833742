//! Opening federations and tokens where they are kept: in files, or in a database.

use std::net::SocketAddr;
use std::sync::Arc;

use super::config::{Authentication, ServeConfig};
use super::options::{Options, ServeError};
use super::tokens::Tokens;
use crate::federation::{FederationError, FederationHandle, Watching};
use crate::log::StorageKind;
use crate::metrics::Metrics;

/// What a coordinator has open.
pub(super) struct Opened {
    /// `None`: agents are believed who they say they are.
    pub(super) tokens: Option<Arc<Tokens>>,
    /// In the order of the configuration.
    pub(super) federations: Vec<FederationHandle>,
}

/// Opens every federation, and the tokens, for a coordinator that listens at `address`.
pub(super) async fn open(
    config: &ServeConfig,
    options: &Options,
    metrics: &Metrics,
    address: SocketAddr,
) -> Result<Opened, ServeError> {
    match config.storage.kind {
        StorageKind::Files => open_files(config, options, metrics),
        #[cfg(feature = "postgres")]
        StorageKind::Postgres => open_database(config, options, metrics, address).await,
        #[cfg(not(feature = "postgres"))]
        StorageKind::Postgres => unreachable!("the settings were checked, for {address}"),
    }
}

fn named(name: &str) -> impl FnOnce(FederationError) -> ServeError {
    let name = name.to_owned();
    move |error| ServeError::Federation { name, error }
}

fn watching(options: &Options, metrics: &Metrics) -> Watching {
    Watching { clock: options.clock.clone(), metrics: metrics.clone(), tracer: options.tracer.clone() }
}

fn open_files(config: &ServeConfig, options: &Options, metrics: &Metrics) -> Result<Opened, ServeError> {
    let tokens = match config.authentication {
        Authentication::Token => Some(Arc::new(Tokens::open(&config.token_file())?)),
        Authentication::None => None,
    };
    let mut federations = Vec::new();
    for federation in &config.federations {
        let directory = config.log_directory(&federation.name);
        let (kind, place) = (options.log.clone(), directory.clone());
        let log = Box::new(move || (kind.0)(&place));
        let watching = watching(options, metrics);
        let opened = FederationHandle::open(federation.clone(), &directory, log, watching);
        federations.push(opened.map_err(named(&federation.name))?);
    }
    Ok(Opened { tokens, federations })
}

#[cfg(feature = "postgres")]
async fn open_database(
    config: &ServeConfig,
    options: &Options,
    metrics: &Metrics,
    address: SocketAddr,
) -> Result<Opened, ServeError> {
    use crate::audit::Audit;
    use crate::log::postgres::{Database, PostgresLog};

    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let reached = config.storage.advertise.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
    let database =
        Database::new(&config.storage, reached, options.allow_unreplicated).map_err(ServeError::Data)?;
    for federation in &config.federations {
        database.begin(federation).await.map_err(named(&federation.name))?;
    }
    let tokens = match config.authentication {
        Authentication::Token => {
            let database = database.clone();
            let opened = tokio::task::spawn_blocking(move || Tokens::in_database(&database)).await;
            Some(Arc::new(opened.map_err(|error| ServeError::Transport(error.to_string()))??))
        }
        Authentication::None => None,
    };
    let lines = database.audit();
    let mut federations = Vec::new();
    for federation in &config.federations {
        let directory = config.log_directory(&federation.name);
        crate::log::private_directory(&directory).map_err(ServeError::Data)?;
        let audit = Audit::shared(&directory, &federation.name, lines.clone());
        let (database, name) = (database.clone(), federation.name.clone());
        let log = Box::new(move || {
            PostgresLog::open(&database, &name, &directory)
                .map(|log| Box::new(log) as Box<dyn crate::log::Log>)
        });
        let watching = watching(options, metrics);
        let opened = FederationHandle::open_shared(federation.clone(), log, audit, watching);
        federations.push(opened.map_err(named(&federation.name))?);
    }
    Ok(Opened { tokens, federations })
}
