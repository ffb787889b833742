//! From files of decisions to a prepared log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::files::{GenericLog, LogFiles, Rows};
use super::table::ContextUse;
use crate::error::{DataError, Problem};
use crate::records::{Watch, separator_or};
use crate::store::{ColumnKind, Draft, Manifest};

/// The table of decisions: user, agent, action, time, reward, propensity, then the context.
pub const DECISIONS: &str = "decisions.parquet";
/// The table of items: what actions call them, then their features.
pub const LOG_ITEMS: &str = "items.parquet";

/// The setting of a log without propensities: all actions are taken as equally likely.
pub(super) const ASSUMED: &str = "assumed uniform";
/// The least probability that can be meant: one decision in a thousand million.
pub const LEAST_PROPENSITY: f64 = 1e-9;

/// Prepares a log of decisions: reads the items, or the log once to find them, then streams the log.
pub fn prepare_log(
    files: &LogFiles,
    target: &Path,
    force: bool,
    watch: Watch<'_>,
) -> Result<Manifest, DataError> {
    let mut draft = Draft::begin(target, force)?;
    let mut manifest = Manifest::new(&files.name, "log", &files.licence);
    let items = match &files.items {
        Some(path) => {
            // A shop's lists need not come from the system that wrote its log.
            let separator = separator_or(path, &files.separator);
            Items::read(path, &separator, false, &files.columns.item, watch, &mut manifest)?
        }
        None => Items::from_actions(files, watch)?,
    };
    let context_use = match (files.columns.per_item, items.width()) {
        (true, _) => ContextUse::PerItem,
        (false, 0) => ContextUse::Blocks,
        (false, _) => ContextUse::None,
    };

    let mut rows = Rows::open(&files.log, &files.separator)?;
    let columns = Columns::find(&files.columns, &rows)?;
    if context_use == ContextUse::PerItem && columns.context.len() != items.ids.len() {
        let problem = format!("{} numbers for {} items", columns.context.len(), items.ids.len());
        return Err(Problem::Setting(problem).of(&files.log));
    }
    if context_use == ContextUse::None && !columns.context.is_empty() {
        let problem = "a context is used if items have no features, or with a number for each item";
        return Err(Problem::Setting(problem.into()).of(&files.log));
    }
    let with_propensity = columns.propensity.is_some();
    let whole = ["user", "agent", "action"].map(|name| (name.to_owned(), ColumnKind::Whole));
    let number = ["reward", "propensity"].map(|name| (name.to_owned(), ColumnKind::Number));
    let context =
        columns.context.iter().map(|&field| (format!("x {}", rows.columns()[field]), ColumnKind::Number));
    let all = whole.into_iter().chain([("time".to_owned(), ColumnKind::Text)]).chain(number).chain(context);
    let mut table = draft.table(DECISIONS, all.collect())?;
    let (mut users, mut agents): (Names, Names) = Default::default();
    let (mut count, mut rewards) = (0usize, 0.0);
    let mut taken = BTreeSet::new();
    let mut before = String::new();
    while rows.next(watch)? {
        let user: Vec<String> =
            columns.user.iter().map(|&field| rows.text(field)).collect::<Result<_, _>>()?;
        let agent = columns.agent.map_or(Ok(String::new()), |field| rows.text(field))?;
        let action = rows.text(columns.action)?;
        let Some(&action) = items.places.get(&action) else {
            let home = files.items.as_deref().map_or_else(String::new, |path| path.display().to_string());
            return Err(rows.error(columns.action, Problem::Unknown { what: "item", value: action, home }));
        };
        let reward = rows.number(columns.reward)?;
        let propensity = match columns.propensity {
            None => 1.0 / items.ids.len() as f64,
            Some(field) => match rows.number(field)? {
                p if (LEAST_PROPENSITY..=1.0).contains(&p) => p,
                p if p > 0.0 && p < LEAST_PROPENSITY => {
                    return Err(rows.refuse(field, "a probability that can be meant: at least 1e-9"));
                }
                _ => return Err(rows.refuse(field, "a probability above 0 and at most 1")),
            },
        };
        table.whole(0, users.number(user.join("\u{1f}")).into());
        table.whole(1, agents.number(agent).into());
        table.whole(2, action.into());
        let time = columns.time.map_or(Ok(String::new()), |field| rows.text(field))?;
        if let Some(field) = columns.time
            && count > 0
            && is_earlier(&time, &before)
        {
            let problem =
                format!("{time:?} is earlier than {before:?} in the row before: sort the log by time");
            return Err(rows.error(field, Problem::Setting(problem)));
        }
        table.text(3, &time);
        before = time;
        table.number(4, reward);
        table.number(5, propensity);
        for (place, &field) in columns.context.iter().enumerate() {
            table.number(6 + place, rows.number(field)?);
        }
        table.end_row()?;
        (count, rewards) = (count + 1, rewards + reward);
        taken.insert(action);
    }
    manifest.sources.extend(rows.finish()?);
    draft.add(table)?;

    let numbers = items.features.iter().map(|name| (name.clone(), ColumnKind::Number));
    let columns = [("id".to_owned(), ColumnKind::Text)].into_iter().chain(numbers).collect();
    let mut table = draft.table(LOG_ITEMS, columns)?;
    for (item, id) in items.ids.iter().enumerate() {
        table.text(0, id);
        let own = &items.values[item * items.width()..][..items.width()];
        own.iter().enumerate().for_each(|(place, x)| table.number(place + 1, *x));
        table.end_row()?;
    }
    draft.add(table)?;
    manifest.set("context", context_use.word());
    manifest.set("propensity", if with_propensity { "logged" } else { ASSUMED });
    manifest.set("mean_reward", rewards / count as f64);
    manifest.count("rows", count);
    manifest.count("users", users.0.len());
    manifest.count("agents", agents.0.len());
    manifest.count("items", items.ids.len());
    manifest.count("items taken", taken.len());
    draft.finish(manifest)
}

