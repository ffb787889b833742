//! From the fields of a row to numbers: which columns there are, which categories and which classes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Categorical, Label, LabelledFiles};
use crate::error::{DataError, Problem};
use crate::records::{RawFile, Records, Watch};

/// More different values than this are no categories.
const MAX_CATEGORIES: usize = 10_000;

/// How one column of the file becomes features.
#[derive(Clone, Debug, PartialEq)]
enum Input {
    /// The column holds numbers and becomes one feature.
    Number { field: usize },
    /// The column holds categories; each becomes a feature, in the order of `values`.
    Category { field: usize, values: Vec<String> },
}

/// How rows become numbers, learned from a first pass over all files.
#[derive(Clone, Debug)]
pub(super) struct Encoder<'f> {
    files: &'f LabelledFiles,
    inputs: Vec<Input>,
    label: usize,
    /// The names of the classes; a label is a position in it.
    pub(super) classes: Vec<String>,
    /// How many rows each class has.
    pub(super) class_rows: Vec<u64>,
    /// The names of the features.
    pub(super) features: Vec<String>,
    /// Names, lengths and hashes of the files that were read.
    pub(super) sources: Vec<RawFile>,
}

impl<'f> Encoder<'f> {
    /// Reads all files once and learns the columns, the categories and the classes. Fails at the first row
    /// that cannot be used.
    pub(super) fn learn(files: &'f LabelledFiles, watch: Watch<'_>) -> Result<Self, DataError> {
        let mut labels: BTreeMap<String, u64> = BTreeMap::new();
        let mut sources = Vec::new();
        let mut layout: Option<Layout> = None;
        for path in &files.files {
            let mut records = Records::open(path, &files.format)?;
            while records.next(watch)? {
                let layout = match &mut layout {
                    Some(layout) => layout,
                    None => layout.insert(Layout::find(files, &records)?),
                };
                if records.len() != layout.width {
                    return Err(Problem::Fields { expected: layout.width, got: records.len() }.of(path));
                }
                let class = records.text(layout.label)?;
                let class = class.trim();
                if class.is_empty() {
                    return Err(records.refuse(layout.label, NO_CLASS));
                }
                match labels.get_mut(class) {
                    Some(rows) => *rows += 1,
                    None => {
                        check_categories(&records, layout.label, labels.len())?;
                        labels.insert(class.to_owned(), 1);
                    }
                }
                layout.note(&records)?;
            }
            sources.push(records.finish()?);
        }
        let layout = layout.expect("a file without rows is an error");
        let (classes, class_rows) = in_order(labels);
        let mut encoder = Self {
            files,
            label: layout.label,
            features: Vec::new(),
            inputs: Vec::new(),
            classes,
            class_rows,
            sources,
        };
        for (name, input) in layout.inputs() {
            match &input {
                Input::Number { .. } => encoder.features.push(name),
                Input::Category { values, .. } => {
                    encoder.features.extend(values.iter().map(|value| format!("{name}={value}")));
                }
            }
            encoder.inputs.push(input);
        }
        Ok(encoder)
    }

    /// How many features a row has.
    pub(super) fn width(&self) -> usize {
        self.features.len()
    }

    /// Whether a feature is a number, not a category.
    pub(super) fn is_number(&self) -> Vec<bool> {
        let of = |input: &Input| match input {
            Input::Number { .. } => vec![true],
            Input::Category { values, .. } => vec![false; values.len()],
        };
        self.inputs.iter().flat_map(of).collect()
    }

    /// Reads all files again and shows each row to `visit`: features and class.
    pub(super) fn rows(
        &self,
        watch: Watch<'_>,
        mut visit: impl FnMut(&mut [f64], u32) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut features = vec![0.0; self.width()];
        for path in &self.files.files {
            let mut records = Records::open(path, &self.files.format)?;
            while records.next(watch)? {
                self.encode(&records, &mut features)?;
                let class = records.text(self.label)?;
                let class = self.classes.iter().position(|known| known == class.trim());
                let class = class.ok_or_else(|| records.refuse(self.label, "a class of the first pass"))?;
                visit(&mut features, class as u32)?;
            }
        }
        Ok(())
    }

    fn encode(&self, records: &Records, features: &mut [f64]) -> Result<(), DataError> {
        let mut at = 0;
        for input in &self.inputs {
            match input {
                Input::Number { field } => {
                    features[at] = self.number(records, *field)?;
                    at += 1;
                }
                Input::Category { field, values } => {
                    let text = records.text(*field)?;
                    let known = values.binary_search_by(|value| value.as_str().cmp(text.trim()));
                    let known = known.map_err(|_| records.refuse(*field, "a category of the first pass"))?;
                    features[at..at + values.len()].fill(0.0);
                    features[at + known] = 1.0;
                    at += values.len();
                }
            }
        }
        Ok(())
    }

