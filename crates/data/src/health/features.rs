//! What features can teach: rank, empty and constant columns, rows without any.

use super::{Health, Severity};

/// Looks at rows of `width` features, which belong to `what`: items, or rows of a table.
pub(super) fn examine(rows: &[f64], width: usize, what: &str, health: &mut Health) {
    if width == 0 || rows.is_empty() {
        return;
    }
    let count = rows.len() / width;
    let column = |feature: usize| rows.iter().skip(feature).step_by(width).copied();
    let (mut empty, mut constant) = (Vec::new(), Vec::new());
    for (feature, &first) in rows[..width].iter().enumerate() {
        if column(feature).all(|x| x == 0.0) {
            empty.push(feature + 1);
        } else if column(feature).all(|x| x == first) {
            constant.push(feature + 1);
        }
    }
    let rank = rank(rows, width);
    health.fact("rank of the features", format!("{rank} of {width}"));
    if !empty.is_empty() {
        health.found(
            Severity::Problem,
            format!("{} of {width} features are 0 for all {what}: {}", empty.len(), list(&empty)),
            format!(
                "They teach nothing and keep matrices from full rank: prepare with --dimension {}.",
                width - empty.len()
            ),
        );
    }
    if constant.len() > 1 {
        health.found(
            Severity::Notice,
            format!("{} features are the same for all {what}: {}", constant.len(), list(&constant)),
            "One constant is a bias; more of them say the same twice.",
        );
    }
    if rank < width && empty.is_empty() {
        health.found(
            Severity::Notice,
            format!("the {width} features have only {rank} independent directions"),
            "Some are combinations of others: parameters are not unique, and learners that wait for full rank wait longer.",
        );
    }
    if rank == width {
        health.found(Severity::Good, format!("the {width} features are independent"), "");
    }
    let silent = rows.chunks_exact(width).filter(|row| row.iter().all(|x| *x == 0.0)).count();
    // Standardised columns move rows without features away from 0, all to the same place.
    let most_common = most_common_row(rows, width);
    let same = if silent > 0 { silent } else { most_common };
    let share = same as f64 / count as f64;
    if same > 1 && share > 0.01 {
        let level = if share > 0.3 { Severity::Problem } else { Severity::Notice };
        health.found(
            level,
            format!("{same} of {count} {what} ({:.0} %) have the same features", 100.0 * share),
            "They are described alike, or not at all, and no learner can tell them apart: describe them better, or leave them out.",
        );
    }
}

fn list(features: &[usize]) -> String {
    let shown: Vec<String> = features.iter().take(8).map(|feature| format!("x{feature}")).collect();
    let more = if features.len() > 8 { ", …" } else { "" };
    shown.join(", ") + more
}

/// How many rows are equal to the row that occurs most often.
fn most_common_row(rows: &[f64], width: usize) -> usize {
    let mut sorted: Vec<&[f64]> = rows.chunks_exact(width).collect();
    let order = |a: &&[f64], b: &&[f64]| {
        a.iter()
            .zip(*b)
            .map(|(a, b)| a.total_cmp(b))
            .find(|order| order.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    };
    sorted.sort_by(order);
    sorted.chunk_by(|a, b| a == b).map(<[&[f64]]>::len).max().unwrap_or(0)
}

/// The rank of rows: how many pivots of their Gram matrix are more than rounding.
pub(super) fn rank(rows: &[f64], width: usize) -> usize {
    let mut gram = vec![0.0; width * width];
    for row in rows.chunks_exact(width) {
        for i in 0..width {
            for j in 0..=i {
                gram[i * width + j] += row[i] * row[j];
            }
        }
    }
    for i in 0..width {
        for j in 0..i {
            gram[j * width + i] = gram[i * width + j];
        }
    }
    // Scaled to a diagonal of ones, so that units do not matter.
    let scale: Vec<f64> = (0..width).map(|i| gram[i * width + i].sqrt()).collect();
    for i in 0..width {
        for j in 0..width {
            let by = scale[i] * scale[j];
            gram[i * width + j] = if by > 0.0 { gram[i * width + j] / by } else { 0.0 };
        }
    }
    let mut left: Vec<usize> = (0..width).collect();
    let mut rank = 0;
    while let Some(place) = (0..left.len())
        .max_by(|a, b| gram[left[*a] * width + left[*a]].total_cmp(&gram[left[*b] * width + left[*b]]))
    {
        let pivot = left.swap_remove(place);
        let size = gram[pivot * width + pivot];
        if size <= 1e-10 {
            break;
        }
        rank += 1;
        for &i in &left {
            let factor = gram[i * width + pivot] / size;
            for &j in &left {
                gram[i * width + j] -= factor * gram[pivot * width + j];
            }
        }
    }
    rank
}
