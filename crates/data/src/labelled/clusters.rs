//! Clusters of a labelled table, for the world in which each is an arm.

use std::path::Path;

use posse_core::Seed;

use super::LabelledFiles;
use super::encode::Encoder;
use super::scale::{Moments, Standardiser};
use super::table::describe;
use crate::error::{DataError, Problem};
use crate::kmeans;
use crate::records::Watch;
use crate::store::{ColumnKind, Draft, Manifest};

/// The table in a prepared directory of kind `clusters`: the features of each centre, `rows` and `wanted`.
pub const CLUSTERS: &str = "clusters.parquet";

/// Settings for preparing a labelled table as clusters of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// How many clusters, and so arms, there are at most.
    pub clusters: usize,
    /// The class whose rows pay 1; rows of other classes pay 0.
    pub target: String,
    /// The seed of the draw of the first centres.
    pub seed: Seed,
}

/// Prepares clusters in three passes. Numbers are standardised, categories are left 0 or 1, and a constant 1
/// is appended; then rows are clustered. They are held in memory for it.
pub fn prepare_clusters(
    files: &LabelledFiles,
    settings: &ClusterSettings,
    target: &Path,
    force: bool,
    watch: Watch<'_>,
) -> Result<Manifest, DataError> {
    let mut draft = Draft::begin(target, force)?;
    if settings.clusters == 0 {
        return Err(Problem::Setting("there must be at least one cluster".into()).of(target));
    }
    let encoder = Encoder::learn(files, watch)?;
    let wanted = encoder.classes.iter().position(|class| *class == settings.target).ok_or_else(|| {
        let (value, home) = (settings.target.clone(), encoder.classes.join(", "));
        Problem::Unknown { what: "class", value, home }.of(target)
    })? as u32;
    let mut moments = Moments::new(encoder.width());
    encoder.rows(watch, |row, _| {
        moments.add(row);
        Ok(())
    })?;
    let Standardiser { mut means, mut deviations } = moments.standardiser();
    for (feature, is_number) in encoder.is_number().into_iter().enumerate() {
        if !is_number {
            (means[feature], deviations[feature]) = (0.0, 1.0);
        }
    }
    let standardiser = Standardiser { means, deviations };
    let (mut rows, mut labels) = (Vec::new(), Vec::new());
    encoder.rows(watch, |row, label| {
        standardiser.apply(row);
        rows.extend_from_slice(row);
        rows.push(1.0);
        labels.push(label);
        Ok(())
    })?;
    let width = encoder.width() + 1;
    let found = kmeans::cluster(&rows, width, settings.clusters, settings.seed);
    let mut paying = vec![0i64; found.sizes.len()];
    for (cluster, label) in found.assignment.iter().zip(labels) {
        paying[*cluster as usize] += i64::from(label == wanted);
    }
    let numbers = encoder.features.iter().cloned().chain(["one".into()]);
    let columns = numbers.map(|name| (name, ColumnKind::Number));
    let columns = columns.chain(["rows", "wanted"].map(|name| (name.to_owned(), ColumnKind::Whole)));
    let mut table = draft.table(CLUSTERS, columns.collect())?;
    for ((centre, &size), &paying) in found.centroids.chunks_exact(width).zip(&found.sizes).zip(&paying) {
        if size == 0 {
            continue;
        }
        centre.iter().enumerate().for_each(|(column, x)| table.number(column, *x));
        table.whole(width, size as i64);
        table.whole(width + 1, paying);
        table.end_row()?;
    }
    draft.add(table)?;

    let mut manifest = Manifest::new(&files.name, "clusters", &files.licence);
    manifest.set("clusters", settings.clusters);
    manifest.set("target", &settings.target);
    manifest.set("seed", settings.seed.0);
    manifest.set("iterations", found.iterations);
    describe(&encoder, files, &mut manifest);
    manifest.count("arms", found.sizes.iter().filter(|size| **size > 0).count());
    draft.finish(manifest)
}
