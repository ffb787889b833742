//! Exactly one process appends, whatever the others believe.

use std::sync::Barrier;

use posse_core::TimeSpan;
use posse_net::log::postgres::PostgresLog;
use posse_net::log::{KeptLife, Leadership, Log, LogError, StorageConfig};

use crate::support::{Place, entries, federation, keep};

#[test]
fn a_process_that_was_deposed_appends_nothing_and_is_told_who_leads() {
    let Some(place) = Place::single("deposed") else { return };
    let mut old = place.leader("one");
    keep(&mut old, 0, 5);
    assert_eq!(place.log("two").lead().unwrap(), Leadership::Other("http://127.0.0.1:1".into()));
    place.end_lease();
    let mut new = place.leader("two");
    // It was paused all this time, and by its own clock its lease is not over.
    assert!(old.leads());
    old.append(&entries(5, 9)).unwrap();
    assert!(matches!(old.sync(0), Err(LogError::Deposed { leader }) if leader == "http://127.0.0.1:1"));
    assert!(!old.leads());
    keep(&mut new, 5, 7);
    assert_eq!(place.log("three").replay().unwrap().entries, entries(0, 7));
}

type Attempt = fn(&mut PostgresLog, &[KeptLife]) -> Result<(), LogError>;

#[test]
fn whatever_a_deposed_process_tries_changes_nothing() {
    let Some(place) = Place::single("deposed_all") else { return };
    let lives = [KeptLife { agent: 1, life: 1, instance: 1 }];
    let attempts: [(&str, Attempt); 5] = [
        ("append", |log, _| log.append(&entries(0, 1)).and_then(|()| log.sync(9))),
        ("snapshot", |log, _| log.snapshot(b"state")),
        ("keep_beside", |log, _| log.keep_beside("note", b"text")),
        ("keep_lives", |log, lives| log.keep_lives(lives)),
        ("tend", |log, _| {
            place_is_due(log);
            log.tend().map(drop)
        }),
    ];
    for (name, attempt) in attempts {
        let mut old = if name == "tend" { impatient(&place) } else { place.leader("one") };
        place.end_lease();
        drop(place.leader("two"));
        let done = attempt(&mut old, &lives);
        assert!(matches!(done, Err(LogError::Deposed { .. })), "{name}: {done:?}");
        place.end_lease();
    }
    for table in ["posse_batch", "posse_snapshot", "posse_snapshot_chunk", "posse_document", "posse_life"] {
        assert_eq!(place.ask(&format!("SELECT count(*) FROM {table}")), "0", "{table}");
    }
}

/// A leader whose lease is short enough to be due for renewal at once.
fn impatient(place: &Place) -> PostgresLog {
    let storage = StorageConfig { lease: TimeSpan::from_millis(100), ..place.storage() };
    let directory = place.directory.path().join("impatient");
    let mut log = PostgresLog::open(&place.database_with(&storage), &federation().name, &directory).unwrap();
    assert_eq!(log.lead().unwrap(), Leadership::Ours);
    log
}

fn place_is_due(log: &PostgresLog) {
    while log.leads() {
        std::thread::yield_now();
    }
}

#[test]
fn of_processes_that_start_at_once_one_leads() {
    let Some(place) = Place::single("at_once") else { return };
    for _ in 0..5 {
        place.end_lease();
        let term = place.ask("SELECT term FROM posse_federation").parse::<u64>().unwrap();
        let barrier = Barrier::new(6);
        let led: Vec<bool> = std::thread::scope(|scope| {
            let start = |number: usize| {
                let (place, barrier) = (&place, &barrier);
                scope.spawn(move || {
                    let mut log = place.log(&format!("process {number}"));
                    // Connected, so that all of them ask at the same moment.
                    log.replay().unwrap();
                    barrier.wait();
                    log.lead().unwrap() == Leadership::Ours
                })
            };
            let started: Vec<_> = (0..6).map(start).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(led.iter().filter(|led| **led).count(), 1, "{led:?}");
        assert_eq!(place.ask("SELECT term FROM posse_federation"), (term + 1).to_string());
    }
}

#[test]
fn a_process_that_steps_down_is_followed_at_once() {
    let Some(place) = Place::single("resign") else { return };
    let mut old = place.leader("one");
    keep(&mut old, 0, 5);
    old.resign();
    assert!(!old.leads());
    assert_eq!(place.leader("two").next(), 5);
    assert!(matches!(old.tend(), Err(LogError::Deposed { .. })));
}

#[test]
fn a_process_that_follows_reads_every_entry_once() {
    let Some(place) = Place::single("follow") else { return };
    let (mut leader, mut follower) = (place.leader("one"), place.log("two"));
    keep(&mut leader, 0, 3);
    assert_eq!(follower.replay().unwrap().entries, entries(0, 3));
    assert_eq!(follower.follow().unwrap().unwrap(), entries(0, 0));
    keep(&mut leader, 3, 5);
    keep(&mut leader, 5, 40);
    assert_eq!(follower.follow().unwrap().unwrap(), entries(3, 40));
    // What it needs was saved and dropped before it looked.
    for (from, to) in [(40, 50), (50, 60), (60, 70)] {
        keep(&mut leader, from, to);
        leader.snapshot(b"state").unwrap();
        leader.truncate(false).unwrap();
    }
    assert_eq!(follower.follow().unwrap(), None);
    assert_eq!(follower.replay().unwrap().state, Some(b"state".to_vec()));
    assert_eq!((follower.next(), follower.follow().unwrap()), (70, Some(Vec::new())));
}

#[test]
fn a_process_that_read_what_never_happened_reads_again() {
    let Some(place) = Place::single("phantom") else { return };
    let (mut leader, mut follower) = (place.leader("one"), place.log("two"));
    keep(&mut leader, 0, 3);
    keep(&mut leader, 3, 6);
    follower.replay().unwrap();
    // The primary was lost before the last row was replicated, and another history goes on from the row before.
    place.ask("DELETE FROM posse_batch WHERE first = 3");
    place.ask("UPDATE posse_federation SET next = 3");
    place.end_lease();
    let mut other = place.leader("three");
    keep(&mut other, 3, 6);
    assert_eq!(follower.follow().unwrap(), None, "the same entries, but of another term");
}
