//! Lines with a mark for every point, for numbers that are no results of an experiment.

use std::path::Path;

use anyhow::Context;

use super::draw_xy;
use super::figure::{Axis, Form, Point, Series, Xy};
use super::style::Style;
use crate::results::durable;

/// Numbers that differ by less are told apart better over an axis that is not logarithmic, which then has more ticks as well.
const A_DECADE: f64 = 10.0;

/// A picture that is to be a file of its own.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// What its files are called.
    pub(crate) id: String,
    /// What screen readers say.
    pub(crate) title: String,
    /// The label of the horizontal axis, which is logarithmic.
    pub(crate) x: String,
    /// The label of the vertical axis.
    pub(crate) y: String,
    /// Names with their points.
    pub(crate) lines: Vec<Line>,
}

/// A name with its points.
pub(crate) type Line = (String, Vec<(f64, f64)>);

impl Lines {
    /// Writes `id.svg` and `id-dark.svg` into `directory`.
    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let shown = directory.display();
        std::fs::create_dir_all(directory).with_context(|| format!("cannot create the directory {shown}"))?;
        let picture = draw_xy::draw(&self.plot(), &self.title, true);
        for (ending, dark) in [("", false), ("-dark", true)] {
            durable::replace_text(&directory.join(format!("{}{ending}.svg", self.id)), &picture.alone(dark))?;
        }
        Ok(())
    }

    fn plot(&self) -> Xy {
        let heights = || self.lines.iter().flat_map(|(_, points)| points.iter().map(|(_, y)| *y));
        let (low, high) = (heights().fold(f64::INFINITY, f64::min), heights().fold(0.0, f64::max));
        let axis = |label: &str, log| Axis { label: label.to_owned(), log };
        let series = |(place, (name, points)): (usize, &Line)| Series {
            name: name.clone(),
            style: Style::of(place),
            form: Form::Dots,
            shown: true,
            points: points.iter().map(|&(x, y)| Point { x, y, ..Point::default() }).collect(),
        };
        let (x, y) = (axis(&self.x, true), axis(&self.y, high > A_DECADE * low));
        Xy { x, y, series: self.lines.iter().enumerate().map(series).collect() }
    }
}
