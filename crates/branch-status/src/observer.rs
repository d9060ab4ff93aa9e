//! Queries gitcds periodically and writes changes to the status.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use rand::Rng as _;
use serde_json::{Map, Value, json};
use tokio::task::AbortHandle;
use trishanku_api::{REPOSITORY_READY, SYNCED};
use trishanku_framework::cache::{Cache, Index};
use trishanku_framework::{Context, Key, Object, Term};
use trishanku_heaven_plan::workload::{self, State, label_value};

use crate::answer::Branch;
use crate::ask::Identity;
use crate::response::{PodResponse, best, phase, worst};
use crate::{INTERVAL, REPORT_INTERVAL};

/// The field manager: not that of the reconcilers, which do not own these fields.
const MANAGER: &str = "trishanku-observe";
/// How long a gitcd may be unreachable before that is reported: it may be starting, or its certificates may have just
/// changed.
const GRACE: Duration = Duration::from_mins(3);
/// Queries to the pods of one object at the same time.
const AT_ONCE: usize = 16;
/// Limits queries: the interval grows so that there are no more than this per second.
const A_SECOND: usize = 30;

/// The differences between kinds of observed objects.
pub trait StatusSource: Send + Sync + 'static {
    /// The kind.
    type Object: Object;

    /// The label of the pods; its value is the object's name.
    fn label(&self) -> &'static str;

    /// Whether each pod has a branch of its own, so that the status is that of the branch with most problems; otherwise all
    /// have one branch, and the status is that of its writer.
    fn has_branch_per_replica(&self, object: &Self::Object) -> bool {
        let _ = object;
        false
    }

    /// The credentials for its gitcd; `None` if they do not exist yet, or cannot be read.
    fn identity(&self, client: &Client, object: &Self::Object) -> impl Future<Output = Option<Identity>> + Send;

    /// The status fields for a branch; `None` if its status is unknown.
    fn fields(&self, object: &Self::Object, branch: Option<&Branch>) -> Map<String, Value>;

    /// The present conditions of the object.
    fn conditions(&self, object: &Self::Object) -> Vec<Condition>;

    /// Called when an object is no longer observed.
    fn gone(&self, key: &Key) {
        let _ = key;
    }
}

/// A status of a branch.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The response of its gitcd.
    pub branch: Branch,
    /// When it arrived.
    pub at: Instant,
}

/// The result of a [query](Observer::ask).
#[derive(Clone, Debug)]
pub struct Asked {
    /// The response, or the reason why there is none.
    pub answer: Result<Branch, String>,
    /// The creation time of the pod, if there is no response because it, and all others that could respond instead, have not
    /// started.
    pub pending_since: Option<Timestamp>,
}

/// Queries the gitcds of all objects of a kind.
pub struct Observer<T: StatusSource> {
    shared: Arc<Shared<T>>,
}

struct Shared<T: StatusSource> {
    source: T,
    objects: Arc<Cache<T::Object>>,
    /// By namespace and value of the label.
    pods: Index<Pod>,
    latest: Mutex<HashMap<Key, Observed>>,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    by_key: HashMap<Key, Task>,
    begun: u64,
}

/// A running task.
struct Task {
    /// Distinguishes tasks of successive objects with the same name, and of successive terms.
    number: u64,
    handle: AbortHandle,
    term: Term,
}

impl<T: StatusSource> Observer<T> {
    /// Creates an observer with caches of a manager; the cache of pods contains only those with the label.
    pub fn new(source: T, objects: Arc<Cache<T::Object>>, pods: &Arc<Cache<Pod>>) -> Self {
        let (latest, tasks, label) = (Mutex::default(), Mutex::default(), source.label());
        let pods = pods.index(move |pod| {
            let (labels, namespace) = (pod.metadata.labels.as_ref(), pod.metadata.namespace.as_deref());
            let value = labels.and_then(|labels| labels.get(label));
            value.map(|value| in_namespace(namespace, value)).into_iter().collect()
        });
        Self { shared: Arc::new(Shared { source, objects, pods, latest, tasks }) }
    }

