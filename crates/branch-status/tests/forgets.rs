//! Which objects are observed, on a real kube-apiserver.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use trishanku_api::{TrishankuHeaven, definitions};
use trishanku_branch_status::answer::Branch;
use trishanku_branch_status::{Identity, Observer, StatusSource};
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Controller, Key, Manager, Reconciler, lease};
use trishanku_heaven_plan::workload::HEAVEN;
use trishanku_testkit::{Proxy, TestCluster, wait};

/// Records the objects that are gone.
struct Shows(Arc<Mutex<Vec<Key>>>);

impl StatusSource for Shows {
    type Object = TrishankuHeaven;

    fn label(&self) -> &'static str {
        HEAVEN
    }

    async fn identity(&self, _: &Client, _: &TrishankuHeaven) -> Option<Identity> {
        None
    }

    fn fields(&self, _: &TrishankuHeaven, _: Option<&Branch>) -> Map<String, Value> {
        Map::new()
    }

    fn conditions(&self, _: &TrishankuHeaven) -> Vec<Condition> {
        Vec::new()
    }

    fn gone(&self, key: &Key) {
        self.0.lock().push(key.clone());
    }
}

struct Follows(Arc<Observer<Shows>>);

impl Reconciler for Follows {
    type Object = TrishankuHeaven;
    type Error = kube::Error;

    async fn reconcile(&self, _: Arc<TrishankuHeaven>, context: Context) -> Result<Action, kube::Error> {
        self.0.follow(&context);
        Ok(Action::Change)
    }
}

#[tokio::test]
async fn a_deleted_object_is_forgotten_without_a_notification() {
    let cluster = TestCluster::start().await.unwrap();
    definitions().apply(&cluster.client(), "trishanku-manager").await.unwrap();
    let namespace = cluster.namespace("observe").await;
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([namespace.clone()]));
    let gone = Arc::new(Mutex::new(Vec::new()));
    let observer =
        Observer::new(Shows(gone.clone()), manager.caches().cache(), &manager.caches().cache_selecting(HEAVEN));
    let observer = Arc::new(observer);
    let (stop, stopped) = oneshot::channel::<()>();
    let follows = Controller::new("follows", Follows(observer.clone()));
    let running = tokio::spawn(manager.controller(follows).run(async { drop(stopped.await) }));

    let heavens: Api<TrishankuHeaven> = Api::namespaced(cluster.client(), &namespace);
    for name in ["a", "b"] {
        let heaven = json!({"metadata": {"name": name}, "spec": {"skip": {"app": true}}});
        heavens.create(&PostParams::default(), &serde_json::from_value(heaven).unwrap()).await.unwrap();
    }
    let followed = async |names: &[&str]| {
        let mut followed: Vec<_> = observer.followed().iter().map(|key| key.name().to_owned()).collect();
        followed.sort();
        if followed == names { Ok(()) } else { Err(format!("{followed:?}")) }
    };
    wait::until("both are followed", async || followed(&["a", "b"]).await).await.unwrap();
    heavens.delete("a", &DeleteParams::default()).await.unwrap();
    wait::until("one is forgotten", async || followed(&["b"]).await).await.unwrap();
    assert_eq!(*gone.lock(), [Key::namespaced(namespace.as_str(), "a")]);
    observer.forget(&Key::namespaced(namespace.as_str(), "b"));
    assert!(observer.followed().is_empty() && gone.lock().len() == 2);
    drop(stop);
    running.await.unwrap().unwrap();
}

/// A manager with an observer that stands for election as `identity`, until the sender is dropped.
fn candidate(config: kube::Config, namespace: &str, identity: &str) -> (Arc<Observer<Shows>>, oneshot::Sender<()>) {
    let (duration, work, every) = (Duration::from_secs(3), Duration::from_secs(2), Duration::from_millis(200));
    let settings = lease::Settings::new(namespace, "observers");
    let settings = lease::Settings { duration, work, every, identity: identity.to_owned(), ..settings };
    let manager = Manager::with_scope(config, Scope::namespaces([namespace])).leader_election(settings);
    let observer =
        Observer::new(Shows(Arc::default()), manager.caches().cache(), &manager.caches().cache_selecting(HEAVEN));
    let observer = Arc::new(observer);
    let (stop, stopped) = oneshot::channel::<()>();
    let follows = Controller::new("follows", Follows(observer.clone()));
    tokio::spawn(manager.controller(follows).run(async { drop(stopped.await) }));
    (observer, stop)
}

#[tokio::test]
async fn an_observer_ends_with_the_lease_and_that_of_the_successor_begins() {
    let cluster = TestCluster::start().await.unwrap();
    definitions().apply(&cluster.client(), "trishanku-manager").await.unwrap();
    let namespace = cluster.namespace("handed-over").await;
    let heavens: Api<TrishankuHeaven> = Api::namespaced(cluster.client(), &namespace);
    let heaven = json!({"metadata": {"name": "a"}, "spec": {"skip": {"app": true}}});
    heavens.create(&PostParams::default(), &serde_json::from_value(heaven).unwrap()).await.unwrap();
    let follows = async |observer: &Observer<Shows>, number: usize| match observer.followed() {
        followed if followed.len() == number => Ok(()),
        followed => Err(format!("{followed:?}")),
    };
    let proxy = Proxy::start(&cluster).await;
    let (one, _stop_one) = candidate(proxy.config(), &namespace, "one");
    wait::until("the first one observes", async || follows(&one, 1).await).await.unwrap();
    let (other, _stop_other) = candidate(cluster.config(), &namespace, "other");
    proxy.partition();
    wait::until("the other one observes", async || follows(&other, 1).await).await.unwrap();
    // It ended with the lease, which was before the other one got it, although the network is still parted.
    wait::until("the first one has ended", async || follows(&one, 0).await).await.unwrap();
}
