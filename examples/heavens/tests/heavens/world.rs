//! A namespace with a manager that sets up heavens of one kind.

use kube::api::{Api, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, CustomResourceExt, Resource};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use trishanku_framework::Manager;
use trishanku_framework::cache::Scope;
use trishanku_framework::crd::Definitions;
use trishanku_heaven::{HeavenKind, Settings, heavens};
use trishanku_testkit::{TestCluster, wait};

pub(crate) struct World<K: HeavenKind> {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) heavens: Api<K>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl<K: HeavenKind + CustomResourceExt + Resource<Scope = NamespaceResourceScope>> World<K> {
    pub(crate) async fn new(controller: &'static str) -> Self {
        let cluster = TestCluster::shared().await;
        let client = cluster.client();
        // Of the repositories that heavens follow, too.
        trishanku_api::definitions().apply(&client, "trishanku-manager").await.unwrap();
        Definitions::of::<K>().apply(&client, "test").await.unwrap();
        let namespace = cluster.namespace("heavens").await;
        let manager = Manager::with_scope(cluster.config(), Scope::namespaces([namespace.clone()]));
        let (stop, stopped) = oneshot::channel::<()>();
        let run = manager.controller(heavens::<K>(controller, Settings::default())).run(async { drop(stopped.await) });
        let running = tokio::spawn(async { run.await.unwrap() });
        Self { heavens: Api::namespaced(client.clone(), &namespace), client, namespace, stop, running }
    }

    pub(crate) async fn apply(&self, name: &str, spec: Value) {
        let (api_version, kind) = (K::api_version(&()), K::kind(&()));
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let parameters = PatchParams::apply("user").force();
        self.heavens.patch(name, &parameters, &Patch::Apply(object)).await.unwrap();
    }

    /// Waits until the condition `Ready` has this status and reason for the present generation; returns its message.
    pub(crate) async fn is(&self, name: &str, status: &str, reason: &str) -> String {
        let look = async || {
            let heaven = self.heavens.get(name).await.map_err(|error| error.to_string())?;
            let conditions = heaven.status().map(|status| status.conditions.clone()).unwrap_or_default();
            let generation = heaven.meta().generation;
            let found = conditions.iter().find(|found| {
                found.type_ == "Ready"
                    && found.status == status
                    && found.reason == reason
                    && found.observed_generation == generation
            });
            found.map(|found| found.message.clone()).ok_or_else(|| format!("{conditions:?}"))
        };
        wait::until(format!("{name} to be Ready={status} with {reason}"), look).await.unwrap()
    }

    /// Writes the status of a workload, as its controller would.
    pub(crate) async fn reports<W>(&self, name: &str, status: Value)
    where
        W: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<W> = Api::namespaced(self.client.clone(), &self.namespace);
        let written = async || {
            let generation = api.get(name).await.map_err(|error| error.to_string())?.meta().generation;
            let mut status = status.clone();
            if W::kind(&()) != "Job" {
                status["observedGeneration"] = json!(generation);
            }
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(name, &PatchParams::default(), &patch).await.map_err(|error| error.to_string())
        };
        wait::until(format!("the status of {name}"), written).await.unwrap();
    }

    pub(crate) async fn end(self) {
        drop(self.stop);
        self.running.await.unwrap();
    }
}
