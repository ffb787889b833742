//! Metrics and health over HTTP.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;

use crate::federation::FederationHandle;
use crate::metrics::Metrics;

#[derive(Clone)]
struct Watched {
    federations: Vec<FederationHandle>,
    metrics: Metrics,
}

/// `/metrics` and `/healthz`.
pub(super) fn site(federations: Vec<FederationHandle>, metrics: Metrics) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/healthz", get(health))
        .with_state(Watched { federations, metrics })
}

async fn metrics_page(State(watched): State<Watched>) -> Response {
    for federation in &watched.federations {
        if let Some((staleness, observations)) = federation.measure().await {
            watched.metrics.measured(&federation.config().name, staleness, observations);
        }
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], watched.metrics.text()).into_response()
}

/// Healthy if every federation can keep what it is sent; says why if one cannot.
async fn health(State(watched): State<Watched>) -> Response {
    let mut healthy = true;
    let mut federations = Vec::new();
    for federation in &watched.federations {
        let standing = federation.standing();
        healthy &= standing.trouble.is_none();
        federations.push(json!({
            "name": federation.config().name,
            "healthy": standing.trouble.is_none(),
            "why": standing.trouble,
            "connected": standing.connected,
            "quarantined": standing.quarantined.iter().map(|agent| agent.0).collect::<Vec<_>>(),
        }));
    }
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "healthy": healthy, "federations": federations }))).into_response()
}
