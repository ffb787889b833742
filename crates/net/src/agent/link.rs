//! Carrying an agent's frames: join, say hello, and begin again when the link is cut.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use posse_core::session::{DownFrame, UpFrame};
use posse_core::{Epoch, Incarnation, Tick};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tracing::{debug, info, warn};

use super::carrier::{Carrier, in_time};
use super::life::Life;
use super::rules::Rules;
use super::{AgentError, AgentInner, Carriage};
use crate::log::LogError;
use crate::received::Received;
use crate::trace::{Tracer, Way};

/// Frames that may come in one answer to a call.
const AT_ONCE: usize = 8;

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
