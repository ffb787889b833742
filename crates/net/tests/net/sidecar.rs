//! The agent over HTTP, and what happens to choices that nobody rewards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posse_core::{Arms, Tick, UserId};
use posse_net::agent::{
    Carriage, ChoiceId, RewardError, SidecarAccess, sidecar, sidecar_for, sidecar_on_socket,
};
use posse_net::{Agent, AgentConfig, Clock};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::privacy::private;
use crate::support::{DIMENSION, agent, config, coordinator, interact, talkative};

pub(crate) async fn call(
    address: std::net::SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn choices_and_rewards_travel_over_http() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let agent = agent(running.address, 1).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sidecar = sidecar(agent.clone(), listener).unwrap();
    let at = sidecar.address;
    let post = async |path: &str, body: Value| {
        let (status, text) = call(at, "POST", path, &body.to_string()).await;
        (status, serde_json::from_str::<Value>(&text).unwrap_or(Value::Null))
    };
    let arms = json!([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]);
    let (status, chosen) = post("/choose", json!({ "user": 3, "arms": arms })).await;
    assert_eq!((status, &chosen["propensity"]), (200, &json!(1.0)));
    let id = chosen["id"].clone();
    assert_eq!(post("/reward", json!({ "id": id, "reward": 1.0 })).await.0, 200);
    assert_eq!(post("/reward", json!({ "id": id, "reward": 1.0 })).await.0, 404);
    assert_eq!(post("/reward", json!({ "id": "nonsense", "reward": 1.0 })).await.0, 422);
    assert_eq!(post("/choose", json!({ "arms": [[1.0]] })).await.0, 422);
    assert_eq!(post("/choose", json!({ "arms": [] })).await.0, 422);
    assert_eq!(post("/choose", json!({ "arms": arms, "what": 1 })).await.0, 422);
    assert_eq!(call(at, "POST", "/choose", "{").await.0, 400);
    // Ways to write an offer that only serde knows.
    assert_eq!(call(at, "POST", "/choose", r#"{"\u0061rms": [[1,0,0,0]]}"#).await.0, 200);
    assert_eq!(post("/choose", json!([3, [[1.0, 0.0, 0.0, 0.0]]])).await.0, 200);
    let of_kind = async |kind: &str| {
        let (mut stream, body) = (TcpStream::connect(at).await.unwrap(), r#"{"arms":[[1,0,0,0]]}"#);
        let length = body.len();
        let head = format!("host: localhost\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
        let request = format!("POST /choose HTTP/1.1\r\nconnection: close\r\n{head}\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    assert_eq!(of_kind("application/json").await, 200);
    assert_eq!(of_kind("application/json; charset=utf-8").await, 200);
    assert_eq!(of_kind("text/plain").await, 415);
    let (status, health) = call(at, "GET", "/healthz", "").await;
    assert!(status == 200 && health.contains("\"agent\":1"), "{health}");
    let (_, metrics) = call(at, "GET", "/metrics", "").await;
    assert!(metrics.contains("posse_agent_rewards_total 1\n"), "{metrics}");
    let (_, openapi) = call(at, "GET", "/openapi.json", "").await;
    let openapi: Value = serde_json::from_str(&openapi).unwrap();
    for path in ["/choose", "/reward", "/healthz", "/privacy", "/metrics"] {
        assert!(openapi["paths"][path].is_object(), "{path}");
    }
    assert_eq!(call(at, "GET", "/privacy", "").await.0, 404, "nothing is private here");
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_agent_shows_what_it_may_claim() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), private()).await;
    let agent = agent(running.address, 1).await;
    (0..5).for_each(|step| interact(&agent, step));
    let sidecar = sidecar(agent, TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    let (status, text) = call(sidecar.address, "GET", "/privacy", "").await;
    let statement: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &statement["releases"], &statement["life"]), (200, &json!(1), &json!(1)));
    assert_eq!(
        statement["guarantee"],
        "later interactions may depend on earlier ones; clusters never split; every agent adds all its noise before anything leaves it"
    );
    assert!(statement["epsilon"].as_f64().is_some_and(|epsilon| epsilon > 0.0 && epsilon <= 1.0), "{text}");
    assert_eq!(statement["uncovered"].as_array().map(Vec::len), Some(3), "choices here never expire: {text}");
    assert!(statement.get("clipped").is_none(), "it counts raw observations: {text}");
    sidecar.stop().await;
}

/// An agent that nobody carries messages for, with a clock of ours.
async fn by_hand(config: AgentConfig) -> (Agent, Arc<AtomicU64>) {
    let time = Arc::new(AtomicU64::new(1));
    let clock = Arc::clone(&time);
    let config = AgentConfig { carriage: Carriage::ByHand, ..config };
    (
        Agent::start(AgentConfig { clock: Clock::new(move || Tick(clock.load(Ordering::SeqCst))), ..config })
            .await
            .unwrap(),
        time,
    )
}

fn arms() -> Arms {
    Arms::from_rows(DIMENSION, &[[1.0, 0.0, 0.0, 0.0]]).unwrap()
}

fn counts(agent: &Agent) -> u64 {
    agent.inspect(|machine| {
        let view = machine.inspect();
        view.unsent + view.in_flight.map_or(0, |(_, count)| count)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn choices_expire_to_the_default_reward_or_to_nothing() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    for (default_reward, learned) in [(Some(0.0), 1), (None, 0)] {
        let settings = AgentConfig {
            expire_after: Some(Duration::from_secs(1)),
            default_reward,
            ..config(running.address, 1)
        };
        let (agent, time) = by_hand(settings).await;
        let old = agent.choose(UserId(0), &arms()).unwrap();
        time.store(900_000, Ordering::SeqCst);
        let young = agent.choose(UserId(0), &arms()).unwrap();
        time.store(1_100_000, Ordering::SeqCst);
        agent.choose(UserId(0), &arms()).unwrap();
        assert_eq!(agent.reward(old.id, 1.0), Err(RewardError::Unknown(old.id)));
        assert_eq!(counts(&agent), learned);
        agent.reward(young.id, 1.0).unwrap();
        assert_eq!(counts(&agent), learned + 1);
        assert_eq!(agent.status().expired, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn choices_wait_for_their_rewards_through_a_crash() {
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = coordinator(data.path(), talkative()).await;
    let settings = AgentConfig { state: Some(state.path().into()), ..config(running.address, 1) };
    let (agent, _) = by_hand(settings.clone()).await;
    let chosen = agent.choose(UserId(5), &arms()).unwrap();
    agent.abort().await;
    let (agent, _) = by_hand(settings.clone()).await;
    agent.reward(chosen.id, 1.0).unwrap();
    assert_eq!(counts(&agent), 1);
    let next = agent.choose(UserId(5), &arms()).unwrap();
    assert!(next.id > chosen.id, "numbers are not used twice");
    agent.clone().close().await.unwrap();
    // An orderly end saves the same.
    let (agent, _) = by_hand(settings).await;
    assert_eq!(agent.reward(chosen.id, 1.0), Err(RewardError::Unknown(chosen.id)));
    agent.reward(next.id, 1.0).unwrap();
    assert_eq!("1-2".parse::<ChoiceId>(), Ok(next.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_open_choices_make_the_oldest_expire() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let settings = AgentConfig { max_pending: 2, ..config(running.address, 1) };
    let (agent, _) = by_hand(settings).await;
    let chosen: Vec<_> = (0..3).map(|_| agent.choose(UserId(0), &arms()).unwrap()).collect();
    assert_eq!(agent.status().pending, 2);
    assert!(agent.reward(chosen[0].id, 1.0).is_err());
    assert!(agent.reward(chosen[1].id, 1.0).is_ok());
}

/// The status of a request with these headers.
async fn status_of(
    stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin),
    path: &str,
    headers: &str,
) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_answers_its_own_names_only_and_asks_for_its_token() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let agent = Agent::start(config(running.address, 1)).await.unwrap();
    let access = SidecarAccess { token: Some("open sesame".into()), hosts: vec!["shop.internal".into()] };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sidecar = sidecar_for(agent.clone(), listener, access.clone()).unwrap();
    let token = "authorization: Bearer open sesame\r\n";
    for (host, known) in [
        ("localhost:7448", true),
        ("LOCALHOST", true),
        ("127.0.0.1:7448", true),
        ("[::1]:7448", true),
        ("shop.internal:7448", true),
        ("evil.example", false),
        ("localhost.evil.example:7448", false),
        ("127.0.0.1.evil.example", false),
        ("", false),
    ] {
        let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
        let status = status_of(&mut stream, "/metrics", &format!("host: {host}\r\n{token}")).await;
        assert_eq!(status, if known { 200 } else { 421 }, "{host}");
    }
    for (path, headers, expected) in [
        ("/metrics", "host: localhost\r\n", 401),
        ("/metrics", "host: localhost\r\nauthorization: Bearer open\r\n", 401),
        ("/healthz", "host: localhost\r\n", 200),
    ] {
        let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
        assert_eq!(status_of(&mut stream, path, headers).await, expected, "{path} {headers}");
    }

    let path = data.path().join("agent.socket");
    let sidecar = sidecar_on_socket(agent, UnixListener::bind(&path).unwrap(), access);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    assert_eq!(status_of(&mut stream, "/metrics", &format!("host: whoever\r\n{token}")).await, 200);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    assert_eq!(status_of(&mut stream, "/metrics", "host: whoever\r\n").await, 401);
    sidecar.stop().await;
}
