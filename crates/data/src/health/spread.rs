//! How unevenly counts are spread.

use super::Histogram;

/// Counts by powers of ten: how many have 1 to 9, 10 to 99 and so on.
pub(super) fn by_powers(of: &str, counts: &[u64]) -> Histogram {
    let mut bars: Vec<u64> = Vec::new();
    let mut none = 0;
    for count in counts {
        if *count == 0 {
            none += 1;
            continue;
        }
        let place = count.ilog10() as usize;
        bars.resize(bars.len().max(place + 1), 0);
        bars[place] += 1;
    }
    let name = |place: usize| format!("{} to {}", 10u64.pow(place as u32), 10u64.pow(place as u32 + 1) - 1);
    let zero = (none > 0).then(|| ("0".to_owned(), none));
    let bars =
        zero.into_iter().chain(bars.into_iter().enumerate().map(|(place, count)| (name(place), count)));
    Histogram { of: of.into(), bars: bars.collect() }
}

/// The share of everything that the largest `part` of the counts have.
pub(super) fn share_of_top(counts: &[u64], part: f64) -> f64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = sorted.iter().sum();
    let top = ((sorted.len() as f64 * part).ceil() as usize).min(sorted.len());
    if all == 0 { 0.0 } else { sorted[..top].iter().sum::<u64>() as f64 / all as f64 }
}

/// The median of some counts.
pub(super) fn median(counts: &[u64]) -> u64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}