/// Whether one time lies before another: as numbers if both are, otherwise as texts, which suits 2024-05-31T12:00.
fn is_earlier(time: &str, other: &str) -> bool {
    match (time.parse::<f64>(), other.parse::<f64>()) {
        (Ok(time), Ok(other)) => time < other,
        _ => time < other,
    }
}

/// Numbers for names, in the order in which they come.
#[derive(Default)]
struct Names(BTreeMap<String, u32>);

impl Names {
    fn number(&mut self, name: String) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(name).or_insert(next)
    }
}

/// The positions of the wanted columns in a row, from 0.
struct Columns {
    action: usize,
    reward: usize,
    propensity: Option<usize>,
    user: Vec<usize>,
    agent: Option<usize>,
    time: Option<usize>,
    context: Vec<usize>,
}

impl Columns {
    fn find(wanted: &GenericLog, rows: &Rows) -> Result<Self, DataError> {
        let at = |name: &String| rows.column(name);
        let optional = |name: &Option<String>| name.as_ref().map(at).transpose();
        let mut context = Vec::new();
        for name in &wanted.context {
            match name.strip_suffix('*') {
                Some(start) => context.extend(
                    (0..rows.columns().len()).filter(|&field| rows.columns()[field].starts_with(start)),
                ),
                None => context.push(rows.column(name)?),
            }
        }
        Ok(Self {
            action: at(&wanted.action)?,
            reward: at(&wanted.reward)?,
            propensity: optional(&wanted.propensity)?,
            user: wanted.user.iter().map(at).collect::<Result<_, _>>()?,
            agent: optional(&wanted.agent)?,
            time: optional(&wanted.time)?,
            context,
        })
    }
}

