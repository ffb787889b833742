//! Prepares logs of decisions.

use std::path::PathBuf;

use anyhow::bail;
use posse_data::decision_log::{GenericLog, LogFiles, prepare_log};
use posse_data::store::Manifest;

use super::{Args, length, separator};
use crate::progress::Bytes;

/// The arguments of `posse data prepare` that describe logs of decisions.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Your own logs (`log`)")]
pub(super) struct Logs {
    /// The column with what was done
    #[arg(long, value_name = "COLUMN")]
    action: Option<String>,
    /// The column with what it earned
    #[arg(long, value_name = "COLUMN")]
    reward: Option<String>,
    /// The column with the probability of what was done; without it, all actions were equally likely
    #[arg(long, value_name = "COLUMN")]
    propensity: Option<String>,
    /// The columns that tell users apart; one for `ratings` and `events`
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub(super) user: Vec<String>,
    /// The column with where it happened, such as a region
    #[arg(long, value_name = "COLUMN")]
    agent: Option<String>,
    /// The column with when it happened; the rows of a log must be in that order, those of events are sorted
    #[arg(long, value_name = "COLUMN")]
    pub(super) time: Option<String>,
    /// Columns with numbers that were known before; NAME* is all that begin so
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    context: Vec<String>,
    /// The context has a number for each item, in the order of the items
    #[arg(long, requires = "items")]
    per_item: bool,
    /// A file of the items that can be chosen, with their features
    #[arg(long, value_name = "FILE")]
    pub(super) items: Option<PathBuf>,
    /// Its column with what actions call them [default: id]; of `ratings` and `events`, the column that tells
    /// items apart
    #[arg(long, value_name = "COLUMN")]
    pub(super) item: Option<String>,
}

/// A log of the caller's own.
pub(super) fn own(args: &Args) -> anyhow::Result<LogFiles> {
    let Logs { action, reward, propensity, user, agent, time, context, per_item, items, item } = &args.logs;
    let (Some(action), Some(reward)) = (action, reward) else {
        bail!("which columns are the action and the reward? Say it with --action and --reward");
    };
    Ok(LogFiles {
        name: args.raw.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        licence: "your own".into(),
        log: args.raw.clone(),
        separator: separator(args)?,
        columns: GenericLog {
            action: action.clone(),
            reward: reward.clone(),
            propensity: propensity.clone(),
            user: user.clone(),
            agent: agent.clone(),
            time: time.clone(),
            context: context.clone(),
            per_item: *per_item,
            item: item.clone().unwrap_or_else(|| "id".into()),
        },
        items: items.clone(),
    })
}

/// Prepares a log of decisions as the arguments say, and returns the manifest of the new directory.
pub(super) fn prepare(args: &Args, files: &LogFiles) -> anyhow::Result<Manifest> {
    let passes = if files.items.is_some() { 1 } else { 2 };
    let progress = Bytes::new(passes * length(&files.log), args.quiet);
    let result = prepare_log(files, &args.out, args.force, &mut |bytes| progress.advance(bytes));
    progress.done();
    Ok(result?)
}
