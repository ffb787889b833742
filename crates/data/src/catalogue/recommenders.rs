//! Recommender data of GroupLens: MovieLens, and the HetRec 2011 sets.

use super::{KnownFile, KnownSet};
use crate::recommender::Shape;

const MOVIE_LENS: &str = "GroupLens: research use, not commercial; see the README of the data set";
const HETREC: &str =
    "GroupLens: research use, not commercial, may not be passed on; see the readme of the data set";
const HETREC_ADDRESS: &str = "https://grouplens.org/datasets/hetrec-2011/";

const fn unseen(name: &'static str) -> KnownFile {
    KnownFile { name, sha256: None }
}

/// Every recommender data set that posse knows.
pub(super) const ALL: &[KnownSet] = &[
    KnownSet {
        name: "lastfm",
        title: "HetRec 2011 Last.fm: listened artists, with tags",
        licence: HETREC,
        address: HETREC_ADDRESS,
        download: Some("https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip"),
        files: &[unseen("user_artists.dat"), unseen("user_taggedartists.dat"), unseen("tags.dat")],
        counts: &[("users", 1_892), ("items", 17_632), ("events", 92_834)],
    },
    KnownSet {
        name: "delicious",
        title: "HetRec 2011 Delicious: bookmarked addresses, with tags",
        licence: HETREC,
        address: HETREC_ADDRESS,
        download: Some("https://files.grouplens.org/datasets/hetrec2011/hetrec2011-delicious-2k.zip"),
        files: &[unseen("user_taggedbookmarks.dat"), unseen("tags.dat")],
        counts: &[("users", 1_867), ("items", 69_226), ("events", 104_799)],
    },
    KnownSet {
        name: "ml-latest-small",
        title: "MovieLens latest small (2018): ratings, genres and tags",
        licence: MOVIE_LENS,
        address: "https://grouplens.org/datasets/movielens/latest/",
        download: Some("https://files.grouplens.org/datasets/movielens/ml-latest-small.zip"),
        files: &[
            KnownFile::new("ratings.csv", "aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646"),
            KnownFile::new("movies.csv", "5a5f32dd9bb3797b8e728a1b98958789d2b13f294a69fdfbc5727f8a9611aa07"),
            KnownFile::new("tags.csv", "92a9f8bb7916dceef6151209845788c3643f794dfa79d1feaec7121b5960399d"),
        ],
        counts: &[("users", 610), ("items", 9_724), ("events", 100_836)],
    },
    KnownSet {
        name: "ml-100k",
        title: "MovieLens 100k: ratings and genres",
        licence: MOVIE_LENS,
        address: "https://grouplens.org/datasets/movielens/100k/",
        download: Some("https://files.grouplens.org/datasets/movielens/ml-100k.zip"),
        files: &[unseen("u.data"), unseen("u.item"), unseen("u.genre")],
        counts: &[("users", 943), ("items", 1_682), ("events", 100_000)],
    },
    KnownSet {
        name: "ml-1m",
        title: "MovieLens 1M: ratings and genres",
        licence: MOVIE_LENS,
        address: "https://grouplens.org/datasets/movielens/1m/",
        download: Some("https://files.grouplens.org/datasets/movielens/ml-1m.zip"),
        files: &[unseen("ratings.dat"), unseen("movies.dat")],
        counts: &[("users", 6_040), ("items", 3_706), ("events", 1_000_209)],
    },
    KnownSet {
        name: "ml-20m",
        title: "MovieLens 20M: ratings, genres and tags",
        licence: MOVIE_LENS,
        address: "https://grouplens.org/datasets/movielens/20m/",
        download: Some("https://files.grouplens.org/datasets/movielens/ml-20m.zip"),
        files: &[unseen("ratings.csv"), unseen("movies.csv"), unseen("tags.csv")],
        counts: &[("users", 138_493), ("items", 26_744), ("events", 20_000_263)],
    },
    KnownSet {
        name: "ml-25m",
        title: "MovieLens 25M: ratings, genres and tags",
        licence: MOVIE_LENS,
        address: "https://grouplens.org/datasets/movielens/25m/",
        download: Some("https://files.grouplens.org/datasets/movielens/ml-25m.zip"),
        files: &[unseen("ratings.csv"), unseen("movies.csv"), unseen("tags.csv")],
        counts: &[("users", 162_541), ("items", 59_047), ("events", 25_000_095)],
    },
];

/// How the files of a set are laid out.
pub(super) fn shape(name: &str) -> Option<Shape> {
    Some(match name {
        "lastfm" => Shape::LastFm,
        "delicious" => Shape::Delicious,
        "ml-latest-small" | "ml-20m" | "ml-25m" => Shape::MovieLensCsv,
        "ml-1m" => Shape::MovieLensDat,
        "ml-100k" => Shape::MovieLens100k,
        _ => return None,
    })
}
