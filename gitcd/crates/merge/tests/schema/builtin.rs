//! Kinds built into Kubernetes.

use gitcd_merge::schema::{ListKind, Schemas, Shape};

use crate::{find, keys, node, unions};

/// `kubectl api-resources` of kube-apiserver 1.36.3 with all alpha and beta features: version and kind.
const API_RESOURCES: &str = include_str!("api-resources.txt");

const POD_SPEC: &str = "spec.template.spec";

#[test]
fn every_api_resource_is_known_with_its_metadata() {
    let schemas = Schemas::builtin();
    let mut count = 0;
    for line in API_RESOURCES.lines() {
        let (api_version, kind) = line.split_once(' ').expect("a version and a kind");
        let metadata = node(&schemas, api_version, kind, "metadata");
        assert_eq!(metadata.field("finalizers").and_then(|list| list.list()), Some(ListKind::Set), "{line}");
        let owners = metadata.field("ownerReferences").expect("known");
        assert_eq!(keys(owners), ["uid"], "{line}");
        assert!(owners.items().is_some_and(|owner| owner.is_atomic()), "{line}");
        let managed = metadata.field("managedFields").and_then(|list| list.list());
        assert_eq!(managed, Some(ListKind::Atomic), "{line}");
        count += 1;
    }
    assert_eq!(count, 76);
}

#[test]
fn every_served_version_is_known() {
    let schemas = Schemas::builtin();
    for (api_version, kind) in [
        ("autoscaling/v1", "HorizontalPodAutoscaler"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("resource.k8s.io/v1", "ResourceClaim"),
        ("resource.k8s.io/v1beta1", "ResourceClaim"),
        ("resource.k8s.io/v1beta2", "ResourceClaim"),
        ("networking.k8s.io/v1beta1", "ServiceCIDR"),
    ] {
        assert!(schemas.of(api_version, kind).is_some(), "{api_version} {kind}");
    }
}

#[test]
fn what_is_no_object_or_of_no_known_version_is_unknown() {
    let schemas = Schemas::builtin();
    for (api_version, kind) in [
        ("v1", "PodList"),
        ("v1", "Status"),
        ("v1", "Deployment"),
        ("apps/v1beta1", "Deployment"),
        ("", "Pod"),
        ("v1", ""),
    ] {
        assert!(schemas.of(api_version, kind).is_none(), "{api_version} {kind}");
    }
    assert!(Schemas::default().of("v1", "Pod").is_none());
}

#[test]
fn lists_of_a_pod_are_merged_by_their_keys() {
    let schemas = Schemas::builtin();
    for (path, expected) in [
        ("containers", &["name"][..]),
        ("initContainers", &["name"]),
        ("ephemeralContainers", &["name"]),
        ("volumes", &["name"]),
        ("imagePullSecrets", &["name"]),
        ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
        ("hostAliases", &["ip"]),
        ("containers.[].ports", &["containerPort", "protocol"]),
        ("containers.[].env", &["name"]),
        ("containers.[].volumeMounts", &["mountPath"]),
        ("containers.[].volumeDevices", &["devicePath"]),
        ("containers.[].resources.claims", &["name"]),
    ] {
        assert_eq!(keys(node(&schemas, "v1", "Pod", &format!("spec.{path}"))), expected, "{path}");
        for (api_version, kind) in [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job")] {
            assert_eq!(
                keys(node(&schemas, api_version, kind, &format!("{POD_SPEC}.{path}"))),
                expected,
                "{kind}: {path}"
            );
        }
    }
    for path in ["tolerations", "containers.[].args", "containers.[].command", "containers.[].envFrom"] {
        let list = node(&schemas, "v1", "Pod", &format!("spec.{path}"));
        assert_eq!(list.list(), Some(ListKind::Atomic), "{path}");
    }
}

#[test]
fn other_lists_are_merged_as_annotated() {
    let schemas = Schemas::builtin();
    for (api_version, kind, path, expected) in [
        ("v1", "Service", "spec.ports", &["port", "protocol"][..]),
        ("v1", "Service", "status.conditions", &["type"]),
        ("v1", "Node", "status.conditions", &["type"]),
        ("v1", "Node", "status.addresses", &["type"]),
        ("v1", "ServiceAccount", "secrets", &["name"]),
        ("apps/v1", "Deployment", "status.conditions", &["type"]),
        ("apiregistration.k8s.io/v1", "APIService", "status.conditions", &["type"]),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "status.conditions", &["type"]),
        ("resource.k8s.io/v1", "ResourceClaim", "status.devices", &["driver", "device", "pool", "shareID"]),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "webhooks", &["name"]),
    ] {
        assert_eq!(keys(node(&schemas, api_version, kind, path)), expected, "{kind}: {path}");
    }
    for (api_version, kind, path, expected) in [
        ("v1", "Node", "spec.podCIDRs", ListKind::Set),
        ("v1", "Node", "spec.taints", ListKind::Atomic),
        // The strategic merge patch has a key for it, but the list type takes precedence.
        ("batch/v1", "Job", "status.conditions", ListKind::Atomic),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "rules", ListKind::Atomic),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", "subjects", ListKind::Atomic),
        ("discovery.k8s.io/v1", "EndpointSlice", "endpoints", ListKind::Atomic),
        ("storage.k8s.io/v1", "CSIDriver", "spec.volumeLifecycleModes", ListKind::Set),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "spec.versions", ListKind::Atomic),
    ] {
        assert_eq!(node(&schemas, api_version, kind, path).list(), Some(expected), "{kind}: {path}");
    }
}

