//! Reaching the coordinator: addresses, certificates, credentials, joining, and where to turn when an attempt fails.

use std::path::{Path, PathBuf};
use std::time::Duration;

use posse_core::{ConfigError, Incarnation, Registry, Seed};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};
use tracing::warn;

use super::rules::Rules;
use super::{AgentConfig, AgentError};
use crate::address::addresses;
use crate::lengths::Lengths;
use crate::protocol::Versions;
use crate::v1::coordinator_client::CoordinatorClient;
use crate::v1::{JoinReply, JoinRequest};

/// How long connecting and single calls may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a link is pinged.
const PING: Duration = Duration::from_secs(20);
/// The same, and how long connecting and an answer to a ping may take, where there is another coordinator to go to. One
/// that hangs is then noticed in seconds.
const PING_OF_SEVERAL: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(2));
/// Bytes that a frame may have in any case.
const LEAST: usize = 1 << 20;

/// A way to the coordinator.
pub(crate) struct Carrier {
    /// The coordinators, and which of them is asked.
    endpoints: Vec<(String, Endpoint)>,
    current: usize,
    client: Option<CoordinatorClient<Channel>>,
    federation: Option<MetadataValue<Ascii>>,
    credential: (&'static str, MetadataValue<Ascii>),
    token_file: Option<PathBuf>,
    pub(super) greeted: bool,
    /// The processes that used the agent's state, this one last.
    instances: Vec<u64>,
    /// Bytes of the longest frame that may come.
    pub(super) longest: usize,
    registry: Registry,
    /// Number and checksum of the newest message that the coordinator has accepted, as it said in the last join.
    pub(super) last_word: Option<(u64, u32)>,
    /// The epoch, and the number of the newest message in it that this life has said to have received, as the coordinator said
    /// in the last join.
    pub(super) last_heard: Option<(u64, u64)>,
    /// The number of the coordinator's history, as it said in the last join. Earlier versions do not.
    pub(super) history: Option<u64>,
}

impl Carrier {
    pub(crate) fn new(config: &AgentConfig) -> Result<Self, ConfigError> {
        let wrong = |name, value: &str, allowed| ConfigError::new(name, value, allowed);
        let urls = addresses("coordinator", &config.coordinator)?;
        let endpoint = |url: &&str| Ok(((*url).to_owned(), endpoint(url, config, urls.len() > 1)?));
        let endpoints = urls.iter().map(endpoint).collect::<Result<Vec<_>, ConfigError>>()?;
        let value = |name, text: &str| {
            MetadataValue::try_from(text).map_err(|_| wrong(name, "…", "it must be plain text"))
        };
        let federation = config.federation.as_deref().map(|name| value("federation", name)).transpose()?;
        let credential = match (&config.token_file, &config.token, config.agent) {
            (Some(path), _, _) => bearer(&read_token(path)?)?,
            (None, Some(token), _) => bearer(token)?,
            (None, None, Some(agent)) => ("posse-agent", value("agent", &agent.to_string())?),
            (None, None, None) => {
                return Err(wrong(
                    "token",
                    "missing",
                    "an agent needs a token, or a number where none is asked for",
                ));
            }
        };
        let token_file = config.token_file.clone();
        Ok(Self {
            endpoints,
            current: 0,
            client: None,
            federation,
            credential,
            token_file,
            greeted: false,
            instances: Vec::new(),
            longest: 0,
            registry: config.registry.clone(),
            last_word: None,
            last_heard: None,
            history: None,
        })
    }

    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(self.credential.0, self.credential.1.clone());
        if let Some(name) = &self.federation {
            metadata.insert("posse-federation", name.clone());
        }
        // A join names it too. Calls without it are taken for those of agents that do not draw one.
        if let Some(instance) = self.instances.last() {
            metadata.insert(crate::INSTANCE, instance.to_string().parse().expect("digits"));
        }
        request
    }

