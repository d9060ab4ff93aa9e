//! The samples, unchanged.

use serde_json::Value;

use crate::world::{World, owners};

const SHARED: &str = include_str!("../../../../deploy/kustomize/samples/shared.yaml");
const CONTROLLER_MANAGER: &str = include_str!("../../../../deploy/kustomize/samples/kube-controller-manager.yaml");
const SCHEDULER: &str = include_str!("../../../../deploy/kustomize/samples/kube-scheduler.yaml");

fn sample(text: &str) -> (String, Value) {
    let manifest: Value = serde_saphyr::from_str(text).unwrap();
    (manifest["metadata"]["name"].as_str().unwrap().to_owned(), manifest["spec"].clone())
}

#[tokio::test]
async fn a_cluster_of_heavens_shares_certificates_under_the_published_names() {
    let mut world = World::new().await;
    // The first heaven creates what is shared.
    for text in [SCHEDULER, SHARED, CONTROLLER_MANAGER] {
        let (name, spec) = sample(text);
        world.apply(&name, &spec).await;
    }
    world.is("cluster", "Ready", "True", "Succeeded").await;
    for name in ["kube-scheduler", "kube-controller-manager"] {
        // No controller creates pods here.
        let available = world.is(name, "Available", "False", "NotObserved").await;
        assert!(available.message.contains(&format!("{name}-heaven")), "{available:?}");
        world.is(name, "Ready", "False", "NotObserved").await;
        world.is(name, "CertificatesReady", "True", "Valid").await;
    }
    let mut secrets = world.names(&world.secrets()).await;
    secrets.sort();
    let expected = [
        "cluster-admin",
        "cluster-cert-ca",
        "cluster-cert-kubernetes",
        "cluster-cert-service-account",
        "kube-controller-manager",
        "kube-scheduler",
    ];
    assert_eq!(secrets, expected);
    assert_eq!(world.names(&world.maps()).await, ["cluster-entrypoints"]);
    let mut shared = owners(&world.secrets().get("cluster-cert-ca").await.unwrap());
    shared.sort();
    assert_eq!(shared, ["cluster", "kube-controller-manager", "kube-scheduler"]);
    let deployment = world.deployments().get("kube-scheduler-heaven").await.unwrap();
    let spec = deployment.spec.as_ref().unwrap();
    assert_eq!(spec.strategy.as_ref().unwrap().type_.as_deref(), Some("Recreate"));
    let pod = spec.template.spec.as_ref().unwrap();
    let sidecars: Vec<_> = pod.init_containers.iter().flatten().map(|container| container.name.as_str()).collect();
    assert_eq!(sidecars, ["git-pre", "gitcd-init", "gitcd", "events-etcd", "kube-apiserver"]);
    assert_eq!(owners(&deployment), ["kube-scheduler"]);

    // Neither a second reconcile nor a restarted manager writes anything.
    let before = world.writes_at_rest().await;
    let settled = world.deployments().get("kube-scheduler-heaven").await.unwrap().metadata.resource_version;
    world.stop().await;
    world.start();
    world.apply("probe", &serde_json::json!({"skip": {"app": true, "certificates": true, "entrypoints": true}})).await;
    world.is("probe", "Ready", "False", "NotFound").await;
    let after: Vec<_> =
        world.writes().into_iter().skip(before.len()).filter(|write| !write.contains("probe")).collect();
    let after: Vec<_> = after.into_iter().filter(|write| !write.contains("events")).collect();
    assert_eq!(after, [""; 0]);
    assert_eq!(world.deployments().get("kube-scheduler-heaven").await.unwrap().metadata.resource_version, settled);
    world.stop().await;
}
