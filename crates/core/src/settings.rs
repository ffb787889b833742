//! Settings and what they mean: the documentation of a field is its description everywhere.
//!
//! A settings type derives [`Described`](derive@Described). The documentation of each field then has this form, of which everything but the
//! meaning may be missing:
//!
//! ```text
//! /// λ > 0: the weight of the prior belief that parameters are zero. Small values let early
//! /// observations count for more. Default 0.1.
//! pub regularization: f64,
//! ```
//!
//! Before the first colon stand the symbol of the papers and the range: `> a`, `≥ a`, `in (a, b)`, `in [a, b]` or
//! `in [a, b)`. The first sentence after it is what listings show. The default is that of the type; a test compares it
//! with the one that the documentation names. The kind of value follows from the field's type by [`Takes`].

pub use posse_derive::Described;

use crate::algorithm::Algorithm;
use crate::ids::AgentId;
use crate::time_span::TimeSpan;
use crate::trigger::Threshold;

/// A setting: its key and what there is to know about it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The key as files write it.
    pub key: &'static str,
    /// The kind of value that the key takes.
    pub kind: Kind,
    /// Everything that is written about it.
    pub documentation: &'static str,
}

/// The kind of value that a key takes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A number, whole or not.
    Number,
    /// An integer, zero or more.
    Whole,
    /// An integer, zero or more, for which memory must be found: at most this.
    Size(u64),
    /// A number, or `inf` for infinity.
    Threshold,
    /// A length of time with its unit, in quotes.
    Span,
    /// A switch, `true` or `false`.
    Switch,
    /// A text in quotes.
    Text,
    /// One of these words, in quotes.
    OneOf(&'static [&'static str]),
    /// A table with the settings that the function adds to a list.
    Table(fn(&mut Vec<Setting>)),
    /// Any number of tables with those settings, the first of which must be there.
    Tables(fn(&mut Vec<Setting>)),
    /// A table with the name of an algorithm and its settings.
    Algorithm,
}

impl Kind {
    /// The settings inside a table of this kind; none for other kinds.
    #[must_use]
    pub fn settings(self) -> Vec<Setting> {
        let mut all = Vec::new();
        if let Self::Table(describe) | Self::Tables(describe) = self {
            describe(&mut all);
        }
        all
    }

    /// What such a key takes, in words that go after "expected".
    #[must_use]
    pub fn expected(self) -> String {
        match self {
            Self::Number => "a number".into(),
            Self::Whole | Self::Size(_) => "a whole number, zero or more".into(),
            Self::Threshold => "a number or inf".into(),
            Self::Span => "a length of time with its unit, such as \"30s\" or \"250ms\"".into(),
            Self::Switch => "true or false".into(),
            Self::Text => "a text in quotes".into(),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
            Self::Table(_) => "a table".into(),
            Self::Tables(_) => "an array of tables".into(),
            Self::Algorithm => "a table with the `name` of an algorithm and its settings".into(),
        }
    }
}

/// A type whose fields are settings. Derive it.
pub trait Described {
    /// Adds the settings of the type to `all`, in the order of its fields.
    fn describe(all: &mut Vec<Setting>);

    /// The settings of the type, in the order of its fields.
    #[must_use]
    fn settings() -> Vec<Setting>
    where
        Self: Sized,
    {
        let mut all = Vec::new();
        Self::describe(&mut all);
        all
    }
}

/// An enum whose variants are kinds of something, each with settings of its own. Derive it with [`Described`](derive@Described).
pub trait DescribedKinds {
    /// Adds the settings of the kind that this value is of to `all`.
    fn describe_kind(&self, all: &mut Vec<Setting>);

    /// The settings of the kind that this value is of.
    #[must_use]
    fn settings(&self) -> Vec<Setting> {
        let mut all = Vec::new();
        self.describe_kind(&mut all);
        all
    }
}

/// A type that a setting may have.
pub trait Takes {
    /// The kind of value that such a setting takes.
    const KIND: Kind;
}

impl Takes for f64 {
    const KIND: Kind = Kind::Number;
}

impl Takes for u64 {
    const KIND: Kind = Kind::Whole;
}

impl Takes for u32 {
    const KIND: Kind = Kind::Whole;
}

impl Takes for usize {
    const KIND: Kind = Kind::Whole;
}

