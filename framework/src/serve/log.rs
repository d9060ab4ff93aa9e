//! `/debug/log`: the log filter of the running program.

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::get;

use crate::telemetry::Telemetry;

/// Filters are never longer.
const MOST_BYTES: usize = 4 << 10;

pub(crate) fn pages(telemetry: &Telemetry) -> Router {
    let log = get(show).put(change).layer(DefaultBodyLimit::max(MOST_BYTES));
    Router::new().route("/debug/log", log).with_state(telemetry.clone())
}

async fn show(State(telemetry): State<Telemetry>) -> String {
    format!("{}\n", telemetry.log_filter())
}

async fn change(State(telemetry): State<Telemetry>, headers: HeaderMap, filter: String) -> (StatusCode, String) {
    // Web pages can reach loopback, also by another name. Browsers send their origin with every PUT.
    if headers.contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, "web pages cannot change the log filter\n".to_owned());
    }
    match telemetry.set_log_filter(filter.trim()) {
        Ok(()) => {
            let filter = telemetry.log_filter();
            tracing::info!(filter, "log filter changed");
            (StatusCode::OK, format!("{filter}\n"))
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::telemetry::Settings;

    async fn put(telemetry: &Telemetry, filter: &str, origin: Option<&str>) -> (u16, String) {
        let mut request = http::Request::put("/debug/log");
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        let request = request.body(axum::body::Body::from(filter.to_owned())).unwrap();
        let answer = pages(telemetry).oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        (status, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_filter_is_taken_from_programs_and_nonsense_is_explained() {
        let (_subscriber, telemetry) = Settings::new("test").build().unwrap();
        assert_eq!(put(&telemetry, "debug\n", None).await, (200, "debug\n".to_owned()));
        let (status, text) = put(&telemetry, "tank=loud", None).await;
        assert!(status == 400 && text.contains("a filter is a level"), "{status} {text}");
        assert_eq!(put(&telemetry, "off", Some("http://127.0.0.1:6060")).await.0, 403);
        assert_eq!(put(&telemetry, &"a".repeat(MOST_BYTES + 1), None).await.0, 413);
        assert_eq!(telemetry.log_filter(), "debug");
    }
}
