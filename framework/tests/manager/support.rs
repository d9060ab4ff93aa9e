//! A kind, a reconciler that calls a test's functions, and a manager that runs in the background.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, CustomResource, CustomResourceExt, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use trishanku_framework::queue::Backoff;
use trishanku_framework::status::{Condition, conditions_schema};
use trishanku_framework::{
    Action, CleanedUp, Context, Controller, Failure, Manager, Reconciler, Retry, RunError, impl_conditions,
};
use trishanku_testkit::TestCluster;

/// Holds water.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "framework.test", version = "v1", kind = "Tank", namespaced, status = "TankStatus", derive = "Default")]
pub(crate) struct TankSpec {
    pub(crate) level: i32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TankStatus {
    #[serde(default)]
    pub(crate) level: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub(crate) conditions: Vec<Condition>,
}

impl_conditions!(TankStatus);

pub(crate) fn tank(name: &str) -> Tank {
    let mut tank = Tank::new(name, TankSpec::default());
    tank.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    tank
}

/// A cluster that serves tanks, and a namespace in it.
pub(crate) async fn cluster(prefix: &str) -> (&'static TestCluster, String) {
    let cluster = TestCluster::shared().await;
    cluster.install(&Tank::crd()).await;
    (cluster, cluster.namespace(prefix).await)
}

pub(crate) async fn create(api: &Api<Tank>, names: &[&str]) {
    for name in names {
        api.create(&PostParams::default(), &tank(name)).await.unwrap();
    }
}

/// A map that a tank controls.
pub(crate) fn owned(tank: &Tank, name: &str) -> ConfigMap {
    let owner_references = Some(tank.controller_owner_ref(&()).into_iter().collect());
    let metadata = ObjectMeta { name: Some(name.to_owned()), owner_references, ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("it does not work")]
    Broken,
    #[error("it never will")]
    Terminal,
    #[error("the pump is not there yet")]
    NoPump,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl Failure for Problem {
    fn reason(&self) -> &'static str {
        match self {
            Self::Broken => "Broken",
            Self::Terminal => "Terminal",
            Self::NoPump => "NoPump",
            Self::Api(error) => error.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Broken => Retry::BackOff,
            Self::Terminal => Retry::Terminal,
            Self::NoPump => Retry::Waiting { on: "pump".to_owned(), look_again: Duration::from_millis(300) },
            Self::Api(error) => error.retry(),
        }
    }
}

/// A reconciler that calls `reconcile`, and `clean_up` if there is one, which requires a finalizer.
pub(crate) struct Does<F, C = fn(Arc<Tank>) -> Result<CleanedUp, Problem>> {
    pub(crate) reconcile: F,
    pub(crate) clean_up: Option<C>,
}

impl<F, Fut, C> Reconciler for Does<F, C>
where
    F: Fn(Arc<Tank>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Problem>> + Send,
    C: Fn(Arc<Tank>) -> Result<CleanedUp, Problem> + Send + Sync + 'static,
{
    type Object = Tank;
    type Error = Problem;

    async fn reconcile(&self, tank: Arc<Tank>, context: Context) -> Result<Action, Problem> {
        (self.reconcile)(tank, context).await
    }

    fn finalizer(&self) -> Option<&str> {
        self.clean_up.as_ref().map(|_| "framework.test/tank")
    }

    async fn clean_up(&self, tank: Arc<Tank>, _: Context) -> Result<CleanedUp, Problem> {
        self.clean_up.as_ref().map_or(Ok(CleanedUp::Yes), |clean_up| clean_up(tank))
    }
}

/// A controller that calls `reconcile`, with short delays after failures.
pub(crate) fn controller<F, Fut>(reconcile: F) -> Controller<Does<F>>
where
    F: Fn(Arc<Tank>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Problem>> + Send,
{
    let backoff = Backoff { first: Duration::from_millis(50), most: Duration::from_millis(400) };
    Controller::new("test", Does { reconcile, clean_up: None }).backoff(backoff)
}

/// A log of events with their times.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(String, Instant)>>>);

impl Log {
    pub(crate) fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push((what.into(), Instant::now()));
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(what, _)| what.clone()).collect()
    }

    pub(crate) fn times(&self, what: &str) -> Vec<Instant> {
        self.0.lock().unwrap().iter().filter(|(said, _)| said == what).map(|(_, at)| *at).collect()
    }

    /// Waits until `what` has happened this many times.
    pub(crate) async fn until(&self, times: usize, what: &str) {
        let waited = trishanku_testkit::wait::until(format!("{times} times {what:?}"), async || {
            if self.times(what).len() >= times { Ok(()) } else { Err(format!("{:?}", self.all())) }
        });
        waited.await.unwrap();
    }
}

/// A manager that runs until it is stopped or dropped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

pub(crate) fn run(manager: Manager) -> Running {
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(manager.run(async { drop(stopped.await) }));
    Running { stop, task }
}

impl Running {
    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("the manager still runs");
        self.task.await.expect("the manager does not panic").expect("the manager stops without an error");
    }
}

pub(crate) fn tanks(client: Client, namespace: &str) -> Api<Tank> {
    Api::namespaced(client, namespace)
}
