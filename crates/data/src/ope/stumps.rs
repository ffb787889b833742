//! Boosted decision stumps: a sum of small steps, each at a threshold of one input.

use super::reward_model::PRIOR_ROWS;

/// How many steps are added up.
const ROUNDS: usize = 60;
/// What share of a step is taken.
const RATE: f64 = 0.15;
/// How many thresholds of an input are tried: quantiles of its values.
const CUTS: usize = 24;

/// A sum of step functions, each of one input.
#[derive(Clone, Debug)]
pub(super) struct Boosted {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    input: usize,
    threshold: f64,
    /// What is added below the threshold or at it, and above.
    sides: (f64, f64),
}

impl Boosted {
    /// Fits y to rows of `width` inputs by gradient boosting of the squared error.
    pub(super) fn fit(x: &[f64], y: &[f64], width: usize) -> Self {
        let rows = y.len();
        let mut steps = Vec::new();
        let cuts: Vec<Vec<f64>> = (0..width).map(|input| quantiles(x, rows, width, input)).collect();
        // The place of each value among the cuts of its input.
        let bins: Vec<u8> = (0..rows)
            .flat_map(|row| (0..width).map(move |input| (row, input)))
            .map(|(row, input)| cuts[input].partition_point(|cut| *cut < x[row * width + input]) as u8)
            .collect();
        let mut rest = y.to_vec();
        for _ in 0..ROUNDS {
            let Some(step) = best_step(&bins, &rest, &cuts) else { break };
            for (row, rest) in rest.iter_mut().enumerate() {
                *rest -= step.at(x[row * width + step.input]);
            }
            steps.push(step);
        }
        Self { steps }
    }

    /// The value for these inputs.
    pub(super) fn predict(&self, x: &[f64]) -> f64 {
        self.steps.iter().map(|step| step.at(x[step.input])).sum()
    }
}

impl Step {
    fn at(&self, value: f64) -> f64 {
        if value <= self.threshold { self.sides.0 } else { self.sides.1 }
    }
}

fn quantiles(x: &[f64], rows: usize, width: usize, input: usize) -> Vec<f64> {
    let mut values: Vec<f64> = (0..rows).map(|row| x[row * width + input]).collect();
    values.sort_by(f64::total_cmp);
    let mut cuts: Vec<f64> =
        (1..=CUTS).filter_map(|cut| values.get(cut * rows / (CUTS + 1)).copied()).collect();
    cuts.dedup();
    // Nothing lies above the largest value.
    cuts.retain(|cut| values.last().is_some_and(|last| cut < last));
    cuts
}

/// The step that lowers the squared error most, its sides drawn towards 0 as by ten rows.
fn best_step(bins: &[u8], rest: &[f64], cuts: &[Vec<f64>]) -> Option<Step> {
    let width = cuts.len();
    let all = (rest.iter().sum::<f64>(), rest.len() as f64);
    let mut best: Option<(f64, Step)> = None;
    for (input, cuts) in cuts.iter().enumerate() {
        let mut sums = vec![(0.0, 0.0); cuts.len() + 1];
        for (row, rest) in rest.iter().enumerate() {
            let (sum, count) = &mut sums[bins[row * width + input] as usize];
            (*sum, *count) = (*sum + rest, *count + 1.0);
        }
        let mut below = (0.0, 0.0);
        for (cut, threshold) in cuts.iter().enumerate() {
            below = (below.0 + sums[cut].0, below.1 + sums[cut].1);
            let above = (all.0 - below.0, all.1 - below.1);
            let gain = |(sum, count): (f64, f64)| sum * sum / (count + PRIOR_ROWS);
            let value = |(sum, count): (f64, f64)| RATE * sum / (count + PRIOR_ROWS);
            let worth = gain(below) + gain(above);
            if worth > 1e-12 && best.as_ref().is_none_or(|(known, _)| worth > *known) {
                let step = Step { input, threshold: *threshold, sides: (value(below), value(above)) };
                best = Some((worth, step));
            }
        }
    }
    best.map(|(_, step)| step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_no_line_follows_is_found() {
        let x: Vec<f64> = (0..3000).flat_map(|i| [f64::from(i % 100), f64::from(i % 3)]).collect();
        let truth = |x: &[f64]| if (30.0..60.0).contains(&x[0]) { 1.0 } else { 0.0 };
        let y: Vec<f64> = x.chunks_exact(2).map(truth).collect();
        let model = Boosted::fit(&x, &y, 2);
        let error: f64 =
            x.chunks_exact(2).map(|x| (model.predict(x) - truth(x)).powi(2)).sum::<f64>() / 3000.0;
        assert!(error < 0.03, "{error}");
        assert_eq!(Boosted::fit(&[], &[], 2).predict(&[1.0, 1.0]), 0.0);
    }
}
