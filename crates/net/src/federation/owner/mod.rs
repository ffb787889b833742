//! The one thread that owns a federation's hub and its log.
//!
//! It takes all commands that wait, lets the hub judge and apply them, writes what the hub wants kept in one
//! go, syncs once, and only then answers. Should the log fail, the hub knows more than the log: it is thrown
//! away with all answers, and both are opened again. No agent was told anything that is not kept.

mod frames;
mod keeping;
mod looking;
mod presence;
mod retracting;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posse_core::session::{DownFrame, Hub, UpFrame};
use posse_core::{AgentId, Cost, Tick};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::Status;

use super::accounts::Accounts;
use super::conduct::Conduct;
use super::credit::Credit;
use super::last_words::LastWords;
use super::lives::Lives;
use super::presence::Presence;
use super::stopwatch::Stopwatch;
use super::{
    Attached, Command, FederationConfig, FederationError, Joined, Kept, OpenLog, RETRY, Reason, Refusal,
    Reply, Standing, Watching,
};
use crate::audit::Audit;
use crate::clock::RunningTime;
use crate::log::{Log, LogError};
use crate::metrics::Metrics;
use crate::trace::{Traced, Tracer};

/// Commands that share one sync at most.
const BATCH: usize = 4096;

struct Owner {
    config: Arc<FederationConfig>,
    open: OpenLog,
    directory: PathBuf,
    metrics: Metrics,
    tracer: Option<Tracer>,
    standing: Arc<Mutex<Standing>>,
    /// `None` while the log cannot be used.
    state: Option<State>,
    links: BTreeMap<AgentId, Attached>,
    /// Where a relay's frames for its parent go.
    parent: Option<mpsc::Sender<UpFrame>>,
    /// Frames for agents that come and fetch them, and who waits, first come first.
    mailboxes: BTreeMap<AgentId, VecDeque<DownFrame>>,
    waiting: VecDeque<AgentId>,
    lives: Lives,
    presence: Presence,
    last_words: LastWords,
    conduct: Conduct,
    credit: Credit,
    accounts: Accounts,
    audit: Audit,
    stopwatch: Stopwatch,
    /// The log failed: bytes of the batch that it could not keep, and when it is opened again.
    failed: Option<(u64, Instant)>,
    retry: Duration,
    time: RunningTime,
    up: Cost,
    down: Cost,
    downloads: u64,
}

struct State {
    hub: Hub,
    log: Box<dyn Log>,
}

/// The effects of one batch: log entries, which must be on the disk before the frames and replies are sent.
#[derive(Default)]
struct Outcome {
    entries: Vec<Vec<u8>>,
    frames: Vec<(AgentId, DownFrame)>,
    exchanges: Vec<(AgentId, Reply<Vec<DownFrame>>)>,
    left: Vec<Reply<()>>,
    /// Frames for a relay's parent, and who brought frames of it.
    up: Vec<UpFrame>,
    heard: Vec<Reply<()>>,
    evicted: Vec<(Reply<bool>, bool)>,
    uploads: u64,
    /// The messages of this batch, where uploads are traced.
    traced: Vec<Traced>,
    permits: Vec<tokio::sync::OwnedSemaphorePermit>,
}

/// `Stop` when the owner was told to end; its thread ends after the batch.
enum Next {
    GoOn,
    Stop,
}

pub(super) fn spawn(
    config: Arc<FederationConfig>,
    kept: Kept,
    watching: Watching,
    standing: Arc<Mutex<Standing>>,
    queue: mpsc::Receiver<Command>,
) -> Result<(), FederationError> {
    let Watching { clock, metrics, tracer } = watching;
    let Kept { open, directory, audit } = kept;
    let mut owner = Owner {
        config,
        open,
        directory,
        time: RunningTime::new(clock),
        metrics,
        tracer,
        standing,
        state: None,
        links: BTreeMap::new(),
        parent: None,
        mailboxes: BTreeMap::new(),
        waiting: VecDeque::new(),
        lives: Lives::default(),
        presence: Presence::default(),
        last_words: LastWords::default(),
        conduct: Conduct::default(),
        credit: Credit::default(),
        accounts: Accounts::default(),
        audit,
        failed: None,
        retry: RETRY.0,
        stopwatch: Stopwatch::default(),
        up: Cost::default(),
        down: Cost::default(),
        downloads: 0,
    };
    // A log that cannot be used now is the operator's business; later, it is ours to try again.
    owner.bring_back()?;
    let name = format!("posse-{}", owner.config.name);
    let runtime = Handle::current();
    std::thread::Builder::new()
        .name(name.chars().take(15).collect())
        .spawn(move || owner.run(&runtime, queue))
        .map_err(LogError::io("thread"))?;
    Ok(())
}

impl Owner {
    fn run(mut self, runtime: &Handle, mut queue: mpsc::Receiver<Command>) {
        let mut batch = Vec::new();
        loop {
            let first = match self.patience() {
                None => runtime.block_on(queue.recv()),
                Some(patience) => {
                    match runtime.block_on(async { tokio::time::timeout(patience, queue.recv()).await }) {
                        Ok(command) => command,
                        Err(_) => {
                            self.take(&mut Vec::new());
                            continue;
                        }
                    }
                }
            };
            let Some(first) = first else { return };
            batch.push(first);
            while batch.len() < BATCH
                && let Ok(command) = queue.try_recv()
            {
                batch.push(command);
            }
            if matches!(self.take(&mut batch), Next::Stop) {
                return;
            }
        }
    }

