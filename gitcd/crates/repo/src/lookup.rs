//! Lookup of one key in the metadata, without reading the other keys.
//!
//! Reads one small object for each level of the trie (`docs/design/git.md`, *The metadata tree*): four for 100,000 keys.
//! Successive lookups in neighbouring commits read only objects that differ.

use git2::{Odb, Oid};
use gitcd_merge::form::Form;

use super::changes::{self, TreeError};
use super::key_record::{KeyRecord, Location, Record};
use super::object;
use super::trie::{digit, hash};

/// A key as of a metadata commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its revisions.
    pub record: Record,
    /// How its value is stored.
    pub form: Form,
    /// Whether it is stored with the metadata instead of in the data tree.
    pub is_local: bool,
}

/// Looks up one key in the metadata of several commits.
#[derive(Clone, Debug)]
pub struct Lookup {
    key: Vec<u8>,
    hash: [u8; 20],
    /// The nodes on the path to the last answer, from the root on.
    way: Vec<Oid>,
    answer: Option<Known>,
}

impl Lookup {
    /// Creates a lookup of a whole key.
    pub fn new(key: &[u8]) -> Self {
        Self { key: key.to_vec(), hash: hash(key), way: Vec::new(), answer: None }
    }

    /// Returns the key's metadata in this tree; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`TreeError`] if an object is missing or malformed.
    pub fn find(&mut self, odb: &Odb<'_>, tree: Oid) -> Result<Option<Known>, TreeError> {
        let missing = || TreeError { oid: tree, problem: "it is not the tree of a metadata commit".into() };
        let (mut is_directory, mut node) = changes::any_entry(odb, tree, b"keys")?.ok_or_else(missing)?;
        for depth in 0.. {
            if self.way.get(depth) == Some(&node) {
                return Ok(self.answer);
            }
            self.way.truncate(depth);
            self.way.push(node);
            if !is_directory {
                self.answer = self.in_leaf(odb, node)?;
                break;
            }
            if depth == 2 * self.hash.len() {
                return Err(TreeError { oid: node, problem: "the metadata is deeper than its keys are long".into() });
            }
            let name = char::from_digit(digit(&self.hash, depth) as u32, 16).expect("a digit is below 16");
            let Some(child) = changes::any_entry(odb, node, &[name as u8])? else {
                self.answer = None;
                break;
            };
            (is_directory, node) = child;
        }
        Ok(self.answer)
    }

    fn in_leaf(&self, odb: &Odb<'_>, leaf: Oid) -> Result<Option<Known>, TreeError> {
        let failed = |problem: String| TreeError { oid: leaf, problem };
        let object = object::read(odb, leaf).map_err(|error| failed(error.message().to_owned()))?;
        let lines = KeyRecord::parse_all(object.data()).map_err(|error| failed(error.to_string()))?;
        let line = lines.into_iter().find(|line| line.key == self.key);
        Ok(line.map(|line| Known { record: line.record, form: line.form, is_local: line.home == Location::Local }))
    }
}

/// Returns any key of the data tree; `None` if the metadata with this tree has none.
///
/// # Errors
/// [`TreeError`].
pub fn any_data_key(odb: &Odb<'_>, tree: Oid) -> Result<Option<Vec<u8>>, TreeError> {
    let Some(root) = changes::any_entry(odb, tree, b"keys")? else { return Ok(None) };
    let mut nodes = vec![root];
    while let Some((is_directory, node)) = nodes.pop() {
        if is_directory {
            nodes.extend(changes::entries(odb, node)?);
            continue;
        }
        let failed = |problem: String| TreeError { oid: node, problem };
        let object = object::read(odb, node).map_err(|error| failed(error.message().to_owned()))?;
        let lines = KeyRecord::parse_all(object.data()).map_err(|error| failed(error.to_string()))?;
        if let Some(line) = lines.iter().find(|line| line.home == Location::Data) {
            return Ok(Some(line.key.to_vec()));
        }
    }
    Ok(None)
}
