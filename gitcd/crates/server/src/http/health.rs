//! Health endpoints for probes (etcd: `api/etcdhttp/health.go`).

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use gitcd_mvcc::alarms::Alarm;
use serde_json::json;

use super::{access, page};
use crate::metrics::Source;
use crate::status::refusal;

pub(super) fn routes() -> Router<Arc<Source>> {
    let mut router = Router::new().route("/health", page(health)).route("/startupz", page(startup));
    for (path, kind, checks) in [("/livez", "livez", LIVE), ("/readyz", "readyz", READY)] {
        router = router.route(path, checked(kind, checks, true));
        for check in checks {
            let one = checked(kind, std::slice::from_ref(check), false);
            router = router.route(&format!("{path}/{}", check.0), one);
        }
    }
    router
}

/// Returns all values of a query parameter.
fn values<'q>(query: Option<&'q str>, name: &str) -> Vec<&'q str> {
    let parameters = query.unwrap_or_default().split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
    parameters.filter(|(given, _)| *given == name).map(|(_, value)| value).collect()
}

/// Answers in etcd's format, `{"health":"true","reason":""}`; 503 while writes are refused or an alarm is raised that
/// `?exclude=` does not name.
async fn health(State(source): State<Arc<Source>>, RawQuery(query): RawQuery) -> Response {
    let excluded = values(query.as_deref(), "exclude");
    let alarms = source.store.alarms().list().into_iter().map(|(alarm, _)| alarm);
    let alarm = alarms.map(Alarm::name).find(|name| !excluded.contains(name)).map(|name| format!("ALARM {name}"));
    let refused = alarm.or_else(|| refusal(&source.store).map(|error| error.to_string()));
    source.health.asked(refused.is_none());
    let (status, health) = match refused {
        None => (StatusCode::OK, "true"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "false"),
    };
    let body = json!({ "health": health, "reason": refused.unwrap_or_default() });
    // As in etcd, where Go guesses the content type: plain text, not JSON.
    (status, body.to_string()).into_response()
}

/// OK once clients can start: the server accepts writes, or is a hot standby that serves reads. etcd has no such page.
async fn startup(State(source): State<Arc<Source>>) -> Response {
    let store = &source.store;
    match refusal(store).filter(|_| !store.is_standby()) {
        None => "ok\n".into_response(),
        Some(refused) => access::error(StatusCode::SERVICE_UNAVAILABLE, format!("{refused}\n")),
    }
}

/// A check with etcd's name for it; returns the problem, if any.
type Check = (&'static str, fn(&Source) -> Option<String>);

/// Always passes: a local read cannot fail.
const SERIALIZABLE_READ: Check = ("serializable_read", |_| None);

const LIVE: &[Check] = &[SERIALIZABLE_READ];

const READY: &[Check] = &[
    ("data_corruption", |source| {
        source.store.alarms().is_raised(Alarm::Corrupt).then(|| "alarm activated: CORRUPT".to_owned())
    }),
    SERIALIZABLE_READ,
    // The writer takes the place of a Raft quorum.
    ("linearizable_read", |source| refusal(&source.store).map(|error| error.to_string())),
    ("non_learner", |_| None),
];

/// gitcd's own check of `/readyz`: whether all internal tasks run. It is shown only while it fails, so that the answer is etcd's.
const INTERNAL_TASKS: &str = "internal_tasks";

/// Runs checks as etcd's `/livez` and `/readyz` do, with `?verbose` and, if `may_exclude`, `?exclude=`.
fn checked(kind: &'static str, checks: &'static [Check], may_exclude: bool) -> MethodRouter<Arc<Source>> {
    page(async move |State(source): State<Arc<Source>>, RawQuery(query): RawQuery| {
        let excluded = if may_exclude { values(query.as_deref(), "exclude") } else { Vec::new() };
        let (mut report, mut failed) = (String::new(), false);
        for (name, check) in checks.iter().filter(|(name, _)| !excluded.contains(name)) {
            let problem = check(&source);
            source.health.checked(kind, name, problem.is_none());
            match problem {
                None => report.extend(["[+]", name, " ok\n"]),
                Some(problem) => {
                    failed = true;
                    report.extend(["[-]", name, " failed: ", &problem, "\n"]);
                }
            }
        }
        let down = if kind == "readyz" { source.status.supervisor().problem() } else { None };
        if let Some(problem) = down.filter(|_| !excluded.contains(&INTERNAL_TASKS)) {
            failed = true;
            report.extend(["[-]", INTERNAL_TASKS, " failed: ", &problem, "\n"]);
        }
        if failed {
            return access::error(StatusCode::SERVICE_UNAVAILABLE, report + "\n");
        }
        let verbose = !values(query.as_deref(), "verbose").is_empty();
        let report = if verbose { report + "ok\n" } else { "ok\n".to_owned() };
        ([(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], report).into_response()
    })
}