    /// How long nothing has to be done.
    fn patience(&mut self) -> Option<Duration> {
        let Some(state) = &self.state else { return Some(self.retry) };
        let deadline = state.hub.deadline().into_iter().chain(self.presence.next()).min()?;
        Some(Duration::from_micros(deadline.0.saturating_sub(self.time.now().0).max(1)))
    }

    /// Lets the hub judge a batch of commands, writes what must be kept and answers.
    fn take(&mut self, batch: &mut Vec<Command>) -> Next {
        if self.state.is_none() && self.failed.is_none_or(|(_, again)| again <= Instant::now()) {
            self.try_again();
        }
        let now = self.time.now();
        let mut outcome = Outcome::default();
        let mut next = Next::GoOn;
        let (mut drained, mut retracted) = (None, Vec::new());
        for command in batch.drain(..) {
            match command {
                Command::Abort => {
                    // The log's lock is free before a caller hears of the end: it may open the log again at once.
                    self.state = None;
                    return Next::Stop;
                }
                Command::Drain { reply } => drained = Some(reply),
                // After everything of this batch is on the disk.
                Command::Retract { agent, reply } => retracted.push((agent, reply)),
                other => self.judge(other, now, &mut outcome),
            }
        }
        if let Some(state) = &mut self.state {
            let step = state.hub.tick(now);
            self.follow(step, &mut outcome);
        }
        self.stop_waiting_for_absent(now, &mut outcome);
        self.keep_and_answer(outcome);
        for (agent, reply) in retracted {
            let _ = reply.send(self.retract(agent, now));
        }
        if let Some(reply) = drained {
            self.save();
            self.links.clear();
            // The log is closed, and its lock free, before the caller hears of it: it may open it again at once.
            self.state = None;
            let _ = reply.send(());
            next = Next::Stop;
        }
        self.report();
        next
    }

    fn judge(&mut self, command: Command, now: Tick, outcome: &mut Outcome) {
        match command {
            Command::Attach { agent, link } => {
                self.mailboxes.remove(&agent);
                self.let_go(agent, Status::aborted("another link of this agent took over"));
                self.links.insert(agent, link);
                self.note_link(agent);
            }
            Command::Detach { agent, link } => {
                if self.has_link(agent, link) {
                    self.links.remove(&agent);
                    self.begin_lease(agent);
                }
            }
            Command::Frame { agent, frame, bytes, answer, permit } => {
                outcome.permits.extend(permit);
                self.frame(agent, (*frame, &bytes), answer, now, outcome);
            }
            Command::Refused { agent, reason } => self.note_refusal(agent, reason),
            Command::Join { agent, resumes, process, reply } => {
                let shut_out = self.conduct.is_quarantined(agent);
                let life = match &self.state {
                    None => Err(Refusal::unavailable(&self.why())),
                    Some(_) if shut_out => Err(quarantined()),
                    Some(state) => self.lives.join(&state.hub, agent, resumes, &process),
                };
                if let Err(refusal) = &life {
                    self.audit.note(
                        "join refused",
                        json!({ "agent": agent.0, "reason": refusal.reason.word(), "why": refusal.message }),
                    );
                    self.note_refusal(agent, refusal.reason);
                }
                let joined = life.map(|life| {
                    // From here on this process speaks. What the one before it still sends would come between the last word
                    // that this one is told and its hello.
                    self.let_go(agent, Status::aborted("this agent has joined again"));
                    let last_word = self.last_words.of(agent, process.life).filter(|_| resumes);
                    Joined { life, last_word }
                });
                let _ = reply.send(joined);
            }
            Command::Leave { agent, reply } => match &mut self.state {
                None => drop(reply.send(Err(Refusal::unavailable(&self.why())))),
                Some(state) => {
                    let step = state.hub.leave(now, agent);
                    self.follow(step, outcome);
                    outcome.left.push(reply);
                }
            },
            Command::AttachParent { outbox } => {
                self.parent = Some(outbox);
                if let Some(state) = &mut self.state {
                    let step = state.hub.hello(now);
                    self.follow(step, outcome);
                }
            }
            Command::Heard { frame, reply } => self.hear_parent(*frame, reply, now, outcome),
            Command::CutLink { agent, why } => {
                self.let_go(agent, Status::unauthenticated(why));
                self.mailboxes.remove(&agent);
            }
            Command::Agents { reply } => drop(reply.send(self.agents())),
            Command::Evict { agent, reply } => self.evict(agent, now, reply, outcome),
            Command::Pardon { agent, reply } => {
                let done = self.conduct.pardon(agent);
                self.audit.note("pardoned", json!({ "agent": agent.0, "done": done }));
                let _ = reply.send(Ok(done));
            }
            Command::Look { reply } => drop(reply.send(self.view())),
            Command::Measure { reply } => drop(reply.send(self.measure())),
            Command::LookAt { agent, reply } => {
                let known = self.state.as_ref().and_then(|state| state.hub.coordinator().agent(agent));
                let _ = reply.send(known);
            }
            Command::Waiting { reply } => {
                let has_mail =
                    |agent: &AgentId| self.mailboxes.get(agent).is_some_and(|box_| !box_.is_empty());
                self.waiting.retain(has_mail);
                let _ = reply.send(self.waiting.iter().copied().collect());
            }
            Command::Drain { .. } | Command::Retract { .. } | Command::Abort => {}
        }
    }
}

fn quarantined() -> Refusal {
    Refusal::new(Reason::Quarantined, "this agent is in quarantine: too many of its messages were refused")
}
