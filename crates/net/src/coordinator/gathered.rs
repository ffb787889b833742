//! Writes to a connection, gathered.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that writes after all other tasks that can go on have had their turn.
///
/// When a batch of uploads is on the disk, hundreds of calls have an answer at the same moment. Each wakes the task of its
/// connection, which the runtime runs next, and so each answer would be written alone. Here the task is put behind those of the
/// other calls, and then writes what all of them had to say at once.
#[derive(Debug)]
pub(crate) struct Gathered<S> {
    stream: S,
    /// Whether the others have had their turn since the last flush.
    has_waited: bool,
}

impl<S> Gathered<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self { stream, has_waited: false }
    }

    fn poll_others(&mut self, context: &Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_others(context));
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_others(context));
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Everything is written, and what comes next may wait for others again.
        self.has_waited = false;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn others_have_a_turn_before_the_first_write_after_each_flush() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut gathered = Gathered::new(Vec::new());
        for round in 1..=3 {
            // It asks to be called again, or nothing would be written until somebody else wakes it.
            assert!(Pin::new(&mut gathered).poll_write(&mut context, b"first").is_pending());
            assert_eq!(woken.0.load(Ordering::Relaxed), round);
            // Whatever belongs to the same flush goes out without another wait.
            let part = io::IoSlice::new(b"first, ");
            let written = Pin::new(&mut gathered).poll_write_vectored(&mut context, &[part]);
            assert!(matches!(written, Poll::Ready(Ok(7))));
            assert!(matches!(
                Pin::new(&mut gathered).poll_write(&mut context, b"next. "),
                Poll::Ready(Ok(6))
            ));
            assert!(matches!(Pin::new(&mut gathered).poll_flush(&mut context), Poll::Ready(Ok(()))));
            assert_eq!(woken.0.load(Ordering::Relaxed), round);
        }
        assert_eq!(gathered.stream, b"first, next. first, next. first, next. ");
    }
}
