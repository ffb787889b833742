//! Events of the caller's own: who took what and when, perhaps among which others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::features;
use super::prepare::{EVENTS, ITEMS, MAX_FEATURES, POOLS, RecommenderSettings, USERS};
use crate::decision_log::files::Rows;
use crate::error::{DataError, Problem};
use crate::kmeans;
use crate::records::{Format, Records, Watch, detect_separator, separator_or};
use crate::store::{ColumnKind, Draft, Manifest};

/// A file of events, and perhaps one of items.
#[derive(Clone, Debug)]
pub struct EventFiles {
    /// The events: text, perhaps compressed, or Parquet.
    pub file: PathBuf,
    /// The format of the events' file.
    pub format: EventFormat,
    /// What separates the fields of a text; `None` to find it in the first line. Files of items and users whose first
    /// line does not have it have one of their own.
    pub separator: Option<String>,
    /// The items, with their features; without it features are made from who took what.
    pub items: Option<PathBuf>,
    /// The column of the items' file that tells items apart.
    pub item_id: String,
    /// Columns of the items' file with words, which become features; without any, its other columns are features.
    pub words: Vec<String>,
    /// The users, with their features, which multiply those of items; without it nothing is known of users.
    pub users: Option<PathBuf>,
    /// The column of the users' file that tells users apart.
    pub user_id: String,
    /// Whether texts are in Latin-1.
    pub latin1: bool,
    /// Whether the items' file has an item and a vector a line, as BanditLib writes them.
    pub vectors: bool,
}

impl EventFiles {
    /// What separates the fields of one of the files.
    pub(super) fn separator_of(&self, path: &Path) -> String {
        match &self.separator {
            Some(own) if path == self.file => own.clone(),
            Some(own) => separator_or(path, own),
            None => detect_separator(path).into(),
        }
    }
}

/// The format of a file of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// A table with a header.
    Table {
        /// The column that tells users apart.
        user: String,
        /// The column that tells items apart.
        item: String,
        /// The column with when it happened: numbers, or texts that sort like times.
        time: Option<String>,
        /// The column with how much it was liked.
        rating: Option<String>,
        /// The column with the items that were on offer, separated by `|`, `;`, `,` or spaces.
        pool: Option<String>,
    },
    /// Lines of a user, a time and a pool whose first item was taken: `12<tab>1290000000<tab>[7, 3, 9]`.
    BanditLib,
}

/// Events in memory, users and items by numbers.
#[derive(Default)]
struct Events {
    users: Names,
    items: Names,
    rows: Vec<Row>,
    /// Rows that were left out, because their rating was too low.
    low: usize,
}

struct Row {
    user: u32,
    item: u32,
    time: f64,
    moment: String,
    pool: Vec<u32>,
}

/// Numbers for names, in the order in which they come. Ids of any length are words.
#[derive(Default)]
struct Names {
    numbers: BTreeMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.into(), number);
        self.names.push(name.into());
        number
    }
}

