//! Writes the elements of SVG pictures.

use std::fmt::Write;

use super::style;

/// A picture that is being drawn.
#[derive(Debug)]
pub(super) struct Picture {
    width: f64,
    height: f64,
    /// The description that screen readers speak.
    label: String,
    /// Attributes of the `<svg>` element.
    attributes: String,
    body: String,
}

/// Where a text is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Picture {
    pub(super) fn new(width: f64, height: f64, label: &str) -> Self {
        Self { width, height, label: label.into(), attributes: String::new(), body: String::new() }
    }

    /// Adds a `data-` attribute to the `<svg>` element, for programs that read the picture.
    pub(super) fn note(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = write!(self.attributes, " data-{name}=\"{}\"", escape(&value.to_string()));
    }

    /// Appends markup to the picture as it is.
    pub(super) fn raw(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (a, b, c, d) = (short(from.0), short(from.1), short(to.0), short(to.1));
        let _ = write!(self.body, "<path class=\"{class}\" d=\"M{a} {b}L{c} {d}\"/>");
    }

    pub(super) fn rectangle(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        let (x, y, w, h) = (short(corner.0), short(corner.1), short(size.0.max(0.0)), short(size.1));
        let _ =
            write!(self.body, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/>");
    }

    /// A text in letters of `size`.
    pub(super) fn text(&mut self, place: (f64, f64), size: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            "<text x=\"{}\" y=\"{}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{}</text>",
            short(place.0),
            short(place.1),
            escape(text)
        );
    }

    /// A small text that stands out from what lies under it.
    pub(super) fn tag(&mut self, place: (f64, f64), size: f64, text: &str) {
        let (x, y) = (short(place.0), short(place.1));
        let text = escape(text);
        let _ =
            write!(self.body, "<text class=\"tag\" x=\"{x}\" y=\"{y}\" font-size=\"{size}\">{text}</text>");
    }

    /// A small text in the colour of what it belongs to.
    pub(super) fn coloured(&mut self, place: (f64, f64), size: f64, text: &str) {
        let (x, y, text) = (short(place.0), short(place.1), escape(text));
        let _ =
            write!(self.body, "<text class=\"end\" x=\"{x}\" y=\"{y}\" font-size=\"{size}\">{text}</text>");
    }

    /// A text that is read from below.
    pub(super) fn upright_text(&mut self, place: (f64, f64), size: f64, text: &str) {
        let (x, y) = (short(place.0), short(place.1));
        let _ = write!(
            self.body,
            "<text transform=\"translate({x} {y}) rotate(-90)\" font-size=\"{size}\" text-anchor=\"middle\">{}</text>",
            escape(text)
        );
    }

    /// For a page, whose style sheet it uses.
    pub(super) fn inline(&self) -> String {
        self.markup("", "class=\"plot\" role=\"img\"")
    }

    /// For a file of its own, on white or on black.
    pub(super) fn alone(&self, dark: bool) -> String {
        let (w, h) = (short(self.width), short(self.height));
        let size = format!("width=\"{w}\" height=\"{h}\" role=\"img\"");
        let colour = if dark { "#14171b" } else { "#fff" };
        let paper = format!(
            "<style>{}</style><rect width=\"{w}\" height=\"{h}\" fill=\"{colour}\"/>",
            style::sheet(dark)
        );
        self.markup(&paper, &size) + "\n"
    }

    fn markup(&self, first: &str, more: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" {more} aria-label=\"{}\"{}>{first}{}</svg>",
            short(self.width),
            short(self.height),
            escape(&self.label),
            self.attributes,
            self.body
        )
    }
}

/// A place with as many digits as can be seen.
pub(super) fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// About how wide a text is.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    0.55 * size * text.chars().count() as f64
}

/// A text that means itself in HTML, SVG and their attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML has no place for the others.
            letter if letter.is_control() && !['\n', '\t'].contains(&letter) => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

/// A name that means itself in HTML and may be broken behind each of its parts.
pub(super) fn breakable(name: &str) -> String {
    escape(name).replace('/', "/<wbr>")
}
