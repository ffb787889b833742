//! Good bytes to start from: what a small federation of each algorithm says, logs and saves.

use std::collections::BTreeSet;

use posse_core::session::{DownFrame, Endpoint, Hub, Step, UpFrame};
use posse_core::wire::{encode_downlink, encode_uplink};
use posse_core::{AgentId, Algorithm, Arms, Federation, Incarnation, Seed, Shape, Tick, TimeSpan, UserId};

/// Longer seeds are left out: libFuzzer mutates short inputs faster, and states of networks have many kilobytes.
const LONGEST: usize = 4096;
const AGENTS: u64 = 2;
const STEPS: u64 = 30;
/// The federations begin far from the zero of the clock, as real ones do.
const START: u64 = 1_700_000_000_000_000;
const RESEND_AFTER: TimeSpan = TimeSpan::from_millis(1);

/// Distinct encodings, by what decodes them.
#[derive(Clone, Debug, Default)]
pub struct Seeds {
    uplinks: BTreeSet<Vec<u8>>,
    downlinks: BTreeSet<Vec<u8>>,
    frames: BTreeSet<Vec<u8>>,
    states: BTreeSet<Vec<u8>>,
}

impl Seeds {
    /// The seeds of a target, in a fixed order.
    ///
    /// # Panics
    /// If there is no such target.
    #[must_use]
    pub fn of(&self, target: &str) -> Vec<&[u8]> {
        let all = match target {
            "decode_uplink" => &self.uplinks,
            "decode_downlink" => &self.downlinks,
            "decode_frames" => &self.frames,
            "restore_state" => &self.states,
            other => panic!("there is no target {other}"),
        };
        all.iter().map(Vec::as_slice).filter(|seed| seed.len() <= LONGEST).collect()
    }
}

/// Plays every algorithm once and collects what it says.
#[must_use]
pub fn seeds() -> Seeds {
    let mut seeds = Seeds::default();
    for algorithm in Algorithm::all() {
        for shape in [Shape::shared(2), Shape { shared: 1, local: 1 }] {
            Play::new(&algorithm, shape, &mut seeds).run();
        }
    }
    seeds
}

/// A federation over links that lose nothing.
struct Play<'s> {
    hub: Hub,
    endpoints: Vec<Endpoint>,
    now: Tick,
    seeds: &'s mut Seeds,
}

impl<'s> Play<'s> {
    fn new(algorithm: &Algorithm, shape: Shape, seeds: &'s mut Seeds) -> Self {
        let federation = Federation { agents: AGENTS, horizon: STEPS, seed: Seed(1) };
        let endpoint = |id| {
            let agent = algorithm.agent(AgentId(id), shape, &federation).expect("defaults are in range");
            Endpoint::new(AgentId(id), Incarnation(1), agent, RESEND_AFTER)
        };
        let coordinator = algorithm.coordinator(shape).expect("defaults are in range");
        Self {
            hub: Hub::new(coordinator, RESEND_AFTER),
            endpoints: (0..AGENTS).map(endpoint).collect(),
            now: Tick(START),
            seeds,
        }
    }

    fn run(mut self) {
        for agent in 0..AGENTS {
            let hello = self.endpoints[agent as usize].hello(self.now);
            self.deliver(AgentId(agent), hello);
        }
        let arms = Arms::from_rows(2, &[[1.0, 0.0], [0.6, 0.8], [-0.5, 0.5]]).expect("two features each");
        for step in 0..STEPS {
            self.now = self.now.after(TimeSpan::from_millis(10));
            let agent = step % AGENTS;
            let endpoint = &mut self.endpoints[agent as usize];
            let user = UserId(agent);
            let arm = endpoint.choose(user, &arms).expect("good arms").arm;
            // Rewards of 0 and 1 are possible under every link function.
            let reward = f64::from(u8::from((step + arm as u64).is_multiple_of(3)));
            let said = endpoint.learn(self.now, user, arms.row(arm), reward).expect("a good observation");
            if let Some(frame) = said {
                self.deliver(AgentId(agent), frame);
            }
            let step = self.hub.tick(self.now);
            self.follow(step);
        }
        for endpoint in &self.endpoints {
            self.seeds.states.extend([endpoint.save(), endpoint.agent().save()]);
        }
        self.seeds.states.extend([self.hub.save(), self.hub.coordinator().save()]);
    }

    fn deliver(&mut self, from: AgentId, frame: UpFrame) {
        self.seeds.frames.insert(frame.encode());
        self.seeds.uplinks.extend(frame.message.as_ref().map(encode_uplink));
        let step = self.hub.receive(self.now, from, frame).expect("a frame of an honest agent");
        self.follow(step);
    }

    fn follow(&mut self, step: Step) {
        self.seeds.frames.extend(step.log.iter().map(posse_core::session::LogEntry::encode));
        for (to, frame) in step.frames {
            self.seeds.frames.insert(frame.encode());
            self.seeds.downlinks.extend(frame.message.as_ref().map(encode_downlink));
            let answer = self.at_agent(to, frame);
            if let Some(frame) = answer {
                self.deliver(to, frame);
            }
        }
    }

    fn at_agent(&mut self, to: AgentId, frame: DownFrame) -> Option<UpFrame> {
        self.endpoints[to.0 as usize].receive(self.now, frame).expect("a frame of an honest coordinator")
    }
}
