//! Whether traces are enabled and where they go, by OpenTelemetry's environment variables.

use super::SetupError;

/// Where traces go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) endpoint: String,
}

const DEFAULT_ENDPOINT: &str = "http://localhost:4317";
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// Returns a variable of the process; an empty one counts as unset, as OpenTelemetry requires.
pub(super) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Decides by `collector`, which the program sets, and by the environment.
pub(super) fn plan(
    collector: Option<&str>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Plan>, SetupError> {
    // The variable for traces takes precedence over the one for all signals.
    let exporter = |name: &str| {
        [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")]
            .into_iter()
            .find_map(|name| variable(&name).map(|value| (name, value)))
    };
    let endpoint = collector.map(ToOwned::to_owned).or_else(|| exporter("ENDPOINT").map(|(_, value)| value));
    let refused = |variable: &str, value: &str, instead: &str| {
        let [variable, value, instead] = [variable, value, instead].map(ToOwned::to_owned);
        Err(SetupError::Unsupported { variable, value, instead })
    };
    if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    match variable("OTEL_TRACES_EXPORTER").as_deref() {
        None if endpoint.is_none() => return Ok(None),
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(other) => return refused("OTEL_TRACES_EXPORTER", other, "use otlp or none"),
    }
    if let Some((name, protocol)) = exporter("PROTOCOL").filter(|(_, protocol)| protocol != "grpc") {
        return refused(&name, &protocol, "only grpc is available");
    }
    if let Some(sampler) = variable("OTEL_TRACES_SAMPLER").filter(|sampler| !SAMPLERS.contains(&sampler.as_str())) {
        return refused("OTEL_TRACES_SAMPLER", &sampler, &format!("use one of {}", SAMPLERS.join(", ")));
    }
    Ok(Some(Plan { endpoint: endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(collector: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        plan(collector, &variable).map(|plan| plan.map(|plan| plan.endpoint)).map_err(|error| error.to_string())
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
