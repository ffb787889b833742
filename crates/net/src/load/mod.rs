//! A load generator: many agents that do nothing but upload, or nothing at all.
//!
//! It speaks the protocol directly, without the agents' runtime, so that what is measured is the coordinator.

mod http;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use posse_core::session::UpFrame;
use posse_core::wire::v1;
use posse_core::{Epoch, Evidence, EvidenceUpload, Incarnation, Parcel, Seed, Uplink, Version};
use serde::Serialize;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::Uri;
use tonic::codegen::{BoxFuture, Service};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

pub use self::http::choose_over_http;
use crate::gathered::Gathered;
use crate::received::Received;
use crate::v1::JoinRequest;
use crate::v1::coordinator_client::CoordinatorClient;

/// A load that could not be put on the coordinator, in its words or those of the transport.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct LoadError(String);

impl From<Status> for LoadError {
    fn from(status: Status) -> Self {
        Self(status.message().to_owned())
    }
}

/// What a test with many uploading agents measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Uploaded {
    /// Agents that uploaded, each the next when the last was acknowledged.
    pub agents: usize,
    /// How many connections the agents shared.
    pub connections: usize,
    /// How long the test ran, in seconds.
    pub seconds: f64,
    /// Uploads that were acknowledged, that is: on the coordinator's disk.
    pub acknowledged: u64,
    /// Acknowledged uploads a second.
    pub per_second: f64,
    /// Milliseconds from an upload to its acknowledgement, for half of them.
    pub p50: f64,
    /// Milliseconds from an upload to its acknowledgement, for all but one in a hundred.
    pub p99: f64,
}

/// Links that are open and silent. Dropping it closes them.
#[derive(Debug)]
pub struct Idle {
    links: Vec<GreetedLink>,
}

impl Idle {
    /// Returns how many links are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns whether no link is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

/// A link that the coordinator has greeted.
#[derive(Debug)]
struct GreetedLink {
    frames: mpsc::Sender<v1::UpFrame>,
    incoming: Streaming<Received<v1::DownFrame>>,
    life: u64,
}

/// Lets `agents` agents upload evidence of `dimension` features for `duration`, over `connections`.
pub fn upload(
    url: &str,
    agents: usize,
    connections: usize,
    dimension: usize,
    duration: Duration,
) -> Pin<Box<dyn Future<Output = Result<Uploaded, LoadError>> + Send>> {
    // An object, so that it is translated with the optimisation of this crate.
    Box::pin(keep_all_uploading(url.to_owned(), agents, connections, dimension, duration))
}

async fn keep_all_uploading(
    url: String,
    agents: usize,
    connections: usize,
    dimension: usize,
    duration: Duration,
) -> Result<Uploaded, LoadError> {
    let mut channels = Vec::new();
    for _ in 0..connections {
        channels.push(connect(&url).await?);
    }
    let evidence = evidence(dimension);
    let stop = Arc::new(AtomicBool::new(false));
    let mut links = Vec::new();
    for agent in 0..agents {
        links.push(link(channels[agent % connections].clone(), agent as u64).await?);
    }
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for link in links {
        tasks.spawn(keep_uploading(link, evidence.clone(), Arc::clone(&stop)));
    }
    tokio::time::sleep(duration).await;
    stop.store(true, Ordering::Relaxed);
    let seconds = began.elapsed().as_secs_f64();
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.map_err(|error| Status::internal(error.to_string()))??);
    }
    latencies.sort_by(f64::total_cmp);
    let quantile = |share: f64| {
        let last = latencies.len().saturating_sub(1) as f64;
        latencies.get((share * last) as usize).copied().unwrap_or(f64::NAN)
    };
    let acknowledged = latencies.len() as u64;
    let per_second = acknowledged as f64 / seconds;
    Ok(Uploaded {
        agents,
        connections,
        seconds,
        acknowledged,
        per_second,
        p50: quantile(0.5),
        p99: quantile(0.99),
    })
}

