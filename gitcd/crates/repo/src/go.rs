//! Branches of the Go implementation of gitcd: detected, and read once for their conversion.
//!
//! Source of the layout and its conversion: `docs/design/go-gitcd.md`.

use std::collections::HashMap;

use git2::{Odb, Oid, Repository};
use gitcd_core::revision::Revision;

use super::changes::{self, EntryKind, TreeError, Trees};
use super::derive::{EVERY, Progress};
use super::key_record::Record;
use super::object;

/// Files about the branch, at the top of a metadata commit's tree.
const REVISION: &[u8] = b".revision";
const DATA: &[u8] = b".data";
/// Files about a key, in the key's directory.
const OF_KEYS: [&[u8]; 4] = [b"CREATE", b"MOD", b"VERSION", LEASE];
const LEASE: &[u8] = b"LEASE";

/// A branch as of its last metadata commit.
#[derive(Debug)]
pub(super) struct Branch {
    /// The store's revision.
    pub(super) revision: i64,
    /// The data commit that the metadata describes.
    pub(super) data: Oid,
    /// Every file of that commit.
    pub(super) keys: Vec<Key>,
    /// Unmappable files, and why.
    pub(super) strange: Vec<(Vec<u8>, String)>,
}

/// A key, which is its path, without escapes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) path: Vec<u8>,
    pub(super) blob: Oid,
    pub(super) record: Record,
}

/// Returns whether a metadata commit was written by the Go implementation.
///
/// # Errors
/// [`TreeError`] if the commit cannot be read.
pub fn is_metadata(repository: &Repository, commit: Oid) -> Result<bool, TreeError> {
    let odb = repository.odb().map_err(|error| failed(commit, error.message()))?;
    let (tree, _) = super::derive::commit(&odb, commit)?;
    let has = |name: &[u8]| Ok(matches!(changes::any_entry(&odb, tree, name)?, Some((false, _))));
    Ok(has(REVISION)? && has(DATA)? && !has(b"format")?)
}

/// Reads a branch.
///
/// # Errors
/// [`TreeError`] if an object is missing, or a number in the metadata is invalid.
pub(super) fn read(
    repository: &Repository,
    metadata: Oid,
    progress: &mut dyn FnMut(Progress),
) -> Result<Branch, TreeError> {
    let odb = || repository.odb().map_err(|error| failed(metadata, error.message()));
    let mut reader = Reader { numbers: Numbers { odb: odb()?, known: HashMap::new() }, trees: Trees::new(odb()?) };
    let (top, _) = super::derive::commit(&reader.numbers.odb, metadata)?;
    let revision = reader.numbers.of(file(&reader.numbers.odb, top, REVISION)?, REVISION)?;
    let data = reader.numbers.text(file(&reader.numbers.odb, top, DATA)?)?;
    let data = data.trim();
    let data = Oid::from_str(data).ok().filter(|_| data.len() == 40);
    let data = data.ok_or_else(|| failed(top, ".data names no commit"))?;
    let here = |error: TreeError| TreeError {
        problem: format!("{}; it is what the metadata commit {metadata} describes: fetch it", error.problem),
        ..error
    };
    let (files, _) = super::derive::commit(&reader.numbers.odb, data).map_err(here)?;
    let mut branch = Branch { revision, data, keys: Vec::new(), strange: Vec::new() };
    // Use a heap-allocated stack: directories may be nested deeper than a thread's stack allows.
    let mut stack = vec![(Vec::new(), files, Some(top))];
    while let Some((path, files, described)) = stack.pop() {
        reader.directory(&path, files, described, &mut branch, &mut stack)?;
        if branch.keys.len() % EVERY < 16 {
            progress(Progress { what: "keys read", done: branch.keys.len(), all: None });
        }
    }
    // Merges of the Go implementation left keys that were newer than the store's revision.
    branch.revision = branch.keys.iter().map(|key| key.record.mod_revision).fold(branch.revision, i64::max).max(1);
    let revision = branch.revision;
    for record in branch.keys.iter_mut().map(|key| &mut key.record) {
        if record.mod_revision == 0 {
            record.mod_revision = revision;
        }
        if !(1..=record.mod_revision).contains(&record.create_revision) {
            record.create_revision = record.mod_revision;
        }
        record.version = record.version.max(1);
    }
    Ok(branch)
}

