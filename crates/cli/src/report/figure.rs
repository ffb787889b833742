//! What a figure shows, before it is drawn.

use super::style::Style;

/// A figure, seen in one or several ways: the same in messages, scalars or bytes.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// In names of files and of parts of the page.
    pub(super) id: String,
    pub(super) title: String,
    /// What is seen, in a sentence or two.
    pub(super) caption: String,
    pub(super) views: Vec<FigureView>,
}

/// One way to see a figure.
#[derive(Clone, Debug)]
pub(super) struct FigureView {
    /// What it is about: `messages`.
    pub(super) name: &'static str,
    pub(super) plot: Plot,
}

/// A plot of one of three kinds.
#[derive(Clone, Debug)]
pub(super) enum Plot {
    Xy(Xy),
    Boxes(Boxes),
    Bars(Bars),
}

/// Lines and dots over two axes.
#[derive(Clone, Debug)]
pub(super) struct Xy {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

/// An axis: its label, and whether it is logarithmic.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) log: bool,
}

/// Points that are drawn together under one name.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) style: Style,
    pub(super) form: Form,
    /// Whether it is there before anybody asks for it.
    pub(super) shown: bool,
    pub(super) points: Vec<Point>,
}

impl Series {
    /// The parts of its name, and the group of agents if it shows one.
    fn parts(&self) -> (Vec<&str>, String) {
        let (name, group) = match self.name.rsplit_once(", agents ") {
            Some((name, group)) => (name, format!(" {}", group.replace(" of ", "/"))),
            None => (self.name.as_str(), String::new()),
        };
        (name.split('/').collect(), group)
    }
}

/// Letters of a name at the end of a line.
const MAX_LETTERS: usize = 21;

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A line with a band about it, and a few markers.
    Line,
    /// A marker for each, with its name and errors both ways, joined by a line.
    Dots,
    /// A level over the whole width: there is no x.
    Level,
}

/// A mean with its standard error, if that is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) x_error: Option<f64>,
    pub(super) y_error: Option<f64>,
    /// The value that this dot is for.
    pub(super) label: Option<String>,
}

/// Distributions as box plots, one row for each.
#[derive(Clone, Debug)]
pub(super) struct Boxes {
    pub(super) axis: Axis,
    pub(super) rows: Vec<BoxRow>,
}

/// The distribution of one number over agents.
#[derive(Clone, Debug)]
pub(super) struct BoxRow {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) mean: f64,
    /// In the order of [`crate::share::QUANTILES`].
    pub(super) quantiles: Vec<f64>,
}

/// Sums of parts, a row each.
#[derive(Clone, Debug)]
pub(super) struct Bars {
    pub(super) axis: Axis,
    /// What the parts are called.
    pub(super) parts: Vec<String>,
    pub(super) rows: Vec<BarRow>,
}

/// What was sent under one setting, each way.
#[derive(Clone, Debug)]
pub(super) struct BarRow {
    pub(super) name: String,
    /// Up and down: for each the parts by place in [`Bars::parts`], with their sizes.
    pub(super) ways: [Vec<(usize, f64)>; 2],
}

/// The words for the two ways.
pub(super) const WAYS: [&str; 2] = ["up", "down"];

/// A name, and numbers with their errors where these are known; some may be missing.
pub(super) type NumberRow = (String, Vec<Option<(f64, Option<f64>)>>);

/// A table that says the same as a figure.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<NumberRow>,
}

impl FigureView {
    /// The numbers behind the picture.
    pub(super) fn numbers(&self) -> Numbers {
        match &self.plot {
            Plot::Xy(xy) => xy.numbers(),
            Plot::Boxes(boxes) => {
                let names = crate::share::QUANTILES.iter().map(|(name, _)| (*name).to_owned());
                let header = ["setting".into(), "mean".into()].into_iter().chain(names).collect();
                let row = |row: &BoxRow| {
                    let values = std::iter::once(row.mean).chain(row.quantiles.iter().copied());
                    (row.name.clone(), values.map(|value| Some((value, None))).collect())
                };
                Numbers { header, rows: boxes.rows.iter().map(row).collect() }
            }
            Plot::Bars(bars) => bars.numbers(),
        }
    }
}

impl Bars {
    fn numbers(&self) -> Numbers {
        let columns: Vec<(usize, usize)> = (0..2)
            .flat_map(|way| (0..self.parts.len()).map(move |part| (way, part)))
            .filter(|(way, part)| self.rows.iter().any(|row| row.ways[*way].iter().any(|(p, _)| p == part)))
            .collect();
        let names = columns.iter().map(|(way, part)| format!("{} {}", self.parts[*part], WAYS[*way]));
        let row = |row: &BarRow| {
            let cell = |(way, part): &(usize, usize)| {
                row.ways[*way].iter().find(|(own, _)| own == part).map(|(_, size)| (*size, None))
            };
            (row.name.clone(), columns.iter().map(cell).collect())
        };
        let header = std::iter::once("setting".into()).chain(names).collect();
        Numbers { header, rows: self.rows.iter().map(row).collect() }
    }
}

