//! `CustomResourceDefinition`s as the API serves them. kube-apiserver stores them as `apiextensions.k8s.io/v1beta1`, which it does
//! not serve any more.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1/conversion.go` and `v1/conversion.go`.

use serde_json::{Map, Value, json};

use crate::document::text;

/// Fields that v1beta1 has once if all versions agree, and v1 has in each version.
const OF_VERSIONS: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Converts a definition from v1beta1 to v1; returns any other object as it is.
#[must_use]
pub(crate) fn served(mut object: Value) -> Value {
    let is_definition = text(&object, "/kind") == "CustomResourceDefinition";
    if is_definition && text(&object, "/apiVersion") == "apiextensions.k8s.io/v1beta1" {
        object["apiVersion"] = "apiextensions.k8s.io/v1".into();
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            convert(spec);
        }
    }
    object
}

fn convert(spec: &mut Map<String, Value>) {
    let version = spec.shift_remove("version");
    let is_listed = spec.get("versions").and_then(Value::as_array).is_some_and(|versions| !versions.is_empty());
    if !is_listed {
        spec.insert("versions".to_owned(), json!([{ "name": version, "served": true, "storage": true }]));
    }
    let common = OF_VERSIONS.map(|(old, new)| (new, spec.shift_remove(old)));
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(version) = version.as_object_mut() else { continue };
        for (name, value) in common.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            if version.get(*name).is_none_or(Value::is_null) {
                version.insert((*name).to_owned(), value.clone());
            }
        }
        let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut).into_iter().flatten();
        for column in columns.filter_map(Value::as_object_mut) {
            if let Some(path) = column.shift_remove("JSONPath") {
                column.insert("jsonPath".to_owned(), path);
            }
        }
    }
    if spec.get("preserveUnknownFields") == Some(&json!(false)) {
        spec.shift_remove("preserveUnknownFields");
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let (client, versions) =
            (conversion.shift_remove("webhookClientConfig"), conversion.shift_remove("conversionReviewVersions"));
        if let Some(client) = client {
            let webhook = json!({ "clientConfig": client, "conversionReviewVersions": versions });
            conversion.insert("webhook".to_owned(), webhook);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(api_version: &str, spec: &Value) -> Value {
        json!({"apiVersion": api_version, "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}, "spec": spec})
    }

    #[test]
    fn what_v1beta1_has_once_is_in_each_version_of_v1() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let stored = json!({
            "group": "b", "version": "v1", "validation": schema, "subresources": {"status": {}}, "preserveUnknownFields": false,
            "additionalPrinterColumns": [{"name": "Age", "JSONPath": ".a"}],
            "versions": [{"name": "v1", "served": true}, {"name": "v2", "schema": {"openAPIV3Schema": {}}}],
            "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]},
        });
        let columns = json!([{"name": "Age", "jsonPath": ".a"}]);
        let expected = json!({
            "group": "b",
            "versions": [
                {"name": "v1", "served": true, "schema": schema, "subresources": {"status": {}}, "additionalPrinterColumns": columns},
                {"name": "v2", "schema": {"openAPIV3Schema": {}}, "subresources": {"status": {}}, "additionalPrinterColumns": columns},
            ],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]}},
        });
        let (old, new) = ("apiextensions.k8s.io/v1beta1", "apiextensions.k8s.io/v1");
        assert_eq!(served(definition(old, &stored)), definition(new, &expected));
        assert_eq!(served(definition(new, &expected)), definition(new, &expected));
    }

    #[test]
    fn a_definition_without_versions_gets_its_only_one() {
        let stored = definition("apiextensions.k8s.io/v1beta1", &json!({"version": "v1"}));
        assert_eq!(served(stored)["spec"], json!({"versions": [{"name": "v1", "served": true, "storage": true}]}));
    }
}
