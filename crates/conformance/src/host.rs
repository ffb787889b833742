//! Three agents, a coordinator, and links that deliver everything at once.

use std::collections::VecDeque;

use posse_core::wire::{encode_downlink, encode_uplink};
use posse_core::{
    Agent, AgentId, Algorithm, Arms, Coordinator, Downlink, Entrance, Federation, LinkFunction, Outgoing,
    Placement, Seed, Shape, Tick, Uplink, UserId,
};

pub(crate) const AGENTS: u64 = 3;
pub(crate) const STEPS: u64 = 60;
/// Far from zero, as every real clock is.
pub(crate) const NOW: Tick = Tick(1_700_000_000_000_000);
pub(crate) const FEDERATION: Federation = Federation { agents: AGENTS, horizon: 1000, seed: Seed(11) };

/// What happened, in the order in which it happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Chose(u64, usize),
    Up(u64, Vec<u8>),
    Down(u64, Vec<u8>),
}

enum Letter {
    Up(AgentId, Uplink),
    Down(AgentId, Downlink),
}

pub(crate) struct Host<'a> {
    algorithm: &'a Algorithm,
    shape: Shape,
    pub(crate) agents: Vec<Box<dyn Agent>>,
    pub(crate) coordinator: Box<dyn Coordinator>,
    pub(crate) events: Vec<Event>,
    joined: Vec<AgentId>,
    letters: VecDeque<Letter>,
    /// Every machine is saved and restored before each call.
    reborn: bool,
}

pub(crate) fn agent(algorithm: &Algorithm, shape: Shape, id: u64) -> Result<Box<dyn Agent>, String> {
    algorithm.agent(AgentId(id), shape, &FEDERATION).map_err(|error| error.to_string())
}

/// An offer of seven arms.
pub(crate) fn arms(shape: Shape, step: u64) -> Arms {
    let mut stream = Seed(5).stream("conformance-arms", 0, step);
    let mut arms = Arms::new(shape.dimension());
    for _ in 0..7 {
        let features: Vec<f64> = (0..shape.dimension()).map(|_| stream.uniform() - 0.5).collect();
        arms.push(&features).expect("finite features of the right number");
    }
    arms
}

/// A reward that the algorithm's link allows.
pub(crate) fn reward(algorithm: &Algorithm, x: &[f64], step: u64) -> f64 {
    let mean: f64 = x.iter().enumerate().map(|(i, x)| x / (i + 1) as f64).sum();
    let reward = mean + 0.1 * Seed(5).stream("conformance-reward", 0, step).normal();
    match algorithm.link_function() {
        Some(LinkFunction::Logistic | LinkFunction::Probit) => f64::from(reward > 0.0),
        Some(LinkFunction::Poisson) => reward.max(0.0),
        Some(LinkFunction::Identity) | None => reward,
    }
}

impl<'a> Host<'a> {
    pub(crate) fn new(algorithm: &'a Algorithm, shape: Shape, reborn: bool) -> Result<Self, String> {
        let learners = if algorithm.placement() == Placement::Central { 1 } else { AGENTS };
        Ok(Self {
            algorithm,
            shape,
            agents: (0..learners).map(|id| agent(algorithm, shape, id)).collect::<Result<_, _>>()?,
            coordinator: algorithm.coordinator(shape).map_err(|error| error.to_string())?,
            events: Vec::new(),
            joined: Vec::new(),
            letters: VecDeque::new(),
            reborn,
        })
    }

    /// The federation after all interactions.
    pub(crate) fn played(algorithm: &'a Algorithm, shape: Shape, reborn: bool) -> Result<Self, String> {
        let mut host = Self::new(algorithm, shape, reborn)?;
        (0..STEPS).try_for_each(|step| host.interact(step))?;
        Ok(host)
    }

    pub(crate) fn interact(&mut self, step: u64) -> Result<(), String> {
        let id = step % self.agents.len() as u64;
        self.join(AgentId(id))?;
        let (user, arms) = (UserId(id), arms(self.shape, step));
        let choice = self.agent(id)?.choose(user, &arms).map_err(|error| error.to_string())?;
        if choice.arm >= arms.len() {
            return Err(format!("at step {step} it chose arm {} of {}", choice.arm, arms.len()));
        }
        self.events.push(Event::Chose(id, choice.arm));
        let x = arms.row(choice.arm);
        let reward = reward(self.algorithm, x, step);
        let said = self.agent(id)?.learn(user, x, reward);
        let said = said.map_err(|error| error.to_string())?;
        self.letters.extend(said.map(|message| Letter::Up(AgentId(id), message)));
        self.deliver()
    }

    fn join(&mut self, agent: AgentId) -> Result<(), String> {
        if self.joined.contains(&agent) || self.algorithm.placement() == Placement::Central {
            return Ok(());
        }
        self.joined.push(agent);
        let outgoing = self.coordinator()?.join(NOW, agent, Entrance::NewLife);
        self.post(outgoing);
        self.deliver()
    }

    fn deliver(&mut self) -> Result<(), String> {
        let mut delivered = 0;
        while let Some(letter) = self.letters.pop_front() {
            delivered += 1;
            if delivered > 100_000 {
                return Err("messages answer messages without end".to_owned());
            }
            match letter {
                Letter::Up(from, message) => {
                    self.events.push(Event::Up(from.0, encode_uplink(&message)));
                    let outgoing = self.coordinator()?.receive(NOW, from, message);
                    self.post(outgoing.map_err(|error| error.to_string())?);
                }
                Letter::Down(to, message) => {
                    self.events.push(Event::Down(to.0, encode_downlink(&message)));
                    let answer = self.agent(to.0)?.receive(message).map_err(|error| error.to_string())?;
                    self.letters.extend(answer.map(|message| Letter::Up(to, message)));
                }
            }
        }
        Ok(())
    }

    fn post(&mut self, outgoing: Vec<Outgoing>) {
        for Outgoing { to, message } in outgoing {
            let recipients = self.joined.iter().filter(|agent| to.includes(**agent));
            self.letters.extend(recipients.map(|&agent| Letter::Down(agent, message.clone())));
        }
    }

    /// The saved states of all machines.
    pub(crate) fn states(&self) -> Vec<Vec<u8>> {
        self.agents.iter().map(|agent| agent.save()).chain([self.coordinator.save()]).collect()
    }

    fn agent(&mut self, id: u64) -> Result<&mut dyn Agent, String> {
        let place = id as usize;
        if self.reborn {
            let state = self.agents[place].save();
            self.agents[place] = agent(self.algorithm, self.shape, id)?;
            self.agents[place].restore(&state).map_err(|error| format!("an agent's own state: {error}"))?;
            if self.agents[place].save() != state {
                return Err("an agent that was restored saves another state".to_owned());
            }
        }
        Ok(&mut *self.agents[place])
    }

    fn coordinator(&mut self) -> Result<&mut dyn Coordinator, String> {
        if self.reborn {
            let state = self.coordinator.save();
            self.coordinator = self.algorithm.coordinator(self.shape).map_err(|error| error.to_string())?;
            self.coordinator
                .restore(&state)
                .map_err(|error| format!("a coordinator's own state: {error}"))?;
            if self.coordinator.save() != state {
                return Err("a coordinator that was restored saves another state".to_owned());
            }
        }
        Ok(&mut *self.coordinator)
    }
}
