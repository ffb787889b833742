//! A small federation with relays, and links that deliver everything at once.

use std::collections::{BTreeSet, VecDeque};

use posse_core::wire::{encode_downlink, encode_uplink};
use posse_core::{
    Agent, AgentId, Algorithm, Coordinator, Downlink, Entrance, Evidence, LevelConfig, Levels, Outgoing,
    Passed, Relay, Shape, Uplink, UserId,
};

use crate::host::{Event, FEDERATION, NOW, arms, reward};

/// A message over one of the links of a level. The child at its lower end is known by its number.
enum TreeLetter {
    Up(usize, u64, Uplink),
    Down(usize, u64, Downlink),
}

/// Agents below relays below a root. Children of a level belong to the machines above them in turn.
pub(crate) struct Tree<'a> {
    algorithm: &'a Algorithm,
    shape: Shape,
    levels: Levels,
    pub(crate) agents: Vec<Box<dyn Agent>>,
    /// By depth, those below the root first.
    pub(crate) relays: Vec<Vec<Box<dyn Relay>>>,
    pub(crate) root: Box<dyn Coordinator>,
    /// What agents chose, said and heard.
    pub(crate) events: Vec<Event>,
    /// How many messages the root took in and sent.
    pub(crate) at_root: u64,
    /// Everything that was learned.
    pub(crate) learned: Evidence,
    /// How many observations each agent made.
    pub(crate) learned_by: Vec<u64>,
    joined: BTreeSet<(usize, u64)>,
    letters: VecDeque<TreeLetter>,
    /// Every relay is saved and restored before each call.
    reborn: bool,
}

impl<'a> Tree<'a> {
    /// A federation of `agents` below so many relays at each depth. There is one more of `configs` than of `relays`.
    pub(crate) fn new(
        algorithm: &'a Algorithm,
        shape: Shape,
        agents: u64,
        relays: &[u64],
        configs: &[LevelConfig],
        reborn: bool,
    ) -> Result<Self, String> {
        let text = |error: posse_core::ConfigError| error.to_string();
        let levels = Levels::new(algorithm, &FEDERATION, configs).map_err(text)?;
        let relay = |depth| levels.relay(depth + 1, shape).map_err(text);
        let made =
            relays.iter().enumerate().map(|(depth, count)| (0..*count).map(|_| relay(depth)).collect());
        let relays = made.collect::<Result<Vec<Vec<_>>, String>>()?;
        let agent = |id| levels.agent(AgentId(id), shape, &FEDERATION).map_err(text);
        let mut tree = Self {
            algorithm,
            shape,
            agents: (0..agents).map(agent).collect::<Result<_, _>>()?,
            root: levels.coordinator(shape).map_err(text)?,
            relays,
            levels,
            events: Vec::new(),
            at_root: 0,
            learned: Evidence::none(shape.dimension()),
            learned_by: vec![0; agents as usize],
            joined: BTreeSet::new(),
            letters: VecDeque::new(),
            reborn,
        };
        for level in 0..tree.relays.len() {
            for relay in 0..tree.relays[level].len() {
                tree.join(level, relay as u64)?;
            }
        }
        Ok(tree)
    }

    /// One interaction of an agent, with everything that it sets off.
    pub(crate) fn interact(&mut self, step: u64) -> Result<(), String> {
        let id = step % self.agents.len() as u64;
        let level = self.relays.len();
        self.join(level, id)?;
        let (user, arms) = (UserId(id), arms(self.shape, step));
        let agent = &mut self.agents[id as usize];
        let arm = agent.choose(user, &arms).map_err(|error| error.to_string())?.arm;
        self.events.push(Event::Chose(id, arm));
        let x = arms.row(arm);
        let reward = reward(self.algorithm, x, step);
        self.learned.observe(x, reward).map_err(|error| error.to_string())?;
        self.learned_by[id as usize] += 1;
        let said = agent.learn(user, x, reward).map_err(|error| error.to_string())?;
        self.letters.extend(said.map(|message| TreeLetter::Up(level, id, message)));
        self.deliver()
    }

    /// Observations that are above agents and below the root.
    pub(crate) fn in_relays(&self) -> u64 {
        self.relays.iter().flatten().map(|relay| relay.above().held()).sum()
    }

