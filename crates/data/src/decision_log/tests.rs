//! Logs in text and Parquet, good and bad.

use std::path::PathBuf;

use posse_core::Arms;

use super::*;
use crate::error::DataError;
use crate::parquet_file::{Kind, Values, Writer};
use crate::store::Manifest;

struct Raw {
    home: tempfile::TempDir,
    files: LogFiles,
}

impl Raw {
    fn new(name: &str, log: &str, items: Option<&str>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        std::fs::write(&path, log).unwrap();
        let items = items.map(|items| {
            let path = home.path().join("items.csv");
            std::fs::write(&path, items).unwrap();
            path
        });
        let columns = GenericLog {
            action: "item".into(),
            reward: "click".into(),
            propensity: Some("p".into()),
            item: "id".into(),
            ..GenericLog::default()
        };
        let (name, licence) = ("made-up".into(), "none".into());
        Self { files: LogFiles { name, licence, log: path, separator: ",".into(), columns, items }, home }
    }

    fn out(&self) -> PathBuf {
        self.home.path().join("out")
    }

    fn prepare(&self) -> Result<Manifest, DataError> {
        prepare_log(&self.files, &self.out(), true, &mut |_| {})
    }

    fn load(&self) -> DecisionLog {
        self.prepare().unwrap();
        load_log(&self.out()).unwrap()
    }

    fn refusal(&self) -> String {
        let error = self.prepare().unwrap_err().to_string();
        assert!(!self.out().exists(), "nothing is half-written");
        error.replace(&format!("{}/", self.home.path().display()), "")
    }
}

#[test]
fn without_items_an_arm_is_a_block_with_the_context() {
    let mut raw =
        Raw::new("log.csv", "who,item,click,p,age\nann,10,1,0.5,30\nbob,2,0,0.25,40\nann,2,1,1,31\n", None);
    raw.files.columns.user = vec!["who".into()];
    raw.files.columns.context = vec!["age".into()];
    let log = raw.load();
    assert_eq!((log.rows(), log.actions(), log.dimension()), (3, 2, 4));
    // Numbers are in the order of numbers: 2 before 10.
    assert_eq!((log.action(0), log.action(1)), (1, 0));
    assert_eq!((log.user(0), log.user(1), log.user(2)), (0, 1, 0));
    assert_eq!((log.reward(2), log.propensity(1)), (1.0, 0.25));
    let mut arms = Arms::new(0);
    log.fill_arms(1, &mut arms);
    assert_eq!(
        (arms.row(0), arms.row(1)),
        ([40.0, 1.0, 0.0, 0.0].as_slice(), [0.0, 0.0, 40.0, 1.0].as_slice())
    );
}

#[test]
fn items_bring_numbers_and_categories_and_a_number_of_each_row() {
    let items = ",id,price,colour\n0,a,2.5,red\n1,b,-1,blue\n";
    let mut raw = Raw::new("log.csv", "item,click,p,fit_0,fit_1\nb,1,0.5,0.7,0.9\n", Some(items));
    raw.files.columns.context = vec!["fit_*".into()];
    raw.files.columns.per_item = true;
    let log = raw.load();
    let mut arms = Arms::new(0);
    log.fill_arms(0, &mut arms);
    assert_eq!(arms.row(0), [2.5, 0.0, 1.0, 1.0, 0.7]);
    assert_eq!(arms.row(1), [-1.0, 1.0, 0.0, 1.0, 0.9]);
}

#[test]
fn parquet_reads_like_text() {
    let text = Raw::new("log.csv", "item,click,p\nx,1,0.5\ny,0,0.25\n", None);
    let parquet = Raw::new("log.parquet", "", None);
    let columns = [
        ("item".into(), Kind::Text, Values::Text(vec![Some("x".into()), Some("y".into())])),
        ("click".into(), Kind::Whole, Values::Whole(vec![Some(1), Some(0)])),
        ("p".into(), Kind::Number, Values::Number(vec![Some(0.5), Some(0.25)])),
    ];
    let file = std::fs::File::create(&parquet.files.log).unwrap();
    let names = columns.clone().map(|(name, kind, _)| (name, kind));
    let mut writer = Writer::new(file, &names, true).unwrap();
    writer.write(&columns.map(|(_, _, values)| values)).unwrap();
    writer.close().unwrap();
    assert_eq!(text.prepare().unwrap().hash, parquet.prepare().unwrap().hash);
}

#[test]
fn without_propensities_all_actions_were_equally_likely() {
    let mut raw = Raw::new("log.csv", "item,click\n1,1\n2,0\n3,0\n4,1\n", None);
    raw.files.columns.propensity = None;
    assert_eq!(raw.load().propensity(2), 0.25);
}

#[test]
fn bad_logs_say_where_and_leave_nothing() {
    let header = "item,click,p\n1,0,0.5\n";
    for (row, expected) in [
        ("1,1,0\n", "log.csv, line 3, column 3 (p): \"0\" is not a probability above 0 and at most 1"),
        ("1,1,1.5\n", "log.csv, line 3, column 3 (p): \"1.5\" is not a probability above 0 and at most 1"),
        ("1,1,-0.1\n", "log.csv, line 3, column 3 (p): \"-0.1\" is not a probability above 0 and at most 1"),
        ("1,NaN,0.5\n", "log.csv, line 3, column 2 (click): \"NaN\" is not a finite number"),
        ("1,1\n", "log.csv, line 3: expected 3 fields, got 2: is the separator right?"),
    ] {
        assert_eq!(Raw::new("log.csv", &format!("{header}{row}"), None).refusal(), expected);
    }
    let items = "id,x\n1,0.5\n";
    assert_eq!(
        Raw::new("log.csv", &format!("{header}7,1,0.5\n"), Some(items)).refusal(),
        "log.csv, line 3, column 1 (item): item \"7\" is not in items.csv"
    );
    assert_eq!(
        Raw::new("log.csv", header, Some("id,x\n1,NaN\n")).refusal(),
        "items.csv, line 2, column 2 (x): \"NaN\" is not a finite number"
    );
    assert_eq!(
        Raw::new("log.csv", header, Some("id,x\n1,2\n1,3\n")).refusal(),
        "items.csv, line 3, column 1 (id): \"1\" is not new: two items are called so"
    );
    assert_eq!(Raw::new("log.csv", "", None).refusal(), "log.csv: there is no row in it");
    assert_eq!(
        Raw::new("log.csv", "item;click;p\n1;0;1\n", None).refusal(),
        "log.csv, line 1: there is no column `item`; there are item;click;p"
    );
    assert_eq!(
        Raw::new("log.csv", "item,click,item\n", None).refusal(),
        "log.csv, line 1: two columns are called `item`"
    );
}
