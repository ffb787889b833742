//! Settings and configuration types say the same, and so do the pages about them.

use std::path::Path;

use posse_core::TimeSpan;

use super::*;

/// The ways in which documentation writes a default.
fn spellings(default: &Value) -> Vec<String> {
    match default {
        Value::Null => vec!["not set".into()],
        Value::Array(values) if values.is_empty() => vec!["none".into()],
        Value::String(word) => {
            // Lengths of time stand apart from their unit in sentences; none at all needs no unit.
            let digits = word.bytes().take_while(u8::is_ascii_digit).count();
            let (number, unit) = word.split_at(digits);
            let zero = if word == "0s" { Some("0".into()) } else { None };
            [word.clone(), format!("{number} {unit}")].into_iter().chain(zero).collect()
        }
        Value::Number(number) => {
            let text = number.to_string();
            let whole = text.strip_suffix(".0").unwrap_or(&text).to_owned();
            let grouped: String = whole
                .char_indices()
                .flat_map(|(place, digit)| {
                    let gap = place > 0 && (whole.len() - place).is_multiple_of(3) && whole.len() > 4;
                    gap.then_some(' ').into_iter().chain([digit])
                })
                .collect();
            // Small numbers are written with an exponent.
            let scientific = number.as_f64().map(|number| format!("{number:e}"));
            [text, whole, grouped].into_iter().chain(scientific).collect()
        }
        other => vec![other.to_string()],
    }
}

#[test]
fn every_key_has_a_setting_whose_kind_fits_its_default() {
    for variant in Section::ALL.into_iter().flat_map(Section::own_variants) {
        for (key, default) in &variant.defaults {
            let place = format!("{} {key}", variant.name);
            let setting = variant.setting(key).unwrap_or_else(|| panic!("{place} is not described"));
            assert!(!setting.meaning().is_empty(), "{place} has no meaning");
            let nested = |inside: &Value| {
                let inside = inside.as_object().unwrap_or_else(|| panic!("{place} has no defaults inside"));
                let mut keys: Vec<&str> = setting.kind.settings().iter().map(|setting| setting.key).collect();
                let mut expected: Vec<&str> = inside.keys().map(String::as_str).collect();
                keys.sort_unstable();
                expected.sort_unstable();
                assert_eq!(keys, expected, "{place}");
            };
            match (setting.kind, default) {
                (Kind::Table(_), Value::Null) | (Kind::Tables(_), Value::Array(_)) => {
                    nested(nested_defaults(key));
                }
                (Kind::Table(_), inside) => nested(inside),
                (_, Value::Null) => {}
                (Kind::OneOf(words), Value::String(word)) => {
                    assert!(words.contains(&word.as_str()), "{place}");
                }
                (Kind::Number | Kind::Threshold, Value::Number(number)) => {
                    assert!(number.is_f64(), "{place}");
                }
                (Kind::Whole | Kind::Size(_), Value::Number(number)) => assert!(number.is_u64(), "{place}"),
                (Kind::Span, Value::String(span)) => assert!(span.parse::<TimeSpan>().is_ok(), "{place}"),
                (Kind::Switch, Value::Bool(_)) | (Kind::Text, Value::String(_)) => {}
                (kind, default) => panic!("{place}: {default} is not {}", kind.expected()),
            }
        }
    }
}

#[test]
fn every_setting_is_a_key_of_its_configuration() {
    for variant in Section::ALL.into_iter().flat_map(Section::own_variants) {
        for setting in &variant.settings {
            let key = setting.key;
            assert!(
                variant.defaults.contains_key(key),
                "{} describes {key} and has no such key",
                variant.name
            );
        }
    }
}

