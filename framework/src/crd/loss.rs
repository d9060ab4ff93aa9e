//! Data that a change of a definition would lose.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};

/// Data that a change of a definition would lose.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// A version is removed in which objects may be stored. They could no longer be read.
    Version(String),
    /// Objects would be stored in another version with another schema, without conversion: fields that it lacks would be dropped.
    Fields {
        /// The storage version.
        from: String,
        /// The next storage version.
        to: String,
    },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(
                f,
                "objects may be stored in version {version}, which would be removed; keep it (`served: false` is enough), or \
                 write all objects again and remove {version} from status.storedVersions"
            ),
            Self::Fields { from, to } => write!(
                f,
                "objects are stored in version {from}, and fields that {to} lacks would be lost; keep {from} as the storage version, \
                 convert with a webhook, or apply the printed definition by hand if nothing is stored"
            ),
        }
    }
}

pub(super) fn between(live: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Option<Loss> {
    let stored = live.status.as_ref().and_then(|status| status.stored_versions.as_deref()).unwrap_or_default();
    let gone = |version: &&String| !wanted.spec.versions.iter().any(|wanted| wanted.name == **version);
    if let Some(version) = stored.iter().find(gone) {
        return Some(Loss::Version(version.clone()));
    }
    let converts = wanted.spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy == "Webhook");
    let (from, to) = (storage(live)?, storage(wanted)?);
    let loses = from.name != to.name && from.schema != to.schema && !converts;
    loses.then(|| Loss::Fields { from: from.name.clone(), to: to.name.clone() })
}

fn storage(definition: &CustomResourceDefinition) -> Option<&CustomResourceDefinitionVersion> {
    definition.spec.versions.iter().find(|version| version.storage)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A definition with these versions, each with the only field of its schema. The first is the storage version.
    fn definition(versions: &[(&str, &str)], stored: &[&str], conversion: &str) -> CustomResourceDefinition {
        let version = |(index, (name, field)): (usize, &(&str, &str))| {
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {*field: {"type": "string"}}}});
            json!({"name": name, "served": true, "storage": index == 0, "schema": schema})
        };
        let versions: Vec<_> = versions.iter().enumerate().map(version).collect();
        let spec = json!({
            "group": "example.org", "scope": "Cluster", "names": {"kind": "Tank", "plural": "tanks"},
            "versions": versions, "conversion": {"strategy": conversion}
        });
        serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": {"storedVersions": stored}})).unwrap()
    }

    #[test]
    fn only_what_is_stored_can_be_lost() {
        let live = definition(&[("v1", "level")], &["v1"], "None");
        let fields = Loss::Fields { from: "v1".to_owned(), to: "v2".to_owned() };
        for (versions, conversion, expected) in [
            ([("v1", "level")].as_slice(), "None", None),
            (&[("v1", "level"), ("v2", "depth")], "None", None),
            (&[("v2", "level")], "None", Some(Loss::Version("v1".to_owned()))),
            (&[("v2", "depth"), ("v1", "level")], "None", Some(fields)),
            (&[("v2", "depth"), ("v1", "level")], "Webhook", None),
            (&[("v2", "level"), ("v1", "level")], "None", None),
        ] {
            assert_eq!(between(&live, &definition(versions, &[], conversion)), expected, "{versions:?} {conversion}");
        }
        let migrated = definition(&[("v2", "level"), ("v1", "level")], &["v2"], "None");
        assert_eq!(between(&migrated, &definition(&[("v2", "level")], &[], "None")), None);
    }
}
