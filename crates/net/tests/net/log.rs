//! The log on the disk: what is torn is dropped, what is damaged is refused, with its place.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use posse_core::Seed;
use posse_net::log::{FileLog, Log, LogError, backup, read, restore, verify};

fn entries(from: u64, to: u64) -> Vec<Vec<u8>> {
    (from..to)
        .map(|number| format!("entry {number} {}", "x".repeat(number as usize % 40)).into_bytes())
        .collect()
}

/// A log with twenty batches of five entries.
fn written(directory: &Path) {
    let mut log = FileLog::open(directory).unwrap();
    for batch in 0..20 {
        log.append(&entries(5 * batch, 5 * batch + 5)).unwrap();
        log.sync(3).unwrap();
    }
}

fn segment(directory: &Path) -> PathBuf {
    directory.join(format!("{:020}.log", 0))
}

#[test]
fn what_was_synced_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path());
    let replay = FileLog::open(directory.path()).unwrap().replay().unwrap();
    assert_eq!(replay.entries, entries(0, 100));
    assert_eq!((replay.torn_bytes, replay.lost_entries, replay.epoch), (0, 0, 3));
}

#[test]
fn a_write_that_was_cut_short_is_dropped_wherever_it_was_cut() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path());
    let path = segment(directory.path());
    let (whole, mark) = (fs::read(&path).unwrap(), fs::read(directory.path().join("mark")).unwrap());
    // The next batch, as it would have been written.
    let mut log = FileLog::open(directory.path()).unwrap();
    log.replay().unwrap();
    log.append(&entries(100, 105)).unwrap();
    drop(log);
    let longer = fs::read(&path).unwrap();
    for cut in whole.len() + 1..longer.len() {
        fs::write(&path, &longer[..cut]).unwrap();
        fs::write(directory.path().join("mark"), &mark).unwrap();
        let mut log = FileLog::open(directory.path()).unwrap();
        let replay = log.replay().unwrap();
        assert_eq!(replay.entries.len(), 100, "cut at {cut}");
        assert_eq!((replay.torn_bytes, replay.lost_entries), ((cut - whole.len()) as u64, 0));
        // It goes on as if nothing had been there.
        log.append(&entries(100, 103)).unwrap();
        log.sync(3).unwrap();
        drop(log);
        assert_eq!(FileLog::open(directory.path()).unwrap().replay().unwrap().entries, entries(0, 103));
    }
}

#[test]
fn damage_in_the_middle_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path());
    let path = segment(directory.path());
    let whole = fs::read(&path).unwrap();
    let mut stream = Seed(5).stream("damage", 0, 0);
    for _ in 0..200 {
        // Anywhere but in the last batch.
        let at = stream.below(whole.len() as u64 * 9 / 10) as usize;
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << stream.below(8);
        fs::write(&path, &damaged).unwrap();
        let Err(LogError::Corrupt { offset, entry, .. }) = FileLog::open(directory.path()).map(drop) else {
            panic!("a flipped bit at {at} was not noticed");
        };
        assert!(offset as usize <= at && entry % 5 == 0, "{at}: batch at {offset}, entry {entry}");
        assert_eq!(fs::read(&path).unwrap(), damaged, "refusing changes nothing");
    }
}

#[test]
fn entries_that_were_durable_and_are_gone_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path());
    let path = segment(directory.path());
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let replay = FileLog::open(directory.path()).unwrap().replay().unwrap();
    assert!(
        replay.lost_entries > 40 && replay.entries.len() as u64 + replay.lost_entries == 100,
        "{replay:?}"
    );
}

#[test]
fn a_log_without_its_mark_counts_as_cut() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path());
    fs::remove_file(directory.path().join("mark")).unwrap();
    let replay = FileLog::open(directory.path()).unwrap().replay().unwrap();
    assert_eq!((replay.entries.len(), replay.lost_entries), (100, 1));
}

#[test]
fn saved_states_replace_what_came_before_and_an_unreadable_one_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = FileLog::with_segments_of(directory.path(), 500).unwrap();
    log.replay().unwrap();
    for batch in 0..60 {
        log.append(&entries(5 * batch, 5 * batch + 5)).unwrap();
        log.sync(0).unwrap();
        if batch % 20 == 19 {
            log.snapshot(format!("state {batch}").as_bytes()).unwrap();
            log.truncate(false).unwrap();
        }
    }
    drop(log);
    let replay = |directory: &Path| FileLog::open(directory).unwrap().replay().unwrap();
    let newest = replay(directory.path());
    assert_eq!(newest.state.as_deref(), Some(&b"state 59"[..]));
    assert!(newest.entries.is_empty());
    let contents = read(directory.path()).unwrap();
    assert!(contents.segments[0].first >= 200, "older segments are gone: {:?}", contents.segments);
    let snapshot = directory.path().join(format!("{:020}.snap", 300));
    let mut bytes = fs::read(&snapshot).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&snapshot, bytes).unwrap();
    let older = replay(directory.path());
    assert_eq!(older.state.as_deref(), Some(&b"state 39"[..]));
    assert_eq!(older.entries, entries(200, 300));
}

