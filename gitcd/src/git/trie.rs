//! The lines of all keys, in a trie of blobs.
//!
//! A node of at most [`LEAF_KEYS`] keys is a blob of their sorted lines; a node of more is a tree of up to sixteen
//! nodes, chosen by the next hexadecimal digit of the SHA-1 of the key. So the shape depends on the set of keys
//! only, and one changed key changes one small blob and a few small trees. A flush writes each node once, hence always
//! whole: a delta needs a former version in the same pack.

use git2::Oid;
use sha1::{Digest, Sha1};

use super::line::Line;
use super::pack::{self, Kind};

/// Most keys of one blob.
pub const LEAF_KEYS: usize = 48;
/// What a line, and an entry of a tree, probably take in a pack, in bytes.
const LINE_COST: usize = 40;
const ENTRY_COST: usize = 23;

/// The metadata of all keys. Every operation takes time in proportion to the depth and the size of one leaf.
#[derive(Debug, Default)]
pub struct Trie {
    root: Node,
    stale_bytes: usize,
}

/// A blob or a tree of the trie.
#[derive(Debug)]
pub struct Node {
    /// `None` if it has changed since it was last written.
    oid: Option<Oid>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Leaf(Vec<Line>),
    Inner {
        children: Box<[Option<Node>; 16]>,
        keys: usize,
    },
}

/// Why nodes do not form the trie of their keys.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("node {node:?}: {problem}")]
pub struct ShapeError {
    /// The digits that lead to it; empty for the root.
    pub node: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl ShapeError {
    /// The name of a node is not a digit.
    pub(super) fn unknown_node() -> Self {
        ShapeError {
            node: String::new(),
            problem: "the names of nodes are hexadecimal digits",
        }
    }
}

impl Default for Node {
    fn default() -> Self {
        Node {
            oid: None,
            content: Content::Leaf(Vec::new()),
        }
    }
}

/// Which child of a node at `depth` holds the key with this hash.
fn digit(hash: &[u8; 20], depth: usize) -> usize {
    let byte = hash[depth / 2];
    usize::from(if depth.is_multiple_of(2) {
        byte >> 4
    } else {
        byte & 0xf
    })
}

fn hash(key: &[u8]) -> [u8; 20] {
    Sha1::digest(key).into()
}

impl Node {
    /// A leaf that is in the repository.
    pub fn leaf(oid: Oid, lines: Vec<Line>) -> Self {
        Node {
            oid: Some(oid),
            content: Content::Leaf(lines),
        }
    }

    /// An inner node that is in the repository.
    pub fn inner(oid: Oid, children: [Option<Node>; 16]) -> Self {
        let keys = children.iter().flatten().map(Node::keys).sum();
        Node {
            oid: Some(oid),
            content: Content::Inner {
                children: Box::new(children),
                keys,
            },
        }
    }

    fn keys(&self) -> usize {
        match &self.content {
            Content::Leaf(lines) => lines.len(),
            Content::Inner { keys, .. } => *keys,
        }
    }

    /// The canonical node of sorted lines whose hashes agree in the first `depth` digits.
    fn build(lines: Vec<Line>, depth: usize) -> Self {
        if lines.len() <= LEAF_KEYS {
            return Node {
                oid: None,
                content: Content::Leaf(lines),
            };
        }
        let keys = lines.len();
        let mut parts: [Vec<Line>; 16] = Default::default();
        for line in lines {
            parts[digit(&hash(&line.key), depth)].push(line);
        }
        let children = parts.map(|part| (!part.is_empty()).then(|| Node::build(part, depth + 1)));
        Node {
            oid: None,
            content: Content::Inner {
                children: Box::new(children),
                keys,
            },
        }
    }

    /// The node is about to change; gives what writing it will probably take, if it was not stale before.
    fn touch(&mut self) -> usize {
        if self.oid.take().is_none() {
            return 0;
        }
        match &self.content {
            Content::Leaf(lines) => lines.len() * LINE_COST,
            Content::Inner { children, .. } => children.iter().flatten().count() * ENTRY_COST,
        }
    }

