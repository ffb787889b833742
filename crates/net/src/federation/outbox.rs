//! Frames on their way to one agent: a short queue from the owner of a federation to the agent's link.
//!
//! There is one for every agent that is connected, and most of them are empty most of the time. A channel of
//! tokio's takes a kilobyte before anything is in it; this takes a tenth of that.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use posse_core::session::DownFrame;
use posse_core::wire::v1 as wire;
use tonic::Status;

/// Frames for one agent that may wait.
const MAX_FRAMES: usize = 8;

/// The owner's end. Dropping it ends the link, and that cannot fail, be full or be forgotten on some path.
pub(crate) struct Outbox(Arc<OutboxState>);

/// The agent's end: the stream of frames that travels to it.
pub(crate) struct FrameStream(Arc<OutboxState>);

/// A view from the side: ready when the link is over, whichever end closed it.
pub(crate) struct Over(Arc<OutboxState>);

/// What became of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// The frame waits to be read.
    Queued,
    /// The queue is full, and the frame was dropped. The session sends it again.
    Dropped,
    /// The link is over, so the frame will never be read.
    Unread,
}

#[derive(Default)]
struct OutboxState(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    frames: VecDeque<Box<DownFrame>>,
    /// How the link ended. The first who says so is right.
    ended: Option<Result<(), Status>>,
    /// The agent's end is gone.
    unread: bool,
    reader: Option<Waker>,
    watcher: Option<Waker>,
}

/// A queue for one link.
pub(crate) fn outbox() -> (Outbox, FrameStream, Over) {
    let shared = Arc::<OutboxState>::default();
    (Outbox(Arc::clone(&shared)), FrameStream(Arc::clone(&shared)), Over(shared))
}

impl OutboxState {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, how: Result<(), Status>) {
        let mut queue = self.queue();
        queue.ended.get_or_insert(how);
        let wakers = [queue.reader.take(), queue.watcher.take()];
        drop(queue);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Outbox {
    /// Puts a frame behind those that wait. If the agent's end sleeps until one comes, its waker is added to `sleepers`.
    pub(crate) fn post(&self, frame: Box<DownFrame>, sleepers: &mut Vec<Waker>) -> Posted {
        let mut queue = self.0.queue();
        if queue.unread || queue.ended.is_some() {
            return Posted::Unread;
        }
        if queue.frames.len() >= MAX_FRAMES {
            return Posted::Dropped;
        }
        queue.frames.push_back(frame);
        sleepers.extend(queue.reader.take());
        Posted::Queued
    }

    /// Ends the link and says why, after the frames that wait.
    pub(crate) fn end(self, why: Status) {
        self.0.end(Err(why));
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.0.end(Err(gone()));
    }
}

/// What is said where nothing better is known.
pub(crate) fn gone() -> Status {
    Status::unavailable("the coordinator is shutting down")
}

impl Over {
    /// Ends the link from the agent's side.
    pub(crate) fn end(&self, how: Result<(), Status>) {
        self.0.end(how);
    }
}

impl Future for &Over {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.0.queue();
        if queue.unread || queue.ended.is_some() {
            return Poll::Ready(());
        }
        queue.watcher = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Stream for FrameStream {
    type Item = Result<wire::DownFrame, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut queue = self.0.queue();
        if let Some(frame) = queue.frames.pop_front() {
            drop(queue);
            return Poll::Ready(Some(Ok(frame.to_wire())));
        }
        match &mut queue.ended {
            // The reason is told once; after it the stream is at its end.
            Some(how) => Poll::Ready(std::mem::replace(how, Ok(())).err().map(Err)),
            None => {
                queue.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for FrameStream {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.unread = true;
        queue.frames.clear();
        let watcher = queue.watcher.take();
        drop(queue);
        watcher.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use posse_core::{Epoch, Incarnation};
    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;

    fn frame(sequence: u64) -> Box<DownFrame> {
        let (epoch, incarnation) = (Epoch(0), Incarnation(1));
        Box::new(DownFrame { epoch, incarnation, acknowledged: 0, sequence, message: None, greeting: 0 })
    }

    #[tokio::test]
    async fn frames_come_in_order_and_the_reason_after_them() {
        let (outbox, mut outgoing, over) = outbox();
        let mut sleepers = Vec::new();
        assert_eq!(outbox.post(frame(1), &mut sleepers), Posted::Queued);
        assert_eq!(outbox.post(frame(2), &mut sleepers), Posted::Queued);
        outbox.end(Status::aborted("another took over"));
        // The first end gives the reason; a later one changes nothing.
        over.end(Ok(()));
        assert_eq!(outgoing.next().await.unwrap().unwrap().sequence, 1);
        assert_eq!(outgoing.next().await.unwrap().unwrap().sequence, 2);
        assert_eq!(outgoing.next().await.unwrap().unwrap_err().code(), Code::Aborted);
        assert!(outgoing.next().await.is_none());
        (&over).await;
    }

    #[tokio::test]
    async fn a_full_queue_drops_frames_and_still_ends_with_the_reason() {
        let (outbox, mut outgoing, _over) = outbox();
        let mut sleepers = Vec::new();
        for sequence in 0..MAX_FRAMES as u64 {
            assert_eq!(outbox.post(frame(sequence), &mut sleepers), Posted::Queued);
        }
        assert_eq!(outbox.post(frame(99), &mut sleepers), Posted::Dropped);
        outbox.end(Status::unauthenticated("revoked"));
        for sequence in 0..MAX_FRAMES as u64 {
            assert_eq!(outgoing.next().await.unwrap().unwrap().sequence, sequence);
        }
        assert_eq!(outgoing.next().await.unwrap().unwrap_err().code(), Code::Unauthenticated);
    }

    #[tokio::test]
    async fn dropping_either_end_is_noticed_by_the_other() {
        let (owner, mut outgoing, over) = outbox();
        drop(owner);
        (&over).await;
        assert_eq!(outgoing.next().await.unwrap().unwrap_err().code(), Code::Unavailable);

        let (owner, outgoing, over) = outbox();
        drop(outgoing);
        (&over).await;
        assert_eq!(owner.post(frame(1), &mut Vec::new()), Posted::Unread);
    }

    #[test]
    fn whoever_waits_is_woken() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(0.into()));
        let woken = || count.0.load(std::sync::atomic::Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let (outbox, mut outgoing, over) = outbox();
        assert!(Pin::new(&mut outgoing).poll_next(&mut context).is_pending());
        let mut sleepers = Vec::new();
        outbox.post(frame(1), &mut sleepers);
        outbox.post(frame(2), &mut sleepers);
        // Waking is left to the caller, who has more of them.
        assert_eq!((woken(), sleepers.len()), (0, 1));
        sleepers.into_iter().for_each(Waker::wake);
        assert_eq!(woken(), 1);
        assert!(Pin::new(&mut outgoing).poll_next(&mut context).is_ready());
        assert!(Pin::new(&mut outgoing).poll_next(&mut context).is_ready());
        assert!(Pin::new(&mut outgoing).poll_next(&mut context).is_pending());
        assert!(Pin::new(&mut &over).poll(&mut context).is_pending());
        drop(outbox);
        assert_eq!(woken(), 3);
    }
}
