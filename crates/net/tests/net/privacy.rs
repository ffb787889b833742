//! Private federations over the network, attacked: whose the noise is, who sets the promise, what is shown to whom, and that
//! nothing is released twice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use posse_core::privacy::{PrivacyPolicy, Unit};
use posse_core::wire::v1;
use posse_core::{Algorithm, Arms, AsyncLinUcb, CdpFclubDc, FclubDc, PrivacyConfig, Tick, UserId};
use posse_net::agent::{AgentError, Carriage, NoiseOrigin};
use posse_net::coordinator::Running;
use posse_net::federation::FederationConfig;
use posse_net::log::read;
use posse_net::{Agent, AgentConfig, Clock};
use prost::Message;

use crate::support::{DIMENSION, config, coordinator, federation, interact};

/// Releases after 5, 10, 20 … observations.
pub(crate) fn private() -> FederationConfig {
    let privacy =
        PrivacyConfig { max_releases: 8, first_release: 5, release_growth: 2.0, ..Default::default() };
    federation(Algorithm::AsyncLinUcb(AsyncLinUcb { privacy: Some(privacy), ..Default::default() }))
}

fn by_hand(running: &Running, state: Option<&Path>) -> AgentConfig {
    let state = state.map(Path::to_owned);
    AgentConfig { state, carriage: Carriage::ByHand, ..config(running.address, 1) }
}

async fn start(config: AgentConfig) -> Agent {
    Agent::start(config).await.unwrap()
}

/// Says and hears everything.
async fn carry(agent: &Agent) {
    while agent.exchange().await.unwrap() {}
}

/// Messages that were said and have not been acknowledged.
fn leaving(agent: &Agent) -> Vec<v1::Uplink> {
    v1::EndpointState::decode(&agent.save()[..]).unwrap().queue
}

/// Interacts until there is a release; returns it.
fn release(agent: &Agent, step: &mut u64) -> Vec<v1::Uplink> {
    while leaving(agent).is_empty() {
        interact(agent, *step);
        *step += 1;
    }
    leaving(agent)
}

/// Messages that the coordinator accepted, in order.
fn accepted(data: &Path) -> Vec<v1::Uplink> {
    let contents = read(&data.join("federations").join("test")).unwrap();
    let message = |bytes: &Vec<u8>| match v1::LogEntry::decode(&bytes[..]).unwrap().event {
        Some(v1::log_entry::Event::Accepted(frame)) => frame.message,
        _ => None,
    };
    contents.entries.iter().filter_map(message).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_crashed_before_it_sent_a_release_sends_the_same_bits() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), private()).await;
    let settings = by_hand(&running, Some(state.path()));
    let mut agent = start(settings.clone()).await;
    carry(&agent).await;
    let (mut step, mut all) = (0, Vec::new());
    for _ in 0..3 {
        let released = release(&agent, &mut step);
        // Twice: what is drawn at a start changes nothing that was released before it.
        for _ in 0..2 {
            agent.abort().await;
            agent = start(settings.clone()).await;
            assert_eq!(leaving(&agent), released);
        }
        carry(&agent).await;
        all.extend(released);
        assert_eq!(accepted(data.path()), all, "what was kept is what left");
    }
    let report = agent.inspect(|machine| machine.privacy()).expect("it is private");
    assert_eq!((report.releases, report.streams, report.life), (3, 1, 1));
    assert!(report.uncovered().iter().all(|channel| !channel.contains("earlier lives")));
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_is_the_systems_and_no_seed_repeats_it() {
    let mut releases = Vec::new();
    for noise in [NoiseOrigin::Seed, NoiseOrigin::Seed, NoiseOrigin::System, NoiseOrigin::System] {
        let data = tempfile::tempdir().unwrap();
        let running = coordinator(data.path(), private()).await;
        let agent = start(AgentConfig { noise, ..by_hand(&running, None) }).await;
        carry(&agent).await;
        releases.push(release(&agent, &mut 0));
    }
    assert_eq!(releases[0], releases[1], "the same observations, the same seed");
    assert_ne!(releases[2], releases[3], "the same observations");
    assert!(releases[2] != releases[0] && releases[3] != releases[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_its_state_opens_a_new_stream_and_says_so() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), private()).await;
    let mut releases = Vec::new();
    for life in 1..=2 {
        let agent = start(by_hand(&running, None)).await;
        carry(&agent).await;
        releases.push(release(&agent, &mut 0));
        carry(&agent).await;
        let report = agent.inspect(|machine| machine.privacy()).expect("it is private");
        assert_eq!((report.life, report.streams, report.releases), (life, 1, 1));
        let said = report.uncovered().iter().any(|channel| channel.contains("earlier lives"));
        assert_eq!(said, life == 2);
        agent.abort().await;
    }
    assert_ne!(
        releases[0], releases[1],
        "the same measurement of another life: other noise over the same sums"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_brought_back_from_a_copy_draws_other_noise() {
    let (data, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), private()).await;
    let (state, copy) = (home.path().join("state"), home.path().join("copy"));
    let agent = start(by_hand(&running, Some(&state))).await;
    carry(&agent).await;
    agent.clone().close().await.unwrap();
    let mode = fs::metadata(&state).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "a state is its owner's alone");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(&state).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let mut releases = Vec::new();
    for directory in [&state, &copy] {
        let agent = start(by_hand(&running, Some(directory))).await;
        releases.push(release(&agent, &mut 0));
        agent.abort().await;
    }
    assert_ne!(releases[0], releases[1], "with the same noise, other observations would be bare");
}