    fn put(&mut self, line: Line, hash: &[u8; 20], depth: usize, stale_bytes: &mut usize) -> bool {
        *stale_bytes += self.touch();
        match &mut self.content {
            Content::Leaf(lines) => {
                match lines.binary_search_by(|other| other.key.cmp(&line.key)) {
                    Ok(index) => {
                        lines[index] = line;
                        return false;
                    }
                    Err(index) => lines.insert(index, line),
                }
                if lines.len() > LEAF_KEYS {
                    *self = Node::build(std::mem::take(lines), depth);
                }
                true
            }
            Content::Inner { children, keys } => {
                let child = children[digit(hash, depth)].get_or_insert_default();
                let is_new = child.put(line, hash, depth + 1, stale_bytes);
                *keys += usize::from(is_new);
                is_new
            }
        }
    }

    fn remove(
        &mut self,
        key: &[u8],
        hash: &[u8; 20],
        depth: usize,
        stale_bytes: &mut usize,
    ) -> Option<Line> {
        let removed = match &mut self.content {
            Content::Leaf(lines) => {
                let index = lines
                    .binary_search_by(|other| other.key[..].cmp(key))
                    .ok()?;
                lines.remove(index)
            }
            Content::Inner { children, keys } => {
                let slot = &mut children[digit(hash, depth)];
                let child = slot.as_mut()?;
                let removed = child.remove(key, hash, depth + 1, stale_bytes)?;
                *keys -= 1;
                if child.keys() == 0 {
                    *slot = None;
                }
                removed
            }
        };
        *stale_bytes += self.touch();
        if matches!(&self.content, Content::Inner { keys, .. } if *keys <= LEAF_KEYS) {
            let mut lines = Vec::with_capacity(self.keys());
            self.take_lines(&mut lines);
            lines.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            self.content = Content::Leaf(lines);
        }
        Some(removed)
    }

    fn take_lines(&mut self, out: &mut Vec<Line>) {
        match &mut self.content {
            Content::Leaf(lines) => out.append(lines),
            Content::Inner { children, .. } => children
                .iter_mut()
                .flatten()
                .for_each(|child| child.take_lines(out)),
        }
    }

    fn each<'n>(&'n self, found: &mut impl FnMut(&'n Line)) {
        match &self.content {
            Content::Leaf(lines) => lines.iter().for_each(found),
            Content::Inner { children, .. } => children
                .iter()
                .flatten()
                .for_each(|child| child.each(found)),
        }
    }

    fn write(&mut self, pack: &mut pack::Writer, scratch: &mut Vec<u8>) -> Oid {
        if let Some(oid) = self.oid {
            return oid;
        }
        let (kind, content) = match &mut self.content {
            Content::Leaf(lines) => {
                scratch.clear();
                for line in lines {
                    line.format(scratch);
                }
                (Kind::Blob, &scratch[..])
            }
            Content::Inner { children, .. } => {
                let mut tree = Vec::with_capacity(16 * 30);
                for (digit, child) in children.iter_mut().enumerate() {
                    let Some(child) = child else { continue };
                    let oid = child.write(pack, scratch);
                    tree.extend_from_slice(if child.is_leaf() {
                        b"100644 "
                    } else {
                        b"40000 "
                    });
                    tree.extend_from_slice(&[b"0123456789abcdef"[digit], 0]);
                    tree.extend_from_slice(oid.as_bytes());
                }
                *scratch = tree;
                (Kind::Tree, &scratch[..])
            }
        };
        let oid = pack::id(kind, content);
        pack.whole(kind, oid, content);
        *self.oid.insert(oid)
    }

    fn is_leaf(&self) -> bool {
        matches!(self.content, Content::Leaf(_))
    }

