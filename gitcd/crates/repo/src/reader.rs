//! Reads the objects of a commit, with errors that locate the problem.

use std::collections::HashMap;

use git2::{ObjectType, Odb, Oid, Repository};
use gitcd_merge::form;

use super::entries::{Entries, Entry, ParseError};
use super::graph;
use super::key_record::{KeyRecord, LineError};
use super::object;
use super::tree::{Directory, Tree};
use super::trie::{Node, ShapeError};

/// Why a branch cannot be read from the repository. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
#[error("{reference}, commit {commit}, {path:?}: {problem}; {}", problem.remedy(reference))]
pub struct LoadError {
    /// The reference with the commit.
    pub reference: String,
    /// The commit.
    pub commit: Oid,
    /// The path in its tree; empty for the commit itself.
    pub path: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a branch in the repository.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// An object is missing or cannot be read.
    #[error("cannot read the object {oid}: {}", source.message())]
    Unreadable {
        /// The object.
        oid: Oid,
        /// libgit2's error.
        source: git2::Error,
    },
    /// An object has the wrong type.
    #[error("the object {oid} is a {found}, not a {expected}")]
    Kind {
        /// The object.
        oid: Oid,
        /// The expected type.
        expected: ObjectType,
        /// The actual type.
        found: String,
    },
    /// A metadata commit must have the previous one, unless it is the first, and the data commit as parents.
    #[error("a metadata commit has one or two parents, this one has {0}")]
    Parents(usize),
    /// The tree of a metadata commit lacks a file.
    #[error("the file is missing")]
    Missing,
    /// Another version of gitcd wrote the metadata.
    #[error("the format is {0:?}, this version reads \"gitcd metadata 1\"")]
    Format(String),
    /// A key record cannot be parsed.
    #[error(transparent)]
    KeyRecord(#[from] LineError),
    /// The blobs of keys are not divided as the trie requires.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A directory cannot be read.
    #[error(transparent)]
    Tree(#[from] ParseError),
    /// A name stands for both a file and a directory.
    #[error("it is both a file and a directory")]
    Twice,
    /// A key of the metadata has no file in the tree.
    #[error("the metadata has the key {0:?}, but there is no such file")]
    NoFile(String),
    /// A file of the tree has no key in the metadata.
    #[error("the metadata has no key for this file")]
    NoKey,
    /// The recorded location of a key contradicts the key prefix.
    #[error("the key {0:?} is not where the key prefix puts it; use the prefix with which the branch was created")]
    Elsewhere(String),
    /// A blob does not match its form.
    #[error(transparent)]
    Value(#[from] form::DecodeError),
}

impl Problem {
    fn remedy(&self, reference: &str) -> String {
        match self {
            Problem::Elsewhere(_) => "give the branch's own key prefix".into(),
            Problem::Format(_) => "use a version of gitcd that knows this format".into(),
            _ => format!(
                "restore the branch's references from a clone or a backup, or move {reference} back to its last good commit \
                 with `git update-ref`"
            ),
        }
    }
}

/// The parents of a metadata commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parents {
    /// The previous metadata commit.
    pub(super) previous: Option<Oid>,
    /// The data commit that it describes.
    pub(super) data: Oid,
}

/// A directory whose children are still being read.
struct Unfinished {
    path: Vec<u8>,
    name: Box<[u8]>,
    entries: Entries,
    missing: Vec<(Box<[u8]>, Oid)>,
    children: HashMap<Box<[u8]>, Box<Directory>>,
}

/// Reads the objects of a commit, and locates errors by path.
pub(super) struct Reader<'r> {
    odb: Odb<'r>,
    reference: &'r str,
    commit: Oid,
}

impl<'r> Reader<'r> {
    pub(super) fn new(repository: &'r Repository, reference: &'r str, commit: Oid) -> Result<Self, LoadError> {
        let failed = |source| LoadError {
            reference: reference.into(),
            commit,
            path: String::new(),
            problem: Problem::Unreadable { oid: commit, source },
        };
        Ok(Reader { odb: repository.odb().map_err(failed)?, reference, commit })
    }

    pub(super) fn error(&self, path: &[u8], problem: impl Into<Problem>) -> LoadError {
        LoadError {
            reference: self.reference.into(),
            commit: self.commit,
            path: String::from_utf8_lossy(path).into_owned(),
            problem: problem.into(),
        }
    }

