//! Labelled tables in the publishers' shapes, prepared and loaded.

use std::path::Path;

use posse_core::Seed;
use posse_sim::world::{Data, LabelledTable};

use super::*;
use crate::error::DataError;
use crate::store::Manifest;

/// Files with this content in a directory of their own, and where to prepare them.
struct Raw {
    home: tempfile::TempDir,
    files: LabelledFiles,
}

impl Raw {
    fn new(contents: &[&str], format: Format, label: Label) -> Self {
        let home = tempfile::tempdir().unwrap();
        let files = contents.iter().enumerate().map(|(index, content)| {
            let path = home.path().join(format!("part{index}.txt"));
            std::fs::write(&path, content).unwrap();
            path
        });
        let files = LabelledFiles {
            name: "made-up".into(),
            licence: "none".into(),
            files: files.collect(),
            format,
            label,
            categorical: Categorical::None,
            missing: None,
            features: None,
        };
        Self { home, files }
    }

    fn out(&self) -> std::path::PathBuf {
        self.home.path().join("prepared")
    }

    fn table(&self, settings: &TableSettings) -> Result<Manifest, DataError> {
        prepare_table(&self.files, settings, &self.out(), false, &mut |_| {})
    }

    /// What is wrong, without the directory.
    fn refusal(&self) -> String {
        let error = self.table(&TableSettings::default()).unwrap_err().to_string();
        assert!(!self.out().exists());
        let left = std::fs::read_dir(self.home.path()).unwrap().count();
        assert_eq!(left, self.files.files.len(), "nothing is half-written");
        error.replace(&format!("{}/", self.home.path().display()), "")
    }
}

fn load_table(directory: &Path, manifest: &Manifest) -> LabelledTable {
    match crate::load(directory, &manifest.hash).unwrap().0 {
        Data::Table(table) => LabelledTable::clone(&table),
        other => panic!("{}", other.kind()),
    }
}

const UNSCALED: TableSettings = TableSettings { scale: Scale::None, groups: 0, seed: Seed(0) };

#[test]
fn several_files_with_the_class_last_become_one_table() {
    let raw = Raw::new(&["3 4 10\n0 5 2\n", "6 8 2"], Format::plain(" "), Label::Last);
    let manifest = raw.table(&UNSCALED).unwrap();
    assert_eq!(manifest.counts["rows"], 3);
    // Numbers are in the order of numbers: 2 before 10.
    assert_eq!(manifest.names["classes"], ["2", "10"]);
    assert_eq!((manifest.counts["class 2"], manifest.counts["class 10"]), (2, 1));
    assert_eq!(manifest.sources.len(), 2);
    let table = load_table(&raw.out(), &manifest);
    assert_eq!((table.labels(), table.row(2)), ([1, 0, 0].as_slice(), [6.0, 8.0].as_slice()));
}

