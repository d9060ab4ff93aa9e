//! A cache of trees.

use std::collections::HashMap;
use std::sync::Arc;

use git2::{ObjectType, Odb, Oid};

use super::TreeError;
use super::items::{Kind, parse};
use crate::object;

/// The kind of a tree's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link or a submodule.
    Other,
}

/// An entry of a tree.
#[derive(Clone, Debug)]
pub(crate) struct TreeEntry {
    pub(crate) kind: EntryKind,
    pub(crate) name: Vec<u8>,
    pub(crate) oid: Oid,
}

/// Reads trees and caches the recent ones: a walk through a history needs most of them twice.
pub struct Trees<'r> {
    odb: Odb<'r>,
    young: HashMap<Oid, Arc<[u8]>>,
    /// The previous generation; a hit moves back to the young one.
    old: HashMap<Oid, Arc<[u8]>>,
    /// Size of the young generation.
    bytes: usize,
}

/// Size at which the young generation becomes the old one.
const KEPT: usize = 16 << 20;

impl<'r> Trees<'r> {
    /// Creates a cache for this database.
    pub fn new(odb: Odb<'r>) -> Self {
        Self { odb, young: HashMap::new(), old: HashMap::new(), bytes: 0 }
    }

    pub(super) fn read(&mut self, oid: Oid) -> Result<Arc<[u8]>, TreeError> {
        if let Some(found) = self.young.get(&oid) {
            return Ok(found.clone());
        }
        let found = match self.old.remove(&oid) {
            Some(found) => found,
            None => read(&self.odb, oid)?.data().into(),
        };
        if self.bytes + found.len() > KEPT {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += found.len();
        self.young.insert(oid, found.clone());
        Ok(found)
    }

    /// Returns all entries of a tree.
    pub(crate) fn entries(&mut self, oid: Oid) -> Result<Vec<TreeEntry>, TreeError> {
        let tree = self.read(oid)?;
        let entry = |item: super::items::Item<'_>| TreeEntry {
            kind: match item.kind {
                Kind::File => EntryKind::File,
                Kind::Directory => EntryKind::Directory,
                Kind::Submodule | Kind::Other => EntryKind::Other,
            },
            name: item.name.to_vec(),
            oid: item.oid,
        };
        Ok(parse(oid, &tree)?.into_iter().map(entry).collect())
    }
}

pub(super) fn read<'o>(odb: &'o Odb<'_>, oid: Oid) -> Result<git2::OdbObject<'o>, TreeError> {
    let object = object::read(odb, oid).map_err(|error| super::failed(oid, &error))?;
    if object.kind() != ObjectType::Tree {
        return Err(TreeError { oid, problem: format!("it is a {}", object.kind().str()) });
    }
    Ok(object)
}
