//! The coordinator's end of all links.

use std::collections::BTreeSet;
use std::fmt;

use prost::Message;

use crate::coordinator::{Coordinator, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::ids::{AgentId, Epoch, Incarnation, Tick};
use crate::message::Outgoing;
use crate::relay::Relay;
use crate::session::frame::{DownFrame, UpFrame};
use crate::session::log::{LogEntry, LogEvent};
use crate::session::relayed::Machine;
use crate::session::seats::{LinkSeat, Seats};
use crate::session::upstream::Upstream;
use crate::time_span::TimeSpan;
use crate::wire::{self, v1};

/// A coordinator with its ends of the links to all agents.
///
/// Every method that changes something takes the time as its first argument and returns a [`Step`]: first
/// keep its log entries, then send its frames. Call [`tick`](Self::tick) at [`deadline`](Self::deadline).
///
/// Times come from a clock that does not jump. A time before [`latest`](Self::latest) counts as that one,
/// so deadlines cannot be put off by a clock that was set back.
///
/// A relay has such a hub as well, made by [`Hub::relay`]. Its steps hold frames for its parent too, and every frame
/// of its parent goes to [`hear`](Self::hear). One log keeps both sides: replayed, it brings back what the relay owes
/// its parent along with what it owes its children.
pub struct Hub {
    machine: Machine,
    /// A relay's end of the link to its parent.
    parent: Option<Upstream>,
    /// Its ends of the links to agents.
    seats: Seats,
    /// When the last event of the log happened. Time never goes back before it, also after a restart.
    latest: Tick,
}

/// The effects of one event: log entries, which the host keeps first, and frames, which it sends then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Entries that must be on disk before any frame is sent.
    pub log: Vec<LogEntry>,
    /// Frames to send, each with its recipient.
    pub frames: Vec<(AgentId, DownFrame)>,
    /// Frames to send to the parent, if this is a relay.
    pub up: Vec<UpFrame>,
}

impl Hub {
    /// A coordinator at the beginning of its history. It sends again what is not acknowledged in
    /// `resend_after`.
    #[must_use]
    pub fn new(coordinator: Box<dyn Coordinator>, resend_after: TimeSpan) -> Self {
        Self::of(Machine::Coordinator(coordinator), None, resend_after)
    }

    /// A relay at the beginning of its history. To its parent it is the agent `id` in its life `incarnation`. Say
    /// [`hello`](Self::hello) next, and after every restart.
    #[must_use]
    pub fn relay(
        mut relay: Box<dyn Relay>,
        id: AgentId,
        incarnation: Incarnation,
        resend_after: TimeSpan,
    ) -> Self {
        relay.begin_life(incarnation);
        Self::of(Machine::relay(relay), Some(Upstream::new(id, incarnation, resend_after)), resend_after)
    }

    fn of(machine: Machine, parent: Option<Upstream>, resend_after: TimeSpan) -> Self {
        Self { machine, parent, seats: Seats::new(resend_after), latest: Tick(0) }
    }

    /// Makes a relay known to its parent: at the beginning, after a restart, and whenever the link was cut. Does
    /// nothing for a coordinator, which has no parent.
    pub fn hello(&mut self, now: Tick) -> Step {
        let now = now.max(self.latest);
        let mut step = Step::default();
        if let Some(parent) = &mut self.parent {
            // Acknowledgements are not in the log, so that all messages that wait may have left before.
            parent.finish_replay(usize::MAX);
            step.up.push(parent.hello(now));
        }
        step
    }

    /// Takes in a frame of a relay's parent. An error means that nothing has changed.
    ///
    /// [`ProtocolError::FrameGap`] means that the parent has heard more from this relay than it can have said: the end
    /// of its log is lost and was told to the parent before, or another process speaks in its name. Such a relay cannot
    /// go on without counting something twice.
    pub fn hear(&mut self, now: Tick, frame: DownFrame) -> Result<Step, ProtocolError> {
        let now = now.max(self.latest);
        let mut step = Step::default();
        let (Machine::Relay(relayed), Some(parent)) = (&mut self.machine, &mut self.parent) else {
            return Err(ProtocolError::UnknownAgent(AgentId(0)));
        };
        let news = parent.is_news(&frame).then(|| frame.clone());
        let mut down = Vec::new();
        let answer = parent.receive(now, frame, |message| {
            let passed = relayed.relay.hear(now, message)?;
            down = passed.down;
            Ok(passed.up)
        })?;
        step.up.extend(answer);
        if let Some(frame) = news {
            self.record(now, LogEvent::Heard(frame), &mut step);
            self.enqueue(now, down, &mut step);
        }
        Ok(step)
    }

