//! Judging checks by the rows of an experiment.

use std::collections::BTreeMap;

use posse_sim::network::NetworkConfig;
use serde_json::Value;

use super::verdict::{Judgement, Verdict};
use super::{Axis, Check, Claim, Level, Selector, choice, disagreement, is_called};
use crate::experiment::values::quantity;
use crate::experiment::{Experiment, Group};
use crate::metric::Metric;
use crate::row::{Row, settings};
use crate::settings::Section;
use crate::statistics::{Interval, Paired, mean, slope, spearman};
use crate::table::compact;

/// What became of every check of an experiment. Groups without rows speak against a claim.
///
/// A verdict needs enough seeds to tell it from noise, and the full experiment: otherwise it is INCONCLUSIVE.
pub(crate) fn judge(experiment: &Experiment, rows: &[Row<'_>]) -> Vec<Verdict> {
    let court = Court { experiment, rows };
    let verdict = |check: &Check| {
        let (ruling, mut numbers) = court.hear(check);
        let result = match (ruling, check.level) {
            _ if experiment.quick => Judgement::Inconclusive,
            (Ruling::Unclear, _) => Judgement::Inconclusive,
            (Ruling::Holds, _) => Judgement::Pass,
            (Ruling::Broken, Level::Must) => Judgement::Fail,
            (Ruling::Broken, Level::Expect) => Judgement::Deviates,
        };
        if experiment.quick {
            numbers.push("scaled down: the claim is about the full experiment".into());
        } else if experiment.repetitions < 2 && result == Judgement::Inconclusive {
            numbers.push("one seed cannot tell a difference from noise: set `repetitions = 5`, say".into());
        }
        let kind = check.claim.kind();
        let says = check.says.clone().unwrap_or_else(|| format!("{kind}, {}", check.selector));
        // A reason belongs to a claim that did not come out; one that holds needs none.
        let why = check.why.clone().filter(|_| result != Judgement::Pass);
        Verdict { says, kind: kind.into(), result, numbers, why }
    };
    experiment.checks.iter().map(verdict).collect()
}

/// What the numbers say about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    Holds,
    Broken,
    /// The numbers are as likely either way: too few seeds, or nothing to compare.
    Unclear,
}

impl Ruling {
    /// A claim that holds or not, and whether there are seeds enough to say so.
    pub(super) const fn of(holds: bool, clear: bool) -> Self {
        match (holds, clear) {
            (_, false) => Self::Unclear,
            (true, true) => Self::Holds,
            (false, true) => Self::Broken,
        }
    }
}

/// Differences with at least this probability under chance alone are noise.
const NOISE: f64 = 0.05;

/// Whether the mean of these differences is not 0 by chance.
pub(super) fn is_clear(differences: &[f64]) -> bool {
    // A difference that is missing belongs to a cell that failed: that speaks against the claim, clearly.
    differences.iter().any(|difference| difference.is_nan()) || Paired::of(differences).p < NOISE
}

/// What the numbers say, and the numbers.
pub(super) type Finding = (Ruling, Vec<String>);

/// What judging needs: the experiment and what came of its cells.
pub(super) struct Court<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) rows: &'a [Row<'a>],
}