#[test]
fn categories_become_features_that_are_zero_or_one() {
    let mut raw = Raw::new(&["p,x,?\ne,b,s\ne,x,s\n"], Format::plain(","), Label::First);
    raw.files.categorical = Categorical::All;
    let manifest = raw.table(&UNSCALED).unwrap();
    let names: Vec<&str> = manifest.tables[0].columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x2=b", "x2=x", "x3=?", "x3=s", "label"]);
    let table = load_table(&raw.out(), &manifest);
    assert_eq!(table.row(0), [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(table.row(1), [1.0, 0.0, 0.0, 1.0]);
    assert_eq!(table.labels(), [1, 0, 0]);
}

#[test]
fn a_header_names_the_class_and_the_categories() {
    let mut raw = Raw::new(
        &["colour,won,size\r\nred,yes,1\r\n\"blue\",no,2\r\n"],
        Format::csv(),
        Label::Named("won".into()),
    );
    raw.files.categorical = Categorical::Named(vec!["colour".into()]);
    let manifest = raw.table(&UNSCALED).unwrap();
    let table = load_table(&raw.out(), &manifest);
    assert_eq!(manifest.names["classes"], ["no", "yes"]);
    assert_eq!((table.row(0), table.row(1)), ([0.0, 1.0, 1.0].as_slice(), [1.0, 0.0, 2.0].as_slice()));
}

#[test]
fn published_scaling_makes_rows_length_one_and_then_columns_standard() {
    let raw = Raw::new(&["3,4,a\n5,12,b\n8,6,a\n0,0,b\n"], Format::plain(","), Label::Last);
    let manifest = raw.table(&TableSettings::default()).unwrap();
    let table = load_table(&raw.out(), &manifest);
    // Rows of length one: (3/5, 4/5), (5/13, 12/13), (4/5, 3/5), (0, 0).
    let first = [0.6, 5.0 / 13.0, 0.8, 0.0];
    let mean = first.iter().sum::<f64>() / 4.0;
    let deviation = (first.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 4.0).sqrt();
    for (row, x) in first.into_iter().enumerate() {
        assert!((table.row(row)[0] - (x - mean) / deviation).abs() < 1e-12);
    }
}

#[test]
fn other_scalings_do_what_their_names_say() {
    let raw = Raw::new(&["3,7,a\n4,7,b\n"], Format::plain(","), Label::Last);
    let with = |scale| {
        let _ = std::fs::remove_dir_all(raw.out());
        let manifest = raw.table(&TableSettings { scale, ..UNSCALED }).unwrap();
        load_table(&raw.out(), &manifest)
    };
    // A constant column becomes zero.
    assert_eq!(
        (with(Scale::Columns).row(0), with(Scale::Columns).row(1)),
        ([-1.0, 0.0].as_slice(), [1.0, 0.0].as_slice())
    );
    let length = with(Scale::Rows).row(0).iter().map(|x| x * x).sum::<f64>();
    assert!((length - 1.0).abs() < 1e-12);
}

#[test]
fn groups_hold_similar_rows() {
    let raw = Raw::new(&["0,a\n100,a\n1,b\n101,b\n2,a\n"], Format::plain(","), Label::Last);
    let manifest = raw.table(&TableSettings { groups: 2, ..UNSCALED }).unwrap();
    let table = load_table(&raw.out(), &manifest);
    let groups = table.groups();
    assert!(groups[0] == groups[2] && groups[2] == groups[4] && groups[1] == groups[3]);
    assert_ne!(groups[0], groups[1]);
}

#[test]
fn clusters_are_arms_that_pay_as_their_members_do() {
    let raw = Raw::new(&["0,7,a\n0,7,b\n10,7,a\n10,7,a\n10,7,a\n10,7,b\n"], Format::plain(","), Label::Last);
    let settings = ClusterSettings { clusters: 2, target: "a".into(), seed: Seed(0) };
    let manifest = prepare_clusters(&raw.files, &settings, &raw.out(), false, &mut |_| {}).unwrap();
    let Data::Clusters(clusters) = crate::load(&raw.out(), &manifest.hash).unwrap().0 else { panic!() };
    let mut arms: Vec<(f64, f64)> =
        clusters.centroids().zip(clusters.shares()).map(|(x, share)| (x[0], *share)).collect();
    arms.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Mean 20/3 and deviation 10·√2/3.
    let standard = |x: f64| (x - 20.0 / 3.0) / (10.0 * 2f64.sqrt() / 3.0);
    assert!((arms[0].0 - standard(0.0)).abs() < 1e-12 && (arms[1].0 - standard(10.0)).abs() < 1e-12);
    assert_eq!((arms[0].1, arms[1].1), (0.5, 0.75));
    assert!(clusters.centroids().all(|x| x[1] == 0.0 && x[2] == 1.0));
    let unknown = ClusterSettings { target: "c".into(), ..settings };
    let error = prepare_clusters(&raw.files, &unknown, &raw.out(), true, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("class \"c\" is not in a, b"), "{error}");
}

#[test]
fn missing_numbers_are_errors_unless_something_stands_for_them() {
    for missing in ["", "?", "NA", "NaN"] {
        let mut raw = Raw::new(&[&format!("1,2,a\n3,{missing},b\n")], Format::plain(","), Label::Last);
        let remedy = "fill it in, or say with --missing what stands for it";
        let expected = format!("part0.txt, line 2, column 2: {missing:?} is not a finite number: {remedy}");
        assert_eq!(raw.refusal(), expected);
        raw.files.missing = Some(-1.0);
        let manifest = raw.table(&UNSCALED).unwrap();
        assert_eq!(load_table(&raw.out(), &manifest).row(1), [3.0, -1.0]);
    }
}

#[test]
fn bad_tables_say_where_and_leave_nothing() {
    let plain = || Format::plain(",");
    for (contents, format, label, expected) in [
        (
            vec!["1;2;a\n"],
            plain(),
            Label::Last,
            "part0.txt, line 1, column 1: there is no column besides the class",
        ),
        (
            vec!["1,2,a\n1,x,b\n"],
            plain(),
            Label::Last,
            "part0.txt, line 2, column 2: \"x\" is not a finite number: \
             correct it, or name a column of words in --categorical",
        ),
        (
            vec!["1,inf,a\n"],
            plain(),
            Label::Last,
            "part0.txt, line 1, column 2: \"inf\" is not a finite number: \
             correct it, or name a column of words in --categorical",
        ),
        (
            vec!["1,2,a\n1,2\n"],
            plain(),
            Label::Last,
            "part0.txt, line 2: expected 3 fields, got 2: is the separator right?",
        ),
        (
            vec!["1,2,a\n", "1,a\n"],
            plain(),
            Label::Last,
            "part1.txt: expected 3 fields, got 2: is the separator right?",
        ),
        (
            vec!["1,2,a\n1,2, \n"],
            plain(),
            Label::Last,
            "part0.txt, line 2, column 3: \" \" is not a class: fill it in, or leave the row out",
        ),
        (
            vec!["1,2,a\n", "3,4,a\n"],
            plain(),
            Label::Last,
            "part0.txt: all rows are of class \"a\": there is nothing to choose; is --label right?",
        ),
        (
            vec!["1,a\n2,b\n"],
            plain(),
            Label::Named("3".into()),
            "part0.txt, line 1: there is no column `3`; there are 1 to 2",
        ),
        (vec![""], plain(), Label::Last, "part0.txt: there is no row in it"),
        (
            vec!["x,y\n1,a\n"],
            Format::csv(),
            Label::Named("z".into()),
            "part0.txt, line 1: there is no column `z`; there are x, y",
        ),
        (vec!["x,y,x\n1,a,2\n"], Format::csv(), Label::Last, "part0.txt, line 1: two columns are called `x`"),
    ] {
        assert_eq!(Raw::new(&contents, format, label).refusal(), expected);
    }
    let mut raw = Raw::new(&["1,a\n"], plain(), Label::Last);
    raw.files.files[0].set_file_name("absent.txt");
    assert_eq!(raw.refusal(), "absent.txt: no such file or directory");
}

#[test]
fn only_the_named_content_is_loaded() {
    let raw = Raw::new(&["1,a\n2,b\n"], Format::plain(","), Label::Last);
    let manifest = raw.table(&UNSCALED).unwrap();
    for good in [manifest.hash.as_str(), &manifest.hash[..12], "any"] {
        assert_eq!(crate::load(&raw.out(), good).unwrap().1, manifest.hash);
    }
    for (hash, expected) in
        [("", "add hash = "), ("abc", "the content hash is"), ("000000000000", "the content hash is")]
    {
        let error = crate::load(&raw.out(), hash).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(&manifest.hash), "{error}");
    }
}
