//! Sessions under whatever links and processes do: every message counts once and in order.

use crate::support::link::{AGENTS, Link};
use posse_core::*;
use proptest::prelude::*;
use proptest::sample::Index;

/// One event that a generated history is made of.
#[derive(Clone, Debug)]
enum Fault {
    Learn(u64),
    /// Some frame on the way arrives, and may still be on the way.
    Up(Index, bool),
    Down(Index, bool),
    LoseUp(Index),
    LoseDown(Index),
    Pass(u64),
    Restart(u64),
    BeginLife(u64),
    Replay,
    RestoreHub,
    /// The hub forgets the end of its log.
    Forget(usize),
}

/// Faults after which every observation is still somewhere.
fn harmless() -> BoxedStrategy<Fault> {
    prop_oneof![
        6 => (0..AGENTS).prop_map(Fault::Learn),
        6 => (any::<Index>(), any::<bool>()).prop_map(|(place, again)| Fault::Up(place, again)),
        6 => (any::<Index>(), any::<bool>()).prop_map(|(place, again)| Fault::Down(place, again)),
        1 => any::<Index>().prop_map(Fault::LoseUp),
        1 => any::<Index>().prop_map(Fault::LoseDown),
        3 => (1u64..25).prop_map(Fault::Pass),
        1 => (0..AGENTS).prop_map(Fault::Restart),
        1 => Just(Fault::Replay),
        1 => Just(Fault::RestoreHub),
    ]
    .boxed()
}

fn harmful() -> BoxedStrategy<Fault> {
    prop_oneof![
        20 => harmless(),
        1 => (0..AGENTS).prop_map(Fault::BeginLife),
        1 => (1usize..6).prop_map(Fault::Forget),
    ]
    .boxed()
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    // A unit vector multiplies the determinant by eleven: buffers grow to two observations.
    let protocol = |join, snapshot_in_receipt| ProtocolConfig {
        upload_threshold: Threshold(50.0),
        download_threshold: Threshold(200.0),
        join,
        snapshot_in_receipt,
        ..Default::default()
    };
    let exchange = move |join, in_receipt| {
        Algorithm::AsyncLinUcb(AsyncLinUcb { protocol: protocol(join, in_receipt), ..Default::default() })
    };
    let rounds = |round_deadline| {
        let round_threshold = Threshold(7.0);
        Algorithm::SyncLinUcb(SyncLinUcb { round_threshold, round_deadline, ..Default::default() })
    };
    prop_oneof![
        Just(exchange(JoinPolicy::Lazy, false)),
        Just(exchange(JoinPolicy::PullOnJoin, true)),
        Just(Algorithm::FedLinUcb(FedLinUcb {
            upload_threshold: Some(Threshold(50.0)),
            ..Default::default()
        })),
        Just(rounds(None)),
        Just(rounds(Some(TimeSpan::from_micros(35)))),
    ]
}

fn suffer(link: &mut Link, fault: &Fault) {
    match *fault {
        Fault::Learn(id) => link.learn(id),
        Fault::Up(place, again) if !link.up.is_empty() => {
            let place = place.index(link.up.len());
            let (from, frame) = if again { link.up[place].clone() } else { link.up.remove(place) };
            link.arrive_up(from, &frame);
        }
        Fault::Down(place, again) if !link.down.is_empty() => {
            let place = place.index(link.down.len());
            let (to, frame) = if again { link.down[place].clone() } else { link.down.remove(place) };
            link.arrive_down(to, &frame);
        }
        Fault::LoseUp(place) if !link.up.is_empty() => drop(link.up.remove(place.index(link.up.len()))),
        Fault::LoseDown(place) if !link.down.is_empty() => {
            drop(link.down.remove(place.index(link.down.len())));
        }
        Fault::Up(..) | Fault::Down(..) | Fault::LoseUp(_) | Fault::LoseDown(_) => {}
        Fault::Pass(microseconds) => link.pass(microseconds),
        Fault::Restart(id) => link.restart(id),
        Fault::BeginLife(id) => link.begin_life(id),
        Fault::Replay => link.replay(0),
        Fault::RestoreHub => link.restore_hub(),
        Fault::Forget(lost) => link.replay(lost),
    }
}

/// Whether an observation was counted twice.
fn doubled(counts: &[f64]) -> bool {
    counts.iter().any(|&count| count > 1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn everything_is_counted_exactly_once(
        algorithm in algorithms(), faults in proptest::collection::vec(harmless(), 1..150),
    ) {
        let mut link = Link::new(algorithm);
        for fault in &faults {
            suffer(&mut link, fault);
            prop_assert!(!doubled(&link.shared()), "after {fault:?}");
        }
        link.settle();
        let mut expected = vec![0.0; crate::support::link::OBSERVATIONS];
        expected[..link.observed].fill(1.0);
        prop_assert_eq!(link.everywhere(), expected);
        let views = link.endpoints.iter().map(|endpoint| endpoint.agent().inspect());
        prop_assert!(views.into_iter().all(|view| view.in_flight.is_none()), "everything has arrived");
        link.replay(0);
    }

    #[test]
    fn whatever_is_lost_nothing_is_counted_twice_and_everybody_recovers(
        algorithm in algorithms(), faults in proptest::collection::vec(harmful(), 1..150),
    ) {
        let mut link = Link::new(algorithm);
        for fault in &faults {
            suffer(&mut link, fault);
            prop_assert!(!doubled(&link.shared()), "after {fault:?}");
        }
        // Links reconnect, and everybody says hello to whatever coordinator there is.
        (0..AGENTS).for_each(|id| link.hello(id));
        link.settle();
        prop_assert!(!doubled(&link.everywhere()));
        let before = link.shared().iter().sum::<f64>();
        // Agents can still be heard.
        let learned = link.observed;
        for id in 0..AGENTS {
            (0..3).for_each(|_| link.learn(id));
        }
        link.settle();
        prop_assert!(!doubled(&link.everywhere()));
        for endpoint in &link.endpoints {
            prop_assert!(endpoint.agent().inspect().in_flight.is_none());
        }
        if link.observed == learned + 9 {
            prop_assert!(link.shared().iter().sum::<f64>() >= before + 6.0);
        }
        link.replay(0);
    }
}
