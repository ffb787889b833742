//! Algorithms by name and settings, as a program that embeds posse is given them.

use std::path::Path;

use posse_core::{Algorithm, Shape};
use posse_sim::world::WorldConfig;
use serde::Deserialize;

use super::in_words;
use crate::experiment::Experiment;
use crate::experiment::diagnostic::Diagnostic;
use crate::experiment::resolve::plain;
use crate::experiment::source::Table;
use crate::federation::check_algorithm;
use crate::settings::{Section, outside};

/// Makes the algorithm that `settings` describes: its `name`, and any of its settings under their documented names.
///
/// An error lists everything that is wrong, with the words that the command uses for the same mistakes in a file.
pub fn algorithm(settings: &toml::Table, shape: Shape) -> Result<Algorithm, String> {
    read(settings, shape).map_err(|found| found.iter().map(words).collect::<Vec<_>>().join("\n"))
}

fn read(settings: &toml::Table, shape: Shape) -> Result<Algorithm, Vec<Diagnostic>> {
    let wrong = |message: String| vec![Diagnostic::new(&(0..0), message)];
    // Through text, because that is what the checks of files read.
    let text = toml::to_string(settings).map_err(|error| wrong(error.to_string()))?;
    let table = Table::parse(&text)?;
    let mut found = Vec::new();
    check_algorithm(&table, &(0..0), &mut found);
    if !found.is_empty() {
        return Err(found);
    }
    let plain = plain(Section::Algorithm, &table);
    let algorithm = match outside::algorithm(&plain) {
        Some(made) => made.map_err(wrong)?,
        None => Algorithm::deserialize(toml::Value::Table(plain))
            .map_err(|error| wrong(error.message().to_owned()))?,
    };
    algorithm.check(shape).map_err(|error| wrong(error.to_string()))?;
    Ok(algorithm)
}

/// Makes the world that `settings` describes for `agents` agents: its `kind`, and any of its settings under their
/// documented names. Prepared data that it names is loaded.
pub fn world(settings: &toml::Table, agents: u64) -> Result<WorldConfig, String> {
    let mut root = toml::Table::new();
    root.insert("horizon".into(), 1.into());
    root.insert("agents".into(), toml::Value::try_from(agents).map_err(|error| error.to_string())?);
    let mut alone = toml::Table::new();
    alone.insert("name".into(), "lin-ucb".into());
    root.insert("algorithm".into(), vec![toml::Value::Table(alone)].into());
    root.insert("environment".into(), settings.clone().into());
    // As an experiment, because that is what the checks of worlds read.
    let text = toml::to_string(&root).map_err(|error| error.to_string())?;
    let experiment = Experiment::from_text(Path::new("environment.toml"), text, false);
    match &experiment.map_err(|error| in_words(&error))?.groups[..] {
        [group] => Ok(group.config.world.clone()),
        _ => Err("a world takes one value for each setting: sweeps are for experiments".into()),
    }
}

fn words(diagnostic: &Diagnostic) -> String {
    let Diagnostic { message, help, .. } = diagnostic;
    help.as_ref().map_or_else(|| message.clone(), |help| format!("{message}: {help}"))
}

/// An algorithm as listings show it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The name in files and in `Federation`.
    pub name: &'static str,
    /// One line that says what the algorithm does.
    pub summary: &'static str,
    /// Every setting: its name, its default as text, and what it means with its range.
    pub settings: Vec<(String, String, String)>,
}

/// Every algorithm of posse with its settings.
#[must_use]
pub fn algorithms() -> Vec<Listed> {
    let variants = Section::Algorithm.variants();
    let listed = |algorithm: Algorithm| {
        let variant = variants.iter().find(|variant| variant.name == algorithm.name());
        let settings = variant.map_or_else(Vec::new, |variant| {
            let row = |key: &str| {
                let default = variant.defaults.get(key).map_or_else(String::new, ToString::to_string);
                let meaning = variant.setting(key).map_or_else(String::new, |setting| {
                    let range = if setting.range().is_empty() { "" } else { ", " };
                    format!("{}{range}{}", setting.meaning(), setting.range())
                });
                (key.to_owned(), default, meaning)
            };
            variant.keys().into_iter().map(row).collect()
        });
        Listed { name: algorithm.name(), summary: algorithm.summary(), settings }
    };
    Algorithm::all().into_iter().map(listed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str) -> Result<Algorithm, String> {
        algorithm(&text.parse().expect("the test writes TOML"), Shape::shared(3))
    }

    #[test]
    fn settings_and_shorthands_are_those_of_files() {
        let json = serde_json::to_value(made("name = \"async-lin-ucb\"\nthreshold = 2").unwrap()).unwrap();
        assert_eq!((&json["upload_threshold"], &json["download_threshold"]), (&2.0.into(), &2.0.into()));
    }

    #[test]
    fn mistakes_are_told_in_the_words_of_the_command() {
        let unknown = made("name = \"async-lin-ucb\"\nuplaod_threshold = 2").unwrap_err();
        assert_eq!(
            unknown,
            "unknown key `uplaod_threshold` for async-lin-ucb: did you mean `upload_threshold`?"
        );
        let range = made("name = \"lin-ucb\"\nregularization = -1.0").unwrap_err();
        assert!(range.starts_with("`regularization` is -1: "), "{range}");
        let sweep = made("name = \"lin-ucb\"\nregularization = [1.0, 2.0]").unwrap_err();
        assert!(sweep.contains("a federation takes one value"), "{sweep}");
        assert!(made("name = \"lin-ubc\"").unwrap_err().contains("did you mean `lin-ucb`?"));
    }

    #[test]
    fn every_algorithm_is_listed_with_its_settings() {
        let all = algorithms();
        assert_eq!(all.len(), Algorithm::all().len());
        let ucb = all.iter().find(|listed| listed.name == "async-lin-ucb").unwrap();
        assert!(ucb.settings.iter().any(|(key, default, meaning)| {
            key == "regularization" && default == "0.1" && meaning.contains("> 0")
        }));
    }
}