    /// Starts to observe the object of a reconcile until it is gone, or the controller's term ends, unless that has started.
    pub fn follow(&self, context: &Context) {
        let (tasks, Context { client, key, term, .. }) = (&mut *self.shared.tasks.lock(), context.clone());
        match tasks.by_key.get(&key) {
            Some(task) if !task.handle.is_finished() && !task.term.is_over() => return,
            // The end of an earlier term need not have reached it. What it learned may be of no more use.
            Some(task) => {
                task.handle.abort();
                self.shared.latest.lock().remove(&key);
            }
            None => {}
        }
        tasks.begun += 1;
        let (shared, own, ends, number) = (self.shared.clone(), key.clone(), term.clone(), tasks.begun);
        let task = tokio::spawn(async move {
            tokio::select! {
                () = shared.run(&own, &client) => {}
                // Another replica observes it from then on.
                () = ends.ended() => {}
            }
            shared.forget(&own, Some(number));
        });
        tasks.by_key.insert(key, Task { number, handle: task.abort_handle(), term });
    }

    /// Stops observing an object.
    pub fn forget(&self, key: &Key) {
        self.shared.forget(key, None);
    }

    /// The objects that are being observed.
    pub fn followed(&self) -> Vec<Key> {
        self.shared.tasks.lock().by_key.keys().cloned().collect()
    }

    /// The last response for an object.
    pub fn latest(&self, key: &Key) -> Option<Observed> {
        self.shared.latest.lock().get(key).cloned()
    }

    /// Whether an object has a pod in which a gitcd runs or may start.
    pub fn has_pod(&self, key: &Key) -> bool {
        let object = self.shared.objects.get(key);
        object.is_some_and(|object| !self.shared.pods(key, &object).is_empty())
    }

    /// Whether a pod of an object has not ended, and is controlled by a workload of this kind, such as `Job`. A pod that was
    /// orphaned has no controller, and that of a Deployment has a `ReplicaSet`.
    pub fn has_pod_of(&self, key: &Key, kind: &str) -> bool {
        let pods = self.shared.unfinished(key);
        let mut owners = pods.iter().flat_map(|pod| pod.metadata.owner_references.iter().flatten());
        owners.any(|owner| owner.controller == Some(true) && owner.kind == kind)
    }

    /// Queries an object now, for callers that cannot wait.
    pub async fn ask(&self, client: &Client, key: &Key) -> Asked {
        let Some(object) = self.shared.objects.get(key) else {
            return Asked { answer: Err("it is gone".to_owned()), pending_since: None };
        };
        let Some(PodResponse { answer, pending_since, .. }) = self.shared.look(key, &object, client).await else {
            return Asked { answer: Err("there is no pod".to_owned()), pending_since: None };
        };
        Asked { answer, pending_since }
    }
}

impl<T: StatusSource> Drop for Observer<T> {
    fn drop(&mut self) {
        self.shared.tasks.lock().by_key.values().for_each(|task| task.handle.abort());
    }
}

impl<T: StatusSource> Shared<T> {
    async fn run(&self, key: &Key, client: &Client) {
        let (mut last_report, mut last_answer) = (None, Instant::now());
        // Spreads the first queries after the start of a manager.
        let mut pause = INTERVAL.mul_f64(rand::rng().random_range(0.0..0.5));
        loop {
            tokio::time::sleep(pause).await;
            let many = Duration::from_secs((self.tasks.lock().by_key.len() / A_SECOND) as u64);
            pause = INTERVAL.max(many).mul_f64(rand::rng().random_range(0.8..1.2));
            let Some(object) = self.objects.get(key) else { return };
            // Boxed, since thousands of tasks may exist of which most are waiting.
            let asked = Box::pin(self.look(key, &object, client)).await;
            let mut before = self.source.conditions(&object);
            before.retain(|condition| [REPOSITORY_READY, SYNCED].contains(&condition.type_.as_str()));
            let (branch, states) = match &asked {
                Some(PodResponse { pod, answer: Ok(branch), .. }) => {
                    last_answer = Instant::now();
                    let observed = Observed { branch: branch.clone(), at: last_answer };
                    self.latest.lock().insert(key.clone(), observed);
                    (
                        Some(branch),
                        [Some(branch.ready()), branch.synced()].map(|state| self.of_pod(&object, pod, state)),
                    )
                }
                Some(PodResponse { answer: Err(_), .. }) if last_answer.elapsed() < GRACE => continue,
                Some(PodResponse { answer: Err(error), .. }) => {
                    let state = State::new(false, "NotReachable", format!("cannot query gitcd: {error}"));
                    (None, [Some(state.clone()), Some(state)])
                }
                // The pods of a Job that has ended are no problem.
                None if self.has_finished(key) => continue,
                // An object that never had a pod keeps its other conditions.
                None if before.iter().all(|condition| condition.type_ != REPOSITORY_READY) => continue,
                None => {
                    let state = State::new(false, "NoPod", "there is no pod with a gitcd");
                    (None, [Some(state.clone()), Some(state)])
                }
            };
            let conditions = conditions(&before, &states, object.meta().generation);
            let turned = conditions != before;
            let is_due = last_report.is_none_or(|at: Instant| at.elapsed() >= REPORT_INTERVAL);
            if !turned && (!is_due || branch.is_none()) {
                continue;
            }
            let mut fields = self.source.fields(&object, branch);
            fields.insert("conditions".to_owned(), json!(conditions));
            if Box::pin(self.write_status(key, &object, client, fields)).await {
                last_report = Some(Instant::now());
            }
        }
    }

