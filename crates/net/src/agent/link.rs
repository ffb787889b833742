//! Carrying an agent's frames: connect, join, say hello, and begin again when the link is cut.

use std::sync::Arc;
use std::time::Duration;

use posse_core::session::DownFrame;
use posse_core::{AgentId, ConfigError, Incarnation, Seed, Tick};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};
use tracing::{debug, info, warn};

use super::life::Rules;
use super::{AgentConfig, AgentError, Carriage, Shared};
use crate::federation::FederationConfig;
use crate::v1::coordinator_client::CoordinatorClient;
use crate::v1::{JoinReply, JoinRequest};

/// How long connecting and single calls may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a link is pinged.
const PING: Duration = Duration::from_secs(20);
/// Frames that may come in one answer to a call.
const AT_ONCE: usize = 8;
/// Bytes that a frame may have in any case.
const LEAST: usize = 1 << 20;

/// A way to the coordinator.
pub(super) struct Carrier {
    endpoint: Endpoint,
    client: Option<CoordinatorClient<Channel>>,
    federation: Option<MetadataValue<Ascii>>,
    credential: (&'static str, MetadataValue<Ascii>),
    greeted: bool,
    /// Bytes of the longest frame that may come.
    longest: usize,
}

impl Carrier {
    pub(super) fn new(config: &AgentConfig) -> Result<Self, ConfigError> {
        let wrong = |name, value: &str, allowed| ConfigError::new(name, value, allowed);
        let url = &config.coordinator;
        let endpoint = Endpoint::from_shared(url.clone()).ok().filter(|endpoint| {
            let scheme = endpoint.uri().scheme_str();
            endpoint.uri().host().is_some() && (scheme == Some("http") || scheme == Some("https"))
        });
        let endpoint = endpoint.ok_or_else(|| {
            wrong("coordinator", url, "it must look like http://127.0.0.1:7447 or https://example.com:7447")
        })?;
        let mut endpoint = endpoint
            .connect_timeout(PATIENCE)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PATIENCE)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        if url.starts_with("https:") {
            let authority = config.tls.authority.as_ref().ok_or_else(|| {
                let allowed = "https needs the certificate of whoever vouches for the coordinator (--ca)";
                wrong("coordinator", url, allowed)
            })?;
            let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
            if let Some((certificate, key)) = &config.tls.identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            if let Some(name) = &config.tls.name {
                tls = tls.domain_name(name);
            }
            let unusable = "the certificates cannot be used";
            endpoint = endpoint.tls_config(tls).map_err(|_| wrong("coordinator", url, unusable))?;
        }
        let value = |name, text: &str| {
            MetadataValue::try_from(text).map_err(|_| wrong(name, "…", "it must be plain text"))
        };
        let federation = config.federation.as_deref().map(|name| value("federation", name)).transpose()?;
        let credential = match (&config.token, config.agent) {
            (Some(token), _) => {
                let mut bearer = value("token", &format!("Bearer {token}"))?;
                bearer.set_sensitive(true);
                ("authorization", bearer)
            }
            (None, Some(agent)) => ("posse-agent", value("agent", &agent.to_string())?),
            (None, None) => {
                return Err(wrong(
                    "token",
                    "missing",
                    "an agent needs a token, or a number where none is asked for",
                ));
            }
        };
        Ok(Self { endpoint, client: None, federation, credential, greeted: false, longest: 0 })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(self.credential.0, self.credential.1.clone());
        if let Some(name) = &self.federation {
            metadata.insert("posse-federation", name.clone());
        }
        request
    }

    async fn client(&mut self) -> Result<CoordinatorClient<Channel>, Status> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let channel = self.endpoint.connect().await.map_err(|error| Status::unavailable(causes(&error)))?;
        let client = CoordinatorClient::new(channel);
        self.client = Some(client.clone());
        Ok(client)
    }

    async fn join(&mut self, resumes: bool) -> Result<JoinReply, Status> {
        let request = self.request(JoinRequest { protocol: crate::PROTOCOL, resumes });
        let mut client = self.client().await?;
        let reply = in_time(client.join(request)).await?;
        if let Ok(rules) = rules(&reply) {
            let told = FederationConfig {
                agents: rules.agents,
                ..FederationConfig::new("", rules.algorithm, rules.dimension)
            };
            let longest = told.longest_answer().max(reply.max_frame_bytes.saturating_mul(4));
            self.longest = usize::try_from(longest).unwrap_or(usize::MAX).max(LEAST);
        }
        Ok(reply)
    }

    /// Asks for the rules and a new life until there is an answer.
    pub(super) async fn join_patiently(
        &mut self,
        config: &AgentConfig,
    ) -> Result<(Rules, Incarnation), AgentError> {
        for attempt in 0.. {
            match self.join(false).await {
                Ok(reply) => return Ok((rules(&reply)?, Incarnation(reply.incarnation))),
                Err(status) if is_final(&status) => return Err(AgentError::Refused(Box::new(status))),
                Err(status) => {
                    self.client = None;
                    warn!(why = status.message(), attempt, "the coordinator cannot be reached");
                    tokio::time::sleep(pause(config, attempt)).await;
                }
            }
        }
        unreachable!("attempts do not end")
    }
}

