//! The demonstration as a page: three curves and what happened.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;

use super::{Demo, Story};
use crate::report::{escape, plain};

/// The two sizes of the picture: width, height, and room for names at the right. The page shows whichever
/// fits the window.
const SIZES: [(&str, f64, f64, f64); 2] = [("wide", 860.0, 420.0, 120.0), ("narrow", 400.0, 320.0, 16.0)];
const LEFT: f64 = 58.0;
const BOTTOM: f64 = 46.0;
const TOP: f64 = 16.0;
/// How many points of a curve are drawn at most.
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

/// The three ways of learning, each with the colour that it has in the picture and in the table.
const WAYS: [(&str, usize); 3] = [("alone", 1), ("federated", 0), ("central", 2)];

fn html(demo: &Demo, story: &Story) -> String {
    let last = |curve: &[f64]| curve.last().copied().unwrap_or(0.0);
    let agents = demo.agents;
    let rows = [
        (format!("{agents} agents, each for itself"), &story.isolated),
        (format!("{agents} agents that share their sums when it is worth a message"), &story.federated),
        ("one learner that sees all raw data at once".into(), &story.central),
    ];
    let mut events = String::new();
    for (step, what) in &story.events {
        let _ = writeln!(events, "<li>after {step} interactions: {}</li>", escape(what));
    }
    let mut table = String::new();
    for ((name, colour), (who, curve)) in WAYS.into_iter().zip(rows) {
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
            "<tr><th scope=\"row\"><span class=\"c{colour}\" aria-hidden=\"true\">■</span> {name}<small>{who}</small></th>\
             <td>{:.0}</td><td>{messages}</td><td>{kilobytes}</td></tr>",
            last(curve)
        );
    }
    let verdict = if story.conserved() { "nothing was lost or counted twice" } else { "something is wrong" };
    let pictures: String = SIZES.into_iter().map(|size| plot(story, size)).collect();
    let body = format!(
        "<header><h1>A federation on one machine</h1>\n\
         <p>{agents} agents choose among {} arms of {} features, {} times in all, and share what they learn through a\n\
         coordinator, over gRPC. <b>Regret</b> is the reward that the best arms would have earned on top of what the chosen ones\n\
         earned: lower is better, and where a line is flat there is nothing left to learn.</p></header>\n<main>\n\
         <section id=\"regret\"><h2>Regret over time</h2>\n{pictures}\n\
         <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"what it cost\"><table><thead><tr><th scope=\"col\">way</th>\
         <th scope=\"col\">regret</th><th scope=\"col\">messages</th><th scope=\"col\">kB</th></tr></thead><tbody>\n{table}</tbody></table></div></section>\n\
         <section id=\"events\"><h2>What went wrong meanwhile</h2>\n\
         <p>Agents and the coordinator were killed without warning, in the middle of their work. Agents came back from their\n\
         journals (dotted lines in the picture), the coordinator from its log (the dashed red line).</p>\n\
         <ul>\n{events}</ul>\n\
         <p>Of {} observations the coordinator has {}. Agents keep the other {} until they are worth a message: {verdict}.</p>\n\
         </section></main>\n<footer>Made by <code>posse demo</code>. Everything is in this file.</footer>\n",
        super::ARMS,
        super::DIMENSION,
        story.federated.len(),
        story.federated.len(),
        story.shared,
        story.unsent
    );
    let description = "Regret of agents that learn alone, that share, and of one learner that sees everything, while some are killed.";
    plain("A federation on one machine: posse demo", description, &body)
}

/// Three lines, their names at their ends or above the picture, and a mark for everything that went wrong.
fn plot(story: &Story, (class, width, height, right): (&str, f64, f64, f64)) -> String {
    let horizon = story.federated.len().max(1) as f64;
    let highest = [&story.isolated, &story.federated, &story.central]
        .into_iter()
        .filter_map(|curve| curve.last().copied())
        .fold(1.0, f64::max);
    let unit = nice(highest / 5.0);
    let ceiling = (highest / unit).ceil() * unit;
    let x = |step: f64| LEFT + (width - LEFT - right) * step / horizon;
    let y = |regret: f64| height - BOTTOM - (height - BOTTOM - TOP) * regret / ceiling;
    let mut svg = format!(
        "<svg class=\"plot {class}\" viewBox=\"0 0 {width} {height}\" font-size=\"13\" role=\"img\" aria-label=\"cumulative \
         regret over interactions, alone, federated and central\">\n"
    );
    let mut level = 0.0;
    while level <= ceiling + 1e-9 {
        let at = y(level);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{level:.0}</text>",
            width - right,
            LEFT - 8.0,
            at + 4.0
        );
        level += unit;
    }
    let ticks = if class == "wide" { 4 } else { 2 };
    for tick in 0..=ticks {
        let step = horizon * f64::from(tick) / f64::from(ticks);
        // The last number would be cut off in the middle.
        let anchor = if tick == ticks && class != "wide" { "end" } else { "middle" };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{step:.0}</text>",
            x(step),
            height - BOTTOM + 18.0
        );
    }
    let middle = f64::midpoint(TOP, height - BOTTOM);
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">interactions</text>\
         <text transform=\"translate(14 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">cumulative regret</text>",
        x(horizon / 2.0),
        height - 6.0,
    );
    for (step, what) in &story.events {
        let kind = if what.starts_with("coordinator") { "fault coordinator" } else { "fault" };
        let at = x(*step as f64);
        let _ = writeln!(
            svg,
            "<path class=\"{kind}\" d=\"M{at:.1} {TOP}V{}\"><title>{}</title></path>",
            height - BOTTOM,
            escape(what)
        );
    }
    for ((name, colour), curve) in WAYS.into_iter().zip([&story.isolated, &story.federated, &story.central]) {
        let mut line = format!("M{:.1} {:.1}", x(0.0), y(0.0));
        for index in indices(curve.len()) {
            let _ = write!(line, "L{:.1} {:.1}", x((index + 1) as f64), y(curve[index]));
        }
        let end = curve.last().copied().unwrap_or(0.0);
        let (place, anchor) = if class == "wide" {
            ((x(horizon) + 6.0, y(end) + 4.0), "start")
        } else {
            ((x(horizon) - 4.0, y(end) - 6.0), "end")
        };
        let _ = writeln!(
            svg,
            "<g class=\"c{colour}\"><path class=\"line\" d=\"{line}\"/><text class=\"end\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"{anchor}\">{name} {end:.0}</text></g>",
            place.0, place.1
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
