//! Settings and configuration types say the same.

use super::*;

fn keys(settings: &[Setting]) -> Vec<&str> {
    let mut keys: Vec<&str> = settings.iter().map(|setting| setting.key).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn every_key_has_a_setting_whose_kind_fits_its_default() {
    for variant in Section::ALL.into_iter().flat_map(Section::variants) {
        for (key, default) in &variant.defaults {
            let place = format!("{} {key}", variant.name);
            let setting = variant.setting(key).unwrap_or_else(|| panic!("{place} is not described"));
            let nested = |settings, inside: &Value| {
                let mut expected: Vec<&str> =
                    inside.as_object().unwrap().keys().map(String::as_str).collect();
                expected.sort_unstable();
                assert_eq!(keys(settings), expected, "{place}");
            };
            match (&setting.kind, default) {
                (Kind::Table(settings), Value::Null) => nested(settings, &nested_defaults(key)),
                (Kind::Table(settings), inside) => nested(settings, inside),
                (Kind::Tables(settings), Value::Array(_)) => nested(settings, &nested_defaults(key)),
                (_, Value::Null) => {}
                (Kind::OneOf(words), Value::String(word)) => {
                    assert!(words.contains(&word.as_str()), "{place}");
                }
                (Kind::Number | Kind::Threshold, Value::Number(number)) => {
                    assert!(number.is_f64(), "{place}");
                }
                (Kind::Whole | Kind::Size(_), Value::Number(number)) => assert!(number.is_u64(), "{place}"),
                (Kind::Switch, Value::Bool(_)) | (Kind::Text, Value::String(_)) => {}
                (kind, default) => panic!("{place}: {default} is not {}", kind.expected()),
            }
        }
    }
}

#[test]
fn every_setting_is_a_key_of_something() {
    let variants: Vec<Variant> = Section::ALL.into_iter().flat_map(Section::variants).collect();
    let sections = [
        (Section::Environment, world::ENVIRONMENT),
        (Section::Arrival, world::ARRIVAL),
        (Section::Network, world::NETWORK),
        (Section::Faults, world::FAULTS),
        (Section::Algorithm, algorithm::ALGORITHM),
        (Section::Algorithm, algorithm::FED_LIN_UCB),
        (Section::Algorithm, algorithm::KERNEL),
        (Section::Algorithm, algorithm::PRIVACY),
    ];
    for (section, settings) in sections {
        for setting in settings {
            let known = |v: &Variant| v.section == section && v.defaults.contains_key(setting.key);
            assert!(variants.iter().any(known), "{} is a key of nothing", setting.key);
        }
    }
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
        } else {
            serde_json::from_value::<NetworkConfig>(table).map(drop).map_err(text)
        }
        .err()
        .unwrap_or_default()
    }
    let mut seen = 0;
    for variant in Section::ALL.into_iter().flat_map(Section::variants) {
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
