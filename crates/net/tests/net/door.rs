//! Limits before trust: what a peer costs before it has proved who it is, and what one peer can take from the others.

use std::task::Poll;

use posse_core::TimeSpan;
use posse_core::wire::v1::UpFrame;
use posse_net::coordinator::{Authentication, Limits, Options, Running, ServeConfig, serve};
use posse_net::v1::ExchangeReply;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Code, Request};

use crate::support::{agent, coordinator, in_a_minute, interact, talkative};

/// The connections that were closed for this reason.
fn closed(running: &Running, reason: &str) -> u64 {
    let label = format!("reason=\"{reason}\"");
    let text = running.metrics.text();
    let lines = text.lines().filter(|line| line.starts_with("posse_refused_total") && line.contains(&label));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_calls_is_asked_before_the_body_is_read() {
    let data = tempfile::tempdir().unwrap();
    let config = ServeConfig {
        authentication: Authentication::Token,
        ..ServeConfig::on_loopback(data.path(), vec![talkative()])
    };
    let running = serve(config, Options::default()).await.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let mut client = Grpc::new(endpoint.connect().await.unwrap());
    client.ready().await.unwrap();
    // A body without an end: an answer can only come from somebody who did not wait for it.
    let (_endless, frames) = tokio::sync::mpsc::channel::<UpFrame>(1);
    let body = Request::new(tokio_stream::wrappers::ReceiverStream::new(frames));
    let codec = tonic_prost::ProstCodec::<UpFrame, ExchangeReply>::default();
    let path = "/posse.v1.Coordinator/Exchange".parse().unwrap();
    let refused = in_a_minute(client.client_streaming(body, path, codec)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert_eq!(closed(&running, "unauthenticated"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_agent_has_a_few_calls_open_at_a_time_and_others_have_theirs() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    // Calls whose bodies have no end, because nobody drops the senders.
    let (mut senders, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let (sender, frames) = tokio::sync::mpsc::channel::<UpFrame>(1);
        senders.push(sender);
        let mut client = Grpc::new(channel.clone());
        calls.push(Box::pin(async move {
            client.ready().await.unwrap();
            let mut body = Request::new(tokio_stream::wrappers::ReceiverStream::new(frames));
            body.metadata_mut().insert("posse-agent", "1".parse().unwrap());
            let codec = tonic_prost::ProstCodec::<UpFrame, ExchangeReply>::default();
            let path = "/posse.v1.Coordinator/Exchange".parse().unwrap();
            client.client_streaming(body, path, codec).await.map(drop)
        }));
    }
    // Eight are open when the ninth comes, whichever that is.
    let first_answer = std::future::poll_fn(|context| {
        let mut answers = calls.iter_mut().map(|call| call.as_mut().poll(context));
        answers.find(Poll::is_ready).unwrap_or(Poll::Pending)
    });
    let refused = in_a_minute(first_answer).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("calls of one agent"), "{refused}");
    in_a_minute(agent(running.address, 2).await.settled()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_only_answers_pings_does_not_keep_its_place() {
    let data = tempfile::tempdir().unwrap();
    let limits = Limits { patience: TimeSpan::from_secs(1), ..Limits::default() };
    let config = ServeConfig { limits, ..ServeConfig::on_loopback(data.path(), vec![talkative()]) };
    let running = serve(config, Options::default()).await.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let _idle = endpoint.connect().await.unwrap();
    // An agent with a link stays, however silent it is.
    let silent = agent(running.address, 1).await;
    in_a_minute(silent.settled()).await;
    in_a_minute(async {
        while closed(&running, "silent") == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    in_a_minute(silent.settled()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_all_places() {
    let data = tempfile::tempdir().unwrap();
    let limits = Limits { connections_per_address: 2, ..Limits::default() };
    let config = ServeConfig { limits, ..ServeConfig::on_loopback(data.path(), vec![talkative()]) };
    let running = serve(config, Options::default()).await.unwrap();
    let agents = [agent(running.address, 1).await, agent(running.address, 2).await];
    for agent in &agents {
        in_a_minute(agent.settled()).await;
    }
    let mut third = TcpStream::connect(running.address).await.unwrap();
    let mut nothing = Vec::new();
    in_a_minute(third.read_to_end(&mut nothing)).await.unwrap();
    assert_eq!((nothing.len(), closed(&running, "crowded")), (0, 1));
    // A place is free again when its connection is.
    let [first, _second] = agents;
    first.close().await.unwrap();
    in_a_minute(async {
        loop {
            let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
            if endpoint.connect().await.is_ok() {
                break;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_while_the_coordinator_runs() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let first = agent(running.address, 1).await;
    in_a_minute(first.settled()).await;
    let limits = Limits { connections: 1, streams_per_connection: 7, ..Limits::default() };
    assert_eq!(running.set_limits(&limits), Ok(vec!["streams_per_connection"]));
    let mut second = TcpStream::connect(running.address).await.unwrap();
    let mut nothing = Vec::new();
    in_a_minute(second.read_to_end(&mut nothing)).await.unwrap();
    assert_eq!((nothing.len(), closed(&running, "crowded")), (0, 1));
    assert!(running.set_limits(&Limits { connections: 0, ..Limits::default() }).is_err());
    assert_eq!(running.set_limits(&Limits::default()), Ok(Vec::new()));
    in_a_minute(agent(running.address, 2).await.settled()).await;

    // A frame that waits for room goes on when there is less of it, and when there is more.
    assert_eq!(running.set_limits(&Limits { waiting_megabytes: 1, ..Limits::default() }), Ok(Vec::new()));
    assert_eq!(running.set_limits(&Limits { waiting_megabytes: 512, ..Limits::default() }), Ok(Vec::new()));
    for step in 0..20 {
        interact(&first, step);
        in_a_minute(first.settled()).await;
    }
    let slow = Limits { frames_per_second: 1, ..Limits::default() };
    assert_eq!(running.set_limits(&slow), Ok(Vec::new()));
    in_a_minute(async {
        let mut step = 100;
        while closed(&running, "rate") == 0 {
            interact(&first, step);
            step += 1;
            tokio::task::yield_now().await;
        }
    })
    .await;
}
