//! The link of a relay to its parent: join, say hello, carry frames, and begin again when the link is cut.
//!
//! What the relay says and hears is decided and kept by the owner of its federation, as everything is. This task only
//! carries frames, so it may fail at any moment.

use std::path::Path;
use std::time::Duration;

use posse_core::session::DownFrame;
use posse_core::{ConfigError, Incarnation};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tracing::{error, info, warn};

use crate::agent::carriage::{Carrier, in_time};
use crate::agent::{AgentConfig, AgentError, AgentTls, Rules};
use crate::federation::{Command, FederationConfig, FederationHandle, ParentConfig, RelayIdentity};
use crate::log::LogError;

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
    let Some(parent) = &mut config.parent else { return Ok(config) };
    let instance = crate::agent::instance();
    let identity = match RelayIdentity::read(directory)? {
        Some(identity) => identity,
        None => {
            let agent = as_agent(parent)?;
            let mut carrier = Carrier::new(&agent)?;
            carrier.set_instances(&[instance]);
            let (rules, Incarnation(life)) = carrier.join_patiently(&agent).await?;
            check_rules(&rules, config.dimension, config.algorithm.name())?;
            RelayIdentity { agent: rules.agent.0, life, instances: Vec::new() }
        }
    };
    parent.identity = identity.with_process(instance, directory)?;
    Ok(config)
}

fn check_rules(rules: &Rules, dimension: u64, algorithm: &str) -> Result<(), ConfigError> {
    if rules.dimension != dimension {
        return Err(ConfigError::new("dimension", dimension, "it must be that of the parent's federation"));
    }
    if rules.algorithm.name() != algorithm {
        return Err(ConfigError::new("algorithm", algorithm, "it must be that of the parent's federation"));
    }
    Ok(())
}

/// Carries frames between a relay and its parent until the relay stops.
pub(crate) async fn drive(handle: FederationHandle, mut stopped: watch::Receiver<bool>) {
    let Some(parent) = handle.config().parent.clone() else { return };
    let made = as_agent(&parent).and_then(|agent| Ok((Carrier::new(&agent)?, agent)));
    let (mut carrier, agent) = match made {
        Ok(made) => made,
        Err(error) => return error!(%error, "the parent cannot be spoken to"),
    };
    carrier.set_instances(&parent.identity.instances);
    let mut attempt = 0;
    loop {
        let ended = tokio::select! {
            ended = link(&handle, &parent.identity, &mut carrier, &mut attempt) => ended,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        let wait = carrier.turn(ended.as_ref().err(), &agent, attempt);
        let why =
            ended.err().map_or_else(|| "the link ended".to_owned(), |status| status.message().to_owned());
        warn!(federation = handle.config().name, why, ?wait, "the link to the parent is cut");
        attempt += 1;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}

/// One link, from hello to its end.
async fn link(
    handle: &FederationHandle,
    identity: &RelayIdentity,
    carrier: &mut Carrier,
    attempt: &mut u32,
) -> Result<(), Status> {
    carrier.join(identity.life, true).await?;
    let (outbox, frames) = mpsc::channel(WAITING);
    let stopped = || Status::cancelled("the relay has stopped");
    // The owner answers with a hello, which is the first frame: some proxies pass nothing on before it.
    if !handle.send(Command::AttachParent { outbox }).await {
        return Err(stopped());
    }
    let request = carrier.request(ReceiverStream::new(frames).map(|frame| frame.to_wire()));
    let mut client = carrier.client().await?.max_decoding_message_size(carrier.longest());
    let mut incoming = in_time(client.link(request)).await?;
    info!(federation = handle.config().name, relay = identity.agent, "linked to the parent");
    *attempt = 0;
    while let Some(frame) = incoming.message().await? {
        let (frame, _) = frame.into_parts();
        let frame =
            DownFrame::from_wire(frame).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let frame = Box::new(frame);
        let heard = handle.ask(|reply| Command::Heard { frame, reply }).await.ok_or_else(stopped)?;
        heard.map_err(crate::federation::Refusal::into_status)?;
    }
    Ok(())
}
