//! Nodes of the trie.

use git2::Oid;
use sha1::{Digest, Sha1};

use super::super::key_record::KeyRecord;
use super::super::pack::{self, Kind};
use super::{LEAF_KEYS, ShapeError};

/// Approximate length of a line without its key, and of a tree entry, in bytes.
const LINE_LEN: usize = 24;
const ENTRY_LEN: usize = 29;

/// A blob or a tree of the trie.
#[derive(Debug)]
pub(crate) struct Node {
    /// `None` if it changed since it was last written.
    oid: Option<Oid>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Leaf(Vec<KeyRecord>),
    Inner { children: Box<[Option<Node>; 16]>, keys: usize },
}

impl Default for Node {
    fn default() -> Self {
        Node { oid: None, content: Content::Leaf(Vec::new()) }
    }
}

/// Returns which child of a node at `depth` holds the key with this hash.
pub(in super::super) fn digit(hash: &[u8; 20], depth: usize) -> usize {
    let byte = hash[depth / 2];
    usize::from(if depth.is_multiple_of(2) { byte >> 4 } else { byte & 0xf })
}

pub(in super::super) fn hash(key: &[u8]) -> [u8; 20] {
    Sha1::digest(key).into()
}

impl Node {
    /// Creates a leaf that is in the repository.
    pub(crate) fn leaf(oid: Oid, lines: Vec<KeyRecord>) -> Self {
        Node { oid: Some(oid), content: Content::Leaf(lines) }
    }

    /// Creates an inner node that is in the repository.
    pub(crate) fn inner(oid: Oid, children: [Option<Node>; 16]) -> Self {
        let keys = children.iter().flatten().map(Node::keys).sum();
        Node { oid: Some(oid), content: Content::Inner { children: Box::new(children), keys } }
    }

    pub(super) fn keys(&self) -> usize {
        match &self.content {
            Content::Leaf(lines) => lines.len(),
            Content::Inner { keys, .. } => *keys,
        }
    }

    /// Builds the canonical node of sorted lines whose hashes agree in the first `depth` digits.
    pub(super) fn build(lines: Vec<KeyRecord>, depth: usize) -> Self {
        if lines.len() <= LEAF_KEYS {
            return Node { oid: None, content: Content::Leaf(lines) };
        }
        let keys = lines.len();
        let mut parts: [Vec<KeyRecord>; 16] = Default::default();
        for line in lines {
            parts[digit(&hash(&line.key), depth)].push(line);
        }
        let children = parts.map(|part| (!part.is_empty()).then(|| Node::build(part, depth + 1)));
        Node { oid: None, content: Content::Inner { children: Box::new(children), keys } }
    }

    /// Marks the node as changed; returns its object's approximate length, or 0 if it was stale already.
    fn touch(&mut self) -> usize {
        if self.oid.take().is_none() {
            return 0;
        }
        match &self.content {
            Content::Leaf(lines) => lines.iter().map(|line| line.key.len() + LINE_LEN).sum(),
            Content::Inner { children, .. } => children.iter().flatten().count() * ENTRY_LEN,
        }
    }

    pub(super) fn put(&mut self, line: KeyRecord, hash: &[u8; 20], depth: usize, stale_bytes: &mut usize) -> bool {
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

    pub(super) fn remove(
        &mut self,
        key: &[u8],
        hash: &[u8; 20],
        depth: usize,
        stale_bytes: &mut usize,
    ) -> Option<KeyRecord> {
        let removed = match &mut self.content {
            Content::Leaf(lines) => {
                let index = lines.binary_search_by(|other| other.key[..].cmp(key)).ok()?;
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

    fn take_lines(&mut self, out: &mut Vec<KeyRecord>) {
        match &mut self.content {
            Content::Leaf(lines) => out.append(lines),
            Content::Inner { children, .. } => children.iter_mut().flatten().for_each(|child| child.take_lines(out)),
        }
    }

    pub(super) fn each<'n>(&'n self, found: &mut impl FnMut(&'n KeyRecord)) {
        match &self.content {
            Content::Leaf(lines) => lines.iter().for_each(found),
            Content::Inner { children, .. } => children.iter().flatten().for_each(|child| child.each(found)),
        }
    }

    pub(super) fn write(&mut self, pack: &mut pack::Writer, scratch: &mut Vec<u8>) -> Oid {
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
                    tree.extend_from_slice(if child.is_leaf() { b"100644 " } else { b"40000 " });
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

    pub(super) fn is_leaf(&self) -> bool {
        matches!(self.content, Content::Leaf(_))
    }

    /// Fails unless this is the node that [`Self::build`] builds from its keys.
    pub(super) fn check(&self, node: &mut String) -> Result<(), ShapeError> {
        let failed = |node: &str, problem| Err(ShapeError { node: node.to_owned(), problem });
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
                    if !(node.bytes().enumerate()).all(|(depth, name)| b"0123456789abcdef"[digit(&hash, depth)] == name)
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
