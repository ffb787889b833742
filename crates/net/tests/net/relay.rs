//! Relays over real links: nothing is lost or doubled while the relay or the root is killed and comes back.

use std::net::SocketAddr;
use std::path::Path;

use posse_core::{Algorithm, AsyncLinUcb, LinUcb, PrivacyConfig, Robust, SyncLinUcb, Threshold, TimeSpan};
use posse_net::Agent;
use posse_net::coordinator::{Options, Running, ServeConfig, ServeError, serve};
use posse_net::federation::{FederationConfig, ParentConfig};
use posse_net::log::{FileLog, Log};

use crate::support::{agent, coordinator, federation, in_a_minute, interact, look, talkative, unsent};

/// A federation whose coordinator is a relay, child `number` of the one at `parent`.
pub(crate) fn relayed(parent: SocketAddr, number: u64) -> FederationConfig {
    below(parent, number, talkative())
}

fn below(parent: SocketAddr, number: u64, federation: FederationConfig) -> FederationConfig {
    let mut settings = ParentConfig::default();
    settings.coordinator = format!("http://{parent}");
    settings.agent = Some(number);
    settings.upload_threshold = Some(Threshold(1.05));
    FederationConfig { parent: Some(settings), ..federation }
}

/// A coordinator at an address that it had before, once the system has freed it.
async fn at(address: SocketAddr, data: &Path, federation: FederationConfig) -> Running {
    let config = ServeConfig { listen: address, ..ServeConfig::on_loopback(data, vec![federation]) };
    in_a_minute(async {
        loop {
            match serve(config.clone(), Options::default()).await {
                Err(ServeError::Listen { .. }) => tokio::task::yield_now().await,
                other => return other.unwrap(),
            }
        }
    })
    .await
}

async fn play(agents: &[Agent], from: u64, to: u64) {
    for step in from..to {
        agents.iter().for_each(|agent| interact(agent, step));
    }
    for agent in agents {
        in_a_minute(agent.settled()).await;
    }
}

