//! Liars below relays: the root judges agents as in a federation without relays, whatever goes wrong on the way.

use std::collections::BTreeMap;

use posse_conformance::planted::{Fault, with_faulty_relays};
use posse_core::{AgentId, Algorithm, JoinPolicy, Robust, SyncLinUcb, Threshold, TimeSpan};
use posse_sim::network::NetworkConfig;
use posse_sim::{AdversaryConfig, Event, Invariants, Lie, Observer, RunConfig, Stage, Tally};

use crate::relays::{chaotic, tree};
use crate::support::{Log, small};

fn robust() -> SyncLinUcb {
    SyncLinUcb { robust: Robust::Trimmed, round_threshold: Threshold(3.0), ..Default::default() }
}

fn lying(seed: u64, share: f64, lie: Lie, algorithm: SyncLinUcb) -> RunConfig {
    let adversaries = AdversaryConfig { share, lie, ..Default::default() };
    RunConfig { adversaries, ..small(seed, 40, 2000, Algorithm::SyncLinUcb(algorithm)) }
}

/// What agents chose and heard, and whom the root does not believe at the end of the run, by their own numbers.
#[derive(Default)]
struct Seen {
    log: Log,
    set_aside: BTreeMap<AgentId, String>,
}

impl Observer for Seen {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        self.log.observe(event, stage);
        if let Event::Down { .. } = event {
            let accounts = stage.coordinator().accounts().into_iter();
            let doubted = accounts.filter_map(|account| Some((account.agent.agent, account.suspicion?)));
            self.set_aside = doubted.map(|(agent, why)| (agent, format!("{why:?}"))).collect();
        }
    }
}

fn run(config: &RunConfig) -> (Seen, Tally) {
    let mut seen = Seen::default();
    let tally = config.run(&mut seen).unwrap();
    (seen, tally)
}

/// Sums are made in the order of agents' numbers, so that not a bit of regret differs.
#[test]
fn liars_below_relays_are_found_as_without_relays() {
    for (seed, lie, join) in [
        (0, Lie::SignFlip, JoinPolicy::Eager),
        (1, Lie::Colluding, JoinPolicy::Lazy),
        (2, Lie::Scaled, JoinPolicy::Eager),
        (3, Lie::Targeted, JoinPolicy::Lazy),
    ] {
        let flat = lying(seed, 0.3, lie, SyncLinUcb { join, ..robust() });
        let (seen, tally) = run(&flat);
        assert!(seen.set_aside.len() >= 6, "{lie:?}: {:?}", seen.set_aside);
        assert!(tally.rounds >= 5, "{lie:?}: {} rounds", tally.rounds);
        let believing = SyncLinUcb { robust: Robust::Off, join, ..robust() };
        let trusting = lying(seed, 0.3, lie, believing).run(&mut ()).unwrap();
        for topology in [tree(2, 1), tree(2, 7), tree(3, 3)] {
            let (other, through) = run(&RunConfig { topology: topology.clone(), ..flat.clone() });
            assert_eq!(seen.log.choices(), other.log.choices(), "{lie:?}, {topology:?}");
            assert_eq!(seen.set_aside, other.set_aside, "{lie:?}, {topology:?}");
            let (honest, same) = (tally.honest_regret.unwrap(), through.honest_regret.unwrap());
            assert_eq!(honest.to_bits(), same.to_bits(), "{lie:?}, {topology:?}");
            assert_eq!((tally.set_aside, tally.rounds), (through.set_aside, through.rounds));
            assert!(same < 0.8 * trusting.honest_regret.unwrap(), "{lie:?}: the defence does something");
            // One message a relay in place of one an agent; the parts themselves are in it.
            let (direct, root) = (tally.up, through.above[0].up);
            assert!(root.messages * 4 < direct.messages, "{root:?} beside {direct:?}");
            assert!(root.scalars * 10 > direct.scalars * 9 && root.bytes * 10 > direct.bytes * 9, "{root:?}");
        }
    }
}

#[test]
fn honest_agents_below_relays_are_believed() {
    for seed in 0..3 {
        let config = RunConfig { topology: tree(2, 4), ..lying(seed, 0.0, Lie::SignFlip, robust()) };
        let (seen, tally) = run(&config);
        assert_eq!((seen.set_aside.len(), tally.set_aside), (0, 0), "seed {seed}");
    }
}

/// Over links that lose, repeat and delay, with relays that restart, agents that crash, leave and move, and, if `lost`, a root
/// that loses the end of its log.
fn chaos(lost: bool) {
    let only: Option<u64> = std::env::var("CHAOS_SEED").ok().map(|seed| seed.parse().unwrap());
    let (mut doubted, mut shared) = (0, 0);
    for seed in only.map_or(0..200, |seed| seed..seed + 1) {
        let other = chaotic(seed, lost);
        let algorithm = SyncLinUcb {
            round_threshold: Threshold([0.0, 0.5, 3.0][seed as usize % 3]),
            round_deadline: Some(TimeSpan::from_millis(400)).filter(|_| seed % 4 > 0),
            join: [JoinPolicy::Lazy, JoinPolicy::Eager, JoinPolicy::PullOnJoin][seed as usize / 3 % 3],
            false_alarm: [1e-6, 0.5][seed as usize % 2],
            agents_per_relay: [1000, 3][usize::from(seed % 5 == 4)],
            ..robust()
        };
        let adversaries = AdversaryConfig { share: 0.2, ..Default::default() };
        let (agents, horizon) = (other.agents + 6, 2 * other.horizon);
        let algorithm = Algorithm::SyncLinUcb(algorithm);
        let config = RunConfig { algorithm, adversaries, agents, horizon, ..other };
        let mut invariants = Invariants::of(&config.algorithm);
        let outcome = config.run(&mut invariants);
        assert_eq!(invariants.violation(), None, "CHAOS_SEED={seed}: {:?}", config.topology);
        let tally = outcome.unwrap_or_else(|error| panic!("CHAOS_SEED={seed}: {error}"));
        doubted += tally.set_aside;
        shared += tally.rounds;
    }
    assert!(only.is_some() || (doubted > 20 && shared > 1000), "{doubted} set aside, {shared} rounds");
}

#[test]
fn every_agents_part_is_conserved_over_hostile_links_with_restarts() {
    chaos(false);
}

#[test]
fn every_agents_part_is_conserved_when_the_root_loses_history() {
    chaos(true);
}

#[test]
fn a_relay_that_drops_doubles_or_misnames_parts_is_caught() {
    let network = NetworkConfig { latency: Some(TimeSpan::from_millis(1)), ..NetworkConfig::default() };
    for topology in [tree(2, 2), tree(3, 2)] {
        let algorithm = Algorithm::SyncLinUcb(SyncLinUcb { join: JoinPolicy::Eager, ..robust() });
        let config = RunConfig { topology, network: network.clone(), ..small(3, 10, 300, algorithm) };
        let violated = |algorithm: &Algorithm| {
            let mut invariants = Invariants::of(algorithm);
            let _ = RunConfig { algorithm: algorithm.clone(), ..config.clone() }.run(&mut invariants);
            invariants.violation().map(str::to_owned)
        };
        assert_eq!(violated(&config.algorithm), None);
        for fault in [Fault::CountsTwice, Fault::Forgets, Fault::Misnames] {
            let found = violated(&with_faulty_relays(&config.algorithm, fault));
            assert!(found.is_some(), "{fault:?}");
        }
    }
}
