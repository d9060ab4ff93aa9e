//! Derives the metadata that keys would have if gitcd had written the data from the first commit on.
//!
//! The walk goes from the head back along the first parents, like `git log --first-parent`, and then forward again commit by
//! commit ([`changes`]: equal directories are skipped). Memory holds a tree ID for each commit, and a record for each existing
//! key.

use std::collections::HashMap;
use std::num::NonZero;

use git2::{ObjectType, Odb, Oid, Repository};

use super::changes::{self, TreeError, Trees};
use super::key_record::Record;
use super::object;

/// Progress of a long operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is counted.
    pub what: &'static str,
    /// Number done …
    pub done: usize,
    /// … of this total, if known.
    pub all: Option<usize>,
}

/// What the history says about the keys of its last commit.
#[derive(Debug, Default)]
pub(super) struct Derived {
    /// Records by key, without the key prefix.
    pub(super) records: HashMap<Vec<u8>, Record>,
    /// The revision of the last commit that changed keys.
    pub(super) revision: i64,
    /// Number of commits read.
    pub(super) commits: usize,
}

/// Number of commits between two progress reports.
pub(super) const EVERY: usize = 256;

/// Walks the history of a data commit, at most `depth` commits. The oldest one with keys gets the revision `first`, and each
/// later one that changes keys the next revision. A new key has this `version`.
///
/// # Errors
/// [`TreeError`] if a commit or a directory cannot be read.
pub(super) fn derive(
    repository: &Repository,
    head: Oid,
    depth: Option<NonZero<usize>>,
    first: i64,
    version: i64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Derived, TreeError> {
    let odb = || repository.odb().map_err(|error| TreeError { oid: head, problem: error.message().to_owned() });
    let line = line(repository, &odb()?, head, depth.map_or(usize::MAX, NonZero::get), progress)?;
    let mut derived = Derived { revision: first, commits: line.len(), ..Derived::default() };
    let (mut trees, mut before, mut next) = (Trees::new(odb()?), None, first);
    for (at, tree) in line.iter().rev().copied().enumerate() {
        if at % EVERY == 0 {
            progress(Progress { what: "commits", done: at, all: Some(line.len()) });
        }
        // Unmappable files are only reported if the last commit has them.
        let changed = changes::among(&mut trees, before, Some(tree))?.keys;
        before = Some(tree);
        if changed.is_empty() {
            continue;
        }
        derived.revision = next;
        next += 1;
        for (key, change) in changed {
            if change.to.is_none() {
                derived.records.remove(&key);
                continue;
            }
            let (revision, new) = (derived.revision, Record { create_revision: 0, mod_revision: 0, version, lease: 0 });
            let record = derived.records.entry(key);
            let record =
                record.and_modify(|record| record.version += 1).or_insert(Record { create_revision: revision, ..new });
            record.mod_revision = revision;
        }
    }
    Ok(derived)
}

/// Returns the trees of a commit and of its first parents, newest first, at most `depth`. A shallow clone may end earlier.
fn line(
    repository: &Repository,
    odb: &Odb<'_>,
    head: Oid,
    depth: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Oid>, TreeError> {
    let is_shallow = repository.is_shallow();
    let (mut trees, mut next) = (Vec::new(), Some(head));
    while let Some(oid) = next.filter(|_| trees.len() < depth) {
        let (tree, parent) = commit(odb, oid)?;
        trees.push(tree);
        next = parent.filter(|parent| !is_shallow || odb.exists(*parent));
        if trees.len() % EVERY == 0 {
            progress(Progress { what: "commits found", done: trees.len(), all: None });
        }
    }
    Ok(trees)
}

/// Returns the tree and the first parent of a commit.
pub(super) fn commit(odb: &Odb<'_>, oid: Oid) -> Result<(Oid, Option<Oid>), TreeError> {
    let failed = |problem: String| TreeError { oid, problem };
    let object = object::read(odb, oid).map_err(|error| failed(error.message().to_owned()))?;
    if object.kind() != ObjectType::Commit {
        return Err(failed(format!("it is a {}, not a commit", object.kind().str())));
    }
    let mut lines = object.data().split(|byte| *byte == b'\n');
    let mut id = |name: &[u8]| {
        let text = lines.next()?.strip_prefix(name)?;
        Oid::from_str(std::str::from_utf8(text).ok()?).ok()
    };
    let tree = id(b"tree ").ok_or_else(|| failed("it is a malformed commit".into()))?;
    Ok((tree, id(b"parent ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A history made by stock Git's rules: files by path.
    struct Made {
        _folder: tempfile::TempDir,
        repository: Repository,
        head: Option<Oid>,
    }

    impl Made {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("the temporary folder is writable");
            let repository = Repository::init_bare(folder.path()).expect("the folder is empty");
            Self { _folder: folder, repository, head: None }
        }

        fn commit(&mut self, files: &BTreeMap<String, u8>, more: &[Oid]) -> Oid {
            let mut index = git2::Index::new().expect("memory suffices");
            for (path, value) in files {
                let blob = self.repository.blob(&[*value]).expect("the disk has room");
                let zero = git2::IndexTime::new(0, 0);
                let entry = git2::IndexEntry {
                    ctime: zero,
                    mtime: zero,
                    dev: 0,
                    ino: 0,
                    mode: 0o100_644,
                    uid: 0,
                    gid: 0,
                    file_size: 1,
                    id: blob,
                    flags: 0,
                    flags_extended: 0,
                    path: path.clone().into(),
                };
                index.add(&entry).expect("the path is plain");
            }
            let tree = index.write_tree_to(&self.repository).expect("the disk has room");
            let tree = self.repository.find_tree(tree).expect("it was just written");
            let who = git2::Signature::new("a", "a@b", &git2::Time::new(1, 0)).expect("the name is plain");
            let parents: Vec<_> = self.head.iter().chain(more).collect();
            let parents: Vec<_> = parents.into_iter().map(|oid| self.repository.find_commit(*oid).unwrap()).collect();
            let parents: Vec<_> = parents.iter().collect();
            let oid = self.repository.commit(None, &who, &who, "m", &tree, &parents).expect("the disk has room");
            self.head = Some(oid);
            oid
        }

        fn derived(&self, first: i64) -> Derived {
            self.derived_from(None, first)
        }

        fn derived_from(&self, depth: Option<usize>, first: i64) -> Derived {
            let (head, depth) = (self.head.expect("there is a commit"), depth.and_then(NonZero::new));
            derive(&self.repository, head, depth, first, 1, &mut |_| ()).expect("all objects are there")
        }
    }

    fn record(create_revision: i64, mod_revision: i64, version: i64) -> Record {
        Record { create_revision, mod_revision, version, lease: 0 }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_key_has_the_revisions_that_a_store_would_have_given_it(
            states in proptest::collection::vec(proptest::collection::btree_map("[ab](/[a-c]){1,2}/v", 0..3_u8, 0..6), 1..12),
        ) {
            let (mut made, mut model, mut revision) = (Made::new(), HashMap::new(), 6);
            let mut before = BTreeMap::new();
            for state in &states {
                made.commit(state, &[]);
                if *state == before {
                    continue;
                }
                revision += 1;
                model.retain(|key: &Vec<u8>, _| state.contains_key(std::str::from_utf8(key).unwrap()));
                for (key, value) in state.iter().filter(|(key, value)| before.get(*key) != Some(*value)) {
                    let _ = value;
                    let known = model.entry(key.clone().into_bytes()).or_insert(record(revision, 0, 0));
                    (known.mod_revision, known.version) = (revision, known.version + 1);
                }
                before.clone_from(state);
            }
            let derived = made.derived(7);
            prop_assert_eq!(derived.commits, states.len());
            prop_assert_eq!(derived.revision, revision.max(7));
            prop_assert_eq!(derived.records, model);
        }
    }

    #[test]
    fn what_a_merge_brought_is_as_old_as_the_merge_and_a_value_that_moves_into_a_directory_stays_the_same() {
        let files = |list: &[(&str, u8)]| list.iter().map(|(path, value)| ((*path).to_owned(), *value)).collect();
        let mut made = Made::new();
        let first = made.commit(&files(&[("a", 1)]), &[]);
        made.head = Some(first);
        let theirs = made.commit(&files(&[("a", 1), ("their/s", 1)]), &[]);
        made.head = Some(first);
        made.commit(&files(&[("a/%value", 1), ("a/b", 1)]), &[]);
        made.commit(&files(&[("a/%value", 1), ("a/b", 1), ("their/s", 1)]), &[theirs]);
        let derived = made.derived(1);
        let mut found: Vec<_> = derived.records.into_iter().collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [("a", record(1, 1, 1)), ("a/b", record(2, 2, 1)), ("their/s", record(3, 3, 1))];
        assert_eq!(found, expected.map(|(key, record)| (key.as_bytes().to_vec(), record)));
        assert_eq!((derived.commits, derived.revision), (3, 3));
    }

    #[test]
    fn what_is_older_than_the_depth_came_with_the_first_commit_of_it() {
        let files = |list: &[(&str, u8)]| list.iter().map(|(path, value)| ((*path).to_owned(), *value)).collect();
        let mut made = Made::new();
        made.commit(&files(&[("a", 1)]), &[]);
        made.commit(&files(&[("a", 1), ("b", 1)]), &[]);
        made.commit(&files(&[("a", 2), ("b", 1)]), &[]);
        let derived = made.derived_from(Some(2), 5);
        assert_eq!((derived.commits, derived.revision), (2, 6));
        assert_eq!(derived.records[&b"a"[..]], record(5, 6, 2));
        assert_eq!(derived.records[&b"b"[..]], record(5, 5, 1));
        let all = made.derived_from(Some(9), 5);
        assert_eq!((all.commits, all.records), (3, made.derived(5).records));
    }
}
