//! The data sets that are known by name: who publishes them, under which terms, and which files there are.

mod logs;
mod recommenders;
mod uci;

use std::path::{Path, PathBuf};

use crate::decision_log::LogFiles;
use crate::error::{DataError, Problem};
use crate::labelled::LabelledFiles;
use crate::recommender::RecommenderFiles;

/// A data set that is known by name. posse brings none of them; `posse data fetch` gets them from their publishers.
#[derive(Clone, Copy, Debug)]
pub struct KnownSet {
    /// The name that commands and experiments use.
    pub name: &'static str,
    /// The full title, for people.
    pub title: &'static str,
    /// The publisher's terms of use, in a few words.
    pub licence: &'static str,
    /// The web page of the publisher.
    pub address: &'static str,
    /// The publisher's archive with the files in it, if there is one to download.
    pub download: Option<&'static str>,
    /// The files that are read.
    pub files: &'static [KnownFile],
    /// What is in it, as its publisher says. Where we have seen no copy, that is all we know.
    pub counts: &'static [(&'static str, u64)],
}

/// A file of a known data set.
#[derive(Clone, Copy, Debug)]
pub struct KnownFile {
    /// The name of the file as it is published.
    pub name: &'static str,
    /// SHA-256 of the copies we have seen; publishers may have others.
    pub sha256: Option<&'static str>,
}

impl KnownFile {
    const fn new(name: &'static str, sha256: &'static str) -> Self {
        Self { name, sha256: Some(sha256) }
    }
}

/// Returns all data sets that posse knows: labelled tables, recommenders, then logs.
#[must_use]
pub fn all() -> Vec<&'static KnownSet> {
    uci::ALL.iter().chain(recommenders::ALL).chain(logs::ALL).collect()
}

/// The known data set of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static KnownSet> {
    all().into_iter().find(|set| set.name == name)
}

/// How a labelled table is usually cut into clusters.
#[derive(Clone, Copy, Debug)]
pub struct Clustered {
    /// The class whose rows pay 1; rows of other classes pay 0.
    pub target: &'static str,
    /// How many of the features are used, if not all.
    pub features: Option<usize>,
}

/// How the data set of this name is usually cut into clusters, if it is.
#[must_use]
pub fn clustered(name: &str) -> Option<Clustered> {
    uci::clustered(name)
}

impl KnownSet {
    /// The labelled table in its files, if it is one.
    #[must_use]
    pub fn labelled(&self, raw: &Path) -> Option<Result<LabelledFiles, DataError>> {
        uci::labelled(self, raw)
    }

    /// The recommender in its files, if it is one.
    #[must_use]
    pub fn recommender(&self, raw: &Path) -> Option<Result<RecommenderFiles, DataError>> {
        let shape = recommenders::shape(self.name)?;
        let missing = self.files.iter().find_map(|file| self.locate(raw, file.name).err());
        Some(missing.map_or_else(
            || {
                let (name, licence) = (self.name.into(), self.licence.into());
                Ok(RecommenderFiles { name, licence, raw: raw.to_owned(), shape })
            },
            Err,
        ))
    }

    /// The log of decisions in its files, if it is one.
    #[must_use]
    pub fn log(&self, raw: &Path) -> Option<Result<LogFiles, DataError>> {
        logs::log(self, raw)
    }

    /// Where a file is: in the directory as published, or compressed.
    pub fn locate(&self, raw: &Path, name: &str) -> Result<PathBuf, DataError> {
        let plain = raw.join(name);
        let compressed = raw.join(format!("{name}.gz"));
        let unpacked = raw.join(name.trim_end_matches(".gz"));
        [&plain, &compressed, &unpacked].into_iter().find(|path| path.exists()).cloned().ok_or_else(|| {
            let advice = format!("no such file; {} comes from {}", self.name, self.address);
            Problem::System(advice).of(&plain)
        })
    }
}
