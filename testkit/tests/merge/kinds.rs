//! The kinds of the test, and the fields that are edited.

use serde_json::{Value, json};

use crate::edits::Edit;

/// A field, and the values that edits give to it.
pub(crate) type Field = (&'static str, Vec<Value>);

#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) api_version: &'static str,
    #[expect(clippy::struct_field_names, reason = "as in objects")]
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    /// A minimal object, without name and namespace.
    pub(crate) seed: Value,
    pub(crate) fields: Vec<Field>,
    /// Fields that are edited through the status subresource.
    pub(crate) status: Vec<Field>,
    pub(crate) scale: bool,
}

impl Kind {
    fn new(api_version: &'static str, kind: &'static str, plural: &'static str, seed: Value) -> Self {
        Self { api_version, kind, plural, seed, fields: Vec::new(), status: Vec::new(), scale: false }
    }

    fn edits(mut self, fields: impl IntoIterator<Item = Field>) -> Self {
        self.fields.extend(fields);
        self
    }

    fn statuses(mut self, fields: impl IntoIterator<Item = Field>) -> Self {
        self.status.extend(fields);
        self
    }

    fn scaled(mut self) -> Self {
        self.scale = true;
        self
    }

    /// Returns the API path of an object.
    pub(crate) fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let collection = format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural);
        if name.is_empty() { collection } else { format!("{collection}/{name}") }
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.api_version == "oracle.example/v1"
    }

    /// Returns the seed with these edits and a name.
    pub(crate) fn object(&self, name: &str, edits: &[Edit]) -> Value {
        let mut object = self.seed.clone();
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.kind);
        if object["metadata"].is_null() {
            object["metadata"] = json!({});
        }
        object["metadata"]["name"] = json!(name);
        edits.iter().for_each(|edit| edit.apply(&mut object));
        object
    }
}

/// Returns the fields of every kind.
pub(crate) fn metadata() -> Vec<Field> {
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
    vec![
        ("metadata labels a", values(["1", "2", "3"])),
        ("metadata labels b", values(["1", "2", "3"])),
        ("metadata annotations a", values(["1", "2", "3"])),
        ("metadata annotations b", values(["1", "2", ""])),
        ("metadata finalizers =oracle.example/a", vec![json!(true)]),
        ("metadata finalizers =oracle.example/b", vec![json!(true)]),
        ("metadata ownerReferences uid=00000000-0000-4000-8000-000000000001", vec![owner("one")]),
        ("metadata ownerReferences uid=00000000-0000-4000-8000-000000000002", vec![owner("two")]),
    ]
}

fn values<const N: usize>(texts: [&str; N]) -> Vec<Value> {
    texts.map(Value::from).to_vec()
}

fn numbers<const N: usize>(numbers: [i64; N]) -> Vec<Value> {
    numbers.map(Value::from).to_vec()
}

fn condition(status: &str, time: &str) -> Value {
    json!({"status": status, "reason": "Said", "message": time, "lastTransitionTime": format!("2001-01-01T00:00:{time}Z")})
}

fn conditions() -> Vec<Value> {
    vec![condition("True", "01"), condition("False", "02"), condition("True", "03")]
}

/// The fields of a pod spec at `prefix`.
macro_rules! template {
    ($prefix:literal) => {
        [
            (concat!($prefix, " containers name=web image"), values(["web:1", "web:2", "web:3"])),
            (concat!($prefix, " containers name=web command"), vec![json!(["a"]), json!(["b", "c"])]),
            (concat!($prefix, " containers name=web env name=A"), vec![json!({"value": "1"}), json!({"value": "2"})]),
            (concat!($prefix, " containers name=web env name=B"), vec![json!({"value": "1"}), json!({"value": "2"})]),
            (
                concat!($prefix, " containers name=web ports containerPort=80,protocol=TCP"),
                vec![json!({"name": "http"}), json!({"name": "web"})],
            ),
            (
                concat!($prefix, " containers name=web ports containerPort=53,protocol=UDP"),
                vec![json!({"name": "dns"}), json!({})],
            ),
            (
                concat!($prefix, " containers name=web resources requests cpu"),
                vec![json!("100m"), json!("1"), json!("2")],
            ),
            (concat!($prefix, " containers name=web resources limits cpu"), vec![json!("2"), json!("3")]),
            (
                concat!($prefix, " containers name=web livenessProbe"),
                vec![
                    json!({"httpGet": {"path": "/", "port": 80}}),
                    json!({"tcpSocket": {"port": 80}}),
                    json!({"exec": {"command": ["x"]}}),
                ],
            ),
            (concat!($prefix, " containers name=side"), vec![json!({"image": "side:1"}), json!({"image": "side:2"})]),
            (concat!($prefix, " initContainers name=init"), vec![json!({"image": "i:1"}), json!({"image": "i:2"})]),
            (
                concat!($prefix, " volumes name=v"),
                vec![json!({"emptyDir": {}}), json!({"configMap": {"name": "m"}}), json!({"secret": {"secretName": "s"}})],
            ),
            (concat!($prefix, " nodeSelector a"), values(["1", "2"])),
            (concat!($prefix, " serviceAccountName"), values(["one", "two"])),
            (
                concat!($prefix, " tolerations"),
                vec![json!([{"key": "a", "operator": "Exists"}]), json!([{"key": "b", "operator": "Exists"}])],
            ),
            (concat!($prefix, " hostNetwork"), vec![json!(true)]),
        ]
    };
}

