//! The controller on a real kube-apiserver, with the CRD and the RBAC rules that are deployed.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::core::discovery::ApiResource;
use kube::{Api, Client, ResourceExt};
use tokio::sync::oneshot;
use trishanku_framework::crd::Definitions;
use trishanku_framework::{Manager, lease};
use trishanku_testkit::{TestCluster, wait};

use rain_gauge::{RainGauge, RainGaugeSpec};

const DEFINITION: &str = include_str!("../deploy/crd.yaml");
const EXAMPLE: &str = include_str!("../example.yaml");

/// Applies the documents of a manifest.
async fn deploy(client: &Client, manifest: &str) {
    for document in manifest.split("---\n") {
        let object: DynamicObject = serde_saphyr::from_str(document).unwrap();
        let types = object.types.as_ref().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).unwrap());
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let parameters = PatchParams::apply("test").force();
        api.patch(&object.name_any(), &parameters, &Patch::Apply(&object)).await.unwrap();
    }
}

#[test]
fn the_definition_that_is_deployed_is_that_of_the_type() {
    let printed = Definitions::of::<RainGauge>().to_string();
    assert_eq!(printed, DEFINITION, "run `cargo run -- crd > deploy/crd.yaml`");
}

#[tokio::test]
async fn what_is_asked_for_is_made_with_the_rights_that_are_deployed() {
    let cluster = TestCluster::shared().await;
    let client = cluster.client();
    deploy(&client, include_str!("../deploy/namespace.yaml")).await;
    deploy(&client, include_str!("../deploy/rbac.yaml")).await;
    cluster.install(&serde_saphyr::from_str(DEFINITION).unwrap()).await;

    let mut config = cluster.config();
    config.auth_info.impersonate = Some("system:serviceaccount:rain-gauge:rain-gauge".to_owned());
    let (stop, stopped) = oneshot::channel::<()>();
    let lease = lease::Settings::new("rain-gauge", rain_gauge::NAME);
    let manager = Manager::new(config).leader_election(lease).controller(rain_gauge::controller());
    let running = tokio::spawn(manager.run(async { drop(stopped.await) }));

    let namespace = cluster.namespace("test").await;
    let objects: Api<RainGauge> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let empty = RainGauge::new("empty", RainGaugeSpec { text: String::new() });
    let refused = objects.create(&PostParams::default(), &empty).await.unwrap_err();
    assert!(refused.to_string().contains("must not be empty"), "{refused}");
    let example: RainGauge = serde_saphyr::from_str(EXAMPLE).unwrap();
    objects.create(&PostParams::default(), &example).await.unwrap();
    let says = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["text"] == "hello");
    wait::until_object(&maps, "example", "it says hello", says).await.unwrap();
    let ready = |object: &RainGauge| {
        let conditions = object.status.as_ref().map(|status| status.conditions.as_slice());
        conditions.unwrap_or_default().iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    wait::until_object(&objects, "example", "it is ready", ready).await.unwrap();

    drop(stop);
    running.await.unwrap().unwrap();
}
