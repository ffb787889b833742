//! Finds the known word that a misspelt one probably means.

/// The candidate that `word` most likely is a misspelling of.
pub(crate) fn closest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // People mix up case and the two kinds of dashes more often than letters.
    let plain = |text: &str| text.to_lowercase().replace(['_', ' '], "-");
    let word = plain(word);
    let allowed = (word.chars().count() / 3).max(1);
    let distances =
        candidates.into_iter().map(|candidate| (strsim::osa_distance(&word, &plain(candidate)), candidate));
    distances
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let words = ["upload_threshold", "download_threshold", "join"];
        assert_eq!(closest("upload_treshold", words), Some("upload_threshold"));
        assert_eq!(closest("Upload-Threshold", words), Some("upload_threshold"));
        assert_eq!(closest("jion", words), Some("join"));
        assert_eq!(closest("dimension", words), None);
    }
}
