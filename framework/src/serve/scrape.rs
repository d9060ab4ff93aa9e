//! `/metrics`, in the preferred format.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::metrics::{CONTENT_TYPE, Metrics, PLAIN_CONTENT_TYPE};

pub(super) fn pages(metrics: &Metrics) -> Router {
    Router::new().route("/metrics", get(figures)).with_state(metrics.clone())
}

async fn figures(State(metrics): State<Metrics>, headers: HeaderMap) -> impl IntoResponse {
    let (kind, text) = match Format::of(&headers) {
        Format::Plain => (PLAIN_CONTENT_TYPE, metrics.plain()),
        Format::Open => (CONTENT_TYPE, metrics.text()),
    };
    ([(header::CONTENT_TYPE, kind)], text)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Plain,
    Open,
}

impl Format {
    /// Returns the format that `Accept` prefers, as Prometheus' own handler does: unknown media types are ignored.
    fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut ranges: Vec<_> = accepted.flat_map(|value| value.split(',')).map(range).collect();
        // Stable: the first of equals wins.
        ranges.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        ranges.into_iter().find_map(|(_, format)| format).unwrap_or(Self::Plain)
    }
}

/// Returns the weight of a media range, and its format.
fn range(text: &str) -> (f64, Option<Format>) {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
    let parameter = |name: &str| {
        let found = parameters.iter().find(|(given, _)| given.trim().eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value.trim().trim_matches('"'))
    };
    let format = match (&*kind, parameter("version")) {
        ("application/openmetrics-text", "1.0.0" | "0.0.1" | "") => Some(Format::Open),
        ("text/plain", "0.0.4" | "") => Some(Format::Plain),
        _ => None,
    };
    (parameter("q").parse().unwrap_or(1.0), format)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn figures_are_plain_text_unless_openmetrics_is_preferred() {
        let of = |accept| Format::of(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]));
        assert_eq!(Format::of(&HeaderMap::new()), Format::Plain);
        // Sent by Prometheus 3.
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in [prometheus, "application/openmetrics-text", "text/plain;q=0.1,application/openmetrics-text"] {
            assert_eq!(of(accept), Format::Open, "{accept}");
        }
        for accept in ["*/*", "text/html", "text/plain, application/openmetrics-text;q=0.9", ",;=;q=x"] {
            assert_eq!(of(accept), Format::Plain, "{accept}");
        }
    }
}
