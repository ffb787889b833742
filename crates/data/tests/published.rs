//! The publishers' own files: their counts are those that were published.
//!
//! They are not part of this repository. Set POSSE_DATA to a directory that holds a folder for each data set
//! by its name; `cargo xtask test` sets it to `../shared/data` if that is there. Without it these tests are skipped.

use std::path::{Path, PathBuf};

use posse_data::catalogue;
use posse_data::decision_log::{DecisionLog, load_log, prepare_log};
use posse_data::labelled::{TableSettings, prepare_table};
use posse_data::ope::{Estimator, Interval, JudgedRow, effective_sample_size, estimate};
use posse_data::recommender::{RecommenderSettings, prepare};

/// The folder of a data set, if it is here.
fn raw(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("POSSE_DATA").map(|home| Path::new(&home).join(name));
    let found = folder.filter(|folder| folder.exists());
    if found.is_none() {
        posse_testing::skip(&format!("the data set {name} is not here: set POSSE_DATA to where it is"));
    }
    found
}

#[test]
fn tables_have_the_published_rows_features_and_classes() {
    let classes: [(&str, &[(&str, u64)]); 4] = [
        (
            "shuttle",
            &[("1", 45_586), ("2", 50), ("3", 171), ("4", 8_903), ("5", 3_267), ("6", 10), ("7", 13)],
        ),
        ("magic", &[("g", 12_332), ("h", 6_688)]),
        ("mushroom", &[("e", 4_208), ("p", 3_916)]),
        ("covertype", &[("1", 211_840), ("2", 283_301), ("3", 35_754), ("4", 2_747)]),
    ];
    for (name, classes) in classes {
        let Some(raw) = raw(name) else { continue };
        let home = tempfile::tempdir().unwrap();
        let set = catalogue::find(name).unwrap();
        let files = set.labelled(&raw).unwrap().unwrap();
        let out = home.path().join("out");
        let manifest = prepare_table(&files, &TableSettings::default(), &out, false, &mut |_| {}).unwrap();
        for (what, expected) in set.counts {
            assert_eq!(manifest.counts[*what], *expected, "{name} {what}");
        }
        for (class, rows) in classes {
            assert_eq!(manifest.counts[&format!("class {class}")], *rows, "{name} {class}");
        }
        for file in set.files {
            let source = manifest.sources.iter().find(|source| source.file == file.name).unwrap();
            assert_eq!(Some(source.sha256.as_str()), file.sha256, "{name} {}", file.name);
        }
    }
}

#[test]
fn movie_lens_has_the_published_users_items_and_events() {
    let Some(raw) = raw("ml-latest-small") else { return };
    let home = tempfile::tempdir().unwrap();
    let set = catalogue::find("ml-latest-small").unwrap();
    let files = set.recommender(&raw).unwrap().unwrap();
    let settings = RecommenderSettings::default();
    let manifest =
        prepare(&files, &settings, &home.path().join("out"), false, &mut |_| {}, &mut |_| {}).unwrap();
    for (what, expected) in set.counts {
        assert_eq!(manifest.counts[*what], *expected, "{what}");
    }
}

/// A policy that prefers some items whoever is there, and a model that believes in others, so that every number
/// below follows from the log by a formula.
fn evidence(log: &DecisionLog, row: usize) -> JudgedRow {
    let preference = |item: usize| (1 + item % 7) as f64;
    let all: f64 = (0..80).map(preference).sum();
    let expected = |item: usize| 0.001 * (1 + item % 5) as f64;
    JudgedRow {
        reward: log.reward(row),
        propensity: log.propensity(row),
        policy: preference(log.action(row)) / all,
        expected: expected(log.action(row)),
        expected_of_policy: (0..80).map(|item| preference(item) / all * expected(item)).sum(),
    }
}

/// The numbers were computed from the same files by a program in another language that shares no code with this
/// one: each estimator as obp's source defines it (inverse propensities, self-normalised, direct method, doubly robust,
/// switch at weight 2, optimistic shrinkage with 5, and the effective sample size), summed exactly and rounded once.
/// The last is half of the 95 % interval of the first, from the sample standard deviation.
#[test]
fn estimates_on_open_bandit_data_are_those_of_the_published_definitions() {
    let expected = [
        (
            "random",
            [
                0.003_566_878_980_891_719_7,
                0.003_579_830_213_767_004,
                0.002_996_815_286_624_204,
                0.003_572_815_286_624_204,
                0.003_572_815_286_624_204,
                0.003_457_946_771_355_960_4,
                7_915.022_687_753_582,
                0.001_292_648_690_976_837_8,
            ],
        ),
        (
            "bts",
            [
                0.001_958_134_753_043_648,
                0.001_928_246_504_132_217_3,
                0.002_996_815_286_624_204,
                0.001_925_494_751_809_530_2,
                0.003_264_923_260_867_975_5,
                0.003_360_780_387_910_638_4,
                261.984_594_247_024_2,
                0.001_142_728_946_552_196_6,
            ],
        ),
    ];
    for (policy, expected) in expected {
        let Some(raw) = raw(&format!("open-bandit/{policy}")) else { continue };
        let home = tempfile::tempdir().unwrap();
        let out = home.path().join("out");
        let files = catalogue::find("open-bandit").unwrap().log(&raw).unwrap().unwrap();
        let manifest = prepare_log(&files, &out, false, &mut |_| {}).unwrap();
        assert_eq!((manifest.counts["rows"], manifest.counts["items"]), (10_000, 80));
        let log = load_log(&out).unwrap();
        let rows: Vec<JudgedRow> = (0..log.rows()).map(|row| evidence(&log, row)).collect();
        let estimators = [
            Estimator::Ips,
            Estimator::Snips,
            Estimator::Dm,
            Estimator::Dr,
            Estimator::Switch { threshold: 2.0 },
            Estimator::DrOs { shrinkage: 5.0 },
        ];
        let near = |name: &str, got: f64, expected: f64| {
            assert!((got / expected - 1.0).abs() < 1e-12, "{policy} {name}: {got} instead of {expected}");
        };
        for (estimator, expected) in estimators.into_iter().zip(expected) {
            let found = estimate(&rows, estimator, Interval::Normal, 0.95).unwrap();
            near(estimator.name(), found.value, expected);
        }
        near("effective", effective_sample_size(&rows), expected[6]);
        // Of the policy that shows item (row + 8) mod 80, or (row + 18) mod 80: 3 clicks in 139 rows, 4 in 132.
        let (shift, clicks, matches) = if policy == "random" { (8, 3.0, 139.0) } else { (18, 4.0, 132.0) };
        let same = |row: usize| f64::from(u8::from(log.action(row) == (row + shift) % 80));
        let sure: Vec<JudgedRow> = rows
            .iter()
            .enumerate()
            .map(|(row, evidence)| JudgedRow { policy: same(row), ..*evidence })
            .collect();
        let replay = estimate(&sure, Estimator::Replay, Interval::Normal, 0.95).unwrap();
        assert_eq!((replay.value, replay.effective), (clicks / matches, matches), "{policy}");
        let ips = estimate(&rows, Estimator::Ips, Interval::Normal, 0.95).unwrap();
        near("half", ips.high - ips.value, expected[7]);
    }
}
