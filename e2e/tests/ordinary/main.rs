//! An ordinary cluster moves from etcd to gitcd and back, with the commands of `docs/ordinary-cluster.md`, word for word.
#![expect(clippy::unwrap_used, reason = "a failing helper fails the test")]

mod machine;
mod page;

use serde_json::Value;

use crate::machine::Machine;
use crate::page::commands;

/// Returns the objects of the namespace, with their resource versions.
fn objects(machine: &mut Machine) -> Vec<Value> {
    let kinds = "configmaps,secrets,deployments.apps,serviceaccounts";
    let list = machine.run(&format!("kubectl get {kinds} --namespace=shop --output=json"));
    let list: Value = serde_json::from_str(&list).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn run_section(machine: &mut Machine, section: &str) {
    for command in commands(section) {
        machine.run(&command);
        if command.contains("> kubeadm.yaml") {
            machine.edit("kubeadm.yaml", &["apiServer", "etcd"], "deploy/control-plane/kubeadm.yaml");
        }
    }
}

/// Returns what is stored in Git for a key, when the latest write is committed.
fn stored(machine: &mut Machine, key: &str) -> String {
    machine.run(&format!("git -C /var/lib/gitcd/store.git show main:{key}"))
}

#[test]
fn a_cluster_on_etcd_moves_to_gitcd_and_back() {
    let mut machine = Machine::new();
    for command in [
        "kubectl create namespace shop",
        "kubectl create configmap prices --namespace=shop --from-literal=tea=4",
        "for i in $(seq 1 16); do echo --- && kubectl create configmap map-$i --namespace=shop --from-literal=number=$i \
         --dry-run=client --output=yaml; done | kubectl create --filename=-",
        "kubectl create secret generic card --namespace=shop --from-literal=pin=1234",
        "kubectl create deployment web --namespace=shop --image=nginx",
        "kubectl create serviceaccount robot --namespace=shop",
    ] {
        machine.run(command);
    }
    let seen = machine.run("kubectl get --raw=/api/v1/namespaces/shop/configmaps?limit=1");
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let seen = seen["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    machine.run("kubectl patch configmap map-1 --namespace=shop --patch='{\"data\":{\"number\":\"one\"}}'");
    let before = objects(&mut machine);
    assert!(before.len() >= 20, "{before:?}");

    run_section(&mut machine, "Install gitcd");
    run_section(&mut machine, "Move an existing kubeadm cluster");
    assert_eq!(objects(&mut machine), before, "the same objects, with the same resource versions");
    let protobuf = stored(&mut machine, "configmaps/shop/prices");
    assert!(protobuf.starts_with("k8s"), "not rewritten yet: {protobuf}");
    // A client that watches from before the move gets the missing event, or lists again; it never misses a change.
    let watch = format!("/api/v1/namespaces/shop/configmaps?watch=1&resourceVersion={seen}&timeoutSeconds=1");
    let events = machine.run(&format!("kubectl get --raw='{watch}'"));
    assert!(events.contains("\"one\"") || events.contains("\"code\":410"), "{events}");
    let client = "--endpoints=https://127.0.0.1:2479 --cacert=/etc/kubernetes/pki/gitcd/store-ca.crt \
                  --cert=/etc/kubernetes/pki/gitcd/store-client.crt --key=/etc/kubernetes/pki/gitcd/store-client.key";
    // The revisions before the move are there, as they were.
    let get = |revision: &str| {
        format!("etcdctl {client} get /registry/configmaps/shop/map-1 --write-out=json --rev={revision}")
    };
    let [old, new] = [&*seen, "0"].map(|revision| {
        let found: Value = serde_json::from_str(&machine.run(&get(revision))).unwrap();
        found["kvs"][0]["mod_revision"].as_i64().unwrap()
    });
    let seen = seen.parse::<i64>().unwrap();
    assert!(old <= seen && new > seen, "{old} {seen} {new}");

    run_section(&mut machine, "Rewrite all objects as JSON");
    let now = machine.run("kubectl get namespace shop --output=jsonpath={.metadata.resourceVersion}");
    machine.run(
        "kubectl --as=jane --as-group=system:masters patch configmap prices --namespace=shop \
                 --patch='{\"data\":{\"tea\":\"5\"}}'",
    );
    // Undo waits until the write is committed, and names its user.
    let undone = machine.run(&format!("trishanku undo --since={now} --by=jane --namespace=shop --yes"));
    assert!(undone.contains("~ data.tea: \"5\" → \"4\""), "{undone}");
    assert_eq!(machine.run("kubectl get configmap prices --namespace=shop --output=jsonpath={.data.tea}"), "4");
    for key in ["configmaps/shop/prices", "secrets/shop/card", "deployments/shop/web", "namespaces/shop"] {
        let json = stored(&mut machine, key);
        assert!(serde_json::from_str::<Value>(&json).is_ok(), "{key} is not JSON: {json}");
    }
    let log = machine.run("trishanku log -p configmap/prices --namespace=shop");
    assert!(log.contains("jane") && log.contains("~ data.tea: \"4\" → \"5\""), "{log}");
    run_section(&mut machine, "Read the history");
    run_section(&mut machine, "Back up");

    run_section(&mut machine, "Go back to etcd");
    let names = |objects: &[Value]| objects.iter().map(|object| object["metadata"]["uid"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&objects(&mut machine)), names(&before), "the state at the move");
}
