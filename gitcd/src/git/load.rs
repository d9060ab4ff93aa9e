//! Reads a branch back from the repository.
//!
//! Everything is checked against everything: the metadata must be the trie of its keys, every key must have its file
//! and every file its key. What does not fit is an error that names the reference, the commit and the path in it.

use std::collections::HashMap;

use bytes::Bytes;
use git2::{ObjectType, Odb, Oid, Repository};

use super::entries::{Entries, Entry, ParseError};
use super::line::{Home, Line, LineError, Record};
use super::state::{FORMAT, State};
use super::tree::{Directory, Tree};
use super::trie::{Node, ShapeError, Trie};
use super::{form, path};
use crate::keyspace::{KeySpace, Placement};

/// A branch as of one metadata commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Where the branch stands.
    pub state: State,
    /// Every key, in no useful order.
    pub keys: Vec<LoadedKey>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedKey {
    /// The whole key.
    pub key: Bytes,
    /// Its value, exactly as it was put.
    pub value: Bytes,
    /// Its revisions.
    pub record: Record,
}

/// Why a branch cannot be read from the repository. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
#[error("{reference}, commit {commit}, {path:?}: {problem}; {}", problem.remedy(reference))]
pub struct LoadError {
    /// The reference that leads to the commit.
    pub reference: String,
    /// The commit.
    pub commit: Oid,
    /// The place in its tree; empty for the commit itself.
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
        /// What libgit2 said.
        source: git2::Error,
    },
    /// An object of one kind is where another kind should be.
    #[error("the object {oid} is a {found}, not a {expected}")]
    Kind {
        /// The object.
        oid: Oid,
        /// What it should be.
        expected: ObjectType,
        /// What it is.
        found: String,
    },
    /// A metadata commit must have the former one, unless it is the first, and the data commit as its parents.
    #[error("a metadata commit has one or two parents, this one has {0}")]
    Parents(usize),
    /// The tree of a metadata commit lacks a file.
    #[error("the file is missing")]
    Missing,
    /// Another version of gitcd wrote this.
    #[error("the format is {0:?}, this version reads \"gitcd metadata 1\"")]
    Format(String),
    /// A line cannot be read.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The blobs of the keys are not divided as they must be.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A directory cannot be read.
    #[error(transparent)]
    Tree(#[from] ParseError),
    /// A name stands for both a file and a directory.
    #[error("it is both a file and a directory")]
    Twice,
    /// The metadata has a key that the tree does not have.
    #[error("the metadata has the key {0:?}, but there is no such file")]
    NoFile(String),
    /// The tree has a file that the metadata does not know.
    #[error("the metadata has no key for this file")]
    NoKey,
    /// The metadata says that a key is in the data tree (or local), and the key prefix says otherwise.
    #[error(
        "the key {0:?} is not where the key prefix puts it; the prefix must be the one the branch was made with"
    )]
    Elsewhere(String),
    /// A blob is not in its form.
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

/// Names of a branch's references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Such as `refs/heads/main`.
    pub data: String,
    /// Such as `refs/gitcd/metadata/main`.
    pub metadata: String,
}

/// A branch without its values.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) metadata: Oid,
    pub(super) parents: Parents,
    pub(super) data: Tree,
    pub(super) local: Tree,
    pub(super) trie: Trie,
    pub(super) state: State,
    pub(super) root: Entries,
}

/// What a metadata commit refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parents {
    /// The metadata commit before it.
    pub(super) previous: Option<Oid>,
    /// The data commit that it describes.
    pub(super) data: Oid,
}

/// Reads objects below one commit and turns what goes wrong into errors that say where.
pub(super) struct Reader<'r> {
    repository: &'r Repository,
    odb: Odb<'r>,
    reference: &'r str,
    commit: Oid,
}

impl<'r> Reader<'r> {
    pub(super) fn new(
        repository: &'r Repository,
        reference: &'r str,
        commit: Oid,
    ) -> Result<Self, LoadError> {
        let failed = |source| LoadError {
            reference: reference.into(),
            commit,
            path: String::new(),
            problem: Problem::Unreadable {
                oid: commit,
                source,
            },
        };
        Ok(Reader {
            repository,
            odb: repository.odb().map_err(failed)?,
            reference,
            commit,
        })
    }

    pub(super) fn error(&self, path: &[u8], problem: impl Into<Problem>) -> LoadError {
        LoadError {
            reference: self.reference.into(),
            commit: self.commit,
            path: String::from_utf8_lossy(path).into_owned(),
            problem: problem.into(),
        }
    }

