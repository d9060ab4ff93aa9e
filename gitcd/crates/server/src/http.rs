//! Pages that etcd serves over plain HTTP on its client port (health, version, metrics), and gitcd's own `/status`.

pub(crate) mod access;
mod figures;
mod health;
mod vars;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get};
use gitcd_core::blocking;
use serde_json::json;

use crate::connections::{ConnectionMetrics, ConnectionStatus};
use crate::member::{CLUSTER_VERSION, ETCD_VERSION};
use crate::metrics::Source;
use crate::status::{ExternalMetrics, Status};

/// Returns the pages of a branch for its clients.
pub fn routes(source: Arc<Source>) -> Router {
    routes_with(source, page(status))
}

/// Returns the same pages without any value of a key: for listeners whose clients may not read keys.
pub fn routes_without_values(source: Arc<Source>) -> Router {
    routes_with(source, page(status_without_values))
}

fn routes_with(source: Arc<Source>, status: MethodRouter<Arc<Source>>) -> Router {
    let mut registry = source.registry();
    registry.register_collector(Box::new(ConnectionMetrics(source.network.clone())));
    registry.register_collector(Box::new(ExternalMetrics(source.status.clone())));
    let registry = Arc::new(registry);
    health::routes()
        .route("/version", page(version))
        .route("/status", status)
        .route("/debug/vars", page(vars::vars))
        .route("/metrics", any(move |state, request: Request| figures::figures(registry.clone(), state, request)))
        .with_state(source)
}

/// Routes GET to a page and refuses all other methods, even HEAD, as in etcd.
fn page<H, T>(handler: H) -> MethodRouter<Arc<Source>>
where
    H: Handler<T, Arc<Source>>,
    T: 'static,
{
    get(handler).head(not_allowed).fallback(not_allowed)
}

async fn not_allowed() -> Response {
    let mut response = access::error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
    response
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

async fn status(State(source): State<Arc<Source>>) -> Response {
    status_as(source, |status| status).await
}

async fn status_without_values(State(source): State<Arc<Source>>) -> Response {
    status_as(source, Status::without_values).await
}

async fn status_as(source: Arc<Source>, shown: fn(Status) -> Status) -> Response {
    // Reads commits.
    let collected = blocking::run("collect the status", move || {
        let mut status = source.status.status();
        let connections = ConnectionStatus::of(&source.network);
        status.branches.iter_mut().for_each(|branch| branch.connections = Some(connections));
        serde_json::to_string(&shown(status))
    });
    let failed = |error: &dyn std::fmt::Display| access::error(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
    match collected.await {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "application/json")], body + "\n").into_response(),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}
