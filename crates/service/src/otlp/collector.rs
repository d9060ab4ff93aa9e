//! Whether traces are enabled and where they go, by OpenTelemetry's environment variables.

use super::OtlpError;
use crate::plain_http::is_exposed;

const DEFAULT_ENDPOINT: &str = "http://localhost:4317";
/// Headers with credentials.
const SECRET_HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "api-key", "x-api-key"];
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// The collector that gets the spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    endpoint: String,
}

impl Collector {
    /// Returns the collector at `endpoint`, which the program sets, or at that of the environment; `None` if neither is set or the
    /// environment disables traces. `variable` returns a variable of the environment, such as
    /// [`environment`](super::environment).
    ///
    /// # Errors
    /// [`OtlpError::Unsupported`]: a variable asks for another exporter, protocol or sampler than the available ones.
    pub fn find(endpoint: Option<&str>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, OtlpError> {
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        match variable("OTEL_TRACES_EXPORTER").as_deref() {
            None if endpoint.is_none() && exporter(variable, "ENDPOINT").is_none() => return Ok(None),
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => return Err(unsupported("OTEL_TRACES_EXPORTER", other, "use otlp or none")),
        }
        Self::enabled(endpoint, variable).map(Some)
    }

    /// Returns the collector of a program that enables traces, whatever the environment says. It is at `endpoint`, or at that of
    /// the environment, or on this machine.
    ///
    /// # Errors
    /// [`OtlpError::Unsupported`]: a variable asks for another protocol or sampler than the available ones.
    pub fn enabled(endpoint: Option<&str>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, OtlpError> {
        if let Some((name, protocol)) = exporter(variable, "PROTOCOL").filter(|(_, protocol)| protocol != "grpc") {
            return Err(unsupported(&name, &protocol, "only grpc is available"));
        }
        if let Some(sampler) = variable("OTEL_TRACES_SAMPLER").filter(|sampler| !SAMPLERS.contains(&sampler.as_str())) {
            let instead = format!("use one of {}", SAMPLERS.join(", "));
            return Err(unsupported("OTEL_TRACES_SAMPLER", &sampler, &instead));
        }
        let endpoint = endpoint.map(ToOwned::to_owned);
        let endpoint = endpoint.or_else(|| exporter(variable, "ENDPOINT").map(|(_, value)| value));
        Ok(Self { endpoint: endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()) })
    }

    /// Checks that no header of the environment with credentials is sent over plain HTTP to another machine. Other headers, such as
    /// the name of a tenant, are.
    ///
    /// # Errors
    /// [`OtlpError::Unencrypted`].
    pub fn check_encryption(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<(), OtlpError> {
        if !is_exposed(&self.endpoint) {
            return Ok(());
        }
        // The exporter sends the headers of both.
        for name in ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"] {
            let headers = variable(name).unwrap_or_default();
            let mut names = headers.split(',').filter_map(|header| Some(header.split_once('=')?.0.trim()));
            if let Some(header) = names.find(|header| SECRET_HEADERS.iter().any(|of| header.eq_ignore_ascii_case(of))) {
                let (variable, header) = (name.to_owned(), header.to_owned());
                let (scheme, rest) = self.endpoint.split_once("://").unwrap_or_default();
                let endpoint = format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host));
                return Err(OtlpError::Unencrypted { variable, header, endpoint });
            }
        }
        Ok(())
    }

    /// Moves the collector to another address.
    #[must_use]
    pub fn at(self, endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into() }
    }

    /// Returns its address.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

/// Returns a setting of the exporter and its variable. The variable for traces takes precedence over that for all signals.
fn exporter(variable: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<(String, String)> {
    [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")]
        .into_iter()
        .find_map(|name| variable(&name).map(|value| (name, value)))
}

fn unsupported(variable: &str, value: &str, instead: &str) -> OtlpError {
    let [variable, value, instead] = [variable, value, instead].map(ToOwned::to_owned);
    OtlpError::Unsupported { variable, value, instead }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(collector: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let found = Collector::find(collector, &variable);
        found.map(|found| found.map(|found| found.endpoint)).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_traced_unless_the_program_or_a_variable_asks_for_it() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317");
        let to = |collector, variables: &[_]| planned(collector, variables).unwrap();
        assert_eq!(to(None, &[]), None);
        assert_eq!(to(None, &[("OTEL_TRACES_EXPORTER", "otlp")]).as_deref(), Some(DEFAULT_ENDPOINT));
        assert_eq!(to(None, &[all]).as_deref(), Some("http://all:4317"));
        assert_eq!(to(None, &[all, traces]).as_deref(), Some("http://traces:4317"));
        assert_eq!(to(Some("http://program:1"), &[all, traces]).as_deref(), Some("http://program:1"));
        for no in [("OTEL_TRACES_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "TRUE")] {
            assert_eq!((to(None, &[all, no]), to(Some("http://program:1"), &[no])), (None, None), "{no:?}");
        }
    }

    #[test]
    fn a_program_that_enables_traces_wins_over_the_variables_that_disable_them() {
        let variable = |name: &str| match name {
            "OTEL_TRACES_EXPORTER" => Some("none".to_owned()),
            "OTEL_SDK_DISABLED" => Some("true".to_owned()),
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://all:4317".to_owned()),
            _ => None,
        };
        let endpoint = |endpoint| Collector::enabled(endpoint, &variable).unwrap().endpoint;
        assert_eq!((endpoint(None).as_str(), endpoint(Some("http://c:1")).as_str()), ("http://all:4317", "http://c:1"));
        assert_eq!(Collector::enabled(None, &|_| None).unwrap().endpoint(), DEFAULT_ENDPOINT);
    }

    #[test]
    fn headers_with_credentials_are_not_sent_over_plain_http_to_another_machine() {
        let check = |endpoint: &str, name: &'static str, headers: &'static str| {
            let collector = Collector { endpoint: endpoint.to_owned() };
            let checked = collector.check_encryption(&|asked| (asked == name).then(|| headers.to_owned()));
            checked.map_err(|error| error.to_string())
        };
        for name in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] {
            for headers in ["Authorization=Bearer hunter2", "tenant=a, api-key=hunter2"] {
                let error = check("http://ann:hunter2@collector:4317", name, headers).unwrap_err();
                assert!(error.contains(name) && error.contains("http://collector:4317"), "{error}");
                assert!(!error.contains("hunter2"), "{error}");
                for endpoint in ["https://collector:4317", DEFAULT_ENDPOINT] {
                    assert_eq!(check(endpoint, name, headers), Ok(()));
                }
            }
            assert_eq!(check("http://collector:4317", name, "X-Scope-OrgID=tenant"), Ok(()));
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_with_the_variable_and_a_remedy() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317");
        for (name, value, remedy) in [
            ("OTEL_TRACES_EXPORTER", "zipkin", "use otlp or none"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "only grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "only grpc"),
            ("OTEL_TRACES_SAMPLER", "xray", "parentbased_traceidratio"),
        ] {
            let error = planned(None, &[endpoint, (name, value)]).unwrap_err();
            assert!(error.contains(&format!("{name}={value}")) && error.contains(remedy), "{error}");
        }
        assert_eq!(planned(None, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]), Ok(None));
    }
}
