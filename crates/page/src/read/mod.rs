//! Reads the branch: what the pages show, before it is known what the user may read. All of it blocks.

pub(crate) mod changed;
pub(crate) mod commit;
pub(crate) mod commits;
mod kinds;
pub(crate) mod object;
pub(crate) mod search;

use std::cell::OnceCell;
use std::sync::Arc;

use git2::Oid;
use gitcd_history::fields::{self, Field};
use gitcd_history::moment::Moment;
use gitcd_history::when::When;
use gitcd_history::who::Who;
use gitcd_history::{CommitInfo, History};
use gitcd_merge::secrecy::Exposure;
use gitcd_repo::changes::{self, Change};
use gitcd_repo::git_dir;
use gitcd_repo::refs::Refs;

use crate::catalog::Catalog;
use crate::keys::{self, Key, PREFIX};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::work::Deadline;

/// The committer of a gitcd without a name of its own, which is not printed.
pub(crate) const DEFAULT_COMMITTER: &str = "gitcd";

/// A branch as it is now.
pub(crate) struct Branch {
    pub(crate) history: History,
    tip: Moment,
    settings: Arc<Settings>,
    /// The kinds with those that are defined now, once they were read.
    kinds: OnceCell<Catalog>,
    /// The head that [`crate::events`] announces.
    pub(crate) head: String,
}

/// The values of a key before and after a change.
type Values = [Option<Vec<u8>>; 2];

impl Branch {
    /// Opens the branch. Its reads fail when they [must stop](Deadline::must_stop).
    pub(crate) fn open(settings: &Arc<Settings>, deadline: &Deadline) -> Result<Self, Problem> {
        let config = &settings.branch;
        let path = git_dir(&config.repository);
        // The head first: if it is too old, the page is read once more.
        let head = head(&path, [&config.data_reference, &config.metadata_reference]);
        let deadline = deadline.clone();
        let history = History::open(config.clone(), settings.find_prefix)?.stopped_by(move || deadline.must_stop());
        let tip = history.at(When::Now)?;
        Ok(Self { history, tip, settings: settings.clone(), kinds: OnceCell::new(), head })
    }

    fn key_of(&self, relative: &[u8]) -> Key {
        self.key(self.history.keys().absolute(relative))
    }

    pub(crate) fn key(&self, whole: Vec<u8>) -> Key {
        let name = whole.strip_prefix(PREFIX);
        let object = name.and_then(|name| self.settings.catalog.object(std::str::from_utf8(name).ok()?));
        let text = keys::text(name.unwrap_or(&whole));
        Key { whole, text, object }
    }

    fn exposure(&self, key: &[u8], values: [Option<&[u8]>; 2]) -> Exposure {
        self.settings.secret_kinds.of_change(self.history.below_prefix(key), values)
    }

    fn values(&self, change: Change) -> Result<Values, Problem> {
        let value = |blob: Option<Oid>| blob.map(|blob| self.history.value(blob, None)).transpose();
        Ok([value(change.from)?, value(change.to)?])
    }

    /// Returns the value of a key in a tree.
    fn value_in(&self, tree: Oid, key: &[u8]) -> Result<Option<Vec<u8>>, Problem> {
        if !self.history.is_data(key) {
            return Ok(None);
        }
        let blob = changes::find(self.history.repository(), tree, self.history.below_prefix(key))?;
        Ok(blob.map(|blob| self.history.value(blob, None)).transpose()?)
    }
}

fn head(path: &std::path::Path, names: [&str; 2]) -> String {
    let refs = Refs::open(path).ok();
    let target = |name: &str| refs.as_ref()?.read(name).ok()?.map(|oid| oid.to_string());
    names.map(|name| target(name).unwrap_or_default()).join("-")
}

/// Compares values, without those that must not be shown.
fn differences([before, after]: [Option<&[u8]>; 2], exposure: Exposure) -> Vec<Field> {
    fields::hidden(fields::between(before, after), exposure)
}

/// Formats who made the changes of a commit.
fn by(commit: &CommitInfo) -> String {
    Who::of(commit, None, [None, None]).text(DEFAULT_COMMITTER)
}
