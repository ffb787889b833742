//! Labelled tables of the UCI Machine Learning Repository.

use std::path::Path;

use super::{Clustered, KnownFile, KnownSet};
use crate::error::DataError;
use crate::labelled::{Categorical, Label, LabelledFiles};
use crate::records::Format;

const CC_BY: &str = "CC BY 4.0";

/// Every labelled table that posse knows.
pub(super) const ALL: &[KnownSet] = &[
    KnownSet {
        name: "shuttle",
        title: "Statlog (Shuttle): 9 numbers, 7 classes",
        licence: CC_BY,
        address: "https://archive.ics.uci.edu/dataset/148/statlog+shuttle",
        download: Some("https://archive.ics.uci.edu/static/public/148/statlog+shuttle.zip"),
        files: &[
            KnownFile::new("shuttle.trn", "87b24ee9fb5137e1d417659cf905d84d0e15342bbaa60770f1ae83da1a38200a"),
            KnownFile::new("shuttle.tst", "f776934a628d9b94c482cb058a76ddaa63823e0f74aec065813c9dff3b89d661"),
        ],
        counts: &[("rows", 58_000), ("features", 9), ("classes", 7)],
    },
    KnownSet {
        name: "magic",
        title: "MAGIC Gamma Telescope: 10 numbers, 2 classes",
        licence: CC_BY,
        address: "https://archive.ics.uci.edu/dataset/159/magic+gamma+telescope",
        download: Some("https://archive.ics.uci.edu/static/public/159/magic+gamma+telescope.zip"),
        files: &[KnownFile::new(
            "magic04.data",
            "e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a",
        )],
        counts: &[("rows", 19_020), ("features", 10), ("classes", 2)],
    },
    KnownSet {
        name: "mushroom",
        title: "Mushroom: 22 categories, edible or poisonous",
        licence: CC_BY,
        address: "https://archive.ics.uci.edu/dataset/73/mushroom",
        download: Some("https://archive.ics.uci.edu/static/public/73/mushroom.zip"),
        files: &[KnownFile::new(
            "agaricus-lepiota.data",
            "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
        )],
        counts: &[("rows", 8_124), ("features", 117), ("classes", 2)],
    },
    KnownSet {
        name: "covertype",
        title: "Covertype: 10 numbers and 44 switches, 7 classes",
        licence: "CC BY 4.0, copyright Jock A. Blackard and Colorado State University",
        address: "https://archive.ics.uci.edu/dataset/31/covertype",
        download: Some("https://archive.ics.uci.edu/static/public/31/covertype.zip"),
        files: &[KnownFile::new(
            "covtype.data.gz",
            "b22ca13b51814b12ef7fec2fc96a623903e35dab1469a4d1213fe9911d92912c",
        )],
        counts: &[("rows", 581_012), ("features", 54), ("classes", 7)],
    },
];

/// How a set is cut into clusters: Covertype as Filippi et al. (2010) do it, from its ten numbers; the class
/// that pays in the others is a choice of ours.
pub(super) fn clustered(name: &str) -> Option<Clustered> {
    Some(match name {
        "covertype" => Clustered { target: "1", features: Some(10) },
        "shuttle" => Clustered { target: "1", features: None },
        "magic" => Clustered { target: "g", features: None },
        "mushroom" => Clustered { target: "e", features: None },
        _ => return None,
    })
}

/// How the files of a set are laid out.
pub(super) fn labelled(set: &KnownSet, raw: &Path) -> Option<Result<LabelledFiles, DataError>> {
    let (separator, label, categorical) = match set.name {
        "shuttle" => (" ", Label::Last, Categorical::None),
        "magic" | "covertype" => (",", Label::Last, Categorical::None),
        // `?` is a category like others.
        "mushroom" => (",", Label::First, Categorical::All),
        _ => return None,
    };
    let files: Result<_, _> = set.files.iter().map(|file| set.locate(raw, file.name)).collect();
    Some(files.map(|files| LabelledFiles {
        name: set.name.into(),
        licence: set.licence.into(),
        files,
        format: Format::plain(separator),
        label,
        categorical,
        missing: None,
        features: None,
    }))
}