    pub(crate) async fn client(&mut self) -> Result<CoordinatorClient<Channel>, Status> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let channel = self.endpoints[self.current]
            .1
            .connect()
            .await
            .map_err(|error| Status::unavailable(crate::causes(&error)))?;
        let client = CoordinatorClient::new(channel);
        self.client = Some(client.clone());
        Ok(client)
    }

    /// Chooses the coordinator that is asked next, after what one said or did not say. Returns how long to wait before:
    /// the pause grows when all of them were asked in vain.
    pub(crate) fn turn(&mut self, ended: Option<&Status>, config: &AgentConfig, attempt: u32) -> Duration {
        self.client = None;
        let count = self.endpoints.len();
        let Some(status) = ended.filter(|status| count > 1 && !is_final(status)) else {
            return pause(config, attempt);
        };
        let leader = status.metadata().get(crate::LEADER).and_then(|leader| leader.to_str().ok());
        // Only a coordinator that the agent was given: it shows its token to no other.
        let known =
            leader.and_then(|leader| self.endpoints.iter().position(|(url, _)| same_place(url, leader)));
        self.current = known.unwrap_or((self.current + 1) % count);
        let rounds = attempt / u32::try_from(count).unwrap_or(u32::MAX);
        pause(config, if known.is_some() { 0 } else { rounds })
    }

    /// Names these processes in every join from now on, this one last.
    pub(crate) fn set_instances(&mut self, instances: &[u64]) {
        self.instances = instances.to_vec();
    }

    /// The number of the coordinator's history, as the last join said.
    #[cfg(feature = "coordinator")]
    pub(crate) const fn history(&self) -> Option<u64> {
        self.history
    }

    /// Bytes of the longest frame that may come, as the last join said.
    #[cfg(feature = "coordinator")]
    pub(crate) const fn longest(&self) -> usize {
        self.longest
    }

    /// Takes the token that is in its file now. If the file cannot be read, the old token stays.
    fn refresh_token(&mut self) {
        let Some(path) = &self.token_file else { return };
        match read_token(path).and_then(|token| bearer(&token)) {
            Ok(credential) => self.credential = credential,
            Err(error) => warn!(%error, "the token cannot be read again: the old one stays"),
        }
    }

    /// Joins to go on with a life, or for a new one after it; 0 stands for no life at all.
    pub(crate) async fn join(&mut self, life: u64, resumes: bool) -> Result<JoinReply, Status> {
        self.refresh_token();
        let (instance, previous) =
            self.instances.split_last().map_or((0, &[][..]), |(own, earlier)| (*own, earlier));
        let Versions { oldest, newest } = Versions::OURS;
        let previous = previous.to_vec();
        let join =
            JoinRequest { protocol: newest, oldest_protocol: oldest, resumes, instance, previous, life };
        let request = self.request(join);
        let mut client = self.client().await?;
        let reply = tokio::time::timeout(PATIENCE, client.join(request)).await;
        let reply = reply.map_err(|_| Status::deadline_exceeded("no answer in time"))??;
        self.last_word = reply.metadata().get(crate::LAST_WORD).and_then(|word| {
            let (sequence, checksum) = word.to_str().ok()?.split_once('-')?;
            Some((sequence.parse().ok()?, u32::from_str_radix(checksum, 16).ok()?))
        });
        self.last_heard = reply.metadata().get(crate::LAST_HEARD).and_then(|heard| {
            let (epoch, number) = heard.to_str().ok()?.split_once('-')?;
            Some((epoch.parse().ok()?, number.parse().ok()?))
        });
        self.history = reply.metadata().get(crate::HISTORY).and_then(|text| text.to_str().ok()?.parse().ok());
        let reply = reply.into_inner();
        Versions::OURS.understand(reply.protocol).map_err(Status::failed_precondition)?;
        if let Ok(rules) = Rules::told(&reply, &self.registry) {
            // What a relay may send besides is in what the coordinator says.
            let lengths = Lengths::new(&rules.algorithm, rules.dimension, rules.agents, 1);
            let longest = lengths.answer(lengths.frame().max(reply.max_frame_bytes));
            self.longest = usize::try_from(longest).unwrap_or(usize::MAX).max(LEAST);
        }
        Ok(reply)
    }

    /// Asks for the rules and a new life until there is an answer.
    pub(crate) async fn join_patiently(
        &mut self,
        config: &AgentConfig,
    ) -> Result<(Rules, Incarnation), AgentError> {
        for attempt in 0.. {
            match self.join(0, false).await {
                Ok(reply) => {
                    let rules = Rules { history: self.history, ..Rules::told(&reply, &self.registry)? };
                    return Ok((rules, Incarnation(reply.incarnation)));
                }
                Err(status) if is_final(&status) => return Err(refused(&status)),
                Err(status) => {
                    let wait = self.turn(Some(&status), config, attempt);
                    warn!(why = status.message(), attempt, "the coordinator cannot be reached");
                    tokio::time::sleep(wait).await;
                }
            }
        }
        unreachable!("attempts do not end")
    }
}