impl<'a> Court<'a> {
    fn hear(&self, check: &Check) -> Finding {
        match &check.claim {
            Claim::Monotone { y, x, along, rising, slack } => {
                self.each_series(&check.selector, along, |points| {
                    let mut order: Vec<usize> = points.to_vec();
                    order.sort_by(|a, b| self.value(*a, x).total_cmp(&self.value(*b, x)));
                    let points = self.points(&order, x, y);
                    let worst = points.windows(2).map(|pair| excess(pair[0].1, pair[1].1, *rising));
                    let worst = worst.fold(0.0, f64::max);
                    let all_there = points.iter().all(|(x, y)| !x.is_nan() && !y.is_nan());
                    let (first, last) = (points[0], points[points.len() - 1]);
                    let line = format!(
                        "{} {} to {} as {} goes from {} to {}; against it by {:.1} % at most ({:.1} % allowed)",
                        y.name(), compact(first.1), compact(last.1), x.name(), compact(first.0),
                        compact(last.0), 100.0 * worst, 100.0 * slack
                    );
                    let holds = all_there && worst <= *slack;
                    // A step in the wrong direction counts if every seed agrees on it, more or less.
                    let wrong = |pair: &[usize]| {
                        let [first, next] = [pair[0], pair[1]].map(|group| self.value(group, y));
                        excess(first, next, *rising) > *slack && is_clear(&self.differences(pair[0], pair[1], y))
                    };
                    let clear = if holds { self.repeated() } else { !all_there || order.windows(2).any(wrong) };
                    (Ruling::of(holds, clear), line)
                })
            }
            Claim::Spearman { x, y, along, at_least, at_most } => {
                self.each_series(&check.selector, along, |points| {
                    let rho = spearman(&self.points(points, x, y));
                    let line =
                        format!("ρ({}, {}) = {rho:.3} over {} groups", x.name(), y.name(), points.len());
                    (Ruling::of(rho >= *at_least && rho <= *at_most, self.repeated()), line)
                })
            }
            Claim::Slope { y, x, along, across, at_least, at_most } => {
                self.each_series_across(&check.selector, along, across, |points| {
                    let slopes = self.slopes(points, x, y);
                    let found = Interval::of_mean(&slopes);
                    let line = format!(
                        "{} grows as {} to the power {:.2} (95 %: {:.2} to {:.2}) over {} points, {} seeds",
                        y.name(),
                        x.name(),
                        found.mean,
                        found.low,
                        found.high,
                        points.len(),
                        slopes.len()
                    );
                    (Ruling::of(found.high >= *at_least && found.low <= *at_most, slopes.len() > 1), line)
                })
            }
            Claim::Range { metric, low, high } => {
                let lines = self.groups(&check.selector).map(|index| {
                    let value = self.mean(index, metric);
                    let id = &self.experiment.groups[index].id;
                    let holds = value >= *low && value <= *high;
                    // Seeds that all agree are clear. Otherwise every end of the range must be told from the mean.
                    let values = self.values(index, metric);
                    let agree = values.iter().all(|(_, own)| (*own >= *low && *own <= *high) == holds);
                    let apart = |end: f64| {
                        let beyond = || values.iter().map(|(_, own)| own - end).collect::<Vec<_>>();
                        !end.is_finite() || is_clear(&beyond())
                    };
                    let clear = value.is_nan() || (agree && self.repeated()) || (apart(*low) && apart(*high));
                    (Ruling::of(holds, clear), format!("{id}: {} {}", metric.name, compact(value)))
                });
                gather(lines)
            }
            Claim::BoundO5 => self.bound_o5(&check.selector),
            Claim::Front(front) => self.front(front),
            Claim::Order { metric, below, above, factor, margin, at_equal } => match at_equal {
                None => self.order(metric, below, above, (*factor, *margin)),
                Some(equal) => self.order_of_curves(metric, below, above, *factor, equal),
            },
        }
    }

    /// The places of the groups that a selector means.
    pub(super) fn groups<'s>(&'s self, selector: &'s Selector) -> impl Iterator<Item = usize> + 's {
        (0..self.experiment.groups.len()).filter(|index| selector.matches(&self.experiment.groups[*index]))
    }

    /// The mean of a metric over the seeds of a group; NaN without rows.
    pub(super) fn mean(&self, group: usize, metric: &Metric) -> f64 {
        let own = self.rows.iter().filter(|row| row.cell.group == group);
        mean(own.map(|row| (metric.of)(row.tally()).as_f64()))
    }

    /// A metric of every seed of a group.
    pub(super) fn values(&self, group: usize, metric: &Metric) -> Vec<(u64, f64)> {
        let own = self.rows.iter().filter(|row| row.cell.group == group);
        own.map(|row| (row.cell.config.seed.0, (metric.of)(row.tally()).as_f64())).collect()
    }

    /// How much another group has more than one, for each seed that both have.
    fn differences(&self, one: usize, other: usize, axis: &Axis) -> Vec<f64> {
        let Axis::Metric(metric) = axis else { return Vec::new() };
        let (one, other) = (self.values(one, metric), self.values(other, metric));
        one.iter()
            .filter_map(|(seed, own)| Some(other.iter().find(|(theirs, _)| theirs == seed)?.1 - own))
            .collect()
    }

    /// Whether there are several seeds.
    const fn repeated(&self) -> bool {
        self.experiment.repetitions > 1
    }

    fn value(&self, group: usize, axis: &Axis) -> f64 {
        match axis {
            Axis::Metric(metric) => self.mean(group, metric),
            Axis::Setting(key) => choice(&self.experiment.groups[group], key)
                .and_then(|value| quantity(value))
                .unwrap_or(f64::NAN),
        }
    }

    fn points(&self, groups: &[usize], x: &Axis, y: &Axis) -> Vec<(f64, f64)> {
        groups.iter().map(|group| (self.value(*group, x), self.value(*group, y))).collect()
    }

    /// For each seed that all groups have, the slope of ln y over ln x.
    fn slopes(&self, groups: &[usize], x: &Axis, y: &Axis) -> Vec<f64> {
        let rows = |group: usize| self.rows.iter().filter(move |row| row.cell.group == group);
        let of = |group: usize, seed: u64, axis: &Axis| match axis {
            Axis::Metric(metric) => {
                let row = rows(group).find(|row| row.cell.config.seed.0 == seed);
                row.map_or(f64::NAN, |row| (metric.of)(row.tally()).as_f64())
            }
            Axis::Setting(_) => self.value(group, axis),
        };
        let seeds =
            groups.first().into_iter().flat_map(|group| rows(*group)).map(|row| row.cell.config.seed.0);
        let points = |seed: u64| -> Vec<(f64, f64)> {
            groups.iter().map(|group| (of(*group, seed, x).ln(), of(*group, seed, y).ln())).collect()
        };
        seeds.map(|seed| slope(&points(seed))).collect()
    }

