//! Prepares recommender data sets: events of users and items, and clusters of users.

use std::io::Write;

use anyhow::bail;
use posse_core::Seed;
use posse_data::recommender::{
    self, Normalise, OwnRatings, Ratings, RecommenderFiles, RecommenderSettings, Shape, UserClusterSettings,
    prepare_user_clusters,
};
use posse_data::store::Manifest;

use super::{Args, separator};
use crate::progress::Bytes;

/// The arguments of `posse data prepare` that describe recommenders.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Recommenders")]
pub(super) struct Recommenders {
    /// Features of an item, from its tags [default: 25]; parameters of a user with --user-clusters [default: 10]
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
    /// Make N clusters of users from who liked what, for the clustered-users world, instead of a recommender
    #[arg(long, value_name = "N")]
    pub(super) user_clusters: Option<usize>,
    /// With --user-clusters: take the N users with most items [default: 1000]
    #[arg(long, value_name = "N", requires = "user_clusters")]
    max_users: Option<usize>,
    /// With --user-clusters: take the N items with most users [default: 1000]
    #[arg(long, value_name = "N", requires = "user_clusters")]
    max_items: Option<usize>,
    /// `lastfm`: what counts as an event: listening, or tagging, which is what the code published with figure 4 of
    /// Li and Wang (2022) seems to have used [default: listening]
    #[arg(long, value_name = "WHAT")]
    pub(super) events: Option<String>,
    /// `ratings`: the column with how much an item was liked; without it, every row counts
    #[arg(long, value_name = "COLUMN")]
    pub(super) rating: Option<String>,
}

/// The files with the events that were asked for.
pub(super) fn with_events(args: &Args, files: RecommenderFiles) -> anyhow::Result<RecommenderFiles> {
    match (args.recommenders.events.as_deref(), files.shape) {
        (None, _) | (Some("listening"), Shape::LastFm) => Ok(files),
        (Some("tagging"), Shape::LastFm) => Ok(RecommenderFiles { shape: Shape::LastFmTagging, ..files }),
        (Some(other), Shape::LastFm) => bail!("--events {other}: one of listening, tagging"),
        (Some(_), _) => bail!("--events is for lastfm: {} has one kind of events", files.name),
    }
}

/// How recommenders are made, as the arguments say.
pub(super) fn settings(args: &Args) -> anyhow::Result<RecommenderSettings> {
    let Recommenders { dimension, normalise, bias, min_rating, more_events_than, .. } = &args.recommenders;
    let word = normalise.as_deref().unwrap_or(Normalise::default().word());
    let Some(normalise) = Normalise::ALL.into_iter().find(|normalise| normalise.word() == word) else {
        bail!("--normalise {word}: one of columns, rows, none");
    };
    let defaults = RecommenderSettings::default();
    Ok(RecommenderSettings {
        dimension: dimension.unwrap_or(defaults.dimension),
        // Who asks for so many features gets them, and a warning; who does not gets what fits.
        fit: dimension.is_none(),
        normalise,
        bias: *bias,
        min_rating: *min_rating,
        more_events_than: *more_events_than,
        groups: args.groups.unwrap_or(defaults.groups),
        seed: Seed(args.seed),
    })
}

/// Prepares a recommender as the arguments say, and returns the manifest of the new directory.
pub(super) fn prepare(args: &Args, files: &RecommenderFiles) -> anyhow::Result<Manifest> {
    let settings = settings(args)?;
    let progress = Bytes::new(files.bytes(), args.quiet);
    let quiet = args.quiet;
    let result = recommender::prepare(
        files,
        &settings,
        &args.out,
        args.force,
        &mut |bytes| progress.advance(bytes),
        &mut |stage| {
            if !quiet {
                let _ = writeln!(std::io::stderr(), "{stage}");
            }
        },
    );
    progress.done();
    let manifest = result?;
    if settings.fit {
        say_what_fits(&manifest);
    }
    Ok(manifest)
}

/// Says on stderr if there are fewer features than usual, because the words of the items have no more directions.
fn say_what_fits(manifest: &Manifest) {
    let features = manifest.counts.get("features").copied().unwrap_or(0);
    let default = RecommenderSettings::default().dimension as u64;
    if features < default {
        let _ = writeln!(
            std::io::stderr(),
            "{features} features instead of {default}: the words of the items have no more independent directions"
        );
    }
}

/// Ratings of the caller's own.
pub(super) fn own(args: &Args) -> anyhow::Result<Ratings> {
    let ([user], Some(item)) = (args.logs.user.as_slice(), &args.logs.item) else {
        bail!("which columns are the user and the item? Say it with --user and --item");
    };
    Ok(Ratings::Own(OwnRatings {
        file: args.raw.clone(),
        separator: separator(args)?,
        user: user.clone(),
        item: item.clone(),
        rating: args.recommenders.rating.clone(),
    }))
}

/// Prepares clusters of users as the arguments say, and returns the manifest of the new directory.
pub(super) fn prepare_users(args: &Args, ratings: &Ratings) -> anyhow::Result<Manifest> {
    let own = &args.recommenders;
    let defaults = UserClusterSettings::default();
    let settings = UserClusterSettings {
        dimension: own.dimension.unwrap_or(defaults.dimension),
        users: own.max_users.unwrap_or(defaults.users),
        items: own.max_items.unwrap_or(defaults.items),
        clusters: own.user_clusters.unwrap_or(defaults.clusters),
        min_rating: own.min_rating,
        seed: Seed(args.seed),
    };
    let progress = Bytes::new(ratings.bytes(), args.quiet);
    let result = prepare_user_clusters(ratings, &settings, &args.out, args.force, &mut |bytes| {
        progress.advance(bytes);
    });
    progress.done();
    Ok(result?)
}
