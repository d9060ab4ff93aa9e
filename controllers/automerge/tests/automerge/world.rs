//! A namespace with a manager that sets up merges in it.

use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use trishanku_api::{AutomatedMerge, GROUP, VERSION, definitions};
use trishanku_automerge::controller;
use trishanku_framework::Manager;
use trishanku_framework::cache::Scope;
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_heaven_plan::plan::Images;
use trishanku_testkit::{TestCluster, wait};

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    running: Option<(oneshot::Sender<()>, tokio::task::JoinHandle<()>)>,
}

impl World {
    pub(crate) async fn new(namespace: &str) -> Self {
        Self::beside(namespace, |_| OwnNamespace::default()).await
    }

    /// Starts a manager that refuses a namespace.
    pub(crate) async fn beside(namespace: &str, own: impl FnOnce(&str) -> OwnNamespace) -> Self {
        let cluster = TestCluster::shared().await;
        let client = cluster.client();
        definitions().apply(&client, "trishanku-manager").await.unwrap();
        let namespace = cluster.namespace(namespace).await;
        let own = own(&namespace);
        let manager = Manager::with_scope(cluster.config(), Scope::namespaces([namespace.clone()]));
        let controller = controller(Images::default(), own);
        let (stop, stopped) = oneshot::channel::<()>();
        let run = manager.controller(controller).run(async { drop(stopped.await) });
        Self { client, namespace, running: Some((stop, tokio::spawn(async { run.await.unwrap() }))) }
    }

    pub(crate) async fn stop(&mut self) {
        let (stop, task) = self.running.take().unwrap();
        drop(stop);
        task.await.unwrap();
    }

    pub(crate) fn merges(&self) -> Api<AutomatedMerge> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn apply(&self, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "AutomatedMerge", "metadata": {"name": name}, "spec": spec,
        });
        self.merges().patch(name, &PatchParams::apply("user"), &Patch::Apply(object)).await.unwrap();
    }

    /// Waits until a condition has this status and reason for the present generation; returns its message.
    pub(crate) async fn is(&self, name: &str, of: &str, status: &str, reason: &str) -> String {
        let look = async || {
            let merge = self.merges().get(name).await.map_err(|error| error.to_string())?;
            let conditions = merge.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let found =
                conditions.iter().find(|found| found.type_ == of && found.status == status && found.reason == reason);
            let found = found.filter(|found| found.observed_generation == merge.metadata.generation);
            found.map(|found| found.message.clone()).ok_or_else(|| format!("{:?}", merge.status))
        };
        wait::until(format!("{of}={status} {reason} of {name}"), look).await.unwrap()
    }
}
