//! The publishers' files: who liked what, and which words describe an item.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::text::Corpus;
use crate::error::{DataError, Problem};
use crate::records::{Format, RawFile, Records, Watch};

/// A set of files in one of the published shapes.
#[derive(Clone, Debug)]
pub struct RecommenderFiles {
    /// Which data set it is.
    pub name: String,
    /// The publisher's terms of use.
    pub licence: String,
    /// The directory with the publisher's files.
    pub raw: PathBuf,
    /// Which files there are, and how they are written.
    pub shape: Shape,
}

/// A published layout: which files there are, and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// HetRec 2011 Last.fm: `user_artists.dat`, `user_taggedartists.dat`, `tags.dat`. An event is an artist that a
    /// user listened to.
    LastFm,
    /// The same files, but an event is an artist that a user tagged: `user_taggedartists-timestamps.dat` if it is
    /// there, otherwise `user_taggedartists.dat`.
    LastFmTagging,
    /// HetRec 2011 Delicious: `user_taggedbookmarks.dat`, `tags.dat`.
    Delicious,
    /// MovieLens 20M, 25M and latest: `ratings.csv`, `movies.csv`, `tags.csv`.
    MovieLensCsv,
    /// MovieLens 1M and 10M: `ratings.dat`, `movies.dat`, and `tags.dat` if it is there.
    MovieLensDat,
    /// MovieLens 100k: `u.data`, `u.item`, `u.genre`.
    MovieLens100k,
}

impl Shape {
    /// What an event is, where the same files have several kinds.
    pub(super) const fn events(self) -> Option<&'static str> {
        match self {
            Self::LastFm => Some("listening"),
            Self::LastFmTagging => Some("tagging"),
            _ => None,
        }
    }
}

/// An event: a user took an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// The publisher's number of the user.
    pub user: u64,
    /// The publisher's number of the item.
    pub item: u64,
    /// The user's rating of the item; 1 where the file has no ratings.
    pub rating: f64,
    /// The time of the event as the publisher counts it: seconds since 1970, for Last.fm milliseconds; 0
    /// where the file has no times.
    pub time: i64,
}

/// Assignments of tags to artists, with the time of each.
const STAMPED: &str = "user_taggedartists-timestamps.dat";

/// Which columns of a file say what.
struct Columns {
    user: usize,
    item: usize,
    rating: Option<usize>,
    time: Option<usize>,
}

impl RecommenderFiles {
    /// The file of events, and how to read it.
    fn events_file(&self) -> (PathBuf, Format) {
        let tabs = Format { header: true, latin1: true, ..Format::plain("\t") };
        let (file, format) = match self.shape {
            Shape::LastFm => ("user_artists.dat", tabs),
            Shape::LastFmTagging if self.locate(STAMPED).exists() => (STAMPED, tabs),
            Shape::LastFmTagging => ("user_taggedartists.dat", tabs),
            Shape::Delicious => ("user_taggedbookmarks.dat", tabs),
            Shape::MovieLensCsv => ("ratings.csv", Format::csv()),
            Shape::MovieLensDat => ("ratings.dat", Format::plain("::")),
            Shape::MovieLens100k => ("u.data", Format::plain("\t")),
        };
        (self.locate(file), format)
    }

    /// A file, or the same compressed.
    fn locate(&self, name: &str) -> PathBuf {
        let compressed = self.raw.join(format!("{name}.gz"));
        if compressed.exists() { compressed } else { self.raw.join(name) }
    }

    fn columns(&self, records: &Records) -> Result<Columns, DataError> {
        let at = |name: &str| records.column(name);
        Ok(match self.shape {
            Shape::LastFm => Columns { user: at("userID")?, item: at("artistID")?, rating: None, time: None },
            Shape::LastFmTagging => Columns {
                user: at("userID")?,
                item: at("artistID")?,
                rating: None,
                time: at("timestamp").ok(),
            },
            Shape::Delicious => {
                Columns { user: at("userID")?, item: at("bookmarkID")?, rating: None, time: None }
            }
            Shape::MovieLensCsv => Columns {
                user: at("userId")?,
                item: at("movieId")?,
                rating: Some(at("rating")?),
                time: Some(at("timestamp")?),
            },
            Shape::MovieLensDat | Shape::MovieLens100k => {
                Columns { user: 0, item: 1, rating: Some(2), time: Some(3) }
            }
        })
    }

