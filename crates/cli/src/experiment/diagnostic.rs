//! Errors in an experiment, shown where they are: file, line, column, the line itself and a caret.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong in an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    /// The range of the file that is wrong, in bytes.
    pub(crate) span: Range<usize>,
    /// What is wrong there.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) help: Option<String>,
}

impl Diagnostic {
    /// A diagnostic of what is wrong at `span`, without help.
    pub(crate) fn new(span: &Range<usize>, message: impl Into<String>) -> Self {
        Self { span: span.clone(), message: message.into(), help: None }
    }

    /// Adds a line that says what to do about it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// With what to do about it, if that is known.
    pub(crate) fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help;
        self
    }
}

/// Everything that is wrong with a file.
#[derive(Debug)]
pub(crate) struct Report {
    path: String,
    text: String,
    diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// A report on the file at `path`. Diagnostics are put in the order of the file, each once.
    pub(crate) fn new(path: String, text: String, mut diagnostics: Vec<Diagnostic>) -> Self {
        diagnostics.sort_by(|a, b| {
            let key = |d: &Diagnostic| (d.span.start, d.span.end);
            key(a).cmp(&key(b)).then_with(|| a.message.cmp(&b.message))
        });
        diagnostics.dedup();
        Self { path, text, diagnostics }
    }
}

impl std::error::Error for Report {}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let place = Place::of(&diagnostic.span, &self.text);
            let (number, margin) = (place.line.to_string(), " ".repeat(place.line.to_string().len()));
            writeln!(f, "error: {}", diagnostic.message)?;
            writeln!(f, "{margin}--> {}:{}:{}", self.path, place.line, place.column)?;
            writeln!(f, "{margin} |")?;
            writeln!(f, "{number} | {}", place.source)?;
            write!(f, "{margin} | {}{}", " ".repeat(place.column - 1), "^".repeat(place.width))?;
            if let Some(help) = &diagnostic.help {
                write!(f, "\n{margin} = help: {help}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A span as people count: from 1, in characters.
struct Place {
    line: usize,
    column: usize,
    /// How many characters of the line it covers, at least one.
    width: usize,
    /// The line, with tabs as wide as the caret line takes them to be.
    source: String,
}

impl Place {
    /// Where `span` is in `text`; spans beyond the end are at the end.
    fn of(span: &Range<usize>, text: &str) -> Self {
        // At the end of a file that ends with a newline, the last line is the one before it.
        let last = text.trim_end().len();
        let start = text.floor_char_boundary(span.start.min(last));
        let begin = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let stop = text.ceil_char_boundary(span.end.clamp(start, end));
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: text[begin..start].chars().count() + 1,
            width: text[start..stop].chars().count().max(1),
            source: text[begin..end].trim_end().replace('\t', " "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, span: Range<usize>) -> String {
        let diagnostic = Diagnostic::new(&span, "wrong").help("do better");
        Report::new("x.toml".into(), text.into(), vec![diagnostic]).to_string()
    }

    #[test]
    fn carets_stand_under_characters_not_bytes() {
        let text = "a = 1\nδ = \"é\" # x\n";
        let at = text.find("\"é\"").unwrap();
        let expected =
            "error: wrong\n --> x.toml:2:5\n  |\n2 | δ = \"é\" # x\n  |     ^^^\n  = help: do better\n";
        assert_eq!(shown(text, at..at + 4), expected);
    }

    #[test]
    fn any_span_can_be_shown() {
        for text in ["", "a", "a\n", "\n\n", "é\té"] {
            for start in 0..=text.len() + 2 {
                for end in start..=text.len() + 3 {
                    assert!(shown(text, start..end).contains("x.toml:"), "{text:?} {start}..{end}");
                }
            }
        }
    }
}
