//! Connections that carry many calls: what is said at the same moment travels together.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read at a time.
const READ: usize = 64 << 10;
/// Bytes that wait for a flush. If there are more, they are written before others are taken.
const WAITING: usize = 64 << 10;

// A connection has these buffers only while something is in them, because thousands of connections are silent most of the time.
thread_local! {
    /// `READ` bytes to read to, or nothing while a connection has them.
    static TO_READ: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// An empty buffer with memory, for what waits, or nothing while a connection has it.
    static TO_WRITE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A connection that writes when it is flushed, after all other tasks that can go on have had their turn, and reads as much
/// as there is.
///
/// When a batch of uploads is on the disk, hundreds of calls have an answer at the same moment. Each wakes the task of its
/// connection, which the runtime runs next, and so each answer would be written alone. Here the task is put behind those of the
/// other calls, and then writes what all of them had to say at once. HTTP/2 gives a frame of data to the connection by itself and
/// waits until it is written; here that is a copy, and the call of the system is one for all of them. Reading is likewise:
/// HTTP/2 has room for two or three uploads, and sixteen may have come.
#[derive(Debug)]
pub(crate) struct Gathered<S> {
    stream: S,
    /// What is written with the next flush, and how much of it is written already.
    waiting: Vec<u8>,
    written: usize,
    /// Whether the others have had their turn since the last flush.
    has_waited: bool,
    /// What was read and did not fit: the bytes of `ahead` from `taken` to `filled`.
    ahead: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl<S> Gathered<S> {
    pub(crate) const fn new(stream: S) -> Self {
        let (written, taken, filled) = (0, 0, 0);
        Self { stream, waiting: Vec::new(), written, has_waited: false, ahead: Vec::new(), taken, filled }
    }

    fn poll_others(&mut self, context: &Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Gives out what was read ahead, and its memory back with the last byte.
    fn take_ahead(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = &self.ahead[self.taken..self.filled];
        let taken = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..taken]);
        self.taken += taken;
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
            TO_READ.set(std::mem::take(&mut self.ahead));
        }
    }

    /// Where the next bytes to write go.
    fn waiting(&mut self) -> &mut Vec<u8> {
        if self.waiting.capacity() == 0 {
            self.waiting = TO_WRITE.take();
        }
        &mut self.waiting
    }
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    /// Writes everything that waits, and gives its memory back.
    fn poll_write_waiting(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.waiting.len() {
            let rest = &self.waiting[self.written..];
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        let mut empty = std::mem::take(&mut self.waiting);
        empty.clear();
        TO_WRITE.set(empty);
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Makes room for more if there is none.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.len() < WAITING {
            return Poll::Ready(Ok(()));
        }
        self.poll_write_waiting(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.taken < self.filled {
            self.take_ahead(buffer);
            return Poll::Ready(Ok(()));
        }
        if buffer.remaining() >= READ {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        self.ahead = TO_READ.take();
        self.ahead.resize(READ, 0);
        let Self { stream, ahead, filled, .. } = &mut *self;
        let mut place = ReadBuf::new(ahead);
        let read = Pin::new(stream).poll_read(context, &mut place);
        *filled = place.filled().len();
        self.take_ahead(buffer);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(context))?;
        self.waiting().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(context))?;
        let waiting = self.waiting();
        let before = waiting.len();
        parts.iter().for_each(|part| waiting.extend_from_slice(part));
        Poll::Ready(Ok(waiting.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.waiting.is_empty() {
            ready!(self.poll_others(context));
            ready!(self.poll_write_waiting(context))?;
        }
        // Everything is written, and what comes next may wait for others again.
        self.has_waited = false;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_waiting(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn others_have_a_turn_before_each_flush_and_what_they_say_is_written_with_it() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut gathered = Gathered::new(Vec::new());
        for round in 1..=3 {
            assert!(matches!(Pin::new(&mut gathered).poll_write(&mut context, b"first"), Poll::Ready(Ok(5))));
            // It asks to be called again, or nothing would be written until something else wakes the task.
            assert!(Pin::new(&mut gathered).poll_flush(&mut context).is_pending());
            assert_eq!(woken.0.load(Ordering::Relaxed), round);
            let parts = [io::IoSlice::new(b", "), io::IoSlice::new(b"next. ")];
            let written = Pin::new(&mut gathered).poll_write_vectored(&mut context, &parts);
            assert!(matches!(written, Poll::Ready(Ok(8))));
            assert!(gathered.stream.len() < 13 * round, "nothing is written before the flush");
            assert!(matches!(Pin::new(&mut gathered).poll_flush(&mut context), Poll::Ready(Ok(()))));
            // A flush of nothing does not wait.
            assert!(matches!(Pin::new(&mut gathered).poll_flush(&mut context), Poll::Ready(Ok(()))));
            assert_eq!(woken.0.load(Ordering::Relaxed), round);
            assert_eq!(gathered.waiting.capacity(), 0, "an idle connection holds no memory");
        }
        assert_eq!(gathered.stream, b"first, next. first, next. first, next. ");
    }

    #[tokio::test]
    async fn bytes_arrive_whole_and_in_order_however_they_are_cut() {
        let sent: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
        // A stream that takes and gives little at a time, and one that holds more than is read at once.
        for room in [100, 200_000] {
            let (ours, theirs) = tokio::io::duplex(room);
            let (mut ours, mut theirs) = (Gathered::new(ours), Gathered::new(theirs));
            let bytes = sent.clone();
            let writer = tokio::spawn(async move {
                for piece in bytes.chunks(7001) {
                    ours.write_all(piece).await.unwrap();
                    assert!(ours.waiting.len() < WAITING + 7001, "what waits is bounded");
                }
                // What was not flushed leaves with the end.
                ours.shutdown().await.unwrap();
            });
            let (mut received, mut buffer) = (Vec::new(), vec![0; 8000]);
            for turn in 0.. {
                // Sometimes there is room for everything.
                let room = if turn % 5 == 4 { READ } else { 8000 };
                buffer.resize(room, 0);
                let read = theirs.read(&mut buffer).await.unwrap();
                if read == 0 {
                    break;
                }
                received.extend_from_slice(&buffer[..read]);
            }
            writer.await.unwrap();
            assert!(received == sent, "{room}");
            assert_eq!(theirs.ahead.capacity(), 0, "an idle connection holds no memory");
        }
    }
}