/// Prepares a recommender from events of the caller's own. Events are sorted by time, if they have one; all of them
/// are held in memory.
pub fn prepare_events(
    files: &EventFiles,
    settings: &RecommenderSettings,
    target: &Path,
    force: bool,
    watch: Watch<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<Manifest, DataError> {
    let mut draft = Draft::begin(target, force)?;
    let name = files.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut manifest = Manifest::new(&name, "recommender", "your own");
    let mut events = read(files, settings, &mut manifest, watch)?;
    let sorted = events.sort();
    events.keep_busy(settings.more_events_than);
    if events.rows.is_empty() {
        let problem = format!("no user has more than {} events", settings.more_events_than);
        return Err(Problem::Setting(problem).of(&files.file));
    }
    let pairs: Vec<(u32, u32)> = events.rows.iter().map(|row| (row.user, row.item)).collect();
    let features = features::read(files, &events.items.names, &pairs, settings, &mut manifest, watch, say)?;
    let users = features::of_users(files, &events.users.names, &mut manifest, watch)?;
    let dimension = features.width * users.as_ref().map_or(1, |users| users.width);
    if dimension > MAX_FEATURES {
        let problem = format!(
            "{} features of users times {} of items make {dimension}, more than a linear learner can use: at most \
             {MAX_FEATURES}",
            users.map_or(1, |users| users.width),
            features.width
        );
        return Err(Problem::Setting(problem).of(&files.file));
    }
    write(&mut draft, &events, (&features, users.as_ref()), settings)?;
    let repeated = pairs.len() - pairs.iter().collect::<BTreeSet<_>>().len();
    manifest.set("features", features.from);
    manifest.set("dimension", features.width);
    manifest.set("normalise", settings.normalise.word());
    manifest.set("min_rating", settings.min_rating);
    manifest.set("more_events_than", settings.more_events_than);
    manifest.set("groups", settings.groups);
    manifest.set("seed", settings.seed.0);
    manifest.count("users", events.users.names.len());
    manifest.count("items", events.items.names.len());
    manifest.count("events", events.rows.len());
    manifest.count("features", features.width);
    manifest.count("items with features", features.described);
    if let Some(users) = &users {
        manifest.count("features of users", users.width);
        manifest.count("users with features", users.described);
    }
    manifest.count("repeated pairs", repeated);
    manifest.count("events out of order, sorted", sorted);
    manifest.count("events below the rating, left out", events.low);
    draft.finish(manifest)
}

fn read(
    files: &EventFiles,
    settings: &RecommenderSettings,
    manifest: &mut Manifest,
    watch: Watch<'_>,
) -> Result<Events, DataError> {
    let mut events = Events::default();
    let EventFormat::Table { user, item, time, rating, pool } = &files.format else {
        return read_banditlib(files, manifest, watch);
    };
    let mut rows = Rows::open_as(&files.file, &files.separator_of(&files.file), files.latin1)?;
    let optional =
        |rows: &Rows, name: &Option<String>| name.as_ref().map(|name| rows.column(name)).transpose();
    let (user, item) = (rows.column(user)?, rows.column(item)?);
    let (time, rating, pool) = (optional(&rows, time)?, optional(&rows, rating)?, optional(&rows, pool)?);
    while rows.next(watch)? {
        if rating.map_or(Ok(true), |field| rows.number(field).map(|own| own >= settings.min_rating))? {
            let moment = time.map_or(Ok(String::new()), |field| rows.text(field))?;
            let (who, what) = (rows.text(user)?, rows.text(item)?);
            for (field, text) in [(user, &who), (item, &what)] {
                if text.is_empty() {
                    return Err(rows.refuse(field, "a name"));
                }
            }
            let taken = events.items.number(&what);
            let mut others = Vec::new();
            if let Some(field) = pool {
                others = pooled(&rows.text(field)?, &mut events.items);
                if others.len() < 2 || !others.contains(&taken) {
                    return Err(rows.refuse(field, "a pool of two or more items with the one that was taken"));
                }
            }
            let user = events.users.number(&who);
            let time = moment.parse().unwrap_or(f64::NAN);
            events.rows.push(Row { user, item: taken, time, moment, pool: others });
        } else {
            events.low += 1;
        }
    }
    manifest.sources.extend(rows.finish()?);
    Ok(events)
}

fn read_banditlib(
    files: &EventFiles,
    manifest: &mut Manifest,
    watch: Watch<'_>,
) -> Result<Events, DataError> {
    let mut events = Events::default();
    let mut records = Records::open(&files.file, &Format::plain("\t"))?;
    while records.next(watch)? {
        if records.len() < 3 {
            return Err(records.refuse(0, "a user, a tab, a time, a tab and a pool"));
        }
        let pool = pooled(&records.text(2)?, &mut events.items);
        let [taken, _, ..] = pool[..] else {
            return Err(records.refuse(2, "a pool of two or more items, the one that was taken first"));
        };
        let user = events.users.number(records.text(0)?.trim());
        let moment = records.text(1)?.trim().to_owned();
        let time = moment.parse().unwrap_or(f64::NAN);
        events.rows.push(Row { user, item: taken, time, moment, pool });
    }
    manifest.sources.push(records.finish()?);
    Ok(events)
}

/// The items of a pool, each once.
fn pooled(text: &str, items: &mut Names) -> Vec<u32> {
    let mut pool = Vec::new();
    let parts = text.trim().trim_matches(['[', ']', '{', '}']).split(['|', ';', ',', ' ']);
    for part in parts.map(|part| part.trim_matches(['\'', '"'])).filter(|part| !part.is_empty()) {
        let item = items.number(part);
        if !pool.contains(&item) {
            pool.push(item);
        }
    }
    pool
}

impl Events {
    /// Puts events in the order of time, if all have one. Returns how many were earlier than the one before.
    fn sort(&mut self) -> usize {
        if self.rows.iter().any(|row| row.moment.is_empty()) {
            return 0;
        }
        let numbers = self.rows.iter().all(|row| !row.time.is_nan());
        let order = |a: &Row, b: &Row| {
            if numbers { a.time.total_cmp(&b.time) } else { a.moment.cmp(&b.moment) }
        };
        let late = self.rows.windows(2).filter(|pair| order(&pair[1], &pair[0]).is_lt()).count();
        self.rows.sort_by(order);
        late
    }

    /// Leaves out users with few events, and gives the others new numbers.
    fn keep_busy(&mut self, more_than: u64) {
        let mut counts = vec![0u64; self.users.names.len()];
        self.rows.iter().for_each(|row| counts[row.user as usize] += 1);
        let mut place = vec![None; counts.len()];
        let mut names = Vec::new();
        for (user, name) in std::mem::take(&mut self.users.names).into_iter().enumerate() {
            if counts[user] > more_than {
                place[user] = Some(names.len() as u32);
                names.push(name);
            }
        }
        self.users.names = names;
        self.rows.retain(|row| place[row.user as usize].is_some());
        self.rows.iter_mut().for_each(|row| row.user = place[row.user as usize].unwrap_or(0));
    }
}

fn write(
    draft: &mut Draft,
    events: &Events,
    (features, users): (&features::ItemFeatures, Option<&features::ItemFeatures>),
    settings: &RecommenderSettings,
) -> Result<(), DataError> {
    let width = features.width;
    let whole = |name: &str| (name.to_owned(), ColumnKind::Whole);
    let mut table = draft.table(EVENTS, ["user", "item", "time"].map(whole).to_vec())?;
    let mut tastes = vec![0.0; events.users.names.len() * width];
    let mut counts = vec![0u32; events.users.names.len()];
    for row in &events.rows {
        table.whole(0, row.user.into());
        table.whole(1, row.item.into());
        table.whole(2, if row.time.is_nan() { 0 } else { row.time as i64 });
        table.end_row()?;
        counts[row.user as usize] += 1;
        let taste = &mut tastes[row.user as usize * width..][..width];
        let own = &features.values[row.item as usize * width..][..width];
        taste.iter_mut().zip(own).for_each(|(sum, x)| *sum += x);
    }
    draft.add(table)?;
    if events.rows.iter().any(|row| !row.pool.is_empty()) {
        let mut table = draft.table(POOLS, ["event", "item"].map(whole).to_vec())?;
        for (event, row) in events.rows.iter().enumerate() {
            for item in &row.pool {
                table.whole(0, event as i64);
                table.whole(1, (*item).into());
                table.end_row()?;
            }
        }
        draft.add(table)?;
    }
    for (taste, &count) in tastes.chunks_exact_mut(width.max(1)).zip(&counts) {
        taste.iter_mut().for_each(|x| *x /= f64::from(count.max(1)));
    }
    let groups = kmeans::cluster(&tastes, width, settings.groups.max(1), settings.seed);
    let named = |columns: Vec<(String, ColumnKind)>| {
        columns.into_iter().chain([("name".to_owned(), ColumnKind::Text)]).collect::<Vec<_>>()
    };
    let numbers = |width: usize| (1..=width).map(|feature| (format!("x{feature}"), ColumnKind::Number));
    let known = users.map_or(0, |users| users.width);
    let columns = ["id", "events", "group"].map(whole).into_iter().chain(numbers(known)).collect();
    let mut table = draft.table(USERS, named(columns))?;
    for (user, name) in events.users.names.iter().enumerate() {
        table.whole(0, user as i64);
        table.whole(1, counts[user].into());
        table.whole(2, groups.assignment[user].into());
        let own = users.map_or(&[][..], |users| &users.values[user * known..][..known]);
        own.iter().enumerate().for_each(|(feature, x)| table.number(feature + 3, *x));
        table.text(known + 3, name);
        table.end_row()?;
    }
    draft.add(table)?;
    let columns = [whole("id")].into_iter().chain(numbers(width)).collect();
    let mut table = draft.table(ITEMS, named(columns))?;
    for (item, name) in events.items.names.iter().enumerate() {
        table.whole(0, item as i64);
        let own = &features.values[item * width..][..width];
        own.iter().enumerate().for_each(|(feature, x)| table.number(feature + 1, *x));
        table.text(width + 1, name);
        table.end_row()?;
    }
    draft.add(table)
}
