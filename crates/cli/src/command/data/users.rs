//! `posse data users`: a picture of the users of a recommender, by taste and by activity.

use std::path::{Path, PathBuf};

use anyhow::bail;
use posse_data::principal::principal_plane;
use posse_sim::world::Data;

use super::{Ending, print};
use crate::results::durable;

/// Draw the users of prepared interactions: where their tastes lie, and how active they are
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse data users data/delicious --svg users.svg

A user's taste is the mean of the features of the items it liked; the picture shows the two directions in which tastes
differ most. Colours are groups by activity: up to 10 interactions, 10 to 20, and so on, as in figure 5 and table 2 of Li and
Wang (2022).")]
pub(super) struct Args {
    /// The directory that `posse data prepare` made
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The file to write the picture to
    #[arg(long, value_name = "FILE")]
    svg: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Ending> {
    print(&draw_users(&args.directory, &args.svg)?)?;
    Ok(Ending::Done)
}

/// How many groups there are, and how many interactions a group spans.
const GROUPS: usize = 10;
const SPAN: usize = 10;

/// Draws the users of prepared interactions into a file; returns how many there are in each group.
pub(crate) fn draw_users(directory: &Path, svg: &Path) -> anyhow::Result<String> {
    let (data, _) = posse_data::load(directory, "any")?;
    let Data::Interactions(interactions) = data else {
        bail!(
            "{} is prepared data of kind {}: only recommenders have users with tastes",
            directory.display(),
            data.kind()
        );
    };
    let tastes = interactions.tastes();
    let places = principal_plane(&tastes.iter().map(|(_, taste)| taste.clone()).collect::<Vec<_>>());
    let group = |events: usize| (events.saturating_sub(1) / SPAN).min(GROUPS - 1);
    let groups: Vec<usize> = tastes.iter().map(|(events, _)| group(*events)).collect();
    durable::replace_text(svg, &picture(&places, &groups))?;
    let mut text = String::from("interactions  users  of all\n");
    for own in 0..GROUPS {
        let users = groups.iter().filter(|place| **place == own).count();
        let events: usize = tastes
            .iter()
            .zip(&groups)
            .filter(|(_, place)| **place == own)
            .map(|((events, _), _)| events)
            .sum();
        text.push_str(&format!("{:>12}  {users:>5}  {events:>6}\n", label(own)));
    }
    Ok(text + &format!("wrote {}\n", svg.display()))
}

fn label(group: usize) -> String {
    let more = if group + 1 == GROUPS { " or more" } else { "" };
    format!("{} to {}{more}", group * SPAN + 1, (group + 1) * SPAN)
}

/// Dots of the users, the quiet ones below the busy ones.
fn picture(places: &[[f64; 2]], groups: &[usize]) -> String {
    const SIDE: f64 = 640.0;
    const MARGIN: f64 = 30.0;
    let reach = |axis: usize| places.iter().map(|place| place[axis].abs()).fold(f64::MIN_POSITIVE, f64::max);
    let at = |value: f64, reach: f64| MARGIN + (1.0 + value / reach) / 2.0 * (SIDE - 2.0 * MARGIN);
    let (reach_x, reach_y) = (reach(0), reach(1));
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|user| groups[*user]);
    let mut dots = String::new();
    for user in order {
        let [x, y] = places[user];
        let (x, y) = (at(x, reach_x), at(-y, reach_y));
        dots.push_str(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/>\n",
            colour(groups[user])
        ));
    }
    let mut legend = String::new();
    for group in 0..GROUPS {
        let y = MARGIN + 18.0 * group as f64;
        legend.push_str(&format!(
            "<circle cx=\"{}\" cy=\"{y}\" r=\"5\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
            SIDE + 10.0,
            colour(group),
            SIDE + 22.0,
            y + 4.0,
            label(group)
        ));
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {SIDE}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<g fill-opacity=\"0.7\">\n{dots}</g>\n{legend}\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">first direction</text>\n\
         <text x=\"14\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {})\">second direction</text>\n</svg>\n",
        SIDE + 150.0,
        SIDE / 2.0,
        SIDE - 8.0,
        SIDE / 2.0,
        SIDE / 2.0
    )
}

/// From blue for the quiet to red for the busy.
fn colour(group: usize) -> String {
    let share = group as f64 / (GROUPS - 1) as f64;
    let mix = |from: f64, to: f64| (from + share * (to - from)).round();
    format!("rgb({},{},{})", mix(40.0, 215.0), mix(110.0, 60.0), mix(190.0, 40.0))
}
