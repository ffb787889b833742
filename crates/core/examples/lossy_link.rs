//! Two agents learn together over a link that loses every third frame.
//!
//! An `Endpoint` around each agent and a `Hub` around the coordinator number, acknowledge and repeat messages, so
//! that every upload counts once. The program around them only has to carry bytes and tell the time.
//!
//! Run it with `cargo run --release -p posse-core --example lossy_link`.
#![allow(clippy::print_stdout, reason = "it shows something")]

use std::error::Error;

use posse_core::session::{DownFrame, Endpoint, Hub, Step, UpFrame};
use posse_core::{
    AgentId, Algorithm, Arms, AsyncLinUcb, Federation, Incarnation, Seed, Shape, Tick, TimeSpan, UserId,
};

const AGENTS: u64 = 2;
const INTERACTIONS: u64 = 200;
/// Microseconds until a frame that was not answered is sent again.
const RESEND_AFTER: TimeSpan = TimeSpan::from_millis(50);
/// Microseconds between two interactions.
const PACE: TimeSpan = TimeSpan::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
    let federation = Federation { agents: AGENTS, horizon: INTERACTIONS, seed: Seed(7) };
    let shape = Shape::shared(2);
    let mut endpoints = Vec::new();
    for id in (0..AGENTS).map(AgentId) {
        let agent = algorithm.agent(id, shape, &federation)?;
        endpoints.push(Endpoint::new(id, Incarnation(1), agent, RESEND_AFTER));
    }
    let hub = Hub::new(algorithm.coordinator(shape)?, RESEND_AFTER);
    let mut link = LossyLink { endpoints, hub, sent: 0, lost: 0, log_entries: 0 };

    let mut now = Tick(1_700_000_000_000_000);
    for id in (0..AGENTS).map(AgentId) {
        let hello = link.endpoints[id.0 as usize].hello(now);
        link.up(id, &hello, now)?;
    }
    let arms = Arms::from_rows(2, &[[1.0, 0.0], [0.6, 0.8]])?;
    for step in 0..INTERACTIONS {
        now = now.after(PACE);
        let id = AgentId(step % AGENTS);
        let endpoint = &mut link.endpoints[id.0 as usize];
        let arm = endpoint.choose(UserId(0), &arms)?.arm;
        let reward = [0.2, 0.7][arm];
        if let Some(frame) = endpoint.learn(now, UserId(0), arms.row(arm), reward)? {
            link.up(id, &frame, now)?;
        }
        link.tick(now)?;
    }
    // Nobody learns any more, but what was lost is sent again until it has arrived.
    for _ in 0..50 {
        now = now.after(PACE);
        link.tick(now)?;
    }

    let unsent: u64 = link.endpoints.iter().map(|endpoint| endpoint.agent().inspect().unsent).sum();
    let shared = link.hub.coordinator().inspect().observations;
    println!("{} frames sent, {} of them lost; {} log entries", link.sent, link.lost, link.log_entries);
    println!("{shared} observations at the coordinator, {unsent} still with the agents");
    assert_eq!(shared + unsent, INTERACTIONS, "every observation counts once");
    Ok(())
}

/// The agents and the hub, with the frames on their way between them.
struct LossyLink {
    endpoints: Vec<Endpoint>,
    hub: Hub,
    sent: u64,
    lost: u64,
    log_entries: usize,
}

impl LossyLink {
    /// Carries a frame to the coordinator as bytes, or loses it.
    fn up(&mut self, from: AgentId, frame: &UpFrame, now: Tick) -> Result<(), Box<dyn Error>> {
        if self.loses() {
            return Ok(());
        }
        let frame = UpFrame::decode(&frame.encode())?;
        let step = self.hub.receive(now, from, frame)?;
        self.follow(step, now)
    }

    /// Does what the hub asks for: first its log entries must be safe, then its frames may be sent.
    fn follow(&mut self, step: Step, now: Tick) -> Result<(), Box<dyn Error>> {
        // A real program appends the entries to a file and synchronises it here.
        self.log_entries += step.log.len();
        for (to, frame) in step.frames {
            if self.loses() {
                continue;
            }
            let frame = DownFrame::decode(&frame.encode())?;
            if let Some(answer) = self.endpoints[to.0 as usize].receive(now, frame)? {
                self.up(to, &answer, now)?;
            }
        }
        Ok(())
    }

    /// Lets agents and hub repeat what was not answered in time.
    fn tick(&mut self, now: Tick) -> Result<(), Box<dyn Error>> {
        for id in (0..AGENTS).map(AgentId) {
            if let Some(frame) = self.endpoints[id.0 as usize].tick(now) {
                self.up(id, &frame, now)?;
            }
        }
        let step = self.hub.tick(now);
        self.follow(step, now)
    }

    fn loses(&mut self) -> bool {
        self.sent += 1;
        let is_lost = self.sent.is_multiple_of(3);
        self.lost += u64::from(is_lost);
        is_lost
    }
}