#[test]
fn documented_defaults_are_the_defaults() {
    let mut compared = 0;
    for variant in Section::ALL.into_iter().flat_map(Section::own_variants) {
        let inner =
            |key: &str| variant.setting(key).map(|setting| setting.kind.settings()).unwrap_or_default();
        for (key, default) in &variant.defaults {
            let defaults = if default.is_object() { default } else { nested_defaults(key) };
            let own = [(variant.setting(key).unwrap(), default.clone())];
            let inside = inner(key).into_iter().map(|setting| (setting, defaults[setting.key].clone()));
            for (setting, default) in own.into_iter().chain(inside) {
                let text = setting.documentation.replace('\n', " ").replace('`', "");
                let Some((_, named)) = text.split_once("Default ") else { continue };
                if default.is_object() {
                    continue;
                }
                let is_named = |spelling: &String| {
                    named.strip_prefix(spelling.as_str()).is_some_and(|rest| {
                        let mut rest = rest.chars();
                        // 1 is no default of 10 or 1.5.
                        !(rest.next().is_some_and(|c| c.is_ascii_alphanumeric())
                            || rest.next().is_some_and(|c| c.is_ascii_digit()))
                    })
                };
                let fits = spellings(&default).iter().any(is_named);
                assert!(fits, "{} {}: the default is {default}, not {named}", variant.name, setting.key);
                compared += 1;
            }
        }
    }
    assert!(compared > 200, "{compared}");
}

/// A cell of a table without what stands in brackets.
fn without_brackets(cell: &str) -> String {
    let mut text = cell.trim().to_owned();
    while let (Some(open), Some(close)) = (text.find('('), text.find(')'))
        && open < close
    {
        text.replace_range(open..=close, "");
    }
    text.trim().into()
}

#[test]
fn pages_of_algorithms_name_settings_and_defaults_as_they_are() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/algorithms");
    let variants = Section::Algorithm.own_variants();
    let mut compared = 0;
    for entry in std::fs::read_dir(pages).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let Some(variant) = variants.iter().find(|variant| variant.name == name) else { continue };
        let rows = text.lines().skip_while(|line| !line.starts_with("| symbol | setting |")).skip(2);
        for row in rows.take_while(|line| line.starts_with('|')) {
            // What is in brackets is about relatives. A row may name several settings, with a default each or one for all.
            let cells: Vec<String> = row.trim_matches('|').split(" | ").map(without_brackets).collect();
            let keys: Vec<&str> =
                cells[1].split('`').skip(1).step_by(2).filter(|key| *key != THRESHOLD.key).collect();
            let defaults: Vec<String> = cells[2].split(", ").map(|text| text.replace('`', "")).collect();
            for (place, key) in keys.iter().enumerate() {
                let default = if defaults.len() == keys.len() { &defaults[place] } else { &defaults[0] };
                // A page may explain settings that only its relatives have, and refer to another page for its own.
                let own = [variant].into_iter().chain(&variants).find(|v| v.defaults.contains_key(*key));
                let Some(own) = own else {
                    let is_name = variants.iter().any(|variant| variant.name == *key);
                    assert!(is_name, "{name}: there is no setting `{key}`");
                    continue;
                };
                let actual = &own.defaults[*key];
                // What is not set may follow from other settings, and a page says how.
                let fits = actual.is_null() || spellings(actual).contains(default);
                assert!(fits, "{name}: `{key}` is {actual}, not {default}");
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn words_are_those_the_configurations_take() {
    /// What serde says when a word is not one of those it takes.
    fn refusal(table: &Value) -> String {
        let text = |error: serde_json::Error| error.to_string();
        let table = table.clone();
        if table.get("name").is_some() {
            serde_json::from_value::<Algorithm>(table).map(drop).map_err(text)
        } else if table.get("kind").is_some() {
            serde_json::from_value::<WorldConfig>(table).map(drop).map_err(text)
        } else if table.get("lie").is_some() {
            serde_json::from_value::<AdversaryConfig>(table).map(drop).map_err(text)
        } else {
            serde_json::from_value::<NetworkConfig>(table).map(drop).map_err(text)
        }
        .err()
        .unwrap_or_default()
    }
    let mut seen = 0;
    for variant in Section::ALL.into_iter().flat_map(Section::own_variants) {
        for key in variant.defaults.keys() {
            let Kind::OneOf(words) = variant.setting(key).unwrap().kind else { continue };
            let mut table = Value::Object(variant.defaults.clone());
            if let Some(tag) = variant.section.tag() {
                table[tag] = variant.name.clone().into();
            }
            table[key] = "no such word".into();
            let listed = refusal(&table);
            let taken = listed.matches('`').count() / 2 - 1;
            assert_eq!(taken, words.len(), "{key}: {listed}");
            assert!(words.iter().all(|word| listed.contains(&format!("`{word}`"))), "{key}: {listed}");
            seen += 1;
        }
    }
    assert!(seen > 5);
}
