//! The result of a check, and how results are printed.

use serde::{Deserialize, Serialize};

/// A check with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Verdict {
    /// The claim in words.
    pub(crate) says: String,
    /// The kind of check as experiments name it, such as `monotone`.
    pub(crate) kind: String,
    /// Whether the claim holds.
    pub(crate) result: Judgement,
    /// By which numbers, a line for each group or curve.
    pub(crate) numbers: Vec<String>,
    /// The reason that the experiment gives for a claim that failed. `None` if the claim holds or no reason is written.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) why: Option<String>,
}

/// The possible results of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Judgement {
    /// The claim holds in this run.
    Pass,
    /// It must hold and does not.
    Fail,
    /// It was expected to hold and does not.
    Deviates,
    /// The run is too small to say: few seeds, a scaled-down experiment, or nothing to compare.
    Inconclusive,
}

impl Judgement {
    /// The word that reports show for this result.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Deviates => "DEVIATES",
            Self::Inconclusive => "INCONCLUSIVE",
        }
    }
}

impl Verdict {
    /// Whether something that must hold does not.
    pub(crate) fn is_failure(&self) -> bool {
        self.result == Judgement::Fail
    }
}

/// All verdicts as text for the terminal, with a note if the experiment was scaled down.
pub(crate) fn report(verdicts: &[Verdict], quick: bool) -> String {
    let mut text = String::new();
    if verdicts.is_empty() {
        return text;
    }
    text.push_str("\nchecks\n");
    for verdict in verdicts {
        text.push_str(&format!("  {:<12}  {}\n", verdict.result.word(), verdict.says));
        for line in &verdict.numbers {
            text.push_str(&format!("                {line}\n"));
        }
        if let Some(why) = &verdict.why {
            text.push_str(&format!("                why: {why}\n"));
        }
    }
    if quick {
        text.push_str(
            "  QUICK: the checks are about the full experiment. Run it without --quick for verdicts.\n",
        );
    }
    text
}
