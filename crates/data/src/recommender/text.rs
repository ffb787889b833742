//! Words and their weights: how much a word says about an item.

use std::collections::BTreeMap;

/// A sparse matrix, row by row: column and value, columns ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sparse {
    /// The entries of each row that are not zero.
    pub rows: Vec<Vec<(u32, f64)>>,
    /// How many columns there are.
    pub columns: usize,
}

/// Texts about items, gathered piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    words: BTreeMap<String, u32>,
    /// How often each word occurs in the text of each item.
    counts: Vec<BTreeMap<u32, u32>>,
}

impl Corpus {
    /// No text about any of `items` items.
    #[must_use]
    pub fn new(items: usize) -> Self {
        Self { words: BTreeMap::new(), counts: vec![BTreeMap::new(); items] }
    }

    /// Adds a piece of text about an item. Words are runs of at least two letters, digits or underscores, in
    /// lower case; words that every English text has do not count.
    ///
    /// # Panics
    /// If there is no such item.
    pub fn add(&mut self, item: usize, text: &str) {
        let lower = text.to_lowercase();
        let words = lower.split(|c: char| !c.is_alphanumeric() && c != '_');
        for word in words.filter(|word| word.chars().nth(1).is_some() && !is_common(word)) {
            let known = self.words.len() as u32;
            let word = match self.words.get(word) {
                Some(&index) => index,
                None => *self.words.entry(word.to_owned()).or_insert(known),
            };
            *self.counts[item].entry(word).or_insert(0) += 1;
        }
    }

    /// How many different words there are.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// TF-IDF: how often a word occurs times ln((1 + n)/(1 + n_w)) + 1, where n_w of the n items have it; rows are
    /// scaled to length one. Words are in alphabetical order.
    #[must_use]
    pub fn weights(&self) -> Sparse {
        let mut order = vec![0u32; self.words.len()];
        self.words.values().enumerate().for_each(|(place, &index)| order[index as usize] = place as u32);
        let mut items_with = vec![0u32; self.words.len()];
        for word in self.counts.iter().flat_map(BTreeMap::keys) {
            items_with[*word as usize] += 1;
        }
        let items = self.counts.len() as f64;
        let rarity: Vec<f64> =
            items_with.iter().map(|&with| libm::log((1.0 + items) / (1.0 + f64::from(with))) + 1.0).collect();
        let row = |counts: &BTreeMap<u32, u32>| {
            let mut row: Vec<(u32, f64)> = counts
                .iter()
                .map(|(&word, &count)| (order[word as usize], f64::from(count) * rarity[word as usize]))
                .collect();
            row.sort_by_key(|(word, _)| *word);
            let length = row.iter().map(|(_, x)| x * x).sum::<f64>().sqrt();
            row.iter_mut().for_each(|(_, x)| *x /= length);
            row
        };
        Sparse { rows: self.counts.iter().map(row).collect(), columns: self.words.len() }
    }
}

/// Whether a word is one of those that say nothing about an item.
fn is_common(word: &str) -> bool {
    COMMON.binary_search(&word).is_ok()
}

/// Function words of English, sorted.
const COMMON: &[&str] = &[
    "about",
    "above",
    "after",
    "again",
    "against",
    "all",
    "also",
    "although",
    "always",
    "am",
    "among",
    "an",
    "and",
    "another",
    "any",
    "anyone",
    "anything",
    "are",
    "around",
    "as",
    "at",
    "be",
    "became",
    "because",
    "become",
    "been",
    "before",
    "being",
    "below",
    "between",
    "both",
    "but",
    "by",
    "can",
    "cannot",
    "could",
    "did",
    "do",
    "does",
    "doing",
    "done",
    "down",
    "during",
    "each",
    "either",
    "else",
    "enough",
    "etc",
    "even",
    "ever",
    "every",
    "everyone",
    "everything",
    "few",
    "for",
    "from",
    "further",
    "get",
    "had",
    "has",
    "have",
    "having",
    "he",
    "hence",
    "her",
    "here",
    "hers",
    "herself",
    "him",
    "himself",
    "his",
    "how",
    "however",
    "if",
    "in",
    "indeed",
    "into",
    "is",
    "it",
    "its",
    "itself",
    "just",
    "less",
    "many",
    "may",
    "me",
    "might",
    "mine",
    "more",
    "most",
    "much",
    "must",
    "my",
    "myself",
    "neither",
    "never",
    "no",
    "nobody",
    "none",
    "nor",
    "not",
    "nothing",
    "now",
    "of",
    "off",
    "often",
    "on",
    "once",
    "only",
    "or",
    "other",
    "others",
    "our",
    "ours",
    "ourselves",
    "out",
    "over",
    "own",
    "per",
    "perhaps",
    "please",
    "rather",
    "same",
    "seem",
    "seems",
    "several",
    "she",
    "should",
    "since",
    "so",
    "some",
    "someone",
    "something",
    "still",
    "such",
    "than",
    "that",
    "the",
    "their",
    "theirs",
    "them",
    "themselves",
    "then",
    "there",
    "therefore",
    "these",
    "they",
    "this",
    "those",
    "though",
    "through",
    "thus",
    "to",
    "together",
    "too",
    "toward",
    "towards",
    "under",
    "until",
    "up",
    "upon",
    "us",
    "very",
    "via",
    "was",
    "we",
    "well",
    "were",
    "what",
    "whatever",
    "when",
    "where",
    "whether",
    "which",
    "while",
    "who",
    "whole",
    "whom",
    "whose",
    "why",
    "will",
    "with",
    "within",
    "without",
    "would",
    "yet",
    "you",
    "your",
    "yours",
    "yourself",
    "yourselves",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_common_words_can_be_searched() {
        assert!(COMMON.is_sorted_by(|a, b| a < b));
        assert!(is_common("the") && !is_common("rock"));
    }

    #[test]
    fn weights_are_counts_times_rarity_in_rows_of_length_one() {
        let mut corpus = Corpus::new(3);
        corpus.add(0, "Rock, rock & ROLL!");
        corpus.add(1, "the roll");
        corpus.add(1, "a jazz");
        let weights = corpus.weights();
        // Words: jazz, rock, roll. Items that have them: 1, 1, 2 of 3.
        let (rare, frequent) = (libm::log(4.0 / 2.0) + 1.0, libm::log(4.0 / 3.0) + 1.0);
        let first = (2.0 * rare, frequent);
        let length = (first.0 * first.0 + first.1 * first.1).sqrt();
        assert_eq!((weights.columns, weights.rows[2].len()), (3, 0));
        assert_eq!(weights.rows[0].iter().map(|(word, _)| *word).collect::<Vec<_>>(), [1, 2]);
        assert!((weights.rows[0][0].1 - first.0 / length).abs() < 1e-12);
        assert!((weights.rows[0][1].1 - first.1 / length).abs() < 1e-12);
        assert_eq!(weights.rows[1].iter().map(|(word, _)| *word).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn words_of_any_script_count_and_single_letters_do_not() {
        let mut corpus = Corpus::new(1);
        corpus.add(0, "Björk x 日本 sci-fi 80s");
        assert_eq!(corpus.words(), 5);
    }
}
