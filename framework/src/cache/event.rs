//! What a watch tells.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::objects::Known;
use super::packed::Packed;
use super::text::{misfit, pared};
use crate::{Key, Kind, Object};

/// As kube-runtime's watcher has them.
pub(super) enum Event<K> {
    /// An object was added or changed.
    Apply(Read<K>),
    /// An object is gone; with the version at which it went.
    Delete(Key, Option<u64>),
    /// A list begins.
    Init,
    /// An object of the list.
    InitApply(Read<K>),
    /// The list has ended: what was not in it is gone.
    InitDone,
}

/// An object as it was read.
pub(super) enum Read<K> {
    /// It is of its type.
    Fits(Box<Fits<K>>),
    /// It is not.
    Misfit(Misfit),
}

pub(super) struct Fits<K> {
    pub(super) key: Key,
    pub(super) object: K,
    pub(super) known: Known<K>,
}

/// An object that does not fit its type: the schema is looser, or the program older than what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub(crate) key: Key,
    pub(crate) uid: Option<String>,
    pub(crate) version: String,
    /// Where, and what was expected.
    pub(crate) why: String,
}

impl Misfit {
    pub(super) fn number(&self) -> Option<u64> {
        self.version.parse().ok()
    }
}

/// What every object has.
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
    /// Reads what the apiserver sent; the version beside it is empty if there is none.
    ///
    /// # Errors
    /// It is not an object at all.
    pub(super) fn of(kind: &Kind<K>, raw: &RawValue) -> serde_json::Result<(Self, String)> {
        let text = pared(raw.get(), &kind.types())?;
        match serde_json::from_str::<K>(&text) {
            Ok(object) => {
                let version = object.meta().resource_version.clone().unwrap_or_default();
                Ok((Self::fits(object, Packed::from_text(&text), false), version))
            }
            Err(error) => {
                let Partial { metadata } = serde_json::from_str(&text)?;
                let (key, why) = (metadata.key(), misfit(&text, &error));
                let version = metadata.resource_version.unwrap_or_default();
                Ok((Self::Misfit(Misfit { key, uid: metadata.uid, version: version.clone(), why }), version))
            }
        }
    }

    fn fits(object: K, packed: Packed<K>, learned: bool) -> Self {
        Self::Fits(Box::new(Fits::of(object, packed, learned)))
    }
}

impl<K: Object> Fits<K> {
    fn of(object: K, packed: Packed<K>, learned: bool) -> Self {
        Self { key: Key::of(&object), known: Known::of(&object, packed, learned), object }
    }

    /// The answer to a write, which comes as a value.
    pub(super) fn learned(mut object: K) -> Self {
        object.meta_mut().managed_fields = None;
        let packed = Packed::of(&object);
        Self::of(object, packed, true)
    }
}

/// Which object is gone, and the version at which it went.
pub(super) fn gone(raw: &RawValue) -> serde_json::Result<(Key, String)> {
    let Partial { metadata } = serde_json::from_str(raw.get())?;
    Ok((metadata.key(), metadata.resource_version.unwrap_or_default()))
}
