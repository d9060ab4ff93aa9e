//! Branches of one repository, written as stores and persons write them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use git2::{Oid, Repository, Signature, Time};
use gitcd_core::keyspace::KeySpace;
use gitcd_history::History;
use gitcd_history::blame::{Blame, BlameError, Options};
use gitcd_history::when::When;
use gitcd_merge::form;
use gitcd_merge::schema::Schemas;
use gitcd_merge::{Outcome, Policy, Side, merge};
use gitcd_repo::branch::{Action, Branch, Change, Config, Merging, Record, Revisions, State, Takeover};
use tempfile::TempDir;

const START: i64 = 1_700_000_000;

/// A branch, and what its store knows.
struct Store {
    branch: Branch,
    state: State,
    records: HashMap<String, Record>,
    values: HashMap<String, Vec<u8>>,
}

pub(crate) struct World {
    folder: TempDir,
    repository: Repository,
    stores: Vec<Store>,
    clock: i64,
}

/// A key with its new value; `None` deletes it.
pub(crate) type Put<'p> = (&'p str, Option<&'p [u8]>);

fn config(folder: &Path, number: usize) -> Config {
    Config {
        repository: folder.join("store.git"),
        name: format!("b{number}"),
        data_reference: format!("refs/heads/b{number}"),
        metadata_reference: format!("refs/gitcd/metadata/b{number}"),
        keys: KeySpace::new("/registry", [""; 0]),
        committer_name: format!("store{number}"),
        committer_email: "gitcd@localhost".into(),
    }
}

