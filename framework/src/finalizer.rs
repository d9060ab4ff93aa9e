//! Finalizers: an object is deleted only after its cleanup.
//!
//! kube-runtime's `finalizer` treats a cleanup that succeeded as complete. Here a cleanup can report that it is still in
//! progress.

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::json;

use crate::Object;

/// Lifecycle stage of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reconcile it.
    Alive,
    /// Add the finalizer, then reconcile it.
    Unprotected,
    /// Clean up, then remove the finalizer.
    Ending,
    /// It is being deleted, and our finalizer is gone: nothing is left to do.
    LetGo,
}

/// Returns the lifecycle stage of an object with respect to `finalizer`. Without a finalizer, there is no cleanup.
pub fn stage(object: &impl Resource, finalizer: Option<&str>) -> Stage {
    let metadata = object.meta();
    let protected =
        finalizer.is_some_and(|ours| metadata.finalizers.iter().flatten().any(|finalizer| finalizer == ours));
    match (metadata.deletion_timestamp.is_some(), protected) {
        (false, false) if finalizer.is_some() => Stage::Unprotected,
        (false, _) => Stage::Alive,
        (true, true) => Stage::Ending,
        (true, false) => Stage::LetGo,
    }
}

/// Adds the finalizer.
///
/// # Errors
/// 422 if the object's finalizers have changed, or if another object has its name now; that change triggers the next attempt.
pub async fn put_on<K: Object>(api: &Api<K>, object: &K, finalizer: &str) -> kube::Result<()> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    finalizers.push(finalizer.to_owned());
    patch(api, object, &finalizers).await
}

/// Removes the finalizer; others stay.
///
/// # Errors
/// As [`put_on`].
pub async fn take_off<K: Object>(api: &Api<K>, object: &K, finalizer: &str) -> kube::Result<()> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    finalizers.retain(|other| other != finalizer);
    match patch(api, object, &finalizers).await {
        // The object is already gone.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => result,
    }
}

async fn patch<K: Object>(api: &Api<K>, object: &K, finalizers: &[String]) -> kube::Result<()> {
    let (metadata, list) = (object.meta(), "/metadata/finalizers");
    // The patch replaces the whole list, so it requires the list that we know, on this object. It does not compare the
    // resource version, because a cleanup may write a status each time.
    let known = metadata.finalizers.as_ref().filter(|known| !known.is_empty());
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": list, "value": known},
        {"op": "add", "path": list, "value": finalizers},
    ]);
    let patch = Patch::<()>::Json(serde_json::from_value(patch).map_err(kube::Error::SerdeError)?);
    let name = metadata.name.as_deref().unwrap_or_default();
    api.patch_metadata(name, &PatchParams::default(), &patch).await.map(drop)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn what_an_object_is_in_for_follows_from_its_finalizers_and_its_deletion() {
        let object = |deleted: bool, finalizers: &[&str]| {
            let mut map = ConfigMap::default();
            map.metadata.deletion_timestamp = deleted.then_some(Time(Timestamp::UNIX_EPOCH));
            map.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
            map
        };
        for (deleted, finalizers, with, without) in [
            (false, [].as_slice(), Stage::Unprotected, Stage::Alive),
            (false, &["x/other"], Stage::Unprotected, Stage::Alive),
            (false, &["x/other", "x/ours"], Stage::Alive, Stage::Alive),
            (true, &["x/other", "x/ours"], Stage::Ending, Stage::LetGo),
            (true, &["x/other"], Stage::LetGo, Stage::LetGo),
        ] {
            let object = object(deleted, finalizers);
            assert_eq!(stage(&object, Some("x/ours")), with, "{deleted} {finalizers:?}");
            assert_eq!(stage(&object, None), without, "{deleted} {finalizers:?}");
        }
    }
}
