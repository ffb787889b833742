//! What the coordinator and its relays do: they take in frames, keep their logs, and send over the links below and above.

use posse_core::session::{DownFrame, Hub, LogEvent, Step, UpFrame};
use posse_core::{AgentId, Downlink, Incarnation, Tick, Uplink};

use super::{Due, Linked, RelayPlace, Station, patience};
use crate::observer::{Direction, Event, Observer, Sent};
use crate::simulation::RunError;

impl Linked {
    /// The relay above a child of a level, or nothing if that is the root.
    pub(super) fn parent(&self, level: usize, child: u64) -> Option<RelayPlace> {
        let depth = level.checked_sub(1)?;
        let relay = if level == self.relays.len() {
            self.places[child as usize].relay
        } else {
            (child % self.relays[depth].len() as u64) as usize
        };
        Some(RelayPlace { depth, relay })
    }

    pub(super) fn station(&mut self, place: Option<RelayPlace>) -> &mut Station {
        match place {
            None => &mut self.root,
            Some(RelayPlace { depth, relay }) => &mut self.relays[depth][relay],
        }
    }

    /// A relay without history.
    pub(super) fn new_relay(&self, place: RelayPlace) -> Result<Hub, RunError> {
        let machine = self.levels.relay(place.depth + 1, self.shape)?;
        let slower = patience(&self.config, place.depth).max(patience(&self.config, place.depth + 1));
        Ok(Hub::relay(machine, AgentId(place.relay as u64), Incarnation(1), slower))
    }

    pub(super) fn at_hub(
        &mut self,
        agent: AgentId,
        relay: usize,
        frame: UpFrame,
        now: Tick,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let place = &self.places[agent.0 as usize];
        if place.gone || (place.relay != relay && !self.relays.is_empty()) {
            // An agent that leaves for good, or for another relay, takes the link along.
            return Ok(());
        }
        let repeated = self.planted_bug.then(|| as_new(&frame)).flatten();
        let parent = self.relays.len().checked_sub(1).map(|depth| RelayPlace { depth, relay });
        let step = self.station(parent).hub.receive(now, agent, frame)?;
        for entry in &step.log {
            match &entry.event {
                LogEvent::Joined(agent, incarnation) => {
                    let event = Event::Joined { agent: *agent, incarnation: *incarnation };
                    observer.observe(&event, self);
                }
                LogEvent::Accepted(agent, UpFrame { incarnation, message: Some(message), .. }) => {
                    let event = Event::Up { agent: *agent, incarnation: *incarnation, message };
                    observer.observe(&event, self);
                }
                _ => {}
            }
        }
        self.follow(parent, step, now);
        if let Some(frame) = repeated
            && let Ok(step) = self.station(parent).hub.receive(now, agent, frame)
        {
            self.follow(parent, step, now);
        }
        Ok(())
    }

    /// A frame of a relay reaches its parent.
    pub(super) fn at_parent(
        &mut self,
        place: RelayPlace,
        frame: UpFrame,
        now: Tick,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let RelayPlace { depth, relay } = place;
        let parent = self.parent(depth, relay as u64);
        let step = self.station(parent).hub.receive(now, AgentId(relay as u64), frame)?;
        for entry in &step.log {
            if let LogEvent::Accepted(_, UpFrame { message: Some(message), .. }) = &entry.event {
                observer.observe(&Event::Passed { depth, relay, message }, self);
            }
        }
        self.follow(parent, step, now);
        Ok(())
    }

    /// A frame of its parent reaches a relay.
    pub(super) fn at_relay(
        &mut self,
        place: RelayPlace,
        frame: DownFrame,
        now: Tick,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let step = self.station(Some(place)).hub.hear(now, frame)?;
        if !step.log.is_empty() {
            observer.observe(&Event::Heard { depth: place.depth, relay: place.relay }, self);
        }
        self.follow(Some(place), step, now);
        Ok(())
    }

    pub(super) fn tick_hub(&mut self, place: Option<RelayPlace>, now: Tick, observer: &mut dyn Observer) {
        let station = self.station(place);
        station.timer = station.timer.filter(|at| *at > now);
        let step = station.hub.tick(now);
        if !step.log.is_empty() {
            observer.observe(&Event::Ticked, self);
        }
        self.follow(place, step, now);
    }

    /// Keeps what the hub of a relay, or of the root, wants kept, then sends what it wants sent.
    pub(super) fn follow(&mut self, place: Option<RelayPlace>, step: Step, now: Tick) {
        self.station(place).log.extend(step.log);
        let level = place.map_or(0, |place| place.depth + 1);
        for (child, frame) in step.frames {
            if let Some(Downlink::Collect { round, .. } | Downlink::NetworkCollect { round, .. }) =
                frame.message
            {
                // Sent to everybody, perhaps more than once: a round counts when its number is new.
                self.tally.rounds = self.tally.rounds.max(round.0);
            }
            let kind = frame.message.as_ref().map_or("acknowledgement", Downlink::kind);
            let sent = Sent { direction: Direction::Down, agent: child, kind, cost: frame.cost() };
            if level < self.relays.len() {
                self.tally.sent_above(level, self.relays.len(), &sent);
                let below = RelayPlace { depth: level, relay: child.0 as usize };
                for at in self.above[level].1.arrivals(child, now) {
                    self.queue.push(at, Due::RelayDown(below, frame.clone()));
                }
                continue;
            }
            self.count(sent);
            for at in self.down.arrivals(child, now) {
                self.queue.push(at, Due::Down(child, frame.clone()));
            }
        }
        if let Some(place) = place {
            step.up.iter().for_each(|frame| self.send_above(place, frame, now));
        }
        let station = self.station(place);
        if let Some(deadline) = station.hub.deadline().filter(|at| station.timer.is_none_or(|set| *at < set))
        {
            station.timer = Some(deadline);
            self.queue.push(deadline.max(now), place.map_or(Due::HubTimer, Due::RelayTimer));
        }
    }

    /// Sends a relay's frame to its parent.
    pub(super) fn send_above(&mut self, place: RelayPlace, frame: &UpFrame, now: Tick) {
        let agent = AgentId(place.relay as u64);
        let kind = frame.message.as_ref().map_or("acknowledgement", Uplink::kind);
        let sent = Sent { direction: Direction::Up, agent, kind, cost: frame.cost() };
        self.tally.sent_above(place.depth, self.relays.len(), &sent);
        for at in self.above[place.depth].0.arrivals(agent, now) {
            self.queue.push(at, Due::RelayUp(place, frame.clone()));
        }
    }
}

/// Renumbers an upload of evidence as the next one, so that the coordinator counts it again. `None` for other
/// frames.
fn as_new(frame: &UpFrame) -> Option<UpFrame> {
    let Some(Uplink::Evidence(mut upload)) = frame.message.clone() else { return None };
    upload.number += 1;
    Some(UpFrame { sequence: frame.sequence + 1, message: Some(Uplink::Evidence(upload)), ..frame.clone() })
}