    /// Takes in a frame. An error means that nothing has changed.
    pub fn receive(&mut self, now: Tick, from: AgentId, frame: UpFrame) -> Result<Step, ProtocolError> {
        let now = now.max(self.latest);
        let mut step = Step::default();
        let known = self.seats.get(from).copied();
        let ended = |link: LinkSeat| {
            frame.incarnation < link.incarnation || (link.gone && frame.incarnation == link.incarnation)
        };
        if known.is_some_and(ended) {
            // A late copy from a life that ended.
            return Ok(step);
        }
        let epoch = self.seats.epoch;
        if frame.epoch > epoch {
            let (expected, got) = (epoch.0, frame.epoch.0);
            return Err(ProtocolError::Epoch { expected, got });
        }
        let Some(link) = known.filter(|link| frame.incarnation == link.incarnation) else {
            // A message in it is sent again once the agent has its answer.
            self.begin_life(now, from, frame.incarnation, &mut step);
            if frame.epoch < epoch {
                // The hub cannot tell whether this life is new or was lost with the end of the log.
                self.welcome_back(now, from, &mut step);
            }
            self.seats.answer(now, from, true, frame.greeting, &mut step.frames);
            return Ok(step);
        };
        if frame.epoch < epoch {
            // The agent speaks to a history that is gone. The authoritative snapshot will tell it.
            if !link.acquainted {
                self.welcome_back(now, from, &mut step);
            } else if link.received == 0 {
                self.seats.stop_waiting(from);
                self.seats.send_next(now, from, &mut step.frames);
            }
            // Otherwise this is a late copy of a frame, or an old copy of the agent: this life has received the snapshot, and what
            // waits for it now must not be the first thing that is heard of this epoch.
            return Ok(step);
        }
        let greeting = frame.greeting;
        let wants_answer = greeting > 0 || frame.message.is_some();
        let mut step = self.accept(now, from, frame)?;
        self.seats.answer(now, from, wants_answer, greeting, &mut step.frames);
        Ok(step)
    }

    /// An agent left for good.
    pub fn leave(&mut self, now: Tick, agent: AgentId) -> Step {
        let now = now.max(self.latest);
        let mut step = Step::default();
        if self.seats.leave(agent) {
            self.record(now, LogEvent::Left(agent), &mut step);
            let outgoing = self.machine.coordinator_mut().leave(now, agent);
            self.enqueue(now, outgoing, &mut step);
        }
        step
    }

    /// Time has passed: sends again what was not answered, and lets the coordinator act.
    pub fn tick(&mut self, now: Tick) -> Step {
        self.tick_without(now, |_| false)
    }

    /// The same for a host that knows which agents are away: a round whose deadline has passed does not count those that it
    /// still waits for.
    pub fn tick_without(&mut self, now: Tick, is_away: impl Fn(AgentId) -> bool) -> Step {
        let now = now.max(self.latest);
        let mut step = Step::default();
        if self.machine.coordinator().deadline().is_some_and(|deadline| deadline <= now) {
            self.let_coordinator_act(now, now, self.absent(is_away), &mut step);
        }
        self.seats.resend(now, &mut step.frames);
        if let Some(parent) = &mut self.parent {
            step.up.extend(parent.tick(now));
        }
        step
    }

    /// Lets the deadline of the open round or phase pass now, if there is one: the agents that it still waits for
    /// are away, and do not count for its quorum. Does nothing to a round without a deadline, which its settings want to wait.
    pub fn pass_deadline(&mut self, now: Tick) -> Step {
        let now = now.max(self.latest);
        let mut step = Step::default();
        if let Some(deadline) = self.machine.coordinator().deadline() {
            self.let_coordinator_act(now, deadline.max(now), self.absent(|_| true), &mut step);
        }
        step
    }

    /// Those of the agents that the open round waits for that are away.
    fn absent(&self, is_away: impl Fn(AgentId) -> bool) -> BTreeSet<AgentId> {
        let waits_for = self.machine.coordinator().waits_for().into_iter().flatten();
        waits_for.copied().filter(|agent| is_away(*agent)).collect()
    }

    /// The coordinator does what is due at `due`, which was written down at `now`.
    fn let_coordinator_act(&mut self, now: Tick, due: Tick, absent: BTreeSet<AgentId>, step: &mut Step) {
        let outgoing = if absent.is_empty() {
            self.record(now, LogEvent::Ticked, step);
            self.machine.coordinator_mut().tick(due)
        } else {
            let outgoing = self.machine.coordinator_mut().tick_without(due, &absent);
            self.record(now, LogEvent::TickedWithout(absent), step);
            outgoing
        };
        self.enqueue(now, outgoing, step);
    }

