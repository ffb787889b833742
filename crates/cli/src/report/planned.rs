//! The figures that an experiment asks for in its `[[figure]]` tables.

use posse_core::{Placement, TimeSpan};

use super::build::{curve, point, shown_at_first, spans, style_of};
use super::family::{Family, families_along};
use super::figure::{Axis, Figure, FigureView, Form, Plot, Point, Series, Xy};
use super::material::Material;
use super::style::Style;
use crate::experiment::FigurePlan;
use crate::experiment::figures::Horizontal;
use crate::experiment::values::quantity;
use crate::metric::Column;

/// What communication can be counted in: a figure of one can be seen in the others.
const UNITS: [&str; 3] = ["messages", "scalars", "bytes"];

/// A figure for each plan.
pub(super) fn planned(material: &Material<'_>, families: &[Family]) -> Vec<Figure> {
    let plans = &material.made.experiment.figures;
    plans.iter().enumerate().map(|(place, plan)| figure(material, families, plan, place)).collect()
}

fn figure(material: &Material<'_>, families: &[Family], plan: &FigurePlan, place: usize) -> Figure {
    let views = match &plan.x {
        Horizontal::Time => vec![view(plan, plan.y.name, over_time(material, families, plan))],
        Horizontal::Setting(path) => {
            vec![view(plan, plan.y.name, along_setting(material, plan, path))]
        }
        Horizontal::Column(x) => {
            let others = UNITS.into_iter().filter(|name| UNITS.contains(&x.name) && *name != x.name);
            let columns = std::iter::once(*x).chain(others.filter_map(Column::find));
            columns.map(|x| view(plan, x.name, against(material, families, plan, x))).collect()
        }
    };
    let title = plan.title.clone().unwrap_or_else(|| {
        let x = match &plan.x {
            Horizontal::Time => "over time".into(),
            Horizontal::Setting(path) => format!("by {}", last(path)),
            Horizontal::Column(column) => format!("against {}", column.name.replace('_', " ")),
        };
        let mut words = format!("{} {x}", plan.y.name.replace('_', " "));
        words[..1].make_ascii_uppercase();
        words
    });
    let what = match &plan.x {
        Horizontal::Time => "Lines are means over seeds, bands one standard error of the mean.",
        Horizontal::Setting(_) => {
            "A dot for each value, a level for algorithms without the setting; means over seeds with one standard error."
        }
        Horizontal::Column(_) => {
            "A dot for each setting, named by its swept value; means over seeds with one standard error each way."
        }
    };
    let caption = plan.caption.as_ref().map_or_else(|| what.to_owned(), |own| format!("{own} {what}"));
    Figure { id: format!("figure-{}", place + 1), title, caption, views }
}

/// A view with the published numbers drawn over ours, and axes as the plan wants them.
fn view(plan: &FigurePlan, name: &'static str, mut xy: Xy) -> FigureView {
    let first = match &plan.x {
        Horizontal::Column(column) => column.name == name,
        _ => true,
    };
    if first {
        xy.x.log = plan.x_log.unwrap_or(xy.x.log);
        // Published numbers are in the unit of the plan.
        let published = plan.published.iter().enumerate().map(|(place, own)| Series {
            name: format!("published: {}", own.name),
            style: Style::published(place),
            form: Form::Dots,
            shown: true,
            points: own.points.iter().map(|(x, y)| Point { x: *x, y: *y, ..Point::default() }).collect(),
        });
        xy.series.extend(published);
    }
    xy.y.log = plan.y_log.unwrap_or(xy.y.log);
    FigureView { name, plot: Plot::Xy(xy) }
}

fn over_time(material: &Material<'_>, families: &[Family], plan: &FigurePlan) -> Xy {
    let shown = shown_at_first(material.lines.len(), families);
    let each = plan.y.name == "regret_each";
    let lines = material.lines.iter().enumerate().filter(|(_, line)| plan.shows(line.group));
    let series: Vec<Series> = lines
        .map(|(place, line)| Series {
            name: plan.shorten(&line.group.id),
            style: style_of(place, material.lines.len(), families),
            form: Form::Line,
            shown: shown[place],
            points: curve(line, plan.y.parts, if each { line.group.config.agents } else { 1 }),
        })
        .collect();
    let log = spans(series.iter().filter_map(|series| series.points.last()).map(|point| point.y), 20.0);
    let whose = if each { "interactions of each agent" } else { "interactions, all agents together" };
    Xy { x: Axis { label: whose.into(), log }, y: Axis { label: plan.y.words(), log }, series }
}

