//! The registration of hooks in the apiserver.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::core::admission::Operation;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use crate::error::chain;
use crate::{ScopeKind, StaticKind};

/// Where the apiserver finds webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookEndpoint {
    pub(super) namespace: String,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Service { name: String, port: u16 },
    Url { host: String, port: u16 },
}

impl WebhookEndpoint {
    /// By a Service, at port 443.
    pub fn service(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), place: Place::Service { name: name.into(), port: 443 } }
    }

    /// At a host and port: for a program outside of the cluster. `namespace` is that of the Secret with the certificates.
    pub fn host(namespace: impl Into<String>, host: impl Into<String>, port: u16) -> Self {
        Self { namespace: namespace.into(), place: Place::Url { host: host.into(), port } }
    }

    /// Sets the port of the Service, or of the host.
    #[must_use]
    pub fn port(mut self, number: u16) -> Self {
        let (Place::Service { port, .. } | Place::Url { port, .. }) = &mut self.place;
        *port = number;
        self
    }

    /// The names in the certificate.
    pub(super) fn names(&self) -> Vec<String> {
        match &self.place {
            Place::Service { name, .. } => {
                let namespace = &self.namespace;
                ["svc", "svc.cluster.local"].map(|suffix| format!("{name}.{namespace}.{suffix}")).to_vec()
            }
            Place::Url { host, .. } => vec![host.clone()],
        }
    }

    fn client_config(&self, path: &str, trust: &str) -> Value {
        let bundle = STANDARD.encode(trust);
        match &self.place {
            Place::Service { name, port } => {
                let service = json!({"namespace": self.namespace, "name": name, "path": path, "port": port});
                json!({"service": service, "caBundle": bundle})
            }
            Place::Url { host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                json!({"url": format!("https://{host}:{port}{path}"), "caBundle": bundle})
            }
        }
    }
}

/// When the apiserver asks, and what it does without an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    pub(super) name: String,
    operations: Vec<Operation>,
    fails: bool,
    timeout: Duration,
    namespaces: Vec<Value>,
    objects: Value,
    subresources: Vec<String>,
}

impl Hook {
    /// A hook for creations and updates, which are refused without an answer within ten seconds. The name is a domain name of at
    /// least three parts, such as `pods.plant.example.org`.
    pub fn named(name: impl Into<String>) -> Self {
        let (name, operations) = (name.into(), vec![Operation::Create, Operation::Update]);
        let timeout = Duration::from_secs(10);
        let (namespaces, objects, subresources) = (Vec::new(), json!({}), Vec::new());
        Self { name, operations, fails: true, timeout, namespaces, objects, subresources }
    }

    /// Sets what is asked about.
    #[must_use]
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = operations.into_iter().collect();
        self
    }

    /// Lets everything pass that is not answered.
    #[must_use]
    pub fn ignoring_failures(mut self) -> Self {
        self.fails = false;
        self
    }

    /// Sets how long the apiserver waits: whole seconds, from 1 to 30.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Selects namespaces by their labels.
    #[must_use]
    pub fn namespaces<N: Into<String>, V: Into<String>>(mut self, labels: impl IntoIterator<Item = (N, V)>) -> Self {
        let one = |(name, value): (N, V)| expression(&name.into(), "In", &[value.into()]);
        self.namespaces.extend(labels.into_iter().map(one));
        self
    }

    /// Selects namespaces that have a label, whatever its value.
    #[must_use]
    pub fn namespaces_with(mut self, label: impl Into<String>) -> Self {
        self.namespaces.push(json!({"key": label.into(), "operator": "Exists"}));
        self
    }

    /// Leaves out these namespaces.
    #[must_use]
    pub fn except_namespaces<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        self.namespaces.push(expression("kubernetes.io/metadata.name", "NotIn", &names));
        self
    }

    /// Asks about these subresources, too, such as `ephemeralcontainers` of pods; by default, only about the objects themselves.
    #[must_use]
    pub fn subresources<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.subresources.extend(names.into_iter().map(Into::into));
        self
    }

    /// Selects objects by their labels.
    #[must_use]
    pub fn objects<N: Into<String>, V: Into<String>>(mut self, labels: impl IntoIterator<Item = (N, V)>) -> Self {
        let labels: BTreeMap<String, String> =
            labels.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self.objects["matchLabels"] = json!(labels);
        self
    }

    /// Leaves out objects whose label has one of these values.
    #[must_use]
    pub fn except_objects<V: Into<String>>(
        mut self,
        label: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let values: Vec<String> = values.into_iter().map(Into::into).collect();
        let expressions = self.objects["matchExpressions"].take();
        let mut expressions = expressions.as_array().cloned().unwrap_or_default();
        expressions.push(expression(&label.into(), "NotIn", &values));
        self.objects["matchExpressions"] = expressions.into();
        self
    }
}

fn expression(label: &str, operator: &str, values: &[String]) -> Value {
    json!({"key": label, "operator": operator, "values": values})
}

