//! The gRPC methods: who is it, may it, and then to the owner of the federation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use posse_core::session::{DownFrame, UpFrame};
use posse_core::wire::v1;
use posse_core::{AgentId, Incarnation};
use tokio::sync::OwnedSemaphorePermit;
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Request, Response, Status, Streaming};

use super::guard::{Call, Turns};
use super::limits::{Rates, Room};
use super::tokens::Tokens;
use crate::federation::{
    Attached, Command, FederationHandle, FrameStream, Joined, LastWord, Process, Reason, Refusal, ReplyTo,
    gone, outbox,
};
use crate::metrics::Metrics;
use crate::protocol::Versions;
use crate::received::Received;
use crate::v1::coordinator_server::Coordinator;
use crate::v1::{ExchangeReply, JoinReply, JoinRequest, LeaveReply, LeaveRequest};

/// The gRPC methods that agents call.
#[derive(Clone)]
pub(super) struct Service(pub(super) Arc<ServiceState>);

pub(super) struct ServiceState {
    pub(super) federations: Vec<FederationHandle>,
    /// `None`: agents are believed who they say they are.
    pub(super) tokens: Option<Arc<Tokens>>,
    pub(super) rates: Rates,
    pub(super) turns: Turns,
    pub(super) room: Room,
    pub(super) metrics: Metrics,
    pub(super) links: AtomicU64,
}

/// An agent that has proved who it is, and the federation that it may speak in.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) agent: AgentId,
    pub(super) federation: FederationHandle,
    /// The place of the federation among all of this coordinator.
    pub(super) index: usize,
}

/// The caller of a request: the door put it there before anything of the request was read.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| Status::internal("the call did not come through the door"))
}

/// The process that makes a call, as it names itself. Agents of earlier versions do not.
fn instance<T>(request: &Request<T>) -> Option<u64> {
    request.metadata().get(crate::INSTANCE)?.to_str().ok()?.parse().ok()
}

