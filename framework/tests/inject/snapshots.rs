//! Whole pods.

use serde_json::json;
use trishanku_framework::inject::Users;

use crate::heaven::{Heaven, controller_manager, template};

#[test]
fn a_heaven_for_a_controller() {
    insta::assert_yaml_snapshot!(Heaven::default().inject(&controller_manager()).unwrap());
}

#[test]
fn a_heaven_with_everything_in_the_network_of_the_node() {
    let users = template(json!({"spec": {
        "hostNetwork": true,
        "containers": [
            {"name": "app", "image": "app:1", "ports": [{"containerPort": 8080}, {"containerPort": 2479, "protocol": "UDP"}]},
            {"name": "proxy", "image": "proxy:1", "readinessProbe": {"tcpSocket": {"port": 2480}}},
        ],
    }}));
    let kubeconfig = Some(Users::named(["app"]));
    let heaven = Heaven { events_etcd: true, claim: true, watcher: true, kubeconfig, ..Heaven::default() };
    insta::assert_yaml_snapshot!(heaven.inject(&users).unwrap());
}
