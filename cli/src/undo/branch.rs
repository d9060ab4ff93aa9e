//! Reads the branch of a control plane from its repository.

use gitcd::git::changes::Changes;
use gitcd::history::moment::Moment;
use gitcd::history::{History, HistoryError};
use gitcd::merge::schema::Schemas;
use serde_json::Value;
use trishanku::kinds::Kinds;
use trishanku_undo::Change;

/// The prefix of all keys of a kube-apiserver.
const PREFIX: &str = "/registry/";
/// Key prefix of `CustomResourceDefinitions`.
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions/";

/// The stored values of a key before and after a change.
pub(super) type Values = [Option<Vec<u8>>; 2];

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
