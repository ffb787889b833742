//! Promises of relays over links that lose, repeat and hold back frames, and of relays that restart from their logs.

use posse_core::session::{DownFrame, Endpoint, Hub, LogEntry, Step, UpFrame};
use posse_core::{
    AgentId, Algorithm, Incarnation, LevelConfig, Levels, Seed, Shape, Stream, Tick, TimeSpan, UserId,
};

use crate::Violation;
use crate::host::{FEDERATION, NOW, STEPS, arms, reward};

const PROMISE: &str = "over bad links, with relays that restart, everything arrives in the end, once";
const RESEND: TimeSpan = TimeSpan::from_millis(1);
/// Rounds of delivery after which everything must have arrived.
const PATIENCE: u64 = 5_000;
const RELAYS: u64 = 2;
const CHILDREN: u64 = 4;
const LIFE: Incarnation = Incarnation(1);

/// A frame on its way, and to whom.
#[derive(Clone)]
enum Flying {
    ToRoot(u64, UpFrame),
    FromRoot(u64, DownFrame),
    ToRelay(u64, UpFrame),
    ToAgent(u64, DownFrame),
}

struct Bed<'a> {
    levels: &'a Levels,
    shape: Shape,
    root: Hub,
    relays: Vec<(Hub, Vec<LogEntry>)>,
    endpoints: Vec<Endpoint>,
    flying: Vec<Flying>,
    now: Tick,
    stream: Stream,
    bad: bool,
}

pub(crate) fn relays_survive_bad_links(algorithm: &Algorithm, shape: Shape) -> Result<(), Violation> {
    let wrong = |what: String| Violation { promise: PROMISE, what };
    let configs = vec![LevelConfig::default(); 2];
    let levels = Levels::new(algorithm, &FEDERATION, &configs).map_err(|error| wrong(error.to_string()))?;
    for seed in 0..8 {
        play(algorithm, &levels, shape, seed).map_err(|what| wrong(format!("with seed {seed}, {what}")))?;
    }
    Ok(())
}

fn play(algorithm: &Algorithm, levels: &Levels, shape: Shape, seed: u64) -> Result<(), String> {
    let text = |error: posse_core::ConfigError| error.to_string();
    let agent = |id| {
        let machine = levels.agent(AgentId(id), shape, &FEDERATION).map_err(text)?;
        Ok(Endpoint::new(AgentId(id), LIFE, machine, RESEND))
    };
    let mut bed = Bed {
        levels,
        shape,
        root: Hub::new(levels.coordinator(shape).map_err(text)?, RESEND),
        relays: Vec::new(),
        endpoints: (0..CHILDREN).map(agent).collect::<Result<_, String>>()?,
        flying: Vec::new(),
        now: NOW,
        stream: Seed(seed).stream("conformance-relays", 0, 0),
        bad: true,
    };
    for relay in 0..RELAYS {
        let hub = bed.fresh(relay)?;
        bed.relays.push((hub, Vec::new()));
        let step = bed.relays[relay as usize].0.hello(bed.now);
        bed.follow(relay, step);
    }
    for id in 0..CHILDREN {
        let hello = bed.endpoints[id as usize].hello(bed.now);
        bed.flying.push(Flying::ToRelay(id, hello));
    }
    for step in 0..STEPS {
        let (id, offer) = (step % CHILDREN, arms(shape, step));
        let x = offer.row(0);
        let said = bed.endpoints[id as usize].learn(bed.now, UserId(id), x, reward(algorithm, x, step));
        bed.flying.extend(said.map_err(|error| error.to_string())?.map(|frame| Flying::ToRelay(id, frame)));
        bed.pass()?;
        if bed.stream.uniform() < 0.1 {
            let relay = bed.stream.below(RELAYS);
            bed.restart(relay)?;
        }
    }
    bed.bad = false;
    let mut rounds = 0;
    while bed.waits() {
        rounds += 1;
        if rounds > PATIENCE {
            return Err("somebody waits for ever".to_owned());
        }
        bed.pass()?;
    }
    let held: u64 = bed.endpoints.iter().map(|endpoint| endpoint.agent().inspect().held()).sum();
    let relays = bed.relays.iter().filter_map(|(hub, _)| hub.as_relay());
    let between: u64 = relays.map(|relay| relay.above().held()).sum();
    let shared = bed.root.coordinator().inspect().observations;
    if held + between + shared == STEPS {
        Ok(())
    } else {
        Err(format!("of {STEPS} observations {shared} are shared, {between} in relays, {held} wait"))
    }
}

