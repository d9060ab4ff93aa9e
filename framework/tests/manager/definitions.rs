//! Definitions from types, applied to and served by an apiserver.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::crd::merge_crds;
use kube::{Api, Client, CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trishanku_framework::crd::{DefinitionError, Definitions, Loss};
use trishanku_testkit::{TestCluster, wait};

#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "definitions.test",
    version = "v1",
    kind = "Cistern",
    namespaced,
    shortname = "ci",
    category = "plant",
    printcolumn(name = "Level", type_ = "integer", json_path = ".spec.level"),
    printcolumn = r#"{"name": "Capacity", "type": "integer", "jsonPath": ".spec.capacity", "priority": 1}"#
)]
#[x_kube(validation = Rule::new("self.level <= self.capacity").message("the level is above the rim"))]
struct CisternSpec {
    #[x_kube(validation = Rule::new("self == oldSelf").message("a cistern does not grow"))]
    #[schemars(range(min = 1))]
    capacity: u32,
    level: u32,
}

/// A definition whose short name another one has, too.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "definitions.test", version = "v1", kind = "Pump", shortname = "pu")]
struct PumpSpec {}

#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "definitions.test", version = "v1", kind = "Pulley", shortname = "pu")]
struct PulleySpec {}

mod v1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "definitions.test", version = "v1", kind = "Gauge")]
    pub(crate) struct GaugeSpec {
        pub(crate) metres: u32,
    }
}

mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "definitions.test", version = "v2", kind = "Gauge")]
    pub(crate) struct GaugeSpec {
        pub(crate) feet: u32,
    }
}

fn cistern(capacity: u32, level: u32) -> Cistern {
    Cistern::new("c", CisternSpec { capacity, level })
}

/// Retries until the apiserver has filled its cache of the kind.
async fn get(client: &Client, uri: &str) -> Value {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let answered = wait::until(uri, async || {
        let request = http::Request::get(uri).header("accept", accept).body(Vec::new()).unwrap();
        client.request(request).await
    });
    answered.await.unwrap()
}

async fn definition(client: &Client, name: &str) -> CustomResourceDefinition {
    Api::all(client.clone()).get(name).await.unwrap()
}

fn invalid(result: kube::Result<Cistern>) -> String {
    match result {
        Err(kube::Error::Api(status)) if status.is_invalid() => status.message,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test]
async fn the_rules_of_a_type_are_kept_and_its_columns_and_names_are_served() {
    let cluster = TestCluster::shared().await;
    let (client, namespace) = (cluster.client(), cluster.namespace("definitions").await);
    let definitions = Definitions::of::<Cistern>();
    definitions.apply(&client, "test").await.unwrap();

    let api: Api<Cistern> = Api::namespaced(client.clone(), &namespace);
    let refused = invalid(api.create(&PostParams::default(), &cistern(5, 6)).await);
    assert!(refused.contains("spec: Invalid value") && refused.contains("the level is above the rim"), "{refused}");
    let refused = invalid(api.create(&PostParams::default(), &cistern(0, 0)).await);
    assert!(refused.contains("spec.capacity"), "{refused}");
    api.create(&PostParams::default(), &cistern(5, 4)).await.unwrap();
    let grow = Patch::Merge(json!({"spec": {"capacity": 6}}));
    let refused = invalid(api.patch("c", &PatchParams::default(), &grow).await);
    assert!(refused.contains("spec.capacity") && refused.contains("a cistern does not grow"), "{refused}");

    let table = get(&client, &format!("/apis/definitions.test/v1/namespaces/{namespace}/cisterns")).await;
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Level", "Capacity"]);
    assert_eq!(table["rows"][0]["cells"], json!(["c", 4, 5]));
    let served = get(&client, "/apis/definitions.test/v1").await;
    let kind = served["resources"].as_array().unwrap().iter().find(|kind| kind["name"] == "cisterns").unwrap();
    assert_eq!((&kind["shortNames"], &kind["categories"]), (&json!(["ci"]), &json!(["plant"])));

    let before = definition(&client, Cistern::crd_name()).await.metadata.resource_version;
    definitions.apply(&client, "test").await.unwrap();
    let after = definition(&client, Cistern::crd_name()).await.metadata.resource_version;
    assert_eq!(before, after, "an unchanged definition is not written");
}

#[tokio::test]
async fn what_is_printed_is_taken_as_it_is() {
    let printed = Definitions::of::<Cistern>().and::<Pump>().to_string();
    let documents: Vec<CustomResourceDefinition> =
        printed.split("---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    // The apiserver does not know Rust's formats, and would warn.
    let cistern = serde_json::to_string(&Cistern::crd()).unwrap().replace(r#""format":"uint32","#, "");
    assert_eq!(serde_json::to_string(&documents[0]).unwrap(), cistern);
    assert_eq!(documents[1..], [Pump::crd()]);
}

#[tokio::test]
async fn a_change_that_loses_what_is_stored_changes_nothing() {
    let cluster = TestCluster::shared().await;
    let client = cluster.client();
    Definitions::of::<v1::Gauge>().apply(&client, "test").await.unwrap();
    let gauges: Api<v1::Gauge> = Api::all(client.clone());
    gauges.create(&PostParams::default(), &v1::Gauge::new("g", v1::GaugeSpec { metres: 3 })).await.unwrap();
    let both = |storage: &str| merge_crds(vec![v1::Gauge::crd(), v2::Gauge::crd()], storage).unwrap();
    for (wanted, expected) in [
        (Definitions::of::<v2::Gauge>(), Loss::Version("v1".to_owned())),
        (
            Definitions::of::<Cistern>().and_this(both("v2")),
            Loss::Fields { from: "v1".to_owned(), to: "v2".to_owned() },
        ),
    ] {
        match wanted.apply(&client, "test").await {
            Err(DefinitionError::Loses { name, loss }) => {
                assert_eq!((name.as_str(), loss), ("gauges.definitions.test", expected));
            }
            other => panic!("{other:?}"),
        }
    }
    // Adding the second version loses nothing, and both are served on return.
    Definitions::of::<Cistern>().and_this(both("v1")).apply(&client, "test").await.unwrap();
    wait::until_object(&gauges, "g", "it is unchanged", |gauge| gauge.spec.metres == 3).await.unwrap();
    let table = get(&client, "/apis/definitions.test/v2/gauges").await;
    assert_eq!(table["rows"].as_array().map(Vec::len), Some(1), "{table}");
}

#[tokio::test]
async fn names_of_another_definition_are_reported() {
    let cluster = TestCluster::shared().await;
    let client = cluster.client();
    Definitions::of::<Pump>().apply(&client, "test").await.unwrap();
    let second = Definitions::of::<Pulley>().within(Duration::from_secs(2)).apply(&client, "test").await.unwrap_err();
    let message = second.to_string();
    assert!(
        matches!(second, DefinitionError::NotServed { .. }) && message.contains(r#""pu" is already in use"#),
        "{message}"
    );
}

#[tokio::test]
async fn a_forbidden_install_reports_the_servers_message() {
    let cluster = TestCluster::shared().await;
    let mut config = cluster.config();
    config.auth_info.impersonate = Some("nobody".to_owned());
    let error = Definitions::of::<Pump>().apply(&config.try_into().unwrap(), "test").await.unwrap_err();
    let DefinitionError::Refused { name, source } = error else { panic!("{error:?}") };
    assert!(name == Pump::crd_name() && source.to_string().contains(r#"User "nobody" cannot get"#), "{source}");
}
