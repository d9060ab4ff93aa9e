//! Objects as they are stored.

use std::marker::PhantomData;
use std::sync::Arc;

use serde_json::Value;

use crate::Object;

/// An object as JSON, in a third or a quarter of the memory: as a Rust value, each string, list and map has an allocation of
/// its own with room to spare.
///
/// It is the text that the apiserver sent, and has been decoded once.
pub(crate) struct Packed<K> {
    text: Arc<str>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> Packed<K> {
    /// Encodes an object, in some microseconds.
    pub(super) fn of(object: &K) -> Self {
        let text = serde_json::to_string(object);
        Self::from_text(
            &text.unwrap_or_else(|error| panic!("cannot encode a {} as JSON: {error}", std::any::type_name::<K>())),
        )
    }

    pub(crate) fn object(&self) -> Arc<K> {
        let object = serde_json::from_str(&self.text);
        Arc::new(object.unwrap_or_else(|error| {
            panic!("cannot decode a {} that was decoded or encoded before: {error}", std::any::type_name::<K>())
        }))
    }

    /// Returns all fields, including those that the type lacks.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.text).expect("the text is JSON")
    }
}

impl<K> Packed<K> {
    /// Wraps a text that can be decoded as a `K`.
    pub(super) fn from_text(text: &str) -> Self {
        Self { text: text.into(), kind: PhantomData }
    }

    /// Returns whether both are one text in memory.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text)
    }
}

impl<K> Clone for Packed<K> {
    fn clone(&self) -> Self {
        Self { text: self.text.clone(), kind: PhantomData }
    }
}

impl<K> PartialEq for Packed<K> {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || self.text == other.text
    }
}

impl<K> std::fmt::Debug for Packed<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packed").field("bytes", &self.text.len()).finish()
    }
}
