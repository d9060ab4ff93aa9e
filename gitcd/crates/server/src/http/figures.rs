//! `/metrics`, in the format that the client asks for.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::response::IntoResponse;
use prometheus_client::registry::Registry;
use trishanku_service::exposition::{Format, OPEN_METRICS};

use crate::metrics::{self, Source};

/// Content type of the plain text, as etcd sends it.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

pub(super) async fn figures(
    registry: Arc<Registry>,
    State(source): State<Arc<Source>>,
    request: Request,
) -> impl IntoResponse {
    let format = Format::of(request.headers());
    let scrape = source.scrapes.begin();
    // Blocking: reads folders.
    let text = tokio::task::spawn_blocking(move || {
        let text = metrics::text(&registry);
        match format {
            Format::OpenMetrics => (OPEN_METRICS, text),
            Format::Plain => (PLAIN, metrics::plain(&text)),
        }
    });
    let (media_type, text) = text.await.unwrap_or((PLAIN, String::new()));
    drop(scrape);
    ([(header::CONTENT_TYPE, media_type)], text)
}