    /// Hears every series of groups that differ in `along` only.
    fn each_series(
        &self,
        selector: &Selector,
        along: &str,
        hear: impl Fn(&[usize]) -> (Ruling, String),
    ) -> Finding {
        self.each_series_across(selector, along, &[], hear)
    }

    /// Hears every series of groups that differ in `along`, and in nothing else but the settings in `across`.
    fn each_series_across(
        &self,
        selector: &Selector,
        along: &str,
        across: &[String],
        hear: impl Fn(&[usize]) -> (Ruling, String),
    ) -> Finding {
        let mut series: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut order = Vec::new();
        for index in self.groups(selector) {
            let group = &self.experiment.groups[index];
            if choice(group, along).is_none() {
                continue;
            }
            let rest = name_without(group, |path| {
                is_called(path, along) || across.iter().any(|key| is_called(path, key))
            });
            let own = series.entry(rest.clone()).or_default();
            if own.is_empty() {
                order.push(rest);
            }
            own.push(index);
        }
        gather(order.iter().map(|name| {
            let (holds, line) = hear(&series[name]);
            (holds, format!("{name}: {line}"))
        }))
    }

    /// Compares every pair of groups that agree in what neither selector mentions.
    fn order(&self, metric: &Metric, below: &Selector, above: &Selector, limits: (f64, f64)) -> Finding {
        let (factor, margin) = limits;
        let pairs = self.groups(below).flat_map(|low| self.groups(above).map(move |high| (low, high)));
        let group = |index: usize| &self.experiment.groups[index];
        let alike =
            pairs.filter(|(low, high)| disagreement(group(*low), group(*high), [below, above]).is_empty());
        gather(alike.map(|(low, high)| {
            let (a, b) = (self.mean(low, metric), self.mean(high, metric));
            let ids = [low, high].map(|index| &self.experiment.groups[index].id);
            let line =
                format!("{} {} of {} against {} of {}", metric.name, compact(a), ids[0], compact(b), ids[1]);
            let (low, high) = (self.values(low, metric), self.values(high, metric));
            let beyond = |(seed, own): &(u64, f64)| {
                let other = high.iter().find(|(theirs, _)| theirs == seed)?.1;
                Some(own - (factor * other - margin))
            };
            let differences: Vec<f64> = low.iter().filter_map(beyond).collect();
            let clear = a.is_nan() || b.is_nan() || is_clear(&differences);
            (Ruling::of(a <= factor * b - margin, clear), line)
        }))
    }

    /// Compares curves where `equal` is equal: the geometric mean of what one needs, as a share of the other.
    fn order_of_curves(
        &self,
        metric: &'static Metric,
        below: &Selector,
        above: &Selector,
        factor: f64,
        equal: &'static Metric,
    ) -> Finding {
        let mut worlds: Vec<Vec<(String, String)>> = Vec::new();
        for index in self.groups(below) {
            let world = world_of(&self.experiment.groups[index]);
            if !worlds.contains(&world) {
                worlds.push(world);
            }
        }
        gather(worlds.iter().map(|world| {
            let here = |selector: &Selector| -> Vec<(f64, f64)> {
                let own = self.groups(selector).filter(|i| world_of(&self.experiment.groups[*i]) == *world);
                let mut points: Vec<(f64, f64)> =
                    own.map(|index| (self.mean(index, equal), self.mean(index, metric))).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                points
            };
            let (low, high) = (here(below), here(above));
            let shares: Vec<f64> = low
                .iter()
                .filter_map(|(at, value)| Some((value + 1.0).ln() - (interpolate(&high, *at)? + 1.0).ln()))
                .collect();
            if shares.is_empty() {
                // One of them sends more, or needs more, than the other ever does.
                let line = format!("no point of one has as many {} as the other somewhere has", equal.name);
                return (Ruling::Unclear, line);
            }
            let share = mean(shares.iter().copied()).exp();
            let name: Vec<String> = world.iter().map(|(key, value)| format!("{key}={value} ")).collect();
            let line = format!(
                "{}{} at equal {}: {share:.2} times as many, over {} points",
                name.concat(),
                metric.name,
                equal.name,
                shares.len()
            );
            (Ruling::of(share <= factor, share.is_nan() || self.repeated()), line)
        }))
    }

