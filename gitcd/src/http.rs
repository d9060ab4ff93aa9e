//! What etcd answers over plain HTTP on its client port: health, version, metrics; and gitcd's own `/status`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use prometheus_client::registry::Registry;
use serde_json::json;

use crate::api::{CLUSTER_VERSION, ETCD_VERSION};
use crate::metrics::{self, Source};
use crate::store::alarms::Alarm;

/// The routes, to be merged with the gRPC services.
pub fn routes(source: Arc<Source>) -> Router {
    let registry = Arc::new(source.registry());
    let mut router = Router::new()
        .route("/health", get(health))
        .route("/version", get(version))
        .route("/status", get(status))
        .route("/metrics", get(move || figures(registry.clone())));
    for (path, checks) in [("/livez", LIVE), ("/readyz", READY)] {
        router = router.route(path, checked(checks));
        for check in checks {
            router = router.route(&format!("{path}/{}", check.0), checked(std::slice::from_ref(check)));
        }
    }
    router.with_state(source)
}

/// The values of a parameter that may be given several times.
fn values<'q>(query: Option<&'q str>, name: &str) -> Vec<&'q str> {
    let parameters = query.unwrap_or_default().split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
    parameters.filter(|(given, _)| *given == name).map(|(_, value)| value).collect()
}

/// etcd's shape: `{"health":"true","reason":""}`; 503 while writes are refused or an alarm is raised that `?exclude=` does not
/// name.
async fn health(State(source): State<Arc<Source>>, RawQuery(query): RawQuery) -> Response {
    let excluded = values(query.as_deref(), "exclude");
    let alarms = source.store.alarms().list().into_iter().map(|(alarm, _)| alarm);
    let alarm = alarms.map(Alarm::name).find(|name| !excluded.contains(name)).map(|name| format!("ALARM {name}"));
    let refused = alarm.or_else(|| source.store.unavailable().map(|error| error.to_string()));
    let (status, health) = match refused {
        None => (StatusCode::OK, "true"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "false"),
    };
    let body = json!({ "health": health, "reason": refused.unwrap_or_default() });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// A check by etcd's name: what is wrong, if anything is.
type Check = (&'static str, fn(&Source) -> Option<String>);

/// Reading takes nothing that could fail.
const SERIALIZABLE_READ: Check = ("serializable_read", |_| None);

const LIVE: &[Check] = &[SERIALIZABLE_READ];

const READY: &[Check] = &[
    ("data_corruption", |source| {
        source.store.alarms().is_raised(Alarm::Corrupt).then(|| "alarm activated: CORRUPT".to_owned())
    }),
    SERIALIZABLE_READ,
    // What has to be agreed upon is agreed upon by the writer.
    ("linearizable_read", |source| source.store.unavailable().map(|error| error.to_string())),
    ("non_learner", |_| None),
];

/// Runs checks as etcd's `/livez` and `/readyz` do, with `?verbose` and `?exclude=`.
fn checked(checks: &'static [Check]) -> MethodRouter<Arc<Source>> {
    get(async move |State(source): State<Arc<Source>>, RawQuery(query): RawQuery| {
        let excluded = values(query.as_deref(), "exclude");
        let (mut report, mut failed) = (String::new(), false);
        for (name, check) in checks.iter().filter(|(name, _)| !excluded.contains(name)) {
            match check(&source) {
                None => report.extend(["[+]", name, " ok\n"]),
                Some(problem) => {
                    failed = true;
                    report.extend(["[-]", name, " failed: ", &problem, "\n"]);
                }
            }
        }
        let verbose = !values(query.as_deref(), "verbose").is_empty();
        let (status, body) = match (failed, verbose) {
            (true, _) => (StatusCode::SERVICE_UNAVAILABLE, report + "\n"),
            (false, true) => (StatusCode::OK, report + "ok\n"),
            (false, false) => (StatusCode::OK, "ok\n".to_owned()),
        };
        (status, [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], body)
    })
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
    // Reads commits.
    let told = tokio::task::spawn_blocking(move || serde_json::to_string(&source.status.status())).await;
    match told {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "application/json")], body + "\n").into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn figures(registry: Arc<Registry>) -> impl IntoResponse {
    // Looks into folders.
    let text = tokio::task::spawn_blocking(move || metrics::text(&registry)).await.unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
