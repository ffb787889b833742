//! The one thread that owns a federation's hub and its log.
//!
//! It takes all commands that wait, lets the hub judge and apply them, writes what the hub wants kept in one
//! go, syncs once, and only then answers. Should the log fail, the hub knows more than the log: it is thrown
//! away with all answers, and both are opened again. No agent was told anything that is not kept.

mod following;
mod frames;
mod keeping;
mod looking;
mod presence;
mod retracting;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posse_core::session::{DownFrame, Hub, UpFrame};
use posse_core::{AgentId, Cost, Tick};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::Status;

use self::following::Standby;
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
use crate::log::{KeptLife, Log, LogError};
use crate::metrics::Metrics;
use crate::trace::{Traced, Tracer};

/// Commands that share one sync at most.
const BATCH: usize = 4096;

struct Owner {
    config: Arc<FederationConfig>,
    /// Where the tasks of links run.
    runtime: Handle,
    open: OpenLog,
    /// Whether other processes may lead the federation, so that this one may have to wait for its turn.
    shared: bool,
    metrics: Metrics,
    tracer: Option<Tracer>,
    standing: Arc<Mutex<Standing>>,
    /// `None` while the log cannot be used, or while another process leads.
    state: Option<State>,
    /// What was read of the log by a process that does not lead, or not yet.
    standby: Option<Standby>,
    links: BTreeMap<AgentId, Attached>,
    /// Where a relay's frames for its parent go.
    parent: Option<mpsc::Sender<UpFrame>>,
    /// Frames for agents that come and fetch them, and who waits, first come first.
    mailboxes: BTreeMap<AgentId, VecDeque<DownFrame>>,
    waiting: VecDeque<AgentId>,
    lives: Lives,
    /// The number of this coordinator's history.
    history: u64,
    /// What a relay remembers is not what its parent knows of it. Nothing is taken from its children, because nothing would
    /// arrive.
    is_lost: bool,
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
    /// When the lease wants to be renewed; `None` for a log without one.
    tend: Option<Instant>,
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
    /// Answers to joins, and the lives that they give out, which are kept first.
    joined: Vec<(Reply<Joined>, Joined)>,
    lives: BTreeMap<AgentId, KeptLife>,
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
    let Kept { open, shared, audit } = kept;
    let mut owner = Owner {
        config,
        runtime: Handle::current(),
        open,
        shared,
        time: RunningTime::new(clock),
        metrics,
        tracer,
        standing,
        state: None,
        standby: None,
        links: BTreeMap::new(),
        parent: None,
        mailboxes: BTreeMap::new(),
        waiting: VecDeque::new(),
        lives: Lives::default(),
        history: 0,
        is_lost: false,
        presence: Presence::default(),
        last_words: LastWords::default(),
        conduct: Conduct::default(),
        credit: Credit::default(),
        accounts: Accounts::default(),
        audit,
        failed: None,
        retry: RETRY.0,
        tend: None,
        stopwatch: Stopwatch::default(),
        up: Cost::default(),
        down: Cost::default(),
        downloads: 0,
    };
    if shared {
        // The first look may find that another process leads, or that the database is just being failed over.
        owner.trouble(Some("its log is being read".into()));
    } else {
        // A log that cannot be used now is the operator's business; later, it is ours to try again.
        owner.bring_back()?;
    }
    let name = format!("posse-{}", owner.config.name);
    std::thread::Builder::new()
        .name(name.chars().take(15).collect())
        .spawn(move || owner.run(queue))
        .map_err(LogError::io("thread"))?;
    Ok(())
}

impl Owner {
    fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let runtime = self.runtime.clone();
        let mut batch = Vec::new();
        if self.shared {
            self.take(&mut Vec::new());
        }
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
        let Some(state) = &self.state else { return Some(self.until_next_look()) };
        let deadline = state.hub.deadline().into_iter().chain(self.presence.next()).min();
        let now = self.time.now().0;
        let deadline = deadline.map(|deadline| Duration::from_micros(deadline.0.saturating_sub(now).max(1)));
        let tend = self.tend.map(|tend| tend.saturating_duration_since(Instant::now()));
        deadline.into_iter().chain(tend).min()
    }

    /// Lets the hub judge a batch of commands, writes what must be kept and answers.
    fn take(&mut self, batch: &mut Vec<Command>) -> Next {
        if self.state.is_none() && self.until_next_look().is_zero() {
            self.try_again();
        }
        self.renew_lease();
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
        self.end_leases(now);
        if let Some(state) = &mut self.state {
            let step = state.hub.tick_without(now, |agent| self.presence.is_away(agent));
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
            if let Some(state) = &mut self.state {
                state.log.resign();
            }
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
            Command::Attach { link, .. } if self.standby.is_some() => {
                link.outbox.end(self.unavailable().into_status());
            }
            Command::Attach { agent, instance, link } => {
                if let Err(refusal) = self.lives.may_speak(agent, instance) {
                    self.note_refusal(agent, refusal.reason);
                    link.outbox.end(refusal.into_status());
                    return;
                }
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
                let before = self.lives.speaker(agent);
                let life = match &self.state {
                    None => Err(self.unavailable()),
                    Some(_) if self.is_lost => Err(self.unavailable()),
                    Some(_) if shut_out => Err(quarantined()),
                    Some(state) => self.lives.join(&state.hub, agent, resumes, &process),
                };
                let life = match life {
                    Ok(life) => life,
                    Err(refusal) => {
                        if refusal.reason != Reason::Standby {
                            let why = &refusal.message;
                            let details =
                                json!({ "agent": agent.0, "reason": refusal.reason.word(), "why": why });
                            self.audit.note("join refused", details);
                        }
                        self.note_refusal(agent, refusal.reason);
                        let _ = reply.send(Err(refusal));
                        return;
                    }
                };
                if before.is_some_and(|before| before != process.instance) {
                    let lives = if resumes { process.life } else { life };
                    self.audit.note("took over", json!({ "agent": agent.0, "life": lives.0 }));
                }
                // From here on this process speaks. What the one before it still sends would come between the last word
                // that this one is told and its hello.
                self.let_go(agent, Status::aborted("this agent has joined again"));
                // The same holds for what waits for it.
                self.mailboxes.remove(&agent);
                let last_word = self.last_words.of(agent, process.life).filter(|_| resumes);
                let last_heard = self.last_heard(agent, process.life).filter(|_| resumes);
                outcome.lives.insert(agent, self.lives.to_keep(agent));
                let history = self.history;
                outcome.joined.push((reply, Joined { life, last_word, last_heard, history }));
            }
            Command::Leave { agent, instance, reply } => match &mut self.state {
                None => drop(reply.send(Err(self.unavailable()))),
                Some(state) => {
                    if let Err(refusal) = self.lives.may_speak(agent, instance) {
                        let _ = reply.send(Err(refusal));
                        return;
                    }
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
            Command::AskParent { reply } => {
                let _ = reply.send(self.state.as_ref().and_then(|state| state.hub.question()));
            }
            Command::LoseParent { why } => self.lose_parent(&why),
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