fn with(privacy: PrivacyConfig) -> FederationConfig {
    federation(Algorithm::AsyncLinUcb(AsyncLinUcb { privacy: Some(privacy), ..Default::default() }))
}

/// The attack: the coordinator, against which the promise is made, offers a worse one. An agent with a policy says nothing to it.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_a_policy_joins_no_federation_that_promises_less() {
    let clustered = |privacy| federation(Algorithm::CdpFclubDc(CdpFclubDc { privacy, ..Default::default() }));
    let offers = [
        (federation(Algorithm::FclubDc(FclubDc::default())), "`fclub-dc` promises no privacy"),
        (federation(Algorithm::AsyncLinUcb(AsyncLinUcb::default())), "`async-lin-ucb` promises no privacy"),
        (clustered(PrivacyConfig { epsilon: 1e30, ..Default::default() }), "ε = 1e30"),
        (with(PrivacyConfig { epsilon: 1.5, ..Default::default() }), "ε = 1.5"),
        (with(PrivacyConfig { delta: 0.1, ..Default::default() }), "δ = 1e-1"),
        (with(PrivacyConfig { raw_buffer: true, ..Default::default() }), "raw_buffer"),
    ];
    for (offer, why) in offers {
        let data = tempfile::tempdir().unwrap();
        let running = coordinator(data.path(), offer).await;
        let settings = AgentConfig { policy: Some(PrivacyPolicy::default()), ..by_hand(&running, None) };
        let error = Agent::start(settings).await.unwrap_err();
        assert!(matches!(&error, AgentError::Policy(said) if said.contains(why)), "{why}: {error}");
        assert_eq!(accepted(data.path()), [], "nothing was said to it");
    }
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), private()).await;
    let policy = Some(PrivacyPolicy::default());
    start(AgentConfig { policy, ..by_hand(&running, None) }).await;
    // The coordinator knows the seed: what it is asked to hide would be bare.
    let seeded = AgentConfig { policy, noise: NoiseOrigin::Seed, ..by_hand(&running, None) };
    let error = Agent::start(seeded).await.unwrap_err();
    assert!(matches!(&error, AgentError::Policy(said) if said.contains("seed")), "{error}");
}

/// The attack: the agent is restarted without the flag. Its state remembers what it required.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_stays_in_force_without_being_repeated() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), with(PrivacyConfig { epsilon: 0.5, ..Default::default() })).await;
    let settings = by_hand(&running, Some(state.path()));
    let strict = Some(PrivacyPolicy { max_epsilon: 0.5, ..Default::default() });
    start(AgentConfig { policy: strict, ..settings.clone() }).await.close().await.unwrap();
    start(settings.clone()).await.close().await.unwrap();
    // A stricter one is not what the federation promises: the state is refused as well.
    let users = Some(PrivacyPolicy { unit: Unit::User, ..Default::default() });
    let error = Agent::start(AgentConfig { policy: users, ..settings.clone() }).await.unwrap_err();
    assert!(matches!(&error, AgentError::Policy(said) if said.contains("one user")), "{error}");
    // Noise from the seed is refused by the policy in the state alone.
    let seeded = AgentConfig { noise: NoiseOrigin::Seed, ..settings };
    let error = Agent::start(seeded).await.unwrap_err();
    assert!(matches!(error, AgentError::Policy(_)), "{error}");
}

