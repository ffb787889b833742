//! What agents do: enter, act, learn, leave, and hear over their links.

use posse_core::session::{DownFrame, Endpoint, UpFrame};
use posse_core::{AgentId, Incarnation, Tick, TimeSpan, Uplink, UserId};

use super::{Due, Linked, patience};
use crate::network::FaultConfig;
use crate::observer::{Direction, Event, Observer, Sent};
use crate::simulation::{Cast, RunError};
use crate::world::Offer;

impl Linked {
    /// Brings an agent in, or back, if it is not there.
    pub(super) fn enter(&mut self, agent: AgentId, cast: &Cast, now: Tick) -> Result<(), RunError> {
        let place = &mut self.places[agent.0 as usize];
        if place.endpoint.is_some() || place.gone {
            return Ok(());
        }
        let machine = self.population.agent(agent, cast.world.shape(agent))?;
        let resend = patience(&self.config, self.relays.len());
        if let Some(saved) = place.saved.take() {
            let mut endpoint = Endpoint::new(agent, place.incarnation, machine, resend);
            endpoint.restore(&saved).expect("an endpoint restores what it saved");
            let hello = endpoint.hello(now);
            place.endpoint = Some(endpoint);
            self.send_up(agent, Some(hello), now);
        } else {
            place.incarnation = Incarnation(place.incarnation.0 + 1);
            let mut endpoint = Endpoint::new(agent, place.incarnation, machine, resend);
            let hello = endpoint.hello(now);
            place.endpoint = Some(endpoint);
            self.send_up(agent, Some(hello), now);
        }
        Ok(())
    }

    pub(super) fn interact(
        &mut self,
        step: u64,
        now: Tick,
        cast: &mut Cast,
        offer: &mut Offer,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        for agent in cast.arrivals.departures(step) {
            self.choose_at_last(agent, now, cast, observer)?;
            self.leave(agent, now, observer);
        }
        self.go_wrong(step, now, cast, observer)?;
        cast.next(step, offer);
        let agent = offer.agent;
        self.enter(agent, cast, now)?;
        // Whoever still waits chooses before it is asked again.
        self.choose_at_last(agent, now, cast, observer)?;
        let place = &mut self.places[agent.0 as usize];
        let endpoint = place.endpoint.as_mut().expect("it entered");
        // Who waited in vain for an answer does not wait for it again.
        let was_asking = place.seen && endpoint.agent().is_asking();
        let question = endpoint
            .prepare(now, offer.user, &offer.arms)
            .map_err(|error| RunError::Input { step, error })?;
        let asks = !was_asking && endpoint.agent().is_asking();
        self.send_up(agent, question, now);
        let wait = self.config.network.wait;
        if asks && wait > TimeSpan::default() {
            self.places[agent.0 as usize].waiting = Some((step, Box::new(offer.clone())));
            self.queue.push(now.after(wait), Due::Choice(agent, step));
        } else {
            self.choose(step, now, cast, offer, observer)?;
        }
        if step + 1 < self.config.horizon {
            let next = now.after(self.config.network.interval);
            self.queue.push(next, Due::Interaction(step + 1));
        } else {
            // Interactions are over: links heal, and everything that is still to be said arrives.
            self.up.model = self.up.model.healed();
            self.down.model = self.down.model.healed();
            for (up, down) in &mut self.above {
                (up.model, down.model) = (up.model.healed(), down.model.healed());
            }
            self.faults = FaultConfig::default();
            for agent in (0..self.config.agents).map(AgentId) {
                if self.places[agent.0 as usize].saved.is_some() {
                    self.enter(agent, cast, now)?;
                }
            }
        }
        Ok(())
    }

    /// Chooses in the interaction that an agent waits in, if it does.
    pub(super) fn choose_at_last(
        &mut self,
        agent: AgentId,
        now: Tick,
        cast: &Cast,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        match self.places[agent.0 as usize].waiting.take() {
            Some((step, offer)) => self.choose(step, now, cast, &offer, observer),
            None => Ok(()),
        }
    }

