//! Promises over links that lose, repeat and hold back frames.

use posse_core::session::{DownFrame, Endpoint, Hub, UpFrame};
use posse_core::{AgentId, Algorithm, Incarnation, Placement, Seed, Shape, Stream, Tick, TimeSpan, UserId};

use crate::Violation;
use crate::host::{AGENTS, NOW, STEPS, agent, arms, reward};

const PROMISE: &str = "over links that lose and repeat frames everything arrives in the end, once";
/// After so long, in microseconds, what was not answered is sent again.
const RESEND: TimeSpan = TimeSpan::from_millis(1);
/// Rounds of delivery after which everything must have arrived.
const PATIENCE: u64 = 2_000;

struct Links {
    hub: Hub,
    endpoints: Vec<Endpoint>,
    up: Vec<(AgentId, UpFrame)>,
    down: Vec<(AgentId, DownFrame)>,
    now: Tick,
    stream: Stream,
    /// Whether links still lose and repeat.
    bad: bool,
}

pub(crate) fn survives_bad_links(algorithm: &Algorithm, shape: Shape) -> Result<(), Violation> {
    if algorithm.placement() == Placement::Central {
        return Ok(());
    }
    let wrong = |what: String| Violation { promise: PROMISE, what };
    for seed in 0..8 {
        play(algorithm, shape, seed).map_err(|what| wrong(format!("with seed {seed}, {what}")))?;
    }
    Ok(())
}

fn play(algorithm: &Algorithm, shape: Shape, seed: u64) -> Result<(), String> {
    let coordinator = algorithm.coordinator(shape).map_err(|error| error.to_string())?;
    let endpoint = |id| Ok(Endpoint::new(AgentId(id), Incarnation(1), agent(algorithm, shape, id)?, RESEND));
    let mut links = Links {
        hub: Hub::new(coordinator, RESEND),
        endpoints: (0..AGENTS).map(endpoint).collect::<Result<_, String>>()?,
        up: Vec::new(),
        down: Vec::new(),
        now: NOW,
        stream: Seed(seed).stream("conformance-links", 0, 0),
        bad: true,
    };
    for id in 0..AGENTS {
        let hello = links.endpoints[id as usize].hello(links.now);
        links.up.push((AgentId(id), hello));
    }
    for step in 0..STEPS {
        let (id, offer) = (step % AGENTS, arms(shape, step));
        let x = offer.row(0);
        let said = links.endpoints[id as usize].learn(links.now, UserId(id), x, reward(algorithm, x, step));
        links.up.extend(said.map_err(|error| error.to_string())?.map(|frame| (AgentId(id), frame)));
        links.pass()?;
    }
    links.bad = false;
    let mut rounds = 0;
    while links.waits() {
        rounds += 1;
        if rounds > PATIENCE {
            return Err("an agent or the coordinator waits for ever".to_owned());
        }
        links.pass()?;
    }
    let held: u64 = links.endpoints.iter().map(|endpoint| endpoint.agent().inspect().held()).sum();
    let shared = links.hub.coordinator().inspect().observations;
    if held + shared == STEPS {
        Ok(())
    } else {
        Err(format!("of {STEPS} observations {shared} are shared, {held} wait"))
    }
}

impl Links {
    /// Some frames arrive, some are lost, some are repeated, and time passes.
    fn pass(&mut self) -> Result<(), String> {
        self.now = self.now.after(TimeSpan::from_micros(RESEND.as_micros() / 2));
        for (from, frame) in self.arriving_up() {
            let step = self.hub.receive(self.now, from, frame).map_err(|error| error.to_string())?;
            self.down.extend(step.frames);
        }
        let step = self.hub.tick(self.now);
        self.down.extend(step.frames);
        let down = std::mem::take(&mut self.down);
        for (to, frame) in self.fate(down) {
            let endpoint = &mut self.endpoints[to.0 as usize];
            let answer = endpoint.receive(self.now, frame).map_err(|error| error.to_string())?;
            self.up.extend(answer.map(|frame| (to, frame)));
        }
        for endpoint in &mut self.endpoints {
            let id = endpoint.id();
            self.up.extend(endpoint.tick(self.now).map(|frame| (id, frame)));
        }
        Ok(())
    }

    fn arriving_up(&mut self) -> Vec<(AgentId, UpFrame)> {
        let up = std::mem::take(&mut self.up);
        self.fate(up)
    }

    fn fate<T: Clone>(&mut self, frames: Vec<T>) -> Vec<T> {
        let mut arriving = Vec::new();
        for frame in frames {
            let luck = if self.bad { self.stream.uniform() } else { 0.5 };
            if luck >= 0.3 {
                arriving.push(frame.clone());
            }
            if luck >= 0.8 {
                arriving.push(frame);
            }
        }
        arriving
    }

    fn waits(&self) -> bool {
        !self.up.is_empty()
            || !self.down.is_empty()
            || self.hub.deadline().is_some()
            || self.endpoints.iter().any(|endpoint| endpoint.deadline().is_some())
    }
}