impl World {
    /// Creates branches without keys.
    pub(crate) fn new(branches: usize) -> Self {
        // Every flush waits for the disk, unless the files are in memory.
        let memory = Path::new("/dev/shm");
        let mut builder = tempfile::Builder::new();
        builder.prefix("gitcd-blame");
        let folder = if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() };
        let folder = folder.expect("the temporary folder is writable");
        let store = |number: usize| {
            let state = State { revision: 1, compact_revision: 1, incarnation: "x".into(), leases: Vec::new() };
            let branch = Branch::create(config(folder.path(), number), &state).expect("the branch is new");
            Store { branch, state, records: HashMap::new(), values: HashMap::new() }
        };
        let stores = (0..branches).map(store).collect();
        let repository = Repository::open(folder.path().join("store.git")).expect("it was just created");
        Self { folder, repository, stores, clock: START }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store.git")
    }

    fn time(&mut self) -> SystemTime {
        self.clock += 1;
        UNIX_EPOCH + Duration::from_secs(self.clock as u64)
    }

    pub(crate) fn value(&self, branch: usize, key: &str) -> Option<&[u8]> {
        self.stores[branch].values.get(key).map(Vec::as_slice)
    }

    pub(crate) fn revision(&self, branch: usize) -> i64 {
        self.stores[branch].state.revision
    }

    pub(crate) fn record(&self, branch: usize, key: &str) -> Option<Record> {
        self.stores[branch].records.get(key).copied()
    }

    /// Returns the name of the store that made a commit with revisions.
    pub(crate) fn store_of(&self, commit: Oid) -> Option<String> {
        let commit = self.repository.find_commit(commit).expect("it was flushed");
        let is_of_store = commit.message().is_ok_and(|message| message.contains("\nRevision: "));
        is_of_store.then(|| commit.author().name().expect("it is a name").to_owned())
    }

    /// Returns the newest commit of a branch.
    pub(crate) fn tip(&self, branch: usize) -> Oid {
        self.stores[branch].branch.next()
    }

    /// Returns the parents of a commit.
    pub(crate) fn parents(&self, commit: Oid) -> Vec<Oid> {
        self.repository.find_commit(commit).expect("it was flushed").parent_ids().collect()
    }

    fn revisions(&mut self, branch: usize, puts: &[Put<'_>]) -> Revisions {
        let time = self.time();
        let store = &mut self.stores[branch];
        let first = store.state.revision + 1;
        let mut changes = Vec::new();
        for (key, value) in puts {
            store.state.revision += 1;
            let revision = store.state.revision;
            let action = match value {
                None => {
                    store.records.remove(*key);
                    store.values.remove(*key);
                    Action::Delete
                }
                Some(value) => {
                    let new = Record { create_revision: revision, mod_revision: 0, version: 0, lease: 0 };
                    let record = store.records.entry((*key).to_owned()).or_insert(new);
                    (record.mod_revision, record.version) = (revision, record.version + 1);
                    store.values.insert((*key).to_owned(), value.to_vec());
                    Action::Put { value: value.to_vec().into(), record: *record }
                }
            };
            changes.push(Change { key: (*key).to_owned().into(), action });
        }
        let clients = vec!["kube-apiserver (test)".to_owned()];
        Revisions { first, last: store.state.revision.max(first), time, clients, changes }
    }

    /// Writes keys in one commit of a store. Returns the commit.
    pub(crate) fn put(&mut self, branch: usize, puts: &[Put<'_>]) -> Oid {
        let revisions = self.revisions(branch, puts);
        self.stores[branch].branch.commit(&revisions).expect("the keys fit");
        self.tip(branch)
    }

    pub(crate) fn flush(&mut self, branch: usize) {
        let Store { branch, state, .. } = &mut self.stores[branch];
        branch.flush(state).expect("the repository is writable");
    }

    /// Commits a file as a person would, on the newest commit of a branch, which stays where it is. Returns the commit.
    pub(crate) fn person(&mut self, branch: usize, names: [&str; 2], (key, value): Put<'_>) -> Oid {
        self.flush(branch);
        self.clock += 1;
        let at = Time::new(self.clock, 0);
        let [author, committer] =
            names.map(|name| Signature::new(name, "person@localhost", &at).expect("it is a name"));
        let parent = self.repository.find_commit(self.tip(branch)).expect("it was flushed");
        let blob = value.map(|value| self.repository.blob(value).expect("the repository is writable"));
        let path: Vec<&str> = key.trim_start_matches("/registry/").split('/').collect();
        let tree = with_file(&self.repository, Some(parent.tree_id()), &path, blob);
        let tree = self.repository.find_tree(tree).expect("it was just written");
        self.repository
            .commit(None, &author, &committer, "a person's commit", &tree, &[&parent])
            .expect("it is writable")
    }

    /// Makes a commit with any parents: a merge of a store, or an ordinary commit of a person. Its tree is that of the first parent,
    /// with these keys. `notes` follow the subject.
    pub(crate) fn commit(&mut self, parents: &[Oid], puts: &[Put<'_>], notes: &str) -> Oid {
        self.clock += 1;
        self.commit_at(self.clock, parents, puts, notes)
    }

    /// Makes a commit with a time.
    pub(crate) fn commit_at(&self, time: i64, parents: &[Oid], puts: &[Put<'_>], notes: &str) -> Oid {
        let author = Signature::new("Ann", "ann@localhost", &Time::new(time, 0)).expect("it is a name");
        let subject = match parents {
            [one, other] => format!("merge {} and {}", &one.to_string()[..10], &other.to_string()[..10]),
            _ => format!("commit at {time}"),
        };
        let parents: Vec<_> =
            parents.iter().map(|oid| self.repository.find_commit(*oid).expect("it was flushed")).collect();
        let mut tree = parents[0].tree_id();
        for (key, value) in puts {
            let blob = value.map(|value| self.repository.blob(value).expect("the repository is writable"));
            let path: Vec<&str> = key.trim_start_matches("/registry/").split('/').collect();
            tree = with_file(&self.repository, Some(tree), &path, blob);
        }
        let tree = self.repository.find_tree(tree).expect("it was just written");
        let parents: Vec<_> = parents.iter().collect();
        let message = format!("{subject}\n\n{notes}");
        self.repository.commit(None, &author, &author, &message, &tree, &parents).expect("it is writable")
    }

    /// Returns the history of a new branch `adopted`, which takes over a commit as `gitcd init` does.
    pub(crate) fn adopt(&self, commit: Oid) -> History {
        let named = Config {
            name: "adopted".into(),
            data_reference: "refs/heads/adopted".into(),
            metadata_reference: "refs/gitcd/metadata/adopted".into(),
            ..config(self.folder.path(), 0)
        };
        self.reference(&named.data_reference, commit);
        let takeover = Takeover {
            state: State { revision: 1, compact_revision: 1, incarnation: "x".into(), leases: Vec::new() },
            version: 1,
            depth: None,
            anew: false,
            check: &|_, _| Ok(()),
            progress: &mut |_| {},
        };
        Branch::adopt(named.clone(), takeover).expect("the data can be adopted");
        History::open(named, false).expect("the branch can be read")
    }

    /// Creates a reference.
    pub(crate) fn reference(&self, name: &str, commit: Oid) {
        self.repository.reference(name, commit, true, "test").expect("it is a name");
    }

    /// Merges a commit into a branch, by fields where both changed a key. Returns the branch's newest commit.
    pub(crate) fn merge(
        &mut self,
        branch: usize,
        theirs: Oid,
        policy: Policy,
        keys: &[&str],
        fast_forward: bool,
    ) -> Oid {
        self.flush(branch);
        let base = self.repository.merge_base(self.tip(branch), theirs).ok();
        let mut changes: Vec<(String, Option<Vec<u8>>)> = Vec::new();
        for key in keys {
            let [base, theirs] = [base, Some(theirs)].map(|commit| self.read(commit?, key));
            let ours = self.value(branch, key).map(<[u8]>::to_vec);
            let [one, other] = [&ours, &theirs].map(|value| value.as_deref().map(Side::of));
            let merged = merge(&Schemas::builtin(), policy, base.as_deref(), one, other);
            match merged.outcome {
                Outcome::Ours => {}
                Outcome::Theirs => changes.push(((*key).to_owned(), theirs)),
                Outcome::New(value) => changes.push(((*key).to_owned(), Some(value))),
                Outcome::Deleted => changes.push(((*key).to_owned(), None)),
            }
        }
        let puts: Vec<Put<'_>> = changes.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
        let revisions = self.revisions(branch, &puts);
        let merging = Merging { revisions, theirs, blobs: HashMap::new(), fast_forward, notes: String::new() };
        self.stores[branch].branch.merge(&merging).expect("the merge fits");
        self.flush(branch);
        self.tip(branch)
    }

    /// Returns the value of a key in a commit.
    pub(crate) fn read(&self, commit: Oid, key: &str) -> Option<Vec<u8>> {
        let tree = self.repository.find_commit(commit).expect("it was flushed").tree().expect("it has a tree");
        let entry = tree.get_path(Path::new(key.trim_start_matches("/registry/"))).ok()?;
        let blob = self.repository.find_blob(entry.id()).expect("it is a file");
        let form = form::guess(blob.content());
        Some(form::decode(form, blob.content()).unwrap_or_else(|_| blob.content().to_vec()))
    }

    pub(crate) fn history(&self, branch: usize) -> History {
        History::open(config(self.folder.path(), branch), false).expect("the branch can be read")
    }

    pub(crate) fn blame_with(
        &self,
        branch: usize,
        key: &str,
        at: When,
        options: &Options,
    ) -> Result<Blame, BlameError> {
        let history = self.history(branch);
        let moment = history.at(at).expect("the moment is in the history");
        history.blame(&moment, key.as_bytes(), options)
    }

    pub(crate) fn blame(&self, branch: usize, key: &str) -> Blame {
        let blame = self.blame_with(branch, key, When::Now, &Options::default());
        blame.unwrap_or_else(|error| panic!("{key} of {branch}: {error}"))
    }
}

/// Returns a tree with another file at a path.
fn with_file(repository: &Repository, tree: Option<Oid>, path: &[&str], blob: Option<Oid>) -> Oid {
    let tree = tree.map(|tree| repository.find_tree(tree).expect("it exists"));
    let mut builder = repository.treebuilder(tree.as_ref()).expect("it is a tree");
    match (path, blob) {
        ([name], Some(blob)) => drop(builder.insert(name, blob, 0o100_644).expect("it is a name")),
        ([name], None) => builder.remove(name).expect("the file exists"),
        ([name, rest @ ..], _) => {
            let below = tree.as_ref().and_then(|tree| tree.get_name(name)).map(|entry| entry.id());
            let below = with_file(repository, below, rest, blob);
            builder.insert(name, below, 0o040_000).expect("it is a name");
        }
        ([], _) => panic!("a path has a name"),
    }
    builder.write().expect("the repository is writable")
}
