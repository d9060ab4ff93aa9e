//! Fields of the pod, which all containers share.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};
use trishanku_framework::inject::{FsGroupChangePolicy, Injector, LifecycleHook, PodSecurity};

use crate::collisions::{app, messages};
use crate::heaven::template;

#[test]
fn kernel_parameters_of_the_node_are_not_set() {
    let inject = |fields: Value| {
        let mut users = json!({"containers": [{"name": "app", "image": "app:1"}]});
        users.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let injector = Injector::new(template(json!({"spec": users})));
        injector.with(|pod| pod.security(PodSecurity::new().sysctl("net/a", "1").sysctl("kernel.msgmax", "1"))).finish()
    };
    assert!(inject(json!({})).is_ok());
    assert_eq!(
        messages(&inject(json!({"hostNetwork": true, "hostIPC": true})).unwrap_err()),
        [
            "spec.hostNetwork: is true, but the injection sets kernel parameter \"net/a\"; remove it",
            "spec.hostIPC: is true, but the injection sets kernel parameter \"kernel.msgmax\"; remove it",
        ]
    );
}

#[test]
fn a_hook_does_not_sleep_longer_than_the_pod_may_take() {
    let inject = |period: Option<i64>| {
        let mut users = app(&json!({}));
        users.spec.as_mut().unwrap().termination_grace_period_seconds = period;
        let injector = Injector::new(users).with(|pod| {
            let hook = LifecycleHook::sleep(Duration::from_secs(40));
            pod.sidecar("slow", "slow:1").pre_stop(hook).add();
        });
        injector.finish()
    };
    assert!(inject(Some(40)).is_ok());
    for (period, found) in [(None, 30), (Some(39), 39)] {
        let expected = format!(
            "spec.terminationGracePeriodSeconds: is {found}, but lifecycle.preStop of injected container \"slow\" sleeps 40 seconds; \
             set it to 40 or more"
        );
        assert_eq!(messages(&inject(period).unwrap_err()), [expected]);
    }
}

#[test]
fn other_fields_of_the_pod_are_collisions_and_equal_ones_are_not() {
    let inject = |users: &PodTemplateSpec| {
        let injector = Injector::new(users.clone()).with(|pod| {
            pod.label("team", "blue");
            pod.annotation("note", "n");
            let security = PodSecurity::new().fs_group(5).fs_group_change_policy(FsGroupChangePolicy::Always);
            pod.security(security.supplemental_group(6).sysctl("net.a", "1"));
        });
        injector.finish()
    };
    let users = |label: &str, group: i64, sysctl: &str| {
        let policy = if group == 5 { "Always" } else { "OnRootMismatch" };
        template(json!({
            "metadata": {"labels": {"team": label, "app": "a"}, "annotations": {"note": if label == "blue" { "n" } else { "m" }}},
            "spec": {
                "containers": [{"name": "app", "image": "app:1"}],
                "securityContext": {
                    "fsGroup": group, "fsGroupChangePolicy": policy, "supplementalGroups": [6, 7], "runAsUser": 1,
                    "sysctls": [{"name": "net.a", "value": sysctl}],
                },
            },
        }))
    };
    let same = users("blue", 5, "1");
    assert_eq!(inject(&same).unwrap(), same);
    assert_eq!(
        messages(&inject(&users("red", 6, "2")).unwrap_err()),
        [
            "metadata.labels[team]: has another value than the injected one; remove it",
            "metadata.annotations[note]: has another value than the injected one; remove it",
            "spec.securityContext.fsGroup: is 6, not 5; remove it, or set it to that",
            "spec.securityContext.fsGroupChangePolicy: is \"OnRootMismatch\", not \"Always\"; remove it, or set it to that",
            "spec.securityContext.sysctls[net.a]: is \"2\", not \"1\"; remove it, or set it to that",
        ]
    );
}
