//! `/metrics`, in the format that the client asks for.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use prometheus_client::registry::Registry;

use crate::metrics::{self, Source};

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Plain,
    OpenMetrics,
}

impl Format {
    fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the preferred format of `Accept`, as Prometheus' own handler does: unknown media types are skipped.
    fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut ranges: Vec<_> = accepted.flat_map(|value| value.split(',')).map(range).collect();
        // Stable: the first of equals wins.
        ranges.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        ranges.into_iter().find_map(|(_, format)| format).unwrap_or(Self::Plain)
    }
}

/// Returns the quality of a media range, and its format.
fn range(text: &str) -> (f64, Option<Format>) {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
    let parameter = |name: &str| {
        let found = parameters.iter().find(|(given, _)| given.trim().eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value.trim().trim_matches('"'))
    };
    let format = match (&*kind, parameter("version")) {
        ("application/openmetrics-text", "1.0.0" | "0.0.1" | "") => Some(Format::OpenMetrics),
        ("text/plain", "0.0.4" | "") => Some(Format::Plain),
        _ => None,
    };
    (parameter("q").parse().unwrap_or(1.0), format)
}

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
        if format == Format::OpenMetrics { text } else { metrics::plain(&text) }
    });
    let text = text.await.unwrap_or_default();
    drop(scrape);
    ([(header::CONTENT_TYPE, format.media_type())], text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn of(accept: &'static str) -> Format {
        Format::of(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
    }

    #[test]
    fn figures_are_plain_text_unless_openmetrics_is_preferred() {
        assert_eq!(Format::of(&HeaderMap::new()), Format::Plain);
        // As sent by Prometheus 2 and 3.
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                        application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.3,*/*;q=0.2";
        for accept in
            [prometheus, protobuf, "application/openmetrics-text", "text/plain;q=0.1,application/openmetrics-text"]
        {
            assert_eq!(of(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "*/*",
            "text/html",
            "text/plain",
            "text/plain;version=0.0.4",
            "text/plain, application/openmetrics-text;q=0.9",
            "application/openmetrics-text;version=2.0.0",
            ",;=;q=x",
        ] {
            assert_eq!(of(accept), Format::Plain, "{accept}");
        }
    }
}
