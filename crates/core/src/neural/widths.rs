//! What the width of the network's bound is taken from: the inverses of the agents' own matrices, or their mean.

use std::sync::Arc;

use super::downdate::subtracted;
use super::inverse::Column;
use super::statistic::Statistic;
use crate::workers::Workers;

/// The inverses of some matrices, or with `mean` their mean.
pub(crate) fn widths<'a>(
    own: impl ExactSizeIterator<Item = &'a mut Statistic>,
    mean: bool,
) -> Vec<Arc<Vec<f64>>> {
    if !mean {
        return own.map(Statistic::inverse).collect();
    }
    let own: Vec<&Statistic> = own.map(|statistic| &*statistic).collect();
    vec![Arc::new(Statistic::mean_inverse(own.into_iter()))]
}

/// The mean of `agents` inverses from which these vectors were subtracted since it was `before`.
pub(crate) fn lowered(
    before: &[f64],
    news: &[Column],
    agents: usize,
    workers: &dyn Workers,
) -> Arc<Vec<f64>> {
    let share = 1.0 / agents.max(1) as f64;
    let news: Vec<Column> = news.iter().map(|column| column.scaled(share)).collect();
    Arc::new(subtracted(before, &news, workers))
}

/// Whether it takes less to lower the mean of `agents` matrices by so many vectors than to add the matrices up.
pub(crate) const fn is_worth_lowering(news: usize, agents: usize) -> bool {
    0 < news && news <= 2 * agents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neural::sparse::Sparse;
    use crate::neural::statistic::Precondition;
    use crate::random::Seed;
    use crate::workers::ThisThread;

    #[test]
    fn a_mean_that_is_lowered_is_the_mean() {
        let mut stream = Seed(1).stream("test", 0, 0);
        let mut own = vec![Statistic::new(Precondition::Full, 9, 0.5); 3];
        let mut mean = widths(own.iter_mut(), true).remove(0);
        for _ in 0..50 {
            let mut news = Vec::new();
            for statistic in &mut own {
                let phi: Vec<f64> = (0..9).map(|_| stream.normal()).collect();
                statistic.learn_and_tell(&Sparse::from_dense(&phi), 1.0, |column| news.push(column.clone()));
            }
            mean = lowered(&mean, &news, own.len(), &ThisThread);
        }
        let anew = widths(own.iter_mut(), true).remove(0);
        assert!(mean.iter().zip(anew.iter()).all(|(a, b)| (a - b).abs() <= 1e-12), "{mean:?} and {anew:?}");
        let all = widths(own.iter_mut(), false);
        for (place, entry) in anew.iter().enumerate() {
            let sum: f64 = all.iter().map(|matrix| matrix[place]).sum();
            assert!((sum / 3.0 - entry).abs() <= 1e-12);
        }
    }
}
