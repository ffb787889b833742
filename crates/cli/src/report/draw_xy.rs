//! Draws lines and dots over two axes. `page.js` draws the same again when the reader changes an axis.

use super::figure::{Form, Series, Xy};
use super::scale::{Scale, tick_label};
use super::style::{DASHES, MARKERS};
use super::svg::{Anchor, Picture, short, text_width};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Of the axes from the edges: left, right, top, bottom.
const MARGINS: (f64, f64, f64, f64) = (70.0, 18.0, 14.0, 52.0);
/// How many markers a line has, about.
const MARKS: f64 = 6.0;

/// The size of a dot's name, and of a line's.
const TAG: f64 = 11.0;

/// More lines than this cannot be named at their ends.
const MAX_END_NAMES: usize = 14;

/// Draws a plot, with a legend if it is to stand alone.
pub(super) fn draw(xy: &Xy, label: &str, alone: bool) -> Picture {
    let series: Vec<&Series> = xy.series.iter().filter(|series| series.shown).collect();
    let legend = if alone { legend_lines(&series) } else { Vec::new() };
    let height = HEIGHT + 20.0 * legend.len() as f64 + if legend.is_empty() { 0.0 } else { 6.0 };
    let mut picture = Picture::new(WIDTH, height, label);
    let names = end_names(xy);
    let room = names.iter().map(|(_, name)| text_width(name, TAG) + 10.0).fold(0.0, f64::max);
    let (left, right, top, bottom) = (MARGINS.0, WIDTH - MARGINS.1 - room, MARGINS.2, HEIGHT - MARGINS.3);
    let points = || series.iter().flat_map(|series| series.points.iter().map(move |p| (series.form, p)));
    let xs = points().filter(|(form, _)| *form != Form::Level).map(|(_, point)| point.x);
    let x = Scale::fitting(xs, (left, right), xy.x.log);
    let ys = points().flat_map(|(_, point)| {
        let error = point.y_error.unwrap_or(0.0);
        // The lower end of an error bar must not stretch a logarithmic axis down to nothing.
        let low = if xy.y.log { (point.y - error).max(point.y / 2.0) } else { point.y - error };
        [low, point.y + error]
    });
    let y = Scale::fitting(ys, (bottom, top), xy.y.log);
    for (name, scale) in [("x", &x), ("y", &y)] {
        picture.note(&format!("{name}-domain"), format!("{:?} {:?}", scale.domain.0, scale.domain.1));
        picture.note(&format!("{name}-range"), format!("{} {}", scale.range.0, scale.range.1));
        picture.note(&format!("{name}-log"), scale.log);
    }
    axes(&mut picture, xy, &x, &y);
    let mut labels = Labels::default();
    let hidden = xy.hidden();
    let shown = xy.series.iter().zip(&hidden).filter(|(series, _)| series.shown);
    for (place, (series, over)) in shown.enumerate() {
        let beneath = over.is_some_and(|over| xy.series[over].shown);
        draw_series(&mut picture, (series, beneath), place, (&x, &y), &mut labels);
    }
    labels.draw(&mut picture, (left, WIDTH), y.range.0);
    draw_end_names(&mut picture, &names, (&x, &y));
    for (line, entries) in legend.iter().enumerate() {
        let at = HEIGHT + 8.0 + 20.0 * line as f64;
        for (offset, series) in entries {
            key(&mut picture, series, (left + offset, at));
        }
    }
    picture
}

fn axes(picture: &mut Picture, xy: &Xy, x: &Scale, y: &Scale) {
    let ((left, right), (bottom, top)) = (x.range, y.range);
    for tick in y.ticks() {
        let Some(place) = y.place(tick) else { continue };
        picture.line("grid", (left, place), (right, place));
        picture.text((left - 8.0, place + 4.5), 13.0, Anchor::End, &tick_label(tick));
    }
    for tick in x.ticks() {
        let Some(place) = x.place(tick) else { continue };
        picture.line("grid", (place, top), (place, bottom));
        picture.text((place, bottom + 18.0), 13.0, Anchor::Middle, &tick_label(tick));
    }
    picture.raw(&format!("<path class=\"axis\" d=\"M{left} {top}V{bottom}H{right}\"/>"));
    picture.text((f64::midpoint(left, right), bottom + 42.0), 14.0, Anchor::Middle, &xy.x.label);
    // A long label has smaller letters, so that it stays beside its axis.
    let size = (14.0 * (bottom - top) / text_width(&xy.y.label, 14.0)).clamp(9.0, 14.0);
    picture.upright_text((16.0, f64::midpoint(top, bottom)), size, &xy.y.label);
}

