//! Means, ranks and the paired t test.

/// The mean; NaN of nothing.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / count as f64
}

/// Spearman's rank correlation; NaN if one side is constant or there are fewer than two points.
pub(crate) fn spearman(points: &[(f64, f64)]) -> f64 {
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (x, y) = (ranks(&x), ranks(&y));
    let (mean_x, mean_y) = (mean(x.iter().copied()), mean(y.iter().copied()));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        x.iter().zip(&y).map(|(x, y)| of(x - mean_x, y - mean_y)).sum()
    };
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

/// The slope of the straight line through points that is nearest to them; NaN without two different x.
pub(crate) fn slope(points: &[(f64, f64)]) -> f64 {
    let mean_x = mean(points.iter().map(|(x, _)| *x));
    let mean_y = mean(points.iter().map(|(_, y)| *y));
    let along: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    along / points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>()
}

/// A mean with its 95 % interval by Student's t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// The mean of the values.
    pub(crate) mean: f64,
    /// Where the interval begins; the mean itself if there is one value only.
    pub(crate) low: f64,
    /// Where the interval ends; the mean itself if there is one value only.
    pub(crate) high: f64,
}

impl Interval {
    /// The interval around the mean of these values.
    pub(crate) fn of_mean(values: &[f64]) -> Self {
        let (n, mean) = (values.len() as f64, mean(values.iter().copied()));
        if n < 2.0 {
            return Self { mean, low: mean, high: mean };
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let half = quantile(n - 1.0) * (squares / (n - 1.0) / n).sqrt();
        Self { mean, low: mean - half, high: mean + half }
    }
}

/// The value that |t| with so many degrees of freedom stays below in 95 of 100 cases.
pub(crate) fn quantile(freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1000.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if two_sided(middle, freedom) > 0.05 { low = middle } else { high = middle }
    }
    high
}

/// The rank of each value, ties sharing theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count() as f64;
        let equal = values.iter().filter(|other| *other == value).count() as f64;
        below + (equal + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// The result of a paired t test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Paired {
    /// How many pairs there are.
    pub(crate) pairs: usize,
    /// The mean of the differences within pairs.
    pub(crate) difference: f64,
    /// The mean difference divided by its standard error.
    pub(crate) t: f64,
    /// How likely a difference at least as large is if there is none. NaN with fewer than two pairs.
    pub(crate) p: f64,
}

impl Paired {
    /// Tests differences, each taken within one pair.
    pub(crate) fn of(differences: &[f64]) -> Self {
        let pairs = differences.len();
        let count = pairs as f64;
        let difference = mean(differences.iter().copied());
        let squares: f64 = differences.iter().map(|value| (value - difference).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let (t, p) = if differences.iter().all(|value| *value == 0.0) {
            (0.0, 1.0)
        } else if pairs < 2 {
            (f64::NAN, f64::NAN)
        } else {
            let t = difference / error;
            (t, two_sided(t, count - 1.0))
        };
        Self { pairs, difference, t, p }
    }
}

/// The probability that Student's t with so many degrees of freedom is at least as far from 0 as `t`.
fn two_sided(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// I_x(a, b), by the continued fraction of Lentz.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges quickly below this point; above, use the other tail.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * x.ln() + b * (-x).ln_1p();
    let keep_off_zero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / keep_off_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / keep_off_zero(1.0 + term * d);
            c = keep_off_zero(1.0 + term / c);
            fraction *= c * d;
        }
        if (fraction - before).abs() < 1e-15 * fraction.abs() {
            break;
        }
    }
    front.exp() * fraction / a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_ties_are_shared() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!(spearman(&[(1.0, 9.0), (2.0, 4.0), (3.0, 1.0)]), -1.0);
        assert!((spearman(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0), (4.0, 4.0)]) - 0.8).abs() < 1e-12);
        assert!(spearman(&[(1.0, 1.0), (2.0, 1.0)]).is_nan());
    }

    /// Quantiles from tables of Student's t.
    #[test]
    fn p_values_are_those_of_the_tables() {
        for (t, freedom, p) in
            [(12.706, 1.0, 0.05), (2.262, 9.0, 0.05), (3.250, 9.0, 0.01), (1.96, 1e6, 0.05)]
        {
            assert!((two_sided(t, freedom) - p).abs() < 1e-4, "{t} {freedom}: {}", two_sided(t, freedom));
        }
        assert_eq!(two_sided(0.0, 5.0), 1.0);
        assert!((quantile(9.0) - 2.262).abs() < 1e-3 && (quantile(1.0) - 12.706).abs() < 1e-3);
    }

    #[test]
    fn slopes_are_exponents_and_intervals_those_of_the_tables() {
        let power = |x: f64| (x.ln(), (3.0 * x.powf(1.5)).ln());
        assert!((slope(&[power(1.0), power(4.0), power(10.0)]) - 1.5).abs() < 1e-12);
        assert!(slope(&[(1.0, 2.0)]).is_nan());
        assert!((quantile(9.0) - 2.262).abs() < 1e-3 && (quantile(1.0) - 12.706).abs() < 1e-2);
        let interval = Interval::of_mean(&[1.0, 2.0, 3.0]);
        assert!(
            (interval.mean - 2.0).abs() < 1e-12 && (interval.high - 2.0 - 4.303 / 3.0f64.sqrt()).abs() < 1e-3
        );
    }

    #[test]
    fn a_paired_test_sees_what_every_pair_shares() {
        let paired = Paired::of(&[1.0, 1.2, 0.8, 1.1]);
        assert!((paired.difference - 1.025).abs() < 1e-12 && paired.p < 0.01);
        assert_eq!(Paired::of(&[0.0, 0.0]).p, 1.0);
        assert_eq!(Paired::of(&[2.0, 2.0]).p, 0.0);
        assert!(Paired::of(&[2.0]).p.is_nan());
    }
}
