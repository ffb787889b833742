//! Connections as they come in, with an eye on those that say nothing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::federation::Reason;
use crate::metrics::Metrics;

/// What must have come before a connection counts as one: the preface of HTTP/2.
const PREFACE: usize = 24;

/// All connections to a listener.
pub(super) struct Incoming {
    pub(super) listener: TcpListener,
    pub(super) places: Arc<Semaphore>,
    pub(super) patience: Duration,
    pub(super) metrics: Metrics,
}

impl Stream for Incoming {
    type Item = io::Result<Watched>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Ok((stream, _)) = ready!(self.listener.poll_accept(context)) else { continue };
            // Beyond the limit, connections are closed at once.
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                self.metrics.refused("", Reason::Crowded);
                continue;
            };
            let _ = stream.set_nodelay(true);
            let watch = Box::pin(tokio::time::sleep(self.patience));
            return Poll::Ready(Some(Ok(Watched {
                stream,
                watch,
                patience: self.patience,
                read: 0,
                metrics: self.metrics.clone(),
                _place: place,
            })));
        }
    }
}

/// A connection that is closed when it is silent: before its first words for `patience`, and later, when
/// pings are answered by whoever is alive, for three times as long.
pub(super) struct Watched {
    stream: TcpStream,
    watch: Pin<Box<Sleep>>,
    patience: Duration,
    read: usize,
    metrics: Metrics,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(done) => {
                self.read = self.read.saturating_add(buffer.filled().len() - before);
                if self.read >= PREFACE {
                    let until = Instant::now() + 3 * self.patience;
                    self.watch.as_mut().reset(until);
                }
                Poll::Ready(done)
            }
            Poll::Pending => {
                ready!(self.watch.as_mut().poll(context));
                self.metrics.refused("", Reason::Silent);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the connection is silent")))
            }
        }
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
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}
