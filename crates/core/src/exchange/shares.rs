//! Whose observations are in a parent's model, as a relay counts them.

use std::collections::BTreeMap;

use crate::ids::{AgentId, Version};

/// How many observations of each child are in the model that a relay's children were told last.
///
/// The parent knows only how many of the relay there are. A relay keeps both numbers: a child may be gone whose
/// observations are in the model, and a parent that lost part of its history has fewer than the children think.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) children: BTreeMap<AgentId, u64>,
    /// How many observations of the relay are in the parent's model, as the parent said last.
    pub(crate) parent: u64,
    /// The parent's version that said so first.
    pub(crate) since: Version,
}

/// What a relay sent its parent for a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SentParts {
    /// The parts were everything that the children have, not only what the model lacks.
    pub(crate) whole: bool,
    /// Children that answered, with how many observations.
    pub(crate) parts: BTreeMap<AgentId, u64>,
    /// Observations in the sum whose children are gone.
    pub(crate) gone: u64,
}

/// What the parent's number says about the children's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The parts that the relay sent last are in the model.
    Included,
    /// Nothing has changed for the children.
    Unchanged,
    /// The model contains nothing of the relay.
    Nothing,
    /// The number is none that the relay can account for.
    Unknown,
}

impl SentParts {
    fn count(&self) -> u64 {
        self.parts.values().fold(self.gone, |sum, part| sum.saturating_add(*part))
    }
}

impl Shares {
    /// What a model means that contains so many observations of the relay, where `sent` is what the parent may have
    /// added since the last one. `after` is the version of the last one.
    pub(crate) fn judge(
        &self,
        contains: u64,
        version: Version,
        after: Version,
        sent: Option<&SentParts>,
    ) -> Settled {
        let expected = sent.filter(|_| version > after).map(|sent| {
            let before = if sent.whole { 0 } else { self.parent };
            before.saturating_add(sent.count())
        });
        // First what was sent: a message about an earlier round would have come before the question for this one.
        if expected == Some(contains) {
            return Settled::Included;
        }
        // An older number may be the same by chance, after rounds that began anew.
        if contains == self.parent && version >= self.since {
            return Settled::Unchanged;
        }
        if contains == 0 { Settled::Nothing } else { Settled::Unknown }
    }

    /// Counts the parts of a round that is in the model.
    pub(crate) fn include(&mut self, sent: &SentParts) {
        for (child, share) in &mut self.children {
            let part = sent.parts.get(child).copied().unwrap_or(0);
            *share = if sent.whole { part } else { share.saturating_add(part) };
        }
    }

    /// The model contains nothing of any child.
    pub(crate) fn clear(&mut self) {
        self.children.values_mut().for_each(|share| *share = 0);
    }

    /// The parent said how many observations of the relay it has.
    pub(crate) fn note(&mut self, contains: u64, version: Version) {
        if contains != self.parent || version < self.since {
            self.since = version;
        }
        self.parent = contains;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(children: &[(u64, u64)], parent: u64) -> Shares {
        let children = children.iter().map(|(child, share)| (AgentId(*child), *share)).collect();
        Shares { children, parent, since: Version(3) }
    }

    fn sent(whole: bool, parts: &[(u64, u64)], gone: u64) -> SentParts {
        let parts = parts.iter().map(|(child, part)| (AgentId(*child), *part)).collect();
        SentParts { whole, parts, gone }
    }

    #[test]
    fn news_are_added_and_whole_parts_replace() {
        let mut own = shares(&[(1, 4), (2, 6)], 10);
        let news = sent(false, &[(1, 1), (2, 2)], 0);
        assert_eq!(own.judge(13, Version(4), Version(3), Some(&news)), Settled::Included);
        own.include(&news);
        assert_eq!(own.children, shares(&[(1, 5), (2, 8)], 0).children);
        own.note(13, Version(4));
        let all = sent(true, &[(1, 7)], 2);
        assert_eq!(own.judge(9, Version(5), Version(4), Some(&all)), Settled::Included);
        own.include(&all);
        assert_eq!(
            own.children,
            shares(&[(1, 7), (2, 0)], 0).children,
            "who was not there has nothing in it"
        );
    }

    #[test]
    fn a_round_without_the_relay_leaves_everything_or_takes_everything() {
        let own = shares(&[(1, 4), (2, 6)], 10);
        let news = sent(false, &[(1, 1)], 0);
        assert_eq!(own.judge(10, Version(4), Version(3), Some(&news)), Settled::Unchanged);
        assert_eq!(own.judge(0, Version(4), Version(3), Some(&news)), Settled::Nothing);
        assert_eq!(own.judge(9, Version(4), Version(3), Some(&news)), Settled::Unknown);
    }

    #[test]
    fn a_parent_that_went_back_is_believed_only_as_far_as_the_count_has_stood() {
        let own = shares(&[(1, 10)], 10);
        assert_eq!(own.judge(10, Version(3), Version(8), None), Settled::Unchanged);
        assert_eq!(own.judge(10, Version(2), Version(8), None), Settled::Unknown, "ten others, perhaps");
        let news = sent(false, &[(1, 5)], 0);
        assert_eq!(
            own.judge(15, Version(8), Version(8), Some(&news)),
            Settled::Unknown,
            "that round is later"
        );
    }
}