    /// How many bytes of events preparing reads, for progress bars: the file is read twice. 0 if the file is
    /// not there.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        2 * std::fs::metadata(self.events_file().0).map_or(0, |metadata| metadata.len())
    }

    /// Shows every event in the order of the file. Where a user is listed with an item once for each tag, it
    /// counts once.
    pub(super) fn events(
        &self,
        watch: Watch<'_>,
        mut visit: impl FnMut(Event) -> Result<(), DataError>,
    ) -> Result<RawFile, DataError> {
        let (path, format) = self.events_file();
        let mut records = Records::open(&path, &format)?;
        let mut columns = None;
        let mut seen = BTreeSet::new();
        while records.next(watch)? {
            let Columns { user, item, rating, time } = match &columns {
                Some(columns) => columns,
                None => {
                    let found = self.columns(&records)?;
                    if records.len() < 4 && rating_is_needed(&found) {
                        return Err(Problem::Fields { expected: 4, got: records.len() }.at(&path, 1));
                    }
                    columns.insert(found)
                }
            };
            let event = Event {
                user: records.whole(*user)?,
                item: records.whole(*item)?,
                rating: rating.map_or(Ok(1.0), |field| records.number(field))?,
                time: time.map_or(Ok(0), |field| moment(&records, field))?,
            };
            if matches!(self.shape, Shape::Delicious | Shape::LastFmTagging)
                && !seen.insert((event.user, event.item))
            {
                continue;
            }
            visit(event)?;
        }
        records.finish()
    }

    /// Adds everything that is said about items to `corpus`. Text about items that are not in `items` is passed
    /// over.
    pub(super) fn texts(
        &self,
        items: &BTreeMap<u64, u32>,
        corpus: &mut Corpus,
        watch: Watch<'_>,
    ) -> Result<Vec<RawFile>, DataError> {
        let mut about = Texts { files: self, items, corpus, sources: Vec::new() };
        match self.shape {
            Shape::LastFm | Shape::LastFmTagging => {
                about.hetrec("user_taggedartists.dat", "artistID", "tagID", "tagValue", watch)?;
            }
            Shape::Delicious => {
                about.hetrec("user_taggedbookmarks.dat", "bookmarkID", "id", "value", watch)?;
            }
            Shape::MovieLensCsv => {
                about.plain("movies.csv", &Format::csv(), ("movieId", 0), ("genres", 2), watch)?;
                about.plain("tags.csv", &Format::csv(), ("movieId", 1), ("tag", 2), watch)?;
            }
            Shape::MovieLensDat => {
                let format = Format { latin1: true, ..Format::plain("::") };
                about.plain("movies.dat", &format, ("", 0), ("", 2), watch)?;
                if self.locate("tags.dat").exists() {
                    about.plain("tags.dat", &format, ("", 1), ("", 2), watch)?;
                }
            }
            Shape::MovieLens100k => about.genres(watch)?,
        }
        Ok(about.sources)
    }
}

/// A time; some tags are dated before 1970.
fn moment(records: &Records, field: usize) -> Result<i64, DataError> {
    records.text(field)?.trim().parse().map_err(|_| records.refuse(field, "a whole number"))
}

const fn rating_is_needed(columns: &Columns) -> bool {
    columns.rating.is_some()
}

/// Texts about items on their way into a corpus.
struct Texts<'t> {
    files: &'t RecommenderFiles,
    items: &'t BTreeMap<u64, u32>,
    corpus: &'t mut Corpus,
    sources: Vec<RawFile>,
}

impl Texts<'_> {
    fn add(&mut self, item: u64, text: &str) {
        if let Some(&item) = self.items.get(&item) {
            self.corpus.add(item as usize, text);
        }
    }

    /// A file with an item and a text in each line; columns by name if there is a header.
    fn plain(
        &mut self,
        file: &str,
        format: &Format,
        item: (&str, usize),
        text: (&str, usize),
        watch: Watch<'_>,
    ) -> Result<(), DataError> {
        let path = self.files.locate(file);
        let mut records = Records::open(&path, format)?;
        let find = |records: &Records, (name, place): (&str, usize)| {
            if records.columns().is_empty() { Ok(place) } else { records.column(name) }
        };
        let (item, text) = (find(&records, item)?, find(&records, text)?);
        while records.next(watch)? {
            if records.len() <= item.max(text) {
                return Err(Problem::Fields { expected: item.max(text) + 1, got: records.len() }.of(&path));
            }
            let id = records.whole(item)?;
            let words = records.text(text)?;
            // What MovieLens says about films without genres is no word about them.
            if words != "(no genres listed)" {
                self.add(id, &words.replace('|', " "));
            }
        }
        self.sources.push(records.finish()?);
        Ok(())
    }

    /// Assignments of numbered tags, whose texts are in a file of their own.
    fn hetrec(
        &mut self,
        file: &str,
        item: &str,
        id: &str,
        value: &str,
        watch: Watch<'_>,
    ) -> Result<(), DataError> {
        // Some texts have tabs in them.
        let format = Format { header: true, latin1: true, open_end: true, ..Format::plain("\t") };
        let path = self.files.locate("tags.dat");
        let mut records = Records::open(&path, &format)?;
        let (id, value) = (records.column(id)?, records.column(value)?);
        let mut tags: BTreeMap<u64, String> = BTreeMap::new();
        while records.next(watch)? {
            tags.insert(records.whole(id)?, records.text(value)?.into_owned());
        }
        self.sources.push(records.finish()?);
        let mut records = Records::open(&self.files.locate(file), &Format { open_end: false, ..format })?;
        let (item, tag) = (records.column(item)?, records.column("tagID")?);
        while records.next(watch)? {
            let (id, number) = (records.whole(item)?, records.whole(tag)?);
            let Some(text) = tags.get(&number) else {
                let problem =
                    Problem::Unknown { what: "tag", value: number.to_string(), home: name_of(&path) };
                return Err(records.error(tag, problem));
            };
            self.add(id, text);
        }
        self.sources.push(records.finish()?);
        Ok(())
    }

    /// MovieLens 100k: a switch for each genre at the end of the line.
    fn genres(&mut self, watch: Watch<'_>) -> Result<(), DataError> {
        let format = Format { latin1: true, ..Format::plain("|") };
        let mut records = Records::open(&self.files.locate("u.genre"), &format)?;
        let mut names = Vec::new();
        while records.next(watch)? {
            names.push(records.text(0)?.into_owned());
        }
        self.sources.push(records.finish()?);
        let path = self.files.locate("u.item");
        let mut records = Records::open(&path, &format)?;
        while records.next(watch)? {
            let Some(first) = records.len().checked_sub(names.len()).filter(|first| *first > 0) else {
                return Err(Problem::Fields { expected: names.len() + 5, got: records.len() }.of(&path));
            };
            let id = records.whole(0)?;
            for (place, name) in names.iter().enumerate() {
                if records.whole(first + place)? == 1 && name != "unknown" {
                    self.add(id, name);
                }
            }
        }
        self.sources.push(records.finish()?);
        Ok(())
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
