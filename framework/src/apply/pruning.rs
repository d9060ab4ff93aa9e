//! Tests of deletions, without a cluster.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::marks::{PART_OF, id};
use super::*;
use crate::cache::{Caches, Scope};

#[tokio::test]
async fn only_what_was_looked_at_is_deleted() {
    let mut owner = Namespace::default();
    (owner.metadata.name, owner.metadata.uid) = (Some("plant".to_owned()), Some("one".to_owned()));
    let cache = Caches::new(Scope::All).cache::<ConfigMap>();
    let map = json!({"metadata": {
        "name": "a", "namespace": "plant", "uid": "two", "resourceVersion": "7", "labels": {PART_OF: id(&Kind::known(), &owner)},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "plant", "uid": "one", "controller": true}],
    }});
    cache.learn(serde_json::from_value(map).unwrap(), cache.lists());

    // The object has changed meanwhile.
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asks = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let asks = asks.clone();
        async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            asks.lock().unwrap().push(serde_json::from_slice::<Value>(&body).unwrap());
            let refused =
                json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "message": "", "code": 409});
            let answer = Response::builder().status(409).body(Body::from(refused.to_string().into_bytes()));
            Ok::<_, std::io::Error>(answer.unwrap())
        }
    });
    let mut set = ApplySet::of(&owner, Client::new(service, "plant"), "test");
    assert_eq!(set.prune(&Owned::without_trigger(cache)).await.unwrap(), 0, "nothing was deleted");
    let asked = asked.lock().unwrap();
    let preconditions: Vec<_> = asked.iter().map(|asked| &asked["preconditions"]).collect();
    assert_eq!(preconditions, [&json!({"uid": "two", "resourceVersion": "7"})]);
}

#[tokio::test]
async fn a_deletion_of_what_another_owner_controls_is_refused_without_a_request() {
    let service = tower::service_fn(async |request: Request<Body>| {
        Err::<Response<Body>, _>(std::io::Error::other(format!("{} was sent", request.method())))
    });
    let mut owner = Namespace::default();
    (owner.metadata.name, owner.metadata.uid) = (Some("plant".to_owned()), Some("one".to_owned()));
    let mut set = ApplySet::of(&owner, Client::new(service, "plant"), "test");
    let cache = Owned::without_trigger(Caches::new(Scope::All).cache::<ConfigMap>());
    let map = |uid: &str, controller: bool| -> ConfigMap {
        let reference = json!({"apiVersion": "v1", "kind": "Tank", "name": "a", "uid": uid, "controller": controller});
        serde_json::from_value(json!({"metadata": {"name": "a", "ownerReferences": [reference]}})).unwrap()
    };
    for (uid, controller) in [("two", true), ("one", false)] {
        let error = set.delete(&map(uid, controller), &cache).await.unwrap_err();
        assert!(matches!(error, ApplyError::NotOurs { .. }), "{error:?}");
    }
    let error = set.delete(&map("one", true), &cache).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot delete ConfigMap a");
    let mut going = map("one", true);
    going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(set.delete(&going, &cache).await.unwrap(), Deletion::Deleted, "its deletion has begun before");
}
