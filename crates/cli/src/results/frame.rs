//! Rows as columns: `summary` has a row for each cell, `curves` one for each point of each cell.
//!
//! Content depends on the plan and the numbers only: rows in the order of the plan, columns in the order in
//! which the plan first has them, `seconds` last.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::experiment::Experiment;
use crate::metric::{METRICS, Measure};
use crate::row::{Row, settings};
use crate::settings::{Kind, Section, Setting, nested_defaults};

/// Columns of equal length with names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Frame {
    /// In order.
    pub(crate) columns: Vec<(String, Column)>,
}

/// The values of a column, some of which may be missing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Column {
    /// Words, and whatever is no single value, as JSON.
    Text(Vec<Option<String>>),
    /// Whole numbers.
    Whole(Vec<Option<i64>>),
    /// Numbers, infinite ones too.
    Number(Vec<Option<f64>>),
    /// True or false.
    Switch(Vec<Option<bool>>),
}

impl Frame {
    /// A row for each of `rows`: identity, every setting, every metric, seconds.
    pub(crate) fn summary(experiment: &Experiment, rows: &[Row<'_>]) -> Self {
        let mut frame = Self::default();
        let text =
            |of: &dyn Fn(&Row<'_>) -> String| Column::Text(rows.iter().map(|row| Some(of(row))).collect());
        let whole = |of: &dyn Fn(&Row<'_>) -> u64| {
            Column::Whole(rows.iter().map(|row| Some(signed(of(row)))).collect())
        };
        frame.push("id", text(&|row| row.cell.id.clone()));
        frame.push("group", text(&|row| experiment.groups[row.cell.group].id.clone()));
        frame.push("experiment", text(&|_| experiment.id.clone()));
        frame.push("quick", Column::Switch(vec![Some(experiment.quick); rows.len()]));
        frame.push("algorithm", text(&|row| row.cell.config.algorithm.name().into()));
        frame.push("seed", whole(&|row| row.cell.config.seed.0));
        frame.push("agents", whole(&|row| row.cell.config.agents));
        frame.push("horizon", whole(&|row| row.cell.config.horizon));
        for section in Section::ALL {
            frame.push_settings(section, rows);
        }
        for metric in METRICS {
            frame.push(metric.name, measures(rows.iter().map(|row| (metric.of)(row.tally()))));
        }
        frame.push("seconds", Column::Number(rows.iter().map(|row| Some(row.record.seconds)).collect()));
        frame
    }

    /// A row for each point of the curves of `rows`.
    pub(crate) fn curves(experiment: &Experiment, rows: &[Row<'_>]) -> Self {
        let mut frame = Self::default();
        let points = || rows.iter().flat_map(|row| row.record.curve.iter().map(move |point| (row, point)));
        let text =
            |of: &dyn Fn(&Row<'_>) -> String| Column::Text(points().map(|(row, _)| Some(of(row))).collect());
        frame.push("id", text(&|row| row.cell.id.clone()));
        frame.push("group", text(&|row| experiment.groups[row.cell.group].id.clone()));
        frame.push("quick", Column::Switch(points().map(|_| Some(experiment.quick)).collect()));
        frame.push("algorithm", text(&|row| row.cell.config.algorithm.name().into()));
        let seeds = points().map(|(row, _)| Some(signed(row.cell.config.seed.0)));
        frame.push("seed", Column::Whole(seeds.collect()));
        frame.push("step", measures(points().map(|(_, point)| Measure::Whole(point.interactions))));
        for metric in METRICS {
            frame.push(metric.name, measures(points().map(|(_, point)| (metric.of)(point))));
        }
        frame
    }

    /// Adds a column at the end.
    fn push(&mut self, name: &str, column: Column) {
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
            (Value::Null, Value::Object(inner)) if key != "override" => {
                let unset = inner.into_iter().map(|(key, _)| (key, Value::Null)).collect();
                flatten(&below, unset, all);
            }
            (value, _) => all.push((below, value)),
        }
    }
}

/// What the setting called `name`, a path from the section on, takes.
fn kind(section: Section, name: &str) -> Option<&'static Kind> {
    let mut keys = name.split('.').skip(1);
    let first = keys.next()?;
    let variants = section.variants();
    let mut setting = variants.iter().find_map(|variant| variant.setting(first))?;
    for key in keys {
        let Kind::Table(inner) = setting.kind else { return None };
        setting = inner.iter().find(|Setting { key: own, .. }| *own == key)?;
    }
    Some(&setting.kind)
}

/// Values as a column of the type that their setting has.
fn column(kind: Option<&Kind>, values: &[Option<&Value>]) -> Column {
    let present = || values.iter().flatten();
    match kind {
        Some(Kind::Number | Kind::Threshold) => {
            Column::Number(values.iter().map(|value| value.and_then(number)).collect())
        }
        Some(Kind::Whole | Kind::Size(_)) if present().all(|value| value.is_u64()) => {
            Column::Whole(values.iter().map(|value| Some(signed((*value)?.as_u64()?))).collect())
        }
        Some(Kind::Switch) => Column::Switch(values.iter().map(|value| (*value)?.as_bool()).collect()),
        _ => {
            let text = |value: &Value| match value {
                Value::String(word) => word.clone(),
                other => other.to_string(),
            };
            Column::Text(values.iter().map(|value| value.map(text)).collect())
        }
    }
}

/// A number as configurations write it, infinity as a word.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// Measured values as a column.
fn measures(values: impl Iterator<Item = Measure> + Clone) -> Column {
    let is_whole = values.clone().all(|value| matches!(value, Measure::Whole(_)));
    let mut whole = Vec::new();
    let mut numbers = Vec::new();
    for value in values {
        match value {
            Measure::Whole(count) if is_whole => whole.push(Some(signed(count))),
            other => numbers.push(Some(other.as_f64())),
        }
    }
    if is_whole { Column::Whole(whole) } else { Column::Number(numbers) }
}

/// Whole numbers are stored with a sign, which every reader understands.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
