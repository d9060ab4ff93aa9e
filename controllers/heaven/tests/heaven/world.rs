//! A namespace with a manager that sets up heavens in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::oneshot;
use trishanku_api::{GROUP, TrishankuHeaven, VERSION, definitions};
use trishanku_framework::Manager;
use trishanku_framework::cache::Scope;
use trishanku_heaven::{Settings, controller};
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_testkit::{TestCluster, audit, wait};

pub(crate) struct World {
    pub(crate) cluster: &'static TestCluster,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    now: Arc<Mutex<OffsetDateTime>>,
    own: OwnNamespace,
    running: Option<(oneshot::Sender<()>, tokio::task::JoinHandle<()>)>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let cluster = TestCluster::shared().await;
        let client = cluster.client();
        definitions().apply(&client, "trishanku-manager").await.unwrap();
        let namespace = cluster.namespace("heaven").await;
        let now = Arc::new(Mutex::new(OffsetDateTime::now_utc()));
        let own = OwnNamespace::default();
        let mut world = Self { cluster, client, namespace, now, own, running: None };
        world.start();
        world
    }

    /// Makes the namespace that of the manager.
    pub(crate) async fn becomes_own(&mut self) {
        self.stop().await;
        self.own = OwnNamespace::refused(self.namespace.clone());
        self.start();
    }

    /// Starts a manager for this namespace only.
    pub(crate) fn start(&mut self) {
        let manager = Manager::with_scope(self.cluster.config(), Scope::namespaces([self.namespace.clone()]));
        let now = self.now.clone();
        let (own_namespace, clock) = (self.own.clone(), Arc::new(move || *now.lock()));
        let controller = controller(Settings { own_namespace, clock, ..Settings::default() });
        let (stop, stopped) = oneshot::channel::<()>();
        let run = manager.controller(controller).run(async { drop(stopped.await) });
        self.running = Some((stop, tokio::spawn(async { run.await.unwrap() })));
    }

    pub(crate) async fn stop(&mut self) {
        let (stop, task) = self.running.take().unwrap();
        drop(stop);
        task.await.unwrap();
    }

    pub(crate) fn move_clock(&self, by: Duration) {
        *self.now.lock() += by;
    }

    pub(crate) fn now(&self) -> OffsetDateTime {
        *self.now.lock()
    }

    pub(crate) fn heavens(&self) -> Api<TrishankuHeaven> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Applies a manifest, as a user does.
    pub(crate) async fn apply(&self, name: &str, spec: &Value) -> TrishankuHeaven {
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "TrishankuHeaven", "metadata": {"name": name}, "spec": spec,
        });
        let parameters = PatchParams::apply("user").force();
        self.heavens().patch(name, &parameters, &Patch::Apply(object)).await.unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> TrishankuHeaven {
        self.heavens().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Waits until a condition has this status and reason for the present generation.
    pub(crate) async fn is(&self, name: &str, of: &str, status: &str, reason: &str) -> Condition {
        let look = async || {
            let heaven = self.heavens().get(name).await.map_err(|error| error.to_string())?;
            let found = condition(&heaven, of).filter(|found| {
                (found.status.as_str(), found.reason.as_str()) == (status, reason)
                    && found.observed_generation == heaven.metadata.generation
            });
            found.cloned().ok_or_else(|| format!("{:?}", heaven.status))
        };
        wait::until(format!("{of}={status} {reason} of {name}"), look).await.unwrap()
    }

    pub(crate) async fn secret(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let secret = wait::until_object(&self.secrets(), name, "it exists", |_: &Secret| true).await.unwrap();
        secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
    }

    /// Creates a Secret of a user.
    pub(crate) async fn supply(&self, name: &str, values: &[(&str, &str)]) {
        let values: BTreeMap<_, _> = values.iter().copied().collect();
        let secret = json!({"metadata": {"name": name}, "stringData": values});
        self.secrets().create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    pub(crate) async fn names<K>(&self, api: &Api<K>) -> Vec<String>
    where
        K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let all = api.list(&kube::api::ListParams::default()).await.unwrap();
        all.items.iter().map(kube::ResourceExt::name_any).filter(|name| name != "kube-root-ca.crt").collect()
    }

    /// All writes to the namespace.
    pub(crate) fn writes(&self) -> Vec<String> {
        let is_here = |entry: &&audit::Entry| entry.is_write() && entry.namespace() == self.namespace;
        let text = |entry: &audit::Entry| format!("{} {}/{}", entry.verb, entry.resource(), entry.name());
        self.cluster.audit().iter().filter(is_here).map(text).collect()
    }

    /// All writes, once a second has passed without another one.
    pub(crate) async fn writes_at_rest(&self) -> Vec<String> {
        let mut known = self.writes();
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.writes();
            if now.len() == known.len() {
                return now;
            }
            known = now;
        }
    }
}

pub(crate) fn condition<'a>(heaven: &'a TrishankuHeaven, of: &str) -> Option<&'a Condition> {
    heaven.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == of)
}

/// The spec of a minimal heaven with an app.
pub(crate) fn spec() -> Value {
    json!({
        "certificates": {"controller": {"userName": "system:app"}},
        "app": {"podTemplate": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}},
    })
}

pub(crate) fn owners(object: &impl kube::Resource) -> Vec<String> {
    object.owner_references().iter().map(|owner| owner.name.clone()).collect()
}