    /// Fails unless this is the node that [`Self::build`] makes of its keys.
    fn check(&self, node: &mut String) -> Result<(), ShapeError> {
        let failed = |node: &str, problem| {
            Err(ShapeError {
                node: node.to_owned(),
                problem,
            })
        };
        let depth = node.len();
        match &self.content {
            Content::Leaf(lines) => {
                if lines.len() > LEAF_KEYS || (lines.is_empty() && depth > 0) {
                    return failed(node, "it must hold 1 to 48 keys");
                }
                if !lines.is_sorted_by(|a, b| a.key < b.key) {
                    return failed(node, "its lines are not sorted by key");
                }
                for line in lines {
                    let hash = hash(&line.key);
                    if !(node.bytes().enumerate())
                        .all(|(depth, name)| b"0123456789abcdef"[digit(&hash, depth)] == name)
                    {
                        return failed(node, "it holds a key of another node");
                    }
                }
            }
            Content::Inner { children, keys } => {
                if *keys <= LEAF_KEYS {
                    return failed(node, "it is divided although it holds at most 48 keys");
                }
                for (child, name) in children.iter().zip("0123456789abcdef".chars()) {
                    if let Some(child) = child {
                        node.push(name);
                        child.check(node)?;
                        node.pop();
                    }
                }
            }
        }
        Ok(())
    }
}

impl Trie {
    /// The trie with this root, which is in the repository.
    ///
    /// # Errors
    /// [`ShapeError`] if it is not the one trie of its keys.
    pub fn new(root: Node) -> Result<Self, ShapeError> {
        root.check(&mut String::new())?;
        Ok(Trie {
            root,
            stale_bytes: 0,
        })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.root.keys()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known about a key.
    pub fn find(&self, key: &[u8]) -> Option<&Line> {
        let hash = hash(key);
        let (mut node, mut depth) = (&self.root, 0);
        loop {
            match &node.content {
                Content::Leaf(lines) => {
                    let index = lines.binary_search_by(|line| line.key[..].cmp(key)).ok()?;
                    return Some(&lines[index]);
                }
                Content::Inner { children, .. } => {
                    node = children[digit(&hash, depth)].as_ref()?;
                    depth += 1;
                }
            }
        }
    }

    /// Adds a key, or replaces what is known about it; whether it is new.
    pub fn put(&mut self, line: Line) -> bool {
        let hash = hash(&line.key);
        self.root.put(line, &hash, 0, &mut self.stale_bytes)
    }

    /// Removes a key; gives what was known about it.
    pub fn remove(&mut self, key: &[u8]) -> Option<Line> {
        self.root.remove(key, &hash(key), 0, &mut self.stale_bytes)
    }

    /// Calls `found` for every key, in no useful order.
    pub fn each<'t>(&'t self, mut found: impl FnMut(&'t Line)) {
        self.root.each(&mut found);
    }

    /// Adds every changed node to the pack. Gives the root's id and whether it is a leaf.
    pub fn write(&mut self, pack: &mut pack::Writer) -> (Oid, bool) {
        self.stale_bytes = 0;
        (self.root.write(pack, &mut Vec::new()), self.root.is_leaf())
    }

    /// An estimate of what [`Self::write`] would add to a pack now, in bytes.
    pub fn stale_bytes(&self) -> usize {
        self.stale_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::Form;
    use super::super::line::{Home, Record};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn line(key: u16) -> Line {
        Line {
            key: format!("/registry/things/{key}").into(),
            record: Record {
                create_revision: 1,
                mod_revision: 1,
                version: 1,
                lease: 0,
            },
            form: Form::Raw,
            home: Home::Data,
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
            let mut lines: Vec<Line> = model.iter().map(|key| line(*key)).collect();
            prop_assert!(lines.iter().all(|line| trie.find(&line.key) == Some(line)));
            lines.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            let fresh = Node::build(lines, 0).write(&mut pack::Writer::default(), &mut Vec::new());
            prop_assert_eq!(trie.write(&mut pack::Writer::default()).0, fresh);
        }
    }
}
