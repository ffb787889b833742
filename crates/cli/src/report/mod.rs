//! Reports: one page that shows what came of an experiment, and its figures as files.
//!
//! [`material`] gathers the results by setting, [`planned`] and [`build`] decide which figures they make, `draw_*` draw them
//! as SVG, [`page`] puts everything into one HTML file that needs nothing else, [`png`] turns figures into
//! pixels.

mod build;
mod comparison;
mod draw_rows;
mod draw_xy;
mod family;
mod figure;
mod lines;
mod material;
mod page;
mod planned;
mod png;
mod scale;
mod style;
mod svg;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::results::durable;
use figure::{Figure, FigureView, Plot};
pub(crate) use lines::{Line, Lines};
pub(crate) use material::Material;
pub(crate) use page::plain;
use svg::Picture;
pub(crate) use svg::escape;

/// The page as text.
pub(crate) fn html(material: &Material<'_>) -> String {
    page::page(material, &build::figures(material))
}

/// Writes the page to `path`, whole or not at all.
pub(crate) fn write_page(material: &Material<'_>, path: &Path) -> anyhow::Result<()> {
    durable::replace_text(path, &html(material))
}

/// Writes every figure into `directory` as SVG; returns where.
pub(crate) fn write_svg(
    material: &Material<'_>,
    directory: &Path,
    dark: bool,
) -> anyhow::Result<Vec<PathBuf>> {
    write_figures(material, directory, (dark, "svg"), |svg| Ok(svg.into_bytes()))
}

/// Writes every figure into `directory` as PNG; returns where.
pub(crate) fn write_png(
    material: &Material<'_>,
    directory: &Path,
    dark: bool,
) -> anyhow::Result<Vec<PathBuf>> {
    write_figures(material, directory, (dark, "png"), |svg| png::render(&svg))
}

fn write_figures(
    material: &Material<'_>,
    directory: &Path,
    (dark, extension): (bool, &str),
    encode: impl Fn(String) -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<Vec<PathBuf>> {
    let shown = directory.display();
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create the directory {shown}"))?;
    let mut written = Vec::new();
    for figure in build::figures(material) {
        for view in &figure.views {
            let path = directory.join(format!("{}-{}.{extension}", figure.id, view.name));
            let bytes = encode(draw(&figure, view, true).alone(dark))?;
            durable::replace(&path, |file| Ok(std::io::Write::write_all(file, &bytes)?))?;
            written.push(path);
        }
    }
    Ok(written)
}

/// Draws one view of a figure; alone it has its legend with it.
fn draw(figure: &Figure, view: &FigureView, alone: bool) -> Picture {
    let label = format!("{}: {}", figure.title, view.name);
    match &view.plot {
        Plot::Xy(xy) => draw_xy::draw(xy, &label, alone),
        Plot::Boxes(boxes) => draw_rows::boxes(boxes, &label),
        Plot::Bars(bars) => draw_rows::bars(bars, &label),
    }
}
