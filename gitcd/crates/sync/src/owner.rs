//! Ownership of served branches: pushes to them are merged by the store.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gitcd_core::error::chain;
use gitcd_repo::owner::{Owner, Refusal, Remarks, Update};
use parking_lot::Mutex;

use super::merger::{Conflicts, MergeOptions, MergeOutcome, Merger};
use super::messages::SERVED;
use super::plan::Provenance;
use super::status::Statuses;
use super::{external, lease};

/// The branches that this process serves. Cheap to share.
#[derive(Clone, Debug, Default)]
pub struct Served(Arc<Mutex<HashMap<(PathBuf, String), Branch>>>);

#[derive(Clone, Debug)]
struct Branch {
    merger: Arc<Merger>,
    statuses: Statuses,
    metadata: String,
}

impl Served {
    /// Adds a branch: pushes to it are merged by its store. Blocks: resolves symbolic links.
    pub fn add(&self, merger: Arc<Merger>, statuses: Statuses) {
        let config = merger.config();
        let key = (canonical(&config.repository), config.data_reference.clone());
        let metadata = config.metadata_reference.clone();
        self.0.lock().insert(key, Branch { merger, statuses, metadata });
    }

    fn find(&self, folder: &Path, reference: &str) -> Option<Branch> {
        self.0.lock().get(&(folder.to_owned(), reference.to_owned())).cloned()
    }

    /// Returns the path under which the branches of a repository are known. Resolves symbolic links only if it is given another
    /// path: a Git host, which gives this one, asks about every reference of a push.
    fn folder(&self, repository: &Path) -> PathBuf {
        let is_known = self.0.lock().keys().any(|(known, _)| known == repository);
        if is_known { repository.to_owned() } else { canonical(repository) }
    }

    /// Returns why clients may not write a reference that belongs to a served branch: its metadata or its lease.
    fn own(&self, folder: &Path, reference: &str) -> Option<&'static str> {
        let served = self.0.lock();
        let mut branches = served.iter().filter(|((known, _), _)| known == folder);
        branches.find_map(|((_, data), branch)| match reference {
            _ if reference == branch.metadata => {
                Some("the metadata of a branch is written by the gitcd that serves it")
            }
            _ if reference == lease::reference(data) => Some(SERVED),
            _ => None,
        })
    }
}

/// Returns one path for a repository, whether it is given as its folder or as the `.git` in it.
fn canonical(repository: &Path) -> PathBuf {
    let folder = gitcd_repo::git_dir(repository);
    folder.canonicalize().unwrap_or(folder)
}

impl Owner for Served {
    fn looked_at(&self, repository: &Path) {
        let folder = canonical(repository);
        for ((known, _), branch) in &*self.0.lock() {
            if *known == folder {
                branch.merger.store().hold();
            }
        }
    }

    fn update(&self, update: Update) -> Option<BoxFuture<'_, Result<Remarks, Refusal>>> {
        let folder = self.folder(&update.repository);
        if let Some(reason) = self.own(&folder, &update.reference) {
            return Some(async move { Err(Refusal::new(reason)) }.boxed());
        }
        let merges = update.reference.strip_prefix(external::FOR).map(|branch| format!("refs/heads/{branch}"));
        let reference = merges.as_deref().unwrap_or(&update.reference);
        let branch = self.find(&folder, reference)?;
        let anywhere = merges.is_some();
        Some(async move { take(branch, update, anywhere).await }.boxed())
    }
}

async fn take(branch: Branch, update: Update, anywhere: bool) -> Result<Remarks, Refusal> {
    let Some(new) = update.new else { return Err(Refusal::new("a branch that is being served cannot be deleted")) };
    let merger = &branch.merger;
    let moved = || {
        let branch = update.reference.trim_start_matches("refs/heads/");
        let advice =
            format!("the branch has moved on: fetch and merge, or push to {}{branch} to have it merged", external::FOR);
        Err(Refusal::new(&advice))
    };
    if !anywhere {
        // Compared with the commit in Git: writes that are not committed yet are merged with the push, like concurrent ones.
        let Some(old) = update.old.filter(|old| *old == merger.head().data) else { return moved() };
        let follows = merger.is_ancestor(old, new).await.map_err(|error| Refusal::new(&chain(&error)))?;
        if !follows {
            return Err(Refusal::new("this would remove commits from a branch that is being served"));
        }
    }
    let by = format!("push of {}", update.user.as_deref().unwrap_or("an anonymous user"));
    let on_top_of = update.old.filter(|_| !anywhere);
    // gitcds push to the branch itself.
    let provenance = if update.is_gitcd && !anywhere { Provenance::ByMessage } else { Provenance::External };
    let options = MergeOptions { strict: true, on_top_of, provenance, ..external::options(&by) };
    let (statuses, name) = (&branch.statuses, &merger.config().data_reference);
    match merger.merge(new, &options).await {
        Ok(MergeOutcome::Moved) => moved(),
        Ok(MergeOutcome::Deferred) => Ok(Remarks::default()),
        Ok(MergeOutcome::Contained | MergeOutcome::NothingNew) => {
            statuses.settle_rejected(merger, name, name, new, &[]).await;
            Ok(Remarks::default())
        }
        Ok(MergeOutcome::Refused(rejected)) => {
            let files: Vec<_> = rejected.iter().map(ToString::to_string).collect();
            tracing::info!(reference = update.reference, files = files.join("; "), "push refused");
            statuses.record_rejected(name, name, new, &rejected);
            Err(Refusal::new(&files.join("; ")))
        }
        Ok(MergeOutcome::Done { keys, conflicts, rejected }) => {
            let count = conflicts.count;
            tracing::info!(reference = update.reference, commit = %new, keys, conflicts = count, "push merged");
            statuses.settle_rejected(merger, name, name, new, &rejected).await;
            statuses.change(name, |status| status.record_merge(new, &conflicts));
            Ok(remarks(&conflicts))
        }
        Err(error) => Err(Refusal::new(&chain(&error))),
    }
}

/// Returns the conflicts of a push for its author, by file, in the words of the merge commit.
fn remarks(conflicts: &Conflicts) -> Remarks {
    let mut remarks = Remarks::default();
    let mut last = None;
    for (path, conflict) in &conflicts.first {
        if last.replace(path) != Some(path) {
            remarks.add(&format!("{path} was changed by others, too:"));
        }
        remarks.add(&format!("conflict: {conflict}"));
    }
    if conflicts.count > conflicts.first.len() {
        remarks.add(&format!(
            "and {} more conflicts; the merge commit lists them",
            conflicts.count - conflicts.first.len()
        ));
    }
    remarks
}