    /// When [`tick`](Self::tick) has something to do next.
    #[must_use]
    pub fn deadline(&self) -> Option<Tick> {
        let parent = self.parent.as_ref().and_then(Upstream::deadline);
        [self.seats.deadline(), parent, self.machine.coordinator().deadline()].into_iter().flatten().min()
    }

    /// Applies an entry of the log. Frames are not sent again; whatever is not acknowledged leaves at the
    /// next [`tick`](Self::tick).
    pub fn replay(&mut self, entry: LogEntry) -> Result<(), ProtocolError> {
        let mut void = Step::default();
        let now = entry.tick.max(self.latest);
        if let Some(parent) = &mut self.parent {
            parent.begin_replay();
        }
        match entry.event {
            LogEvent::Joined(agent, incarnation) => {
                self.begin_life(now, agent, incarnation, &mut void);
            }
            LogEvent::Returned(agent) => self.welcome_back(now, agent, &mut void),
            // What the agent had shared is not among the entries that are replayed; its life ends here.
            LogEvent::Left(agent) | LogEvent::Retracted(agent) => drop(self.leave(now, agent)),
            LogEvent::EpochBegan(epoch) => drop(self.begin_epoch(now, epoch)),
            LogEvent::Heard(frame) => drop(self.hear(now, frame)?),
            LogEvent::Accepted(agent, frame) => {
                self.accept(now, agent, frame)?;
                // An acknowledgement in it may have freed the link for what waits.
                self.seats.send_next(now, agent, &mut void.frames);
            }
            LogEvent::Ticked => self.act_again(now, BTreeSet::new(), &mut void),
            LogEvent::TickedWithout(absent) => self.act_again(now, absent, &mut void),
        }
        Ok(())
    }

    /// The entry was written because a deadline had passed, or was let pass early. Logs of version 0.1 counted deadlines from an
    /// earlier moment, so by this hub's reckoning it may lie ahead; it passed all the same.
    fn act_again(&mut self, now: Tick, absent: BTreeSet<AgentId>, step: &mut Step) {
        let due = self.machine.coordinator().deadline().map_or(now, |deadline| deadline.max(now));
        self.let_coordinator_act(now, due, absent, step);
    }

    /// The log ended early: some of what agents were told never happened. Each agent is introduced again
    /// when it comes back. `epoch` must be one that was never used.
    pub fn begin_epoch(&mut self, now: Tick, epoch: Epoch) -> Step {
        let now = now.max(self.latest);
        self.seats.begin_epoch(epoch);
        let mut step = Step::default();
        self.record(now, LogEvent::EpochBegan(epoch), &mut step);
        step
    }

    /// The coordinator that this hub stands for.
    #[must_use]
    pub fn coordinator(&self) -> &dyn Coordinator {
        self.machine.coordinator()
    }

    /// The relay that this hub stands for, if it is not a coordinator.
    #[must_use]
    pub fn as_relay(&self) -> Option<&dyn Relay> {
        match &self.machine {
            Machine::Coordinator(_) => None,
            Machine::Relay(relayed) => Some(&*relayed.relay),
        }
    }

    /// A frame by which a relay that has nothing to say asks its parent for what waits there, where both speak by calls and
    /// not over a link. `None` for a coordinator, which has no parent.
    #[must_use]
    pub fn question(&self) -> Option<UpFrame> {
        self.parent.as_ref().map(Upstream::bare)
    }

    /// A relay's newest message from its parent: the parent's epoch, and the number in it.
    #[must_use]
    pub fn heard(&self) -> Option<(Epoch, u64)> {
        self.parent.as_ref().map(|parent| (parent.epoch, parent.received))
    }