impl Takes for bool {
    const KIND: Kind = Kind::Switch;
}

impl Takes for String {
    const KIND: Kind = Kind::Text;
}

impl Takes for std::path::PathBuf {
    const KIND: Kind = Kind::Text;
}

impl Takes for TimeSpan {
    const KIND: Kind = Kind::Span;
}

impl Takes for Threshold {
    const KIND: Kind = Kind::Threshold;
}

impl Takes for AgentId {
    const KIND: Kind = Kind::Whole;
}

impl Takes for Algorithm {
    const KIND: Kind = Kind::Algorithm;
}

impl<T: Takes> Takes for Option<T> {
    const KIND: Kind = T::KIND;
}

impl<T: Described> Takes for Vec<T> {
    const KIND: Kind = Kind::Tables(T::describe);
}

impl Setting {
    /// A setting with this documentation, which has the form that the [module](self) explains.
    #[must_use]
    pub const fn documented(key: &'static str, kind: Kind, documentation: &'static str) -> Self {
        Self { key, kind, documentation }
    }

    /// The symbol, the range and the rest of the documentation.
    fn parts(&self) -> (&'static str, &'static str, &'static str) {
        let whole = ("", "", self.documentation);
        let Some((head, rest)) = self.documentation.split_once(": ") else { return whole };
        match symbol_and_range(head) {
            Some((symbol, range)) => (symbol, range, rest),
            None => whole,
        }
    }

    /// The symbol that papers have for it; empty without one.
    #[must_use]
    pub fn symbol(&self) -> &'static str {
        self.parts().0
    }

    /// The range of its numbers: `> 0`, `≥ 0`, `in (0, 1)`; empty if it is not written.
    #[must_use]
    pub fn range(&self) -> &'static str {
        self.parts().1
    }

    /// What it means, in a sentence without its full stop.
    #[must_use]
    pub fn meaning(&self) -> String {
        let (_, _, text) = self.parts();
        let ends = [text.find(". "), text.find(".\n"), Some(text.len())];
        let end = ends.into_iter().flatten().min().unwrap_or(0);
        text[..end].trim_end_matches('.').replace('\n', " ")
    }
}

/// What stands before a colon, if it is a symbol with a range and not the first half of a sentence.
fn symbol_and_range(head: &str) -> Option<(&str, &str)> {
    let is_range = |text: &str| [">", "≥", "in (", "in ["].iter().any(|start| text.starts_with(start));
    let is_symbol = |text: &str| text.chars().count() <= 4;
    if is_range(head) {
        return Some(("", head));
    }
    match head.split_once(' ') {
        Some((symbol, range)) if is_symbol(symbol) && is_range(range) => Some((symbol, range)),
        None if is_symbol(head) => Some((head, "")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(documentation: &'static str) -> Setting {
        Setting::documented("key", Kind::Number, documentation)
    }

    #[test]
    fn documentation_is_taken_apart_into_symbol_range_and_meaning() {
        let whole = setting("λ > 0: the weight of the\nprior belief. Small values. Default 0.1.");
        assert_eq!((whole.symbol(), whole.range()), ("λ", "> 0"));
        assert_eq!(whole.meaning(), "the weight of the prior belief");
        assert_eq!(
            setting("Begin alone\n(Algorithm 5).\nIt ends. Default true.").meaning(),
            "Begin alone (Algorithm 5)"
        );
        let inside = setting("δ in (0, 1): the probability. Default 1e-5; published 1.");
        assert_eq!((inside.symbol(), inside.range()), ("δ", "in (0, 1)"));
        let symbol = setting("k: how alike arms are. Default exponential.");
        assert_eq!((symbol.symbol(), symbol.range()), ("k", ""));
        let nameless = setting("in [0, 1): the share.");
        assert_eq!((nameless.symbol(), nameless.range()), ("", "in [0, 1)"));
        let nameless = setting("> 1: the next release is due.");
        assert_eq!((nameless.symbol(), nameless.range()), ("", "> 1"));
        let sentence = setting("When newcomers become known: rounds go over those that are. Default eager.");
        assert_eq!((sentence.symbol(), sentence.range()), ("", ""));
        assert_eq!(sentence.meaning(), "When newcomers become known: rounds go over those that are");
    }
}