/// Connects `agents` agents, each over a connection of its own, that say hello and nothing else.
pub async fn idle(url: &str, agents: usize) -> Result<Idle, LoadError> {
    let mut links = Vec::with_capacity(agents);
    for agent in 0..agents {
        links.push(link(connect(url).await?, agent as u64).await?);
    }
    Ok(Idle { links })
}

async fn connect(url: &str) -> Result<Channel, Status> {
    let unusable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(unusable)?;
    endpoint.connect_with_connector(Connector).await.map_err(unusable)
}

/// Opens connections that write the uploads of many agents at once.
#[derive(Clone, Copy, Debug)]
struct Connector;

impl Service<Uri> for Connector {
    type Response = TokioIo<Gathered<TcpStream>>;
    type Error = io::Error;
    type Future = BoxFuture<Self::Response, io::Error>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        Box::pin(async move {
            let authority = address.authority().ok_or(io::ErrorKind::InvalidInput)?;
            let stream = TcpStream::connect(authority.as_str()).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(Gathered::new(stream)))
        })
    }
}

async fn link(channel: Channel, agent: u64) -> Result<GreetedLink, Status> {
    let number = agent.to_string().parse().expect("digits are plain text");
    let named = |mut metadata: tonic::metadata::MetadataMap| {
        metadata.insert("posse-agent", number);
        metadata
    };
    let metadata = named(tonic::metadata::MetadataMap::new());
    let mut client = CoordinatorClient::new(channel);
    let mut join = Request::new(JoinRequest { protocol: crate::PROTOCOL, ..JoinRequest::default() });
    *join.metadata_mut() = metadata.clone();
    let life = client.join(join).await?.into_inner().incarnation;
    let (frames, outgoing) = mpsc::channel(1);
    let mut request = Request::new(ReceiverStream::new(outgoing));
    *request.metadata_mut() = metadata;
    let hello = v1::UpFrame { incarnation: life, greeting: 1, ..v1::UpFrame::default() };
    let gone = |_| Status::unavailable("the link is cut");
    frames.send(hello).await.map_err(gone)?;
    let mut incoming = client.link(request).await?.into_inner();
    incoming.message().await?;
    Ok(GreetedLink { frames, incoming, life })
}

/// Milliseconds that each upload took.
async fn keep_uploading(
    mut link: GreetedLink,
    evidence: Evidence,
    stop: Arc<AtomicBool>,
) -> Result<Vec<f64>, Status> {
    let upload = EvidenceUpload {
        number: 0,
        based_on: Version(0),
        information: 1.0,
        evidence: Parcel::Dense(evidence),
    };
    let frame = UpFrame {
        epoch: Epoch(0),
        incarnation: Incarnation(link.life),
        acknowledged: 0,
        sequence: 1,
        message: Some(Uplink::Evidence(upload)),
        greeting: 0,
    };
    let mut frame = frame.to_wire();
    let mut latencies = Vec::new();
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        frame.sequence = number;
        if let Some(v1::uplink::Kind::Evidence(upload)) =
            frame.message.as_mut().and_then(|own| own.kind.as_mut())
        {
            upload.number = number;
        }
        let sent = Instant::now();
        if link.frames.send(frame.clone()).await.is_err() {
            return Err(Status::unavailable("the link is cut"));
        }
        loop {
            let Some(answer) = link.incoming.message().await? else {
                return Err(Status::unavailable("the coordinator hung up"));
            };
            let (answer, _) = answer.into_parts();
            frame.acknowledged = frame.acknowledged.max(answer.sequence);
            if answer.acknowledged >= number {
                break;
            }
        }
        latencies.push(1000.0 * sent.elapsed().as_secs_f64());
    }
    Ok(latencies)
}

/// Twice as many observations as features, so that nothing about it is thin.
fn evidence(dimension: usize) -> Evidence {
    let mut stream = Seed(1).stream("load", 0, 0);
    let mut evidence = Evidence::none(dimension);
    for _ in 0..2 * dimension {
        let features: Vec<f64> = (0..dimension).map(|_| stream.normal() * 0.1).collect();
        evidence.observe(&features, stream.normal()).expect("small numbers can be added");
    }
    evidence
}
