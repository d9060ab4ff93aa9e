//! Reads the branch of a control plane from its repository.

use std::time::Duration;

use anyhow::bail;
use gitcd::git::branch::Config;
use gitcd::git::changes::Changes;
use gitcd::history::moment::Moment;
use gitcd::history::when::When;
use gitcd::history::{History, HistoryError};
use gitcd::keyspace::KeySpace;
use gitcd::merge::schema::Schemas;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use trishanku::kinds::Kinds;
use trishanku_undo::Change;

use crate::location::Location;

/// The prefix of all keys of a kube-apiserver.
const PREFIX: &str = "/registry/";
/// Key prefix of `CustomResourceDefinitions`.
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions/";
/// How long the store may take to commit what kube-apiserver has written.
const COMMITTED_WITHIN: Duration = Duration::from_secs(20);
/// After so long without a commit, the store has nothing to commit. It pauses for up to two seconds after a fetch.
const SETTLED_AFTER: Duration = Duration::from_millis(2500);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The stored values of a key before and after a change.
pub(super) type Values = [Option<Vec<u8>>; 2];

/// The selected branch: its repository and references.
pub(super) struct Selected {
    location: Location,
    find_prefix: bool,
}

impl Selected {
    /// Selects a branch. With `find_prefix`, the key prefix is derived from the keys.
    pub(super) fn new(location: Location, find_prefix: bool) -> Self {
        Self { location, find_prefix }
    }

    fn open(&self) -> Result<History, HistoryError> {
        let Location { repository, data, metadata, .. } = &self.location;
        let config = Config {
            data_reference: data.clone(),
            metadata_reference: metadata.clone(),
            keys: KeySpace::new("/registry", [""; 0]),
            ..Config::named(repository.clone(), "default")
        };
        History::open(config, self.find_prefix)
    }

    /// Opens the branch as it is in Git now.
    pub(super) fn open_now(&self) -> anyhow::Result<Branch> {
        let history = self.open()?;
        let tip = history.at(When::Now)?;
        Ok(Branch { history, tip })
    }

    /// Opens the branch when it has a revision of the store, or does not change any more: revisions of events and leases, which are
    /// never committed, may follow the last commit. Without a revision, only the second is awaited.
    pub(super) async fn open_settled(&self, revision: Option<i64>) -> anyhow::Result<Branch> {
        let wanted = revision.unwrap_or(i64::MAX);
        let (mut branch, mut changed) = (self.open_now()?, Instant::now());
        let deadline = Instant::now() + COMMITTED_WITHIN;
        while branch.history.revision() < wanted && changed.elapsed() < SETTLED_AFTER {
            if Instant::now() > deadline {
                let Some(revision) = revision else { break };
                bail!(
                    "{} in {} is at revision {}, but kube-apiserver at {revision}: `gitcd status` shows why the store is slow",
                    self.location.data,
                    self.location.repository.display(),
                    branch.history.revision()
                );
            }
            sleep(LOOK_EVERY).await;
            let now = self.open_now()?;
            if now.history.revision() != branch.history.revision() {
                changed = Instant::now();
            }
            branch = now;
        }
        let behind = branch.history.revision();
        if let Some(revision) = revision.filter(|revision| behind < *revision && self.is_clone()) {
            trishanku_stdio::eprintln!(
                "{} is a clone at revision {behind}, and kube-apiserver is at {revision}: fetch it to see the latest changes",
                self.location.repository.display()
            );
        }
        Ok(branch)
    }

