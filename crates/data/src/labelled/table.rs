//! A labelled table as it is, for the classification world.

use std::path::Path;

use posse_core::Seed;

use super::LabelledFiles;
use super::encode::Encoder;
use super::scale::{Moments, Scale, Standardiser, to_unit_length};
use crate::error::{DataError, Problem};
use crate::kmeans;
use crate::records::Watch;
use crate::store::{ColumnKind, Draft, Manifest, TableWriter};

/// The table in a prepared directory of kind `table`: the features, then `label`, then perhaps `group`.
pub const ROWS: &str = "rows.parquet";

/// Settings for preparing a labelled table row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSettings {
    /// How features are scaled. Default `published`.
    pub scale: Scale,
    /// How many groups of similar rows to find, so that rows can be divided over agents by group; all rows are
    /// held in memory for it. Default 0: none.
    pub groups: usize,
    /// The seed of the draw of the first centres of groups. Default 0.
    pub seed: Seed,
}

impl Default for TableSettings {
    fn default() -> Self {
        Self { scale: Scale::default(), groups: 0, seed: Seed(0) }
    }
}

/// Prepares a labelled table in three passes over its files, holding some thousand rows in memory (all of
/// them if there are to be groups).
pub fn prepare_table(
    files: &LabelledFiles,
    settings: &TableSettings,
    target: &Path,
    force: bool,
    watch: Watch<'_>,
) -> Result<Manifest, DataError> {
    let mut draft = Draft::begin(target, force)?;
    let encoder = Encoder::learn(files, watch)?;
    if let [class] = encoder.classes.as_slice() {
        let problem =
            format!("all rows are of class {class:?}: there is nothing to choose; is --label right?");
        return Err(Problem::Setting(problem).of(&files.files[0]));
    }
    let scaler = Scaler::learn(&encoder, settings.scale, watch)?;
    let columns = encoder.features.iter().map(|name| (name.clone(), ColumnKind::Number));
    let grouped = settings.groups > 0;
    let whole = ["label", "group"].into_iter().take(1 + usize::from(grouped));
    let columns = columns.chain(whole.map(|name| (name.to_owned(), ColumnKind::Whole))).collect();
    let mut table = draft.table(ROWS, columns)?;
    let mut sizes = Vec::new();
    if grouped {
        let (mut all, mut labels) = (Vec::new(), Vec::new());
        scaler.rows(&encoder, watch, |row, label| {
            all.extend_from_slice(row);
            labels.push(label);
            Ok(())
        })?;
        let found = kmeans::cluster(&all, encoder.width(), settings.groups, settings.seed);
        for ((row, label), group) in all.chunks_exact(encoder.width()).zip(labels).zip(&found.assignment) {
            write(&mut table, row, label, Some(*group))?;
        }
        sizes = found.sizes;
    } else {
        scaler.rows(&encoder, watch, |row, label| write(&mut table, row, label, None))?;
    }
    draft.add(table)?;

    let mut manifest = Manifest::new(&files.name, "table", &files.licence);
    manifest.set("scale", settings.scale.word());
    if grouped {
        manifest.set("groups", settings.groups);
        manifest.set("seed", settings.seed.0);
        manifest.count("groups", sizes.len());
    }
    describe(&encoder, files, &mut manifest);
    draft.finish(manifest)
}

/// What every labelled table says about itself.
pub(super) fn describe(encoder: &Encoder<'_>, files: &LabelledFiles, manifest: &mut Manifest) {
    if let Some(missing) = files.missing {
        manifest.set("missing", missing);
    }
    manifest.count("rows", encoder.class_rows.iter().sum::<u64>() as usize);
    manifest.count("features", encoder.width());
    manifest.count("classes", encoder.classes.len());
    for (class, rows) in encoder.classes.iter().zip(&encoder.class_rows) {
        manifest.count(&format!("class {class}"), *rows as usize);
    }
    manifest.names.insert("classes".into(), encoder.classes.clone());
    manifest.sources.clone_from(&encoder.sources);
}

fn write(table: &mut TableWriter, row: &[f64], label: u32, group: Option<u32>) -> Result<(), DataError> {
    row.iter().enumerate().for_each(|(column, x)| table.number(column, *x));
    table.whole(row.len(), label.into());
    if let Some(group) = group {
        table.whole(row.len() + 1, group.into());
    }
    table.end_row()
}

/// Scales rows while they are copied.
struct Scaler {
    scale: Scale,
    columns: Option<Standardiser>,
}

impl Scaler {
    fn learn(encoder: &Encoder<'_>, scale: Scale, watch: Watch<'_>) -> Result<Self, DataError> {
        if !scale.scales_columns() {
            return Ok(Self { scale, columns: None });
        }
        let mut moments = Moments::new(encoder.width());
        encoder.rows(watch, |row, _| {
            if scale.scales_rows() {
                to_unit_length(row);
            }
            moments.add(row);
            Ok(())
        })?;
        Ok(Self { scale, columns: Some(moments.standardiser()) })
    }

    fn rows(
        &self,
        encoder: &Encoder<'_>,
        watch: Watch<'_>,
        mut visit: impl FnMut(&[f64], u32) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        encoder.rows(watch, |row, label| {
            if self.scale.scales_rows() {
                to_unit_length(row);
            }
            if let Some(columns) = &self.columns {
                columns.apply(row);
            }
            visit(row, label)
        })
    }
}
