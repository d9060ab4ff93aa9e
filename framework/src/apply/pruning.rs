//! Tests of deletions, without a cluster.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
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
