//! Who liked what, as pairs in memory: from published files, or from any file with a user and an item a row.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::files::RecommenderFiles;
use crate::error::{DataError, Problem};
use crate::records::{Format, RawFile, Records, Watch};

/// Where it says who liked what.
#[derive(Clone, Debug)]
pub enum Ratings {
    /// A data set that is known.
    Published(RecommenderFiles),
    /// A file of the caller's own.
    Own(OwnRatings),
}

/// A table with a header, and a user and an item in each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRatings {
    /// Path of the file.
    pub file: PathBuf,
    /// The text that separates two fields.
    pub separator: String,
    /// The column that tells users apart.
    pub user: String,
    /// The column that tells items apart.
    pub item: String,
    /// The column with how much it was liked. Without one, every row counts.
    pub rating: Option<String>,
}

/// Pairs of users and items, each once, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// The numbers of the user and of the item.
    pub(super) pairs: BTreeSet<(u32, u32)>,
    /// What the file calls each user.
    pub(super) users: Vec<String>,
    /// How many items there are.
    pub(super) items: usize,
}

/// Numbers for names, in the order in which they come.
#[derive(Default)]
struct Names {
    numbers: BTreeMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.into(), number);
        self.names.push(name.into());
        number
    }
}

impl Ratings {
    /// What the data is called, and under which terms it is.
    pub(super) fn title(&self) -> (String, &str) {
        match self {
            Self::Published(files) => (files.name.clone(), &files.licence),
            Self::Own(own) => {
                (own.file.file_stem().unwrap_or_default().to_string_lossy().into_owned(), "your own")
            }
        }
    }

    /// How many bytes are read, for progress bars. 0 if the file is not there.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            // Preparing a recommender reads its events twice.
            Self::Published(files) => files.bytes() / 2,
            Self::Own(own) => std::fs::metadata(&own.file).map_or(0, |metadata| metadata.len()),
        }
    }

    /// Every pair whose rating is at least `min_rating`.
    pub(super) fn pairs(&self, min_rating: f64, watch: Watch<'_>) -> Result<(Pairs, RawFile), DataError> {
        let (mut users, mut items, mut pairs) = (Names::default(), Names::default(), BTreeSet::new());
        let source = match self {
            Self::Published(files) => files.events(watch, |event| {
                if event.rating >= min_rating {
                    let user = users.number(&event.user.to_string());
                    pairs.insert((user, items.number(&event.item.to_string())));
                }
                Ok(())
            })?,
            Self::Own(own) => own.read(min_rating, watch, |user, item| {
                let user = users.number(user);
                pairs.insert((user, items.number(item)));
            })?,
        };
        Ok((Pairs { pairs, users: users.names, items: items.names.len() }, source))
    }
}

impl OwnRatings {
    fn read(
        &self,
        min_rating: f64,
        watch: Watch<'_>,
        mut visit: impl FnMut(&str, &str),
    ) -> Result<RawFile, DataError> {
        let quotes = self.separator.len() == 1 && self.separator != " ";
        let format = Format { separator: self.separator.clone(), quotes, ..Format::csv() };
        let mut records = Records::open(&self.file, &format)?;
        let (user, item) = (records.column(&self.user)?, records.column(&self.item)?);
        let rating = self.rating.as_deref().map(|name| records.column(name)).transpose()?;
        while records.next(watch)? {
            for field in [user, item] {
                if records.text(field)?.is_empty() {
                    let problem = Problem::Value { value: String::new(), expected: "a name" };
                    return Err(records.error(field, problem));
                }
            }
            let liked = rating.map_or(Ok(f64::INFINITY), |field| records.number(field))? >= min_rating;
            if liked {
                visit(&records.text(user)?, &records.text(item)?);
            }
        }
        records.finish()
    }
}
