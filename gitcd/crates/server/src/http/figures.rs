//! `/metrics`, in the format that the client asks for.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use gitcd_core::blocking;
use prometheus_client::registry::Registry;
use trishanku_service::exposition::{Format, OPEN_METRICS};

use super::access;
use crate::metrics::{self, Source};

/// Content type of the plain text, as etcd sends it.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

pub(super) async fn figures(registry: Arc<Registry>, State(source): State<Arc<Source>>, request: Request) -> Response {
    let format = Format::of(request.headers());
    let scrape = source.scrapes.begin();
    // Reads folders.
    let text = blocking::run("collect the metrics", move || {
        let text = metrics::text(&registry);
        match format {
            Format::OpenMetrics => (OPEN_METRICS, text),
            Format::Plain => (PLAIN, metrics::plain(&text)),
        }
    });
    let text = text.await;
    drop(scrape);
    match text {
        Ok((media_type, text)) => ([(header::CONTENT_TYPE, media_type)], text).into_response(),
        Err(error) => access::error(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}