    /// All sums of linear models that there are, each observation in one of them; nothing if there are none.
    pub(crate) fn everything(&self) -> Option<Evidence> {
        let mut sum = self.root.inspect().evidence?.clone();
        let views = self.agents.iter().map(|agent| agent.inspect());
        for view in views.chain(self.relays.iter().flatten().map(|relay| relay.above())) {
            let linear = view.linear?;
            sum.add(linear.buffer);
            linear.in_flight.into_iter().for_each(|evidence| sum.add(evidence));
        }
        Some(sum)
    }

    /// The saved states of all machines.
    pub(crate) fn states(&self) -> Vec<Vec<u8>> {
        let relays = self.relays.iter().flatten().map(|relay| relay.save());
        self.agents.iter().map(|agent| agent.save()).chain(relays).chain([self.root.save()]).collect()
    }

    fn parent(&self, level: usize, child: u64) -> u64 {
        if level == 0 { 0 } else { child % self.relays[level - 1].len() as u64 }
    }

    fn join(&mut self, level: usize, child: u64) -> Result<(), String> {
        if !self.joined.insert((level, child)) {
            return Ok(());
        }
        let parent = self.parent(level, child);
        if level == 0 {
            let outgoing = self.root.join(NOW, AgentId(child), Entrance::NewLife);
            self.post(0, 0, outgoing);
        } else {
            let passed = self.relay(level - 1, parent)?.join(NOW, AgentId(child), Entrance::NewLife);
            self.pass(level - 1, parent, passed);
        }
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
                TreeLetter::Up(level, child, message) => self.up(level, child, message)?,
                TreeLetter::Down(level, child, message) => self.down(level, child, message)?,
            }
        }
        Ok(())
    }

    fn up(&mut self, level: usize, child: u64, message: Uplink) -> Result<(), String> {
        if level == self.relays.len() {
            self.events.push(Event::Up(child, encode_uplink(&message)));
        }
        let (parent, from) = (self.parent(level, child), AgentId(child));
        if level == 0 {
            self.at_root += 1;
            let outgoing = self.root.receive(NOW, from, message).map_err(|error| error.to_string())?;
            self.post(0, 0, outgoing);
        } else {
            let passed = self.relay(level - 1, parent)?.receive(NOW, from, message);
            self.pass(level - 1, parent, passed.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    fn down(&mut self, level: usize, child: u64, message: Downlink) -> Result<(), String> {
        self.at_root += u64::from(level == 0);
        if level == self.relays.len() {
            self.events.push(Event::Down(child, encode_downlink(&message)));
            let answer = self.agents[child as usize].receive(message).map_err(|error| error.to_string())?;
            self.letters.extend(answer.map(|message| TreeLetter::Up(level, child, message)));
        } else {
            let passed = self.relay(level, child)?.hear(NOW, message).map_err(|error| error.to_string())?;
            self.pass(level, child, passed);
        }
        Ok(())
    }

    /// Posts what the relay `child` of `level` said in both directions.
    fn pass(&mut self, level: usize, child: u64, passed: Passed) {
        self.letters.extend(passed.up.into_iter().map(|message| TreeLetter::Up(level, child, message)));
        self.post(level + 1, child, passed.down);
    }

    fn post(&mut self, level: usize, parent: u64, outgoing: Vec<Outgoing>) {
        for Outgoing { to, message } in outgoing {
            let children = self.joined.iter().filter(|(at, child)| {
                *at == level && self.parent(level, *child) == parent && to.includes(AgentId(*child))
            });
            let letters = children.map(|(_, child)| TreeLetter::Down(level, *child, message.clone()));
            self.letters.extend(letters.collect::<Vec<_>>());
        }
    }

    fn relay(&mut self, depth: usize, place: u64) -> Result<&mut dyn Relay, String> {
        let relay = &mut self.relays[depth][place as usize];
        if self.reborn {
            let state = relay.save();
            *relay = self.levels.relay(depth + 1, self.shape).map_err(|error| error.to_string())?;
            relay.restore(&state).map_err(|error| format!("a relay's own state: {error}"))?;
            if relay.save() != state {
                return Err("a relay that was restored saves another state".to_owned());
            }
        }
        Ok(&mut **relay)
    }
}