fn pods(restart: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"restartPolicy": restart, "containers": [{"name": "web", "image": "web:0"}]}})
}

/// Returns the kinds, starting with the simplest.
#[expect(clippy::too_many_lines, reason = "this is a table")]
pub(crate) fn kinds() -> Vec<Kind> {
    let selector = json!({"matchLabels": {"app": "web"}});
    let mut kinds = vec![
        Kind::new("v1", "ConfigMap", "configmaps", json!({"data": {"z": "0"}})).edits([
            ("data a", values(["1", "2", "3"])),
            ("data b", values(["1", "2", "3"])),
            ("data c", values(["1", "yes", "null"])),
            ("binaryData a", values(["AQ==", "Ag=="])),
            ("binaryData d", values(["AQ==", "Ag=="])),
            ("immutable", vec![json!(true)]),
        ]),
        Kind::new("v1", "Secret", "secrets", json!({"type": "Opaque"})).edits([
            ("data a", values(["AQ==", "Ag==", "Aw=="])),
            ("data b", values(["AQ==", "Ag=="])),
            ("stringData c", values(["1", "2"])),
        ]),
        Kind::new("v1", "ServiceAccount", "serviceaccounts", json!({})).edits([
            ("imagePullSecrets name=a", vec![json!({})]),
            ("imagePullSecrets name=b", vec![json!({})]),
            ("secrets name=a", vec![json!({})]),
            ("automountServiceAccountToken", vec![json!(true), json!(false)]),
        ]),
        Kind::new("rbac.authorization.k8s.io/v1", "Role", "roles", json!({"rules": []})).edits([(
            "rules",
            vec![
                json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
                json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]),
                json!([]),
            ],
        )]),
        Kind::new("v1", "Service", "services", json!({"spec": {"ports": [{"port": 80, "name": "http", "protocol": "TCP"}]}}))
            .edits([
                ("spec ports port=80,protocol=TCP targetPort", vec![json!(8080), json!("web"), json!(81)]),
                ("spec ports port=443,protocol=TCP", vec![json!({"name": "https"}), json!({"name": "tls", "targetPort": 8443})]),
                ("spec ports port=53,protocol=UDP", vec![json!({"name": "dns"})]),
                ("spec selector a", values(["1", "2"])),
                ("spec selector b", values(["1", "2"])),
                ("spec type", values(["ClusterIP", "NodePort", "LoadBalancer"])),
                ("spec sessionAffinity", values(["ClientIP", "None"])),
                ("spec externalIPs", vec![json!(["192.0.2.1"]), json!(["192.0.2.2"])]),
                ("spec internalTrafficPolicy", values(["Local", "Cluster"])),
            ])
            .statuses([
                ("status loadBalancer ingress", vec![json!([{"ip": "192.0.2.1"}]), json!([{"ip": "192.0.2.2"}])]),
                ("status conditions type=Fine", conditions()),
            ]),
        Kind::new(
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "oracle", "resources": {"requests": {"storage": "1Gi"}}}}),
        )
        .edits([
            ("spec volumeName", values(["pv-1", "pv-2"])),
            ("metadata annotations volume.kubernetes.io/selected-node", values(["n1", "n2"])),
            ("metadata finalizers =kubernetes.io/pvc-protection", vec![json!(true)]),
        ])
        .statuses([
            ("status phase", values(["Pending", "Bound", "Lost"])),
            ("status capacity storage", values(["1Gi", "2Gi"])),
            ("status conditions type=Resizing", conditions()),
        ]),
        Kind::new("apps/v1", "Deployment", "deployments", json!({"spec": {"selector": selector, "template": pods("Always")}}))
            .edits(template!("spec template spec"))
            .edits([
                ("spec replicas", numbers([0, 2, 3])),
                ("spec paused", vec![json!(true)]),
                ("spec minReadySeconds", numbers([1, 2])),
                ("spec strategy", vec![json!({"type": "Recreate"}), json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}})]),
                ("spec template metadata labels a", values(["1", "2"])),
                ("spec template metadata annotations a", values(["1", "2"])),
            ])
            .statuses([
                ("status replicas", numbers([1, 2])),
                ("status updatedReplicas", numbers([1])),
                ("status observedGeneration", numbers([1, 2])),
                ("status conditions type=Available", conditions()),
                ("status conditions type=Progressing", conditions()),
            ])
            .scaled(),
        Kind::new(
            "apps/v1",
            "StatefulSet",
            "statefulsets",
            json!({"spec": {"selector": selector, "serviceName": "web", "template": pods("Always")}}),
        )
        .edits(template!("spec template spec"))
        .edits([
            ("spec replicas", numbers([0, 2, 3])),
            ("spec updateStrategy", vec![json!({"type": "OnDelete"}), json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}})]),
            ("spec persistentVolumeClaimRetentionPolicy whenScaled", values(["Delete", "Retain"])),
        ])
        .statuses([
            ("status replicas", numbers([1, 2])),
            ("status currentRevision", values(["web-1", "web-2"])),
            ("status conditions type=Odd", conditions()),
        ])
        .scaled(),
        Kind::new("apps/v1", "DaemonSet", "daemonsets", json!({"spec": {"selector": selector, "template": pods("Always")}}))
            .edits(template!("spec template spec"))
            .edits([("spec updateStrategy", vec![json!({"type": "OnDelete"}), json!({"type": "RollingUpdate"})])])
            .statuses([("status numberReady", numbers([1, 2])), ("status conditions type=Odd", conditions())]),
        Kind::new("apps/v1", "ReplicaSet", "replicasets", json!({"spec": {"selector": selector, "template": pods("Always")}}))
            .edits(template!("spec template spec"))
            .edits([("spec replicas", numbers([0, 2, 3]))])
            .statuses([("status replicas", numbers([1, 2])), ("status conditions type=ReplicaFailure", conditions())])
            .scaled(),
        Kind::new("batch/v1", "Job", "jobs", json!({"spec": {"template": pods("Never")}}))
            .edits([
                ("spec parallelism", numbers([0, 2, 3])),
                ("spec suspend", vec![json!(true), json!(false)]),
                ("spec activeDeadlineSeconds", numbers([10, 20])),
                ("spec ttlSecondsAfterFinished", numbers([10, 20])),
            ])
            .statuses([
                ("status active", numbers([1, 2])),
                ("status startTime", values(["2001-01-01T00:00:00Z"])),
                ("status uncountedTerminatedPods", vec![json!({})]),
            ]),
        Kind::new("batch/v1", "CronJob", "cronjobs", json!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": pods("Never")}}}}))
            .edits(template!("spec jobTemplate spec template spec"))
            .edits([
                ("spec schedule", values(["1 1 1 1 *", "2 2 2 2 *"])),
                ("spec suspend", vec![json!(true), json!(false)]),
                ("spec timeZone", values(["Etc/UTC", "Asia/Kolkata"])),
            ])
            .statuses([("status lastScheduleTime", values(["2001-01-01T00:00:00Z", "2001-01-02T00:00:00Z"]))]),
        Kind::new("v1", "Pod", "pods", json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:0"}]}}))
            .edits([
                ("spec containers name=web image", values(["web:1", "web:2"])),
                ("spec activeDeadlineSeconds", numbers([10, 20])),
                ("spec terminationGracePeriodSeconds", numbers([1])),
            ])
            .statuses([
                ("status phase", values(["Running", "Failed", "Succeeded"])),
                ("status podIPs ip=192.0.2.1", vec![json!({})]),
                ("status conditions type=Ready", conditions()),
                ("status conditions type=Initialized", conditions()),
                ("status message", values(["one", "two"])),
            ]),
        Kind::new("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", json!({"spec": {"selector": selector}}))
            .edits([
                ("spec minAvailable", vec![json!(1), json!("50%")]),
                ("spec maxUnavailable", vec![json!(1), json!("50%")]),
                ("spec unhealthyPodEvictionPolicy", values(["AlwaysAllow", "IfHealthyBudget"])),
            ])
            .statuses([("status disruptionsAllowed", numbers([1, 2])), ("status conditions type=Fine", conditions())]),
        Kind::new(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
        )
        .edits([
            ("spec minReplicas", numbers([2, 3])),
            ("spec maxReplicas", numbers([6, 7])),
            ("spec scaleTargetRef name", values(["one", "two"])),
            ("spec behavior scaleDown stabilizationWindowSeconds", numbers([10, 20])),
        ])
        .statuses([("status currentReplicas", numbers([1, 2])), ("status desiredReplicas", numbers([1, 2]))]),
        Kind::new("networking.k8s.io/v1", "Ingress", "ingresses", json!({"spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}}))
            .edits([
                ("spec defaultBackend service name", values(["one", "two"])),
                ("spec defaultBackend service port", vec![json!({"number": 81}), json!({"name": "http"})]),
                ("spec ingressClassName", values(["one", "two"])),
                ("spec tls", vec![json!([{"hosts": ["a.example"]}]), json!([{"hosts": ["b.example"]}])]),
            ])
            .statuses([("status loadBalancer ingress", vec![json!([{"ip": "192.0.2.1"}]), json!([{"hostname": "a.example"}])])]),
        Kind::new("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", json!({"spec": {"podSelector": {}}})).edits([
            ("spec podSelector matchLabels a", values(["1", "2"])),
            ("spec policyTypes", vec![json!(["Ingress"]), json!(["Egress"])]),
            ("spec ingress", vec![json!([{}]), json!([{"ports": [{"port": 80, "protocol": "TCP"}]}])]),
        ]),
        Kind::new("v1", "ResourceQuota", "resourcequotas", json!({"spec": {"hard": {"count/things.oracle.example": "9"}}}))
            .edits([("spec hard count/a.oracle.example", values(["1", "2"])), ("spec hard count/b.oracle.example", values(["1", "2"]))])
            .statuses([("status hard count/a.oracle.example", values(["1", "2"])), ("status used count/a.oracle.example", values(["1", "2"]))]),
        Kind::new("coordination.k8s.io/v1", "Lease", "leases", json!({"spec": {"leaseDurationSeconds": 15}})).edits([
            ("spec holderIdentity", values(["one", "two"])),
            ("spec renewTime", values(["2001-01-01T00:00:01.000000Z", "2001-01-01T00:00:02.000000Z"])),
            ("spec leaseTransitions", numbers([1, 2])),
        ]),
        Kind::new(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": [], "ports": []}),
        )
        .edits([
            ("endpoints", vec![json!([{"addresses": ["192.0.2.1"]}]), json!([{"addresses": ["192.0.2.2"]}])]),
            ("ports", vec![json!([{"name": "a", "port": 80, "protocol": "TCP"}]), json!([{"name": "b", "port": 81, "protocol": "TCP"}])]),
        ]),
        Kind::new("oracle.example/v1", "Thing", "things", json!({"spec": {"size": 1}}))
            .edits([
                ("spec size", numbers([2, 3])),
                ("spec colour", values(["red", "blue"])),
                ("spec parts name=a size", numbers([1, 2])),
                ("spec parts name=b size", numbers([1, 2])),
                ("spec tags =one", vec![json!(true)]),
                ("spec tags =two", vec![json!(true)]),
                ("spec options a", values(["1", "2"])),
                ("spec options b", values(["1", "2"])),
                ("spec steps", vec![json!(["a"]), json!(["b", "c"])]),
                ("spec target", vec![json!({"a": "1"}), json!({"b": "2"})]),
            ])
            .statuses([
                ("status size", numbers([1, 2])),
                ("status observedGeneration", numbers([1, 2])),
                ("status conditions type=Ready", conditions()),
            ])
            .scaled(),
    ];
    for kind in &mut kinds {
        kind.fields.extend(metadata());
    }
    kinds
}

/// Returns the definition of a kind with lists of every type, a status and a scale.
pub(crate) fn definition() -> Value {
    let condition = json!({"type": "object", "required": ["type"], "properties": {
        "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
        "message": {"type": "string"}, "lastTransitionTime": {"type": "string", "format": "date-time"}}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "colour": {"type": "string"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "options": {"type": "object", "additionalProperties": {"type": "string"}},
            "steps": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
            "target": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}}}},
        "status": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "observedGeneration": {"type": "integer"},
            "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": condition}}}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.oracle.example"},
        "spec": {"group": "oracle.example", "scope": "Namespaced", "versions": [version],
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"}}})
}