    /// The commit's parents and the id of its tree.
    pub(super) fn commit(&self) -> Result<(Vec<Oid>, Oid), LoadError> {
        let unreadable = |source| {
            self.error(
                b"",
                Problem::Unreadable {
                    oid: self.commit,
                    source,
                },
            )
        };
        let object = self
            .repository
            .find_object(self.commit, None)
            .map_err(unreadable)?;
        let Some(commit) = object.as_commit() else {
            let found = object.kind().map_or("thing", |kind| kind.str()).into();
            return Err(self.error(
                b"",
                Problem::Kind {
                    oid: self.commit,
                    expected: ObjectType::Commit,
                    found,
                },
            ));
        };
        Ok((commit.parent_ids().collect(), commit.tree_id()))
    }

    pub(super) fn parents(&self) -> Result<Parents, LoadError> {
        match *self.commit()?.0 {
            [data] => Ok(Parents {
                previous: None,
                data,
            }),
            [previous, data] => Ok(Parents {
                previous: Some(previous),
                data,
            }),
            ref others => Err(self.error(b"", Problem::Parents(others.len()))),
        }
    }

    fn object(
        &self,
        path: &[u8],
        oid: Oid,
        kind: ObjectType,
    ) -> Result<git2::OdbObject<'_>, LoadError> {
        let object = self
            .odb
            .read(oid)
            .map_err(|source| self.error(path, Problem::Unreadable { oid, source }))?;
        if object.kind() != kind {
            let found = object.kind().str().into();
            return Err(self.error(
                path,
                Problem::Kind {
                    oid,
                    expected: kind,
                    found,
                },
            ));
        }
        Ok(object)
    }

    pub(super) fn blob(&self, path: &[u8], oid: Oid) -> Result<git2::OdbObject<'_>, LoadError> {
        self.object(path, oid, ObjectType::Blob)
    }

    fn entries(&self, path: &[u8], oid: Oid) -> Result<Entries, LoadError> {
        let object = self.object(path, oid, ObjectType::Tree)?;
        Entries::parse(object.data().to_vec()).map_err(|problem| self.error(path, problem))
    }

    /// Everything below a directory, values excepted.
    pub(super) fn tree(&self, path: &[u8], oid: Oid) -> Result<Tree, LoadError> {
        Ok(Tree::new(self.directory(&mut path.to_vec(), oid)?))
    }

    fn directory(&self, path: &mut Vec<u8>, oid: Oid) -> Result<Directory, LoadError> {
        let entries = self.entries(path, oid)?;
        let len = path.len();
        let mut children = HashMap::new();
        for (kind, name, oid) in entries.iter() {
            if kind == Entry::Directory {
                if len > 0 {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                if entries.find(Entry::File, name).is_some() {
                    return Err(self.error(path, Problem::Twice));
                }
                children.insert(name.into(), self.directory(path, oid)?);
                path.truncate(len);
            }
        }
        Ok(Directory::new(entries, children))
    }

    fn node(&self, path: &mut Vec<u8>, kind: Entry, oid: Oid) -> Result<Node, LoadError> {
        if kind == Entry::File {
            let lines = Line::parse_all(self.blob(path, oid)?.data())
                .map_err(|problem| self.error(path, problem))?;
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

impl Snapshot {
    pub(super) fn read(
        repository: &Repository,
        names: &Names,
        metadata: Oid,
    ) -> Result<Self, LoadError> {
        let reader = Reader::new(repository, &names.metadata, metadata)?;
        let parents = reader.parents()?;
        let root = reader.entries(b"", reader.commit()?.1)?;
        let file = |name: &[u8]| match root.find(Entry::File, name) {
            Some(oid) => reader.blob(name, oid),
            None => Err(reader.error(name, Problem::Missing)),
        };
        let format = file(b"format")?;
        if format.data() != FORMAT {
            let found = String::from_utf8_lossy(format.data()).trim_end().into();
            return Err(reader.error(b"format", Problem::Format(found)));
        }
        let mut state = State::parse_numbers(file(b"state")?.data())
            .map_err(|problem| reader.error(b"state", problem))?;
        state.leases = State::parse_leases(file(b"leases")?.data())
            .map_err(|problem| reader.error(b"leases", problem))?;
        let keys = [Entry::File, Entry::Directory]
            .into_iter()
            .find_map(|kind| Some((kind, root.find(kind, b"keys")?)));
        let (kind, oid) = keys.ok_or_else(|| reader.error(b"keys", Problem::Missing))?;
        let trie = Trie::new(reader.node(&mut b"keys".to_vec(), kind, oid)?)
            .map_err(|problem| reader.error(b"keys", problem))?;
        let local = match root.find(Entry::Directory, b"local") {
            Some(oid) => reader.tree(b"local", oid)?,
            None => Tree::default(),
        };
        let data_reader = Reader::new(repository, &names.data, parents.data)?;
        let data = data_reader.tree(b"", data_reader.commit()?.1)?;
        Ok(Snapshot {
            metadata,
            parents,
            data,
            local,
            trie,
            state,
            root,
        })
    }

    /// Reads the values.
    pub(super) fn load(
        self,
        repository: &Repository,
        names: &Names,
        space: &KeySpace,
    ) -> Result<Loaded, LoadError> {
        let data = Reader::new(repository, &names.data, self.parents.data)?;
        let local = Reader::new(repository, &names.metadata, self.metadata)?;
        let mut keys = Vec::with_capacity(self.trie.len());
        let mut path = Vec::new();
        let mut local_keys = 0;
        let mut failed = None;
        self.trie.each(|line| {
            if failed.is_some() {
                return;
            }
            path.clear();
            let (reader, tree) = match line.home {
                Home::Data => (&data, &self.data),
                Home::Local => {
                    local_keys += 1;
                    (&local, &self.local)
                }
            };
            match value(reader, tree, space, line, &mut path) {
                Ok(value) => keys.push(LoadedKey {
                    key: line.key.clone(),
                    value,
                    record: line.record,
                }),
                Err(error) => failed = Some(error),
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        // Different keys have different paths, so equal numbers leave no file without a key.
        if self.data.len() != keys.len() - local_keys {
            return Err(self.file_without_key(&data, &self.data, Home::Data, space));
        }
        if self.local.len() != local_keys {
            return Err(self.file_without_key(&local, &self.local, Home::Local, space));
        }
        Ok(Loaded {
            state: self.state,
            keys,
        })
    }

    fn file_without_key(
        &self,
        reader: &Reader<'_>,
        tree: &Tree,
        home: Home,
        space: &KeySpace,
    ) -> LoadError {
        let mut known = std::collections::HashSet::new();
        self.trie.each(|line| {
            if line.home == home {
                let mut path = Vec::new();
                if place(space, line, &mut path) {
                    known.insert(path);
                }
            }
        });
        let mut unknown = Vec::new();
        tree.each(|path, _| {
            let key_path = path.strip_suffix(b"/%value").unwrap_or(path);
            if unknown.is_empty() && !known.contains(key_path) {
                unknown = path.to_vec();
            }
        });
        reader.error(&unknown, Problem::NoKey)
    }
}

fn value(
    reader: &Reader<'_>,
    tree: &Tree,
    space: &KeySpace,
    line: &Line,
    path: &mut Vec<u8>,
) -> Result<Bytes, LoadError> {
    let key = || line.key.escape_ascii().to_string();
    if !place(space, line, path) {
        return Err(reader.error(b"keys", Problem::Elsewhere(key())));
    }
    let oid = tree
        .find(path)
        .ok_or_else(|| reader.error(path, Problem::NoFile(key())))?;
    let blob = reader.blob(path, oid)?;
    let value =
        form::decode(line.form, blob.data()).map_err(|problem| reader.error(path, problem))?;
    Ok(value.into())
}

/// Puts the path of a key into `path`; `false` if the key prefix contradicts where the key is recorded to be.
pub(super) fn place(space: &KeySpace, line: &Line, path: &mut Vec<u8>) -> bool {
    let key = match (line.home, space.placement(&line.key)) {
        (Home::Data, Placement::Data) => space.relative(&line.key),
        // What became ephemeral after it was committed is where it was, until it is deleted.
        (Home::Data, Placement::Ephemeral) if line.key.starts_with(&space.absolute(b"")) => {
            space.relative(&line.key)
        }
        (Home::Local, Placement::Local | Placement::Ephemeral) => &line.key,
        _ => return false,
    };
    join(key, path);
    true
}

/// Puts the path of a data key's relative part, or of a local key, into `path`.
pub(super) fn join(key: &[u8], path: &mut Vec<u8>) {
    path.clear();
    for name in path::encode(key) {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
    }
}
