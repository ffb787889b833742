//! Settings that were meant to share and sent nothing: their results are those of learning alone.

use crate::experiment::Group;
use crate::row::{Row, settings};
use crate::settings::Section;

/// A line for each group with a finite threshold and several agents that sent no message in any of its rows.
pub(crate) fn silent(groups: &[Group], rows: &[Row<'_>]) -> Vec<String> {
    let is_silent = |(index, group): &(usize, &Group)| {
        let own = settings(&group.config, Section::Algorithm);
        let threshold = own.get("upload_threshold").and_then(serde_json::Value::as_f64);
        let mut rows = rows.iter().filter(|row| row.cell.group == *index).peekable();
        threshold.is_some()
            && group.config.agents > 1
            && rows.peek().is_some()
            && rows.all(|row| row.tally().messages() == 0)
    };
    let line = |(_, group): (usize, &Group)| {
        format!(
            "{} sent no message, although its threshold is finite: nothing was shared. Its agents may have acted too \
             seldom, or their features may be empty (`posse data health`)",
            group.id
        )
    };
    groups.iter().enumerate().filter(is_silent).map(line).collect()
}
