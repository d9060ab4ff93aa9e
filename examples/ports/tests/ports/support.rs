//! A manager that runs in the background, and what it says.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::object::HasStatus;
use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use trishanku_framework::cache::Scope;
use trishanku_framework::crd::Definitions;
use trishanku_framework::metrics::Metrics;
use trishanku_framework::{Manager, RunError};
use trishanku_testkit::{TestCluster, wait};

/// A cluster that serves a kind, and a namespace in it.
pub(crate) async fn cluster<K: CustomResourceExt>(prefix: &str) -> (&'static TestCluster, String) {
    let cluster = TestCluster::shared().await;
    Definitions::of::<K>().apply(&cluster.client(), "test").await.unwrap();
    (cluster, cluster.namespace(prefix).await)
}

/// A manager for one namespace.
pub(crate) fn manager(cluster: &TestCluster, namespace: &str) -> Manager {
    Manager::with_scope(cluster.config(), Scope::namespaces([namespace]))
}

/// A manager that runs until it is stopped or dropped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
    metrics: Metrics,
}

pub(crate) fn run(manager: Manager) -> Running {
    let (metrics, (stop, stopped)) = (manager.metrics(), oneshot::channel());
    let task = tokio::spawn(manager.run(async { drop(stopped.await) }));
    Running { stop, task, metrics }
}

impl Running {
    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("the manager still runs");
        self.task.await.expect("the manager does not panic").expect("the manager stops without an error");
    }

    /// Returns how many reconciles have ended.
    pub(crate) fn reconciles(&self) -> u64 {
        let text = self.metrics.text();
        let lines = text.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// Waits until so many more reconciles have ended.
    pub(crate) async fn until_reconciled(&self, more: u64, mut again: impl FnMut()) {
        let goal = self.reconciles() + more;
        let waited = wait::until(format!("{more} more reconciles"), async || {
            again();
            let ended = self.reconciles();
            if ended >= goal { Ok(()) } else { Err(format!("{ended} of {goal} have ended")) }
        });
        waited.await.unwrap();
    }
}

/// Waits until an object has a condition.
pub(crate) async fn until_condition<K>(api: &kube::Api<K>, name: &str, type_: &str, status: &str, reason: &str) -> K
where
    K: Resource + HasStatus + Clone + Debug + DeserializeOwned + Serialize,
    K::Status: Serialize,
{
    let is = |object: &K| {
        let conditions = serde_json::to_value(object.status()).unwrap_or_default()["conditions"].take();
        let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
        conditions.iter().any(|one| (&*one.type_, &*one.status, &*one.reason) == (type_, status, reason))
    };
    wait::until_object(api, name, &format!("it is {type_}={status} {reason}"), is).await.unwrap()
}
