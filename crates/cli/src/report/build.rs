//! The figures of a report: which there are, and what is in them.

use posse_core::Placement;

use super::family::{Family, families, families_along};
use super::figure::{
    Axis, BarRow, Bars, BoxRow, Boxes, Figure, FigureView, Form, Plot, Point, Series, WAYS, Xy,
};
use super::material::{Line, Material, sum};
use super::planned::planned;
use super::style::Style;
use crate::experiment::FigurePlan;
use crate::experiment::figures::Horizontal;
use crate::share::{Flow, QUANTILES};
use crate::table::Estimate;

/// What communication is counted in: the name, the metrics that make it, and the axis.
const UNITS: [Kind; 3] = [
    ("messages", &["messages"], "messages, both ways"),
    ("scalars", &["scalars_up", "scalars_down"], "numbers sent, both ways"),
    ("bytes", &["bytes_up", "bytes_down"], "bytes sent, both ways"),
];

/// Something that a view shows: its name, the metrics that make it, and the axis.
type Kind = (&'static str, &'static [&'static str], &'static str);

/// Regret as a paper counts it that gives every agent its own horizon.
const EACH: Kind = ("each", &["regret_each"], "regret of each agent");

/// More lines than this are too many to begin with: the others wait in the legend.
const AT_FIRST: usize = 10;

/// All figures that these results have: first those that the experiment asks for, then the usual ones.
pub(super) fn figures(material: &Material<'_>) -> Vec<Figure> {
    // Where agents are swept at equal iterations, this is what the experiment is about.
    let by_agents_first = material.counts_each_agent() && material.differ_in_agents();
    let families =
        if by_agents_first { families_along(&material.lines, "agents") } else { families(&material.lines) };
    let mut figures = planned(material, &families);
    figures.push(over_time(material, &families));
    figures.extend(by_agents(material));
    figures.extend(by_number_of_agents(material));
    // The experiment may ask for the very same.
    let is_trade_off = |plan: &FigurePlan| match &plan.x {
        Horizontal::Column(x) => UNITS.iter().any(|(name, ..)| *name == x.name) && plan.y.name == "regret",
        _ => false,
    };
    if !material.made.experiment.figures.iter().any(is_trade_off) {
        figures.extend(trade_off(material, &families));
    }
    figures.extend(spread(material, &families));
    figures.extend(by_kind(material));
    figures
}

/// Regret and communication over time.
fn over_time(material: &Material<'_>, families: &[Family]) -> Figure {
    let shown = shown_at_first(material.lines.len(), families);
    let mut views: Vec<Kind> = std::iter::once(("regret", &["regret"][..], "regret")).chain(UNITS).collect();
    if material.differ_in_agents() {
        let place = if material.counts_each_agent() { 0 } else { views.len() };
        views.insert(place, EACH);
    }
    let view = |kind: Kind| {
        let (name, metrics, label) = kind;
        let series: Vec<Series> = material
            .lines
            .iter()
            .enumerate()
            .map(|(place, line)| Series {
                name: line.group.id.clone(),
                style: style_of(place, material.lines.len(), families),
                form: Form::Line,
                shown: shown[place],
                points: curve(line, metrics, if kind == EACH { line.group.config.agents } else { 1 }),
            })
            .collect();
        let log = spans(series.iter().filter_map(|series| series.points.last()).map(|point| point.y), 20.0);
        // Where lines lie decades apart, so do the beginnings.
        let whose =
            if kind == EACH { "interactions of each agent" } else { "interactions, all agents together" };
        let x = Axis { label: whose.into(), log };
        FigureView { name, plot: Plot::Xy(Xy { x, y: Axis { label: label.into(), log }, series }) }
    };
    Figure {
        id: "over-time".into(),
        title: "Regret over time".into(),
        caption: "Lines are means over seeds, bands one standard error of the mean.".into(),
        views: views.into_iter().map(view).collect(),
    }
}

/// Regret and communication in the end, by how many agents there are.
fn by_number_of_agents(material: &Material<'_>) -> Option<Figure> {
    let families = families_along(&material.lines, "agents");
    if families.iter().all(|family| family.members.len() < 2) {
        return None;
    }
    let agents = |line: usize| material.lines[line].group.config.agents as f64;
    let view = |(name, metrics, label): Kind| {
        let one = |(place, family): (usize, &Family)| {
            let dot = |(line, value): &(usize, Option<String>)| Point {
                label: value.clone(),
                ..point(agents(*line), &material.lines[*line].total(metrics))
            };
            let mut points: Vec<Point> = family.members.iter().map(dot).collect();
            points.sort_by(|one, other| one.x.total_cmp(&other.x));
            Series {
                name: family.name.clone(),
                style: Style::of(place),
                form: Form::Dots,
                shown: true,
                points,
            }
        };
        let series: Vec<Series> = families.iter().enumerate().map(one).collect();
        let dots = || series.iter().flat_map(|series| &series.points);
        let x = Axis { label: "agents".into(), log: spans(dots().map(|dot| dot.x), 20.0) };
        let y = Axis { label: format!("{label}, at the end"), log: spans(dots().map(|dot| dot.y), 20.0) };
        FigureView { name, plot: Plot::Xy(Xy { x, y, series }) }
    };
    let views = [EACH, ("regret", &["regret"], "regret")].into_iter().chain(UNITS);
    Some(Figure {
        id: "by-number-of-agents".into(),
        title: "Regret by the number of agents".into(),
        caption: "A dot for each number of agents; means over seeds with one standard error.".into(),
        views: views.map(view).collect(),
    })
}

/// The same for groups of agents, if they were kept apart.
fn by_agents(material: &Material<'_>) -> Option<Figure> {
    let lines: Vec<&Line<'_>> = material
        .lines
        .iter()
        .filter(|line| line.rows.iter().all(|row| !row.record.groups.is_empty()))
        .collect();
    let count = lines.iter().flat_map(|line| &line.rows).map(|row| row.record.groups[0].len()).max()?;
    let by = match material.made.experiment.curves.by {
        posse_sim::GroupBy::Activity => "by activity, the busiest first",
        posse_sim::GroupBy::Id => "by id",
    };
    let view = |(name, metrics, label): (&'static str, &[&str], &str)| {
        let mut series = Vec::new();
        for (place, line) in lines.iter().enumerate() {
            for group in 0..count {
                let points = (0..line.rows[0].record.curve.len())
                    .filter(|moment| line.rows.iter().all(|row| row.record.groups.len() > *moment))
                    .map(|moment| {
                        let estimate = line.estimate(|row| {
                            row.record.groups[moment].get(group).map_or(f64::NAN, |tally| sum(metrics, tally))
                        });
                        let step = line.rows[0].record.curve[moment].interactions;
                        point(step as f64, &estimate)
                    })
                    .collect();
                series.push(Series {
                    name: format!("{}, agents {} of {count}", line.group.id, group + 1),
                    style: if lines.len() == 1 {
                        Style::of_member(0, group, count, true)
                    } else {
                        Style::of_member(place, group, count, false)
                    },
                    form: Form::Line,
                    shown: place < AT_FIRST.div_ceil(count).max(1),
                    points,
                });
            }
        }
        let x = Axis { label: "interactions, all agents together".into(), log: false };
        let y = Axis { label: format!("{label}, per group"), log: false };
        FigureView { name, plot: Plot::Xy(Xy { x, y, series }) }
    };
    let views = std::iter::once(("regret", &["regret"][..], "regret")).chain(UNITS);
    Some(Figure {
        id: "by-agents".into(),
        title: "Regret over time, by groups of agents".into(),
        caption: format!(
            "Agents are divided into {count} groups {by}. Means over seeds, bands one standard error."
        ),
        views: views.map(view).collect(),
    })
}

/// Regret against communication, a dot for each value of a swept setting.
fn trade_off(material: &Material<'_>, families: &[Family]) -> Option<Figure> {
    if material.lines.len() < 2 {
        return None;
    }
    let view = |(name, metrics, label): (&'static str, &[&str], &str)| {
        let mut series = Vec::new();
        for (place, family) in families.iter().enumerate() {
            let dots = family.members.iter().map(|(line, value)| {
                let line = &material.lines[*line];
                let (x, y) = (line.total(metrics), line.total(&["regret"]));
                Point { x_error: x.error, label: value.clone(), ..point(x.mean, &y) }
            });
            let (silent, dots): (Vec<Point>, Vec<Point>) = dots.partition(|dot| dot.x == 0.0);
            // The same colour as in the figure above.
            let first = style_of(family.members[0].0, material.lines.len(), families);
            let style = Style { dash: 0, marker: Style::of(place).marker, ..first };
            let entry = |name, form, points| Series { name, style, form, shown: true, points };
            let central = |(line, _): &(usize, Option<String>)| {
                material.lines[*line].group.config.algorithm.placement() == Placement::Central
            };
            let why = if family.members.iter().all(central) { "not counted" } else { "nothing sent" };
            if !dots.is_empty() {
                series.push(entry(family.name.clone(), Form::Dots, dots));
            }
            for mut dot in silent {
                let value = dot.label.take().map_or_else(String::new, |value| format!(", {value}"));
                let name = format!("{}{value} ({why})", family.name);
                series.push(Series {
                    style: Style { dash: 1, ..style },
                    ..entry(name, Form::Level, vec![dot])
                });
            }
        }
        let log = spans(series.iter().flat_map(|series| series.points.iter().map(|point| point.y)), 8.0);
        let x = Axis { label: label.into(), log: true };
        FigureView {
            name,
            plot: Plot::Xy(Xy { x, y: Axis { label: "regret at the end".into(), log }, series }),
        }
    };
    Some(Figure {
        id: "trade-off".into(),
        title: "Regret against communication".into(),
        caption: "A dot for each setting, named by its swept value; means over seeds with one standard error each way."
            .into(),
        views: UNITS.into_iter().map(view).collect(),
    })
}

/// How regret and messages are spread over agents.
fn spread(material: &Material<'_>, families: &[Family]) -> Option<Figure> {
    let metrics = [
        ("regret", "regret of an agent"),
        ("messages", "messages of an agent, both ways"),
        ("bytes", "bytes of an agent, both ways"),
        ("interactions", "interactions of an agent"),
    ];
    let view = |(name, label): (&'static str, &str)| {
        let rows = material.lines.iter().enumerate().filter_map(|(place, line)| {
            let spreads: Vec<_> = line
                .rows
                .iter()
                .filter_map(|row| row.record.agents.iter().find(|spread| spread.metric == name))
                .collect();
            if spreads.len() != line.rows.len() {
                return None;
            }
            let over = |of: &dyn Fn(usize) -> f64| {
                Estimate::of((0..spreads.len()).map(of).collect::<Vec<_>>().into_iter()).mean
            };
            let quantile = |place: usize| over(&|seed| spreads[seed].quantiles[place]);
            Some(BoxRow {
                name: line.group.id.clone(),
                colour: style_of(place, material.lines.len(), families).colour,
                mean: over(&|seed| spreads[seed].mean),
                quantiles: (0..QUANTILES.len()).map(quantile).collect(),
            })
        });
        let rows: Vec<BoxRow> = rows.collect();
        let log = spans(rows.iter().flat_map(|row| row.quantiles[1..8].iter().copied()), 200.0)
            && rows.iter().all(|row| row.quantiles[0] > 0.0);
        FigureView { name, plot: Plot::Boxes(Boxes { axis: Axis { label: label.into(), log }, rows }) }
    };
    let views: Vec<FigureView> = metrics.into_iter().map(view).collect();
    let any = views.iter().any(|view| matches!(&view.plot, Plot::Boxes(boxes) if !boxes.rows.is_empty()));
    any.then(|| Figure {
        id: "agents".into(),
        title: "How it is spread over agents".into(),
        caption:
            "Whiskers from 5 to 95 % of the agents, a box of the middle half, the median, a dot at each end; \
                  each the mean over seeds."
                .into(),
        views,
    })
}

/// What is counted of a kind of message.
type CountOf = fn(&Flow) -> u64;

/// What was sent, by direction and kind.
fn by_kind(material: &Material<'_>) -> Option<Figure> {
    let units: [(&str, CountOf, &str); 3] = [
        ("messages", |flow| flow.cost.messages + flow.cost.control, "messages of every kind"),
        ("scalars", |flow| flow.cost.scalars, "numbers in statistics"),
        ("bytes", |flow| flow.cost.bytes, "bytes"),
    ];
    let mut parts: Vec<String> = Vec::new();
    for flow in material.rows.iter().flat_map(|row| &row.record.messages) {
        if !parts.contains(&flow.kind) {
            parts.push(flow.kind.clone());
        }
    }
    if parts.is_empty() {
        return None;
    }
    let view = |(name, of, label): (&'static str, CountOf, &str)| {
        let rows =
            material.lines.iter().filter(|line| line.rows.iter().any(|row| !row.record.messages.is_empty()));
        let row = |line: &Line<'_>| {
            let sent = |way: &str, kind: &str| {
                let of_row = |row: &crate::row::Row<'_>| {
                    let own = row.record.messages.iter().find(|f| f.direction == way && f.kind == kind);
                    own.map(of)
                };
                let known = line.rows.iter().any(|row| of_row(row).is_some());
                known.then(|| line.estimate(|row| of_row(row).unwrap_or(0) as f64).mean)
            };
            let ways = WAYS.map(|way| {
                parts.iter().enumerate().filter_map(|(place, kind)| Some((place, sent(way, kind)?))).collect()
            });
            BarRow { name: line.group.id.clone(), ways }
        };
        let axis = Axis { label: label.into(), log: false };
        FigureView {
            name,
            plot: Plot::Bars(Bars { axis, parts: parts.clone(), rows: rows.map(row).collect() }),
        }
    };
    Some(Figure {
        id: "kinds".into(),
        title: "Communication by direction and kind".into(),
        caption:
            "What agents sent up to the coordinator and what it sent down to them; means over seeds, with \
                  the sum at the end of each bar."
                .into(),
        views: units.into_iter().map(view).collect(),
    })
}

