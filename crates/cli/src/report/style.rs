//! Colours, dashes and markers that can be told apart without seeing all colours.

/// The palette of Okabe and Ito without its yellow, which is too pale for lines: light and dark.
pub(super) const COLOURS: [(&str, &str); 7] = [
    ("#0072b2", "#4da3e0"),
    ("#d55e00", "#f0803c"),
    ("#009e73", "#2fc79a"),
    ("#cc79a7", "#e59cc5"),
    ("#e69f00", "#f2b632"),
    ("#56b4e9", "#9bd5f7"),
    ("#1b1b1b", "#eeeeee"),
];

/// Strokes of lines: what is on and what is off.
pub(super) const DASHES: [&str; 5] = ["none", "7 3", "2 3", "9 3 2 3", "12 4"];

/// Markers about their centre, in the order in which they are given out.
pub(super) const MARKERS: [&str; 7] = [
    "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0Z",
    "M-3.6 -3.6H3.6V3.6H-3.6Z",
    "M0 -4.8L4.6 3.4H-4.6Z",
    "M0 -5.2L4.4 0L0 5.2L-4.4 0Z",
    "M0 4.8L4.6 -3.4H-4.6Z",
    "M-1.4 -4.4H1.4V-1.4H4.4V1.4H1.4V4.4H-1.4V1.4H-4.4V-1.4H-1.4Z",
    "M0 -5L1.5 -1.6L5 -1.5L2.3 0.8L3.2 4.3L0 2.3L-3.2 4.3L-2.3 0.8L-5 -1.5L-1.5 -1.6Z",
];

/// How a series looks: places in the lists above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) colour: usize,
    pub(super) dash: usize,
    pub(super) marker: usize,
}

impl Style {
    /// The look of a series that stands alone: everything differs from the next one.
    pub(super) const fn of(index: usize) -> Self {
        // When the colours are through, the next time has other markers and dashes.
        let shifted = index + index / COLOURS.len();
        Self { colour: index % COLOURS.len(), dash: shifted % DASHES.len(), marker: shifted % MARKERS.len() }
    }

    /// The look of the member of a family: a colour for all, the rest its own.
    pub(super) const fn of_member(family: usize, member: usize) -> Self {
        Self {
            colour: family % COLOURS.len(),
            dash: member % DASHES.len(),
            marker: (family + family / COLOURS.len() + member) % MARKERS.len(),
        }
    }
}

/// The style sheet of a figure that stands alone: dark on white.
pub(super) fn sheet() -> String {
    let colours: String =
        COLOURS.iter().enumerate().map(|(place, (light, _))| format!(".c{place}{{color:{light}}}")).collect();
    format!(
        "text{{font-family:'Open Sans',Helvetica,Arial,sans-serif;fill:#222}}{colours}{}",
        shapes("#222", "#d8d8d8", "#fff")
    )
}

/// What both style sheets say of shapes; colours of ink, grid and paper are given.
pub(super) fn shapes(ink: &str, grid: &str, paper: &str) -> String {
    format!(
        ".axis{{stroke:{ink};fill:none}}.grid{{stroke:{grid};fill:none}}.line{{stroke:currentColor;fill:none;\
         stroke-width:1.8;stroke-linejoin:round}}.band{{fill:currentColor;fill-opacity:.16;stroke:none}}\
         .mark{{fill:currentColor;stroke:{paper};stroke-width:.8}}.whisker{{stroke:currentColor;fill:none;\
         stroke-width:1.3}}.box{{fill:currentColor;fill-opacity:.28;stroke:currentColor;stroke-width:1.2}}\
         .bar{{fill:currentColor;stroke:{paper};stroke-width:1}}.tag{{stroke:{paper};stroke-width:3;paint-order:stroke}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dozens_of_series_differ_in_colour_or_marker() {
        let looks: Vec<(usize, usize)> =
            (0..49).map(Style::of).map(|style| (style.colour, style.marker)).collect();
        for (place, look) in looks.iter().enumerate() {
            assert!(!looks[..place].contains(look), "{place}");
        }
    }
}
