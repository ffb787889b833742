//! The published figures and tables, and which of them can be run: those that `experiments/` has.

use std::path::Path;

use posse_data::store::MANIFEST;
use serde::Serialize;

/// A published figure or table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// Its id, and the name of its experiment.
    pub(crate) id: String,
    /// The paper that published it.
    pub(crate) paper: &'static str,
    /// What the figure or table shows, in a line.
    pub(crate) shows: String,
    /// Whether it can be run.
    pub(crate) status: Status,
}

/// Whether a figure can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    /// An experiment for it is there and can be run.
    Available,
    /// It needs data that posse does not come with and that is not prepared here.
    NeedsData,
    /// Its algorithms or worlds are still to come.
    NotYet,
}

impl Status {
    /// The words that listings show for this status.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::NeedsData => "needs data",
            Self::NotYet => "not yet",
        }
    }
}

/// The experiments of this repository: ids and texts.
const EXPERIMENTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// The text of the experiment called `id`.
pub(crate) fn text(id: &str) -> Option<&'static str> {
    EXPERIMENTS.iter().find(|(own, _)| *own == id).map(|(_, text)| *text)
}

/// The text of an experiment as it is in the checkout that the command runs in, or else as it was when posse was built. Pages of
/// results show today's words without building posse again.
pub(crate) fn current_text(id: &str) -> Option<String> {
    let checkout = Path::new("experiments").join(format!("{id}.toml"));
    std::fs::read_to_string(checkout).ok().or_else(|| text(id).map(String::from))
}

/// All published figures and tables, paper by paper, and other experiments last.
pub(crate) fn all() -> Vec<Figure> {
    let status = |id: &str, otherwise| match (text(id), drawn(id)) {
        (Some(text), _) => status_of(text),
        (None, Some(data)) if Path::new(data).join(MANIFEST).exists() => Status::Available,
        _ => otherwise,
    };
    let mut all: Vec<Figure> = Vec::new();
    for (paper, figures) in PAPERS {
        all.extend(figures.iter().map(|(id, shows, otherwise)| Figure {
            id: (*id).into(),
            paper,
            shows: (*shows).into(),
            status: status(id, *otherwise),
        }));
    }
    let others = EXPERIMENTS.iter().filter(|(id, _)| !all.iter().any(|figure| figure.id == *id));
    let others: Vec<Figure> = others
        .map(|(id, text)| Figure {
            id: (*id).into(),
            paper: "Other experiments",
            shows: title(text).unwrap_or_default(),
            status: status_of(text),
        })
        .collect();
    all.extend(others);
    all
}

/// The directory of prepared data that a figure shows, if it is a picture of data and not of an experiment.
pub(crate) fn drawn(id: &str) -> Option<&'static str> {
    (id == "async-fig5").then_some("data/delicious")
}

/// Whether an experiment can be run here: it may name data that is not.
pub(crate) fn status_of(text: &str) -> Status {
    let root: Option<toml::Table> = text.parse().ok();
    let data = root.as_ref().and_then(|root| root.get("environment")?.get("data")?.as_str());
    match data {
        Some(directory) if !Path::new(directory).join(MANIFEST).exists() => Status::NeedsData,
        _ => Status::Available,
    }
}

/// What an experiment took when it was last measured, in minutes of one processor.
pub(crate) fn minutes(text: &str) -> Option<f64> {
    let root: toml::Table = text.parse().ok()?;
    let minutes = root.get("processor_minutes")?;
    minutes.as_float().or_else(|| Some(minutes.as_integer()? as f64))
}

/// The command that prepares the data of an experiment, and the data set in it.
pub(crate) fn prepare(text: &str) -> Option<String> {
    text.parse::<toml::Table>().ok()?.get("prepare")?.as_str().map(String::from)
}

/// The data set that an experiment needs, as `posse data fetch` knows it.
pub(crate) fn data_set(text: &str) -> Option<&'static str> {
    let command = prepare(text)?;
    let name = command.split_whitespace().nth(3)?;
    posse_data::catalogue::find(name).map(|set| set.name)
}

/// The title of an experiment.
fn title(text: &str) -> Option<String> {
    text.parse::<toml::Table>().ok()?.get("title")?.as_str().map(String::from)
}

/// What an experiment says of itself, as one line.
pub(crate) fn description(text: &str) -> Option<String> {
    let root: toml::Table = text.parse().ok()?;
    let words: Vec<&str> = root.get("description")?.as_str()?.split_whitespace().collect();
    Some(words.join(" "))
}

