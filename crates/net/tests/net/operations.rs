//! What an operator sees: metrics, health with its reason, and a service that describes itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use posse_core::wire::v1;
use posse_core::{Algorithm, SyncLinUcb, Threshold};
use posse_net::coordinator::{LogKind, Options, Running, ServeConfig, serve};
use posse_net::federation::FederationConfig;
use posse_net::log::{FileLog, Log, LogError, Replay};
use prost::Message;
use serde_json::Value;
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::sidecar::call;
use crate::support::{agent, federation, in_a_minute, interact, interact_and_report, talkative};

const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

async fn watched(data: &std::path::Path, federation: FederationConfig, log: LogKind) -> Running {
    let config = ServeConfig { admin: Some(ANYWHERE), ..ServeConfig::on_loopback(data, vec![federation]) };
    serve(config, Options { log, ..Options::default() }).await.unwrap()
}

async fn channel(running: &Running) -> Channel {
    Endpoint::from_shared(format!("http://{}", running.address)).unwrap().connect().await.unwrap()
}

/// The value of a metric, added up over its labels.
fn value(text: &str, name: &str) -> f64 {
    let is_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let values = text.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>());
    values.sum::<Result<f64, _>>().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metric_moves_when_what_it_counts_happens_and_no_metric_is_untested() {
    let data = tempfile::tempdir().unwrap();
    let rounds = SyncLinUcb { round_threshold: Threshold(0.5), ..SyncLinUcb::default() };
    let running = watched(data.path(), federation(Algorithm::SyncLinUcb(rounds)), LogKind::default()).await;
    let admin = running.admin.unwrap();
    let agents = [agent(running.address, 1).await, agent(running.address, 2).await];
    for step in 0..60 {
        for agent in &agents {
            interact(agent, step);
            agent.settled().await;
        }
    }
    // Metrics of a moment at which no round is open.
    let rounds = async || {
        let view = running.federations[0].look().await.unwrap();
        let state = v1::CoordinatorState::decode(&*view.state).expect("its own state");
        (!state.collecting).then_some(view.version)
    };
    let (rounds, (status, text)) = in_a_minute(async {
        loop {
            let before = rounds().await;
            let answer = call(admin, "GET", "/metrics", "").await;
            if let (Some(before), Some(after)) = (before, rounds().await)
                && before == after
            {
                break (before as f64, answer);
            }
        }
    })
    .await;
    assert_eq!(status, 200);
    let moved = [
        "posse_agents_connected",
        "posse_leads",
        "posse_uploads_total",
        "posse_downloads_total",
        "posse_frame_bytes_total",
        "posse_log_bytes",
        "posse_sync_seconds_count",
        "posse_round_seconds_count",
        "posse_observations",
        "posse_agent_up",
        "posse_agent_last_seen_seconds",
        "posse_agent_observations",
        "posse_build_info",
    ];
    for name in moved {
        assert!(value(&text, name) > 0.0, "{name} does not move:\n{text}");
    }
    // What moves for other reasons has a test of its own: the next two here, two in `security`, one in
    // `presence`.
    let elsewhere = [
        "posse_staleness",
        "posse_agents_set_aside",
        "posse_refused",
        "posse_agents_quarantined",
        "posse_agents_away",
    ];
    let tested = |name: &str| elsewhere.contains(&name) || moved.iter().any(|moved| moved.starts_with(name));
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = types.map(|line| line.split_once(' ').unwrap().0).collect();
    // `posse_refused` appears with the first refusal.
    assert_eq!(names.len(), moved.len() + elsewhere.len() - 1, "{names:?}");
    assert!(names.iter().all(|name| tested(name)), "{names:?}");
    assert_eq!(value(&text, "posse_agents_connected"), 2.0);
    // Each round is measured once, not once an agent.
    assert_eq!(value(&text, "posse_round_seconds_count"), rounds);
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_whose_reports_contradict_the_others_are_counted_as_set_aside() {
    let data = tempfile::tempdir().unwrap();
    let rounds = SyncLinUcb {
        round_threshold: Threshold(0.5),
        robust: posse_core::Robust::Trimmed,
        ..SyncLinUcb::default()
    };
    let running = watched(data.path(), federation(Algorithm::SyncLinUcb(rounds)), LogKind::default()).await;
    let mut agents = Vec::new();
    for number in 1..=10 {
        agents.push(agent(running.address, number).await);
    }
    let admin = running.admin.unwrap();
    let set_aside = async || value(&call(admin, "GET", "/metrics", "").await.1, "posse_agents_set_aside");
    assert_eq!(set_aside().await, 0.0);
    in_a_minute(async {
        for step in 0.. {
            for (place, agent) in agents.iter().enumerate() {
                interact_and_report(agent, step, if place < 2 { -1.0 } else { 1.0 });
                agent.settled().await;
            }
            if set_aside().await == 2.0 {
                break;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn staleness_is_the_information_that_the_agent_furthest_behind_lacks() {
    let data = tempfile::tempdir().unwrap();
    let mut settings = posse_core::AsyncLinUcb::default();
    settings.protocol.upload_threshold = Threshold(1.05);
    settings.protocol.download_threshold = Threshold(f64::INFINITY);
    let running =
        watched(data.path(), federation(Algorithm::AsyncLinUcb(settings)), LogKind::default()).await;
    let (silent, busy) = (agent(running.address, 1).await, agent(running.address, 2).await);
    silent.settled().await;
    for step in 0..20 {
        interact(&busy, step);
        busy.settled().await;
    }
    let view = running.federations[0].look().await.unwrap();
    let (_, text) = call(running.admin.unwrap(), "GET", "/metrics", "").await;
    // The silent agent has seen nothing of it.
    assert!(view.information > 0.1, "{view:?}");
    assert!((value(&text, "posse_staleness") - view.information).abs() < 1e-9, "{text}");
}

/// A log that fails as long as it is told to.
struct Failing {
    log: FileLog,
    fails: Arc<AtomicBool>,
}

impl Log for Failing {
    fn append(&mut self, entries: &[Vec<u8>]) -> Result<(), LogError> {
        if self.fails.load(Ordering::SeqCst) {
            let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(LogError::Io { path: PathBuf::from("the disk"), error });
        }
        self.log.append(entries)
    }
    fn sync(&mut self, epoch: u64) -> Result<(), LogError> {
        self.log.sync(epoch)
    }
    fn replay(&mut self) -> Result<Replay, LogError> {
        self.log.replay()
    }
    fn snapshot(&mut self, state: &[u8]) -> Result<(), LogError> {
        self.log.snapshot(state)
    }
    fn truncate(&mut self, keep_entries: bool) -> Result<(), LogError> {
        self.log.truncate(keep_entries)
    }
    fn history(&mut self) -> Result<Option<Vec<Vec<u8>>>, LogError> {
        self.log.history()
    }
    fn probe(&mut self, bytes: u64) -> Result<(), LogError> {
        if self.fails.load(Ordering::SeqCst) {
            let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(LogError::Io { path: PathBuf::from("the disk"), error });
        }
        self.log.probe(bytes)
    }
    fn next(&self) -> u64 {
        self.log.next()
    }
    fn bytes_since_snapshot(&self) -> u64 {
        self.log.bytes_since_snapshot()
    }
    fn bytes(&self) -> u64 {
        self.log.bytes()
    }
    fn keep_beside(&mut self, name: &str, bytes: &[u8]) -> Result<(), LogError> {
        self.log.keep_beside(name, bytes)
    }
    fn beside(&mut self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        self.log.beside(name)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_says_why_it_is_bad_until_it_is_good_again() {
    let data = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&fails);
    let log = LogKind::new(move |directory| {
        Ok(Box::new(Failing { log: FileLog::open(directory)?, fails: Arc::clone(&told) }))
    });
    let running = watched(data.path(), talkative(), log).await;
    let admin = running.admin.unwrap();
    let health = async || {
        let (status, text) = call(admin, "GET", "/healthz", "").await;
        (status, serde_json::from_str::<Value>(&text).unwrap())
    };
    let mut standard = HealthClient::new(channel(&running).await);
    let mut serving = async |wanted: ServingStatus| {
        let request = || HealthCheckRequest { service: "posse.v1.Coordinator".into() };
        while standard.check(request()).await.unwrap().into_inner().status() != wanted {
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(health().await.0, 200);
    in_a_minute(serving(ServingStatus::Serving)).await;
    let agent = agent(running.address, 1).await;
    agent.settled().await;
    fails.store(true, Ordering::SeqCst);
    interact(&agent, 0);
    in_a_minute(async { while health().await.0 == 200 {} }).await;
    let (status, said) = health().await;
    assert_eq!((status, &said["healthy"]), (503, &Value::Bool(false)));
    let why = said["federations"][0]["why"].as_str().unwrap();
    assert!(why.contains("the disk"), "{why}");
    in_a_minute(serving(ServingStatus::NotServing)).await;
    fails.store(false, Ordering::SeqCst);
    in_a_minute(async { while health().await.0 != 200 {} }).await;
    in_a_minute(serving(ServingStatus::Serving)).await;
    in_a_minute(agent.settled()).await;
    assert_eq!(running.federations[0].look().await.unwrap().observations, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_describes_itself() {
    let data = tempfile::tempdir().unwrap();
    let running = watched(data.path(), talkative(), LogKind::default()).await;
    let mut client = ServerReflectionClient::new(channel(&running).await);
    let ask = |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let questions = tokio_stream::iter([
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol("posse.v1.UpFrame".into())),
    ]);
    let mut answers = client.server_reflection_info(questions).await.unwrap().into_inner();
    let mut next = async || answers.next().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(services) = next().await else { panic!("no list") };
    let names: Vec<&str> = services.service.iter().map(|service| service.name.as_str()).collect();
    for name in ["posse.v1.Coordinator", "grpc.health.v1.Health"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let MessageResponse::FileDescriptorResponse(files) = next().await else { panic!("no file") };
    assert!(!files.file_descriptor_proto.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_that_an_alert_or_the_dashboard_asks_for_is_there() {
    let data = tempfile::tempdir().unwrap();
    let running = watched(data.path(), talkative(), LogKind::default()).await;
    let agent = agent(running.address, 1).await;
    interact(&agent, 0);
    in_a_minute(agent.settled()).await;
    let listener = tokio::net::TcpListener::bind(ANYWHERE).await.unwrap();
    let sidecar = posse_net::agent::sidecar(agent, listener).unwrap();
    let mut text = call(running.admin.unwrap(), "GET", "/metrics", "").await.1;
    text += &call(sidecar.address, "GET", "/metrics", "").await.1;
    // Appear with the first of their kind, and have tests of their own.
    text += "\nposse_refused_total\nposse_round_seconds_bucket\n";
    let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    for file in ["alerts.yml", "dashboard.json"] {
        let asked = std::fs::read_to_string(deploy.join(file)).unwrap();
        let words = asked.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for name in words.filter(|word| word.starts_with("posse_")) {
            let is_there = |line: &str| {
                line.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['{', ' ']))
            };
            assert!(text.lines().any(is_there), "{file} asks for {name}:\n{text}");
        }
    }
}