/// Whether two addresses are of the same coordinator.
fn same_place(one: &str, other: &str) -> bool {
    one.trim_end_matches('/').eq_ignore_ascii_case(other.trim_end_matches('/'))
}

/// How one coordinator is reached; `several` if it is not the only one.
fn endpoint(url: &str, config: &AgentConfig, several: bool) -> Result<Endpoint, ConfigError> {
    let wrong = |allowed| ConfigError::new("coordinator", url, allowed);
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| wrong("it is not an address"))?;
    let (ping, patience) = if several { PING_OF_SEVERAL } else { (PING, PATIENCE) };
    let endpoint = endpoint
        .connect_timeout(patience)
        .http2_keep_alive_interval(ping)
        .keep_alive_timeout(patience)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    if !url.starts_with("https:") {
        return Ok(endpoint);
    }
    if config.tls.authority.as_ref().is_some_and(|pem| !holds_certificate(pem)) {
        // Nothing could vouch for the coordinator, and the agent would try for ever.
        return Err(ConfigError::new("authority", "without a certificate", "it must hold one in PEM form"));
    }
    let mut tls = match &config.tls.authority {
        Some(authority) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((certificate, key)) = &config.tls.identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &config.tls.name {
        tls = tls.domain_name(name);
    }
    endpoint.tls_config(tls).map_err(|_| wrong("the certificates cannot be used"))
}

fn refused(status: &Status) -> AgentError {
    let reason = status.metadata().get(crate::REASON).and_then(|reason| reason.to_str().ok());
    AgentError::Refused { reason: reason.map(str::to_owned), message: status.message().to_owned() }
}

impl AgentError {
    /// Why a call failed: nobody answered, or it was refused.
    pub(crate) fn from_status(status: &Status) -> Self {
        if status.code() == Code::Unavailable {
            return Self::Unreachable(status.message().into());
        }
        refused(status)
    }
}

fn read_token(path: &Path) -> Result<String, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        ConfigError::new("token_file", format!("{}: {error}", path.display()), "it must be readable")
    })?;
    Ok(text.trim().to_owned())
}

fn holds_certificate(pem: &[u8]) -> bool {
    let begin = b"-----BEGIN CERTIFICATE-----";
    pem.windows(begin.len()).any(|text| text == begin)
}

/// The metadata by which a token is shown.
fn bearer(token: &str) -> Result<(&'static str, MetadataValue<Ascii>), ConfigError> {
    let value = MetadataValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| ConfigError::new("token", "…", "it must be plain text"))?;
    value.set_sensitive(true);
    Ok(("authorization", value))
}

/// The answer to a call, unless it takes too long.
pub(crate) async fn in_time<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
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

/// How long to wait before the next attempt: twice as long each time, and not all agents at once.
fn pause(config: &AgentConfig, attempt: u32) -> Duration {
    let longest = config.first_pause.saturating_mul(1 << attempt.min(20)).min(config.longest_pause);
    let salt = std::process::id().into();
    let now = crate::Clock::system().now().0;
    longest.mul_f64(0.5 + 0.5 * Seed(now).stream("pause", salt, attempt.into()).uniform())
}