#[test]
fn selectors_and_references_are_taken_whole() {
    let schemas = Schemas::builtin();
    for (api_version, kind, path) in [
        ("apps/v1", "Deployment", "spec.selector"),
        ("v1", "Pod", "spec.nodeSelector"),
        ("v1", "Service", "spec.selector"),
        ("v1", "ReplicationController", "spec.selector"),
        ("policy/v1", "PodDisruptionBudget", "spec.selector"),
        ("v1", "Pod", "spec.containers.[].env.[].valueFrom.secretKeyRef"),
        ("v1", "PersistentVolume", "spec.nodeAffinity.required"),
        ("v1", "Event", "involvedObject"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", "roleRef"),
        ("autoscaling/v1", "HorizontalPodAutoscaler", "spec.scaleTargetRef"),
        ("networking.k8s.io/v1", "Ingress", "spec.defaultBackend.service.port"),
    ] {
        assert!(node(&schemas, api_version, kind, path).is_atomic(), "{kind}: {path}");
    }
    // A reference that is explicitly granular, and maps without a declared type.
    for (kind, path) in [("PersistentVolume", "spec.claimRef"), ("ConfigMap", "data"), ("ConfigMap", "metadata.labels")]
    {
        let node = node(&schemas, "v1", kind, path);
        assert!(!node.is_atomic() && node.list().is_none(), "{kind}: {path}");
    }
}

#[test]
fn what_kubernetes_replaces_or_discriminates_is_whole() {
    let schemas = Schemas::builtin();
    for (api_version, kind, path) in [
        ("v1", "Pod", "spec.volumes.[]"),
        ("v1", "Pod", "spec.resourceClaims.[]"),
        ("apps/v1", "Deployment", "spec.template.spec.volumes.[]"),
        ("apps/v1", "Deployment", "spec.strategy"),
        ("apps/v1", "DaemonSet", "spec.updateStrategy"),
        ("apps/v1", "StatefulSet", "spec.updateStrategy"),
        ("v1", "Pod", "spec.securityContext.seccompProfile"),
        ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", "spec"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "spec.conversion"),
    ] {
        assert!(node(&schemas, api_version, kind, path).is_whole(), "{kind}: {path}");
    }
    for path in ["spec", "spec.volumes", "spec.containers.[]", "spec.securityContext"] {
        assert!(!node(&schemas, "v1", "Pod", path).is_whole(), "{path}");
    }
    // Fields of whole objects are known, for a change of only one side.
    let volume = node(&schemas, "v1", "Pod", "spec.volumes.[]");
    assert_eq!(find(volume, "projected.sources").and_then(|list| list.list()), Some(ListKind::Atomic));
}

#[test]
fn exclusive_fields_are_known() {
    let schemas = Schemas::builtin();
    let container = node(&schemas, "v1", "Pod", "spec.containers.[]");
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.field(probe).expect("known");
        assert_eq!(unions(probe), [["exec", "grpc", "httpGet", "tcpSocket"]]);
    }
    for (path, expected) in [
        ("lifecycle.preStop", &[&["exec", "httpGet", "sleep", "tcpSocket"][..]][..]),
        ("env.[]", &[&["value", "valueFrom"]]),
        ("volumeMounts.[]", &[&["subPath", "subPathExpr"]]),
    ] {
        assert_eq!(unions(find(container, path).expect("known")), expected, "{path}");
    }
    for (api_version, kind, path, expected) in [
        ("policy/v1", "PodDisruptionBudget", "spec", &["maxUnavailable", "minAvailable"][..]),
        ("networking.k8s.io/v1", "Ingress", "spec.defaultBackend", &["resource", "service"]),
        ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", "spec", &["exempt", "limited"]),
        (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "webhooks.[].clientConfig",
            &["service", "url"],
        ),
    ] {
        assert_eq!(unions(node(&schemas, api_version, kind, path)), [expected], "{kind}: {path}");
    }
}

