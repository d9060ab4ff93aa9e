//! Objects as they are kept.

use std::marker::PhantomData;
use std::sync::Arc;

use serde_json::Value;

use crate::Object;

/// An object as JSON, which takes a third or a quarter of the room: in memory each text, list and map has room to spare and a place of its own.
///
/// It is the text that the apiserver sent, and has been read once.
pub(crate) struct Packed<K> {
    text: Arc<str>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> Packed<K> {
    /// Takes some microseconds.
    pub(super) fn of(object: &K) -> Self {
        let text = serde_json::to_string(object);
        Self::from_text(
            &text.unwrap_or_else(|error| panic!("a {} cannot be written as JSON: {error}", std::any::type_name::<K>())),
        )
    }

    pub(crate) fn object(&self) -> Arc<K> {
        let object = serde_json::from_str(&self.text);
        Arc::new(object.unwrap_or_else(|error| {
            panic!("a {} cannot read what it has read before, or written: {error}", std::any::type_name::<K>())
        }))
    }

    /// Its fields, also those that its type does not have.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.text).expect("it is JSON")
    }
}

impl<K> Packed<K> {
    /// A text that can be read as a `K`.
    pub(super) fn from_text(text: &str) -> Self {
        Self { text: text.into(), kind: PhantomData }
    }

    /// Whether both are one, not only equal.
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
