//! What is divided by agent, by kind of message or by group of agents adds up to the whole.

use posse_core::{Algorithm, Cost, Placement, ProtocolConfig};
use posse_sim::network::{FaultConfig, NetworkConfig, Preset};
use posse_sim::world::ArrivalConfig;
use posse_sim::{AgentGroups, Curve, Direction, GroupBy, Ledger, Observer, RunConfig, Tally};

use crate::support::{async_lin_ucb, linear, small, world_for};

/// Every algorithm in the papers' model, and those with a network among crashes on hostile links.
fn runs() -> Vec<RunConfig> {
    let mut runs = Vec::new();
    for algorithm in Algorithm::all() {
        let world = world_for(&algorithm, linear(5, 10));
        let ideal = RunConfig { world, ..small(3, 7, 300, algorithm) };
        if ideal.algorithm.placement() == Placement::PerAgent {
            let network = NetworkConfig::preset(Preset::Hostile);
            let faults = FaultConfig { agent_crash: 0.01, volatile: 0.5, ..FaultConfig::default() };
            runs.push(RunConfig { network, faults, ..ideal.clone() });
        }
        runs.push(ideal);
    }
    assert!(runs.len() > 8);
    runs
}

fn sum(costs: impl Iterator<Item = Cost>) -> Cost {
    costs.fold(Cost::default(), |mut sum, cost| {
        sum.add(cost);
        sum
    })
}

/// Sums of rewards and regrets in another order.
fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * (1.0 + other.abs())
}

fn watch(config: &RunConfig, groups: usize, by: GroupBy) -> (Tally, Ledger, Curve, AgentGroups) {
    let mut ledger = Ledger::new(config.agents);
    let mut curve = Curve::new(config.horizon);
    let mut parts = AgentGroups::new(config, groups, by).unwrap();
    let mut all: Vec<&mut dyn Observer> = vec![&mut ledger, &mut curve, &mut parts];
    let tally = config.run(&mut all).unwrap();
    (tally, ledger, curve, parts)
}

#[test]
fn agents_and_kinds_add_up_to_the_run() {
    for config in runs() {
        let (tally, ledger, _, _) = watch(&config, 1, GroupBy::Id);
        let name = config.algorithm.name();
        let shares = ledger.agents();
        assert_eq!(shares.len() as u64, config.agents);
        assert_eq!(shares.iter().map(|share| share.interactions).sum::<u64>(), tally.interactions, "{name}");
        assert!(close(shares.iter().map(|share| share.regret).sum(), tally.regret), "{name}");
        assert!(close(shares.iter().map(|share| share.reward).sum(), tally.reward), "{name}");
        assert_eq!(sum(shares.iter().map(|share| share.up)), tally.up, "{name}");
        assert_eq!(sum(shares.iter().map(|share| share.down)), tally.down, "{name}");
        for (direction, total) in [(Direction::Up, tally.up), (Direction::Down, tally.down)] {
            let own = ledger.kinds().filter(|(way, _, _)| *way == direction).map(|(_, _, cost)| cost);
            assert_eq!(sum(own), total, "{name}");
        }
    }
}

#[test]
fn groups_of_agents_add_up_to_the_curve_at_every_point() {
    for config in runs() {
        for (groups, by) in [(3, GroupBy::Activity), (7, GroupBy::Id)] {
            let (tally, _, curve, parts) = watch(&config, groups, by);
            assert_eq!(parts.sizes().iter().sum::<usize>(), 7);
            let points = parts.into_points();
            assert_eq!(points.len(), curve.points().len());
            for (whole, parts) in curve.points().iter().zip(&points) {
                assert_eq!(parts.len(), groups);
                let count = |of: fn(&Tally) -> u64| parts.iter().map(of).sum::<u64>();
                assert_eq!(count(|part| part.interactions), whole.interactions);
                assert_eq!(count(|part| part.agents_seen), whole.agents_seen);
                assert_eq!(sum(parts.iter().map(|part| part.up)), whole.up);
                assert_eq!(sum(parts.iter().map(|part| part.down)), whole.down);
                assert!(close(parts.iter().map(|part| part.regret).sum(), whole.regret));
                assert!(close(parts.iter().map(|part| part.reward).sum(), whole.reward));
            }
            assert_eq!(*curve.points().last().unwrap(), tally);
        }
    }
}

#[test]
fn the_first_group_by_activity_is_the_busiest() {
    let arrival = ArrivalConfig::kinds().into_iter().find(|kind| kind.0 == "zipf").unwrap().2;
    let config = RunConfig { arrival, ..small(1, 9, 400, async_lin_ucb(ProtocolConfig::default())) };
    let (_, ledger, _, parts) = watch(&config, 3, GroupBy::Activity);
    let activity: Vec<u64> = ledger.agents().iter().map(|share| share.interactions).collect();
    assert_eq!(config.activity().unwrap(), activity);
    let last = parts.into_points().pop().unwrap();
    let mut sorted = activity;
    sorted.sort_unstable_by(|one, other| other.cmp(one));
    let expected: Vec<u64> = sorted.chunks(3).map(|three| three.iter().sum()).collect();
    assert_eq!(last.iter().map(|part| part.interactions).collect::<Vec<_>>(), expected);
    assert!(expected[0] > expected[2]);
}

#[test]
fn more_groups_than_agents_are_refused() {
    let config = small(1, 3, 10, async_lin_ucb(ProtocolConfig::default()));
    for groups in [0, 4] {
        let error = AgentGroups::new(&config, groups, GroupBy::Id).unwrap_err();
        assert_eq!((error.name, error.value), ("groups", groups.to_string()));
    }
}
