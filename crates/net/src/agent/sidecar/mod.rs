//! An agent as a process of its own: choose and reward over HTTP and JSON.

mod decimal;
mod offer;
mod openapi;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use posse_core::{Arms, UserId};
use ring::digest::{Digest, SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::offer::Offer;
use self::openapi::openapi;
use super::{Agent, ChoiceId, ChooseError, RewardError};
use crate::http::{Accepts, Limited};

/// Bytes of the longest request.
const LONGEST: usize = 8 << 20;
/// Connections at a time, and how long one may be open without being answered anything.
const CONNECTIONS: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);

/// A sidecar that runs and listens for its application.
#[derive(Debug)]
pub struct Sidecar {
    /// The address that the sidecar listens on, with the port that the system chose if 0 was asked for.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Sidecar {
    /// Answers what was asked and stops. The agent goes on.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

/// Who may ask a sidecar.
#[derive(Clone, Debug, Default)]
pub struct SidecarAccess {
    /// A secret that requests must show, as `authorization: Bearer …`. Only `/healthz` is open without it. Default:
    /// none is asked for.
    pub token: Option<String>,
    /// Names besides `localhost` and addresses that requests over a port may name as their host. A web page on
    /// another site can make a browser send requests here under a name of its own; those are refused.
    pub hosts: Vec<String>,
}

/// Serves an agent over HTTP on `listener`, to every process that reaches it.
pub fn sidecar(agent: Agent, listener: TcpListener) -> std::io::Result<Sidecar> {
    sidecar_for(agent, listener, SidecarAccess::default())
}

/// Serves an agent over HTTP on `listener`, to those whom `access` admits.
pub fn sidecar_for(agent: Agent, listener: TcpListener, access: SidecarAccess) -> std::io::Result<Sidecar> {
    let address = listener.local_addr()?;
    let site = site(agent, Guard::new(access, true));
    let (stop, task) = run(site, listener);
    Ok(Sidecar { address, stop, task })
}

/// Serves an agent over HTTP on a socket in the file system. Who may connect is decided by the mode of the file and
/// of its directory, and by the token of `access`, if there is one.
pub fn sidecar_on_socket(agent: Agent, listener: UnixListener, access: SidecarAccess) -> UnixSidecar {
    let (stop, task) = run(site(agent, Guard::new(access, false)), listener);
    UnixSidecar { stop, task }
}

/// A sidecar on a socket in the file system.
#[derive(Debug)]
pub struct UnixSidecar {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl UnixSidecar {
    /// Answers what was asked and stops. The agent goes on, and the file of the socket stays.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

#[derive(Clone)]
struct Guard {
    /// The digest of the token that requests must show, if there is one.
    token: Option<Digest>,
    hosts: Arc<[String]>,
    checks_host: bool,
}

impl Guard {
    fn new(access: SidecarAccess, checks_host: bool) -> Self {
        let token = access.token.map(|token| digest(&SHA256, token.as_bytes()));
        Self { token, hosts: access.hosts.into(), checks_host }
    }