impl Bed<'_> {
    fn fresh(&self, relay: u64) -> Result<Hub, String> {
        let machine = self.levels.relay(1, self.shape).map_err(|error| error.to_string())?;
        Ok(Hub::relay(machine, AgentId(relay), LIFE, RESEND))
    }

    /// The relay's process ends and another one goes on from its log.
    fn restart(&mut self, relay: u64) -> Result<(), String> {
        let mut hub = self.fresh(relay)?;
        let (old, log) = &self.relays[relay as usize];
        for entry in log {
            let entry = LogEntry::decode(&entry.encode()).map_err(|error| error.to_string())?;
            hub.replay(entry).map_err(|error| error.to_string())?;
        }
        if hub.coordinator().save() != old.coordinator().save() {
            return Err("a relay that replayed its log is another one".to_owned());
        }
        self.relays[relay as usize].0 = hub;
        let step = self.relays[relay as usize].0.hello(self.now);
        self.follow(relay, step);
        for id in (0..CHILDREN).filter(|id| id % RELAYS == relay) {
            let hello = self.endpoints[id as usize].hello(self.now);
            self.flying.push(Flying::ToRelay(id, hello));
        }
        Ok(())
    }

    fn follow(&mut self, relay: u64, step: Step) {
        self.relays[relay as usize].1.extend(step.log);
        self.flying.extend(step.frames.into_iter().map(|(to, frame)| Flying::ToAgent(to.0, frame)));
        self.flying.extend(step.up.into_iter().map(|frame| Flying::ToRoot(relay, frame)));
    }

    fn pass(&mut self) -> Result<(), String> {
        self.now = self.now.after(TimeSpan::from_micros(RESEND.as_micros() / 2));
        let text = |error: posse_core::ProtocolError| error.to_string();
        for frame in std::mem::take(&mut self.flying) {
            let luck = if self.bad { self.stream.uniform() } else { 0.5 };
            let copies = usize::from(luck >= 0.3) + usize::from(luck >= 0.8);
            for frame in std::iter::repeat_n(frame, copies) {
                match frame {
                    Flying::ToRoot(relay, frame) => {
                        let step = self.root.receive(self.now, AgentId(relay), frame).map_err(text)?;
                        self.send_from_root(step);
                    }
                    Flying::FromRoot(relay, frame) => {
                        let step = self.relays[relay as usize].0.hear(self.now, frame).map_err(text)?;
                        self.follow(relay, step);
                    }
                    Flying::ToRelay(id, frame) => {
                        let relay = id % RELAYS;
                        let hub = &mut self.relays[relay as usize].0;
                        let step = hub.receive(self.now, AgentId(id), frame).map_err(text)?;
                        self.follow(relay, step);
                    }
                    Flying::ToAgent(id, frame) => {
                        let answer = self.endpoints[id as usize].receive(self.now, frame).map_err(text)?;
                        self.flying.extend(answer.map(|frame| Flying::ToRelay(id, frame)));
                    }
                }
            }
        }
        let step = self.root.tick(self.now);
        self.send_from_root(step);
        for relay in 0..RELAYS {
            let step = self.relays[relay as usize].0.tick(self.now);
            self.follow(relay, step);
        }
        for endpoint in &mut self.endpoints {
            let id = endpoint.id().0;
            self.flying.extend(endpoint.tick(self.now).map(|frame| Flying::ToRelay(id, frame)));
        }
        Ok(())
    }

    fn send_from_root(&mut self, step: Step) {
        self.flying.extend(step.frames.into_iter().map(|(to, frame)| Flying::FromRoot(to.0, frame)));
    }

    fn waits(&self) -> bool {
        !self.flying.is_empty()
            || self.root.deadline().is_some()
            || self.relays.iter().any(|(hub, _)| hub.deadline().is_some())
            || self.endpoints.iter().any(|endpoint| endpoint.deadline().is_some())
    }
}
