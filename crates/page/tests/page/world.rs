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
use trishanku_page::{Catalog, Page, Services, Settings, StartError};

use crate::client::Client;

const START: u64 = 1_700_000_000;
/// Commits of a flush of [`World::put_each`].
const AT_A_TIME: usize = 100;
const KINDS: &str = include_str!("../../../../cli/src/kinds/builtin.txt");

/// A key with its new value; `None` deletes it.
pub(crate) type Put<'p> = (&'p str, Option<&'p str>);

struct Store {
    config: Config,
    branch: Branch,
    state: State,
    records: HashMap<String, Record>,
}

pub(crate) struct World {
    folder: TempDir,
    stores: Vec<Store>,
    clock: u64,
}

fn config(folder: &Path, branch: &str) -> Config {
    Config {
        data_reference: format!("refs/heads/{branch}"),
        metadata_reference: format!("refs/gitcd/metadata/{branch}"),
        keys: KeySpace::new("/registry", [""; 0]),
        committer_name: branch.to_owned(),
        ..Config::named(folder.join("store.git"), branch)
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
    /// Creates branches without keys: `b0`, `b1`, …
    pub(crate) fn new(branches: usize) -> Self {
        let names: Vec<String> = (0..branches).map(|number| format!("b{number}")).collect();
        Self::named(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Creates branches without keys, each with the name of its store.
    pub(crate) fn named(names: &[&str]) -> Self {
        // Every flush waits for the disk, unless the files are in memory.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("the temporary folder is writable");
        let store = |name: &&str| {
            let state = State { revision: 1, compact_revision: 1, incarnation: "x".into(), leases: Vec::new() };
            let config = config(folder.path(), name);
            let branch = Branch::create(config.clone(), &state).expect("the branch is new");
            Store { config, branch, state, records: HashMap::new() }
        };
        let stores = names.iter().map(store).collect();
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
        self.commit(branch, user, puts);
        self.flush(branch);
        self.stores[branch].branch.next()
    }

    /// Writes keys, each in a commit of its own. A store under load publishes many commits at a time, too.
    pub(crate) fn put_each(&mut self, branch: usize, user: &str, puts: impl Iterator<Item = (String, String)>) {
        for (number, (key, value)) in puts.enumerate() {
            self.commit(branch, user, &[(&key, Some(&value))]);
            if number % AT_A_TIME == AT_A_TIME - 1 {
                self.flush(branch);
            }
        }
        self.flush(branch);
    }

    fn commit(&mut self, branch: usize, user: &str, puts: &[Put<'_>]) {
        let revisions = self.revisions(branch, puts);
        let actor = Actor { user: user.to_owned(), ..Actor::default() };
        let branch = &mut self.stores[branch].branch;
        branch.commit_of(&revisions, &[Attribution::whole(actor)]).expect("the keys fit");
    }

    fn flush(&mut self, branch: usize) {
        let Store { branch, state, .. } = &mut self.stores[branch];
        branch.flush(state).expect("the repository is writable");
    }

    pub(crate) fn put(&mut self, branch: usize, puts: &[Put<'_>]) -> Oid {
        self.put_by(branch, "jane", puts)
    }

    /// Merges a branch into the first one. `puts` is the outcome, `notes` follow the subject.
    pub(crate) fn merge(&mut self, from: usize, puts: &[Put<'_>], notes: &str) -> Oid {
        self.merge_into(0, from, puts, notes)
    }

    /// Merges a branch into another one.
    pub(crate) fn merge_into(&mut self, into: usize, from: usize, puts: &[Put<'_>], notes: &str) -> Oid {
        let theirs = self.stores[from].branch.next();
        let revisions = self.revisions(into, puts);
        let merging =
            Merging { revisions, theirs, blobs: HashMap::new(), fast_forward: false, notes: notes.to_owned() };
        self.stores[into].branch.merge(&merging).expect("the merge fits");
        self.flush(into);
        self.stores[into].branch.next()
    }

    pub(crate) fn repository(&self) -> Repository {
        Repository::open(self.folder.path().join("store.git")).expect("it was created")
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            branch: self.stores[0].config.clone(),
            find_prefix: false,
            catalog: Catalog::parse(KINDS).expect("each line is a resource"),
            secret_kinds: "example.org/Vault".parse().expect("it is a kind"),
            undo_command: "trishanku undo".to_owned(),
        }
    }

    /// Serves the page on the first branch, without a login.
    pub(crate) async fn serve(&self, rights: Arc<dyn Rights>) -> Served {
        self.serve_with(Services::read_only(rights), "127.0.0.1:0").await
    }

    /// Serves the page with other services than the rights, without a login.
    pub(crate) async fn serve_with(&self, services: Services, address: &str) -> Served {
        let page = Page::bind(self.settings(), services, address.parse().expect("it is an address")).await;
        let page = page.expect("the page can be served");
        let url = page.url().to_owned();
        let task = tokio::spawn(page.serve());
        let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("it is a URL");
        Served { address: address.to_owned(), login: format!("/{path}"), task }
    }

    pub(crate) async fn bind(&self, rights: Arc<dyn Rights>, address: &str) -> Result<Page, StartError> {
        Page::bind(self.settings(), Services::read_only(rights), address.parse().expect("it is an address")).await
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
