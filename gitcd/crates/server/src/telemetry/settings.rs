//! Settings of tracing, from etcd's flags and from OpenTelemetry's environment variables.

use trishanku_service::error::chain;
use trishanku_service::otlp::{Collector, OtlpError};

/// Settings from the command line; the usual `OTEL_` variables supply the rest.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Traces, whatever the environment says.
    pub enabled: bool,
    /// The collector's address, `HOST:PORT` or a URL.
    pub address: Option<String>,
    /// This service's name in traces.
    pub service_name: Option<String>,
    /// This instance's id in traces, among services of the same name.
    pub instance_id: Option<String>,
    /// How many of a million requests start a trace here; clients decide about the traces that they start.
    pub sampling_per_million: Option<u32>,
}

/// Why tracing cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up tracing: {0}")]
pub struct SetupError(pub(super) String);

impl From<OtlpError> for SetupError {
    fn from(error: OtlpError) -> Self {
        Self(chain(&error))
    }
}

/// The effective settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) collector: Collector,
    /// The share of requests that start a trace; `None` leaves it to `OTEL_TRACES_SAMPLER`.
    pub(super) share: Option<f64>,
    pub(super) service_name: Option<String>,
    pub(super) instance_id: Option<String>,
}

const MILLION: u32 = 1_000_000;

impl Settings {
    /// Returns the effective settings from the flags and `variable`; `None` if tracing is off.
    pub(super) fn plan(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Plan>, SetupError> {
        // As in etcd, the address does not enable traces.
        let found =
            if self.enabled { Some(Collector::enabled(None, variable)?) } else { Collector::find(None, variable)? };
        let Some(collector) = found else { return Ok(None) };
        let share = match self.sampling_per_million {
            Some(rate) if rate > MILLION => {
                return Err(SetupError(format!("--distributed-tracing-sampling-rate={rate} is more than {MILLION}")));
            }
            Some(rate) => Some(f64::from(rate) / f64::from(MILLION)),
            // As in etcd, with the flag alone only clients start traces.
            None if self.enabled && variable("OTEL_TRACES_SAMPLER").is_none() => Some(0.0),
            None => None,
        };
        let address = self.address.as_ref().map(|address| match address.split_once("://") {
            Some(_) => address.clone(),
            None => format!("http://{address}"),
        });
        Ok(Some(Plan {
            collector: match address {
                Some(address) => collector.at(address),
                None => collector,
            },
            share,
            service_name: self.service_name.clone(),
            instance_id: self.instance_id.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(settings: &Settings, variables: &[(&str, &str)]) -> Result<Option<Plan>, String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        settings.plan(&variable).map_err(|error| error.to_string())
    }

    fn endpoint(settings: &Settings, variables: &[(&str, &str)]) -> Option<String> {
        plan(settings, variables).unwrap().map(|plan| plan.collector.endpoint().to_owned())
    }

    #[test]
    fn nothing_is_traced_unless_a_flag_or_a_variable_asks_for_it() {
        let none = Settings::default();
        assert_eq!(endpoint(&none, &[]), None);
        // As in etcd, the other flags do not enable it.
        let idle = Settings { address: Some("a:1".into()), sampling_per_million: Some(1), ..Settings::default() };
        assert_eq!(endpoint(&idle, &[]), None);
        assert_eq!(endpoint(&none, &[("OTEL_TRACES_EXPORTER", "otlp")]).as_deref(), Some("http://localhost:4317"));
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317");
        assert_eq!(endpoint(&none, &[all]).as_deref(), Some("http://all:4317"));
        assert_eq!(endpoint(&none, &[all, traces]).as_deref(), Some("http://traces:4317"));
        assert_eq!(endpoint(&none, &[all, ("OTEL_TRACES_EXPORTER", "none")]), None);
        assert_eq!(endpoint(&none, &[all, ("OTEL_SDK_DISABLED", "TRUE")]), None);
    }

    #[test]
    fn flags_win_over_variables() {
        let flags = Settings { enabled: true, ..Settings::default() };
        let variable = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317");
        assert_eq!(endpoint(&flags, &[]).as_deref(), Some("http://localhost:4317"));
        assert_eq!(endpoint(&flags, &[variable, ("OTEL_TRACES_EXPORTER", "none")]).as_deref(), Some("http://all:4317"));
        let address = |address: &str| Settings { address: Some(address.into()), ..flags.clone() };
        assert_eq!(endpoint(&address("c:1"), &[variable]).as_deref(), Some("http://c:1"));
        assert_eq!(endpoint(&address("https://c:1"), &[variable]).as_deref(), Some("https://c:1"));
    }

    #[test]
    fn the_flag_leaves_the_choice_to_clients_as_in_etcd_and_the_variables_to_opentelemetry() {
        let share = |settings: &Settings, variables| plan(settings, variables).unwrap().unwrap().share;
        let flag = Settings { enabled: true, ..Settings::default() };
        assert_eq!(share(&flag, &[]), Some(0.0));
        assert_eq!(share(&flag, &[("OTEL_TRACES_SAMPLER", "always_on")]), None);
        assert_eq!(share(&Settings::default(), &[("OTEL_TRACES_EXPORTER", "otlp")]), None);
        let rate = |rate| Settings { sampling_per_million: Some(rate), ..flag.clone() };
        assert_eq!(share(&rate(250_000), &[("OTEL_TRACES_SAMPLER", "always_on")]), Some(0.25));
        assert!(plan(&rate(1_000_001), &[]).unwrap_err().contains("--distributed-tracing-sampling-rate"));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let error = |variables: &[(&str, &str)]| plan(&Settings::default(), variables).unwrap_err();
        assert!(error(&[("OTEL_TRACES_EXPORTER", "zipkin")]).contains("zipkin"));
        let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
        assert!(error(&[("OTEL_TRACES_EXPORTER", "otlp"), protocol]).contains("http/protobuf"));
        assert!(error(&[("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_TRACES_SAMPLER", "xray")]).contains("xray"));
        assert_eq!(plan(&Settings::default(), &[protocol]), Ok(None));
    }
}
