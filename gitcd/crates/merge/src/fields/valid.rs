//! Checks whether fields of an object are valid together, by the rules of Kubernetes' validation. A value that cannot be parsed
//! counts as valid.
//!
//! Sources: `pkg/apis/core/validation` (`ValidateService`, `ValidateEventUpdate`, `ValidatePodSpec`, `validateHostUsers`, `validatePodDNSConfig`,
//! `validateContainerPorts`, `ValidateContainerResourceRequirements`, `ValidateSecurityContext`), `pkg/apis/apps/validation`
//! (`ValidateDeploymentSpec`), `pkg/apis/autoscaling/validation` (`validateHorizontalPodAutoscalerSpec`),
//! `pkg/apis/networking/validation` (`ValidateIngressSpec`), `pkg/apis/certificates/validation`
//! (`validateCertificateSigningRequest`), `pkg/apis/admissionregistration/validation` (`validateValidatingAdmissionPolicyBindingSpec`),
//! `pkg/apis/batch/validation` (`validateJobSpec`), `apiextensions-apiserver`
//! (`ValidateCustomResourceDefinitionStoredVersions`).

use std::collections::HashSet;

use super::quantity::nano;
use crate::value::{Map, Value};

/// Returns whether `progressDeadlineSeconds` exceeds `minReadySeconds`.
pub(super) fn deadline(spec: &Map) -> bool {
    number(spec, "minReadySeconds").unwrap_or(0) < number(spec, "progressDeadlineSeconds").unwrap_or(600)
}

pub(super) fn replicas(spec: &Map) -> bool {
    number(spec, "maxReplicas").is_none_or(|max| number(spec, "minReplicas").unwrap_or(1) <= max)
}

/// Returns whether an Event with a time says what happened and who reports it; older Events need not.
pub(super) fn event(event: &Map) -> bool {
    let has = |name: &str| event.get(name).is_some_and(|value| value.given(&[]).is_some());
    let has_reporter = has("reportingController") || has("reportingComponent");
    !has("eventTime") || has("action") && has("reason") && has_reporter && has("reportingInstance")
}

/// Returns whether a `CertificateSigningRequest` is not both approved and denied.
pub(super) fn approval(status: &Map) -> bool {
    let has = |name: &str| texts(list(status, "conditions"), "type").any(|found| found == name);
    !(has("Approved") && has("Denied"))
}

/// Returns whether a container's port names are distinct, and its host ports.
pub(super) fn container_ports(container: &Map) -> bool {
    are_distinct(texts(list(container, "ports"), "name")) && are_distinct(ports_on_host(container))
}

/// Returns whether the containers of a pod have distinct host ports.
pub(super) fn host_ports(spec: &Map) -> bool {
    are_distinct(list(spec, "containers").iter().filter_map(Value::as_map).flat_map(ports_on_host))
}

fn ports_on_host(container: &Map) -> impl Iterator<Item = String> {
    list(container, "ports").iter().filter_map(Value::as_map).filter_map(|port| {
        let number = number(port, "hostPort").filter(|number| *number != 0)?;
        let protocol = text(port, "protocol").unwrap_or("TCP".into());
        Some(format!("{number} {protocol} {}", text(port, "hostIP").unwrap_or_default()))
    })
}

/// Returns whether the container is privileged, if it propagates mounts bidirectionally.
pub(super) fn propagation(container: &Map) -> bool {
    let is_privileged = || match container.get("securityContext") {
        Some(Value::Map(context)) => is(context, "privileged", "true"),
        _ => false,
    };
    let propagates = |mount: &Value| mount.as_map().is_some_and(|mount| is(mount, "mountPropagation", "Bidirectional"));
    !list(container, "volumeMounts").iter().any(propagates) || is_privileged()
}

/// Returns whether a recursively read-only mount is read-only and not propagated.
pub(super) fn recursive_read_only(mount: &Map) -> bool {
    let is_recursive = ["Enabled", "IfPossible"].iter().any(|value| is(mount, "recursiveReadOnly", value));
    let is_propagated = text(mount, "mountPropagation").is_some_and(|value| !matches!(&*value, "" | "None"));
    !is_recursive || is(mount, "readOnly", "true") && !is_propagated
}

/// Returns whether a Job with a pod failure policy never restarts containers.
pub(super) fn failure_policy(spec: &Map) -> bool {
    let policy = spec.get("template").and_then(|template| template.at(&["spec", "restartPolicy"]));
    spec.get("podFailurePolicy").is_none() || policy.and_then(Value::as_text).is_some_and(|policy| policy == "Never")
}

/// Returns whether the labels of a template match the selector's labels. Expressions of the selector are not evaluated.
pub(super) fn selector(spec: &Map) -> bool {
    let Some(Value::Map(selector)) = spec.get("selector") else { return true };
    let wanted = match selector.get("matchLabels") {
        Some(Value::Map(labels)) => labels,
        // A `ReplicationController` has only labels in its selector.
        None if selector.get("matchExpressions").is_none() => selector,
        _ => return true,
    };
    let labels = spec.get("template").and_then(|template| template.at(&["metadata", "labels"])?.as_map());
    let places = labels.map(Map::names).unwrap_or_default();
    let label = |name: &str| labels?.field(*places.get(name)?).1.as_text();
    wanted.iter().all(|(name, value)| label(&name) == value.as_text())
}

