//! The demonstration as a page: three curves and what happened.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;

use super::{Demo, Story};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 16.0;
const RIGHT: f64 = 110.0;
/// Points of a curve.
const POINTS: usize = 400;

/// Writes `index.html` and `curves.csv`; says where the page is.
pub(crate) fn write(demo: &Demo, story: &Story) -> anyhow::Result<PathBuf> {
    let page = demo.out.join("index.html");
    let table = demo.out.join("curves.csv");
    std::fs::write(&table, csv(story)).with_context(|| format!("cannot write {}", table.display()))?;
    std::fs::write(&page, html(demo, story)).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}

fn csv(story: &Story) -> String {
    let mut text = String::from("interactions,alone,federated,central\n");
    for index in indices(story.federated.len()) {
        let Story { isolated, federated, central, .. } = story;
        let _ = writeln!(text, "{},{},{},{}", index + 1, isolated[index], federated[index], central[index]);
    }
    text
}

fn indices(length: usize) -> impl Iterator<Item = usize> {
    let step = length.div_ceil(POINTS).max(1);
    (0..length).filter(move |index| (index + 1) % step == 0 || index + 1 == length)
}

fn html(demo: &Demo, story: &Story) -> String {
    let last = |curve: &[f64]| curve.last().copied().unwrap_or(0.0);
    let agents = demo.agents;
    let rows = [
        ("alone", format!("{agents} agents that tell nobody"), &story.isolated),
        ("federated", format!("{agents} agents that share sums when it is worth it"), &story.federated),
        ("central", "one learner that is sent everything at once".into(), &story.central),
    ];
    let mut events = String::new();
    for (step, what) in &story.events {
        let _ = writeln!(events, "<li>after {step} interactions: {what}</li>");
    }
    let mut table = String::new();
    for (name, who, curve) in rows {
        let (messages, kilobytes) = match name {
            "federated" => (
                (story.up.messages + story.down.messages).to_string(),
                ((story.up.bytes + story.down.bytes) / 1000).to_string(),
            ),
            "alone" => ("0".into(), "0".into()),
            _ => ("–".into(), "all raw data".into()),
        };
        let _ = writeln!(
            table,
            "<tr><td>{name}</td><td>{who}</td><td>{:.0}</td><td>{messages}</td><td>{kilobytes}</td></tr>",
            last(curve)
        );
    }
    let verdict = if story.conserved() { "nothing was lost or counted twice" } else { "something is wrong" };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>posse demo</title>\n<style>\n\
         body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2em auto; color: #222; padding: 0 1em }}\n\
         table {{ border-collapse: collapse }} td, th {{ padding: .2em 1em; text-align: right; border-bottom: 1px solid #ddd }}\n\
         td:nth-child(-n+2), th:nth-child(2) {{ text-align: left }} svg {{ width: 100%; height: auto }}\n</style></head><body>\n\
         <h1>A federation on one machine</h1>\n\
         <p>{agents} agents choose among {} arms of {} features, {} times in all, and share what they learn through a\n\
         coordinator, over gRPC. <b>Regret</b> is what the best arm would have brought more than the chosen one, added up:\n\
         lower is better, and where a line is flat there is nothing left to learn.</p>\n\
         {}\n\
         <table><tr><th></th><th>who learns</th><th>regret</th><th>messages</th><th>kB</th></tr>\n{table}</table>\n\
         <h2>What went wrong meanwhile</h2>\n\
         <p>Whoever was killed saved nothing in that moment. Agents came back from the journal beside them (grey in the\n\
         picture), the coordinator from its log (red).</p>\n\
         <ul>\n{events}</ul>\n\
         <p>Of {} observations the coordinator has {}. Agents keep the other {} until they are worth a message: {verdict}.</p>\n\
         </body></html>\n",
        super::ARMS,
        super::DIMENSION,
        story.federated.len(),
        plot(story),
        story.federated.len(),
        story.shared,
        story.unsent
    )
}

/// Three lines, their names at their ends, and a mark for everything that went wrong.
fn plot(story: &Story) -> String {
    let horizon = story.federated.len().max(1) as f64;
    let highest = [&story.isolated, &story.federated, &story.central]
        .into_iter()
        .filter_map(|curve| curve.last().copied())
        .fold(1.0, f64::max);
    let unit = nice(highest / 5.0);
    let ceiling = (highest / unit).ceil() * unit;
    let x = |step: f64| LEFT + (WIDTH - LEFT - RIGHT) * step / horizon;
    let y = |regret: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * regret / ceiling;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\" aria-label=\"cumulative regret\">\n"
    );
    let mut level = 0.0;
    while level <= ceiling + 1e-9 {
        let at = y(level);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#e4e4e4\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{level:.0}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0
        );
        level += unit;
    }
    for tick in 0..=4 {
        let step = horizon * f64::from(tick) / 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{step:.0}</text>",
            x(step),
            HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">interactions</text><text x=\"14\" y=\"{:.1}\" transform=\"rotate(-90 14 {:.1})\" text-anchor=\"middle\" fill=\"#555\">cumulative regret</text>",
        x(horizon / 2.0),
        HEIGHT - 8.0,
        HEIGHT / 2.0,
        HEIGHT / 2.0
    );
    for (step, what) in &story.events {
        let colour = if what.starts_with("coordinator") { "#b00020" } else { "#bbb" };
        let at = x(*step as f64);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{}\" stroke=\"{colour}\" stroke-dasharray=\"3 4\"><title>{what}</title></line>",
            HEIGHT - BOTTOM
        );
    }
    let curves = [
        ("alone", "#8a8a8a", &story.isolated),
        ("federated", "#0b62a4", &story.federated),
        ("central", "#2a8a4a", &story.central),
    ];
    for (name, colour, curve) in curves {
        let mut points = format!("{:.1},{:.1}", x(0.0), y(0.0));
        for index in indices(curve.len()) {
            let _ = write!(points, " {:.1},{:.1}", x((index + 1) as f64), y(curve[index]));
        }
        let end = curve.last().copied().unwrap_or(0.0);
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name} {end:.0}</text>",
            x(horizon) + 6.0,
            y(end) + 4.0
        );
    }
    svg + "</svg>"
}

/// The next larger of 1, 2, 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = libm::pow(10.0, libm::floor(libm::log10(value.max(1e-9))));
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= value);
    factor.unwrap_or(10.0) * power
}
