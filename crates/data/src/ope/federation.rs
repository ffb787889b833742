//! A federation in one place: messages are delivered, and answered, at once.

use std::collections::VecDeque;

use posse_core::{
    Agent, AgentId, Algorithm, Arms, ConfigError, Coordinator, Cost, Downlink, Entrance, Federation,
    InputError, Outgoing, Placement, ProtocolError, Seed, Shape, Tick, Uplink, UserId,
};

/// The time of every call. Messages are delivered at once and no machine waits, so time may stand still.
const NOW: Tick = Tick(1_700_000_000_000_000);

/// Agents and their coordinator, with messages delivered at once, and the cost of all messages.
pub(super) struct Cooperation {
    agents: Vec<Box<dyn Agent>>,
    coordinator: Box<dyn Coordinator>,
    central: bool,
    /// What all messages so far cost.
    pub(super) cost: Cost,
}

/// Why a federation could not go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("the machines disagree: {0}")]
    Protocol(#[from] ProtocolError),
}

enum Letter {
    Up(AgentId, Uplink),
    Down(AgentId, Downlink),
}

impl Cooperation {
    pub(super) fn new(
        algorithm: &Algorithm,
        dimension: usize,
        agents: u64,
        horizon: u64,
        seed: Seed,
    ) -> Result<Self, Trouble> {
        let shape = Shape::shared(dimension);
        algorithm.check(shape)?;
        let central = algorithm.placement() == Placement::Central;
        let federation = Federation { agents, horizon, seed };
        let ids = || (0..if central { 1 } else { agents }).map(AgentId);
        let mut cooperation = Self {
            agents: ids().map(|id| algorithm.agent(id, shape, &federation)).collect::<Result<_, _>>()?,
            coordinator: algorithm.coordinator(shape)?,
            central,
            cost: Cost::default(),
        };
        if !central {
            for id in ids() {
                let said = cooperation.coordinator.join(NOW, id, Entrance::NewLife);
                cooperation.deliver(post(said, cooperation.agents.len()))?;
            }
        }
        Ok(cooperation)
    }

    fn place(&self, agent: AgentId) -> AgentId {
        if self.central { AgentId(0) } else { agent }
    }

    pub(super) fn choose(&mut self, agent: AgentId, user: UserId, arms: &Arms) -> Result<usize, Trouble> {
        let place = self.place(agent);
        Ok(self.agents[place.0 as usize].choose(user, arms)?.arm)
    }

    pub(super) fn learn(
        &mut self,
        agent: AgentId,
        user: UserId,
        arm: &[f64],
        reward: f64,
    ) -> Result<(), Trouble> {
        let place = self.place(agent);
        let said = self.agents[place.0 as usize].learn(user, arm, reward)?;
        self.deliver(said.map(|uplink| Letter::Up(place, uplink)).into_iter().collect())
    }

    fn deliver(&mut self, mut letters: VecDeque<Letter>) -> Result<(), Trouble> {
        while let Some(letter) = letters.pop_front() {
            match letter {
                Letter::Up(agent, message) => {
                    self.cost.add(message.cost());
                    let said = self.coordinator.receive(NOW, agent, message)?;
                    letters.extend(post(said, self.agents.len()));
                }
                Letter::Down(agent, message) => {
                    self.cost.add(message.cost());
                    let answer = self.agents[agent.0 as usize].receive(message)?;
                    letters.extend(answer.map(|uplink| Letter::Up(agent, uplink)));
                }
            }
        }
        Ok(())
    }
}

fn post(outgoing: Vec<Outgoing>, agents: usize) -> VecDeque<Letter> {
    let to_all = |Outgoing { to, message }: Outgoing| {
        let recipients = (0..agents as u64).map(AgentId).filter(move |agent| to.includes(*agent));
        recipients.map(move |agent| Letter::Down(agent, message.clone())).collect::<Vec<_>>()
    };
    outgoing.into_iter().flat_map(to_all).collect()
}
