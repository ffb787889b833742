//! Checks: what an experiment says must hold, or is expected to, and what became of it.

mod front;
mod judge;
mod read;
mod verdict;

use crate::experiment::Group;
use crate::metric::{Column, Metric};

pub(crate) use judge::judge;
pub(crate) use read::read;
pub(crate) use verdict::{Judgement, Verdict, report};

/// How serious a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// It must hold: otherwise FAIL, and the command ends with exit code 1.
    Must,
    /// The papers say so: otherwise DEVIATES, which is reported and no more.
    Expect,
}

/// One `[[check]]` of an experiment.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// The claim in the experiment's own words.
    pub(crate) says: Option<String>,
    /// The reason that the experiment gives for a claim that fails here. It is shown only when the claim fails.
    pub(crate) why: Option<String>,
    /// Whether a broken claim fails the experiment or is only reported.
    pub(crate) level: Level,
    /// Which groups it is about.
    pub(crate) selector: Selector,
    /// The claim that is judged.
    pub(crate) claim: Claim,
}

/// What is to hold, in terms of means over seeds.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// `y` falls (or rises) as `x` rises, along the values of a swept setting.
    Monotone {
        /// The column that falls or rises.
        y: Axis,
        /// The column that rises meanwhile.
        x: Axis,
        /// The swept setting; all others stay the same.
        along: String,
        /// Whether `y` is to rise; otherwise it is to fall.
        rising: bool,
        /// By what share of it a value may be on the wrong side of the one before.
        slack: f64,
    },
    /// One group's metric is at most `factor` times another's, less `margin`.
    Order {
        /// The metric that is compared.
        metric: &'static Metric,
        /// The group whose metric is to be lower.
        below: Selector,
        /// The group whose metric is to be higher.
        above: Selector,
        /// The share of the higher metric that the lower one may reach.
        factor: f64,
        /// How far the lower metric must stay below that share, in units of the metric.
        margin: f64,
        /// If set, groups are curves, compared where this metric is equal; the geometric mean counts.
        at_equal: Option<&'static Metric>,
    },
    /// The rank correlation of two columns over the values of a swept setting.
    Spearman {
        /// The first of the two columns.
        x: Axis,
        /// The second of the two columns.
        y: Axis,
        /// The swept setting; all others stay the same.
        along: String,
        /// The least it may be.
        at_least: f64,
        /// The most it may be.
        at_most: f64,
    },
    /// The exponent of a power law: the slope of ln `y` over ln `x`, seed by seed, over the values of a swept
    /// setting. It counts as at most (or least) so much if its 95 % interval reaches there.
    Slope {
        /// The column that grows.
        y: Axis,
        /// The column that it grows with.
        x: Axis,
        /// The swept setting whose values give the points.
        along: String,
        /// Settings in which the points of a series may differ besides, such as a threshold that depends on `along`.
        across: Vec<String>,
        /// The least it may be.
        at_least: f64,
        /// The most it may be.
        at_most: f64,
    },
    /// A metric lies between two numbers.
    Range {
        /// The metric that is judged.
        metric: &'static Metric,
        /// The least it may be.
        low: f64,
        /// The most it may be.
        high: f64,
    },
    /// No cell sends more messages than N·d·ln(1 + T/(dλ))/ln γ.
    BoundO5,
    /// One way of doing things is nowhere beaten, cost for cost.
    Front(Front),
}

/// For what any group of `above` costs, the groups of `below`, taken as a curve, have at most `factor` times its metric.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    /// The metric that is to be low.
    pub(crate) metric: &'static Metric,
    /// What a group costs: a metric, or a sum of them such as bytes both ways.
    pub(crate) cost: Column,
    /// The groups that make up the curve.
    pub(crate) below: Selector,
    /// The groups that are to lie above it, each of them.
    pub(crate) above: Selector,
    /// The share of the higher metric that the lower one may reach.
    pub(crate) factor: f64,
}

impl Claim {
    /// The name of this kind of check in experiments.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Monotone { .. } => "monotone",
            Self::Order { .. } => "order",
            Self::Spearman { .. } => "spearman",
            Self::Slope { .. } => "slope",
            Self::Range { .. } => "range",
            Self::BoundO5 => "bound-o5",
            Self::Front(_) => "front",
        }
    }
}

/// A column: something measured, or a swept setting.
#[derive(Clone, Debug)]
pub(crate) enum Axis {
    /// A metric, measured in every cell.
    Metric(&'static Metric),
    /// A swept setting, by its path.
    Setting(String),
}

impl Axis {
    /// The name of the column, for messages.
    fn name(&self) -> &str {
        match self {
            Self::Metric(metric) => metric.name,
            Self::Setting(key) => key,
        }
    }
}

/// How a selector means groups that have no value of a setting, where others have one.
const NOT_SET: &str = "not set";

/// Settings with the values that a group may have, one of those listed; empty means all groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector(pub(crate) Vec<(String, Vec<String>)>);

impl Selector {
    /// Whether a group has one of the values of every setting.
    pub(crate) fn matches(&self, group: &Group) -> bool {
        let value = |key: &str| choice(group, key).map_or(NOT_SET, String::as_str);
        self.0.iter().all(|(key, values)| values.iter().any(|listed| listed == value(key)))
    }

    /// Whether it says anything about a setting.
    fn mentions(&self, path: &str) -> bool {
        self.0.iter().any(|(key, _)| is_called(path, key))
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> =
            self.0.iter().map(|(key, values)| format!("{key}={}", values.join("|"))).collect();
        f.write_str(if parts.is_empty() { "all groups".into() } else { parts.join(" ") }.as_str())
    }
}

/// The value of a swept setting, or of `algorithm`, in a group.
fn choice<'g>(group: &'g Group, key: &str) -> Option<&'g String> {
    group.choices.iter().find(|(path, _)| is_called(path, key)).map(|(_, value)| value)
}

/// Whether a setting, given with its table, can be called `key`.
pub(crate) fn is_called(path: &str, key: &str) -> bool {
    path == key || path.rsplit('.').next() == Some(key)
}

/// The settings in which two groups differ and that no selector fixes, where both have them.
fn disagreement<'g>(one: &'g Group, other: &Group, selectors: [&Selector; 2]) -> Vec<&'g str> {
    let free =
        one.choices.iter().filter(|(path, _)| !selectors.iter().any(|selector| selector.mentions(path)));
    let differs = |(path, value): &&(String, String)| {
        other.choices.iter().any(|(name, theirs)| name == path && theirs != value)
    };
    free.filter(differs).map(|(path, _)| path.as_str()).collect()
}
