//! `/metrics`, in the preferred format.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use axum::routing::get;
use trishanku_service::exposition::Format;

use crate::metrics::{CONTENT_TYPE, Metrics, PLAIN_CONTENT_TYPE};

pub(super) fn pages(metrics: &Metrics) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(metrics.clone())
}

async fn scrape(State(metrics): State<Metrics>, headers: HeaderMap) -> impl IntoResponse {
    let (kind, text) = match Format::of(&headers) {
        Format::Plain => (PLAIN_CONTENT_TYPE, metrics.plain()),
        Format::OpenMetrics => (CONTENT_TYPE, metrics.text()),
    };
    ([(header::CONTENT_TYPE, kind)], text)
}
