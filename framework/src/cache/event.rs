//! Events of a watch.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::objects::CachedObject;
use super::packed::Packed;
use super::text::{misfit, pared};
use crate::{Key, Kind, Object};

/// The annotation of `kubectl apply` without `--server-side`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The events of kube-runtime's watcher.
pub(super) enum Event<K> {
    /// An object was added or changed.
    Apply(Read<K>),
    /// An object was deleted, at this version.
    Delete(Key, Option<u64>),
    /// A list starts.
    Init,
    /// An object of the list.
    InitApply(Read<K>),
    /// An object of the list was deleted before the list was complete.
    InitDelete(Key),
    /// The list is complete: objects that were not in it at this version are gone.
    InitDone(Option<u64>),
}

/// A decoded object.
pub(super) enum Read<K> {
    /// It matches its type.
    Fits(Box<Fits<K>>),
    /// It does not.
    InvalidObject(InvalidObject),
}

pub(super) struct Fits<K> {
    pub(super) key: Key,
    pub(super) object: K,
    pub(super) known: CachedObject<K>,
}

/// An invalid object: it does not match its type, because the schema is looser or the stored object is newer than the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidObject {
    pub(crate) key: Key,
    pub(crate) uid: Option<String>,
    pub(crate) version: String,
    /// The field, and the expected type.
    pub(crate) why: String,
}

impl InvalidObject {
    pub(super) fn number(&self) -> Option<u64> {
        self.version.parse().ok()
    }
}

/// The fields that every object has.
#[derive(Deserialize)]
struct Partial {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Metadata {
    fn key(&self) -> Key {
        let name = self.name.as_deref().unwrap_or_default();
        self.namespace.as_deref().map_or_else(|| Key::cluster(name), |namespace| Key::namespaced(namespace, name))
    }
}

impl<K: Object> Read<K> {
    /// Decodes an object. Returns its version, too, which is empty if there is none.
    ///
    /// # Errors
    /// The text is not an object.
    pub(super) fn of(kind: &Kind<K>, raw: &RawValue) -> serde_json::Result<(Self, String)> {
        let text = pared(raw.get(), &kind.types())?;
        match serde_json::from_str::<K>(&text) {
            Ok(mut object) => {
                let version = object.meta().resource_version.clone().unwrap_or_default();
                // It has the whole object again, which is not wanted here, and may be a Secret.
                let has_copy = K::metadata_api()
                    && object.meta_mut().annotations.as_mut().is_some_and(|all| all.remove(LAST_APPLIED).is_some());
                let packed = if has_copy { Packed::of(&object) } else { Packed::from_text(&text) };
                Ok((Self::fits(object, packed), version))
            }
            Err(error) => {
                let Partial { metadata } = serde_json::from_str(&text)?;
                let (key, why) = (metadata.key(), misfit(&text, &error));
                let version = metadata.resource_version.unwrap_or_default();
                Ok((
                    Self::InvalidObject(InvalidObject { key, uid: metadata.uid, version: version.clone(), why }),
                    version,
                ))
            }
        }
    }

    fn fits(object: K, packed: Packed<K>) -> Self {
        Self::Fits(Box::new(Fits::of(object, packed)))
    }
}

impl<K: Object> Fits<K> {
    fn of(object: K, packed: Packed<K>) -> Self {
        Self { key: Key::of(&object), known: CachedObject::of(&object, packed), object }
    }

    /// The response to a write, which arrives as a value.
    pub(super) fn learned(mut object: K) -> Self {
        object.meta_mut().managed_fields = None;
        let packed = Packed::of(&object);
        Self::of(object, packed)
    }
}

/// Returns the key of a deleted object, and the version of its deletion.
pub(super) fn gone(raw: &RawValue) -> serde_json::Result<(Key, String)> {
    let Partial { metadata } = serde_json::from_str(raw.get())?;
    Ok((metadata.key(), metadata.resource_version.unwrap_or_default()))
}
