//! The door of the service: who calls is asked before anything of the call is read, and what is refused is counted.
//!
//! A call without a valid token is answered from its headers alone; its body is never read. Each agent may have a few
//! calls open at a time. Bytes that are no message, and far too many of them, never reach the methods of the service:
//! the transport answers in its own words. A refusal of ours names its reason in the metadata; an answer that blames
//! the request and names none is the transport's.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use posse_core::AgentId;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

use super::incoming::{OpenCall, Peer};
use super::service::ServiceState;
use crate::REASON;
use crate::federation::{Reason, Refusal};
use crate::metrics::Metrics;

/// Calls that an agent may have open at a time: a link, the one that it replaces, and a few more that are not over yet.
const CALLS: u32 = 8;

/// A service behind the door.
#[derive(Clone)]
pub(super) struct Guarded<S> {
    pub(super) service: S,
    pub(super) shared: Arc<ServiceState>,
    pub(super) metrics: Metrics,
}

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let caller = match self.shared.caller(request.headers()) {
            Ok(caller) => caller,
            // The body goes with the request, unread.
            Err(refused) => return Box::pin(async move { Ok(refused.into_http()) }),
        };
        let federation = caller.federation.config().name.clone();
        let peer = request.extensions().get::<Peer>();
        if let Some(why) = peer.and_then(|peer| peer.may_speak_for(caller.agent).err()) {
            self.metrics.refused(&federation, Reason::Forbidden);
            let refused = Refusal::new(Reason::Forbidden, why).into_status();
            return Box::pin(async move { Ok(refused.into_http()) });
        }
        let Some(turn) = self.shared.turns.take((caller.index, caller.agent)) else {
            self.metrics.refused(&federation, Reason::Rate);
            let why = format!("more than {CALLS} calls of one agent at a time");
            let refused = Refusal::new(Reason::Rate, why).into_status();
            return Box::pin(async move { Ok(refused.into_http()) });
        };
        let call = Arc::new(Call { _open: peer.map(Peer::begin_call), _turn: turn });
        request.extensions_mut().insert(caller);
        // A link is open for longer than its first answer: the task that serves it keeps a copy.
        request.extensions_mut().insert(Arc::clone(&call));
        let metrics = self.metrics.clone();
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            drop(call);
            if let Some(reason) = judge(response.headers_mut()) {
                metrics.refused(&federation, reason);
            }
            Ok(response)
        })
    }
}

/// A call while it is open: it keeps its connection in use and takes one of its agent's turns.
#[derive(Debug)]
pub(super) struct Call {
    _open: Option<OpenCall>,
    _turn: Turn,
}

/// Calls that are open, by federation and agent.
#[derive(Debug, Default)]
pub(super) struct Turns(Arc<Mutex<BTreeMap<(usize, AgentId), u32>>>);

impl Turns {
    fn take(&self, whose: (usize, AgentId)) -> Option<Turn> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(whose).or_default();
        if *count >= CALLS {
            return None;
        }
        *count += 1;
        Some(Turn { whose, all: Arc::clone(&self.0) })
    }
}

/// One open call of an agent; the next may begin when it is dropped.
#[derive(Debug)]
struct Turn {
    whose: (usize, AgentId),
    all: Arc<Mutex<BTreeMap<(usize, AgentId), u32>>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut open = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.whose);
            }
        }
    }
}

/// Why the transport refused a call, if it did; the status becomes the one that the protocol promises.
fn judge(headers: &mut HeaderMap) -> Option<Reason> {
    if headers.contains_key(REASON) {
        return None;
    }
    let (reason, status) = match headers.get("grpc-status")?.as_bytes() {
        // INVALID_ARGUMENT from the codec; INTERNAL for bytes that are not even the frame of a message.
        b"3" | b"13" => (Reason::Malformed, "3"),
        // OUT_OF_RANGE: longer than anything that is read.
        b"11" => (Reason::TooLarge, "8"),
        _ => return None,
    };
    headers.insert("grpc-status", HeaderValue::from_static(status));
    headers.insert(REASON, HeaderValue::from_static(reason.word()));
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: &'static str) -> HeaderMap {
        HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(status))])
    }

    #[test]
    fn only_answers_of_the_transport_that_blame_the_request_are_counted() {
        let judged = |mut headers: HeaderMap| (judge(&mut headers), headers["grpc-status"].clone());
        assert_eq!(judged(answered("13")), (Some(Reason::Malformed), HeaderValue::from_static("3")));
        assert_eq!(judged(answered("11")), (Some(Reason::TooLarge), HeaderValue::from_static("8")));
        assert_eq!(judged(answered("14")), (None, HeaderValue::from_static("14")));
        let mut ours = answered("3");
        ours.insert(REASON, HeaderValue::from_static("dimension"));
        assert_eq!(judged(ours).0, None);
        assert_eq!(judge(&mut HeaderMap::new()), None);
    }
}
