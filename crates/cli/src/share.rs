//! How regret and messages are spread over agents, and over kinds of messages.

use posse_core::Cost;
use posse_sim::{Direction, Ledger, Share};
use serde::{Deserialize, Serialize};

/// Where a number is in an agent's share.
type ShareOf = fn(&Share) -> f64;

/// What is known of every agent at the end of a run: a name and where it is.
pub(crate) const PER_AGENT: [(&str, ShareOf); 8] = [
    ("interactions", |share| share.interactions as f64),
    ("regret", |share| share.regret),
    ("reward", |share| share.reward),
    ("uploads", |share| share.up.messages as f64),
    ("downloads", |share| share.down.messages as f64),
    ("messages", |share| (share.up.messages + share.down.messages) as f64),
    ("scalars", |share| (share.up.scalars + share.down.scalars) as f64),
    ("bytes", |share| (share.up.bytes + share.down.bytes) as f64),
];

/// The quantiles that are kept, by name.
pub(crate) const QUANTILES: [(&str, f64); 9] = [
    ("min", 0.0),
    ("q05", 0.05),
    ("q10", 0.1),
    ("q25", 0.25),
    ("median", 0.5),
    ("q75", 0.75),
    ("q90", 0.9),
    ("q95", 0.95),
    ("max", 1.0),
];

/// How one number is spread over all agents of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spread {
    /// The name of the number that is spread.
    pub(crate) metric: String,
    /// The mean of the number over all agents.
    pub(crate) mean: f64,
    /// The quantiles of the number over all agents, in the order of [`QUANTILES`].
    pub(crate) quantiles: Vec<f64>,
}

/// What was sent of one kind of message in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    /// `up` to the coordinator, or `down` to agents.
    pub(crate) direction: String,
    /// The kind of message in words.
    pub(crate) kind: String,
    /// What all messages of this kind cost.
    pub(crate) cost: Cost,
}

/// How everything that is known of agents is spread.
pub(crate) fn spreads(ledger: &Ledger) -> Vec<Spread> {
    let spread = |(metric, of): (&str, ShareOf)| {
        let mut values: Vec<f64> = ledger.agents().iter().map(of).collect();
        let mean = crate::statistics::mean(values.iter().copied());
        values.sort_unstable_by(f64::total_cmp);
        let quantiles = QUANTILES.iter().map(|(_, share)| quantile(&values, *share)).collect();
        Spread { metric: metric.into(), mean, quantiles }
    };
    PER_AGENT.into_iter().map(spread).collect()
}

/// What was sent of every kind.
pub(crate) fn flows(ledger: &Ledger) -> Vec<Flow> {
    let word = |direction| match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    };
    let flow = |(direction, kind, cost): (Direction, &str, Cost)| Flow {
        direction: word(direction).into(),
        kind: kind.into(),
        cost,
    };
    ledger.kinds().map(flow).collect()
}

/// A quantile of sorted values, linear between two of them, as numpy and R do it by default.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * last as f64;
    let below = (place.floor() as usize).min(last);
    let above = (below + 1).min(last);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_lie_between_values() {
        let values = [1.0, 2.0, 4.0, 8.0];
        let at = |share| quantile(&values, share);
        assert_eq!([at(0.0), at(0.5), at(0.75), at(1.0)], [1.0, 3.0, 5.0, 8.0]);
        assert_eq!(quantile(&[7.0], 0.3), 7.0);
    }
}
