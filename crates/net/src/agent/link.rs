//! Carrying an agent's frames: connect, join, say hello, and begin again when the link is cut.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use posse_core::session::{DownFrame, UpFrame};
use posse_core::{ConfigError, Epoch, Incarnation, Registry, Seed, Tick};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};
use tracing::{debug, info, warn};

use super::life::Life;
use super::rules::Rules;
use super::{AgentConfig, AgentError, AgentInner, Carriage};
use crate::address::addresses;
use crate::lengths::Lengths;
use crate::log::LogError;
use crate::protocol::Versions;
use crate::received::Received;
use crate::trace::{Tracer, Way};
use crate::v1::coordinator_client::CoordinatorClient;
use crate::v1::{JoinReply, JoinRequest};

/// How long connecting and single calls may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a link is pinged.
const PING: Duration = Duration::from_secs(20);
/// The same, and how long connecting and an answer to a ping may take, where there is another coordinator to go to. One
/// that hangs is then noticed in seconds.
const PING_OF_SEVERAL: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(2));
/// Frames that may come in one answer to a call.
const AT_ONCE: usize = 8;
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
    greeted: bool,
    /// The processes that used the agent's state, this one last.
    instances: Vec<u64>,
    /// Bytes of the longest frame that may come.
    longest: usize,
    registry: Registry,
    /// Number and checksum of the newest message that the coordinator has accepted, as it said in the last join.
    last_word: Option<(u64, u32)>,
    /// The epoch, and the number of the newest message in it that this life has said to have received, as the coordinator said
    /// in the last join.
    last_heard: Option<(u64, u64)>,
    /// The number of the coordinator's history, as it said in the last join. Earlier versions do not.
    history: Option<u64>,
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
            let lengths = Lengths::new(&rules.algorithm, rules.dimension, rules.agents);
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

/// Carries frames until the agent is closed.
pub(super) async fn drive(shared: Arc<AgentInner>) {
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
        if std::mem::take(&mut shared.life().status.connected) {
            attempt = 0;
        }
        let wait = carrier.turn(ended.as_ref().err(), &shared.config, attempt);
        drop(carrier);
        {
            let mut life = shared.life();
            life.mend_if_needed();
            let why = match &ended {
                Ok(()) => "the link ended".to_owned(),
                Err(status) => status.message().to_owned(),
            };
            if let Err(status) = &ended {
                take_refusal(&shared, &mut life, status);
            }
            if life.status.trouble.as_ref() == Some(&why) {
                debug!(why, attempt, ?wait, agent = life.id().0, "the coordinator is still not reached");
            } else {
                warn!(why, ?wait, agent = life.id().0, "the link to the coordinator is cut");
            }
            life.status.trouble = Some(why);
        }
        shared.changed.send_replace(());
        attempt += 1;
        if shared.life().status.superseded.is_some() {
            // Trying again would only take the link from the process that speaks for this agent now.
            tokio::select! {
                () = shared.asked_to_live.notified() => continue,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
        }
        let until = tokio::time::Instant::now() + wait;
        loop {
            // Choices expire also while the coordinator cannot be reached.
            let next = { shared.life().expire(shared.config.clock.now(), shared.config.default_reward) };
            let expiry = tokio::time::Instant::now() + from_now(&shared, next);
            tokio::select! {
                () = tokio::time::sleep_until(until) => break,
                () = tokio::time::sleep_until(expiry) => {}
                // A choice was made that expires before the one that was known.
                () = shared.wake.notified() => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
        }
    }
}

/// Takes in why the coordinator refused something, if it did, and whether this life goes on after it.
fn take_refusal(shared: &AgentInner, life: &mut Life, status: &Status) {
    let Some(reason) = status.metadata().get(crate::REASON).and_then(|reason| reason.to_str().ok()) else {
        return;
    };
    life.refuse(reason, status.message(), shared.config.clock.now(), &shared.config);
    if life.status.superseded.is_some() && shared.config.new_life_if_superseded {
        life.live_again();
    }
}

/// Returns how long it is until `tick`, or a long time if there is none.
fn from_now(shared: &AgentInner, tick: Option<Tick>) -> Duration {
    let now = shared.config.clock.now();
    tick.map_or(Duration::from_secs(3600), |tick| {
        Duration::from_micros(tick.0.saturating_sub(now.0).clamp(1000, 3_600_000_000))
    })
}

/// Joins: checks the rules, and takes a new life if the old one cannot go on.
async fn join(shared: &AgentInner, carrier: &mut Carrier) -> Result<(), Status> {
    let (over, life) = {
        let life = shared.life();
        (life.over, life.status.life)
    };
    let reply = carrier.join(life, over.is_none()).await?;
    let rules = Rules::told(&reply, &shared.config.registry)
        .map_err(|error| Status::failed_precondition(error.to_string()))?;
    let mut life = shared.life();
    if !life.rules().are_those_of(&rules) {
        let why = "the rules of the federation are not those that this agent was told: remove its state";
        return Err(Status::failed_precondition(why));
    }
    if over.is_none() {
        let is_elsewhere = life.compare_history(carrier.history, shared.config.clock.now(), &shared.config);
        is_elsewhere.map_err(Status::failed_precondition)?;
    }
    if let Some((sequence, checksum)) = carrier.last_word.filter(|_| over.is_none()) {
        life.compare(sequence, checksum).map_err(|error| Status::failed_precondition(error.to_string()))?;
    }
    if let Some((epoch, number)) = carrier.last_heard.filter(|_| over.is_none()) {
        let is_copy = life.compare_heard(Epoch(epoch), number);
        is_copy.map_err(|error| Status::failed_precondition(error.to_string()))?;
    }
    life.update_bounds(&rules);
    life.was_answered();
    carrier.set_instances(life.instances());
    if let Some(why) = over {
        warn!(agent = rules.agent.0, why, "a new life begins");
        life.begin_at(carrier.history);
        let begun = life.begin_again(&shared.config, Incarnation(reply.incarnation));
        begun.map_err(|error| Status::internal(error.to_string()))?;
    }
    life.hello(shared.config.clock.now());
    Ok(())
}

/// One link, from hello to its end.
async fn link(shared: &AgentInner, carrier: &mut Carrier) -> Result<(), Status> {
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
            let now = shared.config.clock.now();
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
            () = tokio::time::sleep(from_now(shared, next)) => shared.life().tick(shared.config.clock.now()),
        }
    }
}

