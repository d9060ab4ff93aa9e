//! From a manifest to a complete workload.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use trishanku_testkit::wait;

use crate::daemon_set::DaemonSetHeaven;
use crate::job::JobHeaven;
use crate::stateful_set::StatefulSetHeaven;
use crate::world::World;

fn beside<'p>(pod: &'p PodSpec, name: &str) -> &'p Container {
    pod.init_containers.iter().flatten().find(|found| found.name == name).unwrap()
}

/// The field of the pod that a variable of a container has.
fn field(container: &Container, name: &str) -> Option<String> {
    let variable = container.env.iter().flatten().find(|variable| variable.name == name)?;
    Some(variable.value_from.as_ref()?.field_ref.as_ref()?.field_path.clone())
}

fn args(container: &Container) -> String {
    container.args.iter().flatten().cloned().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn each_replica_of_a_stateful_set_has_a_branch_and_a_claim_of_its_own() {
    let world = World::<StatefulSetHeaven>::new("stateful-set-heaven").await;
    let spec = |branch: &str, replicas: i32, size: &str| {
        json!({
            "replicas": replicas, "userName": "agents", "kubeconfigMountPath": "/kubeconfig",
            "gitcd": {
                "git": {"branches": {"data": branch}, "remotes": [{"repo": "https://git.team.svc/cluster", "branches": {"data": "main"}}]},
                "pull": {}, "storage": {"volumeClaim": {"size": size}},
            },
            "podTemplate": {"spec": {"containers": [{"name": "app", "image": "app:1", "args": ["--pod=$(NAME)"]}]}},
        })
    };
    // Two writers of one branch would lose what one of them has acknowledged.
    world.apply("web", spec("agents", 2, "1Gi")).await;
    let said = world.is("web", "False", "InvalidSpec").await;
    assert!(said.contains("spec.gitcd.git.branches.data") && said.contains("$(REPLICA)"), "{said}");

    world.apply("web", spec("agents/$(REPLICA)", 2, "1Gi")).await;
    let sets: Api<StatefulSet> = Api::namespaced(world.client.clone(), &world.namespace);
    let set = wait::until_object(&sets, "web-heaven", "it exists", |_: &StatefulSet| true).await.unwrap();
    let spec_of = |set: &StatefulSet| set.spec.clone().unwrap();
    let pod = spec_of(&set).template.spec.unwrap();
    let gitcd = beside(&pod, "gitcd");
    assert!(args(gitcd).contains("--data-reference-names=default=refs/heads/agents/$(REPLICA)"), "{gitcd:?}");
    assert!(args(gitcd).contains("--metadata-reference-names=default=refs/gitcd/metadata/agents/$(REPLICA)"));
    assert!(args(gitcd).contains("--remote-data-reference-names=default=refs/heads/main"), "{gitcd:?}");
    for container in ["git-pre", "gitcd-init", "gitcd"] {
        assert_eq!(field(beside(&pod, container), "REPLICA").as_deref(), Some("metadata.name"), "{container}");
    }
    assert_eq!(field(beside(&pod, "kube-apiserver"), "REPLICA"), None, "it knows nothing of branches");
    let claims = spec_of(&set).volume_claim_templates.unwrap();
    assert_eq!(claims[0].metadata.name.as_deref(), Some("trishanku-home"));
    assert!(pod.volumes.unwrap().iter().any(|volume| volume.name == "trishanku-home"));
    assert!(pod.security_context.unwrap().fs_group.is_some(), "the claim belongs to root otherwise");
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let secret = secrets.get("web-controller").await.unwrap();
    assert_eq!(secret.metadata.owner_references.unwrap()[0].kind, "StatefulSetHeaven");

    world.is("web", "False", "NotObserved").await;
    let counts = |ready: i32| json!({"replicas": 2, "readyReplicas": ready, "updatedReplicas": 2});
    world.reports::<StatefulSet>("web-heaven", counts(1)).await;
    let said = world.is("web", "False", "MinimumReplicasUnavailable").await;
    assert!(said.contains("1 of 2 pods"), "{said}");
    world.reports::<StatefulSet>("web-heaven", counts(2)).await;
    world.is("web", "True", "Succeeded").await;

    // The number of replicas changes in place, and the claims of a StatefulSet are immutable.
    world.apply("web", spec("agents/$(REPLICA)", 3, "1Gi")).await;
    let scaled = |set: &StatefulSet| set.spec.as_ref().is_some_and(|spec| spec.replicas == Some(3));
    let same = wait::until_object(&sets, "web-heaven", "it has three replicas", scaled).await.unwrap();
    assert_eq!(same.metadata.uid, set.metadata.uid);
    world.apply("web", spec("agents/$(REPLICA)", 3, "2Gi")).await;
    let anew = |found: &StatefulSet| found.metadata.uid != set.metadata.uid;
    wait::until_object(&sets, "web-heaven", "it is a new one", anew).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn each_pod_of_a_daemon_set_has_the_branch_of_its_node_and_can_be_stopped() {
    let world = World::<DaemonSetHeaven>::new("daemon-set-heaven").await;
    let spec = |more: &[(&str, Value)]| {
        let more: BTreeMap<_, _> = more.iter().cloned().collect();
        let mut spec = json!({
            "userName": "agent", "kubeconfigMountPath": "/kubeconfig",
            "gitcd": {"git": {"branches": {"data": "nodes/$(REPLICA)"}}},
            "podTemplate": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}},
        });
        spec.as_object_mut().unwrap().extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        spec
    };
    let git = json!({"branches": {"data": "nodes/$(REPLICA)"}});
    world.apply("agent", spec(&[("gitcd", json!({"git": git, "storage": {"volumeClaim": {"size": "1Gi"}}}))])).await;
    let said = world.is("agent", "False", "InvalidSpec").await;
    assert!(said.contains("spec.gitcd.storage.volumeClaim") && said.contains("push to a remote"), "{said}");

    world.apply("agent", spec(&[])).await;
    let sets: Api<DaemonSet> = Api::namespaced(world.client.clone(), &world.namespace);
    let set = wait::until_object(&sets, "agent-heaven", "it exists", |_: &DaemonSet| true).await.unwrap();
    let pod = set.spec.unwrap().template.spec.unwrap();
    assert_eq!(field(beside(&pod, "gitcd"), "REPLICA").as_deref(), Some("spec.nodeName"));
    assert_eq!(pod.node_selector, None);
    let counts = json!({
        "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2,
        "numberAvailable": 2, "updatedNumberScheduled": 2,
    });
    world.reports::<DaemonSet>("agent-heaven", counts).await;
    world.is("agent", "True", "Succeeded").await;

    // Stopped by a patch, as a heaven is whose Secrets must not get to its repository: the field belongs to another manager.
    let selector = json!({"controllers.trishanku.org/suspended": "true"});
    let patch = json!({"spec": {"template": {"spec": {"nodeSelector": selector}}}});
    sets.patch("agent-heaven", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    wait::until_object(&sets, "agent-heaven", "it runs again", |set: &DaemonSet| {
        let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        spec.and_then(|spec| spec.node_selector.as_ref()).is_none_or(BTreeMap::is_empty)
    })
    .await
    .unwrap();

    world.apply("agent", spec(&[("suspend", true.into())])).await;
    world.is("agent", "False", "Suspended").await;
    let nowhere = |set: &DaemonSet| {
        let selector = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()?.node_selector.as_ref());
        selector.is_some_and(|selector| selector.contains_key("controllers.trishanku.org/suspended"))
    };
    wait::until_object(&sets, "agent-heaven", "it runs nowhere", nowhere).await.unwrap();
    world.apply("agent", spec(&[("suspend", false.into())])).await;
    wait::until_object(&sets, "agent-heaven", "it runs again", |set| !nowhere(set)).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn a_job_gets_a_heaven_beside_its_containers_and_its_end_is_reported() {
    let world = World::<JobHeaven>::new("job-heaven").await;
    let jobs: Api<Job> = Api::namespaced(world.client.clone(), &world.namespace);
    let spec = |image: &str, name: &str| {
        json!({
            "certificatesOf": "cluster",
            "gitcd": {"git": {"branches": {"data": "import/data"}, "remotes": [{"repo": "https://git.team.svc/cluster"}]}},
            "kubeconfigMountPath": "/kubeconfig",
            "podTemplate": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": name, "image": image}]}},
        })
    };
    world.apply("import", spec("import:1", "import")).await;
    // The Secrets of the heaven that it names do not exist yet.
    let said = world.is("import", "False", "NotFound").await;
    assert!(said.contains("cluster-cert-kubernetes"), "{said}");
    let pod = jobs.get("import-heaven").await.unwrap().spec.unwrap().template.spec.unwrap();
    let names: Vec<_> = pod.init_containers.iter().flatten().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["git-pre", "gitcd-init", "gitcd", "kube-apiserver"]);
    // Long-running containers are sidecars, which end with the Job's own containers.
    let is_sidecar = |name: &str| beside(&pod, name).restart_policy.as_deref() == Some("Always");
    assert!(is_sidecar("gitcd") && is_sidecar("kube-apiserver") && !is_sidecar("gitcd-init"));
    assert!(pod.containers[0].volume_mounts.iter().flatten().any(|mount| mount.mount_path == "/kubeconfig"));

    // Another image replaces the Job, but not beside a pod of the former one.
    let first = jobs.get("import-heaven").await.unwrap().metadata.uid;
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "import-heaven", "uid": first, "controller": true});
    let account = json!({"metadata": {"name": "default"}});
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), &world.namespace);
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    let left = json!({
        "metadata": {"name": "left", "labels": {"heavens.example.org/job": "import"}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "app", "image": "import:1"}], "automountServiceAccountToken": false},
    });
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(left).unwrap()).await.unwrap();
    world.apply("import", spec("import:2", "import")).await;
    world.is("import", "False", "PodsTerminating").await;
    assert!(jobs.get_opt("import-heaven").await.unwrap().is_none(), "it would write to the branch of the other pod");
    pods.delete("left", &DeleteParams::default().grace_period(0)).await.unwrap();
    let anew = |job: &Job| job.metadata.uid != first;
    let second = wait::until_object(&jobs, "import-heaven", "it is a new Job", anew).await.unwrap().metadata.uid;
    world.apply("import", spec("import:2", "gitcd")).await;
    let said = world.is("import", "False", "InvalidPodTemplate").await;
    assert!(said.contains("spec.podTemplate"), "{said}");
    world.apply("import", spec("import:2", "import")).await;

    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    for (name, keys) in [
        ("cert-ca", &["tls.crt"][..]),
        ("cert-service-account", &["tls.crt", "tls.key"]),
        ("cert-kubernetes", &["tls.crt", "tls.key", "ca.crt"]),
        ("admin", &["kubeconfig"]),
        ("controller", &["kubeconfig"]),
    ] {
        let data: BTreeMap<_, _> = keys.iter().map(|key| (*key, "supplied")).collect();
        let secret = json!({"metadata": {"name": format!("cluster-{name}")}, "stringData": data});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    world.is("import", "False", "Running").await;
    let condition = |of: &str| json!({"type": of, "status": "True", "reason": "CompletionsReached", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let now = "2026-01-01T00:00:00Z";
    let status = json!({
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")], "succeeded": 1, "startTime": now, "completionTime": now,
    });
    world.reports::<Job>("import-heaven", status).await;
    world.is("import", "True", "Succeeded").await;
    // Nothing but another manifest runs it again: not the Secrets, which appeared meanwhile, either.
    assert_eq!(jobs.get("import-heaven").await.unwrap().metadata.uid, second);
    world.end().await;
}
