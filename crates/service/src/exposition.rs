//! The text formats of metrics: `OpenMetrics`, and Prometheus' older text format.
//!
//! A program encodes its metrics as `OpenMetrics`; [`plain`](fn@plain) converts that for clients that ask for the older format.
//!
//! ```
//! use http::{HeaderMap, HeaderValue, header};
//! use trishanku_service::exposition::{Format, plain};
//!
//! let open = "# HELP hits Requests.\n# TYPE hits counter\nhits_total 3\n# EOF\n";
//! let accept = HeaderValue::from_static("text/plain;version=0.0.4");
//! let headers = HeaderMap::from_iter([(header::ACCEPT, accept)]);
//! assert_eq!(Format::of(&headers), Format::Plain);
//! assert_eq!(plain(open, &[]), "# HELP hits_total Requests.\n# TYPE hits_total counter\nhits_total 3\n");
//! ```

mod plain;

use http::{HeaderMap, header};

pub use self::plain::plain;

/// Content type of `OpenMetrics`.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Content type of Prometheus' text format.
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, for clients that do not ask for another one.
    Plain,
    /// `OpenMetrics`.
    OpenMetrics,
}

impl Format {
    /// Returns the format that `Accept` prefers, as Prometheus' own handler does: unknown media types are ignored.
    pub fn of(headers: &HeaderMap) -> Self {
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
        ("application/openmetrics-text", "1.0.0" | "0.0.1" | "") => Some(Format::OpenMetrics),
        ("text/plain", "0.0.4" | "") => Some(Format::Plain),
        _ => None,
    };
    (parameter("q").parse().unwrap_or(1.0), format)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(accept: &'static str) -> Format {
        Format::of(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
    }

    #[test]
    fn metrics_are_plain_text_unless_openmetrics_is_preferred() {
        assert_eq!(Format::of(&HeaderMap::new()), Format::Plain);
        // Sent by Prometheus 2 and 3.
        let prometheus_2 = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                        application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.3,*/*;q=0.2";
        for accept in [
            prometheus_2,
            prometheus_3,
            protobuf,
            "application/openmetrics-text",
            "text/plain;q=0.1,application/openmetrics-text",
        ] {
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