    /// Stops observing an object, if `number` is that of its task, or none is given.
    fn forget(&self, key: &Key, number: Option<u64>) {
        let tasks = &mut *self.tasks.lock();
        let is_it = tasks.by_key.get(key).is_some_and(|task| number.is_none_or(|number| number == task.number));
        if !is_it {
            return;
        }
        if let Some(task) = tasks.by_key.remove(key) {
            task.handle.abort();
        }
        self.latest.lock().remove(key);
        self.source.gone(key);
    }

    fn unfinished(&self, key: &Key) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.get(&in_namespace(key.namespace(), &label_value(key.name())));
        pods.retain(|pod| !["Succeeded", "Failed"].contains(&phase(pod)));
        pods
    }

    /// Whether an object has pods that have ended, and no others.
    fn has_finished(&self, key: &Key) -> bool {
        let pods = self.pods.get(&in_namespace(key.namespace(), &label_value(key.name())));
        !pods.is_empty() && self.unfinished(key).is_empty()
    }

    /// The pods that run or start; those that terminate, if there are no others, or if each has a branch of its own.
    fn pods(&self, key: &Key, object: &T::Object) -> Vec<Arc<Pod>> {
        let (ending, others): (Vec<_>, Vec<_>) =
            self.unfinished(key).into_iter().partition(|pod| pod.metadata.deletion_timestamp.is_some());
        let mut pods = match (self.source.has_branch_per_replica(object), others.is_empty()) {
            (true, _) => [others, ending].concat(),
            (false, true) => ending,
            (false, false) => others,
        };
        pods.sort_by_key(|pod| std::cmp::Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)));
        pods
    }

    /// Queries all pods: with a writer lease, one of them is the writer, and the others wait for their turn without
    /// responding.
    async fn look(&self, key: &Key, object: &T::Object, client: &Client) -> Option<PodResponse> {
        let pods = self.pods(key, object);
        let identity = self.source.identity(client, object).await;
        let mut answers = Vec::with_capacity(pods.len());
        for some in pods.chunks(AT_ONCE) {
            answers.extend(join_all(some.iter().map(|pod| PodResponse::of(pod, identity.as_ref()))).await);
        }
        if self.source.has_branch_per_replica(object) {
            return worst(answers);
        }
        let is_any_started = answers.iter().any(|response| response.pending_since.is_none());
        let mut best = best(answers)?;
        if is_any_started {
            best.pending_since = None;
        }
        Some(best)
    }

    /// Adds the name of the pod to the message of a problem, if each pod has a branch of its own.
    fn of_pod(&self, object: &T::Object, pod: &str, state: Option<State>) -> Option<State> {
        let mut state = state?;
        if self.source.has_branch_per_replica(object) && !state.is {
            state.message = format!("pod {pod}: {}", state.message);
        }
        Some(state)
    }

    async fn write_status(&self, key: &Key, object: &T::Object, client: &Client, status: Map<String, Value>) -> bool {
        let kind = self.objects.kind();
        let patch = json!({
            "apiVersion": kind.api_version(), "kind": kind.name(),
            // Not another object of the same name that was created in the meantime.
            "metadata": {"name": key.name(), "uid": object.meta().uid},
            "status": status,
        });
        let api = kind.api(client.clone(), key.namespace());
        match api.patch_status(key.name(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(patch)).await {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(object = %key, %error, "cannot write the status of a branch");
                false
            }
        }
    }
}

fn in_namespace(namespace: Option<&str>, value: &str) -> String {
    format!("{}/{value}", namespace.unwrap_or_default())
}

/// Merges our conditions into the present ones; transition times change only with the status.
fn conditions(before: &[Condition], states: &[Option<State>; 2], generation: Option<i64>) -> Vec<Condition> {
    let mut conditions: Vec<_> = before.to_vec();
    for (of, state) in [REPOSITORY_READY, SYNCED].into_iter().zip(states) {
        workload::set(&mut conditions, of, state.as_ref(), generation);
    }
    conditions
}
