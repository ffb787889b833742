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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tonic::transport::server::Connected;
use tracing::warn;

use crate::federation::Reason;
use crate::metrics::Metrics;

/// What must have come before a connection counts as one: the preface of HTTP/2.
const PREFACE: usize = 24;
/// How long no connection is accepted after accepting one failed, for example because there are no descriptors left.
/// Trying again at once would only keep a processor busy.
const REST: Duration = Duration::from_secs(1);

/// All connections to a listener.
pub(super) struct Incoming {
    pub(super) listener: TcpListener,
    pub(super) places: Arc<Semaphore>,
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
            let place = Arc::clone(&self.places).try_acquire_owned().ok();
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

/// How many connections there are from each address.
#[derive(Debug)]
pub(super) struct Addresses {
    most: u64,
    open: Mutex<BTreeMap<IpAddr, u64>>,
}

impl Addresses {
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// A place for one more connection from this address, if there is one.
    fn enter(self: &Arc<Self>, from: IpAddr) -> Option<AddressPlace> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(from).or_default();
        if *count >= self.most {
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
pub(super) struct Peer(Arc<Use>);

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
        self.0.proved.store(true, Ordering::Relaxed);
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        OpenCall(self.clone())
    }

    /// When the connection has been idle for too long, unless a call is open.
    fn idle_until(&self, patience: Duration) -> Option<Instant> {
        if self.0.calls.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let since = *self.0.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = if self.0.proved.load(Ordering::Relaxed) { 10 * patience } else { patience };
        Some(since + limit)
    }
}

/// A call that is open on a connection.
#[derive(Debug)]
pub(super) struct OpenCall(Peer);

impl Drop for OpenCall {
    fn drop(&mut self) {
        let Peer(used) = &self.0;
        *used.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        used.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is closed when it is silent: before its first words for `patience`, and later, when pings are
/// answered by every live peer, for three times as long; or when it is idle.
pub(super) struct Watched {
    stream: TcpStream,
    timer: Pin<Box<Sleep>>,
    patience: Duration,
    silent_until: Instant,
    read: usize,
    peer: Peer,
    metrics: Metrics,
    _place: (OwnedSemaphorePermit, AddressPlace),
}

impl Watched {
    fn new(
        stream: TcpStream,
        patience: Duration,
        metrics: Metrics,
        place: (OwnedSemaphorePermit, AddressPlace),
    ) -> Self {
        let now = Instant::now();
        let used = Use { calls: 0.into(), proved: false.into(), idle_since: Mutex::new(now) };
        let timer = Box::pin(tokio::time::sleep(patience));
        let (silent_until, peer) = (now + patience, Peer(Arc::new(used)));
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
