//! What has no business here is refused with the right status, is counted, and changes nothing.

use std::time::Duration;

use posse_core::session::UpFrame;
use posse_core::wire::v1;
use posse_core::{AgentId, Epoch, Evidence, EvidenceUpload, Incarnation, Parcel, TimeSpan, Uplink, Version};
use posse_net::coordinator::{Authentication, Limits, Options, Running, ServeConfig, Tokens, serve};
use posse_net::federation::FederationConfig;
use posse_net::v1::JoinRequest;
use posse_net::v1::coordinator_client::CoordinatorClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::support::{DIMENSION, in_a_minute, look, talkative};

struct Guarded {
    running: Running,
    tokens: Tokens,
    data: tempfile::TempDir,
}

/// A coordinator of two federations that asks for tokens.
async fn guarded(federation: FederationConfig) -> Guarded {
    let data = tempfile::tempdir().unwrap();
    let other = FederationConfig { name: "other".into(), ..federation.clone() };
    let config = ServeConfig {
        authentication: Authentication::Token,
        limits: Limits { frames_per_second: 50, ..Limits::default() },
        ..ServeConfig::on_loopback(data.path(), vec![federation, other])
    };
    let tokens = Tokens::open(&config.token_file()).unwrap();
    // There must be a file before the coordinator looks.
    tokens.create(AgentId(99), vec!["other".into()]).unwrap();
    let running = serve(config, Options::default()).await.unwrap();
    Guarded { running, tokens, data }
}

async fn client(running: &Running) -> CoordinatorClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    CoordinatorClient::new(endpoint.connect().await.unwrap())
}

