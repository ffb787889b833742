//! A listener for the small HTTP servers: so many connections and no more, and none that is held without being used.
//!
//! A connection is closed when it was not answered anything for `patience`: one that sends nothing, that sends its
//! request a byte at a time, or that stays open after its last answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tracing::warn;

/// Something that connections come to: a port, or a socket in the file system.
pub(crate) trait Accepts: Send + 'static {
    /// The connection that an accepted client speaks over.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection.
    fn accept_one(&self) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

impl Accepts for TcpListener {
    type Io = TcpStream;

    async fn accept_one(&self) -> io::Result<TcpStream> {
        let stream = self.accept().await?.0;
        // An answer is written at once. Holding back its end until the caller has confirmed its beginning saves nothing.
        // A connection that the caller has closed already fails here and is noticed by the first read.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

#[cfg(feature = "sidecar")]
impl Accepts for tokio::net::UnixListener {
    type Io = tokio::net::UnixStream;

    async fn accept_one(&self) -> io::Result<tokio::net::UnixStream> {
        Ok(self.accept().await?.0)
    }
}

/// A listener that limits how many connections are open and how long each may be unanswered.
pub(crate) struct Limited<L> {
    listener: L,
    places: Arc<Semaphore>,
    patience: Duration,
}

impl<L> Limited<L> {
    /// At most `connections` at a time; each is closed when it was not answered anything for `patience`.
    pub(crate) fn new(listener: L, connections: usize, patience: Duration) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(connections)), patience }
    }
}

impl<L: Accepts + Sync> axum::serve::Listener for Limited<L> {
    type Io = Timed<L::Io>;
    type Addr = ();

    async fn accept(&mut self) -> (Timed<L::Io>, ()) {
        loop {
            match self.listener.accept_one().await {
                Ok(stream) => {
                    // Beyond the limit, connections are closed at once.
                    if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                        let until = Instant::now() + self.patience;
                        let timer = Box::pin(tokio::time::sleep_until(until));
                        return (Timed { stream, until, timer, patience: self.patience, _place: place }, ());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    warn!(%error, "no connection can be accepted: raise the limit of open files (ulimit -n)");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection that is closed when it was not answered anything in time.
pub(crate) struct Timed<S> {
    stream: S,
    /// When it is closed, unless something is answered before.
    until: Instant,
    /// Ends at a value that `until` had: an answer moves `until` alone, because setting a timer anew takes a lock.
    timer: Pin<Box<Sleep>>,
    patience: Duration,
    _place: OwnedSemaphorePermit,
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.timer.as_mut().poll(context).is_ready() {
            let until = self.until;
            if until <= Instant::now() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the connection is idle")));
            }
            self.timer.as_mut().reset(until);
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.until = Instant::now() + self.patience;
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A connection whose patience has ended and whose caller sends nothing, with the caller's end.
    async fn overdue() -> (Timed<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (stream, caller) = tokio::io::duplex(64);
        let (until, places) = (Instant::now(), Arc::new(Semaphore::new(1)));
        let mut timer = Box::pin(tokio::time::sleep_until(until));
        timer.as_mut().await;
        let place = places.acquire_owned().await.unwrap();
        (Timed { stream, until, timer, patience: Duration::from_secs(3600), _place: place }, caller)
    }

    #[tokio::test]
    async fn an_answer_gives_a_connection_its_whole_patience_again() {
        let (mut silent, _caller) = overdue().await;
        let read = silent.read_u8().await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (mut answered, mut caller) = overdue().await;
        answered.write_u8(1).await.unwrap();
        // The timer has ended, and the connection may still be read from.
        caller.write_u8(7).await.unwrap();
        assert_eq!(answered.read_u8().await.unwrap(), 7);
        assert!(answered.timer.deadline() == answered.until, "the timer goes on to the new end");
    }

    #[tokio::test]
    async fn connections_that_are_not_used_are_closed_and_their_places_free_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limited = Limited::new(listener, 1, Duration::from_millis(50));
        let site = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(async move { axum::serve(limited, site).await });
        // Nothing, and half a question.
        for beginning in ["", "GET / HT"] {
            let mut slow = TcpStream::connect(address).await.unwrap();
            slow.write_all(beginning.as_bytes()).await.unwrap();
            let mut nothing = String::new();
            // It ends with an error or with nothing, but it ends.
            let _ = slow.read_to_string(&mut nothing).await;
            assert_eq!(nothing, "");
        }
        loop {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let asked = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
            let mut answer = String::new();
            if asked.is_ok() && stream.read_to_string(&mut answer).await.is_ok() && !answer.is_empty() {
                assert!(answer.ends_with("here"), "{answer}");
                break;
            }
        }
    }
}
