//! The link of a relay to its parent: join, say hello, carry frames, and begin again when the link is cut.
//!
//! What the relay says and hears is decided and kept by the owner of its federation, as everything is. This task only
//! carries frames, so it may fail at any moment.

use std::path::Path;
use std::time::Duration;

use posse_core::session::{DownFrame, UpFrame};
use posse_core::wire::v1;
use posse_core::{ConfigError, Incarnation};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tracing::{error, info, warn};

use crate::agent::carriage::{Carrier, in_time};
use crate::agent::{AgentConfig, AgentError, AgentTls};
use crate::federation::{Command, FederationConfig, FederationHandle, ParentConfig, RelayIdentity};
use crate::log::LogError;
use crate::received::Received;

/// Frames for the parent that may wait for the link.
const WAITING: usize = 64;

/// A relay that cannot begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A setting is out of range, or is not that of the parent.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The parent does not take the relay.
    #[error("the parent: {0}")]
    Parent(#[from] AgentError),
    /// What was kept about the parent cannot be read or written.
    #[error(transparent)]
    Kept(#[from] LogError),
}

/// The settings of the agent that a relay is to its parent.
fn as_agent(parent: &ParentConfig) -> Result<AgentConfig, RelayError> {
    let read = |path: &String| std::fs::read(path).map_err(LogError::io(path));
    let authority = parent.authority.as_ref().map(read).transpose()?;
    Ok(AgentConfig {
        coordinator: parent.coordinator.clone(),
        federation: parent.federation.clone(),
        token_file: parent.token_file.as_ref().map(Into::into),
        agent: parent.agent,
        tls: AgentTls { authority, ..AgentTls::default() },
        longest_pause: Duration::from_secs(5),
        ..AgentConfig::default()
    })
}

/// The settings of a relay's federation with who it is at its parent. A relay that was there before reads that from its
/// `directory`; a new one joins and waits for the answer.
pub(crate) async fn introduce(
    mut config: FederationConfig,
    directory: &Path,
) -> Result<FederationConfig, RelayError> {
    let checked = config.clone();
    let Some(parent) = &mut config.parent else { return Ok(config) };
    let instance = crate::agent::instance();
    let identity = match RelayIdentity::read(directory)? {
        Some(identity) => identity,
        None => {
            let agent = as_agent(parent)?;
            let mut carrier = Carrier::new(&agent)?;
            carrier.set_instances(&[instance]);
            let (rules, Incarnation(life)) = carrier.join_patiently(&agent).await?;
            checked.check_parent(rules.dimension, &rules.algorithm)?;
            RelayIdentity { agent: rules.agent.0, life, instances: Vec::new(), history: rules.history }
        }
    };
    parent.identity = identity.with_process(instance, directory)?;
    Ok(config)
}

/// The lower end of a relay's link to its parent.
struct ParentLink {
    handle: FederationHandle,
    identity: RelayIdentity,
    agent: AgentConfig,
    carrier: Carrier,
}

impl ParentLink {
    /// `None` if the federation has no parent.
    fn new(handle: FederationHandle) -> Option<Result<Self, RelayError>> {
        let parent = handle.config().parent.clone()?;
        let made = as_agent(&parent).and_then(|agent| Ok((Carrier::new(&agent)?, agent)));
        Some(made.map(|(mut carrier, agent)| {
            carrier.set_instances(&parent.identity.instances);
            Self { handle, identity: parent.identity, agent, carrier }
        }))
    }

    /// Joins the parent, and lets the owner say hello: the hello is the first of the frames that are returned.
    async fn begin(&mut self) -> Result<mpsc::Receiver<UpFrame>, Status> {
        self.carrier.join(self.identity.life, true).await?;
        if let (Some(known), Some(told)) = (self.identity.history, self.carrier.history())
            && known != told
        {
            let why = "the parent is not the one that this relay has joined, or has begun again";
            self.handle.send(Command::LoseParent { why: why.into() }).await;
            return Err(Status::failed_precondition(why));
        }
        let (outbox, frames) = mpsc::channel(WAITING);
        let attached = self.handle.send(Command::AttachParent { outbox }).await;
        if attached { Ok(frames) } else { Err(stopped()) }
    }

    /// Brings the owner a frame of the parent, and waits until it is kept.
    async fn hear(&self, frame: Received<v1::DownFrame>) -> Result<(), Status> {
        let (frame, _) = frame.into_parts();
        let frame =
            DownFrame::from_wire(frame).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let frame = Box::new(frame);
        let heard = self.handle.ask(|reply| Command::Heard { frame, reply }).await.ok_or_else(stopped)?;
        heard.map_err(crate::federation::Refusal::into_status)
    }

    /// One link, from hello to its end.
    async fn link(&mut self, attempt: &mut u32) -> Result<(), Status> {
        let frames = self.begin().await?;
        let request = self.carrier.request(ReceiverStream::new(frames).map(|frame| frame.to_wire()));
        let longest = self.carrier.longest();
        let mut client = self.carrier.client().await?.max_decoding_message_size(longest);
        let mut incoming = in_time(client.link(request)).await?;
        info!(federation = self.handle.config().name, relay = self.identity.agent, "linked to the parent");
        *attempt = 0;
        self.handle.note_parent(None);
        while let Some(frame) = incoming.message().await? {
            self.hear(frame).await?;
        }
        Ok(())
    }
}

fn stopped() -> Status {
    Status::cancelled("the relay has stopped")
}

/// Carries frames between a relay and its parent until the relay stops.
pub(crate) async fn drive(handle: FederationHandle, mut stopped: watch::Receiver<bool>) {
    let mut link = match ParentLink::new(handle) {
        None => return,
        Some(Err(error)) => return error!(%error, "the parent cannot be spoken to"),
        Some(Ok(link)) => link,
    };
    let mut attempt = 0;
    loop {
        let ended = tokio::select! {
            ended = link.link(&mut attempt) => ended,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        let wait = link.carrier.turn(ended.as_ref().err(), &link.agent, attempt);
        let why =
            ended.err().map_or_else(|| "the link ended".to_owned(), |status| status.message().to_owned());
        warn!(federation = link.handle.config().name, why, ?wait, "the link to the parent is cut");
        link.handle.note_parent(Some(why));
        attempt += 1;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}

/// A relay whose frames travel only when a caller says so, by one call after another.
pub(crate) struct ByHand {
    link: ParentLink,
    /// Frames for the parent, once the relay has joined it.
    frames: Option<mpsc::Receiver<UpFrame>>,
}

impl ByHand {
    /// `None` if the federation has no parent.
    pub(crate) fn new(handle: FederationHandle) -> Option<Result<Self, RelayError>> {
        Some(ParentLink::new(handle)?.map(|link| Self { link, frames: None }))
    }

    /// Whether a frame waits for the parent.
    pub(crate) fn has_mail(&self) -> bool {
        self.frames.as_ref().is_none_or(|frames| !frames.is_empty())
    }

    /// Sends what waits for the parent, or asks, and takes in what waits there. Says whether there is more to send.
    pub(crate) async fn exchange(&mut self) -> Result<bool, RelayError> {
        let refused = |status: Status| RelayError::Parent(AgentError::from_status(&status));
        self.exchange_status().await.map_err(refused)
    }

    async fn exchange_status(&mut self) -> Result<bool, Status> {
        let mut waiting = Vec::new();
        if self.frames.is_none() {
            let mut frames = self.link.begin().await?;
            waiting.extend(frames.recv().await);
            self.frames = Some(frames);
        }
        let frames = self.frames.as_mut().ok_or_else(stopped)?;
        while let Ok(frame) = frames.try_recv() {
            waiting.push(frame);
        }
        if waiting.is_empty() {
            waiting.extend(self.link.handle.ask(|reply| Command::AskParent { reply }).await.flatten());
        }
        for frame in waiting {
            let request = self.link.carrier.request(frame.to_wire());
            let mut client = self.link.carrier.client().await?;
            for frame in in_time(client.exchange(request)).await?.frames {
                self.link.hear(frame).await?;
            }
        }
        Ok(self.has_mail())
    }
}

impl std::fmt::Debug for ByHand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByHand")
    }
}