/// The attack: a state is brought back from before a release. The coordinator has counted that release, so the state
/// cannot go on: its observations are forgotten and never released a second time.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_state_is_refused_by_the_count_that_the_coordinator_keeps() {
    let (data, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), private()).await;
    let (state, copy) = (home.path().join("state"), home.path().join("copy"));
    let agent = start(by_hand(&running, Some(&state))).await;
    carry(&agent).await;
    (0..4).for_each(|step| interact(&agent, step));
    agent.close().await.unwrap();
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(&state).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let agent = start(by_hand(&running, Some(&state))).await;
    carry(&agent).await;
    let first = release(&agent, &mut 4);
    carry(&agent).await;
    agent.close().await.unwrap();
    assert_eq!(accepted(data.path()), first);

    let settings = AgentConfig { new_life_if_superseded: true, ..by_hand(&running, Some(&copy)) };
    let old = start(settings).await;
    interact(&old, 4);
    assert_eq!(leaving(&old).len(), 1, "it does not know yet that this was released before");
    // What it made never leaves: the coordinator knows that another process has spoken since, and counts further than this
    // state has sent.
    for _ in 0..5 {
        let _ = old.exchange().await;
    }
    assert_eq!(accepted(data.path()), first, "nothing was released a second time");
    let report = old.privacy().unwrap();
    assert_eq!((report.life, report.releases), (2, 0), "another life, with observations of its own only");
    assert!(report.uncovered().iter().any(|channel| channel.contains("earlier lives")));
}

/// The attack: whoever reaches the agent reads its statement. It holds what was released and counted, and nothing raw.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_shows_nothing_that_was_not_released() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), private()).await;
    let statements = async |reward: f64| {
        let agent = start(AgentConfig {
            expire_after: Some(std::time::Duration::from_secs(60)),
            ..by_hand(&running, None)
        })
        .await;
        let arms = Arms::from_rows(DIMENSION, &[[0.5; DIMENSION]]).unwrap();
        for _ in 0..4 {
            let chosen = agent.choose(UserId(0), &arms).unwrap();
            agent.reward(chosen.id, reward).unwrap();
        }
        let report = agent.privacy().unwrap();
        agent.abort().await;
        (serde_json::to_value(report.statement()).unwrap(), report)
    };
    // Rewards of 9 are clipped to 1, and counted as such where only the operator can see it.
    let ((one, report), (other, _)) = (statements(0.1).await, statements(9.0).await);
    let without_life = |mut statement: serde_json::Value| {
        statement.as_object_mut().unwrap().retain(|key, _| key != "life" && key != "uncovered");
        statement
    };
    assert_eq!(without_life(one), without_life(other), "nothing was released, and nothing else shows");
    assert!(!report.seeded && report.void.is_none() && !report.uncounted);
    let careless = start(by_hand(&running, None)).await.privacy().unwrap();
    assert!(
        careless.uncounted && careless.uncovered().iter().any(|channel| channel.contains("reward at all"))
    );
    let seeded = start(AgentConfig { noise: NoiseOrigin::Seed, ..by_hand(&running, None) }).await;
    let statement = serde_json::to_value(seeded.privacy().unwrap().statement()).unwrap();
    assert_eq!(statement["epsilon"], serde_json::Value::Null, "none, not a number");
    assert!(
        statement["guarantee"].as_str().unwrap().starts_with("none: noise follows from the seed"),
        "{statement}"
    );
}

/// The attack: counts of uploads tell whose choice got no reward. They are the same when it expires.
#[tokio::test(flavor = "multi_thread")]
async fn choices_that_expire_are_counted_and_come_back_after_a_crash() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), private()).await;
    let time = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(1));
    let clock = || {
        let time = std::sync::Arc::clone(&time);
        Clock::new(move || Tick(time.load(std::sync::atomic::Ordering::SeqCst)))
    };
    let after = Some(std::time::Duration::from_secs(1));
    let settings =
        AgentConfig { expire_after: after, clock: clock(), ..by_hand(&running, Some(state.path())) };
    let agent = Agent::start(settings.clone()).await.unwrap();
    carry(&agent).await;
    let arms = Arms::from_rows(DIMENSION, &[[0.5; DIMENSION]]).unwrap();
    for _ in 0..5 {
        agent.choose(UserId(0), &arms).unwrap();
    }
    assert!(leaving(&agent).is_empty());
    time.store(2_000_000, std::sync::atomic::Ordering::SeqCst);
    agent.choose(UserId(0), &arms).unwrap();
    let released = leaving(&agent);
    assert_eq!(released.len(), 1, "five interactions are due, rewarded or not");
    agent.abort().await;
    let agent = Agent::start(settings).await.unwrap();
    assert_eq!(leaving(&agent), released, "the same bits after a crash");
    assert_eq!(agent.privacy().unwrap().most_of_a_user, 5);
}

