//! Groups of fields that Kubernetes validates together: each side's change is valid, but their combination may not be.
//!
//! `docs/design/merge-schema.md` has the list.

use super::super::owners::Step;
use super::super::schema::Node;
use super::super::value::{Map, Value};
use super::{Fields, pick, valid};

/// Fields that define how a Service is reached.
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

/// A group of fields that are validated together.
struct Group {
    fields: &'static [&'static str],
    /// Returns whether the merged fields are valid together; `None` if any combination counts as invalid.
    is_valid: Option<fn(&Map) -> bool>,
    /// Returns whether the merged fields are known to be valid because a side has them, where validity depends on the cluster.
    is_known: fn(&Map, [&Map; 2]) -> bool,
}

impl Group {
    const fn new(fields: &'static [&'static str], is_valid: fn(&Map) -> bool) -> Self {
        Self { fields, is_valid: Some(is_valid), is_known: |_, _| true }
    }

    const fn if_known(self, is_known: fn(&Map, [&Map; 2]) -> bool) -> Self {
        Self { is_known, ..self }
    }

    const fn never_mixed(fields: &'static [&'static str]) -> Self {
        Self { fields, is_valid: None, is_known: |_, _| true }
    }
}

/// Returns the groups of a type.
fn groups(type_name: &str) -> &'static [Group] {
    match type_name {
        "admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec" => {
            &const { [Group::new(&["validationActions"], valid::actions)] }
        }
        "apiextensions.v1.CustomResourceDefinition" => {
            &const { [Group::new(&["spec", "status"], valid::stored_versions)] }
        }
        "apps.v1.DeploymentSpec" => {
            &const {
                [
                    Group::new(&["minReadySeconds", "progressDeadlineSeconds"], valid::deadline),
                    Group::new(&["selector", "template"], valid::selector),
                ]
            }
        }
        "apps.v1.DaemonSetSpec"
        | "apps.v1.ReplicaSetSpec"
        | "apps.v1.StatefulSetSpec"
        | "core.v1.ReplicationControllerSpec" => &const { [Group::new(&["selector", "template"], valid::selector)] },
        "batch.v1.JobSpec" => &const { [Group::new(&["podFailurePolicy", "template"], valid::failure_policy)] },
        "autoscaling.v1.HorizontalPodAutoscalerSpec" | "autoscaling.v2.HorizontalPodAutoscalerSpec" => {
            &const { [Group::new(&["minReplicas", "maxReplicas"], valid::replicas)] }
        }
        "certificates.v1.CertificateSigningRequestStatus" => &const { [Group::new(&["conditions"], valid::approval)] },
        "core.v1.Container" | "core.v1.EphemeralContainer" => {
            &const {
                [
                    Group::new(&["ports"], valid::container_ports),
                    Group::new(&["securityContext", "volumeMounts"], valid::propagation),
                ]
            }
        }
        "core.v1.Event" => {
            &const {
                [Group::new(
                    &["eventTime", "action", "reason", "reportingComponent", "reportingInstance"],
                    valid::event,
                )]
            }
        }
        "events.v1.Event" => {
            &const {
                [Group::new(
                    &["eventTime", "action", "reason", "reportingController", "reportingInstance"],
                    valid::event,
                )]
            }
        }
        "core.v1.NodeSpec" => &const { [Group::never_mixed(&["podCIDR", "podCIDRs"])] },
        "core.v1.PodSpec" => {
            &const {
                [
                    Group::new(&["containers"], valid::containers),
                    Group::new(&["containers"], valid::host_ports),
                    Group::new(&["dnsPolicy", "dnsConfig"], valid::dns),
                    Group::new(&["hostUsers", "hostNetwork", "hostPID", "hostIPC"], valid::host_users),
                ]
            }
        }
        "core.v1.ResourceRequirements" | "core.v1.VolumeResourceRequirements" => {
            &const { [Group::new(&["limits", "requests"], valid::resources)] }
        }
        "core.v1.SecurityContext" => {
            &const { [Group::new(&["allowPrivilegeEscalation", "privileged", "capabilities"], valid::privileges)] }
        }
        "core.v1.ServiceSpec" => {
            &const {
                [
                    Group::never_mixed(EXPOSURE),
                    Group::never_mixed(&["sessionAffinity", "sessionAffinityConfig"]),
                    Group::new(&["selector", "ipFamilies", "ipFamilyPolicy"], valid::families)
                        .if_known(valid::are_known_families),
                    Group::new(&["ports"], valid::service_ports),
                ]
            }
        }
        "core.v1.VolumeMount" => {
            &const { [Group::new(&["mountPropagation", "readOnly", "recursiveReadOnly"], valid::recursive_read_only)] }
        }
        "networking.v1.IngressSpec" => &const { [Group::new(&["rules", "defaultBackend"], valid::ingress)] },
        _ => &[],
    }
}

/// Returns the groups of fields of a type that come from one side if both sides changed them and their mixture can be invalid.
pub fn taken_together(node: Node<'_>) -> impl Iterator<Item = &'static [&'static str]> {
    groups(node.type_name().unwrap_or_default()).iter().map(|group| group.fields)
}

impl Fields<'_> {
    /// Takes each group of related fields from one side if both sides changed it, the merged group equals neither side's, and it can
    /// be invalid.
    pub(super) fn related(&mut self, merged: &mut Map, base: Option<&Map>, sides: [&Map; 2], node: Node<'_>) {
        for Group { fields, is_valid, is_known } in groups(node.type_name().unwrap_or_default()) {
            let of_sides = || sides.map(|side| pick(side, fields));
            let Some(is_valid) = is_valid else {
                let (made, before, of_sides) = (pick(merged, fields), base.map(|base| pick(base, fields)), of_sides());
                if of_sides.iter().all(|side| *side != made && Some(side) != before.as_ref()) {
                    self.take(merged, of_sides, fields);
                }
                continue;
            };
            // Leave a side as it is if it was invalid before.
            let is_right = |merged: &Map| is_valid(merged) && is_known(merged, sides);
            if is_right(merged) || !sides.into_iter().all(is_valid) {
                continue;
            }
            let of_sides = of_sides();
            let winner = self.take(merged, of_sides.clone(), fields);
            // Fields of another group, which were taken from the other side, may require its fields here.
            if !is_right(merged) {
                self.conflicts.pop();
                self.take_from(merged, of_sides.map(Value::Map), fields, 1 - winner);
            }
        }
    }

    /// Whether one side removed a Service port, and on the other side it only got a `nodePort`. kube-apiserver allocates node
    /// ports, so that is not an edit.
    pub(crate) fn is_allocated_only(&self, before: Option<&Value>, sides: [Option<&Value>; 2]) -> bool {
        let is_ports = self.kind == "v1 Service"
            && matches!(&*self.path, [Step::Field(spec), Step::Field(ports)] if spec == "spec" && ports == "ports");
        let (true, Some(Value::Map(before)), [Some(Value::Map(left)), None] | [None, Some(Value::Map(left))]) =
            (is_ports, before, sides)
        else {
            return false;
        };
        // A port that had a node port before can only be changed by a user.
        if before.get("nodePort").is_some() {
            return false;
        }
        let mut left = left.clone();
        left.remove("nodePort");
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