/// The answer to a call, unless it takes too long.
async fn in_time<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    let answer = tokio::time::timeout(PATIENCE, call).await;
    Ok(answer.map_err(|_| Status::deadline_exceeded("no answer in time"))??.into_inner())
}

/// Whether asking again is pointless until a person has done something.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unauthenticated | Code::PermissionDenied | Code::NotFound | Code::FailedPrecondition
    )
}

fn rules(reply: &JoinReply) -> Result<Rules, AgentError> {
    let algorithm = serde_json::from_str(&reply.algorithm).map_err(|error| {
        AgentError::Foreign(format!("the coordinator's algorithm is not known here: {error}"))
    })?;
    Ok(Rules {
        agent: AgentId(reply.agent),
        algorithm,
        dimension: reply.dimension,
        agents: reply.agents,
        horizon: reply.horizon,
        seed: reply.seed,
        resend_after: reply.resend_after.max(1),
    })
}

/// How long to wait before the next attempt: twice as long each time, and not all agents at once.
fn pause(config: &AgentConfig, attempt: u32) -> Duration {
    let longest = config.first_pause.saturating_mul(1 << attempt.min(20)).min(config.longest_pause);
    let salt = std::process::id().into();
    let now = crate::Clock::system().now().0;
    longest.mul_f64(0.5 + 0.5 * Seed(now).stream("pause", salt, attempt.into()).uniform())
}

