//! What is measured: the numbers of a tally by name, as rows, curves and checks know them.

use posse_sim::Tally;
use serde::{Serialize, Serializer};

/// A measured number, either whole or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measure {
    /// A count, printed without a decimal point.
    Whole(u64),
    /// Any other number, such as regret.
    Number(f64),
}

impl Measure {
    /// As a number to calculate with.
    pub(crate) const fn as_f64(self) -> f64 {
        match self {
            Self::Whole(count) => count as f64,
            Self::Number(number) => number,
        }
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Whole(count) => serializer.serialize_u64(*count),
            Self::Number(number) => serializer.serialize_f64(*number),
        }
    }
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    /// Its name in rows, columns and checks.
    pub(crate) name: &'static str,
    /// Where it is in a tally.
    pub(crate) of: fn(&Tally) -> Measure,
}

impl Metric {
    /// Whether it is only shown where there are relays: elsewhere it says what another metric says.
    pub(crate) fn is_of_relays(&self) -> bool {
        self.name.ends_with("_at_root")
    }

    /// Returns the metric called `name`, if there is one.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }
}

/// Something that figures and tables show: a metric, or several of them added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// The name of the column in experiments.
    pub(crate) name: &'static str,
    /// The metrics that are added up.
    pub(crate) parts: &'static [&'static str],
}

impl Column {
    /// Sums that have a name of their own.
    const SUMS: [Self; 2] = [
        Self { name: "scalars", parts: &["scalars_up", "scalars_down"] },
        Self { name: "bytes", parts: &["bytes_up", "bytes_down"] },
    ];

    /// The column of this name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let sum = Self::SUMS.into_iter().find(|sum| sum.name == name);
        let own = METRICS.iter().find(|metric| metric.name == name);
        sum.or_else(|| {
            own.map(|metric| Self { name: metric.name, parts: std::slice::from_ref(&metric.name) })
        })
    }

    /// The names of all columns.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
        METRICS.iter().map(|metric| metric.name).chain(Self::SUMS.into_iter().map(|sum| sum.name))
    }

    /// Its value for a run.
    pub(crate) fn of(self, tally: &Tally) -> f64 {
        let parts = METRICS.iter().filter(|metric| self.parts.contains(&metric.name));
        parts.map(|metric| (metric.of)(tally).as_f64()).sum()
    }

    /// As an axis or a heading says it.
    pub(crate) fn words(self) -> String {
        match self.name {
            "messages" => "messages, both ways".into(),
            "scalars" => "numbers sent, both ways".into(),
            "bytes" => "bytes sent, both ways".into(),
            "honest_regret" => "regret of honest agents".into(),
            "set_aside" => "agents that are not believed".into(),
            "regret_each" => "regret of each agent".into(),
            "normalised_reward" => "reward, as a multiple of choosing at random".into(),
            "rand_index" => "agreement with the true clusters (Rand index)".into(),
            other => other.replace('_', " "),
        }
    }
}

/// A metric in a line.
const fn metric(name: &'static str, of: fn(&Tally) -> Measure) -> Metric {
    Metric { name, of }
}

/// Everything that is measured, in the order of columns.
pub(crate) static METRICS: [Metric; 29] = [
    // Σ of what the chosen arms were worth less than the best ones, the same per agent, and Σ of rewards.
    metric("regret", |tally| Measure::Number(tally.regret)),
    metric("regret_each", |tally| Measure::Number(tally.regret_each())),
    metric("reward", |tally| Measure::Number(tally.reward)),
    // What choosing at random would have received on average, and rewards as a multiple of it.
    metric("random_reward", |tally| Measure::Number(tally.random_reward)),
    metric("normalised_reward", |tally| Measure::Number(tally.normalised_reward())),
    // Messages with statistics from agents to the coordinator, back, and both.
    metric("uploads", |tally| Measure::Whole(tally.up.messages)),
    metric("downloads", |tally| Measure::Whole(tally.down.messages)),
    metric("messages", |tally| Measure::Whole(tally.messages())),
    // The same over the links of the coordinator itself, which are those of relays where there are any.
    metric("messages_at_root", |tally| Measure::Whole(tally.messages_at_root())),
    metric("rounds", |tally| Measure::Whole(tally.rounds)),
    // Numbers in statistics as they travelled, and as the linear papers count them.
    metric("scalars_up", |tally| Measure::Whole(tally.up.scalars)),
    metric("scalars_down", |tally| Measure::Whole(tally.down.scalars)),
    metric("paper_scalars_up", |tally| Measure::Whole(tally.up.paper_scalars)),
    metric("paper_scalars_down", |tally| Measure::Whole(tally.down.paper_scalars)),
    // Bytes of all messages.
    metric("bytes_up", |tally| Measure::Whole(tally.up.bytes)),
    metric("bytes_down", |tally| Measure::Whole(tally.down.bytes)),
    // The same over the links of the coordinator itself.
    metric("bytes_up_at_root", |tally| Measure::Whole(tally.bytes_at_root().0)),
    metric("bytes_down_at_root", |tally| Measure::Whole(tally.bytes_at_root().1)),
    // Messages without statistics, both ways.
    metric("control_messages", |tally| Measure::Whole(tally.up.control + tally.down.control)),
    metric("agents_seen", |tally| Measure::Whole(tally.agents_seen)),
    metric("lost_observations", |tally| Measure::Whole(tally.lost_observations)),
    // How users are sorted: clusters that share, and their agreement with the true ones; 0 where nobody sorts.
    metric("clusters", |tally| Measure::Whole(tally.clustering.map_or(0, |sorted| sorted.clusters))),
    metric("rand_index", |tally| Measure::Number(tally.clustering.map_or(0.0, |sorted| sorted.rand_index))),
    // Privacy: sums that noise made indefinite, ε that was spent, and signal over noise; 0 without privacy.
    metric("psd_repairs", |tally| Measure::Whole(tally.repairs)),
    metric("epsilon_spent", |tally| Measure::Number(tally.privacy.as_ref().map_or(0.0, |p| p.epsilon))),
    metric("signal_to_noise", |tally| {
        Measure::Number(tally.privacy.as_ref().and_then(|p| p.signal_to_noise).unwrap_or(0.0))
    }),
    // Trainings of networks that led nowhere and were undone; 0 where there are no networks.
    metric("failed_trainings", |tally| Measure::Whole(tally.failed_trainings)),
    // Liars: the regret of all others, and how many agents the coordinator does not believe.
    metric("honest_regret", |tally| Measure::Number(tally.honest_regret.unwrap_or(tally.regret))),
    metric("set_aside", |tally| Measure::Whole(tally.set_aside)),
];
