//! A coordinator that asks again and again spends nothing of an agent's budget.

use std::collections::VecDeque;
use std::sync::Arc;

use posse_core::*;

use super::{D, NOW, agent, clustered, privacy};

#[test]
fn a_coordinator_that_asks_again_and_again_spends_nothing() {
    let privacy = PrivacyConfig { first_release: 5, release_growth: 2.0, ..privacy() };
    let mut agent = agent(&clustered(privacy, 1.0), 4);
    let said = (0..7).find_map(|_| agent.learn(UserId(0), &[0.6, 0.8], 1.0).unwrap());
    let Some(Uplink::Cluster(first)) = said else { panic!("a first release") };
    let spent = agent.privacy().unwrap();
    for phase in 2..30 {
        let answer = agent.receive(Downlink::Regroup { phase: PhaseId(phase), anew: true }).unwrap();
        let Some(Uplink::Clusters(list)) = answer else { panic!("its clusters") };
        assert_eq!(list.uploads.len(), 1);
        assert_eq!(list.uploads[0].evidence, first.evidence, "word for word");
        let answer = agent.receive(Downlink::Regroup { phase: PhaseId(phase), anew: false }).unwrap();
        assert!(
            answer.is_none_or(|answer| matches!(answer, Uplink::Clusters(list) if list.uploads.is_empty()))
        );
    }
    let now = agent.privacy().unwrap();
    assert_eq!((now.releases, now.mu), (spent.releases, spent.mu));
    // It goes on where it was: the next release is due at ten observations.
    agent.learn(UserId(0), &[0.6, 0.8], 1.0).unwrap();
}

fn in_rounds() -> Algorithm {
    let privacy = PrivacyConfig { first_release: 10, release_growth: 2.0, ..privacy() };
    Algorithm::SyncLinUcb(SyncLinUcb { privacy: Some(privacy), ..Default::default() })
}

/// The attack: a coordinator calls rounds as often as it likes. An agent that has learned little since its last release gives nothing.
#[test]
fn a_coordinator_that_calls_rounds_again_and_again_spends_nothing() {
    let mut agent = agent(&in_rounds(), 4);
    let mut phases = 2..;
    let mut given = |agent: &mut dyn Agent, observations: u64| {
        for _ in 0..observations {
            assert_eq!(agent.learn(UserId(0), &[0.6, 0.8], 1.0).unwrap(), None, "it is not due itself");
        }
        let phase = PhaseId(phases.next().unwrap());
        let answer = agent.receive(Downlink::Regroup { phase, anew: false }).unwrap();
        let Some(Uplink::Clusters(list)) = answer else { panic!("its clusters") };
        for upload in &list.uploads {
            let (version, contains) = (Version(phase.0), upload.number);
            let evidence = Arc::new(Evidence::none(D));
            let snapshot = Snapshot { authoritative: false, version, contains, information: 0.0, evidence };
            let group = GroupSnapshot { cluster: upload.cluster, members: 1, snapshot, variance: 0.0 };
            assert_eq!(agent.receive(Downlink::Group(group)), Ok(None));
        }
        list.uploads.len()
    };
    assert_eq!(given(&mut *agent, 4), 0, "a first release is due at ten, and worth a round at five");
    assert_eq!(given(&mut *agent, 1), 1);
    assert_eq!((0..20).map(|_| given(&mut *agent, 0)).sum::<usize>(), 0);
    assert_eq!((given(&mut *agent, 2), given(&mut *agent, 1)), (0, 1), "half of five more is three");
    assert_eq!(agent.privacy().unwrap().releases, 2);
}

#[test]
fn a_private_round_collects_from_everybody_who_has_enough_and_tells_all() {
    let (algorithm, shape) = (in_rounds(), Shape::shared(D));
    let federation = Federation { agents: 3, horizon: 100, seed: Seed(2) };
    let ids = [AgentId(0), AgentId(1), AgentId(2)];
    let mut agents = ids.map(|id| algorithm.agent(id, shape, &federation).unwrap());
    let mut coordinator = algorithm.coordinator(shape).unwrap();
    ids.iter().for_each(|id| drop(coordinator.join(NOW, *id, Entrance::NewLife)));
    for (place, observations) in [(1, 5), (2, 4), (0, 9)] {
        (0..observations).for_each(|_| {
            assert_eq!(agents[place].learn(UserId(0), &[0.6, 0.8], 1.0).unwrap(), None);
        });
    }
    let said = agents[0].learn(UserId(0), &[0.6, 0.8], 1.0).unwrap();
    let mut waiting: VecDeque<_> = said.map(|up| (0, up)).into_iter().collect();
    let mut told = [0; 3];
    while let Some((from, up)) = waiting.pop_front() {
        for outgoing in coordinator.receive(NOW, ids[from], up).unwrap() {
            for (to, agent) in agents.iter_mut().enumerate().filter(|(to, _)| outgoing.to.includes(ids[*to]))
            {
                if let Downlink::Group(group) = &outgoing.message {
                    told[to] = group.snapshot.evidence.count();
                }
                waiting.extend(agent.receive(outgoing.message.clone()).unwrap().map(|up| (to, up)));
            }
        }
    }
    let counts: Vec<u64> = coordinator.clusters().iter().map(|cluster| cluster.count).collect();
    assert_eq!(counts, [10, 5, 0], "the third has too little to be worth a release");
    assert_eq!(told, [15; 3], "and all of them hear the sum");
}
