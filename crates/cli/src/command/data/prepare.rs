//! `posse data prepare`: from raw files to a prepared directory.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;
use posse_core::Seed;
use posse_data::catalogue::{self, KnownSet};
use posse_data::labelled::{
    Categorical, ClusterSettings, Label, LabelledFiles, Scale, TableSettings, prepare_clusters, prepare_table,
};
use posse_data::records::Format;
use posse_data::store::Manifest;

use super::{Ending, print};
use crate::command::algorithms::check_name;
use crate::progress::Bytes;

/// Make a world of raw files: streams them, checks every value, writes Parquet with a manifest
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse data prepare shuttle --raw downloads/shuttle --out data/shuttle
  posse data prepare covertype --raw downloads/covertype --out data/covertype-arms --clusters 32
  posse data prepare table --raw loans.csv --label repaid --categorical purpose,region --out data/loans")]
pub(super) struct Args {
    /// A data set that `posse data list` knows, or `table` for a labelled table of your own
    name: String,
    /// The directory with the publisher's files; a file for `table`
    #[arg(long, value_name = "PATH")]
    raw: PathBuf,
    /// The directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace prepared data that is there already
    #[arg(long)]
    force: bool,
    /// Say nothing about progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    tables: Tables,
    /// Where clusters, groups and projections start
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Labelled tables.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Labelled tables")]
struct Tables {
    /// How features are scaled: published, columns, rows, none [default: published]
    #[arg(long, value_name = "HOW")]
    scale: Option<String>,
    /// Take only the first N features
    #[arg(long, value_name = "N")]
    features: Option<usize>,
    /// What to take for numbers that are missing; otherwise they are errors
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    missing: Option<f64>,
    /// Find N groups of similar rows, for experiments that divide rows by cluster
    #[arg(long, value_name = "N", default_value_t = 0)]
    groups: usize,
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
    /// `table`: what separates fields [default: a comma]
    #[arg(long, value_name = "TEXT")]
    separator: Option<String>,
    /// `table`: the first line is a row like the others
    #[arg(long)]
    no_header: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<Ending> {
    let known = catalogue::all().into_iter().map(|set| set.name);
    check_name(&args.name, "data set", known.chain(["table"]))?;
    let set = catalogue::find(&args.name);
    let manifest = match set {
        Some(set) => match set.labelled(&args.raw) {
            Some(files) => prepare_labelled(args, files?, Some(set))?,
            None => bail!("nobody knows how to prepare {}", set.name),
        },
        None => prepare_labelled(args, own_table(args)?, None)?,
    };
    if let Some(set) = set {
        warn_about_differences(set, &manifest);
    }
    print(&format!(
        "{}\n\n[environment]\nkind = \"{}\"\ndata = \"{}\"\nhash = \"{}\"\n",
        counts(&manifest),
        world(&manifest.kind),
        args.out.display(),
        manifest.hash
    ))?;
    Ok(Ending::Done)
}

/// The world that a kind of prepared data is for.
fn world(kind: &str) -> &str {
    match kind {
        "table" => "classification",
        "clusters" => "clustered-arms",
        other => other,
    }
}

/// What is in it, in a line.
fn counts(manifest: &Manifest) -> String {
    let counts: Vec<String> = manifest
        .counts
        .iter()
        .filter(|(what, _)| !what.starts_with("class "))
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    format!("{} ({}): {}", manifest.name, manifest.kind, counts.join(", "))
}

/// Says on stderr where files or counts are not those that are known.
fn warn_about_differences(set: &KnownSet, manifest: &Manifest) {
    let mut stderr = std::io::stderr();
    for source in &manifest.sources {
        let known = set.files.iter().find(|file| file.name == source.file).and_then(|file| file.sha256);
        if known.is_some_and(|known| known != source.sha256) {
            let _ = writeln!(
                stderr,
                "warning: {} is not the file we know: its sha256 is {}",
                source.file, source.sha256
            );
        }
    }
    for (what, expected) in set.counts {
        // Clusters may be made of some features only.
        let chosen = *what == "features" && manifest.kind == "clusters";
        match manifest.counts.get(*what) {
            Some(count) if count != expected && !chosen => {
                let _ = writeln!(stderr, "warning: {count} {what}, published are {expected}");
            }
            _ => {}
        }
    }
}

/// A labelled table of the caller's own.
fn own_table(args: &Args) -> anyhow::Result<LabelledFiles> {
    let Tables { label, categorical, separator, no_header, .. } = &args.tables;
    let Some(label) = label else { bail!("which column is the class? Say it with --label") };
    let name = args.raw.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let separator =
        separator.as_deref().map_or(",", |separator| if separator == "\\t" { "\t" } else { separator });
    if separator.is_empty() {
        bail!("--separator is empty");
    }
    let format = Format {
        header: !no_header,
        separator: separator.into(),
        quotes: separator.len() == 1 && separator != " ",
        ..Format::csv()
    };
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

fn prepare_labelled(
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
            let settings = TableSettings { scale, groups: tables.groups, seed: Seed(args.seed) };
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

/// How many bytes a file has; none if it cannot be read, which whoever reads it will say.
fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}
