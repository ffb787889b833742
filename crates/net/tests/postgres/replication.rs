//! A commit counts when a standby has it, and not before.

use posse_net::log::{Leadership, Log, LogError};

use crate::support::{Place, entries, keep};

/// The number of processes of the server that wait for a standby.
const WAITING: &str = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

#[test]
fn a_commit_whose_wait_for_the_standbys_was_cancelled_is_a_failure() {
    let Some(place) = Place::replicated("cancelled") else { return };
    let mut log = place.leader("one");
    keep(&mut log, 0, 5);
    place.cluster.signal(1, "STOP");
    place.cluster.signal(2, "STOP");
    log.append(&entries(5, 8)).unwrap();
    let kept = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| log.sync(0));
        place.cluster.await_sql(0, WAITING);
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        place.ask(cancel);
        waiting.join().unwrap()
    });
    let Err(LogError::Unconfirmed { why, .. }) = kept else {
        panic!("a commit that no standby has was taken for one: {kept:?}")
    };
    assert!(why.contains("synchronous replication"), "{why}");
    // It is on the primary all the same: whoever takes over replicates it and reads it.
    assert_eq!(place.ask("SELECT next FROM posse_federation"), "8");
    place.cluster.signal(1, "CONT");
    place.cluster.signal(2, "CONT");
    assert_eq!(log.lead().unwrap(), Leadership::Ours);
    assert_eq!(log.replay().unwrap().entries, entries(0, 8));
}

#[test]
fn a_database_that_does_not_replicate_is_refused_at_the_start_and_while_it_runs() {
    let Some(place) = Place::replicated("weak") else { return };
    let mut log = place.leader("one");
    keep(&mut log, 0, 5);
    let set = |setting: &str| {
        place.ask(&format!("ALTER SYSTEM SET {setting}"));
        place.ask("SELECT pg_reload_conf()");
    };
    for (setting, word) in [
        ("synchronous_commit TO local", "synchronous_commit"),
        ("synchronous_commit TO remote_write", "synchronous_commit"),
        ("synchronous_commit TO off", "synchronous_commit"),
    ] {
        set(setting);
        let value = setting.rsplit(' ').next().unwrap();
        place.cluster.await_sql(0, &format!("SELECT current_setting('synchronous_commit') = '{value}'"));
        let refused = place.log("two").lead().unwrap_err();
        assert!(matches!(&refused, LogError::Unreplicated { why, .. } if why.contains(word)), "{refused}");
    }
    set("synchronous_commit TO on");
    place.cluster.await_sql(0, "SELECT current_setting('synchronous_commit') = 'on'");
    set("synchronous_standby_names TO ''");
    place.cluster.await_sql(0, "SELECT current_setting('synchronous_standby_names') = ''");
    let refused = place.log("two").lead().unwrap_err();
    assert!(
        matches!(&refused, LogError::Unreplicated { why, .. } if why.contains("standby_names")),
        "{refused}"
    );
    // The one that leads finds out with its next statement.
    log.append(&entries(5, 6)).unwrap();
    let refused = log.sync(0).unwrap_err();
    assert!(matches!(refused, LogError::Unreplicated { .. }), "{refused}");
    assert_eq!(place.ask("SELECT next FROM posse_federation"), "5");
}

#[test]
fn what_was_confirmed_is_there_after_the_primary_was_lost_and_the_old_leader_is_refused() {
    let Some(place) = Place::replicated("lost_primary") else { return };
    let mut old = place.leader("one");
    for batch in 0..10 {
        keep(&mut old, 5 * batch, 5 * batch + 5);
    }
    // Another coordinator takes over in the new primary while the old primary lives on, without standbys.
    let cluster = &place.cluster;
    let ahead = if cluster.detach(1) >= cluster.detach(2) { 1 } else { 2 };
    let other = 3 - ahead;
    cluster.promote(ahead);
    cluster.require_standbys(ahead);
    cluster.follow_instead(other, ahead);
    cluster.ask(ahead, &place.name, "UPDATE posse_federation SET lease_until = now() - interval '1 hour'");
    old.append(&entries(50, 51)).unwrap();
    let kept = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| old.sync(0));
        cluster.await_sql(0, WAITING);
        // The old primary would wait for ever; then it is lost.
        cluster.signal(0, "KILL");
        waiting.join().unwrap()
    });
    assert!(kept.is_err(), "nothing was confirmed by a primary without standbys");
    let mut new = place.leader("two");
    assert_eq!(new.history().unwrap().unwrap(), entries(0, 50));
    keep(&mut new, 50, 52);
    assert!(matches!(old.lead().unwrap(), Leadership::Other(_)), "it finds the new primary, and who leads");
}
