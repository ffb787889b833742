//! Calls that were refused before anybody read them: counted, and told as what they are.
//!
//! Bytes that are no message, and far too many of them, never reach the methods of the service: the
//! transport answers in its own words. A refusal of ours names its reason in the metadata; an answer that
//! blames the request and names none is the transport's.

use std::convert::Infallible;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

use crate::federation::{REASON, Reason};
use crate::metrics::Metrics;

/// A service whose unread calls are counted.
#[derive(Clone)]
pub(super) struct Counted<S> {
    pub(super) service: S,
    pub(super) federations: std::sync::Arc<[String]>,
    pub(super) metrics: Metrics,
}

impl<S: NamedService> NamedService for Counted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Counted<S>
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

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let named = request.headers().get("posse-federation").and_then(|name| name.to_str().ok());
        // Whatever name anybody makes up is not one of ours to count under.
        let federation = match (named, &*self.federations) {
            (Some(name), all) if all.iter().any(|own| own == name) => name.to_owned(),
            (None, [only]) => only.clone(),
            _ => String::new(),
        };
        let metrics = self.metrics.clone();
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            if let Some(reason) = judge(response.headers_mut()) {
                metrics.refused(&federation, reason);
            }
            Ok(response)
        })
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