    /// Opens the branch when it has a revision of the store, which is committed, and none of these objects. Returns `None` if the
    /// store does not commit them in time.
    pub(super) async fn open_with(&self, revision: i64, deleted: &[&str]) -> anyhow::Result<Option<Branch>> {
        let deadline = Instant::now() + COMMITTED_WITHIN;
        while Instant::now() < deadline {
            let branch = self.open_now()?;
            let has_all = branch.history.revision() >= revision;
            if has_all && branch.keys(|key| deleted.contains(&key))?.is_empty() {
                return Ok(Some(branch));
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(None)
    }

    /// Returns whether no gitcd serves this repository: there is no local state of a branch.
    fn is_clone(&self) -> bool {
        let path = gitcd::git::git_dir(&self.location.repository);
        !path.join("gitcd").exists()
    }
}

/// The history of a branch, and its last state in Git.
pub(super) struct Branch {
    pub(super) history: History,
    pub(super) tip: Moment,
}

impl Branch {
    /// Returns the key of an object without the prefix of kube-apiserver; `None` for keys of other clients.
    pub(super) fn short(&self, relative: &[u8]) -> Option<String> {
        let key = self.history.keys().absolute(relative);
        String::from_utf8(key).ok()?.strip_prefix(PREFIX).map(ToOwned::to_owned)
    }

    /// Returns the whole key.
    pub(super) fn whole(key: &str) -> Vec<u8> {
        format!("{PREFIX}{key}").into_bytes()
    }

    /// Reads the keys that changed, of those that are wanted, with their values before and after.
    pub(super) fn values(
        &self,
        changes: &Changes,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, Values)>, HistoryError> {
        let mut found = Vec::new();
        for (relative, change) in &changes.keys {
            let Some(key) = self.short(relative).filter(|key| is_wanted(key)) else { continue };
            let value = |blob: Option<_>| blob.map(|blob| self.history.value(blob, None)).transpose();
            found.push((key, [value(change.from)?, value(change.to)?]));
        }
        Ok(found)
    }

    /// Returns the keys at the tip that are wanted.
    pub(super) fn keys(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<String>, HistoryError> {
        let all = self.history.between(None, &self.tip)?;
        Ok(all.keys.keys().filter_map(|relative| self.short(relative)).filter(|key| is_wanted(key)).collect())
    }

    /// Returns whether a commit may create an object that contains others: a Namespace or a `CustomResourceDefinition`.
    pub(super) fn creates_container(&self, commit: &gitcd::history::commits::BranchCommit) -> bool {
        let Ok(changes) = self.history.changes_of(commit) else { return true };
        let is_container = |key: &str| key.starts_with("namespaces/") || key.starts_with(DEFINITIONS);
        let mut created = changes.keys.iter().filter(|(_, change)| change.from.is_none());
        created.any(|(relative, _)| self.short(relative).is_some_and(|key| is_container(&key)))
    }

    /// Returns an object at the tip; `None` if there is none, or if it cannot be read.
    pub(super) fn object(&self, key: &str) -> Result<Option<Value>, HistoryError> {
        let value = self.history.get(&self.tip, &Self::whole(key))?;
        Ok(value.and_then(|value| Change::read(None, Some(&value.bytes)).ok()?.after))
    }

    /// Returns the `CustomResourceDefinitions` of moments, and of the tip.
    fn definitions(&self, moments: &[&Moment]) -> Result<Vec<Vec<u8>>, HistoryError> {
        let mut found = Vec::new();
        for moment in moments.iter().copied().chain([&self.tip]) {
            for key in self.history.list(moment, &Self::whole(DEFINITIONS))? {
                found.extend(self.history.get(moment, &key)?.map(|value| value.bytes));
            }
        }
        Ok(found)
    }

    /// Returns the kinds of Kubernetes, and those that are defined at moments and at the tip.
    pub(super) fn kinds(&self, moments: &[&Moment]) -> anyhow::Result<Kinds> {
        let definitions = self.definitions(moments)?;
        let objects = definitions.iter().filter_map(|value| Change::read(None, Some(value)).ok()?.after);
        let specs: Vec<Value> = objects.map(|mut object| object["spec"].take()).collect();
        Ok(Kinds::builtin().with_definitions(&specs))
    }

    /// Returns the schemas of the kinds.
    pub(super) fn schemas(&self, moments: &[&Moment]) -> anyhow::Result<Schemas> {
        let definitions = self.definitions(moments)?;
        let parsed: Vec<Value> =
            definitions.iter().filter_map(|value| Change::read(None, Some(value)).ok()?.after).collect();
        // A malformed definition only makes merges of its kind coarser.
        let (schemas, _malformed) = Schemas::builtin().with_crds(&parsed);
        Ok(schemas)
    }
}
