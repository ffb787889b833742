use super::*;

fn found(health: &Health, word: &str) -> Option<Severity> {
    health.findings.iter().find(|finding| finding.what.contains(word)).map(|finding| finding.level)
}

#[test]
fn empty_constant_and_dependent_features_are_seen() {
    let mut health = Health::default();
    // The second is empty, the fourth twice the first.
    let rows: Vec<f64> = (0..50)
        .flat_map(|i| {
            let x = f64::from(i);
            [x, 0.0, f64::from(i * i), 2.0 * x]
        })
        .collect();
    features::examine(&rows, 4, "items", &mut health);
    assert!(health.facts.contains(&("rank of the features".into(), "2 of 4".into())), "{:?}", health.facts);
    assert_eq!(found(&health, "1 of 4 features are 0 for all items: x2"), Some(Severity::Problem));
    let mut health = Health::default();
    features::examine(
        &rows.chunks_exact(4).flat_map(|row| [row[0], row[3]]).collect::<Vec<_>>(),
        2,
        "items",
        &mut health,
    );
    assert_eq!(found(&health, "only 1 independent"), Some(Severity::Notice));
}

#[test]
fn items_that_nothing_describes_are_counted() {
    let mut health = Health::default();
    let rows: Vec<f64> = (0..100)
        .flat_map(|i| if i < 40 { [-1.0, 2.0] } else { [f64::from(i), 1.0 / f64::from(i)] })
        .collect();
    features::examine(&rows, 2, "items", &mut health);
    assert_eq!(found(&health, "40 of 100 items (40 %) have the same features"), Some(Severity::Problem));
}

#[test]
fn the_most_popular_are_counted_by_their_share() {
    assert_eq!(spread::share_of_top(&[90, 1, 1, 1, 1, 1, 1, 1, 1, 2], 0.1), 0.9);
    assert_eq!(spread::median(&[5, 1, 9]), 5);
    let bars = spread::by_powers("x", &[0, 1, 9, 10, 500]).bars;
    let expected = [("0", 1), ("1 to 9", 2), ("10 to 99", 1), ("100 to 999", 1)];
    assert_eq!(bars, expected.map(|(name, count)| (name.to_owned(), count)));
}