/// The items that can be chosen: their ids, their positions by id, and their features.
pub(crate) struct Items {
    pub(crate) ids: Vec<String>,
    pub(crate) places: BTreeMap<String, u32>,
    pub(crate) features: Vec<String>,
    pub(crate) values: Vec<f64>,
}

impl Items {
    pub(crate) fn width(&self) -> usize {
        self.features.len()
    }

    fn new(ids: Vec<String>, features: Vec<String>, values: Vec<f64>) -> Self {
        let places = ids.iter().enumerate().map(|(place, id)| (id.clone(), place as u32)).collect();
        Self { ids, places, features, values }
    }

    /// All actions in a log, numbers in their order.
    fn from_actions(files: &LogFiles, watch: Watch<'_>) -> Result<Self, DataError> {
        let mut rows = Rows::open(&files.log, &files.separator)?;
        let action = rows.column(&files.columns.action)?;
        let mut seen = BTreeSet::new();
        while rows.next(watch)? {
            let text = rows.text(action)?;
            if !seen.contains(&text) {
                if seen.len() == MAX_ACTIONS {
                    let problem = format!("more than {MAX_ACTIONS} different actions: name an items' file");
                    return Err(rows.error(action, Problem::Setting(problem)));
                }
                seen.insert(text);
            }
        }
        let mut ids: Vec<String> = seen.into_iter().collect();
        if ids.iter().all(|id| id.parse::<u64>().is_ok()) {
            ids.sort_by_key(|id| id.parse::<u64>().unwrap_or(0));
        }
        Ok(Self::new(ids, Vec::new(), Vec::new()))
    }

    /// A file of items. Columns of numbers are features; each value of another column is a feature of its own; a
    /// constant 1 comes last. A column without a name is passed over.
    pub(crate) fn read(
        path: &Path,
        separator: &str,
        latin1: bool,
        id: &str,
        watch: Watch<'_>,
        manifest: &mut Manifest,
    ) -> Result<Self, DataError> {
        let mut rows = Rows::open_as(path, separator, latin1)?;
        let id = rows.column(id)?;
        let names = rows.columns().to_vec();
        let fields: Vec<usize> =
            (0..names.len()).filter(|&field| field != id && !names[field].is_empty()).collect();
        let (mut ids, mut seen) = (Vec::new(), BTreeSet::new());
        let mut texts: Vec<Vec<String>> = vec![Vec::new(); fields.len()];
        while rows.next(watch)? {
            let own = rows.text(id)?;
            if !seen.insert(own.clone()) {
                return Err(rows.refuse(id, "new: two items are called so"));
            }
            ids.push(own);
            for (texts, &field) in texts.iter_mut().zip(&fields) {
                let text = rows.text(field)?;
                if text.parse::<f64>().is_ok_and(|number| !number.is_finite()) {
                    return Err(rows.refuse(field, "a finite number"));
                }
                texts.push(text);
            }
        }
        manifest.sources.extend(rows.finish()?);
        let mut columns: Vec<(String, Vec<f64>)> = Vec::new();
        for (texts, &field) in texts.iter().zip(&fields) {
            let numbers: Option<Vec<f64>> = texts.iter().map(|text| text.parse().ok()).collect();
            if let Some(numbers) = numbers {
                columns.push((names[field].clone(), numbers));
                continue;
            }
            for value in texts.iter().collect::<BTreeSet<_>>() {
                let switch = texts.iter().map(|text| f64::from(u8::from(text == value))).collect();
                columns.push((format!("{}={value}", names[field]), switch));
            }
        }
        columns.push(("one".into(), vec![1.0; ids.len()]));
        let values =
            (0..ids.len()).flat_map(|item| columns.iter().map(move |(_, column)| column[item])).collect();
        Ok(Self::new(ids, columns.iter().map(|(name, _)| name.clone()).collect(), values))
    }
}

/// More actions than this are surely something else.
const MAX_ACTIONS: usize = 10_000;
