//! Recommenders.

use anyhow::bail;
use posse_core::Seed;
use posse_data::recommender::{self, Normalise, RecommenderFiles, RecommenderSettings};
use posse_data::store::Manifest;

use super::Args;
use crate::progress::Bytes;

/// Recommenders.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Recommenders")]
pub(super) struct Recommenders {
    /// Features of an item, from its tags [default: 25]
    #[arg(long, value_name = "N")]
    dimension: Option<usize>,
    /// How features are scaled: columns, rows, none [default: columns]
    #[arg(long, value_name = "HOW")]
    normalise: Option<String>,
    /// Append a constant 1 to the features
    #[arg(long)]
    bias: bool,
    /// Ratings below this are no events
    #[arg(long, value_name = "RATING", default_value_t = 0.0)]
    min_rating: f64,
    /// Leave out users with N events or fewer
    #[arg(long, value_name = "N", default_value_t = 0)]
    more_events_than: u64,
}

/// Prepares a recommender.
pub(super) fn prepare(args: &Args, files: &RecommenderFiles) -> anyhow::Result<Manifest> {
    let Recommenders { dimension, normalise, bias, min_rating, more_events_than } = &args.recommenders;
    let word = normalise.as_deref().unwrap_or(Normalise::default().word());
    let Some(normalise) = Normalise::ALL.into_iter().find(|normalise| normalise.word() == word) else {
        bail!("--normalise {word}: one of columns, rows, none");
    };
    let defaults = RecommenderSettings::default();
    let settings = RecommenderSettings {
        dimension: dimension.unwrap_or(defaults.dimension),
        normalise,
        bias: *bias,
        min_rating: *min_rating,
        more_events_than: *more_events_than,
        groups: args.groups.unwrap_or(defaults.groups),
        seed: Seed(args.seed),
    };
    let progress = Bytes::new(files.bytes(), args.quiet);
    let result =
        recommender::prepare(files, &settings, &args.out, args.force, &mut |bytes| progress.advance(bytes));
    progress.done();
    Ok(result?)
}