fn draw_series(
    picture: &mut Picture,
    (series, beneath): (&Series, bool),
    place: usize,
    (x, y): (&Scale, &Scale),
    labels: &mut Labels,
) {
    let dash = DASHES[series.style.dash];
    let name = super::svg::escape(&series.name);
    let beneath = if beneath { " beneath" } else { "" };
    picture.raw(&format!("<g class=\"series c{}{beneath}\" data-name=\"{name}\">", series.style.colour));
    if series.form == Form::Level {
        for point in &series.points {
            let Some(level) = y.place(point.y) else { continue };
            let error = point.y_error.unwrap_or(0.0);
            let (high, low) = (y.clamped(point.y + error), y.clamped(point.y - error));
            picture.rectangle("band", (x.range.0, high), (x.range.1 - x.range.0, low - high));
            let (from, to) = (short(x.range.0), short(x.range.1));
            picture.raw(&format!(
                "<path class=\"line\" stroke-dasharray=\"{dash}\" d=\"M{from} {0}H{to}\"/>",
                short(level)
            ));
        }
        picture.raw("</g>");
        return;
    }
    let placed: Vec<(f64, f64, &super::figure::Point)> = series
        .points
        .iter()
        .filter_map(|point| Some((x.place(point.x)?, y.place(point.y)?, point)))
        .collect();
    if series.form == Form::Line && placed.iter().any(|(_, _, point)| point.y_error.is_some()) {
        let edge = |sign: f64| {
            placed
                .iter()
                .map(move |(at, _, point)| (*at, y.clamped(point.y + sign * point.y_error.unwrap_or(0.0))))
        };
        let outline: Vec<(f64, f64)> =
            edge(1.0).chain(edge(-1.0).collect::<Vec<_>>().into_iter().rev()).collect();
        picture.raw(&format!("<path class=\"band\" d=\"{}Z\"/>", path(outline.into_iter())));
    }
    let line = path(placed.iter().map(|(x, y, _)| (*x, *y)));
    picture.raw(&format!("<path class=\"line\" stroke-dasharray=\"{dash}\" d=\"{line}\"/>"));
    let marker = MARKERS[series.style.marker];
    let gap = if series.form == Form::Dots { 0.0 } else { (x.range.1 - x.range.0) / MARKS };
    // Those of different lines do not begin at the same place.
    let mut next = x.range.0 + gap * (0.3 + 0.17 * (place % 5) as f64);
    for (at, level, point) in &placed {
        if series.form == Form::Dots {
            labels.dots.push((*at, *level));
            whiskers(picture, (*at, *level), point, (x, y));
        }
        if *at >= next || series.form == Form::Dots {
            next = at + gap;
            let (at, level) = (short(*at), short(*level));
            picture
                .raw(&format!("<path class=\"mark\" transform=\"translate({at} {level})\" d=\"{marker}\"/>"));
        }
        if let Some(label) = &point.label {
            labels.claim((*at, *level), label);
        }
    }
    picture.raw("</g>");
}

/// The lines that have their names at their ends: all of several, unless they are too many to be read.
fn end_names(xy: &Xy) -> Vec<(&Series, String)> {
    let named = xy.series.iter().zip(xy.short_names());
    let lines: Vec<(&Series, String)> =
        named.filter(|(own, _)| own.shown && own.form == Form::Line && !own.points.is_empty()).collect();
    if (2..=MAX_END_NAMES).contains(&lines.len()) { lines } else { Vec::new() }
}

/// Writes names beside the ends of their lines, apart from each other.
fn draw_end_names(picture: &mut Picture, names: &[(&Series, String)], (x, y): (&Scale, &Scale)) {
    let end = |series: &Series| series.points.last().and_then(|point| y.place(point.y));
    let mut places: Vec<(f64, usize, &str)> = names
        .iter()
        .filter_map(|(series, name)| Some((end(series)?, series.style.colour, name.as_str())))
        .collect();
    places.sort_by(|one, other| one.0.total_cmp(&other.0));
    // Down to the next free place, then up again from the bottom.
    let gap = TAG + 2.0;
    for place in 1..places.len() {
        places[place].0 = places[place].0.max(places[place - 1].0 + gap);
    }
    let mut lowest = y.range.0;
    for place in places.iter_mut().rev() {
        place.0 = place.0.min(lowest);
        lowest = place.0 - gap;
    }
    picture.raw("<g class=\"ends\">");
    for (at, colour, name) in places {
        picture.raw(&format!("<g class=\"c{colour}\">"));
        picture.coloured((x.range.1 + 6.0, at + 4.0), TAG, name);
        picture.raw("</g>");
    }
    picture.raw("</g>");
}

