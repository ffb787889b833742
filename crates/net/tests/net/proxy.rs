//! A link with a mind of its own: drops, doubles and delays frames, and cuts connections.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use posse_core::wire::v1::{DownFrame, UpFrame};
use posse_core::{Seed, Stream as Random};
use posse_net::received::Received;
use posse_net::v1::coordinator_client::CoordinatorClient;
use posse_net::v1::coordinator_server::{Coordinator, CoordinatorServer};
use posse_net::v1::{ExchangeReply, JoinReply, JoinRequest, LeaveReply, LeaveRequest};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

/// A proxy in front of a coordinator.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    seed: Seed,
    links: AtomicU64,
    /// From here on it does nothing wrong.
    healed: AtomicBool,
}

#[derive(Clone)]
struct Service(Arc<Shared>);

impl Proxy {
    pub(crate) async fn start(upstream: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream,
            seed: Seed(seed),
            links: AtomicU64::new(0),
            healed: AtomicBool::new(false),
        });
        let service = CoordinatorServer::new(Service(Arc::clone(&shared)));
        let serve =
            Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serve);
        Self { address, shared }
    }

    pub(crate) fn heal(&self) {
        self.shared.healed.store(true, Ordering::SeqCst);
    }
}

impl Shared {
    async fn client(&self) -> Result<CoordinatorClient<tonic::transport::Channel>, Status> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.upstream)).unwrap();
        let channel = endpoint.connect().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(CoordinatorClient::new(channel))
    }
}

/// What becomes of a frame.
enum Fate {
    Pass,
    Drop,
    Double,
    /// Comes after the next one.
    Wait,
    Cut,
}

fn fate(random: &mut Random, healed: bool) -> Fate {
    let draw = random.uniform();
    match draw {
        _ if healed => Fate::Pass,
        _ if draw < 0.70 => Fate::Pass,
        _ if draw < 0.80 => Fate::Drop,
        _ if draw < 0.90 => Fate::Double,
        _ if draw < 0.97 => Fate::Wait,
        _ => Fate::Cut,
    }
}

/// Moves frames from one side to the other as fate has it.
async fn pump<T: Clone + Send>(
    mut from: Streaming<T>,
    shared: Arc<Shared>,
    mut random: Random,
    put: impl AsyncFn(T) -> bool,
) {
    let mut waiting: Option<T> = None;
    while let Ok(Some(frame)) = from.message().await {
        let mut out = Vec::new();
        match fate(&mut random, shared.healed.load(Ordering::SeqCst)) {
            Fate::Pass => out.push(frame),
            Fate::Drop => {}
            Fate::Double => out.extend([frame.clone(), frame]),
            Fate::Wait => {
                out.extend(waiting.replace(frame));
                continue;
            }
            Fate::Cut => return,
        }
        out.extend(waiting.take());
        for frame in out {
            if !put(frame).await {
                return;
            }
        }
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    type LinkStream = Frames;

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinReply>, Status> {
        self.0.client().await?.join(request).await
    }

    async fn link(&self, request: Request<Streaming<Received<UpFrame>>>) -> Result<Response<Frames>, Status> {
        let mut client = self.0.client().await?;
        let number = self.0.links.fetch_add(1, Ordering::SeqCst);
        let random = |name| self.0.seed.stream(name, 0, number);
        let (metadata, _, from_agent) = request.into_parts();
        let (to_coordinator, frames) = mpsc::channel::<UpFrame>(16);
        let (to_agent, answers) = mpsc::channel::<Result<DownFrame, Status>>(16);
        let mut upstream = Request::new(ReceiverStream::new(frames));
        *upstream.metadata_mut() = metadata;
        let from_coordinator = client.link(upstream).await?.into_inner();
        let up = pump(from_agent, Arc::clone(&self.0), random("up"), async move |frame| {
            to_coordinator.send(frame.into_parts().0).await.is_ok()
        });
        let down = pump(from_coordinator, Arc::clone(&self.0), random("down"), async move |frame| {
            to_agent.send(Ok(frame.into_parts().0)).await.is_ok()
        });
        // Whichever way ends takes the other along.
        tokio::spawn(async move {
            tokio::select! {
                () = up => {}
                () = down => {}
            }
        });
        Ok(Response::new(Frames(answers)))
    }

    async fn exchange(&self, request: Request<Received<UpFrame>>) -> Result<Response<ExchangeReply>, Status> {
        let request = request.map(|frame| frame.into_parts().0);
        let answered = self.0.client().await?.exchange(request).await?;
        Ok(answered.map(|reply| ExchangeReply {
            frames: reply.frames.into_iter().map(|frame| frame.into_parts().0).collect(),
        }))
    }

    async fn leave(&self, request: Request<LeaveRequest>) -> Result<Response<LeaveReply>, Status> {
        self.0.client().await?.leave(request).await
    }
}

pub(crate) struct Frames(mpsc::Receiver<Result<DownFrame, Status>>);

impl Stream for Frames {
    type Item = Result<DownFrame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
