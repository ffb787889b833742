//! Recommenders: items, users, and the order of events in time.

use std::collections::BTreeSet;
use std::path::Path;

use super::spread::{by_powers, median, share_of_top};
use super::{Health, Severity, features};
use crate::error::DataError;
use crate::recommender::{EVENTS, ITEMS, USERS};
use crate::store::{Column, Manifest, scan};

pub(super) fn examine(directory: &Path, manifest: &Manifest, health: &mut Health) -> Result<(), DataError> {
    let mut rows = Vec::new();
    let mut width = 0;
    scan(directory, manifest.table(ITEMS, directory)?, |columns| {
        let numbers: Vec<&Column> =
            columns.iter().filter(|column| matches!(column, Column::Number(_))).collect();
        width = numbers.len();
        for row in 0..columns[0].len() {
            rows.extend(numbers.iter().map(|column| column.numbers()[row]));
        }
        Ok(())
    })?;
    features::examine(&rows, width, "items", health);
    let items = rows.len() / width.max(1);
    if manifest.settings.get("features").is_some_and(|from| from == "events") {
        health.found(
            Severity::Notice,
            "features were made from all events, also those that a learner has not met yet",
            "They know the future: results are kinder than a deployment would be. Give features with --items.",
        );
    }
    let mut users: Vec<u64> = Vec::new();
    scan(directory, manifest.table(USERS, directory)?, |columns| {
        users.extend(columns[1].wholes().iter().map(|count| u64::try_from(*count).unwrap_or(0)));
        Ok(())
    })?;
    let mut popularity = vec![0u64; items];
    let mut last = vec![i64::MIN; users.len()];
    let (mut events, mut backwards, mut repeated, mut timed) = (0u64, 0u64, 0u64, false);
    let mut first_time: Option<i64> = None;
    let mut seen = BTreeSet::new();
    scan(directory, manifest.table(EVENTS, directory)?, |columns| {
        let triples = columns[0].wholes().iter().zip(columns[1].wholes()).zip(columns[2].wholes());
        for ((user, item), time) in triples {
            let (user, item) = (*user as usize, *item as usize);
            events += 1;
            popularity[item] += 1;
            repeated += u64::from(!seen.insert((user as u32, item as u32)));
            timed |= *first_time.get_or_insert(*time) != *time;
            backwards += u64::from(*time < last[user]);
            last[user] = *time;
        }
        Ok(())
    })?;
    popular(&popularity, health);
    sessions(&users, health);
    if repeated > 0 {
        health.found(
            Severity::Notice,
            format!("{repeated} of {events} events repeat a pair of user and item"),
            "Each counts as an event of its own. If a repetition means nothing, leave it out before preparing.",
        );
    }
    match (timed, backwards) {
        (false, _) => health.found(
            Severity::Notice,
            "events have no time",
            "They are taken in the order of the file. If that order is not the order in which things happened, learners may see the future.",
        ),
        (true, 0) => health.found(Severity::Good, "the events of every user are in the order of time", ""),
        (true, _) => health.found(
            Severity::Problem,
            format!(
                "{backwards} of {events} events ({:.0} %) are earlier than the one before, of the same user",
                100.0 * backwards as f64 / events as f64
            ),
            "Learners see the future. Sort the file by time before preparing, unless the paper that you follow did not.",
        ),
    }
    Ok(())
}

fn popular(popularity: &[u64], health: &mut Health) {
    let top = share_of_top(popularity, 0.01);
    health.fact("events of the most popular 1 % of items", format!("{:.0} %", 100.0 * top));
    let once = popularity.iter().filter(|count| **count == 1).count();
    health.fact("items with one event", format!("{once} of {}", popularity.len()));
    if top > 0.3 {
        health.found(
            Severity::Notice,
            format!("1 % of the items have {:.0} % of the events", 100.0 * top),
            "Recommending what is popular is hard to beat: compare with a learner of popularity alone.",
        );
    }
    health.histograms.push(by_powers("items by number of events", popularity));
}

fn sessions(users: &[u64], health: &mut Health) {
    health.fact(
        "events of a user",
        format!("median {}, most {}", median(users), users.iter().max().unwrap_or(&0)),
    );
    let few = users.iter().filter(|count| **count < 10).count();
    if few * 2 > users.len() {
        health.found(
            Severity::Notice,
            format!("{few} of {} users have fewer than 10 events", users.len()),
            "Alone they cannot learn many features: sharing looks better than it would among busy users.",
        );
    }
    health.histograms.push(by_powers("users by number of events", users));
}
