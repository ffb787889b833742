//! Files in every shape, good and bad.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// All rows of a file with this content, or what is wrong with it without the path.
fn read(content: &[u8], format: &Format) -> Result<Vec<Vec<String>>, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raw.txt");
    std::fs::write(&path, content).unwrap();
    let attempt = || {
        let mut records = Records::open(&path, format)?;
        let mut rows = Vec::new();
        while records.next(&mut |_| {})? {
            let row: Result<_, _> =
                (0..records.len()).map(|at| records.text(at).map(Cow::into_owned)).collect();
            rows.push(row?);
        }
        let raw = records.finish()?;
        assert_eq!(raw.bytes, content.len() as u64);
        Ok(rows)
    };
    attempt().map_err(|error: DataError| error.to_string().replace(&path.display().to_string(), "raw.txt"))
}

fn compressed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn quotes_protect_separators_and_line_ends() {
    let rows = read(b"id,title\r\n1,\"Good, the \"\"Bad\"\"\"\r\n2,\"two\nlines\"", &Format::csv()).unwrap();
    assert_eq!(rows, [["1", "Good, the \"Bad\""], ["2", "two\nlines"]]);
}

#[test]
fn without_quotes_a_quote_is_a_letter() {
    let format = Format { header: true, ..Format::plain("\t") };
    let rows = read(b"id\tname\n1\t\"Weird Al\n2\tGuns N' Roses\"\n", &format).unwrap();
    assert_eq!(rows, [["1", "\"Weird Al"], ["2", "Guns N' Roses\""]]);
}

#[test]
fn an_open_end_keeps_its_separators() {
    let format = Format { header: true, open_end: true, ..Format::plain("\t") };
    let rows = read(b"tagID\ttagValue\n1\tblack\tmetal\n2\trock\n", &format).unwrap();
    assert_eq!(rows, [["1", "black\tmetal"], ["2", "rock"]]);
}

#[test]
fn latin1_letters_arrive() {
    let latin1 = Format { latin1: true, ..Format::plain("\t") };
    assert_eq!(read(b"1\tBj\xf6rk", &latin1).unwrap(), [["1", "Björk"]]);
    let error = read(b"0\tAir\n1\tBj\xf6rk", &Format::plain("\t")).unwrap_err();
    assert!(
        error.starts_with("raw.txt, line 2, column 2: this is not UTF-8 text; if it is Latin-1"),
        "{error}"
    );
}

#[test]
fn line_ends_and_a_missing_last_one_do_not_matter() {
    for content in ["1::2\n3::4\n", "1::2\r\n3::4\r\n", "1::2\n3::4", "1::2\n\n3::4\n\n"] {
        assert_eq!(read(content.as_bytes(), &Format::plain("::")).unwrap(), [["1", "2"], ["3", "4"]]);
        let commas = content.replace("::", ",").replace("4", "\"4\"");
        let quoted = Format { header: false, ..Format::csv() };
        assert_eq!(read(commas.as_bytes(), &quoted).unwrap(), [["1", "2"], ["3", "4"]]);
    }
    assert_eq!(read(b"  1  2\n3 4  \n", &Format::plain(" ")).unwrap(), [["1", "2"], ["3", "4"]]);
    assert_eq!(
        read(b"1::Star Wars: Episode IV\n", &Format::plain("::")).unwrap(),
        [["1", "Star Wars: Episode IV"]]
    );
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raw.csv");
    std::fs::write(&path, "\u{feff}id,x\n1,2\n").unwrap();
    assert_eq!(Records::open(&path, &Format::csv()).unwrap().columns(), ["id", "x"]);
}

#[test]
fn compressed_files_read_like_others_and_damaged_ones_say_where() {
    let text: String = (0..5000).map(|row| format!("{row},{}\n", row * row)).collect();
    let whole = compressed(text.as_bytes());
    assert_eq!(read(&whole, &Format::plain(",")).unwrap().len(), 5000);
    for format in [Format::plain(","), Format { header: false, ..Format::csv() }] {
        let error = read(&whole[..whole.len() / 2], &format).unwrap_err();
        assert!(error.starts_with("raw.txt, line "), "{error}");
        assert!(error.contains("the compressed file is damaged or ends too early"), "{error}");
    }
}

#[test]
fn a_bad_file_says_where() {
    let csv = Format::csv();
    let plain = Format::plain(",");
    for (content, format, expected) in [
        ("", &csv, "raw.txt: there is no row in it"),
        ("a,b\n", &csv, "raw.txt: there is no row in it"),
        ("", &plain, "raw.txt: there is no row in it"),
        ("a,b,a\n1,2,3\n", &csv, "raw.txt, line 1: two columns are called `a`"),
        ("a,b\r\n1,2\r\n3\r\n", &csv, "raw.txt, line 3: expected 2 fields, got 1: is the separator right?"),
        ("1,2\n3,4,5\n", &plain, "raw.txt, line 2: expected 2 fields, got 3: is the separator right?"),
    ] {
        assert_eq!(read(content.as_bytes(), format).unwrap_err(), expected);
    }
}

#[test]
fn a_field_that_is_no_number_says_which() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raw.csv");
    for (value, expected) in [
        ("abc", "a finite number"),
        ("NaN", "a finite number"),
        ("inf", "a finite number"),
        ("", "a finite number"),
    ] {
        std::fs::write(&path, format!("id,rating\n1,2\n7,{value}\n")).unwrap();
        let mut records = Records::open(&path, &Format::csv()).unwrap();
        assert!(records.next(&mut |_| {}).unwrap());
        assert_eq!(records.number(1).unwrap(), 2.0);
        assert!(records.next(&mut |_| {}).unwrap());
        let error = records.number(1).unwrap_err().to_string();
        let place = format!("{}, line 3, column 2 (rating)", path.display());
        assert_eq!(error, format!("{place}: {value:?} is not {expected}"));
    }
}
