//! Columns as CSV: a header, commas, quotes where needed, missing values empty.

use std::io::{BufWriter, Write};
use std::path::Path;

use posse_data::parquet_file::Values;

use super::durable;
use super::frame::Frame;

/// Writes a frame, whole or not at all.
pub(super) fn write(path: &Path, frame: &Frame) -> anyhow::Result<()> {
    durable::replace(path, |file| {
        let mut out = BufWriter::new(file);
        out.write_all(text(frame).as_bytes())?;
        Ok(out.flush()?)
    })
}

/// The frame as CSV text, with a header line.
fn text(frame: &Frame) -> String {
    let names = frame.columns.iter().map(|(name, _)| quoted(name)).collect::<Vec<_>>();
    let mut text = names.join(",") + "\n";
    let rows = frame.columns.first().map_or(0, |(_, column)| column.len());
    for row in 0..rows {
        let values = frame.columns.iter().map(|(_, values)| value(values, row)).collect::<Vec<_>>();
        text.push_str(&values.join(","));
        text.push('\n');
    }
    text
}

/// A value as text that reads back as the same value.
fn value(values: &Values, row: usize) -> String {
    let text = match values {
        Values::Text(values) => values[row].as_deref().map(quoted),
        Values::Whole(values) => values[row].map(|value| value.to_string()),
        Values::Number(values) => values[row].map(|value| value.to_string()),
        Values::Switch(values) => values[row].map(|value| value.to_string()),
    };
    text.unwrap_or_default()
}

/// A text in quotes if it needs them.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_commas_and_quotes_are_quoted_and_missing_values_are_empty() {
        let columns = vec![
            ("a,b".to_owned(), Values::Text(vec![Some("say \"x\", y".into()), None])),
            ("n".to_owned(), Values::Number(vec![Some(f64::INFINITY), Some(0.1)])),
            ("s".to_owned(), Values::Switch(vec![None, Some(true)])),
        ];
        assert_eq!(text(&Frame { columns }), "\"a,b\",n,s\n\"say \"\"x\"\", y\",inf,\n,0.1,true\n");
    }
}
