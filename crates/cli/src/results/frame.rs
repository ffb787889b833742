//! Rows as columns: `summary` has a row for each cell, `curves` one for each point of each cell, `agents` one for
//! each thing known of agents, `messages` one for each kind of message.
//!
//! Content depends on the plan and the numbers only: rows in the order of the plan, columns in the order in
//! which the plan first has them, `seconds` last.

use std::collections::BTreeMap;

use posse_core::Cost;
use posse_data::parquet_file::Values;
use posse_sim::{GroupBy, Tally};
use serde_json::{Map, Value};

use crate::experiment::Experiment;
use crate::metric::{METRICS, Measure};
use crate::row::{Row, settings};
use crate::settings::{Kind, Section, Setting, nested_defaults};
use crate::share::{Flow, QUANTILES, Spread};

/// A table: named columns of equal length.
///
/// A setting that is no single value, such as a list, is stored as text in JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Frame {
    /// Names and values, in the order of the file.
    pub(crate) columns: Vec<(String, Values)>,
}

/// Whether any cell has relays. Without them, nothing is said about them.
fn has_relays<'r>(mut rows: impl Iterator<Item = &'r Row<'r>>) -> bool {
    rows.any(|row| !row.cell.config.topology.is_flat())
}

impl Frame {
    /// A row for each of `rows`: identity, every setting, every metric, seconds.
    pub(crate) fn summary(experiment: &Experiment, rows: &[Row<'_>]) -> Self {
        let mut frame = Self::default();
        let text =
            |of: &dyn Fn(&Row<'_>) -> String| Values::Text(rows.iter().map(|row| Some(of(row))).collect());
        let whole = |of: &dyn Fn(&Row<'_>) -> u64| {
            Values::Whole(rows.iter().map(|row| Some(signed(of(row)))).collect())
        };
        frame.push("id", text(&|row| row.cell.id.clone()));
        frame.push("group", text(&|row| experiment.groups[row.cell.group].id.clone()));
        frame.push("experiment", text(&|_| experiment.id.clone()));
        frame.push("quick", Values::Switch(vec![Some(experiment.quick); rows.len()]));
        frame.push("algorithm", text(&|row| row.cell.config.algorithm.name().into()));
        frame.push("seed", whole(&|row| row.cell.config.seed.0));
        frame.push("agents", whole(&|row| row.cell.config.agents));
        frame.push("horizon", whole(&|row| row.cell.config.horizon));
        let relays = has_relays(rows.iter());
        for section in Section::ALL.into_iter().filter(|section| *section != Section::Topology || relays) {
            frame.push_settings(section, rows);
        }
        for metric in METRICS.iter().filter(|metric| relays || !metric.is_of_relays()) {
            frame.push(metric.name, measures(rows.iter().map(|row| (metric.of)(row.tally()))));
        }
        frame.push("seconds", Values::Number(rows.iter().map(|row| Some(row.record.seconds)).collect()));
        frame
    }

    /// A row for each point of the curves of `rows`: for all agents, then for each group of them, if any.
    pub(crate) fn curves(experiment: &Experiment, rows: &[Row<'_>]) -> Self {
        let by = match experiment.curves.by {
            GroupBy::Activity => "activity",
            GroupBy::Id => "id",
        };
        let mut points: Vec<Point<'_>> = Vec::new();
        for row in rows {
            let all = row.record.curve.iter();
            points.extend(all.map(|tally| Point { row, agents: None, step: tally.interactions, tally }));
            let count = row.record.groups.first().map_or(0, Vec::len);
            for group in 0..count {
                let moments = row.record.curve.iter().zip(&row.record.groups);
                points.extend(moments.map(|(all, parts)| Point {
                    row,
                    agents: Some(format!("{} of {count} by {by}", group + 1)),
                    step: all.interactions,
                    tally: &parts[group],
                }));
            }
        }
        let mut frame = Self::default();
        frame.push_identity(experiment, &points.iter().map(|point| point.row).collect::<Vec<_>>());
        let agents = points.iter().map(|point| Some(point.agents.clone().unwrap_or_else(|| "all".into())));
        frame.push("agents", Values::Text(agents.collect()));
        frame.push("step", measures(points.iter().map(|point| Measure::Whole(point.step))));
        frame.push("interactions", measures(points.iter().map(|p| Measure::Whole(p.tally.interactions))));
        let relays = has_relays(rows.iter());
        for metric in METRICS.iter().filter(|metric| relays || !metric.is_of_relays()) {
            // Of a round, of what was lost, or of what is looked up now and then, no group has a part of its own.
            let of_all = [
                "messages_at_root",
                "bytes_up_at_root",
                "bytes_down_at_root",
                "rounds",
                "lost_observations",
                "failed_trainings",
                "honest_regret",
                "set_aside",
            ]
            .contains(&metric.name);
            let known =
                |point: &Point<'_>| (!of_all || point.agents.is_none()).then(|| (metric.of)(point.tally));
            frame.push(metric.name, optional_measures(points.iter().map(known)));
        }
        frame
    }

    /// A row for each cell and each thing that is known of agents: its mean and quantiles over agents.
    pub(crate) fn agents(experiment: &Experiment, rows: &[Row<'_>]) -> Self {
        let spreads: Vec<(&Row<'_>, &Spread)> =
            rows.iter().flat_map(|row| row.record.agents.iter().map(move |spread| (row, spread))).collect();
        let mut frame = Self::default();
        frame.push_identity(experiment, &spreads.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        frame.push("metric", texts(spreads.iter().map(|(_, spread)| spread.metric.as_str())));
        let numbers = |of: &dyn Fn(&Spread) -> Option<f64>| {
            Values::Number(spreads.iter().map(|(_, spread)| of(spread)).collect())
        };
        frame.push("mean", numbers(&|spread| Some(spread.mean)));
        for (place, (name, _)) in QUANTILES.iter().enumerate() {
            frame.push(name, numbers(&|spread| spread.quantiles.get(place).copied()));
        }
        frame
    }

    /// A row for each cell and each kind of message in each direction.
    pub(crate) fn messages(experiment: &Experiment, rows: &[Row<'_>]) -> Self {
        let flows: Vec<(&Row<'_>, &Flow)> =
            rows.iter().flat_map(|row| row.record.messages.iter().map(move |flow| (row, flow))).collect();
        let mut frame = Self::default();
        frame.push_identity(experiment, &flows.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        frame.push("direction", texts(flows.iter().map(|(_, flow)| flow.direction.as_str())));
        frame.push("kind", texts(flows.iter().map(|(_, flow)| flow.kind.as_str())));
        let costs: [(&str, CostOf); 5] = [
            ("messages", |cost| cost.messages),
            ("control_messages", |cost| cost.control),
            ("scalars", |cost| cost.scalars),
            ("paper_scalars", |cost| cost.paper_scalars),
            ("bytes", |cost| cost.bytes),
        ];
        for (name, of) in costs {
            frame.push(name, measures(flows.iter().map(|(_, flow)| Measure::Whole(of(&flow.cost)))));
        }
        frame
    }

    /// Which cell each row of a table is of.
    fn push_identity(&mut self, experiment: &Experiment, rows: &[&Row<'_>]) {
        self.push("id", texts(rows.iter().map(|row| row.cell.id.as_str())));
        self.push("group", texts(rows.iter().map(|row| experiment.groups[row.cell.group].id.as_str())));
        self.push("quick", Values::Switch(vec![Some(experiment.quick); rows.len()]));
        self.push("algorithm", texts(rows.iter().map(|row| row.cell.config.algorithm.name())));
        self.push("seed", measures(rows.iter().map(|row| Measure::Whole(row.cell.config.seed.0))));
    }

    /// Adds a column at the end.
    fn push(&mut self, name: &str, column: Values) {
        self.columns.push((name.into(), column));
    }

    /// Adds a column `section.key` for each setting that any row has.
    fn push_settings(&mut self, section: Section, rows: &[Row<'_>]) {
        let mut flat: Vec<BTreeMap<String, Value>> = Vec::with_capacity(rows.len());
        let mut names: Vec<String> = Vec::new();
        for row in rows {
            let mut own = Vec::new();
            flatten(section.key(), settings(&row.cell.config, section), &mut own);
            for (name, _) in &own {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            flat.push(own.into_iter().collect());
        }
        for name in names {
            let values: Vec<Option<&Value>> =
                flat.iter().map(|row| row.get(&name).filter(|value| !value.is_null())).collect();
            let column = column(kind(section, &name), &values);
            self.push(&name, column);
        }
    }
}

/// Settings with paths; a table that is not set has all its settings not set.
fn flatten(path: &str, map: Map<String, Value>, all: &mut Vec<(String, Value)>) {
    for (key, value) in map {
        let below = format!("{path}.{key}");
        match (value, nested_defaults(&key)) {
            (Value::Object(inner), _) => flatten(&below, inner, all),
            (Value::Null, Value::Object(inner)) => {
                let unset = inner.keys().map(|key| (key.clone(), Value::Null)).collect();
                flatten(&below, unset, all);
            }
            (value, _) => all.push((below, value)),
        }
    }
}

/// What the setting called `name`, a path from the section on, takes.
fn kind(section: Section, name: &str) -> Option<Kind> {
    let mut keys = name.split('.').skip(1);
    let first = keys.next()?;
    let variants = section.variants();
    let mut setting = variants.iter().find_map(|variant| variant.setting(first))?;
    for key in keys {
        setting = setting.kind.settings().into_iter().find(|Setting { key: own, .. }| *own == key)?;
    }
    Some(setting.kind)
}

/// Values as a column of the type that their setting has.
fn column(kind: Option<Kind>, values: &[Option<&Value>]) -> Values {
    let present = || values.iter().flatten();
    match kind {
        Some(Kind::Number | Kind::Threshold) => {
            Values::Number(values.iter().map(|value| value.and_then(number)).collect())
        }
        Some(Kind::Whole | Kind::Size(_)) if present().all(|value| value.is_u64()) => {
            Values::Whole(values.iter().map(|value| Some(signed((*value)?.as_u64()?))).collect())
        }
        Some(Kind::Switch) => Values::Switch(values.iter().map(|value| (*value)?.as_bool()).collect()),
        _ => {
            let text = |value: &Value| match value {
                Value::String(word) => word.clone(),
                other => other.to_string(),
            };
            Values::Text(values.iter().map(|value| value.map(text)).collect())
        }
    }
}

/// A number as configurations write it, infinity as a word.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// Where a number is in a cost.
type CostOf = fn(&Cost) -> u64;

/// A point of a curve.
struct Point<'a> {
    row: &'a Row<'a>,
    /// Which group of agents, if not all.
    agents: Option<String>,
    /// How many interactions all agents had had by then.
    step: u64,
    tally: &'a Tally,
}

/// A column of text with these values.
fn texts<'t>(values: impl Iterator<Item = &'t str>) -> Values {
    Values::Text(values.map(|value| Some(value.to_owned())).collect())
}

/// Measured values as a column.
fn measures(values: impl Iterator<Item = Measure> + Clone) -> Values {
    optional_measures(values.map(Some))
}

/// The same with some missing.
fn optional_measures(values: impl Iterator<Item = Option<Measure>> + Clone) -> Values {
    if values.clone().all(|value| matches!(value, None | Some(Measure::Whole(_)))) {
        let whole = |value| match value {
            Some(Measure::Whole(count)) => Some(signed(count)),
            _ => None,
        };
        Values::Whole(values.map(whole).collect())
    } else {
        Values::Number(values.map(|value| value.map(Measure::as_f64)).collect())
    }
}

/// Whole numbers are stored with a sign, which every reader understands.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
