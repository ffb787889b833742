//! Metrics, health and the administration of agents, over HTTP.
//!
//! `/metrics`, `/healthz` and `/ready` are open to every client that reaches the port. Everything under `/v1` asks for
//! the token in `DATA/admin.json`, which the coordinator draws at each start and only its owner may read.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path as InPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use posse_core::AgentId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use super::tokens::secret;
use crate::federation::{FederationHandle, Reason, Refusal};
use crate::log::{LogError, replace_private};
use crate::metrics::Metrics;

/// How to reach the administration of a running coordinator, as it is kept in `DATA/admin.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AdminAccess {
    /// Where it listens, over plain HTTP.
    pub address: SocketAddr,
    /// What to show it: `authorization: Bearer TOKEN`.
    pub token: String,
}

impl AdminAccess {
    /// The file in a coordinator's data directory.
    #[must_use]
    pub fn file(data: &Path) -> PathBuf {
        data.join("admin.json")
    }

    /// A new token for this start of the coordinator, written where the operator's commands find it.
    pub(super) fn publish(address: SocketAddr, data: &Path) -> Result<Self, LogError> {
        let access = Self { address, token: secret() };
        let text = serde_json::to_string_pretty(&access).expect("it has string keys");
        replace_private(&Self::file(data), text.as_bytes())?;
        Ok(access)
    }
}

#[derive(Clone)]
struct AdminState {
    federations: Vec<FederationHandle>,
    metrics: Metrics,
    token: Arc<str>,
}

/// The site on the admin port.
pub(super) fn site(federations: Vec<FederationHandle>, metrics: Metrics, access: &AdminAccess) -> Router {
    let watched = AdminState { federations, metrics, token: access.token.as_str().into() };
    let guarded = Router::new()
        .route("/v1/federations/{federation}/agents", get(agents))
        .route("/v1/federations/{federation}/agents/{agent}", get(agent))
        .route("/v1/federations/{federation}/agents/{agent}/{action}", post(act))
        .layer(from_fn_with_state(watched.clone(), authenticate));
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/healthz", get(health))
        .route("/ready", get(ready))
        .merge(guarded)
        .with_state(watched)
}

async fn authenticate(State(watched): State<AdminState>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if bool::from(shown.as_bytes().ct_eq(watched.token.as_bytes())) {
        return next.run(request).await;
    }
    let why = "the token in admin.json of the data directory is needed: `authorization: Bearer …`";
    refuse(StatusCode::UNAUTHORIZED, why)
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

async fn metrics_page(State(watched): State<AdminState>) -> Response {
    for federation in &watched.federations {
        if let Some((staleness, observations)) = federation.measure().await {
            let name = &federation.config().name;
            watched.metrics.measured(name, staleness, observations);
            watched.metrics.each_agent(name, &federation.agents().await);
        }
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], watched.metrics.text()).into_response()
}

/// Healthy if every federation can keep what it is sent; says why if one cannot.
async fn health(State(watched): State<AdminState>) -> Response {
    let mut healthy = true;
    let mut federations = Vec::new();
    for federation in &watched.federations {
        let standing = federation.standing();
        healthy &= standing.trouble.is_none();
        federations.push(json!({
            "name": federation.config().name,
            "healthy": standing.trouble.is_none(),
            "leads": standing.leads,
            "why": standing.trouble,
            "parent": standing.parent,
            "connected": standing.connected,
            "away": standing.away,
            "quarantined": standing.quarantined.iter().map(|agent| agent.0).collect::<Vec<_>>(),
        }));
    }
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "healthy": healthy, "federations": federations }))).into_response()
}

/// Ready if this coordinator leads every federation: load balancers send agents to the one that does.
async fn ready(State(watched): State<AdminState>) -> Response {
    let standings = watched.federations.iter().map(|federation| (federation.config(), federation.standing()));
    let missing: Vec<&str> = standings
        .filter(|(_, standing)| standing.trouble.is_some() || !standing.leads)
        .map(|(config, _)| config.name.as_str())
        .collect();
    let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": missing.is_empty(), "not_led_here": missing }))).into_response()
}

impl AdminState {
    fn federation(&self, name: &str) -> Result<&FederationHandle, Box<Response>> {
        let found = self.federations.iter().find(|federation| federation.config().name == name);
        found.ok_or_else(|| {
            Box::new(refuse(StatusCode::NOT_FOUND, &format!("there is no federation \"{name}\" here")))
        })
    }
}

async fn agents(State(watched): State<AdminState>, InPath(name): InPath<String>) -> Response {
    match watched.federation(&name) {
        Ok(federation) if !federation.standing().leads => elsewhere(),
        Ok(federation) => Json(federation.agents().await).into_response(),
        Err(refused) => *refused,
    }
}

async fn agent(State(watched): State<AdminState>, InPath((name, agent)): InPath<(String, u64)>) -> Response {
    let federation = match watched.federation(&name) {
        Ok(federation) if !federation.standing().leads => return elsewhere(),
        Ok(federation) => federation,
        Err(refused) => return *refused,
    };
    match federation.agents().await.into_iter().find(|known| known.agent == agent) {
        Some(known) => Json(known).into_response(),
        None => unknown(agent),
    }
}

/// What a coordinator says of agents that it does not know because another one leads, or because its log cannot be used.
fn elsewhere() -> Response {
    let why = "this coordinator does not lead the federation now: /healthz says why, `posse storage status` who does";
    refuse(StatusCode::SERVICE_UNAVAILABLE, why)
}

fn unknown(agent: u64) -> Response {
    refuse(StatusCode::NOT_FOUND, &format!("nothing is known of agent {agent}"))
}

async fn act(
    State(watched): State<AdminState>,
    InPath((name, agent, action)): InPath<(String, u64, String)>,
) -> Response {
    let federation = match watched.federation(&name) {
        Ok(federation) => federation,
        Err(refused) => return *refused,
    };
    let whom = AgentId(agent);
    let plain = || json!({ "agent": agent, "done": action });
    let done: Result<Option<Value>, Refusal> = match action.as_str() {
        "evict" => federation.evict(whom).await.map(|done| done.then(plain)),
        "pardon" => federation.pardon(whom).await.map(|done| done.then(plain)),
        "retract" => federation.retract(whom).await.map(|done| {
            done.map(|retraction| json!({ "agent": agent, "done": action, "retraction": retraction }))
        }),
        _ => {
            return refuse(StatusCode::NOT_FOUND, &format!("\"{action}\" is not evict, pardon or retract"));
        }
    };
    match done {
        Ok(Some(done)) => Json(done).into_response(),
        Ok(None) => unknown(agent),
        Err(Refusal { reason: Reason::Unavailable | Reason::Standby, message, .. }) => {
            refuse(StatusCode::SERVICE_UNAVAILABLE, &message)
        }
        Err(refusal) => refuse(StatusCode::CONFLICT, &refusal.message),
    }
}
