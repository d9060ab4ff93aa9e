//! The objects of a cluster: pure functions.

use std::collections::BTreeMap;

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::config::{Config, ConfigError, merged, properties};
use super::kind::{Group, HelloClusterSpec, ListenerClass, Role};

const APPLICATION: &str = "application.properties";
const SECURITY: &str = "security.properties";
const CONFIG: &str = "/stackable/config";
const PORT: u16 = 8080;
/// The `ClusterRole` of the servers, which is installed with the operator.
const CLUSTER_ROLE: &str = "hello-world-clusterrole";

/// What objects are named and labelled by.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The name of the cluster.
    pub cluster: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
}

impl Identity<'_> {
    /// Returns the labels that select the servers of the role, or of one of its groups.
    pub fn selector(self, group: Option<&str>) -> BTreeMap<String, String> {
        let labels = [("name", "hello-world"), ("instance", self.cluster), ("component", "server")];
        let labels = labels.into_iter().chain(group.map(|group| ("role-group", group)));
        labels.map(|(label, value)| (format!("app.kubernetes.io/{label}"), value.to_owned())).collect()
    }

    /// Returns the name of a role group's objects.
    pub fn of_group(self, group: &str) -> String {
        format!("{}-server-{group}", self.cluster)
    }

    /// Returns the metadata of an object.
    fn metadata(self, name: &str, group: &str, version: &str) -> Value {
        let mut labels = self.selector(Some(group));
        labels.insert("app.kubernetes.io/version".to_owned(), version.to_owned());
        labels.insert("app.kubernetes.io/managed-by".to_owned(), super::NAME.to_owned());
        json!({"name": name, "labels": labels})
    }
}

/// The objects of the role as a whole.
#[derive(Clone, Debug)]
pub struct RoleObjects {
    /// Where clients find the servers.
    pub service: Service,
    /// The account of the servers.
    pub account: ServiceAccount,
    /// The permissions of the account.
    pub binding: RoleBinding,
    /// How many servers may be down.
    pub budget: Option<PodDisruptionBudget>,
}

/// The objects of a role group.
#[derive(Clone, Debug)]
pub struct GroupObjects {
    /// The names of the servers.
    pub service: Service,
    /// Their configuration.
    pub map: ConfigMap,
    /// The servers.
    pub servers: StatefulSet,
}

/// Makes an object from a manifest of this file.
fn object<K: DeserializeOwned>(manifest: Value) -> K {
    serde_json::from_value(manifest).expect("the manifest has the fields of its kind")
}

fn ports() -> Value {
    json!([{"name": "http", "port": PORT, "protocol": "TCP"}])
}

/// Returns the objects of the role as a whole.
pub fn role_objects(identity: Identity<'_>, spec: &HelloClusterSpec, role: &Role) -> RoleObjects {
    let Identity { cluster, namespace } = identity;
    let metadata = |name: &str| identity.metadata(name, "global", &spec.image.product_version);
    let account = format!("{cluster}-serviceaccount");
    let service_type = match spec.cluster_config.listener_class {
        ListenerClass::ClusterInternal => "ClusterIP",
        ListenerClass::ExternalUnstable => "NodePort",
        ListenerClass::ExternalStable => "LoadBalancer",
    };
    let budget = role.role_config.pod_disruption_budget;
    RoleObjects {
        service: object(json!({
            "metadata": metadata(cluster),
            "spec": {"type": service_type, "ports": ports(), "selector": identity.selector(None)},
        })),
        account: object(json!({"metadata": metadata(&account)})),
        binding: object(json!({
            "metadata": metadata(&format!("{cluster}-rolebinding")),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CLUSTER_ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        })),
        budget: budget.enabled.then(|| {
            object(json!({
                "metadata": metadata(&format!("{cluster}-server")),
                "spec": {
                    "maxUnavailable": budget.max_unavailable.unwrap_or(1),
                    "selector": {"matchLabels": identity.selector(None)},
                },
            }))
        }),
    }
}