fn along_setting(material: &Material<'_>, plan: &FigurePlan, path: &str) -> Xy {
    let families = families_along(&material.lines, path);
    let mut series = Vec::new();
    for (place, family) in families.iter().enumerate() {
        let own = family.members.iter().filter(|(line, _)| plan.shows(material.lines[*line].group));
        let dots = own.filter_map(|(line, value)| {
            let x = value.as_deref().and_then(quantity).filter(|x| x.is_finite())?;
            let y = material.lines[*line].total(plan.y.parts);
            Some(Point { label: value.clone(), ..point(x, &y) })
        });
        let mut points: Vec<Point> = dots.collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        let style = Style::of(place);
        if !points.is_empty() {
            let name = plan.shorten(&family.name);
            series.push(Series { name, style, form: Form::Dots, shown: true, points });
        }
        // An algorithm without the setting is the same at all its values: a level that the others compare with.
        let without = family.members.iter().filter(|(_, value)| value.is_none());
        for (line, _) in without.filter(|(line, _)| plan.shows(material.lines[*line].group)) {
            let points = vec![point(0.0, &material.lines[*line].total(plan.y.parts))];
            let (name, style) = (plan.shorten(&family.name), Style { dash: 1, ..style });
            series.push(Series { name, style, form: Form::Level, shown: true, points });
        }
    }
    let dots = || series.iter().filter(|own| own.form == Form::Dots).flat_map(|own| &own.points);
    let times = dots().any(|dot| dot.label.as_ref().is_some_and(|label| label.parse::<TimeSpan>().is_ok()));
    let unit = if times { ", ms" } else { "" };
    let label = format!("{}{unit}", last(path).replace('_', " "));
    let x = Axis { label, log: spans(dots().map(|dot| dot.x), 20.0) };
    let y =
        Axis { label: format!("{}, at the end", plan.y.words()), log: spans(dots().map(|dot| dot.y), 20.0) };
    // The axis says what would stand beside each dot.
    series.iter_mut().flat_map(|series| &mut series.points).for_each(|dot| dot.label = None);
    Xy { x, y, series }
}

fn against(material: &Material<'_>, families: &[Family], plan: &FigurePlan, x: Column) -> Xy {
    let mut series = Vec::new();
    let is_shown =
        |family: &&Family| family.members.iter().any(|(line, _)| plan.shows(material.lines[*line].group));
    // A figure of one world uses the first colours, whichever worlds there are besides.
    let of_one_world = !plan.values.is_empty();
    for (place, family) in families.iter().filter(|family| !of_one_world || is_shown(family)).enumerate() {
        let family_name = plan.shorten(&family.name);
        let own = family.members.iter().filter(|(line, _)| plan.shows(material.lines[*line].group));
        let dots = own.map(|(line, value)| {
            let line = &material.lines[*line];
            let (x, y) = (line.total(x.parts), line.total(plan.y.parts));
            Point { x_error: x.error, label: value.clone(), ..point(x.mean, &y) }
        });
        // On a logarithmic axis nothing sent has no place: it is a level that the others compare with.
        let (silent, mut dots): (Vec<Point>, Vec<Point>) = dots.partition(|dot| dot.x == 0.0);
        dots.sort_by(|one, other| one.x.total_cmp(&other.x));
        let style = Style::of(place);
        let entry = |name, form, points| Series { name, style, form, shown: true, points };
        if !dots.is_empty() {
            series.push(entry(family_name.clone(), Form::Dots, dots));
        }
        let central = family
            .members
            .iter()
            .all(|(line, _)| material.lines[*line].group.config.algorithm.placement() == Placement::Central);
        let why = if central { "not counted" } else { "nothing sent" };
        for mut dot in silent {
            let value = dot.label.take().map_or_else(String::new, |value| format!(", {value}"));
            let name = format!("{family_name}{value} ({why})");
            series.push(Series { style: Style { dash: 1, ..style }, ..entry(name, Form::Level, vec![dot]) });
        }
    }
    let ys = || series.iter().flat_map(|series| series.points.iter().map(|point| point.y));
    let y = Axis { label: format!("{}, at the end", plan.y.words()), log: spans(ys(), 20.0) };
    Xy { x: Axis { label: x.words(), log: true }, y, series }
}

/// The last part of a setting's path.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