/// Waits until what the root holds, the relays owe it and agents have not sent is everything, each once.
async fn everything_is_somewhere(root: &Running, relays: &[&Running], agents: &[Agent], learned: u64) {
    let held = || async {
        let mut held = look(root).await.observations;
        for relay in relays {
            held += look(relay).await.unsent;
        }
        held + agents.iter().map(unsent).sum::<u64>()
    };
    // While an upload is on its way it counts at both ends: it settles once there are answers.
    in_a_minute(async {
        while held().await != learned {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_two_relays_learn_from_each_other_through_the_root() {
    let (above, left, right) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = coordinator(above.path(), talkative()).await;
    let one = coordinator(left.path(), relayed(root.address, 0)).await;
    let two = coordinator(right.path(), relayed(root.address, 1)).await;
    let agents = [agent(one.address, 0).await, agent(one.address, 1).await, agent(two.address, 0).await];
    play(&agents, 0, 100).await;
    everything_is_somewhere(&root, &[&one, &two], &agents, 300).await;
    // 200 observations came from the left; the right has heard of most of them.
    in_a_minute(async {
        while look(&two).await.observations < 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(look(&root).await.agents == 2, "the root knows relays only");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_when_the_relay_and_the_root_are_killed() {
    survives_kills(talkative).await;
}

/// A release replaces the one before, at the relay and at the root.
#[tokio::test(flavor = "multi_thread")]
async fn releases_count_once_when_the_relay_and_the_root_are_killed() {
    survives_kills(|| {
        let privacy = Some(PrivacyConfig { first_release: 5, ..Default::default() });
        federation(Algorithm::AsyncLinUcb(AsyncLinUcb { privacy, ..Default::default() }))
    })
    .await;
}

async fn survives_kills(settings: impl Fn() -> FederationConfig) {
    let (above, below_it) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut root = coordinator(above.path(), settings()).await;
    let mut relay = coordinator(below_it.path(), below(root.address, 7, settings())).await;
    let (at_root, at_relay) = (root.address, relay.address);
    let agents = [agent(at_relay, 0).await, agent(at_relay, 1).await];
    for turn in 0..4 {
        for step in 40 * turn..40 * turn + 20 {
            agents.iter().for_each(|agent| interact(agent, step));
        }
        if turn % 2 == 0 {
            let before = look(&relay).await.version;
            relay.abort().await;
            relay = at(at_relay, below_it.path(), below(at_root, 7, settings())).await;
            assert!(look(&relay).await.version >= before, "what was answered is kept");
        } else {
            root.abort().await;
            root = at(at_root, above.path(), settings()).await;
        }
        play(&agents, 40 * turn + 20, 40 * turn + 40).await;
        everything_is_somewhere(&root, &[&relay], &agents, 2 * 40 * (turn + 1)).await;
    }
    assert!(look(&root).await.observations > 0, "some of it has arrived");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_relay_is_replayed_with_who_it_is_at_its_parent() {
    let (above, below) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = coordinator(above.path(), talkative()).await;
    let relay = coordinator(below.path(), relayed(root.address, 7)).await;
    let agents = [agent(relay.address, 0).await];
    play(&agents, 0, 20).await;
    everything_is_somewhere(&root, &[&relay], &agents, 20).await;
    // A relay that ends in order leaves a saved state, which names the relay.
    relay.drain().await;
    let directory = below.path().join("federations/test");
    let kept = std::fs::read_to_string(directory.join("federation.json")).unwrap();
    let config = FederationConfig::from_kept(&kept).unwrap();
    let replay = FileLog::open(&directory).unwrap().replay().unwrap();
    assert!(config.replay(&replay).is_err(), "its parent speaks to the relay, not to any agent");
    let hub = config.with_identity_of(&directory).unwrap().replay(&replay).unwrap();
    assert_eq!(hub.coordinator().inspect().observations, 20);
}

/// Rounds in which the root holds agents against each other.
fn robust() -> FederationConfig {
    let rounds = SyncLinUcb {
        robust: Robust::Trimmed,
        round_threshold: Threshold(0.5),
        round_deadline: Some(TimeSpan::from_secs(2)),
        ..Default::default()
    };
    FederationConfig { levels: 2, ..federation(Algorithm::SyncLinUcb(rounds)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_shows_the_agents_below_relays_by_name() {
    let (above, below_it) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = coordinator(above.path(), robust()).await;
    let settings = |number| {
        let mut settings = below(root.address, number, robust());
        settings.parent.as_mut().unwrap().upload_threshold = None;
        settings
    };
    let relay = coordinator(below_it.path(), settings(7)).await;
    let agents = [agent(relay.address, 0).await, agent(relay.address, 3).await];
    // An agent that joined in the middle of a round asks for another one at its next interaction, not before.
    let mut turns = 0;
    in_a_minute(async {
        while root.federations[0].agents().await.iter().flat_map(|child| &child.kept).count() < 2 {
            play(&agents, turns, turns + 1).await;
            turns += 1;
        }
    })
    .await;
    everything_is_somewhere(&root, &[&relay], &agents, 2 * turns).await;
    let known = root.federations[0].agents().await;
    let names: Vec<&str> = known[0].kept.iter().map(|kept| kept.agent.as_str()).collect();
    assert_eq!((known.len(), known[0].agent, names), (1, 7, vec!["7/0", "7/3"]));
    // A round may end between the two looks.
    in_a_minute(async {
        let kept = || async {
            let known = root.federations[0].agents().await;
            known[0].kept.iter().map(|kept| kept.observations).sum::<u64>()
        };
        while kept().await != look(&root).await.observations {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(root.metrics.text().contains("posse_agents_set_aside{federation=\"test\"} 0"));
}

/// Otherwise an agent with a token could speak for as many agents as it likes.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_of_a_root_that_holds_agents_against_each_other_says_how_many_levels_there_are() {
    let without = |levels| FederationConfig { levels, ..robust() };
    let relay = |levels| below(SocketAddr::from(([127, 0, 0, 1], 1)), 7, without(levels));
    let error = relay(1).check().unwrap_err();
    assert_eq!((error.name, error.value.as_str()), ("levels", "1"), "{error}");
    relay(2).check().unwrap();
    // A list has as many parts as a relay may speak for agents, besides what is around every message.
    let parts = |levels| without(levels).longest_frame() - 4096;
    assert_eq!(parts(2), 1000 * parts(1));
    let Algorithm::SyncLinUcb(rounds) = robust().algorithm else { panic!("they are rounds") };
    let many = Algorithm::SyncLinUcb(SyncLinUcb { agents_per_relay: 1_000_000, ..rounds });
    let error = FederationConfig { algorithm: many, dimension: 100, ..robust() }.check().unwrap_err();
    assert_eq!(error.name, "agents_per_relay", "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_algorithm_without_relays_is_refused_with_the_reason() {
    let data = tempfile::tempdir().unwrap();
    let parent = relayed(SocketAddr::from(([127, 0, 0, 1], 1)), 0).parent;
    let alone = FederationConfig { parent, ..federation(Algorithm::LinUcb(LinUcb::default())) };
    let config = ServeConfig::on_loopback(data.path(), vec![alone]);
    let error = serve(config, Options::default()).await.unwrap_err().to_string();
    assert!(error.contains("never speak"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_of_another_dimension_is_refused() {
    let (above, below) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = coordinator(above.path(), talkative()).await;
    let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
    let parent = relayed(root.address, 0).parent;
    let wider = FederationConfig { parent, ..FederationConfig::new("test", algorithm, 9) };
    let config = ServeConfig::on_loopback(below.path(), vec![wider]);
    let error = serve(config, Options::default()).await.unwrap_err().to_string();
    assert!(error.contains("dimension"), "{error}");
}
