//! Whether fields of an object are valid together, as the validation of Kubernetes has it. What cannot be read is not judged.
//!
//! Sources: `pkg/apis/core/validation` (`ValidateService`, `ValidatePodSpec`, `validateHostUsers`, `validatePodDNSConfig`,
//! `validateContainerPorts`, `ValidateContainerResourceRequirements`, `ValidateSecurityContext`), `pkg/apis/apps/validation`
//! (`ValidateDeploymentSpec`), `pkg/apis/autoscaling/validation` (`validateHorizontalPodAutoscalerSpec`),
//! `pkg/apis/networking/validation` (`ValidateIngressSpec`), `pkg/apis/certificates/validation`
//! (`validateCertificateSigningRequest`).

use std::collections::HashSet;

use super::quantity::nano;
use crate::merge::value::{Map, Value};

/// A deadline of a Deployment is later than the moment in which its pods count as available.
pub(super) fn deadline(spec: &Map) -> bool {
    number(spec, "minReadySeconds").unwrap_or(0) < number(spec, "progressDeadlineSeconds").unwrap_or(600)
}

pub(super) fn replicas(spec: &Map) -> bool {
    number(spec, "maxReplicas").is_none_or(|max| number(spec, "minReplicas").unwrap_or(1) <= max)
}

/// A request for a certificate is approved or denied.
pub(super) fn approval(status: &Map) -> bool {
    let has = |name: &str| texts(list(status, "conditions"), "type").any(|found| found == name);
    !(has("Approved") && has("Denied"))
}

/// Ports of a container have names of their own.
pub(super) fn container_ports(container: &Map) -> bool {
    are_distinct(texts(list(container, "ports"), "name"))
}

/// A pod has a container.
pub(super) fn containers(spec: &Map) -> bool {
    !list(spec, "containers").is_empty()
}

/// Without a policy, a pod has name servers of its own.
pub(super) fn dns(spec: &Map) -> bool {
    let has_servers = || match spec.get("dnsConfig") {
        Some(Value::Map(config)) => !list(config, "nameservers").is_empty(),
        _ => false,
    };
    text(spec, "dnsPolicy").is_none_or(|policy| policy != "None") || has_servers()
}

/// A pod with users of its own shares no namespace with its host.
pub(super) fn host_users(spec: &Map) -> bool {
    !is(spec, "hostUsers", "false") || !["hostNetwork", "hostPID", "hostIPC"].iter().any(|name| is(spec, name, "true"))
}

/// No request is greater than its limit, and of what cannot be shared both are the same.
pub(super) fn resources(resources: &Map) -> bool {
    let (Some(Value::Map(limits)), Some(Value::Map(requests))) = (resources.get("limits"), resources.get("requests"))
    else {
        return true;
    };
    let amount = |value: &Value| value.as_text().and_then(|text| nano(&text));
    requests.iter().all(|(name, request)| {
        let Some((request, limit)) = amount(request).zip(limits.get(&name).and_then(amount)) else { return true };
        let is_whole = name.starts_with("hugepages-") || name.contains('/') && !name.contains("kubernetes.io/");
        if is_whole { request == limit } else { request <= limit }
    })
}

/// Who is privileged may escalate.
pub(super) fn privileges(context: &Map) -> bool {
    let adds_all = || match context.get("capabilities") {
        Some(Value::Map(capabilities)) => {
            list(capabilities, "add").iter().any(|name| name.as_text().is_some_and(|name| name == "CAP_SYS_ADMIN"))
        }
        _ => false,
    };
    !is(context, "allowPrivilegeEscalation", "false") || !(is(context, "privileged", "true") || adds_all())
}

/// Ports of a Service have names if there are several, names and node ports of their own, and there is one unless the Service has
/// no address.
pub(super) fn service_ports(spec: &Map) -> bool {
    let ports = list(spec, "ports");
    let is_external = text(spec, "type").is_some_and(|it| it == "ExternalName");
    let is_headless = text(spec, "clusterIP").is_some_and(|address| address == "None");
    let has_names = || ports.len() == texts(ports, "name").count();
    let node_ports = ports.iter().filter_map(Value::as_map).filter_map(|port| {
        let number = number(port, "nodePort").filter(|number| *number != 0)?;
        Some(format!("{number} {}", text(port, "protocol").unwrap_or("TCP".into())))
    });
    match ports.len() {
        0 => is_external || is_headless,
        1 => true,
        _ => has_names() && are_distinct(texts(ports, "name")) && are_distinct(node_ports),
    }
}

/// A Service without an address and without a selector has both families wherever it is; one with a selector only those of its
/// cluster.
pub(super) fn families(spec: &Map) -> bool {
    let is_headless = text(spec, "clusterIP").is_some_and(|address| address == "None");
    let selects = matches!(spec.get("selector"), Some(Value::Map(selector)) if !selector.is_empty());
    !is_headless || !selects || list(spec, "ipFamilies").len() < 2
}

/// An Ingress leads somewhere.
pub(super) fn ingress(spec: &Map) -> bool {
    spec.get("defaultBackend").is_some() || !list(spec, "rules").is_empty()
}

fn number(map: &Map, field: &str) -> Option<i64> {
    text(map, field)?.parse().ok()
}

fn text(map: &Map, field: &str) -> Option<String> {
    Some(map.get(field)?.as_text()?.into_owned())
}

fn is(map: &Map, field: &str, expected: &str) -> bool {
    text(map, field).is_some_and(|text| text == expected)
}

fn list<'v>(map: &'v Map, field: &str) -> &'v [Value] {
    map.get(field).and_then(Value::as_list).unwrap_or_default()
}

/// What items have in a field, if it is not empty.
fn texts<'v>(items: &'v [Value], field: &'v str) -> impl Iterator<Item = String> + 'v {
    items.iter().filter_map(move |item| text(item.as_map()?, field)).filter(|text| !text.is_empty())
}

fn are_distinct(texts: impl IntoIterator<Item = String>) -> bool {
    let mut seen = HashSet::new();
    texts.into_iter().all(|text| seen.insert(text))
}
