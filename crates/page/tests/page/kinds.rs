//! Names of kinds in the filter and the search.

use crate::world::{World, map};

const DEFINITION: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/gauges.rain.example.org";
const GAUGE: &str = "/registry/rain.example.org/gauges/shop/a";

fn definition() -> String {
    serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gauges.rain.example.org"},
        "spec": {"group": "rain.example.org", "scope": "Namespaced", "names": {
            "plural": "gauges", "singular": "gauge", "kind": "RainGauge", "shortNames": ["rg"],
        }},
    })
    .to_string()
}

#[tokio::test]
async fn custom_kinds_have_the_names_of_their_definitions() {
    let mut world = World::new(1);
    world.put(0, &[(GAUGE, Some("{}")), ("/registry/configmaps/shop/a", Some(&map("a", "1")))]);
    let (_served, client) = world.open().await;
    let is_found = async |kind: &str| {
        let filtered = client.page(&format!("/?kind={kind}")).await.body.contains("class=\"subject\"");
        let found = client.page(&format!("/search?q={kind}/shop/a")).await.links();
        assert_eq!(filtered, found.contains(&"/object/rain.example.org/gauges/shop/a".to_owned()), "{kind}: {found:?}");
        assert!(!found.contains(&"/object/configmaps/shop/a".to_owned()), "{kind}: {found:?}");
        filtered
    };
    assert!(!is_found("rg").await && !is_found("raingauge").await, "the kind is not defined");
    world.put(0, &[(DEFINITION, Some(&definition()))]);
    for kind in ["rg", "RainGauge", "gauges", "gauge", "rg.rain.example.org", "raingauge.v1.rain.example.org"] {
        assert!(is_found(kind).await, "{kind}");
    }
    for kind in ["rai", "rg.example.org"] {
        assert!(!is_found(kind).await, "{kind}");
    }
    // A name of a kind alone finds all of its objects.
    let found = client.page("/search?q=cm").await.links();
    assert!(found.contains(&"/object/configmaps/shop/a".to_owned()), "{found:?}");
}
