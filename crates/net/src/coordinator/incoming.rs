//! Connections as they come in, with an eye on those that cost something and bring nothing.
//!
//! A connection is closed at once if there are too many, in all or from its address. It is closed later when it says
//! nothing, when no agent has proved over it in time who it is, and when no call has been open on it for long. An
//! agent that only answers pings does not keep its place.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use posse_core::AgentId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};
use tonic::transport::server::Connected;
use tracing::warn;

use crate::federation::Reason;
use crate::gathered::Gathered;
use crate::metrics::Metrics;

/// What must have come before a connection counts as one: the preface of HTTP/2.
const PREFACE: usize = 24;
/// How long no connection is accepted after accepting one failed, for example because there are no descriptors left.
/// Trying again at once would only keep a processor busy.
const REST: Duration = Duration::from_secs(1);

/// All connections to a listener.
pub(super) struct Incoming {
    pub(super) listener: TcpListener,
    pub(super) places: Arc<Places>,
    pub(super) addresses: Arc<Addresses>,
    pub(super) patience: Duration,
    pub(super) metrics: Metrics,
    /// Accepting failed: not before this has passed again.
    pub(super) rest: Option<Pin<Box<Sleep>>>,
}

impl Stream for Incoming {
    type Item = io::Result<Watched>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(rest) = &mut self.rest {
                ready!(rest.as_mut().poll(context));
                self.rest = None;
            }
            let (stream, peer) = match ready!(self.listener.poll_accept(context)) {
                Ok(accepted) => accepted,
                // The peer hung up between its knock and our opening.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    warn!(%error, "no connection can be accepted: raise the limit of open files (ulimit -n)");
                    self.metrics.refused("", Reason::Crowded);
                    self.rest = Some(Box::pin(tokio::time::sleep(REST)));
                    continue;
                }
            };
            let place = self.places.take();
            let from = place.is_some().then(|| self.addresses.enter(peer.ip())).flatten();
            let (Some(place), Some(from)) = (place, from) else {
                self.metrics.refused("", Reason::Crowded);
                continue;
            };
            let _ = stream.set_nodelay(true);
            return Poll::Ready(Some(Ok(Watched::new(
                stream,
                self.patience,
                self.metrics.clone(),
                (place, from),
            ))));
        }
    }
}

/// How many connections there are, and how many there may be.
#[derive(Debug)]
pub(super) struct Places {
    open: AtomicU64,
    most: AtomicU64,
}

impl Places {
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { open: AtomicU64::new(0), most: AtomicU64::new(most) })
    }

    /// Lets so many in from now on. Those that are in stay.
    pub(super) fn set(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// A place for one more connection, if there is one.
    fn take(self: &Arc<Self>) -> Option<Place> {
        let place = Place(Arc::clone(self));
        // Counted first and given back when the place is dropped, so that two cannot take the last one.
        let taken = self.open.fetch_add(1, Ordering::Relaxed);
        (taken < self.most.load(Ordering::Relaxed)).then_some(place)
    }
}

/// The place of a connection; free again when it is dropped.
struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many connections there are from each address.
#[derive(Debug)]
pub(super) struct Addresses {
    most: AtomicU64,
    open: Mutex<BTreeMap<IpAddr, u64>>,
}

impl Addresses {
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most: AtomicU64::new(most), open: Mutex::default() })
    }

    /// Lets so many in from each address from now on. Those that are in stay.
    pub(super) fn set(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// A place for one more connection from this address, if there is one.
    fn enter(self: &Arc<Self>, from: IpAddr) -> Option<AddressPlace> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(from).or_default();
        if *count >= self.most.load(Ordering::Relaxed) {
            return None;
        }
        *count += 1;
        drop(open);
        Some(AddressPlace { address: from, all: Arc::clone(self) })
    }
}

/// The place of a connection among those from its address; free again when it is dropped.
struct AddressPlace {
    address: IpAddr,
    all: Arc<Addresses>,
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut open = self.all.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// What a connection is used for, as seen by the calls on it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    used: Arc<Use>,
    /// The agents that the peer's certificate is for, if it names any.
    agents: Option<Arc<[u64]>>,
}

#[derive(Debug)]
struct Use {
    /// How many calls are open on the connection.
    calls: AtomicUsize,
    /// Whether an agent has proved over this connection who it is.
    proved: AtomicBool,
    /// When it was opened, or when its last call ended.
    idle_since: Mutex<Instant>,
}

impl Peer {
    /// Notes that an agent has proved who it is and begins a call. The call ends when the returned value is
    /// dropped.
    pub(super) fn begin_call(&self) -> OpenCall {
        self.used.proved.store(true, Ordering::Relaxed);
        self.used.calls.fetch_add(1, Ordering::Relaxed);
        OpenCall(Arc::clone(&self.used))
    }

    /// The same peer with a certificate for these agents.
    pub(super) fn of(self, agents: Option<Arc<[u64]>>) -> Self {
        Self { agents, ..self }
    }

    /// `Ok` if the peer's certificate lets it speak for an agent: it names that agent, or none at all.
    pub(super) fn may_speak_for(&self, agent: AgentId) -> Result<(), String> {
        let Some(agents) = self.agents.as_ref().filter(|agents| !agents.contains(&agent.0)) else {
            return Ok(());
        };
        let named: Vec<String> = agents.iter().map(u64::to_string).collect();
        Err(format!("the certificate of this connection is for agent {}, not for {agent}", named.join(", ")))
    }

    /// When the connection has been idle for too long, unless a call is open.
    fn idle_until(&self, patience: Duration) -> Option<Instant> {
        if self.used.calls.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let since = *self.used.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = if self.used.proved.load(Ordering::Relaxed) { 10 * patience } else { patience };
        Some(since + limit)
    }
}

/// A call that is open on a connection.
#[derive(Debug)]
pub(super) struct OpenCall(Arc<Use>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        let Self(used) = self;
        *used.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        used.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is closed when it is silent: before its first words for `patience`, and later, when pings are
/// answered by every live peer, for three times as long; or when it is idle.
pub(super) struct Watched {
    stream: Gathered<TcpStream>,
    timer: Pin<Box<Sleep>>,
    patience: Duration,
    silent_until: Instant,
    read: usize,
    peer: Peer,
    metrics: Metrics,
    _place: (Place, AddressPlace),
}

impl Watched {
    fn new(stream: TcpStream, patience: Duration, metrics: Metrics, place: (Place, AddressPlace)) -> Self {
        let now = Instant::now();
        let used = Use { calls: 0.into(), proved: false.into(), idle_since: Mutex::new(now) };
        let timer = Box::pin(tokio::time::sleep(patience));
        let (silent_until, peer) = (now + patience, Peer { used: Arc::new(used), agents: None });
        let stream = Gathered::new(stream);
        Self { stream, timer, patience, silent_until, read: 0, peer, metrics, _place: place }
    }

    /// Ready when the connection is to be closed.
    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            let now = Instant::now();
            let idle_until = self.peer.idle_until(self.patience);
            let due = idle_until.unwrap_or(now + self.patience).min(self.silent_until);
            if due <= now {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(done) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            self.read = self.read.saturating_add(buffer.filled().len() - before);
            if self.read >= PREFACE {
                self.silent_until = Instant::now() + 3 * self.patience;
            }
            return Poll::Ready(done);
        }
        ready!(self.poll_overdue(context));
        self.metrics.refused("", Reason::Silent);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the connection is silent")))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connected for Watched {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}
