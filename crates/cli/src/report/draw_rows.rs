//! Drawing distributions and sums, a row for each setting: the name above, so that long names have room.

use super::figure::{Bars, Boxes, WAYS};
use super::scale::{Scale, tick_label};
use super::style::COLOURS;
use super::svg::escape;
use super::svg::{Anchor, Picture, text_width};
use crate::table::compact;

const WIDTH: f64 = 420.0;
const LEFT: f64 = 16.0;
const RIGHT: f64 = 20.0;
const ROW: f64 = 42.0;

/// Draws distributions: whiskers from 5 to 95 %, a box of the middle half, the median, a dot at each end.
pub(super) fn boxes(boxes: &Boxes, label: &str) -> Picture {
    let height = 12.0 + ROW * boxes.rows.len() as f64 + 52.0;
    let mut picture = Picture::new(WIDTH, height, label);
    let all = boxes.rows.iter().flat_map(|row| row.quantiles.iter().copied());
    let scale = Scale::fitting(all, (LEFT, WIDTH - RIGHT), boxes.axis.log);
    let bottom = height - 48.0;
    axis(&mut picture, &scale, (8.0, bottom), &boxes.axis.label);
    for (index, row) in boxes.rows.iter().enumerate() {
        let top = 10.0 + ROW * index as f64;
        picture.text((LEFT, top + 11.0), 12.5, Anchor::Start, &row.name);
        let [min, low, _, quarter, median, three, _, high, max] = row.quantiles[..] else { continue };
        let middle = top + 26.0;
        picture.raw(&format!(
            "<g class=\"series c{}\"><title>{}: median {}, middle half {} to {}, least {}, most {}</title>",
            row.colour,
            escape(&row.name),
            compact(median),
            compact(quarter),
            compact(three),
            compact(min),
            compact(max)
        ));
        let at = |value: f64| scale.clamped(value);
        picture.line("whisker", (at(low), middle), (at(high), middle));
        for end in [low, high] {
            picture.line("whisker", (at(end), middle - 5.0), (at(end), middle + 5.0));
        }
        picture.rectangle("box", (at(quarter), middle - 8.0), (at(three) - at(quarter), 16.0));
        picture.raw(&format!(
            "<path class=\"whisker\" stroke-width=\"2.6\" d=\"M{} {}V{}\"/>",
            super::svg::short(at(median)),
            middle - 8.0,
            middle + 8.0
        ));
        for end in [min, max] {
            picture.raw(&format!(
                "<circle class=\"mark\" cx=\"{}\" cy=\"{middle}\" r=\"2.6\"/>",
                super::svg::short(at(end))
            ));
        }
        picture.raw("</g>");
    }
    picture
}

/// Draws sums: for each setting a bar of what went up and one of what came down, in parts.
pub(super) fn bars(bars: &Bars, label: &str) -> Picture {
    let legend = legend_lines(&bars.parts);
    let head = 8.0 + 20.0 * legend.len() as f64;
    let height = head + (ROW + 14.0) * bars.rows.len() as f64 + 54.0;
    let mut picture = Picture::new(WIDTH, height, label);
    for (line, entries) in legend.iter().enumerate() {
        let y = 14.0 + 20.0 * line as f64;
        for (x, part) in entries {
            picture.raw(&format!("<g class=\"c{}\">", part % COLOURS.len()));
            picture.rectangle("bar", (LEFT + x, y - 9.0), (14.0, 11.0));
            picture.raw("</g>");
            picture.text((LEFT + x + 19.0, y + 1.0), 12.5, Anchor::Start, &bars.parts[*part]);
        }
    }
    let sum = |parts: &Vec<(usize, f64)>| parts.iter().map(|(_, size)| size).sum::<f64>();
    // The length of a bar is its size, so that it begins at 0; on a logarithmic axis at the smallest part of it.
    let totals = || bars.rows.iter().flat_map(|row| row.ways.iter().map(sum));
    let least = totals().filter(|total| *total > 0.0).fold(f64::INFINITY, f64::min);
    let from = if bars.axis.log { least / 10.0 } else { 0.0 };
    // Room for the words at the left and the totals at the right.
    let scale = Scale::fitting(totals().chain([from]), (LEFT + 40.0, WIDTH - RIGHT - 48.0), bars.axis.log);
    axis(&mut picture, &scale, (head, height - 48.0), &bars.axis.label);
    for (index, row) in bars.rows.iter().enumerate() {
        let top = head + 6.0 + (ROW + 14.0) * index as f64;
        picture.text((LEFT, top + 11.0), 12.5, Anchor::Start, &row.name);
        for (way, parts) in row.ways.iter().enumerate() {
            let y = top + 17.0 + 17.0 * way as f64;
            picture.text((LEFT + 36.0, y + 10.5), 11.0, Anchor::End, WAYS[way]);
            let total = sum(parts);
            let (begin, end) = (scale.clamped(0.0), scale.clamped(total));
            let mut so_far = 0.0;
            for (part, size) in parts.iter().filter(|_| total > 0.0) {
                // Parts share the bar by their sizes, also where its length is that of a logarithm.
                let at = |amount: f64| begin + (end - begin) * amount / total;
                picture.raw(&format!(
                    "<g class=\"c{}\"><title>{}, {} {}: {}</title>",
                    part % COLOURS.len(),
                    escape(&row.name),
                    escape(&bars.parts[*part]),
                    WAYS[way],
                    compact(*size)
                ));
                picture.rectangle("bar", (at(so_far), y), (at(so_far + size) - at(so_far), 13.0));
                picture.raw("</g>");
                so_far += size;
            }
            picture.text((end + 6.0, y + 10.5), 11.0, Anchor::Start, &compact(total));
        }
    }
    picture
}

fn axis(picture: &mut Picture, scale: &Scale, (top, bottom): (f64, f64), label: &str) {
    for tick in scale.ticks() {
        let Some(place) = scale.place(tick) else { continue };
        picture.line("grid", (place, top), (place, bottom));
        picture.text((place, bottom + 17.0), 12.0, Anchor::Middle, &tick_label(tick));
    }
    picture.line("axis", (scale.range.0, bottom), (scale.range.1, bottom));
    let middle = f64::midpoint(scale.range.0, scale.range.1);
    picture.text((middle, bottom + 38.0), 13.0, Anchor::Middle, label);
}

/// Parts with their distances from the left, line by line.
fn legend_lines(parts: &[String]) -> Vec<Vec<(f64, usize)>> {
    let mut lines: Vec<Vec<(f64, usize)>> = Vec::new();
    let mut used = f64::INFINITY;
    for (place, part) in parts.iter().enumerate() {
        let width = 36.0 + text_width(part, 12.5);
        if used + width > WIDTH - LEFT - RIGHT {
            lines.push(Vec::new());
            used = 0.0;
        }
        if let Some(line) = lines.last_mut() {
            line.push((used, place));
        }
        used += width;
    }
    lines
}
