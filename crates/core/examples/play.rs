//! Plays every algorithm with inputs that any language can compute exactly, and prints what came of it: the reference for
//! hosts that are not written in Rust.
//!
//! A line for each algorithm: its name, the number of interactions, and checksums of the choices, the messages and the final
//! states. `crates/python/tests/test_same_bits.py` plays the same in Python and compares.
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::collections::VecDeque;
use std::error::Error;

use posse_core::wire::{encode_downlink, encode_uplink};
use posse_core::{
    Agent, AgentId, Algorithm, Arms, Coordinator, Downlink, Entrance, Federation, Incarnation, Outgoing,
    Placement, Seed, Shape, Tick, Uplink, UserId,
};

const AGENTS: u64 = 3;
const ARMS: u64 = 5;
const DIMENSION: u64 = 4;
const START: u64 = 1_000_000_000_000_000;
const INTERVAL: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    for algorithm in Algorithm::all() {
        let mut host = Host::new(&algorithm)?;
        let steps = steps(algorithm.name());
        for step in 0..steps {
            host.interact(step)?;
        }
        let [choices, messages] = [host.choices, host.messages].map(|hash| hash.0);
        let mut states = Hash::default();
        host.agents.iter().for_each(|agent| states.add(&agent.save()));
        states.add(&host.coordinator.save());
        println!("{} {steps} {choices:08x} {messages:08x} {:08x}", algorithm.name(), states.0);
    }
    Ok(())
}

/// Interactions: 10 000, and fewer for algorithms that take much longer for each.
fn steps(name: &str) -> u64 {
    match name {
        "fn-ucb" | "neural-ucb" | "neural-ts" => 150,
        "kernel-ucb" | "kernel-ts" => 1_500,
        _ => 10_000,
    }
}

struct Host {
    agents: Vec<Box<dyn Agent>>,
    coordinator: Box<dyn Coordinator>,
    now: Tick,
    choices: Hash,
    messages: Hash,
}

enum Letter {
    Up(u64, Uplink),
    Down(u64, Downlink),
}

impl Host {
    fn new(algorithm: &Algorithm) -> Result<Self, Box<dyn Error>> {
        let shape = Shape::shared(DIMENSION as usize);
        let federation = Federation { agents: AGENTS, horizon: 10_000, seed: Seed(11) };
        let learners = if algorithm.placement() == Placement::Central { 1 } else { AGENTS };
        let agent = |id| {
            let mut agent = algorithm.agent(AgentId(id), shape, &federation)?;
            agent.begin_life(Incarnation(1));
            Ok::<_, Box<dyn Error>>(agent)
        };
        let mut host = Self {
            agents: (0..learners).map(agent).collect::<Result<_, _>>()?,
            coordinator: algorithm.coordinator(shape)?,
            now: Tick(START),
            choices: Hash::default(),
            messages: Hash::default(),
        };
        if learners == AGENTS {
            for id in 0..AGENTS {
                let outgoing = host.coordinator.join(host.now, AgentId(id), Entrance::NewLife);
                // Only those who have joined hear of it.
                let letters = addressed(outgoing, id + 1);
                host.deliver(letters)?;
            }
        }
        Ok(host)
    }

    fn interact(&mut self, step: u64) -> Result<(), Box<dyn Error>> {
        self.now = Tick(START + step * INTERVAL);
        let user = UserId(step % AGENTS);
        let learner = user.0 % self.agents.len() as u64;
        let mut arms = Arms::new(DIMENSION as usize);
        for arm in 0..ARMS {
            arms.push(&features(step, arm))?;
        }
        let asked = self.agents[learner as usize].prepare(self.now, user, &arms)?;
        self.deliver(asked.into_iter().map(|message| Letter::Up(learner, message)).collect())?;
        let arm = self.agents[learner as usize].choose(user, &arms)?.arm;
        self.choices.add(&(arm as u64).to_le_bytes());
        let said = self.agents[learner as usize].learn(user, arms.row(arm), reward(step, arm as u64))?;
        self.deliver(said.into_iter().map(|message| Letter::Up(learner, message)).collect())
    }

    fn deliver(&mut self, mut letters: VecDeque<Letter>) -> Result<(), Box<dyn Error>> {
        while let Some(letter) = letters.pop_front() {
            match letter {
                Letter::Up(from, message) => {
                    self.messages.add(&encode_uplink(&message));
                    let outgoing = self.coordinator.receive(self.now, AgentId(from), message)?;
                    letters.extend(addressed(outgoing, AGENTS));
                }
                Letter::Down(to, message) => {
                    self.messages.add(&encode_downlink(&message));
                    let answer = self.agents[to as usize].receive(message)?;
                    letters.extend(answer.map(|answer| Letter::Up(to, answer)));
                }
            }
        }
        Ok(())
    }
}

fn addressed(outgoing: Vec<Outgoing>, joined: u64) -> VecDeque<Letter> {
    let mut letters = VecDeque::new();
    for Outgoing { to, message } in outgoing {
        let recipients = (0..joined).filter(|agent| to.includes(AgentId(*agent)));
        letters.extend(recipients.map(|agent| Letter::Down(agent, message.clone())));
    }
    letters
}

/// Multiples of 1/128 between -1/2 and 1/2: sums and products of them are exact in any order.
fn features(step: u64, arm: u64) -> Vec<f64> {
    let number = |feature| mix((step * ARMS + arm) * DIMENSION + feature) % 129;
    (0..DIMENSION).map(|feature| (number(feature) as f64 - 64.0) / 128.0).collect()
}

/// 1 if features and noise are in favour, otherwise 0: a reward that every link takes.
fn reward(step: u64, arm: u64) -> f64 {
    let x = features(step, arm);
    let noise = ((mix(!(step * ARMS + arm)) % 65) as f64 - 32.0) / 64.0;
    f64::from(x[0] + x[1] / 2.0 + x[2] / 4.0 + x[3] / 8.0 + noise > 0.0)
}

/// Scrambles a number; arithmetic is modulo 2⁶⁴.
const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z ^ (z >> 32)
}

/// The checksum of everything that was added (CRC-32, as zlib and gzip have it).
#[derive(Default)]
struct Hash(u32);

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        let mut crc = !self.0;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            }
        }
        self.0 = !crc;
    }
}