    /// The epoch: how often this coordinator has lost part of its history.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.seats.epoch
    }

    /// When the last event of the log happened.
    ///
    /// After a restart, give times that go on from here, as if the hub had never been away: then a round
    /// that was open keeps what was left of its deadline, whatever the machine's clock says now.
    #[must_use]
    pub const fn latest(&self) -> Tick {
        self.latest
    }

    /// Every agent that was ever heard of here, by number.
    pub fn agents(&self) -> impl Iterator<Item = AgentId> {
        self.seats.agents()
    }

    /// The life of an agent, if it has joined.
    #[must_use]
    pub fn incarnation(&self, agent: AgentId) -> Option<Incarnation> {
        self.seats.get(agent).filter(|seat| !seat.gone).map(|seat| seat.incarnation)
    }

    /// The newest life of an agent that was ever heard of here, over or not.
    #[must_use]
    pub fn last_incarnation(&self, agent: AgentId) -> Option<Incarnation> {
        self.seats.get(agent).map(|seat| seat.incarnation)
    }

    /// The number of the newest message that the newest life of `agent` has said to have received in this epoch; 0 if
    /// there is none. It is not sent again, and neither is anything before it.
    ///
    /// A saved state of the agent that has received less is an old copy: it would never hear what it has missed.
    /// Acknowledgements without a message are not in the log, so that after a restart this may be less than it was; then what
    /// comes after it is sent again.
    #[must_use]
    pub fn received_by(&self, agent: AgentId) -> u64 {
        self.seats.get(agent).map_or(0, |seat| seat.received)
    }

    /// Everything needed to go on with the same bits, encoded: a log up to here can be dropped.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let machine = self.machine.coordinator().save();
        let latest = self.latest.0;
        let parent = self.parent.as_ref().map(Upstream::save);
        let (epoch, seats) = (self.seats.epoch.0, self.seats.save());
        v1::HubState { epoch, seats, machine, latest, parent }.encode_to_vec()
    }

    /// Goes on from a saved state, or changes nothing.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::HubState = wire::decode(state)?;
        let seats = self.seats.restored(Epoch(state.epoch), state.seats)?;
        let parent = match (&self.parent, state.parent) {
            (None, None) => None,
            (Some(parent), Some(state)) => Some(parent.restored(state)?),
            _ => return Err(DecodeError::invalid("hub", "a relay's state is not a coordinator's")),
        };
        self.machine.coordinator_mut().restore(&state.machine)?;
        self.parent = parent;
        if let (Machine::Relay(relayed), Some(parent)) = (&mut self.machine, &self.parent) {
            relayed.relay.begin_life(parent.incarnation);
        }
        self.seats = seats;
        // States of version 0.1 do not say when they were saved. A round that was open in one must not wait
        // for a deadline by another clock, so its deadline has passed.
        let unknown = || self.machine.coordinator().deadline().unwrap_or(Tick(0));
        self.latest = if state.latest == 0 { unknown() } else { Tick(state.latest) };
        Ok(())
    }

    /// Writes down that `event` happened at `now`.
    fn record(&mut self, now: Tick, event: LogEvent, step: &mut Step) {
        self.latest = self.latest.max(now);
        step.log.push(LogEntry { tick: now, event });
    }

    fn begin_life(&mut self, now: Tick, agent: AgentId, incarnation: Incarnation, step: &mut Step) {
        self.seats.begin_life(agent, incarnation);
        self.record(now, LogEvent::Joined(agent, incarnation), step);
        let outgoing = self.machine.coordinator_mut().join(now, agent, Entrance::NewLife);
        self.enqueue(now, outgoing, step);
    }

    fn welcome_back(&mut self, now: Tick, agent: AgentId, step: &mut Step) {
        // Nothing may reach the agent before the authoritative snapshot.
        self.seats.acquaint(agent);
        step.frames.retain(|(to, _)| *to != agent);
        self.record(now, LogEvent::Returned(agent), step);
        let outgoing = self.machine.coordinator_mut().join(now, agent, Entrance::Returning);
        self.enqueue(now, outgoing, step);
    }

    /// Takes in the acknowledgement and the message of a frame from a known life in this epoch.
    fn accept(&mut self, now: Tick, from: AgentId, frame: UpFrame) -> Result<Step, ProtocolError> {
        let mut step = Step::default();
        let expected = self.seats.get(from).ok_or(ProtocolError::UnknownAgent(from))?.accepted + 1;
        if frame.sequence > expected {
            return Err(ProtocolError::FrameGap { expected, got: frame.sequence });
        }
        let acknowledged = frame.acknowledged;
        if let (true, Some(message)) = (frame.sequence == expected, &frame.message) {
            let outgoing = self.machine.coordinator_mut().receive(now, from, message.clone())?;
            self.seats.accept(from);
            self.record(now, LogEvent::Accepted(from, frame), &mut step);
            self.seats.acknowledge(from, acknowledged);
            self.enqueue(now, outgoing, &mut step);
        } else {
            // A message that was accepted before counts for nothing.
            self.seats.acknowledge(from, acknowledged);
        }
        Ok(step)
    }

    /// Sends messages to agents whose link is free, and keeps the others until theirs is.
    fn enqueue(&mut self, now: Tick, outgoing: Vec<Outgoing>, step: &mut Step) {
        self.seats.enqueue(now, outgoing, &mut step.frames);
        // What a relay has to say to its parent comes from the same calls.
        if let (Machine::Relay(relayed), Some(parent)) = (&mut self.machine, &mut self.parent) {
            step.up.extend(relayed.said.drain(..).filter_map(|message| parent.submit(now, message)));
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (links, queues) = self.seats.counts();
        f.debug_struct("Hub")
            .field("epoch", &self.seats.epoch)
            .field("links", &links)
            .field("queues", &queues)
            .finish_non_exhaustive()
    }
}