    /// Checks the bound O5 for every cell of the selected groups. Reports the cells that break it, or the
    /// cell that comes closest.
    fn bound_o5(&self, selector: &Selector) -> Finding {
        let mut closest: Option<(f64, String)> = None;
        let (mut count, mut broken) = (0, Vec::new());
        for index in self.groups(selector) {
            let Group { id, config, .. } = &self.experiment.groups[index];
            let own = self.rows.iter().filter(|row| row.cell.group == index);
            let most = own.map(|row| row.tally().messages()).max();
            let (Some((information, patience)), Some(most)) = (o5_terms(config), most) else {
                broken.push((Ruling::Broken, format!("{id}: there is nothing to compare")));
                continue;
            };
            let (most, bound) = (most as f64, config.agents as f64 * information / patience);
            let line = format!("{id}: {} of at most {} messages", compact(most), compact(bound));
            count += 1;
            let share = if most == 0.0 { 0.0 } else { most / bound };
            if share > 1.0 {
                broken.push((Ruling::Broken, line));
            } else if closest.as_ref().is_none_or(|(known, _)| share > *known) {
                closest = Some((share, line));
            }
        }
        if broken.is_empty() {
            // The bound holds for every single cell, so one seed is enough; without a message it says nothing.
            let line = closest.map(|(share, line)| {
                (Ruling::of(true, share > 0.0), format!("{count} groups, the closest is {line}"))
            });
            return gather(line.into_iter());
        }
        gather(broken.into_iter())
    }
}

/// d·ln(1 + T/(dλ)) and ln γ; `None` if the bound says nothing about this run.
pub(super) fn o5_terms(config: &posse_sim::RunConfig) -> Option<(f64, f64)> {
    let own = settings(config, Section::Algorithm);
    let number =
        |key: &str| own.get(key).and_then(|value| value.as_f64().or_else(|| value.as_str()?.parse().ok()));
    let threshold = number("upload_threshold")?.min(number("download_threshold")?);
    let lambda = number("regularization")?;
    let world = settings(config, Section::Environment);
    // Of heterogeneous agents only the shared features travel.
    let d = world.get("shared").or_else(|| world.get("dimension")).and_then(Value::as_f64)?;
    let same_for_all = own.get("override").and_then(Value::as_array).is_none_or(Vec::is_empty);
    let nothing_resent = config.network == NetworkConfig::default() && config.faults.is_empty();
    let terms = (d * (config.horizon as f64 / (d * lambda)).ln_1p(), threshold.ln());
    (same_for_all && nothing_resent).then_some(terms)
}

/// By which share of `first` the next value is on the wrong side of it.
fn excess(first: f64, next: f64, rising: bool) -> f64 {
    let step = if rising { first - next } else { next - first };
    if step <= 0.0 { 0.0 } else { step / first.abs().max(f64::MIN_POSITIVE) }
}

/// The group's name without some of its settings.
fn name_without(group: &Group, is_left_out: impl Fn(&str) -> bool) -> String {
    let rest = group.choices.iter().filter(|(path, _)| !is_left_out(path));
    let parts: Vec<String> = rest
        .map(|(path, value)| if path == "algorithm" { value.clone() } else { format!("{path}={value}") })
        .collect();
    parts.join(" ")
}

/// The choices that are not the algorithm's.
pub(super) fn world_of(group: &Group) -> Vec<(String, String)> {
    let of_world = |(path, _): &&(String, String)| path != "algorithm" && !path.starts_with("algorithm.");
    group.choices.iter().filter(of_world).cloned().collect()
}

/// The value at `at` of a curve through sorted points, in logarithms between them; `None` outside.
fn interpolate(points: &[(f64, f64)], at: f64) -> Option<f64> {
    let pair = points.windows(2).find(|pair| pair[0].0 <= at && at <= pair[1].0)?;
    let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
    let share = if x1 > x0 { (at - x0) / (x1 - x0) } else { 0.0 };
    Some((((y0 + 1.0).ln() * (1.0 - share)) + (y1 + 1.0).ln() * share).exp() - 1.0)
}

/// All of several findings; none at all is no support.
pub(super) fn gather(findings: impl Iterator<Item = (Ruling, String)>) -> Finding {
    let (rulings, lines): (Vec<Ruling>, Vec<String>) = findings.unzip();
    let mark = |(line, ruling): (String, &Ruling)| match ruling {
        Ruling::Holds => line,
        Ruling::Broken => format!("{line}  ←"),
        Ruling::Unclear => format!("{line}  ?"),
    };
    let lines = lines.into_iter().zip(&rulings).map(mark).collect();
    let ruling = if rulings.is_empty() || rulings.contains(&Ruling::Broken) {
        Ruling::Broken
    } else if rulings.contains(&Ruling::Unclear) {
        Ruling::Unclear
    } else {
        Ruling::Holds
    };
    (ruling, lines)
}