    /// Returns the commit's parents, also those beyond the boundary of the history, and the ID of its tree.
    pub(super) fn commit(&self) -> Result<(Vec<Oid>, Oid), LoadError> {
        let unreadable = |source| self.error(b"", Problem::Unreadable { oid: self.commit, source });
        let object = self.odb.read(self.commit).map_err(unreadable)?;
        if object.kind() != ObjectType::Commit {
            let found = object.kind().str().into();
            return Err(self.error(b"", Problem::Kind { oid: self.commit, expected: ObjectType::Commit, found }));
        }
        let malformed = || unreadable(git2::Error::from_str("the commit is malformed"));
        let commit = graph::parse(object.data()).ok_or_else(malformed)?;
        Ok((commit.parents, commit.tree))
    }

    pub(super) fn parents(&self) -> Result<Parents, LoadError> {
        match *self.commit()?.0 {
            [data] => Ok(Parents { previous: None, data }),
            [previous, data] => Ok(Parents { previous: Some(previous), data }),
            ref others => Err(self.error(b"", Problem::Parents(others.len()))),
        }
    }

    fn object(&self, path: &[u8], oid: Oid, kind: ObjectType) -> Result<git2::OdbObject<'_>, LoadError> {
        let object =
            object::read(&self.odb, oid).map_err(|source| self.error(path, Problem::Unreadable { oid, source }))?;
        if object.kind() != kind {
            let found = object.kind().str().into();
            return Err(self.error(path, Problem::Kind { oid, expected: kind, found }));
        }
        Ok(object)
    }

    pub(super) fn blob(&self, path: &[u8], oid: Oid) -> Result<git2::OdbObject<'_>, LoadError> {
        self.object(path, oid, ObjectType::Blob)
    }

    pub(super) fn entries(&self, path: &[u8], oid: Oid) -> Result<Entries, LoadError> {
        let object = self.object(path, oid, ObjectType::Tree)?;
        Entries::parse(object.data().to_vec()).map_err(|problem| self.error(path, problem))
    }

    /// Reads everything below a directory, except values.
    pub(super) fn tree(&self, path: &[u8], oid: Oid) -> Result<Tree, LoadError> {
        // Use a heap-allocated stack: trees may be deeper than a thread's stack allows.
        let mut way = vec![self.unfinished(path.to_vec(), &[], oid)?];
        loop {
            let last = way.last_mut().expect("the loop returns with the root");
            if let Some((name, oid)) = last.missing.pop() {
                let separator = if last.path.is_empty() { "" } else { "/" };
                let path = [&last.path, separator.as_bytes(), &name].concat();
                way.push(self.unfinished(path, &name, oid)?);
                continue;
            }
            let done = way.pop().expect("the stack is not empty");
            let directory = Directory::new(done.entries, done.children);
            match way.last_mut() {
                Some(parent) => parent.children.insert(done.name, Box::new(directory)),
                None => return Ok(Tree::new(directory)),
            };
        }
    }

    fn unfinished(&self, path: Vec<u8>, name: &[u8], oid: Oid) -> Result<Unfinished, LoadError> {
        let entries = self.entries(&path, oid)?;
        let mut missing = Vec::new();
        for (kind, name, oid) in entries.iter() {
            if kind == Entry::Directory {
                if entries.find(Entry::File, name).is_some() {
                    let path = [&path, &b"/"[..], name].concat();
                    return Err(self.error(&path, Problem::Twice));
                }
                missing.push((name.into(), oid));
            }
        }
        Ok(Unfinished { path, name: name.into(), entries, missing, children: HashMap::new() })
    }

    pub(super) fn node(&self, path: &mut Vec<u8>, kind: Entry, oid: Oid) -> Result<Node, LoadError> {
        if kind == Entry::File {
            let lines =
                KeyRecord::parse_all(self.blob(path, oid)?.data()).map_err(|problem| self.error(path, problem))?;
            return Ok(Node::leaf(oid, lines));
        }
        let mut children: [Option<Node>; 16] = Default::default();
        let len = path.len();
        for (kind, name, oid) in self.entries(path, oid)?.iter() {
            path.push(b'/');
            path.extend_from_slice(name);
            let digit = match name {
                [digit @ b'0'..=b'9'] => usize::from(digit - b'0'),
                [digit @ b'a'..=b'f'] => usize::from(digit - b'a' + 10),
                _ => return Err(self.error(path, ShapeError::unknown_node())),
            };
            let child = self.node(path, kind, oid)?;
            if children[digit].replace(child).is_some() {
                return Err(self.error(path, Problem::Twice));
            }
            path.truncate(len);
        }
        Ok(Node::inner(oid, children))
    }
}
