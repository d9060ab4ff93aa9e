//! Branches against a model, stock Git, and interrupted moves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use tempfile::TempDir;

use super::*;

mod cut;
mod errors;
mod model;
mod reading;
mod recovery;

const DATA: &str = "refs/heads/main";
const METADATA: &str = "refs/gitcd/metadata/main";

fn config(repository: &Path) -> Config {
    Config {
        repository: repository.into(),
        name: "default".into(),
        data_reference: DATA.into(),
        metadata_reference: METADATA.into(),
        keys: KeySpace::new("/registry", ["/registry/events"]),
        committer_name: "gitcd <of test>".into(),
        committer_email: "gitcd@localhost\n".into(),
    }
}

/// Runs stock Git and returns its output.
fn git(repository: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").arg("-C").arg(repository).args(arguments).output().expect("git is installed");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "git {arguments:?}: {out}{err}");
    out.into_owned()
}

/// The expected keys of `load`.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Record)>;

/// A branch in a temporary folder, and its expected content.
struct Store {
    _folder: TempDir,
    path: PathBuf,
    branch: Branch,
    state: State,
    model: Model,
    data_commits: usize,
}

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let path = folder.path().join("store.git");
        let state = State { revision: 1, compact_revision: 1, incarnation: "first".into(), leases: vec![(7, 60)] };
        let branch = Branch::create(config(&path), &state).expect("the folder is empty");
        Store { _folder: folder, path, branch, state, model: Model::new(), data_commits: 1 }
    }

    /// Commits puts (`Some`) and deletes (`None`) as one revision.
    fn commit(&mut self, changes: &[(&str, Option<&str>)]) {
        let changes: Vec<(&[u8], Option<&[u8]>)> =
            changes.iter().map(|(key, value)| (key.as_bytes(), value.map(str::as_bytes))).collect();
        self.commit_bytes(&changes);
    }

    fn commit_bytes(&mut self, changes: &[(&[u8], Option<&[u8]>)]) {
        self.state.revision += 1;
        let revision = self.state.revision;
        let mut last = BTreeMap::new();
        let mut is_data = false;
        for (key, value) in changes {
            let before = self.model.get(*key).map(|(_, record)| *record);
            let starts = key.starts_with(b"/registry/");
            let action = if let Some(value) = value {
                let record = Record {
                    create_revision: before.map_or(revision, |record| record.create_revision),
                    mod_revision: revision,
                    version: before.map_or(1, |record| record.version + 1),
                    lease: revision % 3,
                };
                self.model.insert(key.to_vec(), (value.to_vec(), record));
                is_data |= starts;
                Action::Put { value: value.to_vec().into(), record }
            } else {
                is_data |= self.model.remove(*key).is_some() && starts;
                Action::Delete
            };
            last.insert(key.to_vec(), action);
        }
        let changes = last.into_iter().map(|(key, action)| Change { key: key.into(), action }).collect();
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + revision as u64);
        let revisions = Revisions { first: revision, last: revision, time, clients: vec!["tester/1".into()], changes };
        let before = self.branch.pending().commits;
        self.branch.commit(&revisions).expect("all keys fit");
        let made = self.branch.pending().commits - before;
        assert!(made <= usize::from(is_data), "a data commit without a changed data key");
        self.data_commits += made;
    }

    fn flush(&mut self) -> Flushed {
        let state = self.state.clone();
        self.branch.flush(&state).expect("the disk is healthy")
    }

    fn reopen(&mut self) {
        self.branch = Branch::open(config(&self.path)).expect("the branch is intact").expect("the branch exists");
    }

    fn loaded(&self) -> (State, Model) {
        let loaded = self.branch.load(self.branch.head().metadata).expect("the head is intact");
        let count = loaded.keys.len();
        let keys: Model =
            loaded.keys.into_iter().map(|key| (key.key.to_vec(), (key.value.to_vec(), key.record))).collect();
        assert_eq!(keys.len(), count, "a key was loaded twice");
        (loaded.state, keys)
    }

    fn git(&self, arguments: &[&str]) -> String {
        git(&self.path, arguments)
    }

    fn reference(&self, name: &str) -> String {
        self.git(&["rev-parse", name]).trim().into()
    }

    /// Checks everything that must hold after a flush.
    fn check(&self) {
        let (state, keys) = self.loaded();
        assert_eq!(state, self.state);
        assert_eq!(keys, self.model);
        assert_eq!(self.branch.keys(), self.model.len());
        let fsck = self.git(&["fsck", "--full", "--strict"]);
        assert_eq!(fsck.trim(), "");
        assert_eq!(self.git(&["rev-list", "--count", DATA]).trim(), self.data_commits.to_string());
        let objects = self.git(&["count-objects", "-v"]);
        assert!(objects.contains("count: 0\n") && objects.contains("garbage: 0\n"), "{objects}");
        for pack in self.files("pack") {
            let pack = pack.to_str().expect("names of packs are ASCII");
            self.git(&["verify-pack", pack]);
            // The index must equal Git's, byte for byte.
            let index = self.path.join("made.idx");
            let index = index.to_str().expect("the temporary folder has a plain name");
            self.git(&["index-pack", "--strict", "-o", index, pack]);
            assert_eq!(std::fs::read(index).unwrap(), std::fs::read(pack.replace(".pack", ".idx")).unwrap());
            std::fs::remove_file(index).unwrap();
        }
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(self.path.join("objects/pack")).expect("there is a pack");
        let files = folder.map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
    }
}

#[test]
fn a_branch_can_be_handed_to_the_thread_that_commits() {
    fn assert_send<T: Send>() {}
    assert_send::<Branch>();
}
