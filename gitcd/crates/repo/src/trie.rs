//! The key records, in a trie of blobs.
//!
//! A node with at most [`LEAF_KEYS`] keys is a blob of their sorted lines; a larger node is a tree of up to sixteen nodes, chosen
//! by the next hexadecimal digit of the key's SHA-1. So the shape only depends on the set of keys, and a changed key changes one
//! small blob and a few small trees. A flush writes each node once, and therefore whole: a delta needs a former version in the
//! same pack.

use git2::Oid;

use super::key_record::KeyRecord;
use super::pack;

mod node;

pub(super) use node::{Node, digit, hash};

/// Maximum number of keys in a blob.
pub(super) const LEAF_KEYS: usize = 48;

/// The metadata of all keys. Every operation takes time in proportion to the depth and the size of one leaf.
#[derive(Debug, Default)]
pub(super) struct Trie {
    root: Node,
    /// Length of all changed nodes, before compression.
    stale_bytes: usize,
    /// Packed length and length before compression of the last write.
    last: Option<(usize, usize)>,
}

/// Why nodes do not form the trie of their keys.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("node {node:?}: {problem}")]
pub struct ShapeError {
    /// The digits on the path to the node; empty for the root.
    pub node: String,
    /// What is wrong.
    pub problem: &'static str,
}

impl ShapeError {
    /// Returns the error for a node whose name is not a digit.
    pub(super) fn unknown_node() -> Self {
        ShapeError { node: String::new(), problem: "the names of nodes are hexadecimal digits" }
    }
}

impl Trie {
    /// Creates the trie with this root, which is in the repository.
    ///
    /// # Errors
    /// [`ShapeError`] if it is not the one trie of its keys.
    pub(super) fn new(root: Node) -> Result<Self, ShapeError> {
        root.check(&mut String::new())?;
        Ok(Trie { root, ..Trie::default() })
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.root.keys()
    }

    /// Adds or replaces a key record; returns whether the key is new.
    pub(super) fn put(&mut self, line: KeyRecord) -> bool {
        let hash = hash(&line.key);
        self.root.put(line, &hash, 0, &mut self.stale_bytes)
    }

    /// Removes a key and returns its record.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<KeyRecord> {
        self.root.remove(key, &hash(key), 0, &mut self.stale_bytes)
    }

    /// Calls `found` for every key record, unordered.
    pub(super) fn each<'t>(&'t self, mut found: impl FnMut(&'t KeyRecord)) {
        self.root.each(&mut found);
    }

    /// Returns the key records of a node and of all nodes below it, unordered.
    pub(super) fn lines_of(node: &Node) -> Vec<KeyRecord> {
        let mut lines = Vec::with_capacity(node.keys());
        node.each(&mut |line| lines.push(line.clone()));
        lines
    }

    /// Adds every changed node to the pack. Returns the root's ID and whether it is a leaf.
    pub(super) fn write(&mut self, pack: &mut pack::Writer) -> (Oid, bool) {
        let before = pack.len();
        let oid = self.root.write(pack, &mut Vec::new());
        let stale_bytes = std::mem::take(&mut self.stale_bytes);
        if stale_bytes > 0 {
            self.last = Some((pack.len() - before, stale_bytes));
        }
        (oid, self.root.is_leaf())
    }

    /// Estimates what [`Self::write`] would add to a pack now, in bytes.
    pub(super) fn stale_bytes(&self) -> usize {
        // Lines of similar keys compress to a third or less.
        let (packed, raw) = self.last.unwrap_or((1, 3));
        self.stale_bytes * packed / raw
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_record::{Location, Record};
    use super::*;
    use gitcd_merge::form::Form;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn line(key: u16) -> KeyRecord {
        KeyRecord {
            key: format!("/registry/things/{key}").into(),
            record: Record { create_revision: 1, mod_revision: 1, version: 1, lease: 0 },
            form: Form::Raw,
            home: Location::Data,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_shape_depends_on_the_keys_only(puts in proptest::collection::vec(0..2000u16, 0..1500), removes in proptest::collection::vec(0..2000u16, 0..1500)) {
            let (mut trie, mut model) = (Trie::default(), BTreeSet::new());
            for key in puts {
                prop_assert_eq!(trie.put(line(key)), model.insert(key));
            }
            for key in removes {
                prop_assert_eq!(trie.remove(&line(key).key).is_some(), model.remove(&key));
            }
            prop_assert_eq!(trie.len(), model.len());
            prop_assert_eq!(trie.root.check(&mut String::new()), Ok(()));
            let mut lines: Vec<KeyRecord> = model.iter().map(|key| line(*key)).collect();
            lines.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            let mut found = Vec::new();
            trie.each(|line| found.push(line.clone()));
            found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            prop_assert_eq!(&found, &lines);
            let fresh = Node::build(lines, 0).write(&mut pack::Writer::default(), &mut Vec::new());
            prop_assert_eq!(trie.write(&mut pack::Writer::default()).0, fresh);
        }
    }
}