/// What every agent with this noise released first, by agent, read off the coordinator's log: its rewards are 1 for agents
/// with an even number and −1 for others.
async fn first_releases(agents: u64, noise: NoiseOrigin) -> Vec<(u64, Vec<f64>)> {
    let data = tempfile::tempdir().unwrap();
    let privacy = PrivacyConfig { first_release: 1, max_releases: 1, ..audited() };
    let running = coordinator(data.path(), with(privacy)).await;
    for id in 1..=agents {
        let settings = AgentConfig { noise, carriage: Carriage::ByHand, ..config(running.address, id) };
        let agent = start(settings).await;
        carry(&agent).await;
        let arms = Arms::from_rows(DIMENSION, &[[0.5; DIMENSION]]).unwrap();
        let chosen = agent.choose(UserId(0), &arms).unwrap();
        agent.reward(chosen.id, if id % 2 == 0 { 1.0 } else { -1.0 }).unwrap();
        carry(&agent).await;
        agent.abort().await;
    }
    let contents = read(&data.path().join("federations").join("test")).unwrap();
    let release = |bytes: &Vec<u8>| {
        let entry = v1::LogEntry::decode(&bytes[..]).unwrap();
        let Some(v1::log_entry::Event::Accepted(frame)) = entry.event else { return None };
        let Some(v1::uplink::Kind::Cluster(upload)) = frame.message?.kind else { return None };
        Some((entry.agent, upload.evidence?.moment))
    };
    contents.entries.iter().filter_map(release).collect()
}

const E_TO_THE_EPSILON: f64 = 7.389_056;

fn audited() -> PrivacyConfig {
    PrivacyConfig { epsilon: 2.0, delta: 1e-3, ..Default::default() }
}

/// The audit of deployed agents: the coordinator is the adversary, reads its log and guesses one reward of each agent from
/// its release. How often it is right bounds ε from below, with a confidence of more than 99.9 %.
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_reads_its_log_learns_no_more_than_was_promised() {
    let agents = 600;
    let releases = first_releases(agents, NoiseOrigin::System).await;
    assert_eq!(releases.len() as u64, agents);
    let guesses = |even: bool, threshold: f64| {
        let own = releases.iter().filter(|(agent, _)| (agent % 2 == 0) == even);
        let (n, hits) = own.fold((0.0, 0.0), |(n, hits), (_, moment)| {
            (n + 1.0, hits + f64::from(u8::from(moment.iter().sum::<f64>() > threshold)))
        });
        let (p, n): (f64, f64) = (hits / n, n);
        (p, 4.0 * (p * (1.0 - p) / n).sqrt() + 4.0 / n)
    };
    let ratios = [0.0, 2.0, 4.0].into_iter().map(|threshold| {
        let ((hits, off), (alarms, more)) = (guesses(true, threshold), guesses(false, threshold));
        (hits - off - audited().delta) / (alarms + more)
    });
    let audited_ratio = ratios.fold(0.0, f64::max);
    assert!(audited_ratio <= E_TO_THE_EPSILON, "the log shows a ratio of {audited_ratio}");
    let ((hits, _), (alarms, _)) = (guesses(true, 0.0), guesses(false, 0.0));
    assert!(hits > alarms, "the attack is idle: {hits} {alarms}");
}

/// The planted leak: noise that follows from the seed. Agents with the same number release the same bits in every federation with
/// that seed, so that whoever runs one for each reward reads off which it was.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_noise_that_the_coordinator_knows() {
    let (once, again) =
        (first_releases(8, NoiseOrigin::Seed).await, first_releases(8, NoiseOrigin::Seed).await);
    assert_eq!(once, again, "with the seed known, every reward is bare");
    let (once, again) =
        (first_releases(8, NoiseOrigin::System).await, first_releases(8, NoiseOrigin::System).await);
    assert!(once.iter().zip(&again).all(|(a, b)| a.1 != b.1));
}
