//! Where the features of items come from, if the caller brings events of its own.

use std::collections::BTreeMap;
use std::path::Path;

use super::events::EventFiles;
use super::prepare::{RecommenderSettings, normalise};
use super::svd::project_and_say;
use super::text::{Corpus, Sparse};
use crate::error::{DataError, Problem};
use crate::log::files::Rows;
use crate::log::prepare::Items;
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
        let mut rows = Rows::open_as(path, files.separator.as_deref().unwrap_or(","), files.latin1)?;
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
    let items =
        Items::read(path, files.separator.as_deref().unwrap_or(","), &files.item_id, watch, manifest)?;
    let width = items.width();
    let mut values = vec![0.0; names.len() * width];
    let mut described = 0;
    for (name, own) in names.iter().zip(values.chunks_exact_mut(width.max(1))) {
        if let Some(&place) = items.places.get(name) {
            own.copy_from_slice(&items.values[place as usize * width..][..width]);
            described += 1;
        }
    }
    Ok(ItemFeatures { values, width, described, from: "numbers" })
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
