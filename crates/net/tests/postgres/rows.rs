//! What was appended comes back, and what is damaged is refused.

use posse_core::Seed;
use posse_net::log::{FileLog, KeptLife, Log, LogError};

use crate::support::{Place, entries, keep};

#[test]
fn a_database_returns_what_files_return_after_the_same_calls() {
    let Some(place) = Place::single("same_as_files") else { return };
    let files = tempfile::tempdir().unwrap();
    let open = || -> (Box<dyn Log>, Box<dyn Log>) {
        (Box::new(FileLog::open(files.path()).unwrap()), Box::new(place.log("one")))
    };
    let mut random = Seed(3).stream("calls", 0, 0);
    let (mut next, mut states) = (0, 0_u64);
    for _ in 0..6 {
        let (mut file, mut table) = open();
        // The former log of this process has ended like a process: without stepping down.
        place.end_lease();
        for log in [&mut file, &mut table] {
            log.lead().unwrap();
        }
        let (expected, got) = (file.replay().unwrap(), table.replay().unwrap());
        assert_eq!(expected, got);
        assert_eq!(
            (file.next(), file.bytes_since_snapshot() > 0),
            (table.next(), table.bytes_since_snapshot() > 0)
        );
        for _ in 0..random.below(8) {
            let count = random.below(30);
            let saves = random.below(4) == 0;
            for log in [&mut file, &mut table] {
                log.append(&entries(next, next + count)).unwrap();
                log.sync(7).unwrap();
                if saves {
                    log.snapshot(format!("state {states}").as_bytes()).unwrap();
                    log.truncate(states % 2 == 0).unwrap();
                }
                log.keep_beside("note", format!("after {next}").as_bytes()).unwrap();
            }
            (next, states) = (next + count, states + u64::from(saves));
        }
        assert_eq!(file.beside("note").unwrap(), table.beside("note").unwrap());
        assert_eq!(file.beside("nothing").unwrap(), table.beside("nothing").unwrap());
    }
    assert!(next > 100 && states > 2, "{next} entries and {states} states are too few to compare");
}

#[test]
fn the_whole_history_is_there_until_two_saved_states_have_made_some_of_it_superfluous() {
    let Some(place) = Place::single("history") else { return };
    let mut log = place.leader("one");
    keep(&mut log, 0, 10);
    log.snapshot(b"ten").unwrap();
    log.truncate(false).unwrap();
    keep(&mut log, 10, 20);
    assert_eq!(log.history().unwrap().unwrap(), entries(0, 20));
    log.snapshot(b"twenty").unwrap();
    log.truncate(true).unwrap();
    assert_eq!(log.history().unwrap().unwrap(), entries(0, 20));
    log.truncate(false).unwrap();
    assert_eq!(log.history().unwrap(), None);
    assert_eq!(log.replay().unwrap().state, Some(b"twenty".to_vec()));
}

#[test]
fn long_batches_and_long_states_come_back_whole() {
    let Some(place) = Place::single("long_rows") else { return };
    let mut log = place.leader("one");
    // More than two rows of entries, and more than two chunks of a state.
    let long: Vec<Vec<u8>> = (0..5_u8).map(|number| vec![number; 4 << 20]).collect();
    log.append(&long).unwrap();
    log.sync(1).unwrap();
    assert_eq!(place.ask("SELECT count(*) FROM posse_batch"), "3");
    let state: Vec<u8> = (0..5 << 19).map(|at: u32| (at / 3) as u8).collect();
    assert_eq!(log.replay().unwrap().entries, long);
    log.snapshot(&state).unwrap();
    let replay = log.replay().unwrap();
    assert_eq!((replay.state, replay.entries.len()), (Some(state), 0));
}

#[test]
fn a_damaged_row_is_refused_with_its_place_and_a_damaged_state_gives_way_to_an_older_one() {
    let Some(place) = Place::single("damage") else { return };
    let mut log = place.leader("one");
    keep(&mut log, 0, 5);
    log.snapshot(b"five").unwrap();
    keep(&mut log, 5, 10);
    log.snapshot(b"ten").unwrap();
    keep(&mut log, 10, 15);
    keep(&mut log, 15, 20);
    place.ask("UPDATE posse_snapshot_chunk SET bytes = 'tan' WHERE first = 10");
    let replay = log.replay().unwrap();
    assert_eq!((replay.state, replay.entries), (Some(b"five".to_vec()), entries(5, 20)));
    place.ask("UPDATE posse_batch SET bytes = set_byte(bytes, 9, 0) WHERE first = 10");
    assert!(matches!(log.replay(), Err(LogError::Rows { entry: 10, .. })));
    place.ask("DELETE FROM posse_batch WHERE first = 10");
    assert!(matches!(place.log("two").replay(), Err(LogError::Rows { entry: 10, .. })));
}

#[test]
fn entries_that_were_confirmed_and_are_gone_are_noticed_by_the_process_that_was_told() {
    let Some(place) = Place::single("lost") else { return };
    keep(&mut place.leader("one"), 0, 10);
    // A standby that was behind was promoted.
    place.ask("DELETE FROM posse_batch");
    place.ask("UPDATE posse_federation SET next = 0");
    place.end_lease();
    let mut log = place.log("one");
    log.lead().unwrap();
    assert_eq!(log.replay().unwrap().lost_entries, 10);
    assert_eq!(log.replay().unwrap().lost_entries, 0, "it is answered once");
}

#[test]
fn lives_that_were_given_out_are_known_to_the_next_process() {
    let Some(place) = Place::single("lives") else { return };
    let mut log = place.leader("one");
    let life = |agent, life, instance| KeptLife { agent, life, instance };
    log.keep_lives(&[life(7, 1, u64::MAX), life(u64::MAX, 3, 4)]).unwrap();
    log.keep_lives(&[life(7, 2, 9)]).unwrap();
    let mut kept = place.log("two").lives().unwrap().unwrap();
    kept.sort_by_key(|life| life.agent);
    assert_eq!(kept, [life(7, 2, 9), life(u64::MAX, 3, 4)]);
}

#[test]
fn tables_are_made_once_and_others_than_ours_are_refused() {
    let Some(place) = Place::single("schema") else { return };
    let migrate = || place.runtime.block_on(place.database().migrate());
    assert_eq!(migrate().unwrap(), (1, 1));
    place.ask("UPDATE posse_schema SET version = 2");
    let refused = migrate().unwrap_err().to_string();
    assert!(refused.contains("version 2") && refused.contains("newer"), "{refused}");
    let refused = place.log("one").lead().unwrap_err().to_string();
    assert!(refused.contains("version 2"), "{refused}");
    place.ask("DROP TABLE posse_schema");
    let refused = place.log("one").lead().unwrap_err().to_string();
    assert!(refused.contains("posse storage migrate"), "{refused}");
}

#[test]
fn entries_of_a_newer_posse_are_refused_by_name() {
    let Some(place) = Place::single("newer") else { return };
    drop(place.leader("one"));
    place.ask("UPDATE posse_federation SET format = 1000");
    place.end_lease();
    assert!(matches!(place.log("two").lead(), Err(LogError::Version { version: 1000, .. })));
}
