//! What goes wrong: agents crash, the coordinator and relays restart from their logs, agents change relays.

use posse_core::session::{Hub, LogEntry, Step};
use posse_core::{AgentId, Epoch, Tick};

use super::{Due, Linked, RelayPlace, new_root};
use crate::observer::{Event, Observer};
use crate::simulation::{Cast, RunError};

impl Linked {
    /// Lets go wrong what is to go wrong before this interaction.
    pub(super) fn go_wrong(
        &mut self,
        step: u64,
        now: Tick,
        cast: &Cast,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let (relay_restart, relay_change) =
            (self.config.topology.relay_restart, self.config.topology.relay_change);
        if self.faults.is_empty() && relay_restart == 0.0 && relay_change == 0.0 {
            return Ok(());
        }
        let mut stream = self.config.seed.stream("faults", 0, step);
        if stream.uniform() < self.faults.agent_crash {
            let agent = AgentId(stream.below(self.config.agents));
            let durable = stream.uniform() >= self.faults.volatile;
            self.choose_at_last(agent, now, cast, observer)?;
            self.crash(agent, durable, now, observer);
        }
        if stream.uniform() < self.faults.coordinator_restart {
            self.restart_coordinator(now, observer)?;
        }
        if stream.uniform() < relay_restart && !self.relays.is_empty() {
            let depth = stream.below(self.relays.len() as u64) as usize;
            let relay = stream.below(self.relays[depth].len() as u64) as usize;
            self.restart_relay(RelayPlace { depth, relay }, now, observer)?;
        }
        if stream.uniform() < relay_change
            && let Some(lowest) = self.relays.last()
        {
            let relay = stream.below(lowest.len() as u64) as usize;
            let agent = AgentId(stream.below(self.config.agents));
            self.choose_at_last(agent, now, cast, observer)?;
            self.change_relay(agent, relay, now, observer);
        }
        Ok(())
    }

    /// An agent that is there leaves its relay and begins a new life at another one.
    pub(super) fn change_relay(
        &mut self,
        agent: AgentId,
        relay: usize,
        now: Tick,
        observer: &mut dyn Observer,
    ) {
        let place = &self.places[agent.0 as usize];
        if place.endpoint.is_none() || place.relay == relay {
            return;
        }
        self.crash(agent, false, now, observer);
        let left = self.parent(self.relays.len(), agent.0);
        let step = self.station(left).hub.leave(now, agent);
        observer.observe(&Event::Ticked, self);
        self.follow(left, step, now);
        self.places[agent.0 as usize].relay = relay;
    }

    pub(super) fn crash(&mut self, agent: AgentId, durable: bool, now: Tick, observer: &mut dyn Observer) {
        let place = &self.places[agent.0 as usize];
        let Some(endpoint) = &place.endpoint else { return };
        let view = endpoint.agent().inspect();
        if !durable {
            self.tally.lost_observations += view.unsent + view.withheld;
        }
        let saved = durable.then(|| endpoint.save());
        observer.observe(&Event::Crashing { agent, incarnation: place.incarnation, durable }, self);
        let place = &mut self.places[agent.0 as usize];
        place.endpoint = None;
        place.saved = saved;
        self.queue.push(now.after(self.faults.downtime), Due::Return(agent));
    }

    /// The coordinator comes back from its log, perhaps without the end of it.
    pub(super) fn restart_coordinator(
        &mut self,
        now: Tick,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let lost = (self.faults.lost_entries as usize).min(self.root.log.len());
        self.root.log.truncate(self.root.log.len() - lost);
        let before = self.root.hub.coordinator().save();
        let epoch = self.root.hub.epoch();
        let mut hub = new_root(&self.config, &self.levels, self.shape)?;
        replay(&mut hub, &self.root.log)?;
        let same_bits = lost > 0 || hub.coordinator().save() == before;
        let step = if lost > 0 { hub.begin_epoch(now, Epoch(epoch.0 + 1)) } else { Step::default() };
        self.root.hub = hub;
        self.root.timer = None;
        observer.observe(&Event::Restarted { same_bits, lost }, self);
        self.follow(None, step, now);
        if self.relays.is_empty() {
            // That an agent left may have been in the lost part of the log.
            for agent in (0..self.config.agents).map(AgentId) {
                if self.places[agent.0 as usize].gone {
                    let step = self.root.hub.leave(now, agent);
                    self.follow(None, step, now);
                }
            }
        }
        self.greet_again(None, now);
        Ok(())
    }

    /// A relay comes back from its log.
    pub(super) fn restart_relay(
        &mut self,
        place: RelayPlace,
        now: Tick,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let mut hub = self.new_relay(place)?;
        let station = self.station(Some(place));
        replay(&mut hub, &station.log)?;
        let same_bits = hub.coordinator().save() == station.hub.coordinator().save();
        (station.hub, station.timer) = (hub, None);
        observer.observe(&Event::Restarted { same_bits, lost: 0 }, self);
        let step = self.station(Some(place)).hub.hello(now);
        self.follow(Some(place), step, now);
        self.greet_again(Some(place), now);
        Ok(())
    }

    /// Every child of a machine that is there notices that the link was cut, and comes back.
    pub(super) fn greet_again(&mut self, place: Option<RelayPlace>, now: Tick) {
        let level = place.map_or(0, |place| place.depth + 1);
        if level < self.relays.len() {
            for relay in 0..self.relays[level].len() {
                if self.parent(level, relay as u64) == place {
                    let child = RelayPlace { depth: level, relay };
                    let step = self.station(Some(child)).hub.hello(now);
                    self.follow(Some(child), step, now);
                }
            }
            return;
        }
        for agent in (0..self.config.agents).map(AgentId) {
            if self.parent(level, agent.0) == place {
                let endpoint = self.places[agent.0 as usize].endpoint.as_mut();
                let hello = endpoint.map(|endpoint| endpoint.hello(now));
                self.send_up(agent, hello, now);
            }
        }
    }
}

/// Applies a log to a hub without history.
fn replay(hub: &mut Hub, log: &[LogEntry]) -> Result<(), RunError> {
    for entry in log {
        // Through bytes, as from a disk.
        let entry = LogEntry::decode(&entry.encode()).expect("a log reads back");
        hub.replay(entry)?;
    }
    Ok(())
}