    fn number(&self, records: &Records, field: usize) -> Result<f64, DataError> {
        number(self.files, records, field)
    }
}

const MISSING: &str = "a finite number: fill it in, or say with --missing what stands for it";
const WORD: &str = "a finite number: correct it, or name a column of words in --categorical";
const NO_CLASS: &str = "a class: fill it in, or leave the row out";

/// A number, or what stands for a missing one.
fn number(files: &LabelledFiles, records: &Records, field: usize) -> Result<f64, DataError> {
    let missing = is_missing(&records.text(field)?);
    match (records.number(field), files.missing) {
        (Ok(number), _) => Ok(number),
        (Err(_), Some(value)) if missing => Ok(value),
        (Err(_), _) if missing => Err(records.refuse(field, MISSING)),
        (Err(_), _) => Err(records.refuse(field, WORD)),
    }
}

/// Ways to write that a number is not known.
fn is_missing(text: &str) -> bool {
    matches!(text.trim(), "" | "?" | "NA" | "NaN" | "nan")
}

/// Which column is what, while the first pass goes on.
struct Layout<'f> {
    files: &'f LabelledFiles,
    width: usize,
    label: usize,
    columns: Vec<FeatureColumn>,
}

struct FeatureColumn {
    field: usize,
    name: String,
    /// The categories seen so far, if it has categories.
    categories: Option<BTreeSet<String>>,
}

impl<'f> Layout<'f> {
    fn find(files: &'f LabelledFiles, records: &Records) -> Result<Self, DataError> {
        let width = records.len();
        let name =
            |field: usize| records.columns().get(field).cloned().unwrap_or_else(|| format!("x{}", field + 1));
        let find = |wanted: &str| match wanted.parse::<usize>() {
            Ok(number) if records.columns().is_empty() && (1..=width).contains(&number) => Ok(number - 1),
            _ => records.column(wanted),
        };
        let label = match &files.label {
            Label::First => 0,
            Label::Last => width - 1,
            Label::Named(name) => find(name)?,
        };
        let named: Vec<usize> = match &files.categorical {
            Categorical::None => Vec::new(),
            Categorical::All => (0..width).collect(),
            Categorical::Named(names) => names.iter().map(|name| find(name)).collect::<Result<_, _>>()?,
        };
        let columns: Vec<_> = (0..width)
            .filter(|field| *field != label)
            .take(files.features.unwrap_or(usize::MAX))
            .map(|field| FeatureColumn {
                field,
                name: name(field),
                categories: named.contains(&field).then(BTreeSet::new),
            })
            .collect();
        if columns.is_empty() {
            return Err(records.error(0, Problem::Setting("there is no column besides the class".into())));
        }
        Ok(Self { files, width, label, columns })
    }

    /// Notes the categories of a row, and checks its numbers.
    fn note(&mut self, records: &Records) -> Result<(), DataError> {
        for FeatureColumn { field, categories, .. } in &mut self.columns {
            let Some(categories) = categories else {
                number(self.files, records, *field)?;
                continue;
            };
            let text = records.text(*field)?;
            if !categories.contains(text.trim()) {
                check_categories(records, *field, categories.len())?;
                categories.insert(text.trim().to_owned());
            }
        }
        Ok(())
    }

    fn inputs(self) -> impl Iterator<Item = (String, Input)> {
        self.columns.into_iter().map(|FeatureColumn { field, name, categories }| match categories {
            None => (name, Input::Number { field }),
            Some(categories) => (name, Input::Category { field, values: categories.into_iter().collect() }),
        })
    }
}

/// An error if a column has so many different values that they are no categories.
fn check_categories(records: &Records, field: usize, known: usize) -> Result<(), DataError> {
    if known < MAX_CATEGORIES {
        return Ok(());
    }
    let problem = format!("more than {MAX_CATEGORIES} different values: is this a category?");
    Err(records.error(field, Problem::Setting(problem)))
}

/// Classes and their rows: by number if all are numbers, otherwise by name.
fn in_order(labels: BTreeMap<String, u64>) -> (Vec<String>, Vec<u64>) {
    let mut labels: Vec<(String, u64)> = labels.into_iter().collect();
    let number = |name: &str| name.parse::<f64>().ok().filter(|number| number.is_finite());
    if labels.iter().all(|(name, _)| number(name).is_some()) {
        labels.sort_by(|(a, _), (b, _)| f64::total_cmp(&number(a).unwrap_or(0.0), &number(b).unwrap_or(0.0)));
    }
    labels.into_iter().unzip()
}
