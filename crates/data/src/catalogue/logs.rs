//! Logs of decisions that were published.

use std::path::Path;

use super::{KnownFile, KnownSet};
use crate::decision_log::{GenericLog, LogFiles};
use crate::error::DataError;

/// Every log of decisions that posse knows.
pub(super) const ALL: &[KnownSet] = &[KnownSet {
    name: "open-bandit",
    title: "Open Bandit Dataset: clicks on 80 items, with propensities; one directory a policy",
    licence: "CC BY 4.0 (full data), Apache-2.0 (the small sample in the obp package)",
    address: "https://research.zozo.com/data.html",
    // The archive of the full data has a directory for each campaign and policy, all with files of these names: which
    // one is meant, only the caller can say.
    download: None,
    // Each policy has its own files of these names.
    files: &[
        KnownFile { name: "all.csv", sha256: None },
        KnownFile { name: "item_context.csv", sha256: None },
    ],
    counts: &[("items", 80)],
}];

/// How the files of a log are laid out.
pub(super) fn log(set: &KnownSet, raw: &Path) -> Option<Result<LogFiles, DataError>> {
    if set.name != "open-bandit" {
        return None;
    }
    let locate = |name: &str| set.locate(raw, name);
    Some(locate("all.csv").and_then(|log| {
        Ok(LogFiles {
            name: set.name.into(),
            licence: set.licence.into(),
            log,
            separator: ",".into(),
            columns: GenericLog {
                action: "item_id".into(),
                reward: "click".into(),
                propensity: Some("propensity_score".into()),
                user: (0..4).map(|feature| format!("user_feature_{feature}")).collect(),
                agent: Some("user_feature_0".into()),
                time: Some("timestamp".into()),
                context: vec!["user-item_affinity_*".into()],
                per_item: true,
                item: "item_id".into(),
            },
            items: Some(locate("item_context.csv")?),
        })
    }))
}
