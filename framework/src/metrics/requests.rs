//! Metrics of the requests to the apiserver.

use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Histograms;

const BUCKETS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    code: String,
    method: String,
    host: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    verb: String,
    host: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Requests {
    total: Family<Answer, Counter>,
    time: Histograms<Of>,
}

impl Requests {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let time = Histograms::new_with_constructor(|| Histogram::new(BUCKETS));
        let of = Self { total: Family::default(), time };
        let registry = registry.sub_registry_with_prefix("rest_client");
        let help = "Number of HTTP requests, partitioned by status code, method, and host";
        registry.register("requests", help, of.total.clone());
        let help = "Request latency in seconds. Broken down by verb and host";
        registry.register("request_duration_seconds", help, of.time.clone());
        of
    }

    /// Counts a request; `code` is `None` without a response. As in client-go, watches have no `took`.
    pub(crate) fn answered(&self, method: &Method, host: &str, code: Option<StatusCode>, took: Option<Duration>) {
        let (method, host) = (method.to_string(), host.to_owned());
        if let Some(took) = took {
            let of = Of { verb: method.clone(), host: host.clone() };
            self.time.get_or_create(&of).observe(took.as_secs_f64());
        }
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.as_str().to_owned());
        self.total.get_or_create(&Answer { code, method, host }).inc();
    }
}
