//! Results for people: a line for each group of cells, means over its seeds.

use posse_sim::Tally;

use crate::experiment::{FigurePlan, Group};
use crate::metric::Column;
use crate::row::Row;
use crate::statistics::mean;

const HEADER: [&str; 7] = ["cell", "regret", "messages", "scalars", "bytes", "reward", "seconds"];

/// A table with a line for each group that has rows, which come in the order of the plan. Where groups differ
/// in the number of agents, regret per agent is what can be compared.
///
/// What the figures of the experiment show, and the usual columns do not, stands before the seconds.
pub(crate) fn summary(groups: &[Group], figures: &[FigurePlan], rows: &[Row<'_>]) -> String {
    let each = differ_in_agents(groups);
    let mut more: Vec<Column> = Vec::new();
    for column in figures.iter().flat_map(FigurePlan::measured) {
        let known = HEADER.contains(&column.name) || column.name == "regret_each" || more.contains(&column);
        if !known {
            more.push(column);
        }
    }
    let chunks = rows.chunk_by(|one, other| one.cell.group == other.cell.group);
    let lines = chunks.map(|own| {
        let mut line = line(&groups[own[0].cell.group].id, own).to_vec();
        if each {
            let values = own.iter().map(|row| row.tally().regret_each());
            line.insert(2, Estimate::of(values).with_error());
        }
        for column in &more {
            let values = own.iter().map(|row| column.of(row.tally()));
            line.insert(line.len() - 1, Estimate::of(values).with_error());
        }
        line
    });
    let mut header = HEADER.map(String::from).to_vec();
    if each {
        header.insert(2, "each".into());
    }
    for column in &more {
        header.insert(header.len() - 1, column.name.replace('_', " "));
    }
    align(&std::iter::once(header).chain(lines).collect::<Vec<_>>())
}

/// Whether not all groups have as many agents.
pub(crate) fn differ_in_agents<'g>(groups: impl IntoIterator<Item = &'g Group>) -> bool {
    let mut agents = groups.into_iter().map(|group| group.config.agents);
    let first = agents.next();
    agents.any(|own| Some(own) != first)
}

/// The line of a group.
fn line(id: &str, rows: &[Row<'_>]) -> [String; 7] {
    let over = |value: fn(&Tally) -> f64| Estimate::of(rows.iter().map(|row| value(row.tally())));
    [
        id.to_owned(),
        over(|tally| tally.regret).with_error(),
        over(|tally| tally.messages() as f64).with_error(),
        compact(over(|tally| (tally.up.scalars + tally.down.scalars) as f64).mean),
        compact(over(|tally| (tally.up.bytes + tally.down.bytes) as f64).mean),
        over(|tally| tally.reward).with_error(),
        format!("{:.2}", mean(rows.iter().map(|row| row.record.seconds))),
    ]
}

/// Digits after the point that an error may ask for.
const MAX_DIGITS: usize = 4;

/// A mean over repetitions and its standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    /// The mean over repetitions.
    pub(crate) mean: f64,
    /// The standard error of the mean; `None` if there is only one repetition.
    pub(crate) error: Option<f64>,
}

impl Estimate {
    /// The mean and its standard error over these values.
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let squares: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
        let error = (count > 1.0).then(|| (squares / (count - 1.0) / count).sqrt());
        Self { mean, error }
    }

    /// Mean and error with as many digits and in the same unit: 16.9±0.1k. An error that would be rounded away gives
    /// both more digits: 65.10±0.03k. Where all values are the same there is none.
    pub(crate) fn with_error(&self) -> String {
        let mut scale = Scale::of(self.mean);
        match self.error {
            Some(error) if error > 0.0 && error.is_finite() => {
                let shown = |scale: &Scale| (error / scale.factor) * 10f64.powi(scale.digits as i32) >= 0.95;
                while !shown(&scale) && scale.digits < MAX_DIGITS {
                    scale.digits += 1;
                }
                if !shown(&scale) {
                    return compact(self.mean);
                }
                format!("{}±{}{}", scale.number(self.mean), scale.number(error), scale.unit)
            }
            _ => compact(self.mean),
        }
    }
}

/// Three or four digits and a unit of thousands: 569, 16.9k, 6.36M.
pub(crate) fn compact(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let scale = Scale::of(value);
    scale.number(value) + scale.unit
}

/// How a number is written.
struct Scale {
    factor: f64,
    unit: &'static str,
    digits: usize,
}

impl Scale {
    /// The scale in which `value` has three or four digits.
    fn of(value: f64) -> Self {
        let (mut factor, mut unit) = (1.0, "");
        for larger in ["k", "M", "G", "T", "P"] {
            // Rounded up, 9999.5 would have five digits.
            if value.abs() / factor < if unit.is_empty() { 9_999.5 } else { 999.5 } {
                break;
            }
            factor *= 1000.0;
            unit = larger;
        }
        let digits = match value.abs() / factor {
            _ if unit.is_empty() && value.fract() == 0.0 => 0,
            scaled if scaled < 9.995 => 2,
            scaled if scaled < 99.95 => 1,
            _ => 0,
        };
        Self { factor, unit, digits }
    }

    /// A number in this unit, with these digits.
    fn number(&self, value: f64) -> String {
        format!("{:.*}", self.digits, value / self.factor)
    }
}

/// Columns of equal width: words to the left, numbers to the right.
pub(crate) fn align<L: AsRef<[String]>>(lines: &[L]) -> String {
    let lines = || lines.iter().map(AsRef::as_ref);
    let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines() {
        text.push_str(&format!("{:<1$}", line[0], width(0)));
        for (column, cell) in line.iter().enumerate().skip(1) {
            text.push_str(&format!("  {:>1$}", cell, width(column)));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.126, "0.13"),
            (7.0, "7"),
            (569.4, "569"),
            (9_999.4, "9999"),
            (16_939.0, "16.9k"),
            (999_600.0, "1.00M"),
            (6_360_370.0, "6.36M"),
            (-1_234_567.0, "-1.23M"),
            (f64::INFINITY, "inf"),
        ];
        for (value, expected) in cases {
            assert_eq!(compact(value), expected);
        }
    }

    #[test]
    fn the_standard_error_is_that_of_the_mean() {
        let estimate = Estimate::of([1.0, 2.0, 3.0, 6.0].into_iter());
        assert_eq!(estimate.mean, 3.0);
        // Variance 14/3, of the mean a quarter of it.
        assert!((estimate.error.unwrap() - (14.0f64 / 12.0).sqrt()).abs() < 1e-12);
        assert_eq!(Estimate::of([2.0].into_iter()).with_error(), "2");
        assert_eq!(Estimate::of([16_000.0, 17_000.0].into_iter()).with_error(), "16.5±0.5k");
        let close = |a: f64, b: f64| Estimate::of([a, b].into_iter()).with_error();
        assert_eq!(close(65_070.0, 65_130.0), "65.10±0.03k");
        assert_eq!(close(7.0, 7.0), "7");
        assert_eq!(close(1e9, 1e9 + 1.0), "1.00G");
    }
}
