//! From a prepared directory to what the simulator takes.

use std::path::Path;
use std::sync::Arc;

use posse_core::ConfigError;
use posse_sim::world::{ArmClusters, Data, Interactions, LabelledTable, UserClusters};

use crate::error::{DataError, Problem};
use crate::labelled::{CLUSTERS, ROWS};
use crate::recommender::{CENTRES, EVENTS, ITEMS, MEMBERS, POOLS, USERS};
use crate::store::{Column, Manifest, scan};

/// Loads prepared data if its content is what `hash` promises: all of the digits, at least the first twelve, or
/// `any` for whatever is there. Every value is hashed on the way. Returns the data with its whole hash.
pub fn load(directory: &Path, hash: &str) -> Result<(Data, String), DataError> {
    let manifest = Manifest::read(directory)?;
    if hash.is_empty() {
        let advice = format!("add hash = \"{}\" to name what is in it", manifest.hash);
        return Err(Problem::Setting(advice).of(directory));
    }
    if hash != "any" && (hash.len() < 12 || !manifest.hash.starts_with(hash)) {
        return Err(Problem::Hash { expected: hash.into(), got: manifest.hash }.of(directory));
    }
    crate::store::check_hash(&manifest, directory)?;
    let data = match manifest.kind.as_str() {
        "table" => table(directory, &manifest)?,
        "clusters" => clusters(directory, &manifest)?,
        "recommender" => interactions(directory, &manifest)?,
        "users" => users(directory, &manifest)?,
        "log" => {
            let advice = "it is a log: `posse evaluate` takes it, no world does";
            return Err(Problem::Setting(advice.into()).of(directory));
        }
        other => return Err(Problem::NotPrepared(format!("its kind {other:?} is not known")).of(directory)),
    };
    Ok((data, manifest.hash))
}

/// The columns of a table row by row: numbers at the front, whole numbers behind them.
struct Rows {
    width: usize,
    numbers: Vec<f64>,
    wholes: Vec<Vec<i64>>,
}

fn read_rows(directory: &Path, manifest: &Manifest, file: &str) -> Result<Rows, DataError> {
    let stored = manifest.table(file, directory)?;
    let is_number = |column: &Column| matches!(column, Column::Number(_));
    let mut rows = Rows { width: 0, numbers: Vec::new(), wholes: Vec::new() };
    scan(directory, stored, |columns| {
        rows.width = columns.iter().filter(|column| is_number(column)).count();
        let others: Vec<&Column> = columns.iter().filter(|column| !is_number(column)).collect();
        rows.wholes.resize(others.len(), Vec::new());
        rows.wholes.iter_mut().zip(&others).for_each(|(all, column)| all.extend(column.wholes()));
        let first = rows.numbers.len();
        rows.numbers.resize(first + rows.width * columns[0].len(), 0.0);
        for (place, column) in columns.iter().filter(|column| is_number(column)).enumerate() {
            let places = rows.numbers[first + place..].iter_mut().step_by(rows.width);
            places.zip(column.numbers()).for_each(|(place, value)| *place = *value);
        }
        Ok(())
    })?;
    Ok(rows)
}

fn table(directory: &Path, manifest: &Manifest) -> Result<Data, DataError> {
    let Rows { width, numbers, wholes } = read_rows(directory, manifest, ROWS)?;
    let classes = manifest.names.get("classes").map_or(0, Vec::len) as u32;
    let small =
        |values: &Vec<i64>| values.iter().map(|&value| u32::try_from(value).unwrap_or(u32::MAX)).collect();
    let labels = wholes.first().map_or_else(Vec::new, small);
    let groups = wholes.get(1).map_or_else(Vec::new, small);
    let table = LabelledTable::new(width, numbers, labels, classes, groups);
    Ok(Data::Table(Arc::new(table.map_err(|error| impossible(&error, directory))?)))
}

fn clusters(directory: &Path, manifest: &Manifest) -> Result<Data, DataError> {
    let Rows { width, numbers, wholes } = read_rows(directory, manifest, CLUSTERS)?;
    let [sizes, wanted] = wholes.as_slice() else {
        return Err(Problem::NotPrepared("its columns are others".into()).of(directory));
    };
    let shares = sizes.iter().zip(wanted).map(|(&rows, &wanted)| wanted as f64 / rows as f64).collect();
    let clusters = ArmClusters::new(width, numbers, shares);
    Ok(Data::Clusters(Arc::new(clusters.map_err(|error| impossible(&error, directory))?)))
}

fn interactions(directory: &Path, manifest: &Manifest) -> Result<Data, DataError> {
    let items = read_rows(directory, manifest, ITEMS)?;
    let users = read_rows(directory, manifest, USERS)?;
    let mut events = Vec::new();
    scan(directory, manifest.table(EVENTS, directory)?, |columns| {
        let small = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
        let pairs = columns[0].wholes().iter().zip(columns[1].wholes());
        events.extend(pairs.map(|(&user, &item)| (small(user), small(item))));
        Ok(())
    })?;
    let groups: Vec<u32> =
        users.wholes.get(2).into_iter().flatten().map(|&group| u32::try_from(group).unwrap_or(0)).collect();
    let count = users.wholes.first().map_or(0, Vec::len);
    let mut interactions = Interactions::new(items.width, items.numbers, count, &events, groups);
    if users.width > 0 {
        interactions = interactions.and_then(|known| known.with_users(users.numbers));
    }
    if let Ok(table) = manifest.table(POOLS, directory) {
        let mut pools = vec![Vec::new(); events.len()];
        scan(directory, table, |columns| {
            for (&event, &item) in columns[0].wholes().iter().zip(columns[1].wholes()) {
                if let Some(pool) = usize::try_from(event).ok().and_then(|event| pools.get_mut(event)) {
                    pool.push(u32::try_from(item).unwrap_or(u32::MAX));
                }
            }
            Ok(())
        })?;
        interactions = interactions.and_then(|known| known.with_pools(&events, pools));
    }
    Ok(Data::Interactions(Arc::new(interactions.map_err(|error| impossible(&error, directory))?)))
}

fn users(directory: &Path, manifest: &Manifest) -> Result<Data, DataError> {
    let Rows { width, numbers, .. } = read_rows(directory, manifest, CENTRES)?;
    let members = read_rows(directory, manifest, MEMBERS)?;
    let labels = members.wholes.get(1).into_iter().flatten();
    let labels = labels.map(|&label| u64::try_from(label).unwrap_or(u64::MAX)).collect();
    let users = UserClusters::new(width, &numbers, labels);
    Ok(Data::Users(Arc::new(users.map_err(|error| impossible(&error, directory))?)))
}

/// Values that have the right hash and make no sense all the same.
fn impossible(error: &ConfigError, directory: &Path) -> DataError {
    Problem::NotPrepared(error.to_string()).of(directory)
}
