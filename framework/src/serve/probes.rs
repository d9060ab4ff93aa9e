//! `/livez`, `/readyz` and `/healthz`, in the format of Kubernetes and controller-runtime.

use std::fmt::Write;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::health::Health;

/// Names of checks, and whether they pass.
type Checks = Vec<(String, bool)>;
type Look = fn(&Health) -> Checks;

pub(super) fn pages(health: &Health) -> Router {
    let mut router = Router::new();
    // `/healthz` is the older name of the liveness check.
    for (path, look) in [("/livez", alive as Look), ("/healthz", alive), ("/readyz", ready)] {
        let all = move |State(health), query| async move { all(path, look(&health), query) };
        let one = move |State(health), name| async move { one(look(&health), name) };
        router = router.route(path, get(all)).route(&format!("{path}/{{*name}}"), get(one));
    }
    router.with_state(health.clone())
}

fn ready(health: &Health) -> Checks {
    health.readiness()
}

fn alive(health: &Health) -> Checks {
    let mut checks = vec![("ping".to_owned(), true)];
    checks.extend(health.liveness().into_iter().map(|(name, good)| (format!("controller/{name}"), good)));
    checks
}

fn all(path: &str, checks: Checks, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let parameters = || query.split('&').map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")));
    let mut excluded: Vec<_> = parameters().filter(|(name, _)| *name == "exclude").map(|(_, value)| value).collect();
    let (mut text, mut passed) = (String::new(), true);
    for (name, good) in checks {
        let line = match excluded.iter().position(|excluded| *excluded == name) {
            Some(index) => {
                excluded.swap_remove(index);
                format!("[+]{name} excluded: ok")
            }
            None if good => format!("[+]{name} ok"),
            None => {
                passed = false;
                format!("[-]{name} failed: reason withheld")
            }
        };
        text.push_str(&line);
        text.push('\n');
    }
    if !excluded.is_empty() {
        let excluded: Vec<_> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let names = excluded.join(",");
        // Writing into a string does not fail.
        let _written = writeln!(text, "warn: some health checks cannot be excluded: no matches for {names}");
    }
    let what = path.trim_start_matches('/');
    match (passed, parameters().any(|(name, _)| name == "verbose")) {
        (true, false) => answer(StatusCode::OK, "ok".to_owned()),
        (true, true) => answer(StatusCode::OK, format!("{text}{what} check passed\n")),
        (false, _) => answer(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{what} check failed\n")),
    }
}

fn one(checks: Checks, Path(name): Path<String>) -> Response {
    match checks.into_iter().find(|(known, _)| *known == name) {
        Some((_, true)) => answer(StatusCode::OK, "ok".to_owned()),
        Some((name, false)) => {
            answer(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {name} is not ready\n"))
        }
        None => answer(StatusCode::NOT_FOUND, format!("unknown check {name:?}\n")),
    }
}

fn answer(status: StatusCode, text: String) -> Response {
    let heads = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, heads, text).into_response()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn get(health: &Health, uri: &str) -> (u16, String) {
        let request = http::Request::get(uri).body(axum::body::Body::empty()).unwrap();
        let answer = pages(health).oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        (status, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    fn ok() -> (u16, String) {
        (200, "ok".to_owned())
    }

    #[tokio::test]
    async fn what_is_not_ready_is_named_and_the_rest_only_if_asked_for() {
        let health = Health::default();
        let (cache, start) = (health.wait_for("cache/Tank"), health.wait_for("start"));
        start.ready();
        let not_ready = "[-]cache/Tank failed: reason withheld\n[+]start ok\nreadyz check failed\n";
        assert_eq!(get(&health, "/readyz").await, (500, not_ready.to_owned()));
        assert_eq!(get(&health, "/readyz/start").await, ok());
        assert_eq!(get(&health, "/readyz/cache/Tank").await.0, 500);
        assert_eq!(get(&health, "/readyz/pump").await.0, 404);
        assert_eq!(get(&health, "/readyz?exclude=cache/Tank").await, ok());
        let excluded = "[+]cache/Tank excluded: ok\n[+]start ok\n\
                        warn: some health checks cannot be excluded: no matches for \"pump\"\nreadyz check passed\n";
        assert_eq!(get(&health, "/readyz?verbose&exclude=cache/Tank&exclude=pump").await, (200, excluded.to_owned()));
        cache.ready();
        assert_eq!(get(&health, "/readyz").await, ok());
        let verbose = "[+]cache/Tank ok\n[+]start ok\nreadyz check passed\n";
        assert_eq!(get(&health, "/readyz?verbose=true").await, (200, verbose.to_owned()));
    }

    #[tokio::test]
    async fn who_is_stuck_is_not_alive() {
        let health = Health::default();
        assert_eq!(get(&health, "/livez?verbose").await, (200, "[+]ping ok\nlivez check passed\n".to_owned()));
        let _pulse = health.pulse("tank");
        assert_eq!((get(&health, "/healthz/controller/tank").await, get(&health, "/healthz").await), (ok(), ok()));
        health.stop_of("tank");
        assert_eq!(get(&health, "/livez/controller/tank").await.0, 500);
        let stuck = "[+]ping ok\n[-]controller/tank failed: reason withheld\nhealthz check failed\n";
        assert_eq!(get(&health, "/healthz").await, (500, stuck.to_owned()));
        assert_eq!(get(&health, "/metrics").await.0, 404);
    }
}