    /// The choice of an interaction, and its reward now or later.
    pub(super) fn choose(
        &mut self,
        step: u64,
        now: Tick,
        cast: &Cast,
        offer: &Offer,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let agent = offer.agent;
        let place = &mut self.places[agent.0 as usize];
        self.tally.agents_seen += u64::from(!std::mem::replace(&mut place.seen, true));
        let endpoint = place.endpoint.as_mut().expect("it entered");
        let arm =
            endpoint.choose(offer.user, &offer.arms).map_err(|error| RunError::Input { step, error })?.arm;
        let (reward, regret) = (offer.reward(arm), offer.regret(arm));
        let average_mean = offer.average_mean();
        self.tally.chose(regret, average_mean);
        self.population.count_honest(&mut self.tally, agent, regret);
        observer.observe(&Event::Chose { step, agent, arm, regret, average_mean }, self);
        let features = offer.arms.row(arm).to_vec();
        let after = self.config.network.reward_delay;
        if after == TimeSpan::default() {
            self.learn(agent, offer.user, &features, reward, now, cast, observer)?;
        } else {
            self.queue.push(now.after(after), Due::Reward { agent, user: offer.user, features, reward });
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "a reward has many parts")]
    pub(super) fn learn(
        &mut self,
        agent: AgentId,
        user: UserId,
        features: &[f64],
        reward: f64,
        now: Tick,
        cast: &Cast,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        // A reward for an agent that is away brings it back, as an interaction does.
        self.enter(agent, cast, now)?;
        // A reward for an agent that left finds nobody.
        let Some(endpoint) = &mut self.places[agent.0 as usize].endpoint else { return Ok(()) };
        let frame = endpoint
            .learn(now, user, features, reward)
            .map_err(|error| RunError::Input { step: self.tally.interactions, error })?;
        self.tally.reward += reward;
        observer.observe(&Event::Learned { agent, reward }, self);
        self.send_up(agent, frame, now);
        Ok(())
    }

    pub(super) fn leave(&mut self, agent: AgentId, now: Tick, observer: &mut dyn Observer) {
        observer.observe(&Event::Leaving { agent }, self);
        let place = &mut self.places[agent.0 as usize];
        place.saved = None;
        place.gone = true;
        if let Some(endpoint) = place.endpoint.take() {
            let view = endpoint.agent().inspect();
            self.tally.lost_observations += view.unsent + view.withheld;
        }
        let parent = self.parent(self.relays.len(), agent.0);
        let step = self.station(parent).hub.leave(now, agent);
        observer.observe(&Event::Ticked, self);
        self.follow(parent, step, now);
    }

    pub(super) fn at_agent(
        &mut self,
        agent: AgentId,
        frame: DownFrame,
        now: Tick,
        cast: &Cast,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        // What reaches an agent that is away is lost.
        let Some(endpoint) = &mut self.places[agent.0 as usize].endpoint else { return Ok(()) };
        let message = frame.message.clone();
        let before = endpoint.received();
        let answer = endpoint.receive(now, frame)?;
        if let Some(message) = message.as_ref().filter(|_| endpoint.received() != before) {
            observer.observe(&Event::Down { agent, message }, self);
        }
        self.send_up(agent, answer, now);
        let endpoint = self.places[agent.0 as usize].endpoint.as_ref();
        if endpoint.is_some_and(|endpoint| !endpoint.agent().is_asking()) {
            self.choose_at_last(agent, now, cast, observer)?;
        }
        Ok(())
    }

    pub(super) fn agent_timer(&mut self, agent: AgentId, now: Tick) {
        let place = &mut self.places[agent.0 as usize];
        place.timer = place.timer.filter(|at| *at > now);
        let frame = place.endpoint.as_mut().and_then(|endpoint| endpoint.tick(now));
        self.send_up(agent, frame, now);
    }

    pub(super) fn send_up(&mut self, agent: AgentId, frame: Option<UpFrame>, now: Tick) {
        if let Some(frame) = frame {
            let bare = if frame.greeting > 0 { "greeting" } else { "acknowledgement" };
            let kind = frame.message.as_ref().map_or(bare, Uplink::kind);
            self.count(Sent { direction: Direction::Up, agent, kind, cost: frame.cost() });
            let relay = self.places[agent.0 as usize].relay;
            for at in self.up.arrivals(agent, now) {
                self.queue.push(at, Due::Up(agent, relay, frame.clone()));
            }
        }
        let place = &mut self.places[agent.0 as usize];
        let deadline = place.endpoint.as_ref().and_then(Endpoint::deadline);
        if let Some(deadline) = deadline.filter(|at| place.timer.is_none_or(|set| *at < set)) {
            place.timer = Some(deadline);
            self.queue.push(deadline.max(now), Due::AgentTimer(agent));
        }
    }

    pub(super) fn count(&mut self, sent: Sent) {
        self.tally.sent(&sent);
        self.sent.push(sent);
    }
}
