//! Fields whose values Kubernetes validates against one another: what each side changed alone is valid, and the mixture may not be.
//!
//! Sources: `pkg/apis/core/validation` (`ValidateService`, `ValidateNodeUpdate`), `pkg/apis/apps/validation` (`ValidateDeploymentSpec`),
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

/// Fields that are compared with one another.
struct Group {
    fields: &'static [&'static str],
    /// Which mixtures of both sides are valid.
    is_valid: fn(&Map) -> bool,
}

impl Group {
    /// No mixture is known to be valid.
    const fn of(fields: &'static [&'static str]) -> Self {
        Self { fields, is_valid: |_| false }
    }
}

const REPLICAS: &[Group] = &[Group {
    fields: &["minReplicas", "maxReplicas"],
    is_valid: |spec| matches!((number(spec, "minReplicas"), number(spec, "maxReplicas")), (Some(min), Some(max)) if min <= max),
}];

/// By kind: groups of fields of its spec.
const OF_SPEC: [(&str, &[Group]); 5] = [
    ("v1 Node", &[Group::of(&["podCIDR", "podCIDRs"])]),
    ("v1 Service", &[Group::of(EXPOSURE), Group::of(&["sessionAffinity", "sessionAffinityConfig"])]),
    (
        "apps/v1 Deployment",
        &[Group {
            fields: &["minReadySeconds", "progressDeadlineSeconds"],
            is_valid: |spec| {
                let deadline = number(spec, "progressDeadlineSeconds");
                deadline.is_some_and(|deadline| number(spec, "minReadySeconds").unwrap_or(0) < deadline)
            },
        }],
    ),
    ("autoscaling/v1 HorizontalPodAutoscaler", REPLICAS),
    ("autoscaling/v2 HorizontalPodAutoscaler", REPLICAS),
];

fn number(spec: &Map, field: &str) -> Option<i64> {
    spec.get(field)?.as_text()?.parse().ok()
}

/// Groups of fields of a kind's spec that a merge takes from one side if both sides changed them and the mixture may be invalid.
pub fn taken_together(api_version: &str, kind: &str) -> impl Iterator<Item = &'static [&'static str]> {
    groups(&format!("{api_version} {kind}")).iter().map(|group| group.fields)
}

fn groups(kind: &str) -> &'static [Group] {
    OF_SPEC.iter().find(|(name, _)| *name == kind).map_or(&[], |(_, groups)| groups)
}

impl Fields<'_> {
    /// Takes fields from one side if both changed them, neither side has what was merged, and that may be invalid.
    pub(super) fn related(&mut self, merged: &mut Map, base: Option<&Map>, sides: [&Map; 2]) {
        if !matches!(&*self.path, [Step::Field(part)] if part == "spec") {
            return;
        }
        for Group { fields, is_valid } in groups(&self.kind) {
            let (made, before) = (pick(merged, fields), base.map(|base| pick(base, fields)));
            let of_sides = sides.map(|side| pick(side, fields));
            let is_of_one = of_sides.iter().any(|side| *side == made || Some(side) == before.as_ref());
            if !is_of_one && !is_valid(merged) {
                self.take(merged, of_sides, fields);
            }
        }
    }

    /// Whether one side removed a port of a Service, of which the other side got nothing but a node port: that is no edit of anybody.
    pub(in crate::merge) fn is_allocated_only(&self, before: Option<&Value>, sides: [Option<&Value>; 2]) -> bool {
        let is_ports = self.kind == "v1 Service"
            && matches!(&*self.path, [Step::Field(spec), Step::Field(ports)] if spec == "spec" && ports == "ports");
        let (true, Some(Value::Map(before)), [Some(Value::Map(left)), None] | [None, Some(Value::Map(left))]) =
            (is_ports, before, sides)
        else {
            return false;
        };
        let mut left = left.clone();
        match before.get("nodePort") {
            Some(port) => left.set("nodePort", port.clone()),
            None => left.remove("nodePort"),
        }
        left == *before
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
}
