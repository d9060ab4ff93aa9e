//! Properties of all manifests.

use proptest::prelude::*;
use serde_json::{Value, json};
use trishanku_heaven_plan::plan::{EntryPoints, Run};
use trishanku_heaven_plan::pod;

use crate::support::{container, flag, heaven_pod, plan_of, try_heaven};

pub(crate) fn spec() -> Value {
    json!({
        "certificates": {"controller": {"userName": "system:app"}},
        "gitcd": {
            "credentialsSecretName": "git",
            "git": {"remotes": [{"repo": "https://git.example.org/x.git"}, {"name": "desk", "repo": "/desk"}]},
            "pull": {},
        },
        "app": {"podTemplate": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}},
    })
}

#[test]
fn everything_starts_in_order_and_the_users_containers_come_last() {
    let mut spec = spec();
    spec["eventsEtcd"] = json!({"local": {}});
    let plan = plan_of("a", &spec, &EntryPoints::default()).unwrap();
    let names: Vec<_> = plan.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["git-pre", "git-pre-desk", "gitcd-init", "gitcd", "events-etcd", "kube-apiserver"]);
    let waits = |step: &trishanku_heaven_plan::plan::Step| matches!(step.run, Run::Once | Run::Server(_));
    assert!(plan.steps.iter().all(waits), "{plan:?}");
    let pod = heaven_pod(&spec);
    let rendered: Vec<_> =
        pod["spec"]["initContainers"].as_array().unwrap().iter().map(|found| found["name"].as_str().unwrap()).collect();
    assert_eq!(rendered, names);
    for server in ["gitcd", "events-etcd", "kube-apiserver"] {
        let server = container(&pod, server);
        assert_eq!(server["restartPolicy"], "Always");
        assert!(server["startupProbe"].is_object() && server["livenessProbe"].is_object(), "{server}");
    }
    assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_injected_is_restricted_and_runs_no_shell() {
    let pod = heaven_pod(&spec());
    for injected in pod["spec"]["initContainers"].as_array().unwrap() {
        let security = &injected["securityContext"];
        assert_eq!((&security["runAsNonRoot"], &security["allowPrivilegeEscalation"]), (&json!(true), &json!(false)));
        assert_eq!((&security["readOnlyRootFilesystem"], &security["runAsUser"]), (&json!(true), &json!(65532)));
        assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
        assert!(!injected.to_string().contains("/bin/") && !injected.to_string().contains("\"sh\""), "{injected}");
        // Pod specs are not secret, so they must not contain secrets.
        assert!(injected["env"].as_array().into_iter().flatten().all(|variable| variable["valueFrom"].is_null()));
    }
}

#[test]
fn only_kube_apiserver_can_reach_the_stores() {
    let mut spec = spec();
    spec["eventsEtcd"] = json!({"local": {}});
    let pod = heaven_pod(&spec);
    let gitcd = container(&pod, "gitcd");
    assert_eq!(flag(gitcd, "tls-trusted-ca-certs"), Some("default=/.trishanku/store/store-ca.crt"));
    assert_eq!(flag(container(&pod, "events-etcd"), "client-cert-auth"), Some("true"));
    assert_eq!(flag(container(&pod, "kube-apiserver"), "etcd-certfile"), Some("/.trishanku/store/store-client.crt"));
    let mounting = |volume: &str| -> Vec<String> {
        let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().unwrap().clone());
        let mounts = |container: &Value| container["volumeMounts"].as_array().cloned().unwrap_or_default();
        let all = lists.into_iter().flatten();
        let all = all.filter(|container| mounts(container).iter().any(|mount| mount["name"] == volume));
        all.map(|container| container["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(mounting("trishanku-store"), ["gitcd-init", "gitcd", "events-etcd", "kube-apiserver"]);
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let keys = volumes.iter().find(|volume| volume["name"] == "trishanku-store").unwrap();
    assert_eq!(keys["emptyDir"]["medium"], "Memory");
    // The controller must not get them, or the repository, through its template.
    for volume in ["trishanku-store", "trishanku-home", "trishanku-kubernetes"] {
        spec["app"]["podTemplate"]["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": volume, "mountPath": "/x"}]);
        let said = try_heaven(&spec, &EntryPoints::default()).unwrap_err();
        assert!(said.contains("volumeMounts[/x]") && said.contains(volume), "{said}");
    }
}

