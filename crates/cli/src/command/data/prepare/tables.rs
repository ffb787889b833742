//! Prepares labelled tables, as rows or as clusters of rows.

use anyhow::bail;
use posse_core::Seed;
use posse_data::catalogue::{self, KnownSet};
use posse_data::labelled::{
    Categorical, ClusterSettings, Label, LabelledFiles, Scale, TableSettings, prepare_clusters, prepare_table,
};
use posse_data::records::Format;
use posse_data::store::Manifest;

use super::{Args, length, separator};
use crate::progress::Bytes;

/// The arguments of `posse data prepare` that describe labelled tables.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Labelled tables")]
pub(super) struct Tables {
    /// How features are scaled: published, columns, rows, none [default: published]
    #[arg(long, value_name = "HOW")]
    scale: Option<String>,
    /// Take only the first N features
    #[arg(long, value_name = "N")]
    features: Option<usize>,
    /// What to take for numbers that are missing; otherwise they are errors
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    missing: Option<f64>,
    /// Make N clusters, each an arm, instead of keeping the rows
    #[arg(long, value_name = "N", conflicts_with = "groups")]
    clusters: Option<usize>,
    /// The class that pays in clusters
    #[arg(long, value_name = "CLASS")]
    target: Option<String>,
    /// `table`: the column with the class, by name or, without a header, by number
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// `table`: columns with categories
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    categorical: Vec<String>,
    /// `table` and `log`: what separates fields [default: a comma]
    #[arg(long, value_name = "TEXT")]
    pub(super) separator: Option<String>,
    /// `table`: the first line is a row like the others
    #[arg(long)]
    no_header: bool,
}

/// A labelled table of the caller's own.
pub(super) fn own(args: &Args) -> anyhow::Result<LabelledFiles> {
    let Tables { label, categorical, no_header, .. } = &args.tables;
    let Some(label) = label else { bail!("which column is the class? Say it with --label") };
    let name = args.raw.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let separator = separator(args)?;
    let quotes = separator.len() == 1 && separator != " ";
    let format = Format { header: !no_header, separator, quotes, ..Format::csv() };
    Ok(LabelledFiles {
        name,
        licence: "your own".into(),
        files: vec![args.raw.clone()],
        format,
        label: Label::Named(label.clone()),
        categorical: if categorical.is_empty() {
            Categorical::None
        } else {
            Categorical::Named(categorical.clone())
        },
        missing: None,
        features: None,
    })
}

/// Prepares a labelled table, as rows or as clusters.
pub(super) fn prepare(
    args: &Args,
    mut files: LabelledFiles,
    set: Option<&KnownSet>,
) -> anyhow::Result<Manifest> {
    let tables = &args.tables;
    files.missing = tables.missing.or(files.missing);
    files.features = tables.features.or(files.features);
    let passes = 3;
    let progress = Bytes::new(passes * files.files.iter().map(|path| length(path)).sum::<u64>(), args.quiet);
    let mut watch = |bytes| progress.advance(bytes);
    let result = match tables.clusters {
        None => {
            let word = tables.scale.as_deref().unwrap_or(Scale::default().word());
            let Some(scale) = Scale::ALL.into_iter().find(|scale| scale.word() == word) else {
                bail!("--scale {word}: one of published, columns, rows, none");
            };
            let settings = TableSettings { scale, groups: args.groups.unwrap_or(0), seed: Seed(args.seed) };
            prepare_table(&files, &settings, &args.out, args.force, &mut watch)
        }
        Some(clusters) => {
            if tables.scale.is_some() {
                bail!("--scale is for tables: clusters have their own");
            }
            let usual = set.and_then(|set| catalogue::clustered(set.name));
            let Some(target) = tables.target.clone().or_else(|| usual.map(|usual| usual.target.into()))
            else {
                bail!("which class pays? Say it with --target");
            };
            files.features = files.features.or(usual.and_then(|usual| usual.features));
            let settings = ClusterSettings { clusters, target, seed: Seed(args.seed) };
            prepare_clusters(&files, &settings, &args.out, args.force, &mut watch)
        }
    };
    progress.done();
    Ok(result?)
}
