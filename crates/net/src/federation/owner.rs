//! The one thread that owns a federation's hub and its log.
//!
//! It takes all commands that wait, lets the hub judge and apply them, writes what the hub wants kept in one
//! go, syncs once, and only then answers. Should the log fail, the hub knows more than the log: it is thrown
//! away with all answers, and both are opened again. No agent was told anything that is not kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use posse_core::session::{DownFrame, Hub, LogEvent, Step, UpFrame};
use posse_core::{AgentId, Cost, Epoch, Tick};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::Status;
use tracing::{error, info, warn};

use super::conduct::Conduct;
use super::credit::Credit;
use super::ledger::Ledger;
use super::lives::Lives;
use super::outbox::Posted;
use super::stopwatch::Stopwatch;
use super::{
    AgentInfo, Answer, Attached, Command, FederationConfig, FederationError, OpenLog, RETRY, Reason, Refusal,
    Reply, Standing, View, validate,
};
use crate::clock::{Clock, RunningTime};
use crate::log::{Log, LogError};
use crate::metrics::Metrics;

/// Commands that share one sync at most.
const BATCH: usize = 4096;
/// Frames that wait for an agent behind a proxy.
const MAILBOX: usize = 8;

struct Owner {
    config: Arc<FederationConfig>,
    open: OpenLog,
    metrics: Metrics,
    standing: Arc<Mutex<Standing>>,
    /// `None` while the log cannot be used.
    state: Option<State>,
    links: BTreeMap<AgentId, Attached>,
    /// Frames for agents that come and fetch them, and who waits, first come first.
    mailboxes: BTreeMap<AgentId, VecDeque<DownFrame>>,
    waiting: VecDeque<AgentId>,
    lives: Lives,
    conduct: Conduct,
    credit: Credit,
    ledger: Ledger,
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

/// What a batch comes to, to be kept first and sent then.
#[derive(Default)]
struct Outcome {
    entries: Vec<Vec<u8>>,
    frames: Vec<(AgentId, DownFrame)>,
    exchanges: Vec<(AgentId, Reply<Vec<DownFrame>>)>,
    left: Vec<Reply<()>>,
    evicted: Vec<(Reply<bool>, bool)>,
    uploads: u64,
    permits: Vec<tokio::sync::OwnedSemaphorePermit>,
}

/// Whether the owner thread takes more commands. It stops after `Drain` and `Abort`.
enum Next {
    GoOn,
    Stop,
}

pub(super) fn spawn(
    config: Arc<FederationConfig>,
    open: OpenLog,
    clock: Clock,
    metrics: Metrics,
    standing: Arc<Mutex<Standing>>,
    queue: mpsc::Receiver<Command>,
) -> Result<(), FederationError> {
    let mut owner = Owner {
        config,
        open,
        time: RunningTime::new(clock),
        metrics,
        standing,
        state: None,
        links: BTreeMap::new(),
        mailboxes: BTreeMap::new(),
        waiting: VecDeque::new(),
        lives: Lives::default(),
        conduct: Conduct::default(),
        credit: Credit::default(),
        ledger: Ledger::default(),
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
        let deadline = state.hub.deadline()?;
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
        let mut drained = None;
        for command in batch.drain(..) {
            match command {
                Command::Abort => {
                    // The log's lock is free before a caller hears of the end: it may open the log again at once.
                    self.state = None;
                    return Next::Stop;
                }
                Command::Drain { reply } => drained = Some(reply),
                other => self.judge(other, now, &mut outcome),
            }
        }
        if let Some(state) = &mut self.state {
            let step = state.hub.tick(now);
            self.follow(step, &mut outcome);
        }
        self.keep_and_answer(outcome);
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
            }
            Command::Detach { agent, link } => {
                if self.has_link(agent, link) {
                    self.links.remove(&agent);
                }
            }
            Command::Frame { agent, frame, answer, permit } => {
                outcome.permits.extend(permit);
                self.frame(agent, frame, answer, now, outcome);
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
                    self.note_refusal(agent, refusal.reason);
                }
                let _ = reply.send(life);
            }
            Command::Leave { agent, reply } => match &mut self.state {
                None => drop(reply.send(Err(Refusal::unavailable(&self.why())))),
                Some(state) => {
                    let step = state.hub.leave(now, agent);
                    self.follow(step, outcome);
                    outcome.left.push(reply);
                }
            },
            Command::CutLink { agent, why } => {
                self.let_go(agent, Status::unauthenticated(why));
                self.mailboxes.remove(&agent);
            }
            Command::Agents { reply } => drop(reply.send(self.agents())),
            Command::Evict { agent, reply } => self.evict(agent, now, reply, outcome),
            Command::Pardon { agent, reply } => {
                let done = self.conduct.pardon(agent);
                info!(federation = self.config.name, agent = agent.0, done, "pardoned");
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
            Command::Drain { .. } | Command::Abort => {}
        }
    }

    /// Ends an agent's life and tells it so; the answer waits until that is on the disk.
    fn evict(&mut self, agent: AgentId, now: Tick, reply: Reply<bool>, outcome: &mut Outcome) {
        let Some(state) = &mut self.state else {
            let _ = reply.send(Err(Refusal::unavailable(&self.why())));
            return;
        };
        let step = state.hub.leave(now, agent);
        let done = !step.log.is_empty();
        self.follow(step, outcome);
        let why = Refusal::new(Reason::Superseded, format!("the operator evicted {agent}"));
        self.let_go(agent, why.into_status());
        self.mailboxes.remove(&agent);
        info!(federation = self.config.name, agent = agent.0, done, "evicted");
        outcome.evicted.push((reply, done));
    }

    /// What is known of every agent that has joined or was refused.
    fn agents(&self) -> Vec<AgentInfo> {
        let Some(State { hub, .. }) = &self.state else { return Vec::new() };
        let all: BTreeSet<AgentId> = hub.agents().chain(self.ledger.agents()).collect();
        let information = hub.coordinator().inspect().information;
        let describe = |agent: AgentId| {
            let account = self.ledger.of(agent);
            let standing = hub.coordinator().agent(agent);
            let life = hub.last_incarnation(agent);
            AgentInfo {
                agent: agent.0,
                life: life.map_or(0, |life| life.0),
                gone: life.is_some() && hub.incarnation(agent).is_none(),
                connected: self.links.contains_key(&agent),
                away: false,
                quarantined_for: self.conduct.quarantined_for(agent),
                last_seen: account.last_seen,
                uploads: standing.map_or(0, |standing| standing.uploads),
                observations: account.observations,
                staleness: standing.map_or(0.0, |standing| information - standing.information),
                refused: account.refused.into_iter().map(|(why, count)| (why.to_owned(), count)).collect(),
            }
        };
        all.into_iter().map(describe).collect()
    }

    fn frame(&mut self, agent: AgentId, frame: UpFrame, answer: Answer, now: Tick, outcome: &mut Outcome) {
        if let Answer::Link(link) = answer
            && !self.has_link(agent, link)
        {
            // The link ended while this frame waited, so no answer can be sent. The agent sends it again.
            return;
        }
        let judged = self.hear(agent, frame, now);
        match (judged, answer) {
            (Ok(step), Answer::Link(_)) => self.follow(step, outcome),
            (Ok(step), Answer::Exchange(reply)) => {
                self.let_go(agent, Status::aborted("this agent came by a call: whoever calls has no link"));
                self.mailboxes.entry(agent).or_default();
                self.follow(step, outcome);
                outcome.exchanges.push((agent, reply));
            }
            (Err(refusal), answer) => {
                self.note_refusal(agent, refusal.reason);
                match answer {
                    Answer::Exchange(reply) => drop(reply.send(Err(refusal))),
                    Answer::Link(_) => self.let_go(agent, refusal.into_status()),
                }
            }
        }
    }

    fn has_link(&self, agent: AgentId, number: u64) -> bool {
        self.links.get(&agent).is_some_and(|link| link.number == number)
    }

    /// Ends the link of an agent.
    fn let_go(&mut self, agent: AgentId, why: Status) {
        if let Some(link) = self.links.remove(&agent) {
            link.outbox.end(why);
        }
    }

    /// Lets the hub judge a frame and apply it.
    fn hear(&mut self, agent: AgentId, frame: UpFrame, now: Tick) -> Result<Step, Refusal> {
        if self.conduct.is_quarantined(agent) {
            return Err(quarantined());
        }
        let Some(state) = &mut self.state else {
            return Err(Refusal::unavailable(&self.why()));
        };
        self.lives.check(&state.hub, agent, frame.incarnation)?;
        let mut charged = 0;
        if let Some(message) = &frame.message {
            validate::check(&self.config, message)?;
            charged = self.credit.spend(&self.config, agent, message, Instant::now())?;
        }
        let cost = frame.cost();
        let step = state.hub.receive(now, agent, frame);
        let counts = |step: &Step| step.log.iter().any(|entry| matches!(entry.event, LogEvent::Accepted(..)));
        let counted = step.as_ref().is_ok_and(counts);
        if counted {
            self.conduct.accepted(agent);
        } else {
            self.credit.refund(agent, charged);
        }
        let step = step?;
        self.ledger.heard(agent, if counted { charged } else { 0 });
        self.up.add(cost);
        Ok(step)
    }

    /// Puts what a hub did into the outcome.
    fn follow(&mut self, step: Step, outcome: &mut Outcome) {
        for entry in &step.log {
            outcome.uploads += u64::from(matches!(entry.event, LogEvent::Accepted(..)));
            outcome.entries.push(entry.encode());
        }
        for (agent, frame) in step.frames {
            if let (Some(message), Some(state)) = (&frame.message, &self.state)
                && let Some(took) = self.stopwatch.note(message, || state.hub.coordinator().inspect().version)
            {
                self.metrics.round(&self.config.name, took);
            }
            outcome.frames.push((agent, frame));
        }
    }

    /// Writes and syncs the log, and only then sends the answers and frames.
    fn keep_and_answer(&mut self, outcome: Outcome) {
        if !outcome.entries.is_empty()
            && let Some(state) = &mut self.state
        {
            let epoch = state.hub.epoch().0;
            let began = Instant::now();
            let kept = state.log.append(&outcome.entries).and_then(|()| state.log.sync(epoch));
            if let Err(error) = kept {
                self.lose(&error, outcome);
                return;
            }
            self.metrics.synced(&self.config.name, began.elapsed(), state.log.bytes());
        }
        self.metrics.uploads(&self.config.name, outcome.uploads);
        for (agent, frame) in outcome.frames {
            self.deliver(agent, frame);
        }
        for (agent, reply) in outcome.exchanges {
            let mail = self.mailboxes.get_mut(&agent).map(std::mem::take).unwrap_or_default();
            let _ = reply.send(Ok(mail.into()));
        }
        for reply in outcome.left {
            let _ = reply.send(Ok(()));
        }
        for (reply, done) in outcome.evicted {
            let _ = reply.send(Ok(done));
        }
        let limit = self.config.snapshot_every.saturating_mul(1 << 20);
        if self.state.as_ref().is_some_and(|state| state.log.bytes_since_snapshot() >= limit) {
            self.save();
        }
    }

    /// The log failed: what the hub did since the last sync never happened.
    fn lose(&mut self, cause: &LogError, outcome: Outcome) {
        let bytes = outcome.entries.iter().map(|entry| entry.len() as u64).sum();
        self.failed = Some((bytes, Instant::now() + self.retry));
        error!(federation = self.config.name, %cause, "the log cannot be written");
        self.metrics.refused(&self.config.name, Reason::Unavailable);
        self.trouble(Some(cause.to_string()));
        self.state = None;
        self.stopwatch.stop();
        let refusal = Refusal::unavailable(&self.why());
        for (_, reply) in outcome.exchanges {
            let _ = reply.send(Err(refusal.clone()));
        }
        for reply in outcome.left {
            let _ = reply.send(Err(refusal.clone()));
        }
        for (reply, _) in outcome.evicted {
            let _ = reply.send(Err(refusal.clone()));
        }
        // Links stay: what was not answered is sent again.
    }

    /// Opens a log that failed again, later and later.
    fn try_again(&mut self) {
        match self.bring_back() {
            Ok(()) => self.retry = RETRY.0,
            Err(error) => {
                self.trouble(Some(error.to_string()));
                let bytes = self.failed.map_or(0, |(bytes, _)| bytes);
                self.failed = Some((bytes, Instant::now() + self.retry));
                self.retry = (2 * self.retry).min(RETRY.1);
            }
        }
    }

    /// Opens the log and goes on where it ends. After a failure it must first take as much as it could not keep: a
    /// full disk can be read, and saying that all is well until the next upload would be a lie.
    fn bring_back(&mut self) -> Result<(), FederationError> {
        let mut log = (self.open)()?;
        if let Some((bytes, _)) = self.failed {
            log.probe(bytes)?;
        }
        let replay = log.replay()?;
        let name = &self.config.name;
        let (lost, torn, epoch) = (replay.lost_entries, replay.torn_bytes, replay.epoch);
        let entries = replay.entries.len();
        let mut hub = self.config.replay(&replay)?;
        self.time.go_on_from(hub.latest());
        if torn > 0 {
            warn!(
                federation = name,
                bytes = torn,
                "a write at the end of the log was cut short and is dropped"
            );
        }
        if lost > 0 {
            let epoch = Epoch(epoch.max(hub.epoch().0) + 1);
            error!(
                federation = name,
                entries = lost,
                epoch = epoch.0,
                "the end of the log is lost: a new epoch begins"
            );
            let now = self.time.now();
            let step = hub.begin_epoch(now, epoch);
            let entries: Vec<Vec<u8>> = step.log.iter().map(|entry| entry.encode()).collect();
            log.append(&entries)?;
            log.sync(epoch.0)?;
        }
        info!(
            federation = self.config.name,
            entries,
            observations = hub.coordinator().inspect().observations,
            "the log is open"
        );
        self.metrics.log_bytes(&self.config.name, log.bytes());
        self.state = Some(State { hub, log });
        self.failed = None;
        self.trouble(None);
        Ok(())
    }

    /// Keeps the whole state, so that the log before it can go.
    fn save(&mut self) {
        let Some(state) = &mut self.state else { return };
        let saved = state.log.snapshot(&state.hub.save()).and_then(|()| state.log.truncate());
        match saved {
            Ok(()) => self.metrics.log_bytes(&self.config.name, state.log.bytes()),
            // The log still has everything.
            Err(cause) => warn!(federation = self.config.name, %cause, "the state cannot be saved"),
        }
    }

    fn deliver(&mut self, agent: AgentId, frame: DownFrame) {
        let cost = frame.cost();
        let has_message = u64::from(frame.message.is_some());
        if let Some(link) = self.links.get(&agent) {
            match link.outbox.post(Box::new(frame)) {
                Posted::Queued => {
                    self.down.add(cost);
                    self.downloads += has_message;
                }
                // A slow link is a lossy link: the session says it again.
                Posted::Dropped => {}
                Posted::Unread => drop(self.links.remove(&agent)),
            }
        } else if let Some(mail) = self.mailboxes.get_mut(&agent) {
            if mail.is_empty() {
                self.waiting.push_back(agent);
            }
            // A message that is said again while it waits is there once.
            mail.retain(|old| old.sequence == 0 || old.sequence != frame.sequence);
            if mail.len() < MAILBOX {
                mail.push_back(frame);
                self.down.add(cost);
                self.downloads += has_message;
            }
        }
    }

    fn view(&self) -> Option<View> {
        let state = self.state.as_ref()?;
        let coordinator = state.hub.coordinator();
        let view = coordinator.inspect();
        let (staleness, _) = self.measure()?;
        Some(View {
            epoch: state.hub.epoch(),
            version: view.version.0,
            observations: view.observations,
            information: view.information,
            agents: view.agents,
            staleness,
            next_entry: state.log.next(),
            state: coordinator.save(),
        })
    }

    /// By how much the connected agent furthest behind is behind, and how many observations there are.
    fn measure(&self) -> Option<(f64, u64)> {
        let coordinator = self.state.as_ref()?.hub.coordinator();
        let view = coordinator.inspect();
        let behind = |agent| coordinator.agent(agent).map(|standing| view.information - standing.information);
        let staleness = self.links.keys().filter_map(|agent| behind(*agent)).fold(0.0, f64::max);
        Some((staleness, view.observations))
    }

    fn note_refusal(&mut self, agent: AgentId, reason: Reason) {
        self.metrics.refused(&self.config.name, reason);
        self.ledger.refused(agent, reason);
        self.conduct.refused(&self.config, agent, reason);
    }

    fn why(&self) -> String {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.trouble.clone().unwrap_or_else(|| "its log is closed".into())
    }

    fn trouble(&self, trouble: Option<String>) {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).trouble = trouble;
    }

    fn report(&mut self) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.connected = self.links.len();
        // Counted here, once a batch, and not at each frame.
        let sent = (self.up.bytes - standing.up.bytes, self.down.bytes - standing.down.bytes);
        self.metrics.sent(&self.config.name, sent, std::mem::take(&mut self.downloads));
        (standing.up, standing.down) = (self.up, self.down);
        let quarantined = self.conduct.quarantined();
        self.metrics.connected(&self.config.name, self.links.len(), quarantined.len());
        standing.quarantined.clear();
        standing.quarantined.extend(quarantined);
    }
}

fn quarantined() -> Refusal {
    Refusal::new(Reason::Quarantined, "this agent is in quarantine: too many of its messages were refused")
}