fn request<T>(message: T, token: Option<&str>, federation: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("posse-federation", federation.parse().unwrap());
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

fn hello() -> UpFrame {
    UpFrame {
        epoch: Epoch(0),
        incarnation: Incarnation(1),
        acknowledged: 0,
        sequence: 0,
        message: None,
        greeting: 1,
    }
}

fn upload(sequence: u64, evidence: Evidence) -> UpFrame {
    let upload = EvidenceUpload {
        number: sequence,
        based_on: Version(0),
        information: 1.0,
        evidence: Parcel::Dense(evidence),
    };
    UpFrame { sequence, message: Some(Uplink::Evidence(upload)), greeting: 0, ..hello() }
}

fn evidence(dimension: usize, reward: f64) -> Evidence {
    let mut evidence = Evidence::none(dimension);
    let features: Vec<f64> = (0..dimension).map(|index| 0.1 * index as f64).collect();
    evidence.observe(&features, reward).unwrap();
    evidence
}

/// How often a reason was counted; how often anything was, if it is empty.
fn counted(running: &Running, reason: &str) -> u64 {
    let label = format!("reason=\"{reason}");
    let text = running.metrics.text();
    let lines = text.lines().filter(|line| line.starts_with("posse_refused_total") && line.contains(&label));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

async fn exchange(
    client: &mut CoordinatorClient<Channel>,
    token: &str,
    frame: v1::UpFrame,
) -> Result<Vec<v1::DownFrame>, Status> {
    Ok(client.exchange(request(frame, Some(token), "test")).await?.into_inner().frames)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_valid_token_of_the_federation_opens_the_door() {
    let guarded = guarded(talkative()).await;
    let mut client = client(&guarded.running).await;
    let join = || JoinRequest { protocol: 1, ..JoinRequest::default() };
    let (elsewhere, _) = guarded.tokens.create(AgentId(8), vec!["other".into()]).unwrap();
    let (good, info) = guarded.tokens.create(AgentId(7), vec!["test".into()]).unwrap();
    let wrong = format!("{}x", &good[..good.len() - 1]);
    // The coordinator looks at the file once a second; wait until it knows the token.
    loop {
        match client.join(request(join(), Some(&good), "test")).await {
            Ok(reply) => {
                assert_eq!(reply.into_inner().agent, 7);
                break;
            }
            Err(_) => tokio::task::yield_now().await,
        }
    }
    let before = look(&guarded.running).await;
    let (unauthenticated, forbidden) =
        (counted(&guarded.running, "unauthenticated"), counted(&guarded.running, "forbidden"));
    let mut code = async |token: Option<&str>, federation| {
        client.join(request(join(), token, federation)).await.unwrap_err().code()
    };
    assert_eq!(code(None, "test").await, Code::Unauthenticated);
    assert_eq!(code(Some(&wrong), "test").await, Code::Unauthenticated);
    assert_eq!(code(Some("posse_x_y"), "test").await, Code::Unauthenticated);
    assert_eq!(code(Some(&elsewhere), "test").await, Code::PermissionDenied);
    assert_eq!(code(Some(&good), "nowhere").await, Code::PermissionDenied);
    assert_eq!(counted(&guarded.running, "unauthenticated"), unauthenticated + 3);
    assert_eq!(counted(&guarded.running, "forbidden"), forbidden + 2);
    guarded.tokens.revoke(&info.id).unwrap();
    let refused = loop {
        match client.join(request(join(), Some(&good), "test")).await {
            Err(status) if status.code() == Code::Unauthenticated => break status,
            // Asking as fast as this is refused too.
            _ => tokio::task::yield_now().await,
        }
    };
    assert_eq!(refused.message(), "this token was revoked");
    // The call that ended the loop.
    assert_eq!(counted(&guarded.running, "unauthenticated"), unauthenticated + 3 + 1);
    assert_eq!(look(&guarded.running).await, before);
}

/// A coordinator that believes its agents, to test what comes after the door.
async fn open(federation: FederationConfig) -> Guarded {
    open_with(federation, Limits { frames_per_second: 50, ..Limits::default() }).await
}

async fn open_with(federation: FederationConfig, limits: Limits) -> Guarded {
    let data = tempfile::tempdir().unwrap();
    let config = ServeConfig { limits, ..ServeConfig::on_loopback(data.path(), vec![federation]) };
    let tokens = Tokens::open(&config.token_file()).unwrap();
    let running = serve(config, Options::default()).await.unwrap();
    Guarded { running, tokens, data }
}

async fn say(
    client: &mut CoordinatorClient<Channel>,
    frame: v1::UpFrame,
) -> Result<Vec<v1::DownFrame>, Status> {
    let mut request = Request::new(frame);
    request.metadata_mut().insert("posse-agent", "4".parse().unwrap());
    Ok(client.exchange(request).await?.into_inner().frames)
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_messages_are_refused_counted_and_change_nothing() {
    let bounded = FederationConfig {
        feature_bound: Some(1.0),
        reward_bound: Some(1.0),
        quarantine_after: 1000,
        ..talkative()
    };
    let open = open(bounded).await;
    let mut client = client(&open.running).await;
    say(&mut client, hello().to_wire()).await.unwrap();
    say(&mut client, upload(1, evidence(DIMENSION, 0.5)).to_wire()).await.unwrap();
    let before = look(&open.running).await;
    assert_eq!(before.observations, 1);
    let packed = |entries: Vec<f64>, moment: Vec<f64>, count| {
        let mut frame = upload(2, evidence(DIMENSION, 0.5)).to_wire();
        let Some(v1::uplink::Kind::Evidence(upload)) = frame.message.as_mut().and_then(|m| m.kind.as_mut())
        else {
            unreachable!("it is evidence")
        };
        let matrix = Some(v1::evidence::Matrix::Packed(v1::Packed { entries }));
        upload.evidence = Some(v1::Evidence { count, moment, matrix, ..v1::Evidence::default() });
        frame
    };
    let size = DIMENSION * (DIMENSION + 1) / 2;
    let mut negative = vec![0.0; size];
    negative[0] = -1.0;
    let mut indefinite = vec![0.0; size];
    indefinite[1] = 1.0;
    let mut long = vec![0.0; size];
    long[0] = 100.0;
    let mut diagonal = vec![0.0; size];
    diagonal[0] = 0.5;
    let mut large_reward = vec![0.0; DIMENSION];
    large_reward[0] = 50.0;
    let none = vec![0.0; DIMENSION];
    let cases = [
        ("dimension", upload(2, evidence(DIMENSION + 1, 0.5)).to_wire(), Code::InvalidArgument),
        ("impossible", packed(vec![0.0; 3], none.clone(), 1), Code::InvalidArgument),
        ("impossible", packed(vec![f64::NAN; size], none.clone(), 1), Code::InvalidArgument),
        ("impossible", packed(negative, none.clone(), 1), Code::InvalidArgument),
        ("impossible", packed(indefinite, none.clone(), 1), Code::InvalidArgument),
        ("impossible", packed(diagonal.clone(), none.clone(), 0), Code::InvalidArgument),
        ("impossible", packed(long, none.clone(), 1), Code::InvalidArgument),
        ("impossible", packed(diagonal, large_reward, 1), Code::InvalidArgument),
        ("sequence", upload(3, evidence(DIMENSION, 0.5)).to_wire(), Code::FailedPrecondition),
        ("sequence", UpFrame { epoch: Epoch(5), ..hello() }.to_wire(), Code::FailedPrecondition),
        (
            "unexpected",
            UpFrame { sequence: 2, message: Some(Uplink::RoundRequest { observations: 0 }), ..hello() }
                .to_wire(),
            Code::InvalidArgument,
        ),
        ("malformed", v1::UpFrame { sequence: 2, ..hello().to_wire() }, Code::InvalidArgument),
        ("too-large", packed(vec![0.0; 2000], vec![0.0; 62], 1), Code::ResourceExhausted),
    ];
    for (reason, frame, code) in cases {
        let already = counted(&open.running, reason);
        let refused = say(&mut client, frame).await.expect_err(reason);
        assert_eq!(refused.code(), code, "{reason}: {refused}");
        assert_eq!(refused.metadata().get("posse-reason").unwrap(), reason);
        assert_eq!(look(&open.running).await, before, "{reason}");
        assert_eq!(counted(&open.running, reason), already + 1, "{reason}: {refused}");
    }
    // A repetition is no offence: it is acknowledged again and counts for nothing.
    let again = say(&mut client, upload(1, evidence(DIMENSION, 0.5)).to_wire()).await.unwrap();
    assert!(again.iter().all(|frame| frame.acknowledged == 1));
    assert_eq!(look(&open.running).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_refused_again_and_again_is_quarantined() {
    let open = open(FederationConfig { quarantine_after: 3, ..talkative() }).await;
    let mut client = client(&open.running).await;
    say(&mut client, hello().to_wire()).await.unwrap();
    for _ in 0..3 {
        let wrong = upload(1, evidence(DIMENSION + 1, 0.5)).to_wire();
        assert_eq!(say(&mut client, wrong).await.unwrap_err().code(), Code::InvalidArgument);
    }
    let right = upload(1, evidence(DIMENSION, 0.5)).to_wire();
    assert_eq!(say(&mut client, right).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(open.running.federations[0].standing().quarantined, [AgentId(4)]);
    assert_eq!(look(&open.running).await.observations, 0);
    assert_eq!((counted(&open.running, "dimension"), counted(&open.running, "quarantined")), (3, 1));
    let text = open.running.metrics.text();
    assert!(text.contains("posse_agents_quarantined{federation=\"test\"} 1"), "{text}");
    let known = &open.running.federations[0].agents().await[0];
    assert!(known.quarantined_for > Some(0) && known.refused["dimension"] == 3, "{known:?}");
    // An operator can hear it again at once.
    assert_eq!(open.running.federations[0].pardon(AgentId(4)).await, Ok(true));
    assert_eq!(open.running.federations[0].pardon(AgentId(4)).await, Ok(false), "it is in none any more");
    say(&mut client, upload(1, evidence(DIMENSION, 0.5)).to_wire()).await.unwrap();
    assert_eq!(look(&open.running).await.observations, 1);
    let audit = std::fs::read_to_string(open.data.path().join("federations/test/audit.jsonl")).unwrap();
    assert!(audit.contains("quarantined") && audit.contains("pardoned"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_frames_are_refused() {
    // So few that a slow machine sends more, too.
    let open = open_with(talkative(), Limits { frames_per_second: 1, ..Limits::default() }).await;
    let mut client = client(&open.running).await;
    let mut refused = None;
    for _ in 0..10_000 {
        if let Err(status) = say(&mut client, hello().to_wire()).await {
            refused = Some(status.code());
            break;
        }
    }
    assert_eq!(refused, Some(Code::ResourceExhausted));
    // Whoever is answered after it knows that it was counted.
    assert_eq!(look(&open.running).await.observations, 0);
    assert!(counted(&open.running, "rate") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_never_get_further_than_a_refusal() {
    let data = tempfile::tempdir().unwrap();
    let federation = FederationConfig { quarantine_after: u64::MAX, ..talkative() };
    let limits = Limits { frames_per_second: 1_000_000, ..Limits::default() };
    let config = ServeConfig { limits, ..ServeConfig::on_loopback(data.path(), vec![federation]) };
    let running = serve(config, Options::default()).await.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    say(&mut CoordinatorClient::new(channel.clone()), hello().to_wire()).await.unwrap();
    let mut before = look(&running).await;
    let valid = upload(1, evidence(DIMENSION, 0.5)).encode();
    let mut random = posse_core::Seed(3).stream("bytes", 0, 0);
    let mut refused = 0;
    for _ in 0..400 {
        let mut bytes = valid.clone();
        for _ in 0..=random.below(8) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        if random.uniform() < 0.5 {
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        }
        let already = counted(&running, "");
        let status = raw(channel.clone(), &bytes).await;
        let state = look(&running).await;
        if status == Code::Ok {
            // By chance the bytes may still be a frame: then it is judged like any other.
            assert!(UpFrame::decode(&bytes).is_ok(), "{bytes:?}");
        } else {
            refused += 1;
            assert_eq!(state, before, "{bytes:?}");
            let blamed = [Code::InvalidArgument, Code::FailedPrecondition, Code::ResourceExhausted];
            assert!(blamed.contains(&status), "{status}: {bytes:?}");
        }
        assert_eq!(counted(&running, "") - already, u64::from(status != Code::Ok), "{status}: {bytes:?}");
        before = state;
    }
    assert!(refused > 200, "{refused}");
    // Far longer than anything that could be right: it is not even read.
    let already = counted(&running, "too-large");
    assert_eq!(raw(channel, &vec![1; 1 << 20]).await, Code::ResourceExhausted);
    assert_eq!((counted(&running, "too-large"), look(&running).await), (already + 1, before));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_frames_end_a_link_with_the_same_status_and_are_counted() {
    let open = open(talkative()).await;
    let mut known = client(&open.running).await;
    say(&mut known, hello().to_wire()).await.unwrap();
    let before = look(&open.running).await;
    let cases = [
        (vec![0xFF; 40], Code::InvalidArgument, "malformed"),
        (vec![1; 1 << 20], Code::ResourceExhausted, "too-large"),
    ];
    for (bytes, code, reason) in cases {
        let endpoint = Endpoint::from_shared(format!("http://{}", open.running.address)).unwrap();
        let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
        grpc.ready().await.unwrap();
        let mut request = Request::new(tokio_stream::iter([hello().encode(), bytes]));
        request.metadata_mut().insert("posse-agent", "4".parse().unwrap());
        let path = "/posse.v1.Coordinator/Link".parse().unwrap();
        let mut answers = grpc.streaming(request, path, Plain).await.unwrap().into_inner();
        let ended = loop {
            match answers.message().await {
                Ok(answer) => assert!(answer.is_some(), "{reason}: it ended without a reason"),
                Err(status) => break status,
            }
        };
        assert_eq!(ended.code(), code, "{ended}");
        assert_eq!((look(&open.running).await, counted(&open.running, reason)), (before.clone(), 1));
    }
}

/// Sends bytes as an exchange; the status that came back.
async fn raw(channel: Channel, bytes: &[u8]) -> Code {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let mut request = Request::new(bytes.to_vec());
    request.metadata_mut().insert("posse-agent", "4".parse().unwrap());
    let path = "/posse.v1.Coordinator/Exchange".parse().unwrap();
    grpc.unary(request, path, Plain).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

/// Bytes as they are.
struct Plain;

impl tonic::codec::Codec for Plain {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl tonic::codec::Encoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;
    fn encode(&mut self, item: Vec<u8>, buffer: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;
    fn decode(&mut self, buffer: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; bytes::Buf::remaining(buffer)];
        bytes::Buf::copy_to_slice(buffer, &mut bytes);
        Ok(Some(bytes))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_says_nothing_is_closed() {
    let impatient = Limits { patience: TimeSpan::from_secs(1), ..Limits::default() };
    let open = open_with(talkative(), impatient).await;
    let (preface, settings) = (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], [0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // Nothing, half a greeting, a greeting, one without a question, and half a question.
    let greeted = [preface, &settings[..]].concat();
    let asking = [&greeted[..], &[0, 1, 0, 1, 4, 0, 0, 0, 1, 0x82]].concat();
    for (number, beginning) in [&b""[..], &preface[..12], preface, &greeted, &asking].iter().enumerate() {
        let mut silent = TcpStream::connect(open.running.address).await.unwrap();
        silent.write_all(beginning).await.unwrap();
        let mut buffer = Vec::new();
        // Ends when the other side hangs up; a minute is only there so that a failure ends too.
        let ended = tokio::time::timeout(Duration::from_secs(60), silent.read_to_end(&mut buffer)).await;
        assert!(ended.is_ok(), "{beginning:?}");
        // Before the greeting is complete nobody but us can have hung up.
        if number < 2 {
            assert_eq!(counted(&open.running, "silent"), number as u64 + 1);
        }
    }
    assert_eq!(look(&open.running).await.observations, 0);
    // Whoever speaks is heard; a machine that is slow may need more than one connection for it.
    in_a_minute(async { while say(&mut client(&open.running).await, hello().to_wire()).await.is_err() {} })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_too_many_is_closed_and_counted() {
    let data = tempfile::tempdir().unwrap();
    let limits = Limits { connections: 1, ..Limits::default() };
    let config = ServeConfig { limits, ..ServeConfig::on_loopback(data.path(), vec![talkative()]) };
    let running = serve(config, Options::default()).await.unwrap();
    let mut first = client(&running).await;
    say(&mut first, hello().to_wire()).await.unwrap();
    let mut second = TcpStream::connect(running.address).await.unwrap();
    let mut nothing = Vec::new();
    in_a_minute(second.read_to_end(&mut nothing)).await.unwrap();
    assert_eq!((nothing.len(), counted(&running, "crowded")), (0, 1));
    say(&mut first, hello().to_wire()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_cuts_the_link() {
    let guarded = guarded(talkative()).await;
    let (token, info) = guarded.tokens.create(AgentId(7), vec!["test".into()]).unwrap();
    let mut client = client(&guarded.running).await;
    while exchange(&mut client, &token, hello().to_wire()).await.is_err() {
        tokio::task::yield_now().await;
    }
    let (frames, outgoing) = tokio::sync::mpsc::channel(4);
    frames.send(hello().to_wire()).await.unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let mut link = client.link(request(stream, Some(&token), "test")).await.unwrap().into_inner();
    assert!(link.message().await.unwrap().is_some());
    guarded.tokens.revoke(&info.id).unwrap();
    let ended = loop {
        match link.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_nothing_of_what_it_is_sent_is_not_heard_after_its_token_is_void() {
    let guarded = guarded(talkative()).await;
    let (token, info) = guarded.tokens.create(AgentId(7), vec!["test".into()]).unwrap();
    let (other, _) = guarded.tokens.create(AgentId(6), vec!["test".into()]).unwrap();
    // A window of nothing: not a byte of any answer can be sent to it.
    let endpoint = Endpoint::from_shared(format!("http://{}", guarded.running.address)).unwrap();
    let channel = endpoint.initial_stream_window_size(0).connect().await.unwrap();
    let mut deaf = CoordinatorClient::new(channel);
    let mut client = client(&guarded.running).await;
    while exchange(&mut client, &token, hello().to_wire()).await.is_err() {
        tokio::task::yield_now().await;
    }
    let (frames, outgoing) = tokio::sync::mpsc::channel(64);
    let stream = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    // More answers than fit anywhere on their way.
    for greeting in 1..=30 {
        frames.send(v1::UpFrame { greeting, ..hello().to_wire() }).await.unwrap();
    }
    let _link = deaf.link(request(stream, Some(&token), "test")).await.unwrap();
    let federation = &guarded.running.federations[0];
    let until = async |connected: usize| {
        while federation.standing().connected != connected {
            tokio::task::yield_now().await;
        }
    };
    in_a_minute(until(1)).await;
    guarded.tokens.revoke(&info.id).unwrap();
    in_a_minute(until(0)).await;
    frames.send(upload(1, evidence(DIMENSION, 0.5)).to_wire()).await.unwrap();
    // What comes later over another connection is answered; what came before must not have counted.
    for _ in 0..50 {
        let join = JoinRequest { protocol: 1, resumes: true, ..JoinRequest::default() };
        client.join(request(join, Some(&other), "test")).await.unwrap();
        assert_eq!(look(&guarded.running).await.observations, 0);
    }
}