    /// Why a request is refused, if it is.
    fn refuse(&self, request: &Request) -> Option<Response> {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        if self.checks_host && !self.knows_host(header(header::HOST).unwrap_or_default()) {
            let why = "this name is not one of this agent's: ask localhost, or start it with --host NAME";
            return Some(refuse(StatusCode::MISDIRECTED_REQUEST, &why));
        }
        let token = self.token.as_ref().filter(|_| request.uri().path() != "/healthz")?;
        let shown = header(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        // Digests are compared, so that the time it takes says nothing about the secret.
        if shown.is_some_and(|shown| digest(&SHA256, shown.as_bytes()).as_ref() == token.as_ref()) {
            return None;
        }
        Some(refuse(StatusCode::UNAUTHORIZED, &"a token is needed: `authorization: Bearer …`"))
    }

    fn knows_host(&self, host: &str) -> bool {
        if host.parse::<SocketAddr>().is_ok() {
            return true;
        }
        let has_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let name = host.rsplit_once(':').filter(|(_, port)| has_port(port)).map_or(host, |(name, _)| name);
        name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.refuse(&request) {
        Some(refused) => refused,
        None => next.run(request).await,
    }
}

fn run<L: Accepts + Sync>(site: Router, listener: L) -> (watch::Sender<bool>, JoinHandle<()>) {
    let (stop, mut stopped) = watch::channel(false);
    let until = async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let task = tokio::spawn(async move {
        let _ = axum::serve(Limited::new(listener, CONNECTIONS, PATIENCE), site)
            .with_graceful_shutdown(until)
            .await;
    });
    (stop, task)
}

fn site(agent: Agent, allowed: Guard) -> Router {
    Router::new()
        .route("/choose", post(choose))
        .route("/reward", post(reward))
        .route("/healthz", get(health))
        .route("/new-life", post(new_life))
        .route("/privacy", get(privacy))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(|| async { Json(openapi()) }))
        .layer(DefaultBodyLimit::max(LONGEST))
        .layer(from_fn_with_state(allowed, guard))
        .with_state(agent)
}

#[derive(Serialize)]
struct ChooseReply {
    id: String,
    arm: usize,
    propensity: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RewardRequest {
    id: String,
    reward: f64,
}

fn refuse(status: StatusCode, why: &impl ToString) -> Response {
    (status, Json(json!({ "error": why.to_string() }))).into_response()
}

async fn choose(State(agent): State<Agent>, offer: Result<Offer, JsonRejection>) -> Response {
    let offer = match offer {
        Ok(offer) => offer,
        Err(error) => return refuse(error.status(), &error.body_text()),
    };
    let arms = match Arms::from_rows(agent.dimension(), &offer.arms) {
        Ok(arms) => arms,
        Err(error) => return refuse(StatusCode::UNPROCESSABLE_ENTITY, &error),
    };
    match agent.choose_after_news(UserId(offer.user), &arms, agent.wait()).await {
        Ok(chosen) => {
            let reply =
                ChooseReply { id: chosen.id.to_string(), arm: chosen.arm, propensity: chosen.propensity };
            Json(reply).into_response()
        }
        Err(error @ ChooseError::Closed) => refuse(StatusCode::SERVICE_UNAVAILABLE, &error),
        Err(error) => refuse(StatusCode::UNPROCESSABLE_ENTITY, &error),
    }
}

async fn reward(State(agent): State<Agent>, request: Result<Json<RewardRequest>, JsonRejection>) -> Response {
    let Json(request) = match request {
        Ok(request) => request,
        Err(error) => return refuse(error.status(), &error.body_text()),
    };
    let id: ChoiceId = match request.id.parse() {
        Ok(id) => id,
        Err(error) => return refuse(StatusCode::UNPROCESSABLE_ENTITY, &error),
    };
    match agent.reward(id, request.reward) {
        Ok(()) => Json(json!({})).into_response(),
        Err(error @ RewardError::Unknown(_)) => refuse(StatusCode::NOT_FOUND, &error),
        Err(error @ (RewardError::Superseded(_) | RewardError::Closed)) => {
            refuse(StatusCode::SERVICE_UNAVAILABLE, &error)
        }
        Err(error) => refuse(StatusCode::UNPROCESSABLE_ENTITY, &error),
    }
}

/// 503 if another process speaks for this agent, because a person has to decide which one should. Otherwise 200:
/// an agent that cannot reach its coordinator still chooses, and the text says why it cannot.
async fn health(State(agent): State<Agent>) -> Response {
    let status = agent.status();
    let code = if status.superseded.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let document = json!({
        "agent": agent.id().0,
        "life": status.life,
        "connected": status.connected,
        "superseded": status.superseded.is_some(),
        "why": status.superseded.or(status.trouble),
        "pending": status.pending,
        "set_aside": status.set_aside,
        "last_refusal": status.last_refusal,
    });
    (code, Json(document)).into_response()
}

/// Gives a superseded agent a new life; does nothing to any other.
async fn new_life(State(agent): State<Agent>) -> Response {
    agent.take_new_life();
    Json(json!({})).into_response()
}

/// What the accountant may publish, from released sums and public counts alone; 404 where nothing is private.
async fn privacy(State(agent): State<Agent>) -> Response {
    match agent.privacy() {
        Some(report) => Json(report.statement()).into_response(),
        None => refuse(StatusCode::NOT_FOUND, &"this federation is not private"),
    }
}

async fn metrics(State(agent): State<Agent>) -> Response {
    let status = agent.status();
    let lines = [
        ("connected", "gauge", "The coordinator answers", u64::from(status.connected)),
        ("pending", "gauge", "Choices that wait for rewards", status.pending as u64),
        ("choices", "counter", "Choices made", status.choices),
        ("rewards", "counter", "Rewards learned", status.rewards),
        (
            "superseded",
            "gauge",
            "Another process speaks for this agent",
            u64::from(status.superseded.is_some()),
        ),
        ("set_aside", "gauge", "Lives ended by a message refused for good", status.set_aside),
        ("expired", "counter", "Choices given up", status.expired),
        ("uplinks", "counter", "Messages sent, repetitions included", status.uplinks),
        ("downlinks", "counter", "Messages received", status.downlinks),
        ("frame_bytes", "counter", "Bytes of frames, both ways", status.bytes),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in lines {
        let suffix = if kind == "counter" { "_total" } else { "" };
        text.push_str(&format!(
            "# HELP posse_agent_{name} {help}.\n# TYPE posse_agent_{name} {kind}\nposse_agent_{name}{suffix} {value}\n"
        ));
    }
    let version = env!("CARGO_PKG_VERSION");
    text.push_str(&format!(
        "# HELP posse_agent_build_info Version of the program.\n# TYPE posse_agent_build_info gauge\n\
         posse_agent_build_info{{version=\"{version}\"}} 1\n# EOF\n"
    ));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
