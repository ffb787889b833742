//! Where the randomness of privacy noise comes from.

use std::fmt;

use crate::ids::{AgentId, Incarnation};
use crate::privacy::sampler::Bits;
use crate::random::Seed;

/// Whose sums a stream of releases is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamId {
    /// The stream of a cluster of the agent, by the cluster's number.
    Cluster(u64),
    /// A user of the agent, whose sums decide who is alike.
    User(u64),
}

impl StreamId {
    /// The kind and the number in it, for sources that derive noise from numbers.
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        match self {
            Self::Cluster(id) => [0, id],
            Self::User(id) => [1, id],
        }
    }
}

/// One measurement of a stream: its noise is drawn once, whatever is released with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Measurement {
    /// The stream of sums that is measured.
    pub stream: StreamId,
    /// 1 for the first measurement, then 2, 3 …
    pub number: u64,
}

/// Gives the random bits that noise is drawn from.
///
/// Simulations repeat: their bits are a function of the seed ([`SeededNoise`]). A deployment must not be
/// predictable: there, implement this with the operating system's generator and hand it to the agent
/// ([`Agent::use_noise`](crate::Agent::use_noise)) before its first release.
pub trait NoiseSource: Send + fmt::Debug {
    /// The random bits of one measurement, 64 at a time and without end. A stream asks once for each and keeps what it
    /// made of them. An agent that does everything again after a crash asks again, and must get the same bits.
    fn bits(&mut self, measurement: Measurement) -> Box<Bits<'_>>;

    /// The random bits of the keys that an agent draws for one of its rounds of secure aggregation, 64 at a time and without end. Rounds
    /// count from 1. As with noise, the same round gets the same bits, and nothing else has them.
    fn key_bits(&mut self, round: u64) -> Box<Bits<'_>>;

    /// Another life of the agent begins: bits of the last one must not come again.
    fn begin_life(&mut self, _life: Incarnation) {}

    /// Whether only the agent can know these bits. The statement of an agent says if not.
    fn is_secret(&self) -> bool {
        false
    }
}

/// Bits from the seed of a run, different for each agent and each of its lives. For simulations only:
/// a coordinator knows the seed and can subtract the noise.
#[derive(Clone, Debug)]
pub struct SeededNoise {
    seed: Seed,
    agent: AgentId,
    life: Incarnation,
}

impl SeededNoise {
    /// The noise of an agent in its first life.
    #[must_use]
    pub const fn new(seed: Seed, agent: AgentId) -> Self {
        Self { seed, agent, life: Incarnation(0) }
    }
}

impl NoiseSource for SeededNoise {
    fn bits(&mut self, measurement: Measurement) -> Box<Bits<'_>> {
        let Self { seed, agent, life } = self;
        let [kind, id] = measurement.stream.words();
        let domain = seed.domain(&format!("privacy {} {} {kind}", agent.0, life.0));
        let mut stream = domain.stream(id, measurement.number);
        Box::new(move || stream.next_u64())
    }

    fn key_bits(&mut self, round: u64) -> Box<Bits<'_>> {
        let Self { seed, agent, life } = self;
        let mut stream = seed.domain(&format!("keys {} {}", agent.0, life.0)).stream(round, 0);
        Box::new(move || stream.next_u64())
    }

    fn begin_life(&mut self, life: Incarnation) {
        self.life = life;
    }
}
