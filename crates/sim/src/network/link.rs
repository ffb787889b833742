//! One direction of one link: when does what was sent arrive, and how often?

use posse_core::{AgentId, Domain, Seed, Tick, TimeSpan};

use super::Preset;

/// How a link treats what is sent over it.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkModel {
    /// The shortest time that a message needs.
    pub latency: TimeSpan,
    /// The longest time that a message may need beyond `latency`.
    pub jitter: TimeSpan,
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share of messages that arrive twice.
    pub repeat: f64,
    /// The share of messages that arrive a second late.
    pub straggle: f64,
    /// Each agent is cut off once in every interval of this length; 0 means never.
    pub partition_every: TimeSpan,
    /// How long an agent stays cut off.
    pub partition_length: TimeSpan,
}

/// How late a straggler is, in microseconds.
const STRAGGLER: u64 = 1_000_000;

impl LinkModel {
    /// Nothing is lost and nothing takes time.
    pub const PERFECT: Self = Self {
        latency: TimeSpan::ZERO,
        jitter: TimeSpan::ZERO,
        loss: 0.0,
        repeat: 0.0,
        straggle: 0.0,
        partition_every: TimeSpan::ZERO,
        partition_length: TimeSpan::ZERO,
    };

    /// The link model that a preset stands for.
    #[must_use]
    pub const fn preset(preset: Preset) -> Self {
        let (latency, jitter, loss) = match preset {
            Preset::Ideal => return Self::PERFECT,
            Preset::Wifi => (3, 5, 0.005),
            Preset::Cellular => (40, 40, 0.01),
            Preset::Satellite => (300, 30, 0.005),
            Preset::Hostile => {
                return Self {
                    latency: TimeSpan::from_millis(20),
                    jitter: TimeSpan::from_millis(200),
                    loss: 0.2,
                    repeat: 0.1,
                    straggle: 0.1,
                    partition_every: TimeSpan::from_secs(5),
                    partition_length: TimeSpan::from_millis(500),
                };
            }
        };
        let (latency, jitter) = (TimeSpan::from_millis(latency), TimeSpan::from_millis(jitter));
        Self { latency, jitter, loss, ..Self::PERFECT }
    }

    /// The same link with nothing lost or doubled any more: what healing means.
    #[must_use]
    pub fn healed(&self) -> Self {
        Self { loss: 0.0, repeat: 0.0, straggle: 0.0, partition_every: TimeSpan::ZERO, ..self.clone() }
    }

    fn is_cut(&self, agent: AgentId, now: Tick) -> bool {
        // Agents are cut off at different moments.
        let (every, length) = (self.partition_every.as_micros(), self.partition_length.as_micros());
        let phase = agent.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) % every.max(1);
        every > 0 && now.0.wrapping_add(phase) % every < length
    }
}

/// All links of a network in one direction.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    pub(crate) model: LinkModel,
    domain: Domain,
    sent: u64,
}

impl Links {
    pub(crate) fn new(model: LinkModel, seed: Seed, direction: &str) -> Self {
        Self { model, domain: seed.domain(direction), sent: 0 }
    }

    /// When what is sent to or from `agent` now arrives: never, once or twice.
    pub(crate) fn arrivals(&mut self, agent: AgentId, now: Tick) -> impl Iterator<Item = Tick> + use<> {
        let mut stream = self.domain.stream(agent.0, self.sent);
        self.sent += 1;
        let model = &self.model;
        let lost = model.is_cut(agent, now) || stream.uniform() < model.loss;
        let copies = if lost { 0 } else { 1 + usize::from(stream.uniform() < model.repeat) };
        let mut arrive = || {
            let late = if stream.uniform() < model.straggle { STRAGGLER } else { 0 };
            now.after(TimeSpan::from_micros(
                model.latency.as_micros() + late + stream.below(model.jitter.as_micros() + 1),
            ))
        };
        let times = [arrive(), arrive()];
        times.into_iter().take(copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(model: LinkModel) -> [usize; 3] {
        let mut links = Links::new(model, Seed(3), "up");
        let mut seen = [0; 3];
        for k in 0..20_000 {
            seen[links.arrivals(AgentId(k % 7), Tick(k * 1000)).count()] += 1;
        }
        seen
    }

    #[test]
    fn loss_and_repetition_have_their_shares() {
        let model = LinkModel { loss: 0.3, repeat: 0.2, ..LinkModel::PERFECT };
        let [lost, once, twice] = counts(model);
        // 6 000, 11 200 and 2 800 with standard deviations below 80.
        assert!(lost.abs_diff(6_000) < 400 && once.abs_diff(11_200) < 400 && twice.abs_diff(2_800) < 400);
    }

    #[test]
    fn a_perfect_link_delivers_at_once() {
        assert_eq!(counts(LinkModel::PERFECT), [0, 20_000, 0]);
        let mut links = Links::new(LinkModel::PERFECT, Seed(0), "up");
        assert_eq!(links.arrivals(AgentId(1), Tick(5)).collect::<Vec<_>>(), [Tick(5)]);
    }

    #[test]
    fn a_partition_cuts_its_share_of_the_time_and_heals() {
        let model = LinkModel {
            partition_every: TimeSpan::from_secs(1),
            partition_length: TimeSpan::from_millis(250),
            ..LinkModel::PERFECT
        };
        let [lost, _, _] = counts(model.clone());
        assert!(lost.abs_diff(5_000) < 100, "{lost}");
        assert_eq!(counts(model.healed()), [0, 20_000, 0]);
    }

    #[test]
    fn jitter_reorders() {
        let model = LinkModel { jitter: TimeSpan::from_millis(50), ..LinkModel::PERFECT };
        let mut links = Links::new(model, Seed(1), "up");
        let times: Vec<Tick> =
            (0..50).flat_map(|k| links.arrivals(AgentId(0), Tick(k)).collect::<Vec<_>>()).collect();
        assert!(!times.is_sorted());
    }
}