/// A curve of means over the seeds of a setting, over interactions by the share of `agents`.
pub(super) fn curve(line: &Line<'_>, metrics: &[&str], agents: u64) -> Vec<Point> {
    let moments = line.rows.iter().map(|row| row.record.curve.len()).min().unwrap_or(0);
    (0..moments)
        .map(|moment| {
            let estimate = line.estimate(|row| sum(metrics, &row.record.curve[moment]));
            point(line.rows[0].record.curve[moment].interactions as f64 / agents as f64, &estimate)
        })
        .collect()
}

pub(super) fn point(x: f64, y: &Estimate) -> Point {
    Point { x, y: y.mean, y_error: y.error, x_error: None, label: None }
}

/// Whether some values are more than `factor` times others.
pub(super) fn spans(values: impl Iterator<Item = f64>, factor: f64) -> bool {
    let (low, high) = values
        .filter(|value| *value > 0.0)
        .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    high > factor * low
}

/// A few settings have a colour each; of many, those of a family share a hue, or a ramp if there is one family only.
pub(super) fn style_of(line: usize, lines: usize, families: &[Family]) -> Style {
    if lines <= super::style::COLOURS.len() {
        return Style::of(line);
    }
    let alone = families.iter().filter(|family| family.members.len() > 1).count() == 1;
    for (place, family) in families.iter().enumerate() {
        if let Some(member) = family.members.iter().position(|(own, _)| *own == line) {
            return Style::of_member(place, member, family.members.len(), alone);
        }
    }
    Style::of(line)
}

/// Which lines are there at first: all of a few, of many some of each family, from end to end.
pub(super) fn shown_at_first(lines: usize, families: &[Family]) -> Vec<bool> {
    if lines <= AT_FIRST {
        return vec![true; lines];
    }
    let mut shown = vec![false; lines];
    let each = (AT_FIRST / families.len().max(1)).max(1);
    for family in families.iter().take(AT_FIRST) {
        let last = family.members.len() - 1;
        let chosen = each.min(family.members.len());
        for step in 0..chosen {
            let place = if chosen == 1 { last / 2 } else { step * last / (chosen - 1) };
            shown[family.members[place].0] = true;
        }
    }
    shown
}