impl ServiceState {
    /// Who makes a call with these headers, or why the call is refused.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Status> {
        let text = |key: &str| headers.get(key).and_then(|value| value.to_str().ok());
        let named = text("posse-federation");
        let found = match named {
            Some(name) => self.federations.iter().position(|own| own.config().name == name),
            None => (self.federations.len() == 1).then_some(0),
        };
        let refuse = |reason: Reason, message: String| {
            let name = found.map_or("", |index| &self.federations[index].config().name);
            self.metrics.refused(name, reason);
            Refusal::new(reason, message).into_status()
        };
        let agent = match &self.tokens {
            Some(tokens) => {
                let token = text("authorization").and_then(|text| text.strip_prefix("Bearer "));
                let Some(token) = token else {
                    let why = "a token is needed: `authorization: Bearer …`";
                    return Err(refuse(Reason::Unauthenticated, why.into()));
                };
                let grant =
                    tokens.verify(token).map_err(|why| refuse(Reason::Unauthenticated, why.into()))?;
                // An agent of other federations does not learn whether this one exists.
                let allowed = found.is_some_and(|index| {
                    let name = &self.federations[index].config().name;
                    grant.federations.iter().any(|own| own == name)
                });
                if !allowed {
                    let why = "this token is not valid for that federation";
                    return Err(refuse(Reason::Forbidden, why.into()));
                }
                grant.agent
            }
            None => {
                let claimed = text("posse-agent").and_then(|text| text.parse().ok()).map(AgentId);
                claimed.ok_or_else(|| {
                    let why = "`posse-agent` must hold the number of the agent";
                    refuse(Reason::Unauthenticated, why.into())
                })?
            }
        };
        let Some(index) = found else {
            let why = match named {
                Some(name) => format!("there is no federation \"{name}\" here"),
                None => "there are several federations: `posse-federation` must name one".into(),
            };
            return Err(refuse(Reason::UnknownFederation, why));
        };
        Ok(Caller { agent, federation: self.federations[index].clone(), index })
    }

    /// Counts a frame, a join or a leave against what the agent may send in a second.
    fn limit(&self, caller: &Caller) -> Result<(), Refusal> {
        if self.rates.allow(caller.index, caller.agent) {
            return Ok(());
        }
        Err(Refusal::new(Reason::Rate, "too many calls and frames: wait a second"))
    }

    /// Checks a frame's size, form and the agent's rate, and waits for room. A refusal is noted.
    async fn admit(
        &self,
        caller: &Caller,
        frame: Received<v1::UpFrame>,
    ) -> Result<(UpFrame, Bytes, OwnedSemaphorePermit), Refusal> {
        let admitted = self.judge(caller, frame).await;
        if let Err(Refusal { reason, .. }) = admitted {
            caller.federation.send(Command::Refused { agent: caller.agent, reason }).await;
        }
        admitted
    }

    async fn judge(
        &self,
        caller: &Caller,
        frame: Received<v1::UpFrame>,
    ) -> Result<(UpFrame, Bytes, OwnedSemaphorePermit), Refusal> {
        let length = frame.length();
        let longest = caller.federation.longest_frame();
        if length > longest {
            let why = format!("a frame of {length} bytes: this federation's have at most {longest}");
            return Err(Refusal::new(Reason::TooLarge, why));
        }
        self.limit(caller)?;
        let (frame, bytes) = frame.into_parts();
        let frame = UpFrame::from_wire(frame)?;
        let room = self.room.take(length).await;
        Ok((frame, bytes, room.ok_or_else(|| Refusal::unavailable("it is shutting down"))?))
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    type LinkStream = FrameStream;

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinReply>, Status> {
        let caller = caller(&request)?;
        let JoinRequest { protocol, oldest_protocol, resumes, instance, previous, life } =
            request.into_inner();
        let spoken = Versions::OURS.agree(Versions::of_join(protocol, oldest_protocol)).map_err(|why| {
            self.0.metrics.refused(&caller.federation.config().name, Reason::Version);
            Refusal::new(Reason::Version, why).into_status()
        })?;
        let agent = caller.agent;
        self.0.limit(&caller).map_err(Refusal::into_status)?;
        let process = Process { instance, previous, life: Incarnation(life) };
        let joined = caller.federation.ask(|reply| Command::Join { agent, resumes, process, reply }).await;
        let Joined { life, last_word, last_heard, history } =
            joined.ok_or_else(gone)?.map_err(Refusal::into_status)?;
        let config = caller.federation.config();
        let told = config.told().map_err(|error| Status::internal(error.to_string()))?;
        let mut reply = Response::new(JoinReply {
            protocol: spoken,
            agent: agent.0,
            incarnation: life.0,
            algorithm: serde_json::to_string(&told).expect("settings have string keys"),
            dimension: config.dimension,
            agents: config.agents,
            horizon: config.horizon,
            seed: config.seed,
            resend_after: config.resend_after.as_micros(),
            max_frame_bytes: config.longest_frame(),
            feature_bound: config.feature_bound,
            reward_bound: config.reward_bound,
        });
        if let Some(LastWord { sequence, checksum, .. }) = last_word {
            let word = format!("{sequence}-{checksum:08x}").parse().expect("digits and a hyphen");
            reply.metadata_mut().insert(crate::LAST_WORD, word);
        }
        if let Some((epoch, number)) = last_heard {
            let heard = format!("{}-{number}", epoch.0).parse().expect("digits and a hyphen");
            reply.metadata_mut().insert(crate::LAST_HEARD, heard);
        }
        reply.metadata_mut().insert(crate::HISTORY, history.to_string().parse().expect("digits"));
        Ok(reply)
    }

    async fn link(
        &self,
        request: Request<Streaming<Received<v1::UpFrame>>>,
    ) -> Result<Response<FrameStream>, Status> {
        let caller = caller(&request)?;
        let number = self.0.links.fetch_add(1, Ordering::Relaxed);
        let (outbox, outgoing, over) = outbox();
        let instance = instance(&request);
        let link = Attached { number, is_bound: instance.is_some(), outbox };
        if !caller.federation.send(Command::Attach { agent: caller.agent, instance, link }).await {
            return Err(gone());
        }
        let shared = Arc::clone(&self.0);
        let call = request.extensions().get::<Arc<Call>>().cloned();
        let mut incoming = request.into_inner();
        tokio::spawn(async move {
            let _call = call;
            tokio::select! {
                ended = listen(&shared, &caller, number, &mut incoming) => over.end(ended),
                () = &over => {}
            }
            // In a box for the same reason as frames.
            let detach = Command::Detach { agent: caller.agent, link: number };
            Box::pin(caller.federation.send(detach)).await;
        });
        Ok(Response::new(outgoing))
    }

    async fn exchange(
        &self,
        request: Request<Received<v1::UpFrame>>,
    ) -> Result<Response<ExchangeReply>, Status> {
        let (caller, instance) = (caller(&request)?, instance(&request));
        let (frame, bytes, permit) =
            self.0.admit(&caller, request.into_inner()).await.map_err(Refusal::into_status)?;
        let agent = caller.agent;
        let ask = |reply| {
            let (answer, frame) = (ReplyTo::Exchange(instance, reply), Box::new(frame));
            Command::Frame { agent, frame, bytes, answer, permit: Some(permit) }
        };
        let frames = caller.federation.ask(ask).await.ok_or_else(gone)?.map_err(Refusal::into_status)?;
        Ok(Response::new(ExchangeReply { frames: frames.iter().map(DownFrame::to_wire).collect() }))
    }

    async fn leave(&self, request: Request<LeaveRequest>) -> Result<Response<LeaveReply>, Status> {
        let (caller, instance) = (caller(&request)?, instance(&request));
        let agent = caller.agent;
        self.0.limit(&caller).map_err(Refusal::into_status)?;
        let left = caller.federation.ask(|reply| Command::Leave { agent, instance, reply }).await;
        left.ok_or_else(gone)?.map_err(Refusal::into_status)?;
        Ok(Response::new(LeaveReply {}))
    }
}