#[test]
fn namespaces_are_shared_only_if_it_is_allowed() {
    for field in ["hostNetwork", "hostPID", "shareProcessNamespace"] {
        let mut spec = spec();
        spec["app"]["podTemplate"]["spec"][field] = json!(true);
        let said = try_heaven(&spec, &EntryPoints::default()).unwrap_err();
        let parts = [format!("spec.app.podTemplate.spec.{field}"), "allowSharedNamespaces".to_owned()];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        spec["app"]["allowSharedNamespaces"] = json!(true);
        assert_eq!(heaven_pod(&spec)["spec"][field], true);
        spec["app"]["podTemplate"]["spec"][field] = json!(false);
        spec["app"].as_object_mut().unwrap().remove("allowSharedNamespaces");
        assert_eq!(heaven_pod(&spec)["spec"][field], false);
    }
}

#[test]
fn ports_give_way_to_the_users_but_for_the_one_that_kubeconfigs_have() {
    let mut spec = spec();
    spec["eventsEtcd"] = json!({"local": {}});
    spec["app"]["podTemplate"]["spec"]["containers"][0]["ports"] =
        json!([{"containerPort": 2479}, {"containerPort": 2380}]);
    let pod = heaven_pod(&spec);
    assert_eq!(flag(container(&pod, "gitcd"), "listen-urls"), Some("default=https://127.0.0.1:2480"));
    assert_eq!(flag(container(&pod, "kube-apiserver"), "etcd-servers"), Some("https://127.0.0.1:2480"));
    assert_eq!(flag(container(&pod, "events-etcd"), "listen-peer-urls"), Some("https://127.0.0.1:2381"));
    spec["app"]["podTemplate"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 6443}]);
    let said = try_heaven(&spec, &EntryPoints::default()).unwrap_err();
    assert!(said.contains("6443") && said.contains("kube-apiserver"), "{said}");
}

#[test]
fn a_name_that_the_plan_needs_and_the_user_has_is_reported() {
    let mut spec = spec();
    spec["app"]["podTemplate"]["spec"]["containers"][0]["name"] = json!("gitcd");
    let said = try_heaven(&spec, &EntryPoints::default()).unwrap_err();
    assert!(said.contains("gitcd") && said.contains("another name"), "{said}");
    spec["app"]["podTemplate"] = json!({"spec": {"containers": 3}});
    let said = try_heaven(&spec, &EntryPoints::default()).unwrap_err();
    assert!(said.contains("not a pod template"), "{said}");
}

proptest! {
    #[test]
    fn every_combination_renders_twice_as_once(
        events in any::<bool>(), credentials in any::<bool>(), remotes in 0..4_usize, pulls in any::<bool>(), script in any::<bool>(),
        config in any::<bool>(), lease in any::<bool>(), claim in any::<bool>(), kubeconfig in any::<bool>(), unknown in any::<bool>(),
    ) {
        let mut spec = spec();
        let names = ["origin", "desk", "lap", "top"];
        spec["gitcd"]["git"]["remotes"] = names[..remotes].iter().map(|name| json!({"name": name, "repo": "/x"})).collect();
        if events { spec["eventsEtcd"] = json!({"local": {}}); }
        if !credentials { spec["gitcd"]["credentialsSecretName"] = Value::Null; }
        if !pulls { spec["gitcd"]["pull"] = Value::Null; }
        if lease && remotes > 0 { spec["gitcd"]["writerLease"] = json!("15s"); }
        if claim { spec["gitcd"]["storage"] = json!({"volumeClaim": {"size": "1Gi"}}); }
        if kubeconfig { spec["app"]["kubeconfigMountPath"] = json!("/k/kubeconfig"); }
        if unknown { spec["app"]["podTemplate"]["spec"]["ofTomorrow"] = json!({"a": [1]}); }
        let entry_points = EntryPoints { git_pre: script, gitcd_config: config };
        let plan = plan_of("a", &spec, &entry_points).unwrap();
        prop_assert_eq!(&plan, &plan_of("a", &spec, &entry_points).unwrap(), "a plan is deterministic");
        let once = pod::render(&plan, &spec["app"]["podTemplate"]).unwrap();
        prop_assert_eq!(&pod::render(&plan, &once).unwrap(), &once);
        prop_assert_eq!(once["spec"]["ofTomorrow"].is_object(), unknown);
        // Every volume is mounted.
        let text = once.to_string();
        for volume in once["spec"]["volumes"].as_array().unwrap() {
            let name = volume["name"].as_str().unwrap();
            let uses = text.matches(&format!("\"name\":\"{name}\"")).count();
            prop_assert!(uses > 1, "{} is mounted nowhere", name);
        }
    }
}