/// An error with its reasons.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// Carries frames until the agent is closed.
pub(super) async fn drive(shared: Arc<Shared>) {
    let mut stopped = shared.stop.subscribe();
    let mut attempt = 0;
    loop {
        let mut carrier = shared.carrier.lock().await;
        let ended = tokio::select! {
            ended = async {
                match shared.config.carriage {
                    Carriage::Exchange(every) => exchange(&shared, &mut carrier, every).await,
                    Carriage::Link | Carriage::ByHand => link(&shared, &mut carrier).await,
                }
            } => ended,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        carrier.client = None;
        drop(carrier);
        let wait = {
            let mut life = shared.life();
            if std::mem::take(&mut life.status.connected) {
                attempt = 0;
            }
            let why =
                ended.err().map_or_else(|| "the link ended".to_owned(), |status| status.message().into());
            let wait = pause(&shared.config, attempt);
            debug!(why, attempt, ?wait, agent = life.id().0, "the link is cut");
            life.status.trouble = Some(why);
            wait
        };
        attempt += 1;
        let until = tokio::time::Instant::now() + wait;
        loop {
            // Choices expire also while nobody can be reached.
            let next = { shared.life().expire(shared.clock.now(), shared.config.default_reward) };
            let expiry = tokio::time::Instant::now() + from_now(&shared, next);
            tokio::select! {
                () = tokio::time::sleep_until(until) => break,
                () = tokio::time::sleep_until(expiry) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
        }
    }
}

/// How long until `tick`, or long.
fn from_now(shared: &Shared, tick: Option<Tick>) -> Duration {
    let now = shared.clock.now();
    tick.map_or(Duration::from_secs(3600), |tick| {
        Duration::from_micros(tick.0.saturating_sub(now.0).clamp(1000, 3_600_000_000))
    })
}

/// Joins: checks the rules, and takes a new life if the old one cannot go on.
async fn join(shared: &Shared, carrier: &mut Carrier) -> Result<(), Status> {
    let outlived = shared.life().outlived;
    let reply = carrier.join(!outlived).await?;
    let rules = rules(&reply).map_err(|error| Status::failed_precondition(error.to_string()))?;
    let mut life = shared.life();
    if !life.rules().are_those_of(&rules) {
        let why = "the rules of the federation are not those that this agent was told: remove its state";
        return Err(Status::failed_precondition(why));
    }
    if outlived {
        warn!(
            agent = rules.agent.0,
            "the coordinator knows more of this life than its state: a new life begins"
        );
        let begun = life.begin_again(&shared.config, Incarnation(reply.incarnation));
        begun.map_err(|error| Status::internal(error.to_string()))?;
    }
    life.hello(shared.clock.now());
    Ok(())
}

/// One link, from hello to its end.
async fn link(shared: &Shared, carrier: &mut Carrier) -> Result<(), Status> {
    join(shared, carrier).await?;
    let (outgoing, frames) = mpsc::channel(8);
    let request = carrier.request(ReceiverStream::new(frames));
    let mut client = carrier.client().await?.max_decoding_message_size(carrier.longest);
    // The hello goes first: some proxies pass nothing on before the first message.
    flush(shared, &outgoing).await?;
    let mut incoming = in_time(client.link(request)).await?;
    info!(agent = shared.life().id().0, "linked");
    loop {
        let next = {
            let mut life = shared.life();
            let now = shared.clock.now();
            let expiry = life.expire(now, shared.config.default_reward);
            life.deadline().into_iter().chain(expiry).min()
        };
        flush(shared, &outgoing).await?;
        shared.changed.send_replace(());
        tokio::select! {
            frame = incoming.message() => match frame? {
                Some(frame) => receive(shared, frame)?,
                None => return Ok(()),
            },
            () = shared.wake.notified() => {}
            () = tokio::time::sleep(from_now(shared, next)) => shared.life().tick(shared.clock.now()),
        }
    }
}

fn receive(shared: &Shared, frame: posse_core::wire::v1::DownFrame) -> Result<(), Status> {
    let frame = DownFrame::from_wire(frame).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let mut life = shared.life();
    life.receive(frame, shared.clock.now()).map_err(|error| Status::failed_precondition(error.to_string()))
}

/// Syncs the journal and sends everything that waits.
async fn flush(
    shared: &Shared,
    outgoing: &mpsc::Sender<posse_core::wire::v1::UpFrame>,
) -> Result<(), Status> {
    for frame in collect(shared).await? {
        let gone = |_| Status::unavailable("the link is cut");
        outgoing.send(frame.to_wire()).await.map_err(gone)?;
    }
    Ok(())
}

async fn collect(shared: &Shared) -> Result<Vec<posse_core::session::UpFrame>, Status> {
    let (frames, file) = {
        let mut life = shared.life();
        if !life.has_mail() {
            return Ok(Vec::new());
        }
        life.collect()
    };
    if let (false, Some((file, entries))) = (frames.is_empty(), file) {
        let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
        match synced {
            Ok(Ok(())) => shared.life().synced(entries),
            Ok(Err(error)) => return Err(Status::internal(format!("the agent's state: {error}"))),
            Err(error) => return Err(Status::internal(error.to_string())),
        }
    }
    Ok(frames)
}

/// One call after another.
async fn exchange(shared: &Shared, carrier: &mut Carrier, every: Duration) -> Result<(), Status> {
    carrier.greeted = false;
    loop {
        let more = exchange_once_status(shared, carrier).await?;
        if more {
            continue;
        }
        tokio::select! {
            () = shared.wake.notified() => {}
            () = tokio::time::sleep(every) => {
                let mut life = shared.life();
                let now = shared.clock.now();
                life.expire(now, shared.config.default_reward);
                life.tick(now);
            }
        }
    }
}

/// Sends a frame, or asks, and takes in what waits. Says whether there is more to send.
pub(super) async fn exchange_once(shared: &Shared, carrier: &mut Carrier) -> Result<bool, AgentError> {
    let done = exchange_once_status(shared, carrier).await;
    done.map_err(|status| {
        carrier.client = None;
        carrier.greeted = false;
        if status.code() == Code::Unavailable {
            AgentError::Unreachable(status.message().into())
        } else {
            AgentError::Refused(Box::new(status))
        }
    })
}

async fn exchange_once_status(shared: &Shared, carrier: &mut Carrier) -> Result<bool, Status> {
    if !carrier.greeted {
        join(shared, carrier).await?;
        carrier.greeted = true;
    }
    let mut frames = collect(shared).await?;
    if frames.is_empty() {
        frames.push(shared.life().question());
    }
    for frame in frames {
        let request = carrier.request(frame.to_wire());
        let limit = carrier.longest.saturating_mul(AT_ONCE);
        let mut client = carrier.client().await?.max_decoding_message_size(limit);
        for frame in in_time(client.exchange(request)).await?.frames {
            receive(shared, frame)?;
        }
    }
    shared.changed.send_replace(());
    Ok(shared.life().has_mail())
}
