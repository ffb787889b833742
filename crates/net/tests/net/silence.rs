//! What used to silence an agent for ever: each of these ends with the agent heard again, or told why it is not.

use std::path::Path;

use posse_core::session::UpFrame;
use posse_core::{
    AgentId, Algorithm, Arms, Epoch, Evidence, EvidenceUpload, Incarnation, InputError, LinUcb, Parcel,
    SyncLinUcb, Threshold, TimeSpan, Uplink, UserId, Version,
};
use posse_net::agent::{Carriage, ChooseError, RewardError, sidecar};
use posse_net::coordinator::{Authentication, Options, Running, ServeConfig, Tokens, serve};
use posse_net::federation::FederationConfig;
use posse_net::v1::coordinator_client::CoordinatorClient;
use posse_net::{Agent, AgentConfig};
use serde_json::json;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::sidecar::call;
use crate::support::{
    DIMENSION, agent, config, coordinator, federation, in_a_minute, interact, look, talkative,
};

fn bounded() -> FederationConfig {
    FederationConfig { feature_bound: Some(1.0), reward_bound: Some(1.0), ..talkative() }
}

fn one_arm(length: f64) -> Arms {
    Arms::from_rows(DIMENSION, &[[length, 0.0, 0.0, 0.0]]).unwrap()
}

