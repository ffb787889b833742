//! Where the features of items come from, if the caller brings events of its own.

use std::collections::BTreeMap;
use std::path::Path;

use super::events::EventFiles;
use super::prepare::{RecommenderSettings, normalise};
use super::svd::project_and_say;
use super::text::{Corpus, Sparse};
use crate::decision_log::files::Rows;
use crate::decision_log::prepare::Items;
use crate::error::{DataError, Problem};
use crate::records::Watch;
use crate::store::Manifest;

/// Features of all items that occur in events.
pub(super) struct ItemFeatures {
    pub(super) values: Vec<f64>,
    pub(super) width: usize,
    /// How many items have features.
    pub(super) described: usize,
    /// Where they come from: `numbers`, `words`, `vectors` or `events`.
    pub(super) from: &'static str,
}

/// The features of items by their names, in their order. `pairs` is who took what, the last resort.
pub(super) fn read(
    files: &EventFiles,
    names: &[String],
    pairs: &[(u32, u32)],
    settings: &RecommenderSettings,
    manifest: &mut Manifest,
    watch: Watch<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<ItemFeatures, DataError> {
    let Some(path) = &files.items else {
        return projected(&taken_by(names.len(), pairs), "events", settings, say, &files.file);
    };
    if files.vectors {
        return vectors(path, names, manifest, watch);
    }
    if !files.words.is_empty() {
        let places: BTreeMap<&str, usize> =
            names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
        let mut corpus = Corpus::new(names.len());
        let mut rows = Rows::open_as(path, &files.separator_of(path), files.latin1)?;
        let id = rows.column(&files.item_id)?;
        let fields: Vec<usize> =
            files.words.iter().map(|name| rows.column(name)).collect::<Result<_, _>>()?;
        while rows.next(watch)? {
            if let Some(&place) = places.get(rows.text(id)?.as_str()) {
                for &field in &fields {
                    corpus.add(place, &rows.text(field)?.replace('|', " "));
                }
            }
        }
        manifest.sources.extend(rows.finish()?);
        return projected(&corpus.weights(), "words", settings, say, path);
    }
    let separator = files.separator_of(path);
    let items = Items::read(path, &separator, files.latin1, &files.item_id, watch, manifest)?;
    let (values, described) = by_name(&items, names);
    Ok(ItemFeatures { values, width: items.width(), described, from: "numbers" })
}

/// The features of users by their names, in their order, with a constant 1 behind them; and how many users have
/// features. A user that the file does not name has the constant only.
pub(super) fn of_users(
    files: &EventFiles,
    names: &[String],
    manifest: &mut Manifest,
    watch: Watch<'_>,
) -> Result<Option<ItemFeatures>, DataError> {
    let Some(path) = &files.users else { return Ok(None) };
    let separator = files.separator_of(path);
    let users = Items::read(path, &separator, files.latin1, &files.user_id, watch, manifest)?;
    let (mut values, described) = by_name(&users, names);
    let width = users.width();
    if described == 0 {
        let problem = "no user that occurs in events is in it: are the ids the same in both files?";
        return Err(Problem::Setting(problem.into()).of(path));
    }
    values.chunks_exact_mut(width).for_each(|own| own[width - 1] = 1.0);
    Ok(Some(ItemFeatures { values, width, described, from: "numbers" }))
}

/// The features of some names in their order, zeros for those that are not in the file; and how many are.
fn by_name(known: &Items, names: &[String]) -> (Vec<f64>, usize) {
    let width = known.width();
    let mut values = vec![0.0; names.len() * width];
    let mut described = 0;
    for (name, own) in names.iter().zip(values.chunks_exact_mut(width.max(1))) {
        if let Some(&place) = known.places.get(name) {
            own.copy_from_slice(&known.values[place as usize * width..][..width]);
            described += 1;
        }
    }
    (values, described)
}

/// Who took each item, as a sparse matrix with a row for each item.
fn taken_by(items: usize, pairs: &[(u32, u32)]) -> Sparse {
    let mut rows = vec![BTreeMap::new(); items];
    let mut users = 0;
    for &(user, item) in pairs {
        rows[item as usize].insert(user, 1.0);
        users = users.max(user as usize + 1);
    }
    Sparse { rows: rows.into_iter().map(|row| row.into_iter().collect()).collect(), columns: users }
}

/// The first directions of a sparse matrix, scaled.
fn projected(
    matrix: &Sparse,
    from: &'static str,
    settings: &RecommenderSettings,
    say: &mut dyn FnMut(&str),
    path: &Path,
) -> Result<ItemFeatures, DataError> {
    let described = matrix.rows.iter().filter(|row| !row.is_empty()).count();
    let mut projection = project_and_say(matrix, settings.dimension, settings.seed, say);
    let rank = projection.rank();
    if rank == 0 {
        let problem = "nothing describes any item that occurs in events: are the ids the same in both files?";
        return Err(Problem::Setting(problem.into()).of(path));
    }
    if settings.fit {
        projection.truncate(rank);
    }
    let dimension = projection.singular.len();
    let mut values = projection.rows;
    normalise(&mut values, dimension, settings);
    let width = dimension + usize::from(settings.bias);
    Ok(ItemFeatures { values, width, described, from })
}

/// Lines of an item and a vector, as BanditLib writes them: `17<tab>[0.1;0.2;0.3]`, with `;`, `,` or spaces.
fn vectors(
    path: &Path,
    names: &[String],
    manifest: &mut Manifest,
    watch: Watch<'_>,
) -> Result<ItemFeatures, DataError> {
    use crate::records::{Format, Records};
    let places: BTreeMap<&str, usize> =
        names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
    let mut records = Records::open(path, &Format::plain("\t"))?;
    let (mut values, mut width, mut described) = (Vec::new(), 0, 0);
    while records.next(watch)? {
        if records.len() < 2 {
            return Err(records.refuse(0, "an item, a tab and its features"));
        }
        let text = records.text(1)?;
        let parts =
            text.trim().trim_matches(['[', ']']).split([';', ',', ' ']).filter(|part| !part.is_empty());
        let numbers: Option<Vec<f64>> =
            parts.map(|part| part.parse().ok().filter(|x: &f64| x.is_finite())).collect();
        let Some(numbers) = numbers.filter(|numbers| !numbers.is_empty()) else {
            return Err(records.refuse(1, "a list of numbers such as [0.1;0.2]"));
        };
        if width == 0 {
            width = numbers.len();
            values = vec![0.0; names.len() * width];
        }
        if numbers.len() != width {
            return Err(records.refuse(1, "as long as the vectors before it"));
        }
        if let Some(&place) = places.get(records.text(0)?.trim()) {
            values[place * width..][..width].copy_from_slice(&numbers);
            described += 1;
        }
    }
    manifest.sources.push(records.finish()?);
    Ok(ItemFeatures { values, width, described, from: "vectors" })
}