/// A hook with its kind and path.
#[derive(Debug)]
pub(super) struct Registered {
    hook: Hook,
    path: String,
    rule: Value,
}

impl Registered {
    pub(super) fn of<K: StaticKind>(hook: Hook, path: String) -> Self {
        let scope = if <K::Scope as ScopeKind>::NAMESPACED { "Namespaced" } else { "Cluster" };
        let plural = K::plural(&());
        let of_subresources = hook.subresources.iter().map(|subresource| format!("{plural}/{subresource}"));
        let resources: Vec<_> = [plural.to_string()].into_iter().chain(of_subresources).collect();
        let rule = json!({
            "apiGroups": [K::group(&())], "apiVersions": [K::version(&())], "resources": resources,
            "operations": hook.operations, "scope": scope,
        });
        Self { hook, path, rule }
    }
}

/// Everything that is registered.
#[derive(Debug)]
pub(super) struct Registration {
    name: String,
    pub(super) endpoint: WebhookEndpoint,
    pub(super) validating: Vec<Registered>,
    pub(super) mutating: Vec<Registered>,
    /// CRDs, and the paths of their conversions.
    pub(super) converting: Vec<(String, String)>,
}

impl Registration {
    pub(super) fn new(name: String, endpoint: WebhookEndpoint) -> Self {
        Self { name, endpoint, validating: Vec::new(), mutating: Vec::new(), converting: Vec::new() }
    }

    /// The name of the configurations, which have no namespace.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.name, self.endpoint.namespace)
    }

    /// The name of the Secret with the certificates.
    pub(super) fn secret(&self) -> String {
        format!("{}-webhooks", self.name)
    }

    fn hooks(&self, registered: &[Registered], trust: &str, is_mutating: bool) -> Vec<Value> {
        let one = |Registered { hook, path, rule }: &Registered| {
            let mut webhook = json!({
                "name": hook.name,
                "clientConfig": self.endpoint.client_config(path, trust),
                "rules": [rule],
                "failurePolicy": if hook.fails { "Fail" } else { "Ignore" },
                "matchPolicy": "Equivalent",
                "sideEffects": "None",
                "timeoutSeconds": hook.timeout.as_secs(),
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchExpressions": hook.namespaces},
                "objectSelector": hook.objects,
            });
            if is_mutating {
                // Another webhook may add what this one has to see.
                webhook["reinvocationPolicy"] = "IfNeeded".into();
            }
            webhook
        };
        registered.iter().map(one).collect()
    }

    /// Applies all configurations. Failures are logged; returns whether there were none.
    pub(super) async fn apply(&self, client: &Client, trust: &str) -> bool {
        let mut all = true;
        let name = self.name();
        let content = |hooks: Vec<Value>| json!({"metadata": {"name": name}, "webhooks": hooks});
        let validating = content(self.hooks(&self.validating, trust, false));
        let mutating = content(self.hooks(&self.mutating, trust, true));
        // An empty one takes back what an earlier version of the program had.
        if !self.validating.is_empty() || !self.mutating.is_empty() {
            all &= self.put::<ValidatingWebhookConfiguration>(client, &name, validating).await;
            all &= self.put::<MutatingWebhookConfiguration>(client, &name, mutating).await;
        }
        for (definition, path) in &self.converting {
            let mut config = json!({"service": null, "url": null});
            // A merge patch leaves what it does not name.
            for (field, value) in self.endpoint.client_config(path, trust).as_object().into_iter().flatten() {
                config[field] = value.clone();
            }
            let webhook = json!({"clientConfig": config, "conversionReviewVersions": ["v1"]});
            let conversion = json!({"strategy": "Webhook", "webhook": webhook});
            let patch = json!({"metadata": {"name": definition}, "spec": {"conversion": conversion}});
            all &= self.merge(client, definition, &patch).await;
        }
        all
    }

    async fn put<K: StaticKind>(&self, client: &Client, name: &str, mut content: Value) -> bool {
        content["apiVersion"] = K::api_version(&()).into();
        content["kind"] = K::kind(&()).into();
        let api: Api<K> = crate::Kind::known().api(client.clone(), None);
        let applied = api.patch(name, &PatchParams::apply(&self.name()).force(), &Patch::Apply(content)).await;
        report(&K::kind(&()), name, &applied)
    }

    /// The definition has another owner, which applies it as a whole.
    async fn merge(&self, client: &Client, name: &str, patch: &Value) -> bool {
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let merged = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        report(&CustomResourceDefinition::kind(&()), name, &merged)
    }
}

fn report<T>(kind: &str, name: &str, written: &kube::Result<T>) -> bool {
    match written {
        Ok(_) => tracing::debug!(kind, name, "registered webhooks"),
        Err(error) => tracing::warn!(kind, name, error = chain(error), "cannot register webhooks"),
    }
    written.is_ok()
}
