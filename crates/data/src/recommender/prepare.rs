//! Events and items put together.

use std::collections::BTreeMap;
use std::path::Path;

use posse_core::Seed;

use super::files::RecommenderFiles;
use super::svd::project_and_say;
use super::text::Corpus;
use crate::error::{DataError, Problem};
use crate::kmeans;
use crate::records::Watch;
use crate::store::{ColumnKind, Draft, Manifest};

/// The table of items: the publisher's number, then the features.
pub const ITEMS: &str = "items.parquet";
/// The table of users: the publisher's number, how many events, the group.
pub const USERS: &str = "users.parquet";
/// The table of events: user and item by their rows in the other tables, and the time.
pub const EVENTS: &str = "events.parquet";

/// The table of pools, if events have them: the event by its row, and an item that was on offer.
pub const POOLS: &str = "pools.parquet";

/// How features are scaled after the projection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Normalise {
    /// Each item to length one, as theory wants it; items without tags stay zero.
    Rows,
    /// Each feature to mean 0 and variance 1 over the items, as the published code does: items are then about
    /// √d long.
    #[default]
    Columns,
    /// Features stay as the projection gives them.
    None,
}

impl Normalise {
    /// Every way to scale that can be chosen.
    pub const ALL: [Self; 3] = [Self::Columns, Self::Rows, Self::None];

    /// The word for it in settings and manifests.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Columns => "columns",
            Self::Rows => "rows",
            Self::None => "none",
        }
    }
}

/// How a recommender is prepared.
#[derive(Clone, Debug, PartialEq)]
pub struct RecommenderSettings {
    /// Features of an item (d). Default 25.
    pub dimension: usize,
    /// Whether features that would be empty, because the words of the items have fewer independent directions, are
    /// left out. Default true; without it they are kept, and are zero for every item.
    pub fit: bool,
    /// How features are scaled. Default `columns`.
    pub normalise: Normalise,
    /// Whether a constant 1 is appended to the features. Default false.
    pub bias: bool,
    /// Ratings below this are no events. Default 0: all are.
    pub min_rating: f64,
    /// Users with this many events or fewer are left out. Default 0: none.
    pub more_events_than: u64,
    /// Groups of users who like similar items. Default 10.
    pub groups: usize,
    /// Where projection and groups start. Default 0.
    pub seed: Seed,
}

impl Default for RecommenderSettings {
    fn default() -> Self {
        Self {
            dimension: 25,
            fit: true,
            normalise: Normalise::default(),
            bias: false,
            min_rating: 0.0,
            more_events_than: 0,
            groups: 10,
            seed: Seed(0),
        }
    }
}

/// More features than a linear learner can use: each agent keeps a matrix of their square.
pub const MAX_FEATURES: usize = 512;