/// Brings an agent's frames to the owner until the agent stops or something is wrong.
async fn listen(
    shared: &ServiceState,
    caller: &Caller,
    link: u64,
    incoming: &mut Streaming<Received<v1::UpFrame>>,
) -> Result<(), Status> {
    while let Some(next) = incoming.message().await.transpose() {
        // In a box of its own: a silent agent should not occupy the room that a frame needs.
        Box::pin(bring(shared, caller, link, next)).await?;
    }
    Ok(())
}

/// Brings one frame, or what came instead of one.
async fn bring(
    shared: &ServiceState,
    caller: &Caller,
    link: u64,
    next: Result<Received<v1::UpFrame>, Status>,
) -> Result<(), Status> {
    let Caller { agent, federation, .. } = caller;
    let frame = match next {
        Ok(frame) => frame,
        Err(status) => {
            let reason = match status.code() {
                Code::InvalidArgument => Reason::Malformed,
                // What the transport says of messages that are too long to be read.
                Code::OutOfRange => Reason::TooLarge,
                _ => return Err(status),
            };
            federation.send(Command::Refused { agent: *agent, reason }).await;
            return Err(Refusal::new(reason, status.message()).into_status());
        }
    };
    let (frame, bytes, permit) = shared.admit(caller, frame).await.map_err(Refusal::into_status)?;
    let (answer, frame) = (ReplyTo::Link(link), Box::new(frame));
    let command = Command::Frame { agent: *agent, frame, bytes, answer, permit: Some(permit) };
    if federation.send(command).await { Ok(()) } else { Err(gone()) }
}
