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

/// From little to much: a ramp from violet over green to amber whose lightness runs one way, for the values of one
/// swept setting. Light and dark.
const RAMP: [(&str, &str); 8] = [
    ("#3b0f70", "#c9a6f5"),
    ("#3d3a8c", "#a9a4f7"),
    ("#2f6196", "#86b6f0"),
    ("#1f8a8c", "#5fcfcf"),
    ("#2ba06f", "#52d69a"),
    ("#6aa53a", "#9bd96a"),
    ("#a89a12", "#d8c94a"),
    ("#c77d0a", "#f5ad4e"),
];

/// How many shades a colour of the palette has: a family of settings shares a hue and runs from deep to pale.
const SHADES: usize = 5;

/// Every colour that a series can have, light and dark: the palette, the ramp, and the shades of the palette.
pub(super) fn colours() -> Vec<(String, String)> {
    let own = |(light, dark): &(&str, &str)| ((*light).to_owned(), (*dark).to_owned());
    let shades = COLOURS.iter().flat_map(|(light, dark)| {
        (0..SHADES).map(move |shade| {
            // On white the far end goes pale, on black it goes dim: neither reaches the paper.
            let share = 0.45 * shade as f64 / (SHADES - 1) as f64;
            (mixed(light, "#ffffff", share), mixed(dark, "#101418", share))
        })
    });
    COLOURS.iter().chain(&RAMP).map(own).chain(shades).collect()
}

/// A colour between two, `share` of the way.
fn mixed(from: &str, to: &str, share: f64) -> String {
    let part =
        |text: &str, place: usize| f64::from(u8::from_str_radix(&text[place..place + 2], 16).unwrap_or(0));
    let between = |place: usize| (part(from, place) * (1.0 - share) + part(to, place) * share).round() as u8;
    format!("#{:02x}{:02x}{:02x}", between(1), between(3), between(5))
}

/// The colours of ink and paper: by day, or by night.
const fn ink_and_paper(dark: bool) -> (&'static str, &'static str) {
    if dark { ("#e7eaee", "#14171b") } else { ("#222222", "#ffffff") }
}

/// A colour for letters: nearer to the ink than the colour of a line, as far as it must be to be read.
pub(super) fn readable(colour: &str, dark: bool) -> String {
    let (ink, paper) = ink_and_paper(dark);
    let enough = |mix: &String| contrast(mix, paper) >= ENOUGH_CONTRAST;
    let mut mixes = (0..=10).map(|step| mixed(colour, ink, f64::from(step) / 10.0));
    mixes.find(enough).unwrap_or_else(|| ink.to_owned())
}

/// What guidelines for accessible pages ask of small letters.
const ENOUGH_CONTRAST: f64 = 4.5;

/// The contrast of two colours as the WCAG define it: from 1 to 21.
fn contrast(one: &str, other: &str) -> f64 {
    let luminance = |colour: &str| -> f64 {
        let part = |place: usize| {
            let value = f64::from(u8::from_str_radix(&colour[place..place + 2], 16).unwrap_or(0)) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

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

    /// The style of numbers that a paper published: dotted, in the colour of the text.
    pub(super) const fn published(index: usize) -> Self {
        Self { colour: COLOURS.len() - 1, dash: 2, marker: (index + 3) % MARKERS.len() }
    }

    /// The look of the member of a family of `members`, in the order of what is swept: where there is only one
    /// `family` that sweeps anything, a step of the ramp; otherwise a shade of the hue of the family.
    pub(super) fn of_member(family: usize, member: usize, members: usize, alone: bool) -> Self {
        let step = |steps: usize| if members < 2 { 0 } else { member * (steps - 1) / (members - 1) };
        let colour = if alone && members > 2 {
            COLOURS.len() + step(RAMP.len())
        } else {
            let hue = family % COLOURS.len();
            if members < 2 { hue } else { COLOURS.len() + RAMP.len() + hue * SHADES + step(SHADES) }
        };
        Self {
            colour,
            dash: member % DASHES.len(),
            marker: (family + family / COLOURS.len() + member) % MARKERS.len(),
        }
    }
}

/// The style sheet of a figure that stands alone: dark on white, or light on black.
pub(super) fn sheet(dark: bool) -> String {
    let (ink, grid, paper) =
        if dark { ("#e7eaee", "#2b3038", "#14171b") } else { ("#222", "#d8d8d8", "#fff") };
    let colours: String = colours()
        .iter()
        .enumerate()
        .map(|(place, (light, night))| {
            let colour = if dark { night } else { light };
            format!(".c{place}{{color:{colour}}}.c{place} .end{{fill:{}}}", readable(colour, dark))
        })
        .collect();
    format!(
        "text{{font-family:'Open Sans',Helvetica,Arial,sans-serif;fill:{ink}}}{colours}{}",
        shapes(ink, grid, paper)
    )
}

/// What both style sheets say of shapes; colours of ink, grid and paper are given.
pub(super) fn shapes(ink: &str, grid: &str, paper: &str) -> String {
    format!(
        ".beneath .line{{stroke-width:6;stroke-opacity:.4}}.axis{{stroke:{ink};fill:none}}.grid{{stroke:{grid};fill:none}}.line{{stroke:currentColor;fill:none;\
         stroke-width:1.8;stroke-linejoin:round}}.band{{fill:currentColor;fill-opacity:.16;stroke:none}}\
         .mark{{fill:currentColor;stroke:{paper};stroke-width:.8}}.whisker{{stroke:currentColor;fill:none;\
         stroke-width:1.3}}.box{{fill:currentColor;fill-opacity:.28;stroke:currentColor;stroke-width:1.2}}\
         .bar{{fill:currentColor;stroke:{paper};stroke-width:1}}.tag{{stroke:{paper};stroke-width:3;paint-order:stroke}}\
         .end{{font-weight:600}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_families_differ_from_each_other_and_from_other_families() {
        let mut looks: Vec<(usize, usize, usize)> = Vec::new();
        for family in 0..4 {
            for member in 0..11 {
                let style = Style::of_member(family, member, 11, false);
                assert!(style.colour < colours().len());
                looks.push((style.colour, style.dash, style.marker));
            }
        }
        let all = looks.len();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), all);
        let ramp: Vec<usize> = (0..8).map(|member| Style::of_member(0, member, 8, true).colour).collect();
        assert!(ramp.windows(2).all(|pair| pair[0] < pair[1]), "{ramp:?}");
    }

    #[test]
    fn letters_in_the_colour_of_a_line_can_be_read() {
        assert!((contrast("#ffffff", "#000000") - 21.0).abs() < 1e-9);
        assert!(contrast("#f2b632", "#ffffff") < ENOUGH_CONTRAST, "a line may be as pale as this");
        for (light, dark) in colours() {
            assert!(contrast(&readable(&light, false), "#ffffff") >= ENOUGH_CONTRAST, "{light}");
            assert!(contrast(&readable(&dark, true), "#14171b") >= ENOUGH_CONTRAST, "{dark}");
        }
    }

    #[test]
    fn the_first_dozens_of_series_differ_in_colour_or_marker() {
        let looks: Vec<(usize, usize)> =
            (0..49).map(Style::of).map(|style| (style.colour, style.marker)).collect();
        for (place, look) in looks.iter().enumerate() {
            assert!(!looks[..place].contains(look), "{place}");
        }
    }
}
