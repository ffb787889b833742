//! The coordinator: the newest sums of every agent, and what agents left behind that are gone.

use std::collections::BTreeMap;

use posse_core::{
    AgentId, AgentStanding, Coordinator, CoordinatorView, DecodeError, Downlink, Entrance, Evidence,
    Outgoing, ProtocolError, Ridge, Tick, Uplink, Version,
};

use crate::NAME;
use crate::message::{Note, Reader, Writer};

#[derive(Debug)]
pub(crate) struct Sums {
    regularization: f64,
    version: Version,
    /// Of each agent that has joined, with how many uploads it was told in.
    agents: BTreeMap<AgentId, (u64, Evidence)>,
    /// Of lives that are over.
    departed: Evidence,
    /// Everything, made anew whenever it changes.
    total: Evidence,
    information: f64,
}

impl Sums {
    pub(crate) fn new(dimension: usize, regularization: f64) -> Self {
        let none = Evidence::none(dimension);
        Self {
            regularization,
            version: Version(0),
            agents: BTreeMap::new(),
            departed: none.clone(),
            total: none,
            information: 0.0,
        }
    }

    /// The answer to an agent: how much of it is here, and the sums of all other agents.
    fn answer(&self, agent: AgentId) -> Outgoing {
        let mut evidence = self.departed.clone();
        for (other, (_, sums)) in &self.agents {
            if *other != agent {
                evidence.add(sums);
            }
        }
        let confirmed = self.agents.get(&agent).map_or(0, |(_, sums)| sums.count());
        Outgoing::to(
            agent,
            Downlink::Extension(Note { version: self.version.0, confirmed, evidence }.encode()),
        )
    }

    fn add_up(&mut self) -> Result<(), ProtocolError> {
        let mut total = self.departed.clone();
        self.agents.values().for_each(|(_, sums)| total.add(sums));
        let mut model = Ridge::new(total.dimension(), self.regularization);
        model.refresh([&total].into_iter())?;
        (self.total, self.information) = (total, model.information());
        Ok(())
    }

    /// The sums of a life that ended stay, without the agent's name.
    fn bury(&mut self, agent: AgentId) {
        if let Some((_, sums)) = self.agents.remove(&agent) {
            self.departed.add(&sums);
        }
    }
}

impl Coordinator for Sums {
    fn join(&mut self, _now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        if entrance == Entrance::NewLife {
            self.bury(agent);
        }
        let none = || (0, Evidence::none(self.departed.dimension()));
        let newcomer = none();
        self.agents.entry(agent).or_insert(newcomer);
        // An agent that comes back hears what is left of its sums, and says again what is not.
        vec![self.answer(agent)]
    }

    fn leave(&mut self, _now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.bury(agent);
        Vec::new()
    }

    fn receive(
        &mut self,
        _now: Tick,
        from: AgentId,
        message: Uplink,
    ) -> Result<Vec<Outgoing>, ProtocolError> {
        let Uplink::Extension(extension) = &message else {
            return Err(ProtocolError::Unexpected { algorithm: NAME, message: message.kind() });
        };
        let (uploads, before) = self.agents.get(&from).cloned().ok_or(ProtocolError::UnknownAgent(from))?;
        let note = Note::decode(extension, self.departed.dimension())?;
        if note.evidence.count() < before.count() {
            return Err(ProtocolError::Sequence { expected: before.count(), got: note.evidence.count() });
        }
        note.evidence.check()?;
        self.agents.insert(from, (uploads + 1, note.evidence));
        if let Err(error) = self.add_up() {
            self.agents.insert(from, (uploads, before));
            return Err(error);
        }
        self.version = self.version.next();
        Ok(vec![self.answer(from)])
    }

    fn tick(&mut self, _now: Tick) -> Vec<Outgoing> {
        Vec::new()
    }

    fn deadline(&self) -> Option<Tick> {
        None
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        CoordinatorView::of(self.version, &self.total, self.information, self.agents.len())
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        let (uploads, _) = self.agents.get(&agent)?;
        Some(AgentStanding { uploads: *uploads, version: self.version, information: self.information })
    }

    fn save(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.integer(self.version.0);
        writer.evidence(&self.departed);
        writer.integer(self.agents.len() as u64);
        for (agent, (uploads, sums)) in &self.agents {
            writer.integer(agent.0);
            writer.integer(*uploads);
            writer.evidence(sums);
        }
        writer.0
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(state);
        let mut fresh = Self::new(self.departed.dimension(), self.regularization);
        let d = fresh.departed.dimension();
        fresh.version = Version(reader.integer()?);
        fresh.departed = reader.evidence(d)?;
        for _ in 0..reader.integer()? {
            let (agent, uploads) = (AgentId(reader.integer()?), reader.integer()?);
            fresh.agents.insert(agent, (uploads, reader.evidence(d)?));
        }
        reader.end()?;
        fresh.add_up().map_err(|_| DecodeError::invalid("state", "no model fits it"))?;
        *self = fresh;
        Ok(())
    }
}