struct Reader<'r> {
    numbers: Numbers<'r>,
    trees: Trees<'r>,
}

/// A cache of numbers: many files have the same few.
struct Numbers<'r> {
    odb: Odb<'r>,
    known: HashMap<Oid, i64>,
}

type Below = (Vec<u8>, Oid, Option<Oid>);

impl Reader<'_> {
    fn directory(
        &mut self,
        path: &[u8],
        files: Oid,
        described: Option<Oid>,
        branch: &mut Branch,
        stack: &mut Vec<Below>,
    ) -> Result<(), TreeError> {
        let metadata: HashMap<Vec<u8>, Oid> = match described {
            Some(described) => {
                let entries = self.trees.entries(described)?.into_iter();
                entries
                    .filter(|entry| entry.kind == EntryKind::Directory)
                    .map(|entry| (entry.name, entry.oid))
                    .collect()
            }
            None => HashMap::new(),
        };
        for entry in self.trees.entries(files)? {
            let path = if path.is_empty() { entry.name.clone() } else { [path, b"/", &entry.name[..]].concat() };
            let described = metadata.get(&entry.name).copied();
            match entry.kind {
                EntryKind::Directory => stack.push((path, entry.oid, described)),
                EntryKind::File if gitcd_core::path::fits(&path) => {
                    let record = self.record(described)?;
                    branch.keys.push(Key { path, blob: entry.oid, record });
                }
                EntryKind::File => {
                    let most = gitcd_core::path::MAX_DEPTH - 1;
                    branch.strange.push((path, format!("it lies below more than {most} directories")));
                }
                EntryKind::Other => {
                    branch.strange.push((path, "it is neither a file nor a directory".into()));
                }
            }
        }
        Ok(())
    }

    /// Reads the record of a key, with 0 for missing numbers: merges of the Go implementation may lose some.
    fn record(&mut self, described: Option<Oid>) -> Result<Record, TreeError> {
        let mut numbers = [0; 4];
        for entry in described.map(|oid| self.trees.entries(oid)).transpose()?.unwrap_or_default() {
            let at = OF_KEYS.iter().position(|name| *name == entry.name);
            if let Some(at) = at.filter(|_| entry.kind == EntryKind::File) {
                numbers[at] = self.numbers.of(entry.oid, OF_KEYS[at])?;
            }
        }
        let [create_revision, mod_revision, version, lease] = numbers;
        Ok(Record { create_revision, mod_revision, version, lease })
    }
}

impl Numbers<'_> {
    /// Parses a decimal number in a blob.
    fn of(&mut self, blob: Oid, name: &[u8]) -> Result<i64, TreeError> {
        let wrong = |text: &str| {
            let name = String::from_utf8_lossy(name);
            failed(blob, format!("{name} is {text:?}, which is not a valid number"))
        };
        let number = if let Some(known) = self.known.get(&blob) {
            *known
        } else {
            let text = self.text(blob)?;
            let number = text.trim().parse().map_err(|_| wrong(&text))?;
            self.known.insert(blob, number);
            number
        };
        // Clients choose the IDs of leases.
        if name != LEASE && !(0..=Revision::MAX_STORED.get()).contains(&number) {
            return Err(wrong(&number.to_string()));
        }
        Ok(number)
    }

    fn text(&self, blob: Oid) -> Result<String, TreeError> {
        let object = object::read(&self.odb, blob).map_err(|error| failed(blob, error.message()))?;
        Ok(String::from_utf8_lossy(object.data()).into_owned())
    }
}

/// Returns the blob of a file at the top.
fn file(odb: &Odb<'_>, tree: Oid, name: &[u8]) -> Result<Oid, TreeError> {
    match changes::any_entry(odb, tree, name)? {
        Some((false, blob)) => Ok(blob),
        _ => Err(failed(tree, format!("{} is missing", String::from_utf8_lossy(name)))),
    }
}

fn failed(oid: Oid, problem: impl Into<String>) -> TreeError {
    TreeError { oid, problem: problem.into() }
}