/// Returns the objects of a role group.
///
/// # Errors
/// [`ConfigError`].
pub fn group_objects(
    identity: Identity<'_>,
    spec: &HelloClusterSpec,
    role: &Role,
    (group, settings): (&str, &Group),
) -> Result<GroupObjects, ConfigError> {
    let (name, selector) = (identity.of_group(group), identity.selector(Some(group)));
    let config = merged(&identity.selector(None), &role.common.config, (group, &settings.common.config))?;
    let metadata = || identity.metadata(&name, group, &spec.image.product_version);
    let mut servers: StatefulSet = object(json!({
        "metadata": metadata(),
        "spec": {
            "podManagementPolicy": "Parallel",
            "replicas": if spec.cluster_operation.stopped { Some(0) } else { settings.replicas },
            "selector": {"matchLabels": selector},
            "serviceName": name,
            "template": {},
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": config.resources.storage.data.storage_class,
                    "resources": {"requests": {"storage": config.resources.storage.data.capacity}},
                },
            }],
        },
    }));
    let mut template = pod(identity, spec, role, (group, settings), &config)?;
    for overrides in [&role.common.pod_overrides, &settings.common.pod_overrides] {
        template.merge_from(overrides.clone());
    }
    servers.spec.get_or_insert_default().template = template;
    Ok(GroupObjects {
        service: object(json!({
            "metadata": metadata(),
            "spec": {
                "type": "ClusterIP", "clusterIP": "None", "ports": ports(), "selector": selector,
                "publishNotReadyAddresses": true,
            },
        })),
        map: object(json!({
            "metadata": metadata(),
            "data": {
                APPLICATION: properties(&file(APPLICATION, greeting(spec), role, settings)),
                SECURITY: properties(&file(SECURITY, BTreeMap::new(), role, settings)),
            },
        })),
        servers,
    })
}

fn greeting(spec: &HelloClusterSpec) -> BTreeMap<String, String> {
    let port = PORT.to_string();
    let properties = [
        ("greeting.recipient", spec.recipient.as_str()),
        ("greeting.color", spec.color.as_str()),
        ("server.port", port.as_str()),
    ];
    properties.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the properties of a file, with the overrides of the role, and then of the group.
fn file(
    name: &str,
    mut properties: BTreeMap<String, String>,
    role: &Role,
    settings: &Group,
) -> BTreeMap<String, String> {
    for overrides in [&role.common, &settings.common] {
        properties.extend(overrides.config_overrides.get(name).cloned().unwrap_or_default());
    }
    properties
}

/// Returns the pods of a role group, without the overrides.
fn pod(
    identity: Identity<'_>,
    spec: &HelloClusterSpec,
    role: &Role,
    (group, settings): (&str, &Group),
    config: &Config,
) -> Result<PodTemplateSpec, ConfigError> {
    let version = &spec.image.product_version;
    let image = spec.image.custom.clone().unwrap_or_else(|| format!("oci.stackable.tech/sdp/hello-world:{version}"));
    let mut environment = role.common.env_overrides.clone();
    environment.extend(settings.common.env_overrides.clone());
    let environment: Vec<_> =
        environment.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let (cpu, memory) = (&config.resources.cpu, &config.resources.memory.limit);
    let probe = |delay: u8, failures: u8| json!({"initialDelaySeconds": delay, "periodSeconds": 10, "failureThreshold": failures, "tcpSocket": {"port": "http"}});
    let mut metadata = identity.metadata("", group, version);
    metadata.as_object_mut().and_then(|metadata| metadata.remove("name"));
    Ok(object(json!({
        "metadata": metadata,
        "spec": {
            "serviceAccountName": format!("{}-serviceaccount", identity.cluster),
            "terminationGracePeriodSeconds": config.seconds_to_stop(group)?,
            "affinity": config.affinity,
            "containers": [{
                "name": "hello-world",
                "image": image,
                // Java is the first process, and so gets SIGTERM.
                "command": ["java", format!("-Djava.security.properties={CONFIG}/{SECURITY}"), "-Xmx100M", "-jar", "hello-world.jar"],
                "env": environment,
                "ports": [{"name": "http", "containerPort": PORT}],
                "resources": {"requests": {"cpu": cpu.min, "memory": memory}, "limits": {"cpu": cpu.max, "memory": memory}},
                "readinessProbe": probe(10, 5),
                "livenessProbe": probe(30, 3),
                "volumeMounts": [{"name": "config", "mountPath": CONFIG}],
            }],
            "volumes": [{"name": "config", "configMap": {"name": identity.of_group(group)}}],
        },
    })))
}
