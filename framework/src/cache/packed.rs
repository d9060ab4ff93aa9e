//! Objects as they are kept.

use std::marker::PhantomData;
use std::sync::Arc;

use serde_json::Value;

use crate::Object;

/// An object as JSON, which takes a third or a quarter of the room: in memory each text, list and map has room to spare and a place of its own.
pub(crate) struct Packed<K> {
    text: Arc<[u8]>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> Packed<K> {
    /// Takes some microseconds, as does the way back.
    pub(super) fn of(object: &K) -> Self {
        let text = serde_json::to_vec(object);
        let text =
            text.unwrap_or_else(|error| panic!("a {} cannot be written as JSON: {error}", std::any::type_name::<K>()));
        Self { text: text.into(), kind: PhantomData }
    }

    pub(crate) fn object(&self) -> Arc<K> {
        let object = serde_json::from_slice(&self.text);
        Arc::new(object.unwrap_or_else(|error| {
            panic!("a {} cannot read what it has written: {error}", std::any::type_name::<K>())
        }))
    }

    /// What the object would be written as.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.text).expect("it was written as JSON")
    }
}

impl<K> Packed<K> {
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