#[test]
fn a_log_is_for_one_process_at_a_time_and_a_missing_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = FileLog::with_segments_of(directory.path(), 100).unwrap();
    assert!(matches!(FileLog::open(directory.path()), Err(LogError::InUse { .. })));
    for batch in 0..10 {
        log.append(&entries(5 * batch, 5 * batch + 5)).unwrap();
        log.sync(0).unwrap();
    }
    drop(log);
    fs::remove_file(directory.path().join(format!("{:020}.log", 10))).unwrap();
    let error = FileLog::open(directory.path()).unwrap_err();
    assert!(matches!(error, LogError::Missing { from: 10, .. }), "{error}");
}

#[test]
fn garbage_after_the_end_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    for garbage in [vec![0; 5000], vec![0xC5; 100], b"\xC5\x9E\x0B\x51garbage of all kinds".to_vec()] {
        written_again(directory.path());
        let mut file = OpenOptions::new().append(true).open(segment(directory.path())).unwrap();
        file.write_all(&garbage).unwrap();
        let replay = FileLog::open(directory.path()).unwrap().replay().unwrap();
        assert_eq!(replay.entries.len(), 100);
        assert_eq!(replay.torn_bytes, garbage.len() as u64);
    }
}

fn written_again(directory: &Path) {
    for file in fs::read_dir(directory).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    written(directory);
}

#[test]
fn verifying_finds_damage_also_where_a_restart_would_not_look() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let mut log = FileLog::with_segments_of(here, 500).unwrap();
    for batch in 0..20 {
        log.append(&entries(5 * batch, 5 * batch + 5)).unwrap();
        log.sync(3).unwrap();
        if batch == 9 || batch == 14 {
            log.snapshot(b"a state").unwrap();
        }
    }
    drop(log);
    let sound = || verify::<LogError>(here, |_, _| Ok(()));
    let seen = sound().unwrap();
    assert_eq!((seen.snapshots, seen.entries), (2, 100));
    assert!(seen.segments > 2, "{seen:?}");
    let files = fs::read_dir(here).unwrap().map(|entry| entry.unwrap().path());
    let kept = |path: &PathBuf| path.extension().is_some_and(|own| own == "snap" || own == "log");
    let mut files: Vec<PathBuf> = files.filter(kept).collect();
    files.sort();
    // The end of the last file may be a write that was cut short.
    files.pop();
    for path in files {
        let whole = fs::read(&path).unwrap();
        for at in [0, 9, 20, whole.len() / 2, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            fs::write(&path, &damaged).unwrap();
            assert!(sound().is_err(), "byte {at} of {} was not looked at", path.display());
        }
        fs::write(&path, &whole).unwrap();
    }
    assert!(sound().is_ok());
}

#[test]
fn a_copy_of_a_log_that_is_being_written_holds_all_that_was_durable_and_counts_as_cut() {
    let directory = tempfile::tempdir().unwrap();
    let (source, durable, done) = (directory.path().join("log"), AtomicU64::new(0), AtomicBool::new(false));
    FileLog::open(&source).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = FileLog::with_segments_of(&source, 2000).unwrap();
            log.replay().unwrap();
            for batch in 0.. {
                log.append(&entries(5 * batch, 5 * batch + 5)).unwrap();
                log.sync(3).unwrap();
                durable.store(5 * batch + 5, Ordering::SeqCst);
                if batch % 40 == 39 {
                    log.snapshot(&(5 * batch + 5).to_le_bytes()).unwrap();
                    log.truncate(false).unwrap();
                }
                if done.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        for number in 0..20 {
            let least = durable.load(Ordering::SeqCst);
            let (copy, back) = (format!("copy-{number}"), format!("back-{number}"));
            let (copy, back) = (directory.path().join(copy), directory.path().join(back));
            backup(&source, &copy).unwrap();
            assert!(backup(&source, &copy).is_err(), "nothing is written over");
            restore(&copy, &back).unwrap();
            let mut log = FileLog::open(&back).unwrap();
            let replay = log.replay().unwrap();
            let first = replay.state.map_or(0, |state| u64::from_le_bytes(state.try_into().unwrap()));
            assert_eq!(replay.entries, entries(first, first + replay.entries.len() as u64));
            assert!(log.next() >= least, "{} of {least} entries", log.next());
            assert!(log.next() == 0 || replay.lost_entries > 0, "agents may know more than the copy");
        }
        done.store(true, Ordering::SeqCst);
    });
}
