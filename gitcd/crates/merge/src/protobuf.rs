//! What a deletion needs to know about an object that is stored as protobuf: its identity, and what keeps it.
//!
//! Read-only: such values are merged whole. Sources: `k8s.io/apimachinery/pkg/runtime/serializer/protobuf` (the prefix and
//! `Unknown`), `…/apis/meta/v1/generated.proto` (`ObjectMeta`, `ManagedFieldsEntry`), `k8s.io/api/core/v1/generated.proto`
//! (`PodSpec`).

use super::authorship;

/// The prefix of a value that kube-apiserver stores as protobuf.
pub const PREFIX: &[u8] = b"k8s\0";
/// The prefix of a value that kube-apiserver encrypts at rest.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";

/// Returns `apiVersion` and kind of a value stored as protobuf.
pub fn type_meta(value: &[u8]) -> Option<(&str, &str)> {
    let of_type = fields(first(&fields(value.strip_prefix(PREFIX)?)?, 1)?)?;
    Some((str::from_utf8(first(&of_type, 1)?).ok()?, str::from_utf8(first(&of_type, 2)?).ok()?))
}

/// The metadata of an object, as far as needed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Object<'v> {
    uid: &'v [u8],
    finalizers: Vec<&'v [u8]>,
    managers: Vec<&'v [u8]>,
    is_pod: bool,
    is_bound: bool,
}

impl<'v> Object<'v> {
    /// Reads a stored value; `None` if it is not an object in this form.
    pub(super) fn read(value: &'v [u8]) -> Option<Self> {
        let unknown = fields(value.strip_prefix(PREFIX)?)?;
        let object = fields(first(&unknown, 2)?)?;
        let metadata = fields(first(&object, 1)?)?;
        let all = |number: u64| metadata.iter().filter(move |(found, _)| *found == number).map(|(_, bytes)| *bytes);
        let is_pod = type_meta(value)? == ("v1", "Pod");
        let spec = first(&object, 2).filter(|_| is_pod).and_then(fields).unwrap_or_default();
        Some(Self {
            uid: first(&metadata, 5).filter(|uid| !uid.is_empty())?,
            finalizers: all(14).collect(),
            managers: all(17).collect(),
            is_pod,
            is_bound: first(&spec, 10).is_some_and(|node| !node.is_empty()),
        })
    }

    /// Returns whether both are the same object.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.uid == other.uid
    }

    /// Returns whether the object would be terminating, and not deleted, if a deletion followed the changes since `base`.
    pub(super) fn is_held(&self, base: &Self) -> bool {
        let was_bound_since = self.is_pod && self.is_bound && !base.is_bound;
        was_bound_since || self.finalizers.iter().any(|finalizer| !base.finalizers.contains(finalizer))
    }

    /// Returns whether a user made a change since `base`.
    pub(super) fn has_edit_of_a_person(&self, base: &Self) -> bool {
        let new: Vec<_> = self.managers.iter().filter(|entry| !base.managers.contains(entry)).collect();
        let is_of_person = |entry: &&[u8]| {
            let entry = fields(entry).unwrap_or_default();
            let text = |number| first(&entry, number).map(String::from_utf8_lossy).unwrap_or_default();
            text(8) != "status" && !authorship::is_name_of_program(&text(1))
        };
        new.is_empty() || new.into_iter().any(is_of_person)
    }
}

/// Returns the length-delimited fields of a message, skipping others; `None` if it is malformed.
fn fields(mut message: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => drop(varint(&mut message)?),
            1 => message = message.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                found.push((tag >> 3, bytes));
                message = rest;
            }
            5 => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(found)
}

fn first<'v>(fields: &[(u64, &'v [u8])], number: u64) -> Option<&'v [u8]> {
    fields.iter().find(|(found, _)| *found == number).map(|(_, bytes)| *bytes)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("short");
        assert!(length < 128, "one byte is enough for the length");
        [&[number << 3 | 2, length][..], bytes].concat()
    }

    /// A field with a number above 15.
    fn far_field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let tag = u16::from(number) << 3 | 2;
        [&[(tag & 0x7f) as u8 | 0x80, (tag >> 7) as u8, u8::try_from(bytes.len()).expect("short")][..], bytes].concat()
    }

    fn pod(uid: &str, finalizers: &[&str], node: &str, manager: &str) -> Vec<u8> {
        let kind = [field(1, b"v1"), field(2, b"Pod")].concat();
        let mut metadata = [field(1, b"web"), field(5, uid.as_bytes())].concat();
        // A generation.
        metadata.extend([7 << 3, 3]);
        metadata.extend(finalizers.iter().flat_map(|name| field(14, name.as_bytes())));
        metadata.extend(far_field(17, &field(1, manager.as_bytes())));
        let object = [field(1, &metadata), field(2, &field(10, node.as_bytes()))].concat();
        [PREFIX, &field(1, &kind), &field(2, &object)].concat()
    }

    #[test]
    fn identity_finalizers_and_binding_are_read() {
        let base = pod("u1", &["a"], "", "kubectl-create");
        let read = |value: &'static [u8]| Object::read(value).expect("the value is an object");
        let base = read(base.leak());
        assert_eq!(
            (base.uid, &base.finalizers[..], base.is_pod, base.is_bound),
            (&b"u1"[..], &[&b"a"[..]][..], true, false)
        );
        assert!(!base.is_held(&base));
        assert!(read(pod("u1", &["a", "b"], "", "kubectl-create").leak()).is_held(&base));
        assert!(read(pod("u1", &[], "n1", "kubectl-create").leak()).is_held(&base));
        assert!(!read(pod("u2", &[], "", "").leak()).is(&base));
        assert!(read(pod("u1", &[], "", "kubectl-edit").leak()).has_edit_of_a_person(&base));
        assert!(!read(pod("u1", &[], "", "kube-scheduler").leak()).has_edit_of_a_person(&base));
        for other in [&b""[..], b"k8s\0", b"{}", b"k8s\0\x0a\xff", b"k8s:enc:aescbc:v1:key:\x9f"] {
            assert_eq!(Object::read(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn a_deletion_comes_after_a_change() {
        use crate::schema::Schemas;
        use crate::{Outcome, Policy, Side, merge};
        let base = pod("u1", &["a"], "", "kubectl-create");
        let merged = |changed: &[u8]| {
            let theirs = Some(Side::of(changed));
            merge(&Schemas::default(), Policy::Later, Some(&base), None, theirs)
        };
        let by_scheduler = merged(&pod("u1", &["a"], "", "kube-scheduler"));
        assert_eq!((by_scheduler.outcome, by_scheduler.conflicts.len()), (Outcome::Ours, 0));
        let by_person = merged(&pod("u1", &["a"], "", "kubectl-edit"));
        assert_eq!((by_person.outcome, by_person.conflicts.len()), (Outcome::Ours, 1));
        assert_eq!(merged(&pod("u1", &["a"], "n1", "kube-scheduler")).outcome, Outcome::Theirs);
        assert_eq!(merged(&pod("u2", &[], "", "kubectl-create")).outcome, Outcome::Theirs);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let value = [PREFIX, &bytes].concat();
            let found = Object::read(&value);
            prop_assert!(found.is_none_or(|found| !found.uid.is_empty()));
        }
    }
}
