//! From a manifest to a complete Job.

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::oneshot;
use trishanku_framework::cache::Scope;
use trishanku_framework::crd::Definitions;
use trishanku_framework::{Controller, Manager};
use trishanku_testkit::{TestCluster, wait};

use crate::control::JobHeavenReconciler;
use crate::kind::JobHeaven;

fn is(heaven: &JobHeaven, status: &str, reason: &str) -> bool {
    let conditions = heaven.status.iter().flat_map(|status| &status.conditions);
    conditions.filter(|found| found.type_ == "Ready").any(|found| found.status == status && found.reason == reason)
}

#[tokio::test]
async fn a_job_gets_a_heaven_beside_its_containers_and_its_end_is_reported() {
    let cluster = TestCluster::shared().await;
    let client = cluster.client();
    Definitions::of::<JobHeaven>().apply(&client, "test").await.unwrap();
    let namespace = cluster.namespace("jobs").await;
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([namespace.clone()]));
    let controller = Controller::with_status("job-heaven", JobHeavenReconciler::new);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(manager.controller(controller).run(async { drop(stopped.await) }));
    let heavens: Api<JobHeaven> = Api::namespaced(client.clone(), &namespace);
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);

    let manifest = |image: &str, name: &str| {
        json!({
            "apiVersion": "heavens.example.org/v1", "kind": "JobHeaven", "metadata": {"name": "import"},
            "spec": {
                "certificatesOf": "cluster",
                "gitcd": {"git": {"branches": {"data": "import/data"}, "remotes": [{"repo": "https://git.example.org/cluster"}]}},
                "kubeconfigMountPath": "/kubeconfig",
                "podTemplate": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": name, "image": image}]}},
            },
        })
    };
    let apply = async |image: &str, name: &str| {
        let parameters = PatchParams::apply("user").force();
        heavens.patch("import", &parameters, &Patch::Apply(manifest(image, name))).await.unwrap();
    };
    apply("import:1", "import").await;
    wait::until_object(&heavens, "import", "its Job runs", |found| is(found, "False", "Running")).await.unwrap();
    let pod = jobs.get("import").await.unwrap().spec.unwrap().template.spec.unwrap();
    let beside: Vec<_> = pod.init_containers.iter().flatten().map(|found| found.name.as_str()).collect();
    assert_eq!(beside, ["git-pre", "gitcd-init", "gitcd", "kube-apiserver"]);
    // Long-running containers are sidecars, which end with the Job's own containers.
    let is_sidecar = |name: &str| {
        let found = pod.init_containers.iter().flatten().find(|found| found.name == name);
        found.unwrap().restart_policy.as_deref() == Some("Always")
    };
    assert!(is_sidecar("gitcd") && is_sidecar("kube-apiserver") && !is_sidecar("gitcd-init"));
    assert!(pod.containers[0].volume_mounts.iter().flatten().any(|mount| mount.mount_path == "/kubeconfig"));

    // Another image replaces the Job.
    let first = jobs.get("import").await.unwrap().metadata.uid;
    apply("import:2", "import").await;
    let anew = |job: &Job| job.metadata.uid != first;
    wait::until_object(&jobs, "import", "it is a new Job", anew).await.unwrap();
    apply("import:2", "gitcd").await;
    wait::until_object(&heavens, "import", "its container's name is taken", |found| is(found, "False", "InvalidSpec"))
        .await
        .unwrap();
    apply("import:2", "import").await;
    let condition = |of: &str| json!({"type": of, "status": "True", "reason": "CompletionsReached", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let now = "2026-01-01T00:00:00Z";
    let status = json!({"status": {
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")], "succeeded": 1, "startTime": now, "completionTime": now,
    }});
    wait::until("the Job to be complete", async || {
        jobs.patch_status("import", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    wait::until_object(&heavens, "import", "its Job is complete", |found| is(found, "True", "Complete")).await.unwrap();
    drop(stop);
    running.await.unwrap().unwrap();
}