/// Returns whether a `CustomResourceDefinition` has all versions in which its objects are stored.
pub(super) fn stored_versions(definition: &Map) -> bool {
    let versions = definition.get("spec").and_then(|spec| spec.at(&["versions"])?.as_list()).unwrap_or_default();
    let stored = definition.get("status").and_then(|status| status.at(&["storedVersions"])?.as_list());
    let mut names = stored.unwrap_or_default().iter().filter_map(Value::as_text);
    let versions: HashSet<String> = texts(versions, "name").collect();
    names.all(|stored| versions.contains(&*stored))
}

/// Returns whether a `ValidatingAdmissionPolicyBinding` has an action, and does not both deny and warn.
pub(super) fn actions(spec: &Map) -> bool {
    let actions = list(spec, "validationActions");
    let has = |name: &str| actions.iter().any(|action| action.as_text().is_some_and(|action| action == name));
    let is_contradiction = has("Deny") && has("Warn");
    !actions.is_empty() && !is_contradiction
}

/// Returns whether a pod has a container.
pub(super) fn containers(spec: &Map) -> bool {
    !list(spec, "containers").is_empty()
}

/// Returns whether a pod with `dnsPolicy: None` has a name server.
pub(super) fn dns(spec: &Map) -> bool {
    let has_servers = || match spec.get("dnsConfig") {
        Some(Value::Map(config)) => !list(config, "nameservers").is_empty(),
        _ => false,
    };
    text(spec, "dnsPolicy").is_none_or(|policy| policy != "None") || has_servers()
}

/// Returns whether a pod with `hostUsers: false` uses no host namespace.
pub(super) fn host_users(spec: &Map) -> bool {
    !is(spec, "hostUsers", "false") || !["hostNetwork", "hostPID", "hostIPC"].iter().any(|name| is(spec, name, "true"))
}

/// Returns whether no request exceeds its limit. For huge pages and extended resources, which cannot be overcommitted, both must
/// be equal.
pub(super) fn resources(resources: &Map) -> bool {
    let (Some(Value::Map(limits)), Some(Value::Map(requests))) = (resources.get("limits"), resources.get("requests"))
    else {
        return true;
    };
    let amount = |value: &Value| value.as_text().and_then(|text| nano(&text));
    let places = limits.names();
    let limit = |name: &str| limits.field(*places.get(name)?).1.as_text().and_then(|text| nano(&text));
    requests.iter().all(|(name, request)| {
        let Some((request, limit)) = amount(request).zip(limit(&name)) else { return true };
        let is_whole = name.starts_with("hugepages-") || name.contains('/') && !name.contains("kubernetes.io/");
        if is_whole { request == limit } else { request <= limit }
    })
}

/// Returns whether a container that is privileged or adds `CAP_SYS_ADMIN` does not set `allowPrivilegeEscalation: false`.
pub(super) fn privileges(context: &Map) -> bool {
    let adds_all = || match context.get("capabilities") {
        Some(Value::Map(capabilities)) => {
            list(capabilities, "add").iter().any(|name| name.as_text().is_some_and(|name| name == "CAP_SYS_ADMIN"))
        }
        _ => false,
    };
    !is(context, "allowPrivilegeEscalation", "false") || !(is(context, "privileged", "true") || adds_all())
}

/// Returns whether a Service has a port (unless it is headless or of type `ExternalName`), and whether several ports all have
/// names, with distinct names and distinct node ports.
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

/// Returns whether a headless Service with a selector has at most one IP family. Two are valid only in a dual-stack cluster,
/// which the merge cannot know.
pub(super) fn families(spec: &Map) -> bool {
    !is_headless_with_selector(spec) || list(spec, "ipFamilies").len() < 2
}

/// Returns whether the family of a headless Service with a selector is that of a side that has a selector, too. The cluster must
/// be configured for this family, unless there is no selector.
pub(super) fn are_known_families(spec: &Map, sides: [&Map; 2]) -> bool {
    let is_known = |side: &&Map| is_headless_with_selector(side) && side.get("ipFamilies") == spec.get("ipFamilies");
    !is_headless_with_selector(spec) || sides.iter().any(is_known)
}

fn is_headless_with_selector(spec: &Map) -> bool {
    let is_headless = text(spec, "clusterIP").is_some_and(|address| address == "None");
    is_headless && matches!(spec.get("selector"), Some(Value::Map(selector)) if !selector.is_empty())
}

/// Returns whether an Ingress has rules or a default backend.
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

/// Returns the nonempty values of a field of the items.
fn texts<'v>(items: &'v [Value], field: &'v str) -> impl Iterator<Item = String> + 'v {
    items.iter().filter_map(move |item| text(item.as_map()?, field)).filter(|text| !text.is_empty())
}

fn are_distinct(texts: impl IntoIterator<Item = String>) -> bool {
    let mut seen = HashSet::new();
    texts.into_iter().all(|text| seen.insert(text))
}