fn receive(shared: &AgentInner, frame: Received<posse_core::wire::v1::DownFrame>) -> Result<(), Status> {
    let (frame, bytes) = frame.into_parts();
    let frame = DownFrame::from_wire(frame).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let acknowledged = frame.acknowledged;
    let (mut life, now) = (shared.life(), shared.config.clock.now());
    life.receive(frame, &bytes, now).map_err(|error| {
        life.fail_to_receive(&error, now, &shared.config);
        Status::failed_precondition(error.to_string())
    })?;
    // Before anybody can see that the message was answered.
    end_trace(shared, acknowledged);
    Ok(())
}

/// Syncs the journal and sends everything that waits.
async fn flush(
    shared: &AgentInner,
    outgoing: &mpsc::Sender<posse_core::wire::v1::UpFrame>,
) -> Result<(), Status> {
    for frame in collect(shared).await? {
        let gone = |_| Status::unavailable("the link is cut");
        outgoing.send(frame.to_wire()).await.map_err(gone)?;
    }
    Ok(())
}

async fn collect(shared: &AgentInner) -> Result<Vec<UpFrame>, Status> {
    let (frames, files) = {
        let mut life = shared.life();
        if !life.has_mail() {
            return Ok(Vec::new());
        }
        life.collect()
    };
    if let (false, Some((files, entries))) = (frames.is_empty(), files) {
        let sync = move || files.iter().try_for_each(|file| file.sync_all());
        let synced = tokio::task::spawn_blocking(sync).await;
        let synced = synced.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let synced = synced.map_err(LogError::io("the agent's journal"));
        shared.life().synced(entries, &synced);
        synced.map_err(|error| Status::internal(error.to_string()))?;
    }
    frames.iter().for_each(|frame| begin_trace(shared, frame));
    Ok(frames)
}

/// A message leaves. One that is sent again is still on the way that it began.
fn begin_trace(shared: &AgentInner, frame: &UpFrame) {
    if shared.config.tracer.is_none() || frame.message.is_none() {
        return;
    }
    let agent = shared.life().id();
    let mut traced = shared.traced.lock().unwrap_or_else(PoisonError::into_inner);
    if traced.is_none_or(|traced| traced.sequence != frame.sequence) {
        *traced = Tracer::begin(agent, frame);
    }
}

/// The coordinator has accepted messages up to this number.
fn end_trace(shared: &AgentInner, acknowledged: u64) {
    let Some(tracer) = &shared.config.tracer else { return };
    let mut traced = shared.traced.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(upload) = traced.take_if(|upload| upload.sequence <= acknowledged) {
        tracer.tell(&upload, Way::Upload, upload.since);
    }
}

/// Saves the state whenever the journal has become long, until the agent is closed.
pub(super) async fn keep_saving(shared: Arc<AgentInner>) {
    let mut stopped = shared.stop.subscribe();
    loop {
        tokio::select! {
            () = shared.save.notified() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        let begun = {
            let mut life = shared.life();
            if life.wants_save() { life.begin_save() } else { None }
        };
        let Some((saving, state)) = begun else { continue };
        let writing = tokio::task::spawn_blocking(move || (saving.write(&state), saving));
        let Ok((written, saving)) = writing.await else { return };
        let superfluous = shared.life().finish_save(&saving, written);
        // What cannot be removed now is found again next time.
        let remove = move || superfluous.iter().for_each(|path| drop(std::fs::remove_file(path)));
        let _ = tokio::task::spawn_blocking(remove).await;
    }
}

/// Exchanges frames with one call after another, at least once in `every`, until a call fails.
async fn exchange(shared: &AgentInner, carrier: &mut Carrier, every: Duration) -> Result<(), Status> {
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
                let now = shared.config.clock.now();
                life.expire(now, shared.config.default_reward);
                life.tick(now);
            }
        }
    }
}

/// Sends a frame, or asks, and takes in what waits. Says whether there is more to send.
pub(super) async fn exchange_once(shared: &AgentInner, carrier: &mut Carrier) -> Result<bool, AgentError> {
    let done = exchange_once_status(shared, carrier).await;
    done.map_err(|status| {
        carrier.turn(Some(&status), &shared.config, 0);
        carrier.greeted = false;
        take_refusal(shared, &mut shared.life(), &status);
        AgentError::from_status(&status)
    })
}

async fn exchange_once_status(shared: &AgentInner, carrier: &mut Carrier) -> Result<bool, Status> {
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
