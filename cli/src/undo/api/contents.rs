//! What would be deleted with a Namespace or a `CustomResourceDefinition`.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use serde_json::Value;
use trishanku_undo::ObjectRef;
use trishanku_undo::document::text;

use super::{Api, ApiError, escaped, resources, root};

/// Concurrent requests.
const AT_A_TIME: usize = 8;
/// Asks for the metadata of objects alone.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

impl Api {
    /// Returns each kind whose objects are deleted with a Namespace or a `CustomResourceDefinition`.
    async fn content_kinds(&self, container: &Value) -> Result<Vec<ObjectRef>, ApiError> {
        let name = text(container, "/metadata/name");
        if text(container, "/kind") == "Namespace" {
            return self.namespaced_kinds(name).await;
        }
        let versions = container.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let served = versions.into_iter().find(|version| version["served"] == true);
        let group = text(container, "/spec/group");
        let like = |version: &Value| ObjectRef {
            api_version: format!("{group}/{}", text(version, "/name")),
            kind: text(container, "/spec/names/kind").to_owned(),
            ..ObjectRef::default()
        };
        Ok(served.map(like).into_iter().collect())
    }

    /// Checks that the user can list all objects that would be deleted with a Namespace or a `CustomResourceDefinition`.
    pub(in crate::undo) async fn check_contents(&self, container: &Value) -> Result<(), ApiError> {
        let checks = self.content_kinds(container).await?.into_iter().map(async |like| {
            let path = format!("{}?limit=1", self.collection(&like).await?);
            let listed = self.send_for(Method::GET, &path, None, METADATA).await;
            listed.map(drop).map_err(|error| error.of_api(&like.api_version))
        });
        futures::stream::iter(checks).buffer_unordered(AT_A_TIME).try_collect().await
    }

    /// Returns the metadata of all objects that would be deleted with a Namespace or a `CustomResourceDefinition`.
    pub(in crate::undo) async fn contents(&self, container: &Value) -> Result<Vec<Value>, ApiError> {
        let kinds = self.content_kinds(container).await?;
        let lists = kinds.into_iter().map(async |like| {
            // Such a Secret is left to its controller, which the metadata alone does not show.
            let selection = if like.is("", "Secret") {
                format!("&fieldSelector={}", escaped("type!=kubernetes.io/service-account-token"))
            } else {
                String::new()
            };
            self.pages(&self.collection(&like).await?, &selection, &like, METADATA).await
        });
        let lists: Vec<Vec<Value>> = futures::stream::iter(lists).buffer_unordered(AT_A_TIME).try_collect().await?;
        Ok(lists.into_iter().flatten().collect())
    }

    /// Returns each kind whose objects are deleted with their namespace, in the version that kube-apiserver prefers, or in another one
    /// if it has only that.
    async fn namespaced_kinds(&self, namespace: &str) -> Result<Vec<ObjectRef>, ApiError> {
        let groups = self.send(Method::GET, "/apis", None).await?;
        let groups = groups["groups"].as_array().into_iter().flatten();
        let versions = groups.flat_map(|group| {
            let others = group["versions"].as_array().into_iter().flatten();
            let others = others.map(|version| text(version, "/groupVersion").to_owned());
            std::iter::once(text(group, "/preferredVersion/groupVersion").to_owned()).chain(others)
        });
        let (mut found, mut known) = (Vec::new(), BTreeSet::new());
        for api_version in std::iter::once("v1".to_owned()).chain(versions) {
            let list = self.send(Method::GET, &root(&api_version), None).await;
            let list = list.map_err(|error| error.of_api(&api_version))?;
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            for served in resources(&list).into_iter().filter(|served| served.is_namespaced && served.is_deletable) {
                if known.insert((group.to_owned(), served.kind.clone())) {
                    let (api_version, namespace) = (api_version.clone(), Some(namespace.to_owned()));
                    found.push(ObjectRef { api_version, kind: served.kind, namespace, ..ObjectRef::default() });
                }
            }
        }
        Ok(found)
    }
}