/// An id, what it shows, and its status as long as there is no experiment.
type Listed = (&'static str, &'static str, Status);

const DATA: Status = Status::NeedsData;
const NOT_YET: Status = Status::NotYet;

const PAPERS: [(&str, &[Listed]); 4] = [
    ("Asynchronous Upper Confidence Bound Algorithms for Federated Linear Bandits (2022)", ASYNC),
    ("Communication Efficient Federated Learning for Generalized Linear Bandits (2022)", FEDGLB),
    ("Federated Online Clustering of Bandits (2022)", FCLUB),
    ("Federated Neural Bandits (2023)", FNUCB),
];

const ASYNC: &[Listed] = &[
    ("async-fig2a", "regret against messages, uniform arrival", NOT_YET),
    ("async-fig2b", "regret against messages, non-uniform arrival", NOT_YET),
    ("async-fig3", "regret and messages by the share of common features", NOT_YET),
    ("async-fig4a", "reward against messages, LastFM, listening events", DATA),
    ("async-fig4a-tagging", "the same, tagging events", DATA),
    ("async-fig4b", "reward against messages, Delicious", DATA),
    ("async-fig4c", "reward against messages, MovieLens", DATA),
    ("async-fig5", "users of Delicious by activity", DATA),
    ("async-tab1", "orders of regret and messages by threshold", NOT_YET),
    ("async-tab1-sync", "the same of synchronous rounds", NOT_YET),
    ("async-tab2", "uploads and reward by activity, Delicious", DATA),
];

const FEDGLB: &[Listed] = &[
    ("fedglb-fig2a", "regret against messages, synthetic", NOT_YET),
    ("fedglb-fig2b", "reward against scalars, MovieLens", DATA),
    ("fedglb-fig2b-covertype", "regret against scalars, CoverType (later version)", DATA),
    ("fedglb-fig2c-magic", "regret against scalars, Magic (later version)", DATA),
    ("fedglb-fig2d-mushroom", "regret against scalars, Mushroom (later version)", DATA),
    ("fedglb-fig3a", "regret and messages over time, synthetic", NOT_YET),
    ("fedglb-fig3b", "reward and scalars over time, MovieLens", DATA),
    ("fedglb-tab1", "orders of regret and messages by variant", NOT_YET),
];

const FCLUB: &[Listed] = &[
    ("fclub-fig2a", "regret over time, synthetic", NOT_YET),
    ("fclub-fig2b", "regret over time, MovieLens", DATA),
    ("fclub-figE2-users", "regret over time by number of users", NOT_YET),
    ("fclub-figE2-clusters", "regret over time by number of clusters", NOT_YET),
    ("fclub-figE2-dimension", "regret over time by dimension", NOT_YET),
    ("fclub-figE2-servers", "regret over time by number of local coordinators", NOT_YET),
    ("fclub-figE2-epsilon", "regret over time by privacy", NOT_YET),
    ("fclub-figE3", "messages over time", NOT_YET),
    ("fclub-figE4", "time needed", NOT_YET),
];

const FNUCB: &[Listed] = &[
    ("fnucb-fig1a", "regret over time by number of agents, cosine", NOT_YET),
    ("fnucb-fig1b", "regret over time by number of agents, square", NOT_YET),
    ("fnucb-fig1c", "regret over time by weight of the two bounds, cosine", NOT_YET),
    ("fnucb-fig1d", "regret over time by round threshold, cosine", NOT_YET),
    ("fnucb-fig2a", "regret over time by number of agents, shuttle", DATA),
    ("fnucb-fig2b", "regret over time by number of agents, magic", DATA),
    ("fnucb-fig2c", "regret by number of agents, shuttle, diagonal", DATA),
    ("fnucb-fig2d", "regret by round threshold, shuttle, diagonal", DATA),
    ("fnucb-fig3a", "less communication, cosine", NOT_YET),
    ("fnucb-fig3b", "less communication, square", NOT_YET),
    ("fnucb-fig4a", "linear and kernel baselines, cosine", NOT_YET),
    ("fnucb-fig4b", "linear and kernel baselines, square", NOT_YET),
    ("fnucb-fig4c", "linear and kernel baselines, shuttle, diagonal", DATA),
    ("fnucb-fig4d", "linear and kernel baselines, magic", DATA),
    ("fnucb-fig5", "full and diagonal matrices, shuttle", DATA),
    ("fnucb-fig6a", "final regret against number of agents, cosine", NOT_YET),
    ("fnucb-fig6b", "final regret against number of agents, square", NOT_YET),
];