/// Prepares a recommender: a first pass over the events counts users and items, then the tags are read, and a
/// second pass writes the events of the users that are left. Memory grows with users, items and tags, not with
/// events. Items are all that occur in events, also in those of users that are left out.
pub fn prepare(
    files: &RecommenderFiles,
    settings: &RecommenderSettings,
    target: &Path,
    force: bool,
    watch: Watch<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<Manifest, DataError> {
    let mut draft = Draft::begin(target, force)?;
    if settings.dimension == 0 {
        return Err(Problem::Setting("there must be at least one feature".into()).of(target));
    }
    if settings.dimension > MAX_FEATURES {
        let problem = format!(
            "{} features are more than a linear learner can use, whose agents keep a matrix of their square: at \
             most {MAX_FEATURES}",
            settings.dimension
        );
        return Err(Problem::Setting(problem).of(target));
    }
    let mut found = Found::default();
    let source = files.events(watch, |event| {
        found.count(event.user, event.item, event.rating >= settings.min_rating);
        Ok(())
    })?;
    let Found { mut users, mut items } = found;
    users.retain(|_, count| u64::from(*count) > settings.more_events_than);
    if users.is_empty() {
        let problem = format!("no user has more than {} events", settings.more_events_than);
        return Err(Problem::Setting(problem).of(&files.raw));
    }
    // From here on users and items are known by their rows.
    items.values_mut().enumerate().for_each(|(row, place)| *place = row as u32);
    let mut corpus = Corpus::new(items.len());
    let mut sources = vec![source];
    sources.extend(files.texts(&items, &mut corpus, watch)?);
    let weights = corpus.weights();
    let described = weights.rows.iter().filter(|row| !row.is_empty()).count();
    let mut projection = project_and_say(&weights, settings.dimension, settings.seed, say);
    drop(weights);
    let rank = projection.rank();
    if rank == 0 {
        let problem = "no word describes any item: there is nothing to make features of";
        return Err(Problem::Setting(problem.into()).of(&files.raw));
    }
    if settings.fit {
        projection.truncate(rank);
    }
    let dimension = projection.singular.len();
    let mut features = projection.rows;
    normalise(&mut features, dimension, settings);
    let width = dimension + usize::from(settings.bias);

    let counts: Vec<u32> = users.values().copied().collect();
    let ids: Vec<u64> = users.keys().copied().collect();
    users.values_mut().enumerate().for_each(|(row, place)| *place = row as u32);
    let columns = ["user", "item", "time"].map(|name| (name.to_owned(), ColumnKind::Whole)).to_vec();
    let mut table = draft.table(EVENTS, columns)?;
    let mut tastes = vec![0.0; users.len() * width];
    let mut events = 0;
    files.events(watch, |event| {
        let (Some(&user), true) = (users.get(&event.user), event.rating >= settings.min_rating) else {
            return Ok(());
        };
        let item = items[&event.item];
        table.whole(0, user.into());
        table.whole(1, item.into());
        table.whole(2, event.time);
        let taste = &mut tastes[user as usize * width..][..width];
        taste.iter_mut().zip(&features[item as usize * width..][..width]).for_each(|(sum, x)| *sum += x);
        events += 1;
        table.end_row()
    })?;
    draft.add(table)?;

    for (taste, &count) in tastes.chunks_exact_mut(width).zip(&counts) {
        taste.iter_mut().for_each(|x| *x /= f64::from(count));
    }
    let groups = kmeans::cluster(&tastes, width, settings.groups.max(1), settings.seed);
    let columns = ["id", "events", "group"].map(|name| (name.to_owned(), ColumnKind::Whole)).to_vec();
    let mut table = draft.table(USERS, columns)?;
    for ((id, count), group) in ids.iter().zip(&counts).zip(&groups.assignment) {
        table.whole(0, *id as i64);
        table.whole(1, (*count).into());
        table.whole(2, (*group).into());
        table.end_row()?;
    }
    draft.add(table)?;

    let numbers = (0..width).map(|feature| (format!("x{}", feature + 1), ColumnKind::Number));
    let columns = [("id".to_owned(), ColumnKind::Whole)].into_iter().chain(numbers).collect();
    let mut table = draft.table(ITEMS, columns)?;
    for (id, x) in items.keys().zip(features.chunks_exact(width)) {
        table.whole(0, *id as i64);
        x.iter().enumerate().for_each(|(feature, x)| table.number(feature + 1, *x));
        table.end_row()?;
    }
    draft.add(table)?;

    let mut manifest = Manifest::new(&files.name, "recommender", &files.licence);
    manifest.set("dimension", dimension);
    if let Some(events) = files.shape.events() {
        manifest.set("events", events);
    }
    manifest.set("normalise", settings.normalise.word());
    manifest.set("bias", settings.bias);
    manifest.set("min_rating", settings.min_rating);
    manifest.set("more_events_than", settings.more_events_than);
    manifest.set("groups", settings.groups);
    manifest.set("seed", settings.seed.0);
    manifest.count("users", users.len());
    manifest.count("items", items.len());
    manifest.count("events", events);
    manifest.count("words", corpus.words());
    manifest.count("items with words", described);
    manifest.count("features", width);
    manifest.count("independent features", rank + usize::from(settings.bias));
    manifest.count("groups", groups.sizes.len());
    manifest.sources = sources;
    draft.finish(manifest)
}

/// Users with their events, and items.
#[derive(Default)]
struct Found {
    users: BTreeMap<u64, u32>,
    items: BTreeMap<u64, u32>,
}

impl Found {
    fn count(&mut self, user: u64, item: u64, counts: bool) {
        if counts {
            *self.users.entry(user).or_insert(0) += 1;
            self.items.entry(item).or_insert(0);
        }
    }
}

/// Scales features and appends the constant, in place.
pub(super) fn normalise(features: &mut Vec<f64>, width: usize, settings: &RecommenderSettings) {
    let rows = (features.len() / width) as f64;
    match settings.normalise {
        Normalise::None => {}
        Normalise::Rows => features.chunks_exact_mut(width).for_each(|row| {
            let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            if length > 0.0 {
                row.iter_mut().for_each(|x| *x /= length);
            }
        }),
        Normalise::Columns => {
            for column in 0..width {
                let values = || features.iter().skip(column).step_by(width);
                let mean = values().sum::<f64>() / rows;
                let variance = values().map(|x| (x - mean) * (x - mean)).sum::<f64>() / rows;
                let factor = if variance > 0.0 { 1.0 / variance.sqrt() } else { 1.0 };
                features.iter_mut().skip(column).step_by(width).for_each(|x| *x = (*x - mean) * factor);
            }
        }
    }
    if settings.bias {
        *features = features.chunks_exact(width).flat_map(|row| row.iter().copied().chain([1.0])).collect();
    }
}
