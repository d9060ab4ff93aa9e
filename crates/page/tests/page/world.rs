//! A repository with branches, written as stores write them, and the page on the first of them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use git2::{Oid, Repository};
use gitcd_core::keyspace::KeySpace;
use gitcd_repo::actor::{Actor, Attribution};
use gitcd_repo::branch::{Action, Branch, Change, Config, Merging, Record, Revisions, State};
use tempfile::TempDir;
use trishanku_page::rights::{Rights, UnrestrictedRights};
use trishanku_page::{Catalog, Page, Settings, StartError};

use crate::client::Client;

const START: u64 = 1_700_000_000;
const KINDS: &str = include_str!("../../../../cli/src/kinds/builtin.txt");

/// A key with its new value; `None` deletes it.
pub(crate) type Put<'p> = (&'p str, Option<&'p str>);

struct Store {
    branch: Branch,
    state: State,
    records: HashMap<String, Record>,
}

pub(crate) struct World {
    folder: TempDir,
    stores: Vec<Store>,
    clock: u64,
}

fn config(folder: &Path, number: usize) -> Config {
    Config {
        data_reference: format!("refs/heads/b{number}"),
        metadata_reference: format!("refs/gitcd/metadata/b{number}"),
        keys: KeySpace::new("/registry", [""; 0]),
        committer_name: format!("store{number}"),
        ..Config::named(folder.join("store.git"), &format!("b{number}"))
    }
}

/// A `ConfigMap` with one entry.
pub(crate) fn map(name: &str, tea: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": {"tea": tea},
    })
    .to_string()
}

impl World {
    /// Creates branches without keys.
    pub(crate) fn new(branches: usize) -> Self {
        // Every flush waits for the disk, unless the files are in memory.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("the temporary folder is writable");
        let store = |number: usize| {
            let state = State { revision: 1, compact_revision: 1, incarnation: "x".into(), leases: Vec::new() };
            let branch = Branch::create(config(folder.path(), number), &state).expect("the branch is new");
            Store { branch, state, records: HashMap::new() }
        };
        let stores = (0..branches).map(store).collect();
        Self { folder, stores, clock: START }
    }

    fn revisions(&mut self, branch: usize, puts: &[Put<'_>]) -> Revisions {
        self.clock += 1;
        let store = &mut self.stores[branch];
        let first = store.state.revision + 1;
        let mut changes = Vec::new();
        for (key, value) in puts {
            store.state.revision += 1;
            let revision = store.state.revision;
            let action = match value {
                None => {
                    store.records.remove(*key);
                    Action::Delete
                }
                Some(value) => {
                    let new = Record { create_revision: revision, mod_revision: 0, version: 0, lease: 0 };
                    let record = store.records.entry((*key).to_owned()).or_insert(new);
                    (record.mod_revision, record.version) = (revision, record.version + 1);
                    Action::Put { value: (*value).to_owned().into(), record: *record }
                }
            };
            changes.push(Change { key: (*key).to_owned().into(), action });
        }
        let time = UNIX_EPOCH + Duration::from_secs(self.clock);
        let clients = vec!["kube-apiserver (test)".to_owned()];
        Revisions { first, last: store.state.revision.max(first), time, clients, changes }
    }

    /// Writes keys in one commit of a store, by a user. Returns the commit.
    pub(crate) fn put_by(&mut self, branch: usize, user: &str, puts: &[Put<'_>]) -> Oid {
        let revisions = self.revisions(branch, puts);
        let actor = Actor { user: user.to_owned(), ..Actor::default() };
        let Store { branch, state, .. } = &mut self.stores[branch];
        branch.commit_of(&revisions, &[Attribution::whole(actor)]).expect("the keys fit");
        branch.flush(state).expect("the repository is writable");
        branch.next()
    }

    pub(crate) fn put(&mut self, branch: usize, puts: &[Put<'_>]) -> Oid {
        self.put_by(branch, "jane", puts)
    }

    /// Merges a branch into the first one. `puts` is the outcome, `notes` follow the subject.
    pub(crate) fn merge(&mut self, from: usize, puts: &[Put<'_>], notes: &str) -> Oid {
        let theirs = self.stores[from].branch.next();
        let revisions = self.revisions(0, puts);
        let merging =
            Merging { revisions, theirs, blobs: HashMap::new(), fast_forward: false, notes: notes.to_owned() };
        let Store { branch, state, .. } = &mut self.stores[0];
        branch.merge(&merging).expect("the merge fits");
        branch.flush(state).expect("the repository is writable");
        branch.next()
    }

    pub(crate) fn repository(&self) -> Repository {
        Repository::open(self.folder.path().join("store.git")).expect("it was created")
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            branch: config(self.folder.path(), 0),
            find_prefix: false,
            catalog: Catalog::parse(KINDS).expect("each line is a resource"),
            secret_kinds: "example.org/Vault".parse().expect("it is a kind"),
            undo: "trishanku undo".to_owned(),
        }
    }

    /// Serves the page on the first branch, without a login.
    pub(crate) async fn serve(&self, rights: Arc<dyn Rights>) -> Served {
        let page = self.bind(rights, "127.0.0.1:0").await.expect("the page can be served");
        let url = page.url().to_owned();
        let task = tokio::spawn(page.serve());
        let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("it is a URL");
        Served { address: address.to_owned(), login: format!("/{path}"), task }
    }

    pub(crate) async fn bind(&self, rights: Arc<dyn Rights>, address: &str) -> Result<Page, StartError> {
        Page::bind(self.settings(), rights, address.parse().expect("it is an address")).await
    }

    /// Serves the page on the first branch to a user with the right to everything, and logs in.
    pub(crate) async fn open(&self) -> (Served, Client) {
        let served = self.serve(Arc::new(UnrestrictedRights)).await;
        let client = served.log_in().await;
        (served, client)
    }
}

/// A page that is served until it is dropped.
pub(crate) struct Served {
    pub(crate) address: String,
    /// The path and the token of the printed URL.
    pub(crate) login: String,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    /// Returns a client without a cookie.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.address.clone())
    }

    pub(crate) async fn log_in(&self) -> Client {
        let mut client = self.client();
        let response = client.get(&self.login).await;
        let cookie = response.header("set-cookie").expect("the token is right");
        cookie.split(';').next().expect("it has a value").clone_into(&mut client.cookie);
        client
    }
}
