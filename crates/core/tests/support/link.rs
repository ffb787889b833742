//! A hub and its endpoints over links that do what a test tells them.

use posse_core::TimeSpan;
use posse_core::session::{DownFrame, Endpoint, Hub, LogEntry, Step, UpFrame};
use posse_core::*;

pub(crate) const AGENTS: u64 = 3;
pub(crate) const RESEND: u64 = 10;
/// Observation k is the k-th unit vector, so that sums show how often each was counted.
pub(crate) const OBSERVATIONS: usize = 48;

pub(crate) struct Link {
    pub(crate) algorithm: Algorithm,
    pub(crate) hub: Hub,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) up: Vec<(AgentId, UpFrame)>,
    pub(crate) down: Vec<(AgentId, DownFrame)>,
    /// The hub when its epoch began; the log goes on from there.
    checkpoint: Vec<u8>,
    pub(crate) log: Vec<LogEntry>,
    pub(crate) now: Tick,
    pub(crate) observed: usize,
    /// Frames that were ever sent.
    pub(crate) sent: usize,
    pub(crate) lives: Vec<u64>,
}

impl Link {
    /// Agents that have said hello, and nothing delivered.
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let hub = Hub::new(coordinator(&algorithm), TimeSpan::from_micros(RESEND));
        let checkpoint = hub.save();
        let endpoints = (0..AGENTS).map(|id| endpoint(&algorithm, id, 0)).collect();
        let mut link = Self {
            algorithm,
            hub,
            endpoints,
            up: Vec::new(),
            down: Vec::new(),
            checkpoint,
            log: Vec::new(),
            now: super::NOW,
            observed: 0,
            sent: 0,
            lives: vec![0; AGENTS as usize],
        };
        for id in 0..AGENTS {
            link.hello(id);
        }
        link
    }

    /// Agents that have joined, with empty links.
    pub(crate) fn joined(algorithm: Algorithm) -> Self {
        let mut link = Self::new(algorithm);
        link.settle();
        link
    }

    pub(crate) fn hello(&mut self, id: u64) {
        let frame = self.endpoints[id as usize].hello(self.now);
        self.send_up(id, Some(frame));
    }

    /// The agent makes the next observation, if any is left.
    pub(crate) fn learn(&mut self, id: u64) {
        if self.observed < OBSERVATIONS {
            let mut x = vec![0.0; OBSERVATIONS];
            x[self.observed] = 1.0;
            self.observed += 1;
            let frame =
                self.endpoints[id as usize].learn(self.now, UserId(0), &x, 1.0).expect("a unit vector");
            self.send_up(id, frame);
        }
    }

    /// Brings a frame to the hub; a refusal changes nothing.
    pub(crate) fn arrive_up(&mut self, from: AgentId, frame: &UpFrame) {
        let frame = UpFrame::decode(&frame.encode()).expect("what was sent");
        let before = self.hub.save();
        match self.hub.receive(self.now, from, frame) {
            Ok(step) => self.take(step),
            Err(_) => assert_eq!(self.hub.save(), before),
        }
    }

    pub(crate) fn arrive_down(&mut self, to: AgentId, frame: &DownFrame) {
        let frame = DownFrame::decode(&frame.encode()).expect("what was sent");
        let answer = self.endpoints[to.0 as usize].receive(self.now, frame).expect("a good frame");
        self.send_up(to.0, answer);
    }

    pub(crate) fn take(&mut self, step: Step) {
        let entries = step.log.iter().map(|entry| LogEntry::decode(&entry.encode()).expect("what was kept"));
        self.log.extend(entries);
        self.sent += step.frames.len();
        self.down.extend(step.frames);
    }

    /// Time passes, and everybody who waited for it acts.
    pub(crate) fn pass(&mut self, microseconds: u64) {
        self.now = self.now.after(TimeSpan::from_micros(microseconds));
        let step = self.hub.tick(self.now);
        self.take(step);
        for id in 0..AGENTS {
            let frame = self.endpoints[id as usize].tick(self.now);
            self.send_up(id, frame);
        }
    }

    /// Brings everything on its way up to the hub.
    pub(crate) fn deliver_up(&mut self) {
        for (from, frame) in std::mem::take(&mut self.up) {
            self.arrive_up(from, &frame);
        }
    }

    /// Brings everything on its way down to the agents.
    pub(crate) fn deliver_down(&mut self) {
        for (to, frame) in std::mem::take(&mut self.down) {
            self.arrive_down(to, &frame);
        }
    }

    /// Delivers all there is, in order, until links are empty.
    pub(crate) fn drain(&mut self) {
        let limit = self.sent + 2000;
        while !(self.up.is_empty() && self.down.is_empty()) {
            self.deliver_up();
            self.deliver_down();
            assert!(self.sent < limit, "frames answer frames for ever");
        }
    }

    /// Delivers what is on the way to one agent, and what it answers.
    pub(crate) fn drain_for(&mut self, agent: AgentId) {
        let frames: Vec<_> = self.down.extract_if(.., |(to, _)| *to == agent).collect();
        for (to, frame) in frames {
            self.arrive_down(to, &frame);
        }
        self.deliver_up();
    }

    /// Delivers and lets time pass until nobody waits for anything.
    pub(crate) fn settle(&mut self) {
        self.drain();
        for _ in 0..60 {
            if !self.waits() {
                return;
            }
            self.pass(RESEND);
            self.drain();
        }
        panic!("somebody still waits: {:?}, {:?}", self.hub, self.endpoints);
    }

    pub(crate) fn waits(&self) -> bool {
        self.hub.deadline().is_some() || self.endpoints.iter().any(|endpoint| endpoint.deadline().is_some())
    }

    /// The agent's process dies and starts again with what it had saved.
    pub(crate) fn restart(&mut self, id: u64) {
        let state = self.endpoints[id as usize].save();
        // The life is in the state; what is given here does not matter.
        let mut endpoint = endpoint(&self.algorithm, id, 77);
        endpoint.restore(&state).expect("its own state");
        assert_eq!(endpoint.save(), state);
        self.endpoints[id as usize] = endpoint;
        self.hello(id);
    }

    /// The agent's process dies and starts again with nothing.
    pub(crate) fn begin_life(&mut self, id: u64) {
        self.lives[id as usize] += 1;
        self.endpoints[id as usize] = endpoint(&self.algorithm, id, self.lives[id as usize]);
        self.hello(id);
    }

    /// The hub dies and comes back from its log, but for the last `lost` entries.
    pub(crate) fn replay(&mut self, lost: usize) {
        let before = self.hub.coordinator().save();
        let epoch = self.hub.epoch();
        self.log.truncate(self.log.len() - lost.min(self.log.len()));
        self.hub = Hub::new(coordinator(&self.algorithm), TimeSpan::from_micros(RESEND));
        self.hub.restore(&self.checkpoint).expect("its own state");
        for entry in &self.log {
            self.hub.replay(entry.clone()).expect("it was accepted before");
        }
        if lost == 0 {
            assert_eq!(self.hub.coordinator().save(), before, "the log gives the same bits");
        } else {
            let step = self.hub.begin_epoch(self.now, Epoch(epoch.0 + 1));
            self.log.extend(step.log);
        }
        // Everybody notices that the link was cut.
        (0..self.endpoints.len() as u64).for_each(|id| self.hello(id));
    }

    /// The hub dies and comes back from a saved state.
    pub(crate) fn restore_hub(&mut self) {
        let state = self.hub.save();
        self.hub = Hub::new(coordinator(&self.algorithm), TimeSpan::from_micros(RESEND));
        self.hub.restore(&state).expect("its own state");
        assert_eq!(self.hub.save(), state);
    }

    /// How often each observation is in the coordinator's evidence.
    pub(crate) fn shared(&self) -> Vec<f64> {
        diagonal(self.hub.coordinator().inspect().evidence.expect("a linear coordinator"))
    }

    /// How often each observation is anywhere, unless it is under way.
    pub(crate) fn everywhere(&self) -> Vec<f64> {
        let mut sum = self.shared();
        for endpoint in &self.endpoints {
            let view = endpoint.agent().inspect().linear.expect("a linear agent");
            let parts = view.in_flight.into_iter().chain([view.buffer]);
            for part in parts {
                sum.iter_mut().zip(diagonal(part)).for_each(|(a, b)| *a += b);
            }
        }
        sum
    }

    fn send_up(&mut self, id: u64, frame: Option<UpFrame>) {
        self.sent += usize::from(frame.is_some());
        self.up.extend(frame.map(|frame| (AgentId(id), frame)));
    }
}

fn coordinator(algorithm: &Algorithm) -> Box<dyn Coordinator> {
    algorithm.coordinator(Shape::shared(OBSERVATIONS)).expect("settings in range")
}

fn endpoint(algorithm: &Algorithm, id: u64, life: u64) -> Endpoint {
    let federation = Federation { agents: AGENTS, horizon: 50, seed: Seed(1) };
    let agent = algorithm.agent(AgentId(id), Shape::shared(OBSERVATIONS), &federation);
    Endpoint::new(
        AgentId(id),
        Incarnation(life),
        agent.expect("settings in range"),
        TimeSpan::from_micros(RESEND),
    )
}

fn diagonal(evidence: &Evidence) -> Vec<f64> {
    (0..evidence.dimension()).map(|i| evidence.gram()[packed(i) + i]).collect()
}
