//! Taking out what an agent has shared: what is left is what would be there without it.

use std::path::Path;

use posse_core::session::{Hub, LogEntry, LogEvent};
use posse_core::{
    AgentId, Algorithm, ClusterConfig, FclubDc, FedLinUcb, SyncLinUcb, Threshold, TimeSpan, Uplink,
};
use posse_net::Agent;
use posse_net::coordinator::Running;
use posse_net::federation::{FederationConfig, Reason};
use posse_net::log::{FileLog, Log};

use crate::support::{agent, coordinator, federation, in_a_minute, interact, look, talkative};

const HOSTILE: AgentId = AgentId(1);

/// Three agents that share a while.
async fn shared(running: &Running) -> Vec<Agent> {
    let mut agents = Vec::new();
    for number in 0..3 {
        agents.push(agent(running.address, number).await);
    }
    for step in 0..30 {
        for agent in &agents {
            interact(agent, step);
            in_a_minute(agent.settled()).await;
        }
    }
    agents
}

fn history(data: &Path) -> Vec<Vec<u8>> {
    let log = FileLog::open(&data.join("federations/test")).unwrap().history().unwrap();
    log.expect("nothing was dropped")
}

fn observations(message: &Uplink) -> u64 {
    match message {
        Uplink::Evidence(upload) => upload.evidence.count(),
        Uplink::RoundEvidence { evidence, .. } => evidence.count(),
        _ => 0,
    }
}

/// A hub that was given the messages of everybody but one agent, in their order.
fn never_there(config: &FederationConfig, entries: &[Vec<u8>]) -> Hub {
    let mut hub = config.hub().unwrap();
    for bytes in entries {
        let entry = LogEntry::decode(bytes).unwrap();
        match entry.event {
            LogEvent::Joined(agent, _) | LogEvent::Accepted(agent, _) if agent == HOSTILE => {}
            LogEvent::Retracted(_) | LogEvent::EpochBegan(_) | LogEvent::Returned(_) => break,
            _ => hub.replay(entry).unwrap(),
        }
    }
    hub
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_after_a_retraction_is_what_the_others_shared_to_the_last_bit() {
    for algorithm in [talkative().algorithm, Algorithm::FedLinUcb(FedLinUcb::default())] {
        let data = tempfile::tempdir().unwrap();
        let config = federation(algorithm);
        let running = coordinator(data.path(), config.clone()).await;
        let agents = shared(&running).await;
        let before = look(&running).await;
        let done = running.federations[0].retract(HOSTILE).await.unwrap().unwrap();
        assert_eq!((done.before, done.epoch), (before.observations, 1));
        assert!(done.after < done.before && done.after > 0, "{done:?}");
        let after = look(&running).await;
        assert_eq!((after.observations, after.epoch.0), (done.after, 1));
        assert_eq!(running.federations[0].retract(AgentId(9)).await, Ok(None));

        // The others hear of it and go on; the agent that was retracted is told so.
        for agent in [&agents[0], &agents[2]] {
            in_a_minute(async {
                let mut step = 100;
                while look(&running).await.observations <= done.after {
                    interact(agent, step);
                    agent.settled().await;
                    step += 1;
                }
            })
            .await;
        }
        in_a_minute(async {
            while agents[1].status().superseded.is_none() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        agents[1].take_new_life();
        in_a_minute(agents[1].settled()).await;
        let held = look(&running).await;
        running.abort().await;
        let entries = history(data.path());
        let lone = never_there(&config, &entries);
        assert_eq!(lone.coordinator().inspect().observations, done.after);
        assert_eq!(lone.coordinator().inspect().information, after.information);
        // A restart finds the same.
        let running = coordinator(data.path(), config).await;
        assert_eq!(look(&running).await.state, held.state);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_keep_their_order_and_lose_only_the_part_of_the_retracted_agent() {
    let data = tempfile::tempdir().unwrap();
    let rounds = SyncLinUcb { round_threshold: Threshold(0.5), ..SyncLinUcb::default() };
    let running = coordinator(data.path(), federation(Algorithm::SyncLinUcb(rounds))).await;
    let _agents = shared(&running).await;
    let before = look(&running).await;
    let done = running.federations[0].retract(HOSTILE).await.unwrap().unwrap();
    let after = look(&running).await;
    running.abort().await;
    let own = history(data.path()).into_iter().map(|bytes| match LogEntry::decode(&bytes).unwrap().event {
        LogEvent::Accepted(HOSTILE, frame) => frame.message.as_ref().map_or(0, observations),
        _ => 0,
    });
    let own: u64 = own.sum();
    assert!(own > 0 && before.version > 2, "{before:?}");
    // What came too late for its round was sent again in the next.
    assert!(done.before - done.after <= own && done.after < done.before, "{done:?}, {own}");
    assert_eq!(after.version, before.version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retraction_that_was_cut_short_before_it_was_saved_is_finished_from_the_whole_log() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    shared(&running).await;
    // A saved state that knows what the agent had shared.
    running.drain().await;
    let running = coordinator(data.path(), talkative()).await;
    let done = running.federations[0].retract(HOSTILE).await.unwrap().unwrap();
    let after = look(&running).await;
    running.abort().await;
    let directory = data.path().join("federations/test");
    let mut states: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|own| own == "snap"))
        .collect();
    states.sort();
    assert_eq!(states.len(), 2);
    std::fs::remove_file(&states[1]).unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let again = look(&running).await;
    assert_eq!((again.observations, again.state, again.epoch.0), (done.after, after.state, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_apart_is_refused_and_nothing_changes() {
    let data = tempfile::tempdir().unwrap();
    let clusters =
        ClusterConfig { phase_deadline: Some(TimeSpan::from_micros(100_000)), ..ClusterConfig::default() };
    let clusters = Algorithm::FclubDc(FclubDc { clusters, ..FclubDc::default() });
    let running = coordinator(data.path(), federation(clusters)).await;
    shared(&running).await;
    let before = look(&running).await;
    let refused = running.federations[0].retract(HOSTILE).await.unwrap_err();
    assert!(
        refused.reason == Reason::Unexpected && refused.message.contains("cannot be taken out"),
        "{refused}"
    );
    assert_eq!(look(&running).await.epoch, before.epoch);
    drop(running);

    // The first entries are gone.
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    shared(&running).await;
    running.drain().await;
    let directory = data.path().join("federations/test");
    let mut log = FileLog::with_segments_of(&directory, 100).unwrap();
    for _ in 0..3 {
        let replay = log.replay().unwrap();
        if let Some(state) = replay.state {
            log.snapshot(&state).unwrap();
        }
        log.truncate(false).unwrap();
        log.append(&[LogEntry { tick: posse_core::Tick(0), event: LogEvent::Ticked }.encode()]).unwrap();
        log.sync(0).unwrap();
        drop(log);
        log = FileLog::with_segments_of(&directory, 100).unwrap();
    }
    drop(log);
    let running = coordinator(data.path(), talkative()).await;
    let refused = running.federations[0].retract(HOSTILE).await.unwrap_err();
    assert!(refused.message.contains("keep_history"), "{refused}");
}