#[test]
fn sources_of_volumes_exclude_one_another_and_nothing_else() {
    let schemas = Schemas::builtin();
    for (kind, path, without, with) in [
        ("Pod", "spec.volumes.[]", "name", ["configMap", "csi", "emptyDir", "image", "secret"]),
        ("PersistentVolume", "spec", "capacity", ["csi", "fc", "hostPath", "local", "nfs"]),
    ] {
        let groups = unions(node(&schemas, "v1", kind, path));
        let [group] = &groups[..] else { panic!("one group: {groups:?}") };
        assert!(with.iter().all(|source| group.contains(source)), "{group:?}");
        assert!(!group.contains(&without), "{group:?}");
    }
}

#[test]
fn the_shape_of_every_field_is_known() {
    let schemas = Schemas::builtin();
    for (api_version, kind, path, shape) in [
        ("v1", "ConfigMap", "data.any-key", Shape::String),
        ("v1", "ConfigMap", "binaryData.any-key", Shape::Bytes),
        ("v1", "ConfigMap", "immutable", Shape::Boolean),
        ("v1", "Pod", "spec.containers.[].ports.[].containerPort", Shape::Int32),
        ("v1", "Pod", "spec.containers.[].resources.limits.cpu", Shape::Quantity),
        ("v1", "Pod", "spec.containers.[].livenessProbe.httpGet.port", Shape::IntOrString),
        ("v1", "Pod", "spec.containers.[].args", Shape::List),
        ("v1", "Pod", "spec.containers.[].args.[]", Shape::String),
        ("v1", "Pod", "spec.tolerations.[].tolerationSeconds", Shape::Int64),
        ("v1", "Pod", "metadata", Shape::Object),
        ("v1", "Pod", "metadata.creationTimestamp", Shape::Time),
        ("v1", "Pod", "metadata.managedFields.[].fieldsV1", Shape::Any),
        ("coordination.k8s.io/v1", "Lease", "spec.renewTime", Shape::MicroTime),
        ("apps/v1", "ControllerRevision", "data", Shape::Any),
        ("v1", "PersistentVolume", "spec.claimRef.name", Shape::String),
    ] {
        assert_eq!(node(&schemas, api_version, kind, path).shape(), shape, "{kind}: {path}");
    }
    let pod = schemas.of("v1", "Pod").expect("known");
    assert!(find(pod, "spec.no-such-field").is_none());
}

#[test]
fn folders_are_those_of_kube_apiserver() {
    let schemas = Schemas::builtin();
    for (path, components, kind, is_namespaced) in [
        ("deployments/default/web", 1, ("apps", "Deployment"), true),
        ("services/specs/default/web", 2, ("", "Service"), true),
        ("services/endpoints/default/web", 2, ("", "Endpoints"), true),
        ("minions/a", 1, ("", "Node"), false),
        ("ingress/default/a", 1, ("networking.k8s.io", "Ingress"), true),
        ("apiregistration.k8s.io/apiservices/v1.", 2, ("apiregistration.k8s.io", "APIService"), false),
        ("leases/kube-system/a", 1, ("coordination.k8s.io", "Lease"), true),
    ] {
        let (folder, taken) = schemas.folder(path).unwrap_or_else(|| panic!("{path} is known"));
        assert_eq!((taken, folder.is_namespaced), (components, is_namespaced), "{path}");
        let (group, name) = kind;
        assert_eq!(folder.kinds, [(group.to_owned(), name.to_owned())], "{path}");
        let (of_kind, _) = schemas.folder_of(group, name).expect("known");
        assert!(path.starts_with(of_kind), "{path} {of_kind}");
    }
    for path in ["README.md", "deployments", "services/other/a", "masterleases/1", "nodes/a", ""] {
        assert!(schemas.folder(path).is_none(), "{path}");
    }
    assert_eq!(schemas.versions("autoscaling", "HorizontalPodAutoscaler"), ["autoscaling/v1", "autoscaling/v2"]);
    assert!(schemas.folder_of("authentication.k8s.io", "TokenReview").is_none());
}

#[test]
fn defaults_of_keys_are_known() {
    let schemas = Schemas::builtin();
    for (kind, path) in [("Service", "spec.ports"), ("Pod", "spec.containers.[].ports")] {
        assert_eq!(node(&schemas, "v1", kind, path).key_default("protocol"), Some("\"TCP\""), "{kind}");
    }
}