impl Xy {
    /// For each series, the later series that covers it completely, if there is any: both have the same
    /// points to within half a percent of the height of the plot.
    pub(super) fn hidden(&self) -> Vec<Option<usize>> {
        let heights = self.series.iter().flat_map(|series| series.points.iter().map(|point| point.y));
        let (low, high) =
            heights.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)));
        let near = 0.005 * (high - low).max(0.0);
        let covers = |over: &Series, under: &Series| {
            over.form == under.form
                && over.points.len() == under.points.len()
                && over.points.iter().zip(&under.points).all(|(a, b)| {
                    a.x == b.x && ((a.y - b.y).abs() <= near * if self.y.log { b.y / high } else { 1.0 })
                })
        };
        let over = |place: usize| {
            (place + 1..self.series.len()).find(|later| {
                !self.series[place].points.is_empty() && covers(&self.series[*later], &self.series[place])
            })
        };
        (0..self.series.len()).map(over).collect()
    }

    /// What to call each series where there is little room: the last parts of its name, as many as tell it from the
    /// others.
    pub(super) fn short_names(&self) -> Vec<String> {
        let all: Vec<(Vec<&str>, String)> = self.series.iter().map(Series::parts).collect();
        let one = |(place, (own, group)): (usize, &(Vec<&str>, String))| {
            let tail = |parts: &[&str], count: usize| parts[parts.len().saturating_sub(count)..].join("/");
            let is_alone = |count: &usize| {
                all.iter().enumerate().all(|(other, (parts, own_group))| {
                    other == place || own_group != group || tail(parts, *count) != tail(own, *count)
                })
            };
            let count = (1..own.len()).find(is_alone).unwrap_or(own.len());
            let mut name = tail(own, count);
            let room = MAX_LETTERS.saturating_sub(group.len());
            let is_too_long = |name: &str| name.chars().count() > room;
            if let (true, Some((last, before))) = (is_too_long(&name), own[own.len() - count..].split_last())
            {
                let values = before.iter().map(|part| part.rsplit('=').next().unwrap_or(part));
                name = values.chain([*last]).collect::<Vec<_>>().join("/");
                // The value tells series apart, so the name of the setting is what is cut.
                if let (true, Some((key, _))) = (is_too_long(&name), last.rsplit_once('=')) {
                    let letters = |text: &str| text.chars().count();
                    let kept = (room + letters(key)).saturating_sub(letters(&name) + 1);
                    if kept > 2 {
                        let start: String = key.chars().take(kept).collect();
                        name = name.replacen(key, &format!("{start}…"), 1);
                    } else {
                        name = name.replacen(&format!("{key}="), "", 1);
                    }
                }
            }
            let cut: String = name.chars().take(room.saturating_sub(1)).collect();
            if is_too_long(&name) { cut + "…" + group } else { name + group }
        };
        all.iter().enumerate().map(one).collect()
    }

    /// Lines at a few moments; dots with both of their numbers.
    fn numbers(&self) -> Numbers {
        const MOMENTS: usize = 8;
        let dots: Vec<&Series> = self.series.iter().filter(|series| series.form != Form::Line).collect();
        if !dots.is_empty() {
            let header = vec!["point".into(), self.x.label.clone(), self.y.label.clone()];
            let row = |series: &Series, point: &Point| {
                let name = match &point.label {
                    Some(label) => format!("{}, {label}", series.name),
                    None => series.name.clone(),
                };
                (name, vec![Some((point.x, point.x_error)), Some((point.y, point.y_error))])
            };
            let rows =
                dots.iter().flat_map(|series| series.points.iter().map(move |point| row(series, point)));
            return Numbers { header, rows: rows.collect() };
        }
        let Some(longest) = self.series.iter().max_by_key(|series| series.points.len()) else {
            return Numbers::default();
        };
        let every = longest.points.len().div_ceil(MOMENTS).max(1);
        // Counted from the end, so that the end is there.
        let mut steps: Vec<f64> = longest.points.iter().rev().step_by(every).map(|point| point.x).collect();
        steps.reverse();
        let header = std::iter::once(format!("{} after …", self.y.label))
            .chain(steps.iter().map(|step| crate::table::compact(*step)))
            .collect();
        let row = |series: &Series| {
            let at = |step: &f64| {
                series.points.iter().find(|point| point.x == *step).map(|point| (point.y, point.y_error))
            };
            (series.name.clone(), steps.iter().map(at).collect())
        };
        Numbers { header, rows: self.series.iter().map(row).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_tell_series_apart() {
        let named = |name: &str| Series {
            name: name.into(),
            style: Style::of(0),
            form: Form::Line,
            shown: true,
            points: Vec::new(),
        };
        let short = |names: &[&str]| {
            let axis = || Axis { label: String::new(), log: false };
            Xy { x: axis(), y: axis(), series: names.iter().map(|name| named(name)).collect() }.short_names()
        };
        assert_eq!(
            short(&["lin-ucb", "a/threshold=2", "a/threshold=5"]),
            ["lin-ucb", "threshold=2", "threshold=5"]
        );
        assert_eq!(
            short(&["am/threshold=2/cold_start=true", "am/threshold=5/cold_start=true", "b/D=1"]),
            ["2/cold_start=true", "5/cold_start=true", "D=1"]
        );
        assert_eq!(short(&["a/x=1, agents 1 of 3", "a/x=1, agents 2 of 3"]), ["x=1 1/3", "x=1 2/3"]);
        assert_eq!(short(&["central-generalised-linear-ucb"]), ["central-generalised-…"]);
        assert_eq!(
            short(&[
                "s/form=paper/round_threshold=0.01",
                "s/form=authors/round_threshold=0.01",
                "s/form=authors/threshold=inf"
            ]),
            ["paper/round_thr…=0.01", "authors/round_t…=0.01", "threshold=inf"]
        );
        assert_eq!(
            short(&["glb-ucb-1/solver=nesterov", "glb-ucb-1/solver=auto", "glb-ucb-2/solver=nesterov"]),
            ["glb-ucb-1/nesterov", "solver=auto", "glb-ucb-2/nesterov"]
        );
    }
}
