//! Fields whose values Kubernetes validates against one another: what each side changed alone is valid, and the mixture may not be.
//!
//! Sources: `pkg/apis/core/validation` (`ValidateService`), `pkg/apis/apps/validation` (`ValidateDeploymentSpec`),
//! `pkg/apis/autoscaling/validation` (`validateHorizontalPodAutoscalerSpec`). `docs/design/merge-schema.md` has the list.

use super::super::owners::Step;
use super::super::value::{Map, Value};
use super::{Fields, pick};

/// How a Service is reached.
const EXPOSURE: &[&str] = &[
    "type",
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    "externalName",
    "externalIPs",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "allocateLoadBalancerNodePorts",
    "loadBalancerClass",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
];

/// By kind: groups of fields of its spec.
const OF_SPEC: [(&str, &[&[&str]]); 4] = [
    ("v1 Service", &[EXPOSURE, &["sessionAffinity", "sessionAffinityConfig"]]),
    ("apps/v1 Deployment", &[&["minReadySeconds", "progressDeadlineSeconds"]]),
    ("autoscaling/v1 HorizontalPodAutoscaler", &[&["minReplicas", "maxReplicas"]]),
    ("autoscaling/v2 HorizontalPodAutoscaler", &[&["minReplicas", "maxReplicas"]]),
];

impl Fields<'_> {
    /// The groups of fields at the current path.
    pub(super) fn related(&self) -> &'static [&'static [&'static str]] {
        let is_spec = matches!(&*self.path, [Step::Field(part)] if part == "spec");
        let found = OF_SPEC.iter().find(|(kind, _)| is_spec && *kind == self.kind);
        found.map_or(&[], |(_, groups)| groups)
    }

    /// Removes the node ports of a Service whose type has none, as kube-apiserver does when the type changes
    /// (`pkg/registry/core/service/strategy.go`, `dropTypeDependentFields`).
    pub(super) fn without_node_ports(&self, merged: &mut Map) {
        let is_spec = matches!(&*self.path, [Step::Field(part)] if part == "spec");
        if !is_spec || self.kind != "v1 Service" {
            return;
        }
        let has_none =
            merged.get("type").and_then(Value::as_text).is_none_or(|it| it == "ClusterIP" || it == "ExternalName");
        if let (true, Some(Value::List(ports))) = (has_none, merged.get_mut("ports")) {
            for port in ports {
                if let Value::Map(port) = port {
                    port.remove("nodePort");
                }
            }
        }
    }

    /// Takes a group of fields from one side if both changed it, and neither side has what was merged.
    pub(super) fn together(&mut self, merged: &mut Map, base: Option<&Map>, sides: [&Map; 2], group: &[&str]) {
        let (made, before) = (pick(merged, group), base.map(|base| pick(base, group)));
        let of_sides = sides.map(|side| pick(side, group));
        if !of_sides.iter().any(|side| *side == made || Some(side) == before.as_ref()) {
            self.take(merged, of_sides, group);
        }
    }
}