/// Names of dots, each with the place of its dot, and all dots. Names are drawn last, so that no line crosses them.
#[derive(Debug, Default)]
struct Labels {
    names: Vec<(f64, f64, String)>,
    dots: Vec<(f64, f64)>,
}

impl Labels {
    fn claim(&mut self, (x, y): (f64, f64), text: &str) {
        self.names.push((x, y, text.into()));
    }

    /// Writes each name beside its dot, between the two ends and above the lower axis, where it covers neither another dot
    /// nor another name; if there is no such place, it is left out.
    fn draw(&self, picture: &mut Picture, ends: (f64, f64), axis: f64) {
        picture.raw("<g class=\"tags\">");
        let mut taken: Vec<(f64, f64, f64)> = Vec::new();
        for (x, y, text) in &self.names {
            let width = text_width(text, TAG);
            let left = x - 7.0 - width;
            let places = [(x + 7.0, y - 6.0), (x + 7.0, y + 14.0), (left, y - 6.0), (left, y + 14.0)];
            let free = |(from, base): &(f64, f64)| {
                let covers = |(dot_x, dot_y): &(f64, f64)| {
                    (*dot_x, *dot_y) != (*x, *y)
                        && (from - 5.0..from + width + 5.0).contains(dot_x)
                        && (base - TAG - 3.0..base + 6.0).contains(dot_y)
                };
                let meets = |(other, other_base, other_width): &(f64, f64, f64)| {
                    *from < other + other_width + 2.0
                        && *other < from + width + 2.0
                        && (base - other_base).abs() < TAG
                };
                // The paper around a name would interrupt the axis.
                let inside = *from > ends.0 + 2.0 && from + width < ends.1 && base + 3.0 < axis;
                inside && !self.dots.iter().any(covers) && !taken.iter().any(meets)
            };
            if let Some((from, base)) = places.into_iter().find(free) {
                taken.push((from, base, width));
                picture.tag((from, base), TAG, text);
            }
        }
        picture.raw("</g>");
    }
}

/// Draws the standard errors of a point as lines, in both directions where they are known.
fn whiskers(
    picture: &mut Picture,
    (at, level): (f64, f64),
    point: &super::figure::Point,
    (x, y): (&Scale, &Scale),
) {
    if let Some(error) = point.y_error {
        picture.line("whisker", (at, y.clamped(point.y - error)), (at, y.clamped(point.y + error)));
    }
    if let Some(error) = point.x_error {
        picture.line("whisker", (x.clamped(point.x - error), level), (x.clamped(point.x + error), level));
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut text = String::new();
    for (x, y) in points {
        text.push(if text.is_empty() { 'M' } else { 'L' });
        text.push_str(&format!("{} {}", short(x), short(y)));
    }
    text
}

/// The entries of a legend, line by line, each with its distance from the left.
fn legend_lines<'s>(series: &[&'s Series]) -> Vec<Vec<(f64, &'s Series)>> {
    let mut lines: Vec<Vec<(f64, &Series)>> = Vec::new();
    let room = WIDTH - MARGINS.0 - MARGINS.1;
    let mut used = f64::INFINITY;
    for entry in series {
        let width = 52.0 + text_width(&entry.name, 13.0);
        if used + width > room {
            lines.push(Vec::new());
            used = 0.0;
        }
        if let Some(line) = lines.last_mut() {
            line.push((used, entry));
        }
        used += width;
    }
    lines
}

/// One entry of a legend.
fn key(picture: &mut Picture, series: &Series, (x, y): (f64, f64)) {
    let (dash, marker) = (DASHES[series.style.dash], MARKERS[series.style.marker]);
    let (from, middle, to, y_text) = (short(x), short(x + 15.0), short(x + 30.0), short(y));
    picture.raw(&format!("<g class=\"c{}\">", series.style.colour));
    picture.raw(&format!("<path class=\"line\" stroke-dasharray=\"{dash}\" d=\"M{from} {y_text}H{to}\"/>"));
    if series.form != Form::Level {
        picture.raw(&format!(
            "<path class=\"mark\" transform=\"translate({middle} {y_text})\" d=\"{marker}\"/>"
        ));
    }
    picture.raw("</g>");
    picture.text((x + 36.0, y + 4.5), 13.0, Anchor::Start, &series.name);
}
