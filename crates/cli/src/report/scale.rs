//! From numbers to places: linear and logarithmic axes, and where their ticks go.

/// An axis that has a place in a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// The numbers at its two ends.
    pub(super) domain: (f64, f64),
    /// The places of its two ends.
    pub(super) range: (f64, f64),
    pub(super) log: bool,
}

/// Data that reach down to this share of their largest value are seen from 0.
const FROM_ZERO: f64 = 0.4;

impl Scale {
    /// An axis that all of `values` fit on. Numbers up to 0 have no place on a logarithmic one.
    pub(super) fn fitting(values: impl Iterator<Item = f64>, range: (f64, f64), log: bool) -> Self {
        let usable = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (low, high) =
            usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let domain = match (low <= high, log) {
            (false, _) => (if log { 0.1 } else { 0.0 }, 1.0),
            (true, true) if low == high => ((low / 2.0).max(f64::MIN_POSITIVE), (high * 2.0).min(f64::MAX)),
            (true, true) => {
                // By logarithms, because the quotient of what is far apart may be infinite.
                let room = (0.04 * (high.ln() - low.ln())).exp();
                ((low / room).max(f64::MIN_POSITIVE), (high * room).min(f64::MAX))
            }
            (true, false) => {
                // An axis begins where the data do, unless that is near 0: then 0 is what eyes compare with.
                let low = if low > 0.0 && low < FROM_ZERO * high { 0.0 } else { low };
                let high = if high > low { high } else { low + 1.0 };
                let room = 0.04 * (high - low);
                (if low == 0.0 { 0.0 } else { low - room }, (high + room).min(f64::MAX))
            }
        };
        Self { domain, range, log }
    }

    /// The place of a number; `None` if it has none.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let (low, high) = self.domain;
        let share = match self.log {
            true if value <= 0.0 => return None,
            true => (value.ln() - low.ln()) / (high.ln() - low.ln()),
            false => (value - low) / (high - low),
        };
        share.is_finite().then_some(self.range.0 + share * (self.range.1 - self.range.0))
    }

    /// The place of a number, or of the end of the axis that it lies beyond.
    pub(super) fn clamped(&self, value: f64) -> f64 {
        self.place(value.clamp(self.domain.0, self.domain.1)).unwrap_or(self.range.0)
    }

    /// Round numbers on the axis, not too many.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.log { self.log_ticks() } else { self.linear_ticks() }
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let (low, high) = self.domain;
        let rough = (high - low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(10.0 * power);
        let first = (low / step).ceil() as i64;
        let last = (high / step).floor() as i64;
        (first..=last).map(|place| place as f64 * step).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let (low, high) = self.domain;
        let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
        let span = high.log10() - low.log10();
        let multiples: &[f64] = match span {
            span if span < 1.2 => &[1.0, 2.0, 3.0, 5.0, 7.0],
            span if span < 2.6 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = if span > 9.0 { 2 } else { 1 };
        decades
            .filter(|decade| decade % every == 0)
            .flat_map(|decade| multiples.iter().map(move |multiple| multiple * 10f64.powi(decade)))
            .filter(|tick| (low..=high).contains(tick))
            .collect()
    }
}

/// A tick as people write it: 0.01, 250, 30k, 1.5M.
pub(super) fn tick_label(value: f64) -> String {
    let size = value.abs();
    let (factor, unit) = match size {
        size if size >= 1e12 => (1e12, "T"),
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    if size != 0.0 && size < 1e-4 {
        return format!("{value:e}");
    }
    // Ticks are round, and what is left of the digits is noise.
    let scaled = value / factor;
    let text = format!("{scaled:.6}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = Scale::fitting([3.0, 97.0].into_iter(), (0.0, 100.0), false);
        assert_eq!(linear.ticks(), [0.0, 50.0, 100.0]);
        let log = Scale::fitting([3.0, 40_000.0].into_iter(), (0.0, 100.0), true);
        assert_eq!(log.ticks(), [10.0, 100.0, 1000.0, 10_000.0]);
        let far = Scale::fitting([1.25, 1.84].into_iter(), (0.0, 100.0), false);
        assert!(far.domain.0 > 1.2 && far.ticks().first().is_some_and(|tick| *tick > 1.2), "{far:?}");
        let narrow = Scale::fitting([400.0, 900.0].into_iter(), (0.0, 100.0), true);
        assert_eq!(narrow.ticks(), [500.0, 700.0]);
    }

    #[test]
    fn axes_survive_whatever_they_are_given() {
        let awkward = [
            vec![],
            vec![0.0],
            vec![-5.0, -1.0],
            vec![f64::NAN],
            vec![1e300, 1e-300],
            vec![f64::MAX, 1e-320],
            vec![7.0, 7.0],
        ];
        for values in awkward {
            for log in [false, true] {
                let scale = Scale::fitting(values.iter().copied(), (10.0, 90.0), log);
                assert!(scale.ticks().len() < 400, "{values:?}");
                for value in &values {
                    assert!(scale.clamped(*value).is_finite(), "{values:?} {log}");
                }
            }
        }
    }

    #[test]
    fn labels_are_short() {
        let labels: Vec<String> =
            [0.0, 0.3, 0.01, 250.0, 5000.0, 30_000.0, 1.5e6, 3e-7, -20.0].map(tick_label).into();
        assert_eq!(labels, ["0", "0.3", "0.01", "250", "5000", "30k", "1.5M", "3e-7", "-20"]);
    }
}
