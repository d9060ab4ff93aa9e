//! What etcd answers over plain HTTP on its client port: health, version, metrics.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::api::{CLUSTER_VERSION, ETCD_VERSION};
use crate::metrics::{self, Source};

/// The routes, to be merged with the gRPC services.
pub fn routes(source: Arc<Source>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/readyz", get(ready))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/version", get(version))
        .route("/metrics", get(figures))
        .with_state(source)
}

/// etcd's shape: `{"health":"true","reason":""}`; 503 while writes are refused.
async fn health(State(source): State<Arc<Source>>) -> Response {
    let refused = source.store.refused().map(|error| error.to_string());
    let body = json!({ "health": if refused.is_none() { "true" } else { "false" }, "reason": refused.clone().unwrap_or_default() });
    let status = if refused.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

async fn ready(State(source): State<Arc<Source>>) -> Response {
    match source.store.refused().map(|error| error.to_string()) {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("writes are refused: {reason}\n")).into_response(),
    }
}

async fn version() -> impl IntoResponse {
    let body = json!({
        "etcdserver": ETCD_VERSION,
        "etcdcluster": CLUSTER_VERSION,
        "storage": CLUSTER_VERSION,
        "gitcd": env!("CARGO_PKG_VERSION"),
    });
    ([(header::CONTENT_TYPE, "application/json")], body.to_string())
}

async fn figures(State(source): State<Arc<Source>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::text(&source))
}
