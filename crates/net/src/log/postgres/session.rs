//! One connection to PostgreSQL that does not wait for ever and does not overlook warnings.
//!
//! Two things make this more than a connection. A server that was stopped keeps its sockets open, so every call has a
//! limit of its own. And a commit whose wait for the standbys was cancelled is reported as a success with a warning, so
//! everything the server says between a statement and its end is read, and a commit with a warning is a failure.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Row, Statement};

use super::SLOW;
use super::tls::Tls;
use crate::log::LogError;

/// Values for the parameters of a statement.
pub(super) type Values<'v> = &'v [&'v (dyn ToSql + Sync)];

/// A connection to one server. After an error it must not be used again.
pub(super) struct Session {
    client: Client,
    /// Statements that the server has parsed before.
    prepared: Mutex<BTreeMap<String, Statement>>,
    /// What the server has said besides its answers, since it was last read.
    notices: Arc<Mutex<Vec<String>>>,
    driver: JoinHandle<()>,
    patience: Duration,
    server: String,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Closes the socket. A statement that the server is still at is not cancelled: a cancelled commit would count
        // on the primary without being replicated.
        self.driver.abort();
    }
}

impl Session {
    /// Connects to the one server that `config` names. Every call of the session, and connecting itself, may take up to
    /// `patience`.
    pub(super) async fn connect(config: &Config, tls: &Tls, patience: Duration) -> Result<Self, LogError> {
        let server = name_of(config);
        let database = |why: String| LogError::Database { server: server.clone(), why };
        let connecting = tokio::time::timeout(patience, config.connect(tls.clone())).await;
        let connected = connecting.map_err(|_| database(too_slow(patience)))?;
        let (client, mut connection) = connected.map_err(|error| database(explain(&error)))?;
        let notices = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&notices);
        let driver = tokio::spawn(async move {
            // A notice is kept before the answer that follows it is handed out, because both come through here in order.
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notice(notice) = message {
                    let text = format!("{}: {}", notice.severity(), notice.message());
                    heard.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                }
            }
        });
        Ok(Self { client, prepared: Mutex::default(), notices, driver, patience, server })
    }

    /// Runs a statement that changes something and returns how many rows it changed, when it is committed. A commit
    /// about which the server says anything counts as failed: it may not be replicated.
    pub(super) async fn commit(&self, statement: &str, values: Values<'_>) -> Result<u64, LogError> {
        self.forget_notices();
        let statement = self.prepare(statement).await?;
        let changed = self.in_time(self.client.execute(&statement, values)).await?;
        self.refuse_notices()?;
        Ok(changed)
    }

    /// The same for a statement that returns rows.
    pub(super) async fn commit_rows(
        &self,
        statement: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, LogError> {
        self.forget_notices();
        let statement = self.prepare(statement).await?;
        let rows = self.in_time(self.client.query(&statement, values)).await?;
        self.refuse_notices()?;
        Ok(rows)
    }

    /// Reads rows.
    pub(super) async fn read(&self, statement: &str, values: Values<'_>) -> Result<Vec<Row>, LogError> {
        let statement = self.prepare(statement).await?;
        self.in_time(self.client.query(&statement, values)).await
    }

    /// Reads rows that may be long.
    pub(super) async fn read_long(&self, statement: &str, values: Values<'_>) -> Result<Vec<Row>, LogError> {
        let statement = self.prepare(statement).await?;
        self.within(SLOW.max(self.patience), self.client.query(&statement, values)).await
    }

    async fn prepare(&self, text: &str) -> Result<Statement, LogError> {
        let prepared = || self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = prepared().get(text).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let statement = self.in_time(self.client.prepare(text)).await?;
        prepared().insert(text.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Runs statements without parameters, one after the other, outside of a transaction of ours.
    pub(super) async fn run(&self, statements: &str) -> Result<(), LogError> {
        self.in_time(self.client.batch_execute(statements)).await
    }

    /// Ends a transaction that [`run`](Self::run) began. A warning about it counts as a failure.
    pub(super) async fn end(&self) -> Result<(), LogError> {
        self.forget_notices();
        self.run("COMMIT").await?;
        self.refuse_notices()
    }

    /// The server's name, for messages.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// An error of this server.
    pub(super) fn error(&self, why: impl Into<String>) -> LogError {
        LogError::Database { server: self.server.clone(), why: why.into() }
    }

    fn forget_notices(&self) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn refuse_notices(&self) -> Result<(), LogError> {
        let notices = std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner));
        if notices.is_empty() {
            return Ok(());
        }
        Err(LogError::Unconfirmed { server: self.server.clone(), why: notices.join("; ") })
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, LogError> {
        self.within(self.patience, call).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, LogError> {
        let done = tokio::time::timeout(limit, call).await;
        done.map_err(|_| self.error(too_slow(limit)))?.map_err(|error| self.error(explain(&error)))
    }
}

fn too_slow(patience: Duration) -> String {
    format!("no answer in {} ms", patience.as_millis())
}

/// What the database said, not only that it said something.
fn explain(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => crate::causes(error),
    }
}

/// One configuration for each server that `config` names, in its order.
pub(super) fn servers(config: &Config) -> Vec<Config> {
    let ports = config.get_ports();
    let one = |(index, host): (usize, &Host)| {
        let mut single = Config::new();
        match host {
            Host::Tcp(name) => single.host(name),
            Host::Unix(path) => single.host_path(path),
        };
        single.port(ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432));
        config.get_user().map(|user| single.user(user));
        config.get_password().map(|password| single.password(password));
        config.get_dbname().map(|name| single.dbname(name));
        config.get_options().map(|options| single.options(options));
        single.ssl_mode(config.get_ssl_mode()).application_name("posse");
        single
    };
    config.get_hosts().iter().enumerate().map(one).collect()
}

fn name_of(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    };
    format!("{host}:{}", config.get_ports().first().copied().unwrap_or(5432))
}
