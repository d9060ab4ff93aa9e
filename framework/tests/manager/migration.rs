//! Stored objects are migrated to a new storage version, so that the former one can be removed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams};
use kube::core::crd::merge_crds;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trishanku_framework::crd::{DefinitionError, Definitions, Loss};
use trishanku_testkit::{TestCluster, audit, wait};

mod v1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "migration.test", version = "v1", kind = "Sluice", namespaced)]
    pub(crate) struct SluiceSpec {
        pub(crate) gates: u32,
    }
}

mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "migration.test", version = "v2", kind = "Sluice", namespaced)]
    pub(crate) struct SluiceSpec {
        pub(crate) gates: u32,
    }
}

/// More than one page of a list.
const OBJECTS: usize = 510;

#[tokio::test]
async fn after_a_migration_the_former_version_can_be_removed_and_no_object_is_lost() {
    let cluster = TestCluster::shared().await;
    let client = cluster.client();
    let (old, new) = (v1::Sluice::crd(), v2::Sluice::crd());
    let both = |storage: &str| merge_crds(vec![old.clone(), new.clone()], storage).unwrap();
    let name = old.metadata.name.clone().unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let stored = async || definitions.get(&name).await.unwrap().status.unwrap().stored_versions.unwrap();
    let apply = async |definition: CustomResourceDefinition| {
        Definitions::default().and_this(definition).apply(&client, "test").await
    };

    apply(both("v1")).await.unwrap();
    let namespace = cluster.namespace("migration").await;
    let sluices: Api<v1::Sluice> = Api::namespaced(client.clone(), &namespace);
    for number in 0..OBJECTS {
        let sluice = v1::Sluice::new(&format!("sluice-{number}"), v1::SluiceSpec { gates: 2 });
        sluices.create(&PostParams::default(), &sluice).await.unwrap();
    }
    let before = Definitions::default().and_this(both("v1"));
    assert_eq!(before.migrate(&client).await.unwrap(), 0, "v1 is the storage version");

    apply(both("v2")).await.unwrap();
    assert_eq!(stored().await, ["v1", "v2"]);
    let refused = apply(new.clone()).await.unwrap_err();
    assert!(matches!(&refused, DefinitionError::Loses { loss: Loss::Version(_), .. }), "{refused}");

    // The API server answers 429 for a moment after a definition has been changed.
    let versions = async || {
        let list = async || sluices.list_metadata(&ListParams::default()).await.map_err(|error| error.to_string());
        let found = wait::until("a list of the sluices", list).await.unwrap().items;
        found.into_iter().map(|found| found.metadata.resource_version.unwrap()).collect::<Vec<_>>()
    };
    let untouched = versions().await;
    assert_eq!(Definitions::of::<v2::Sluice>().migrate(&client).await.unwrap(), OBJECTS);
    assert_eq!(stored().await, ["v2"]);
    assert!(versions().await.iter().zip(&untouched).all(|(now, before)| now != before), "one was not stored again");

    // Nothing is left to do, so nothing is written.
    let writes = || {
        let is_here = |entry: &&audit::Entry| entry.is_write() && entry.namespace() == namespace;
        cluster.audit().iter().filter(is_here).count()
    };
    let (written, own) = (writes(), client.clone());
    let task = tokio::spawn(async move { Definitions::of::<v2::Sluice>().migrate(&own).await });
    assert_eq!(task.await.unwrap().unwrap(), 0);
    assert_eq!(writes(), written);

    apply(new).await.unwrap();
    let sluices: Api<v2::Sluice> = Api::namespaced(client.clone(), &namespace);
    let list = async || sluices.list(&ListParams::default()).await.map_err(|error| error.to_string());
    let found = wait::until("a list in the new version", list).await.unwrap().items;
    assert_eq!((found.len(), found[0].spec.gates), (OBJECTS, 2));
}