async fn until(happened: impl Fn() -> bool) {
    in_a_minute(async {
        while !happened() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn started(config: AgentConfig) -> Agent {
    Agent::start(config).await.unwrap()
}

/// A coordinator that takes the place of one that has ended.
async fn successor(data: &Path, federation: FederationConfig, before: &Running) -> ServeConfig {
    ServeConfig { listen: before.address, ..ServeConfig::on_loopback(data, vec![federation]) }
}

async fn restart(config: ServeConfig) -> Running {
    loop {
        match serve(config.clone(), Options::default()).await {
            Ok(running) => return running,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_coordinator_would_refuse_is_refused_to_the_caller_and_blocks_nothing() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), bounded()).await;
    let agent = agent(running.address, 1).await;
    let refused = agent.choose(UserId(0), &one_arm(2.0));
    assert!(matches!(refused, Err(ChooseError::Input(InputError::FeatureBound { .. }))), "{refused:?}");
    let chosen = agent.choose(UserId(0), &one_arm(1.0)).unwrap();
    let refused = agent.reward(chosen.id, 5.0);
    assert!(matches!(refused, Err(RewardError::Input(InputError::RewardBound { .. }))), "{refused:?}");
    let sidecar = sidecar(agent.clone(), TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    let body = json!({ "id": chosen.id.to_string(), "reward": 5.0 }).to_string();
    let (status, said) = call(sidecar.address, "POST", "/reward", &body).await;
    assert!(status == 422 && said.contains("reward_bound"), "{said}");
    let body = json!({ "arms": [[0.0, 2.0, 0.0, 0.0]] }).to_string();
    assert_eq!(call(sidecar.address, "POST", "/choose", &body).await.0, 422);
    agent.reward(chosen.id, 1.0).unwrap();
    in_a_minute(agent.settled()).await;
    assert_eq!(look(&running).await.observations, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_refused_for_good_is_set_aside_and_the_agent_goes_on() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), talkative()).await;
    let next = successor(data.path(), bounded(), &running).await;
    let with_state = AgentConfig { state: Some(state.path().into()), ..config(running.address, 1) };
    let agent = started(with_state).await;
    in_a_minute(agent.settled()).await;
    running.drain().await;
    // Allowed when it was learned; when it is shared, the operator has set bounds.
    let waits = agent.choose(UserId(0), &one_arm(1.0)).unwrap();
    let chosen = agent.choose(UserId(0), &one_arm(1.0)).unwrap();
    agent.reward(chosen.id, 5.0).unwrap();
    let running = restart(next).await;
    until(|| agent.status().set_aside == 1).await;
    let refusal = agent.status().last_refusal.unwrap();
    assert!(refusal.contains("impossible"), "{refusal}");
    assert_eq!(std::fs::read_dir(state.path().join("set-aside")).unwrap().count(), 1);
    in_a_minute(agent.settled()).await;
    assert_eq!(agent.status().life, 2);
    // What comes after it arrives, also the reward of a choice from before.
    agent.reward(waits.id, 0.5).unwrap();
    in_a_minute(agent.settled()).await;
    assert_eq!(look(&running).await.observations, 1);
    assert_eq!(running.federations[0].standing().quarantined, []);
    let sidecar = sidecar(agent.clone(), TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    let (status, said) = call(sidecar.address, "GET", "/healthz", "").await;
    assert!(status == 200 && said.contains("\"set_aside\":1"), "{said}");
    assert!(call(sidecar.address, "GET", "/metrics", "").await.1.contains("posse_agent_set_aside 1\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_identity_another_process_took_is_told_so_and_can_take_it_back() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let first = agent(running.address, 1).await;
    interact(&first, 0);
    in_a_minute(first.settled()).await;
    let waits = first.choose(UserId(0), &one_arm(0.5)).unwrap();
    let second = agent(running.address, 1).await;
    in_a_minute(second.settled()).await;
    until(|| first.status().superseded.is_some()).await;
    let refused = first.reward(waits.id, 0.5);
    assert!(matches!(refused, Err(RewardError::Superseded(_))), "{refused:?}");
    let sidecar = sidecar(first.clone(), TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    let (status, said) = call(sidecar.address, "GET", "/healthz", "").await;
    assert!(status == 503 && said.contains("another process speaks for agent 1"), "{said}");
    interact(&second, 1);
    in_a_minute(second.settled()).await;
    assert_eq!(look(&running).await.observations, 2);

    assert_eq!(call(sidecar.address, "POST", "/new-life", "").await.0, 200);
    until(|| first.status().superseded.is_none() && first.is_settled()).await;
    assert_eq!((first.status().life, call(sidecar.address, "GET", "/healthz", "").await.0), (3, 200));
    first.reward(waits.id, 0.5).unwrap();
    in_a_minute(first.settled()).await;
    assert_eq!(look(&running).await.observations, 3);
    until(|| second.status().superseded.is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_a_life_that_ended_is_told_so_and_begins_a_new_one_if_asked() {
    let data = tempfile::tempdir().unwrap();
    for restarted in [false, true] {
        let place = data.path().join(restarted.to_string());
        let (state, old) = (place.join("agent"), place.join("old"));
        let mut running = coordinator(&place, talkative()).await;
        let next = successor(&place, talkative(), &running).await;
        let with = |state: &Path| AgentConfig { state: Some(state.into()), ..config(next.listen, 1) };
        let agent = started(with(&state)).await;
        interact(&agent, 0);
        in_a_minute(agent.settled()).await;
        agent.clone().close().await.unwrap();
        copy(&state, &old);
        // Its state is lost, and it lives a second life.
        std::fs::remove_dir_all(&state).unwrap();
        let agent = started(with(&state)).await;
        interact(&agent, 1);
        in_a_minute(agent.settled()).await;
        agent.clone().close().await.unwrap();
        if restarted {
            running.drain().await;
            running = restart(next.clone()).await;
        }
        let stale = started(with(&old)).await;
        until(|| stale.status().superseded.is_some()).await;
        stale.clone().close().await.unwrap();
        let again = started(AgentConfig { new_life_if_superseded: true, ..with(&old) }).await;
        until(|| again.is_settled()).await;
        assert_eq!(again.status().life, 3);
        interact(&again, 2);
        in_a_minute(again.settled()).await;
        assert_eq!(look(&running).await.observations, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_with_copies_of_one_state_one_is_heard_and_no_reward_is_lost_unsaid() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let (state, clone) = (data.path().join("agent"), data.path().join("clone"));
    let with = |state: &Path| AgentConfig { state: Some(state.into()), ..config(running.address, 1) };
    let original = started(with(&state)).await;
    for step in 0..5 {
        interact(&original, step);
    }
    in_a_minute(original.settled()).await;
    copy(&state, &clone);
    let mut agents = [original, started(with(&clone)).await];
    agents.iter().for_each(|agent| interact(agent, 7));
    until(|| agents.iter().any(|agent| agent.status().superseded.is_some())).await;
    agents.sort_by_key(|agent| agent.status().superseded.is_some());
    let [heard, deaf] = &agents;
    let chosen = deaf.choose(UserId(0), &one_arm(1.0)).unwrap();
    assert!(matches!(deaf.reward(chosen.id, 1.0), Err(RewardError::Superseded(_))));
    let before = look(&running).await.observations;
    let taken = heard.status().rewards;
    for step in 10..40 {
        interact(heard, step);
    }
    in_a_minute(heard.settled()).await;
    let arrived = look(&running).await.observations - before;
    let (unsent, more) = (crate::support::unsent(heard), heard.status().rewards - taken);
    assert!(more == 30 && arrived + unsent >= 30, "{arrived} arrived and {unsent} wait, of {more}");
    assert!(deaf.status().superseded.is_some() && heard.status().superseded.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_go_on_without_an_agent_that_stopped() {
    let data = tempfile::tempdir().unwrap();
    let rounds = SyncLinUcb { round_threshold: Threshold(0.5), ..SyncLinUcb::default() };
    // Nothing is said about deadlines in the algorithm's settings.
    let rounds =
        FederationConfig { deadline: TimeSpan::from_secs(1), ..federation(Algorithm::SyncLinUcb(rounds)) };
    let running = coordinator(data.path(), rounds).await;
    let (stops, goes_on) = (agent(running.address, 1).await, agent(running.address, 2).await);
    in_a_minute(stops.settled()).await;
    in_a_minute(goes_on.settled()).await;
    stops.clone().close().await.unwrap();
    for step in 0..20 {
        interact(&goes_on, step);
    }
    in_a_minute(async {
        while look(&running).await.version == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(look(&running).await.observations > 0);
}

/// A coordinator's client that speaks for an agent without being one.
async fn attacker(running: &Running) -> CoordinatorClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    CoordinatorClient::new(endpoint.connect().await.unwrap())
}

async fn say(client: &mut CoordinatorClient<Channel>, frame: UpFrame) -> Result<(), Status> {
    let mut request = Request::new(frame.to_wire());
    request.metadata_mut().insert("posse-agent", "66".parse().unwrap());
    client.exchange(request).await.map(drop)
}

fn hello(life: u64) -> UpFrame {
    UpFrame {
        epoch: Epoch(0),
        incarnation: Incarnation(life),
        acknowledged: 0,
        sequence: 0,
        message: None,
        greeting: 1,
    }
}

fn claim(count: u64, moment: [f64; DIMENSION]) -> UpFrame {
    let mut gram = vec![0.0; posse_core::packed(DIMENSION)];
    (0..DIMENSION).for_each(|i| gram[posse_core::packed(i) + i] = 0.25);
    let evidence = Evidence::from_parts(gram, moment.to_vec(), count).unwrap();
    let evidence = Parcel::Dense(evidence);
    let upload = EvidenceUpload { number: 1, based_on: Version(0), information: 1.0, evidence };
    UpFrame { sequence: 1, message: Some(Uplink::Evidence(upload)), greeting: 0, ..hello(1) }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_holder_of_a_token_cannot_stop_the_others() {
    let data = tempfile::tempdir().unwrap();
    let bounds = FederationConfig { feature_bound: Some(2.0), reward_bound: Some(3.0), ..talkative() };
    let running = coordinator(data.path(), bounds).await;
    let honest = agent(running.address, 1).await;
    interact(&honest, 0);
    in_a_minute(honest.settled()).await;
    let before = look(&running).await;
    let mut client = attacker(&running).await;
    say(&mut client, hello(1)).await.unwrap();
    let claims = [
        // All the observations that can be counted, but one.
        claim((1 << 53) - 2, [0.0; DIMENSION]),
        // More directions than observations.
        claim(1, [0.0; DIMENSION]),
        // More reward than |y| ≤ 3 gives along these features, though not more than it gives along longer ones.
        claim(8, [5.0, 0.0, 0.0, 0.0]),
    ];
    for frame in claims {
        let refused = say(&mut client, frame).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    let refused = say(&mut client, hello(u64::MAX)).await.unwrap_err();
    assert!(refused.message().contains("was not given out"), "{refused}");
    assert_eq!(look(&running).await.observations, before.observations);
    for step in 1..20 {
        interact(&honest, step);
    }
    in_a_minute(honest.settled()).await;
    assert!(look(&running).await.observations > before.observations);
    // The number of the agent can still be used.
    let life = agent(running.address, 66).await;
    in_a_minute(life.settled()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_token_is_read_again_and_the_link_is_there_all_the_time() {
    let data = tempfile::tempdir().unwrap();
    let guarded = ServeConfig {
        authentication: Authentication::Token,
        ..ServeConfig::on_loopback(data.path(), vec![talkative()])
    };
    let tokens = Tokens::open(&guarded.token_file()).unwrap();
    let (first, info) = tokens.create(AgentId(7), vec!["test".into()]).unwrap();
    let running = serve(guarded, Options::default()).await.unwrap();
    let file = data.path().join("agent.token");
    std::fs::write(&file, &first).unwrap();
    let settings = AgentConfig { token_file: Some(file.clone()), agent: None, ..config(running.address, 7) };
    let agent = started(settings).await;
    in_a_minute(agent.settled()).await;
    // The old secret is void at once: the agent is cut off until the file has the new one.
    let second = tokens.rotate(&info.id, std::time::Duration::ZERO).unwrap();
    until(|| agent.status().trouble.is_some_and(|why| why.contains("not known"))).await;
    std::fs::write(&file, &second).unwrap();
    until(|| agent.is_settled()).await;
    // With a grace both are valid, and the link is not even cut.
    tokens.rotate(&info.id, std::time::Duration::from_secs(3600)).unwrap();
    interact(&agent, 0);
    in_a_minute(agent.settled()).await;
    assert_eq!(agent.status().trouble, None);
    assert_eq!(look(&running).await.observations, 1);
}

/// Bytes of all files in a directory.
fn size(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata());
    files.filter_map(Result::ok).map(|file| file.len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_an_agent_that_is_offline_stays_short_and_brings_it_back() {
    const WIDE: usize = 64;
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let alone = FederationConfig::new("test", Algorithm::LinUcb(LinUcb::default()), WIDE as u64);
    let running = coordinator(data.path(), alone).await;
    let offline = AgentConfig {
        state: Some(state.path().into()),
        carriage: Carriage::ByHand,
        ..config(running.address, 1)
    };
    let agent = started(offline.clone()).await;
    running.drain().await;
    let mut arms = Arms::new(WIDE);
    arms.push(&[0.1; WIDE]).unwrap();
    // 30 MB of journal; the state itself is small.
    for step in 0..45_000 {
        let chosen = agent.choose(UserId(0), &arms).unwrap();
        agent.reward(chosen.id, 1.0).unwrap();
        if step % 1000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    until(|| size(state.path()) < 16 << 20).await;
    let before = agent.save();
    agent.abort().await;
    let again = started(offline).await;
    assert!(again.save() == before);
    assert_eq!(again.status().life, 1);
}
