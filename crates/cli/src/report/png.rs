//! Pictures as PNG, with a font of our own, so that they look the same on a machine without any.

use anyhow::{Context, anyhow};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Open Sans, the letters that figures need; Apache License 2.0, see `assets/README.md`.
const FONT: &[u8] = include_bytes!("../../assets/OpenSans-Regular-subset.ttf");

/// Pixels for each unit of a picture: 300 to the inch where a picture is about 7 inches wide.
const DENSITY: f32 = 3.0;

/// Renders an SVG picture as PNG. Fails if the SVG cannot be parsed.
pub(super) fn render(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut options = Options { font_family: "Open Sans".into(), ..Options::default() };
    let fonts = options.fontdb_mut();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("Open Sans");
    let tree = Tree::from_str(svg, &options).context("a bug in posse: the figure is no SVG")?;
    let size = tree.size();
    let (width, height) = ((size.width() * DENSITY).ceil() as u32, (size.height() * DENSITY).ceil() as u32);
    let mut pixels = Pixmap::new(width, height)
        .ok_or_else(|| anyhow!("a figure of {width} × {height} pixels is too large"))?;
    resvg::render(&tree, Transform::from_scale(DENSITY, DENSITY), &mut pixels.as_mut());
    pixels.encode_png().context("cannot encode a picture")
}
