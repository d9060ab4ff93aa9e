//! Fields that the builder does not know.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, SecurityContext, VolumeMount};
use serde_json::{Value, json};
use trishanku_framework::inject::{EmptyDir, Probe, SecretRef, Security};

use crate::checks::problems;

#[test]
fn raw_only_adds() {
    type Change = fn(&mut Container);
    let raw = |change: Change| {
        problems(move |pod| {
            let data = pod.volume("data", EmptyDir::new());
            let mut c = pod.sidecar("c", "c:1");
            let port = c.port("web", 80);
            let probe = Probe::tcp(&port).every(Duration::from_secs(3));
            c.args(["a", "b"]).env("A", "1").mount(&data, "/data").readiness(probe).raw(change).add();
        })
    };
    let harmless: Change = |container| {
        container.tty = Some(true);
        container.args.as_mut().unwrap().insert(1, "c".to_owned());
        container.security_context.as_mut().unwrap().proc_mount = Some("Default".to_owned());
        let mounts = container.volume_mounts.as_mut().unwrap();
        mounts.push(VolumeMount { name: "theirs".to_owned(), mount_path: "/x".to_owned(), ..VolumeMount::default() });
    };
    assert_eq!(raw(harmless), [""; 0]);
    let changes: [(Change, &str); 9] = [
        (|container| container.name = "other".to_owned(), "name"),
        (|container| container.restart_policy = Some("Never".to_owned()), "restartPolicy"),
        (|container| container.image = Some("other:1".to_owned()), "image"),
        (|container| container.args.as_mut().unwrap().reverse(), "args"),
        (|container| container.env = None, "env"),
        (|container| container.ports.as_mut().unwrap()[0].host_port = Some(1), "ports"),
        (|container| container.volume_mounts.as_mut().unwrap()[0].read_only = None, "volumeMounts"),
        (|container| container.security_context = Some(SecurityContext::default()), "securityContext"),
        (|container| container.readiness_probe.as_mut().unwrap().period_seconds = None, "readinessProbe"),
    ];
    for (change, field) in changes {
        let remedy = "only add fields in `raw`, and use the methods of the builder for the others";
        assert_eq!(raw(change), [format!("spec.initContainers[c].{field}: was changed by `raw`; {remedy}")]);
    }
}

#[test]
fn what_raw_adds_is_checked() {
    let fields = |fields: Value| {
        move |container: &mut Container| {
            let mut raw = serde_json::to_value(&*container).unwrap();
            raw.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            *container = serde_json::from_value(raw).unwrap();
        }
    };
    let found = problems(|pod| {
        pod.volume("claim", SecretRef::named("s").files());
        let probes = json!({"livenessProbe": {"httpGet": {"port": 81}, "successThreshold": 2}});
        pod.init("init", "init:1").raw(fields(probes)).add();
        let sidecar = json!({
            "ports": [{"containerPort": 80, "name": "A"}, {"containerPort": 81, "protocol": "UDP", "name": "b"}],
            "volumeMounts": [{"name": "claim", "mountPath": "/a"}, {"name": "gone", "mountPath": "b", "readOnly": true}],
            "startupProbe": {"grpc": {"port": 81}},
            "readinessProbe": {"httpGet": {"port": "b"}, "exec": {}, "terminationGracePeriodSeconds": 1},
            "livenessProbe": {"httpGet": {"port": 9, "host": "elsewhere"}},
            "lifecycle": {"preStop": {"httpGet": {"port": 82}}},
            "resources": {"limits": {"cpu": "x"}},
        });
        pod.sidecar("sidecar", "sidecar:1").raw(fields(sidecar)).add();
        // Not overwritten by what follows.
        pod.container("c", "c:1").raw(fields(json!({"command": ["a"]}))).command(["b"]).add();
        let context = fields(json!({"securityContext": null}));
        pod.container("d", "d:1").raw(|container| context(container)).security(Security::restricted()).add();
    });
    insta::assert_snapshot!(found.join("\n"));
}
