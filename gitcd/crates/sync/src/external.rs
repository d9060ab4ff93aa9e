//! External commits in the repository's folder: on the data reference itself, or on `refs/for/BRANCH`, which is merged and
//! deleted.

use std::sync::Arc;
use std::time::Duration;

use git2::Oid;
use gitcd_core::error::chain;
use gitcd_core::scope::Scope;
use gitcd_merge::Policy;
use gitcd_repo::git_dir;
use gitcd_repo::refs::{RefError, Refs};
use gitcd_repo::watch::RefWatcher;
use tokio::sync::watch;

use super::git_worker::blocking;
use super::merger::{DryRun, HistoryLink, MergeOptions, MergeOutcome, Merger};
use super::plan::Provenance;
use super::status::Statuses;

/// The prefix of references for pushes that are merged whatever commit the branch is at.
pub(super) const FOR: &str = "refs/for/";
/// Delay after a failure.
const RETRY: Duration = Duration::from_secs(2);

/// Returns the merge options for external commits.
pub fn options(by: &str) -> MergeOptions {
    MergeOptions {
        policy: Policy::Later,
        scope: Scope::default(),
        fast_forward: true,
        impatient: true,
        history_link: HistoryLink::Always,
        on_top_of: None,
        strict: false,
        dry_run: DryRun::Required,
        provenance: Provenance::ByMessage,
        by: by.into(),
    }
}

/// Merges external commits from the branch's data reference and from `refs/for/BRANCH` until `stopped`. While the references cannot
/// be read, the status says so, and reading is repeated.
pub async fn follow(merger: Arc<Merger>, statuses: Statuses, mut stopped: watch::Receiver<bool>) {
    let mut problem = Problem::default();
    while follow_references(&merger, &statuses, &mut problem, &mut stopped).await {
        if tokio::time::timeout(RETRY, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
            return;
        }
    }
}

/// Why external commits cannot be noticed at the moment, as the status shows it.
#[derive(Default)]
struct Problem(Option<String>);

impl Problem {
    /// Shows a problem, or that there is none any more.
    fn show(&mut self, statuses: &Statuses, reference: &str, now: Option<String>) {
        if self.0 == now {
            return;
        }
        if let Some(error) = &now {
            tracing::error!(error, "cannot notice external commits on the branch; retrying");
        }
        statuses.change(reference, |status| {
            // Another error may have been reported since.
            if now.is_some() || status.error == self.0 {
                status.error.clone_from(&now);
            }
        });
        self.0 = now;
    }
}

/// Merges external commits until the references can no longer be followed (`true`), or until `stopped`.
async fn follow_references(
    merger: &Arc<Merger>,
    statuses: &Statuses,
    problem: &mut Problem,
    stopped: &mut watch::Receiver<bool>,
) -> bool {
    let (folder, reference) = (git_dir(&merger.config().repository), merger.config().data_reference.clone());
    let asked = asked_for(&reference);
    let (own, own_asked) = (reference.clone(), asked.clone());
    let opened = blocking(move || {
        Ok::<_, String>((
            RefWatcher::new(&folder, move |name| name == own || Some(name) == own_asked.as_deref())
                .map_err(|error| chain(&error))?,
            Refs::open(&folder).map_err(|error| chain(&error))?,
        ))
    });
    let (following, refs) = match opened.await {
        Ok((following, refs)) => (following, Arc::new(refs)),
        Err(error) => {
            problem.show(statuses, &reference, Some(error));
            return true;
        }
    };
    let (mut changes, mut unreadable) = (following.changes(), following.failure());
    let mut heads = merger.heads();
    let (mut failed, mut failed_asked): (Option<Oid>, Option<Oid>) = (None, None);
    // The kube-apiserver may need the store first, so the dry run is not required.
    let on_branch = MergeOptions { dry_run: DryRun::IfReachable, ..options("external commit") };
    loop {
        let head = *heads.borrow_and_update();
        let (again, name, asked_for) = (refs.clone(), reference.clone(), asked.clone());
        let read = blocking(move || {
            let asked_for = asked_for.map_or(Ok(None), |name| again.read(&name));
            Ok::<_, RefError>((again.read(&name)?, asked_for?))
        });
        let read = read.await;
        let failure = unreadable.borrow_and_update().clone();
        problem.show(statuses, &reference, read.as_ref().err().map(|error| chain(error)).or(failure));
        let is_unread = read.is_err();
        let (found, to_merge) = read.unwrap_or_default();
        // Our own commits are on the reference a moment before the committer reports them.
        // Borrowed once: a second borrow would wait for the committer, which waits for the first one to end.
        let now = *heads.borrow();
        let is_ours = |found: Oid| [head.data, head.next, now.data, now.next].contains(&found);
        // A merge lasts until it is committed, which may not happen, for example on a full disk: the stop does not wait for it.
        // The journal has what is merged, and the next start continues.
        let merging = async {
            if let Some(found) = found.filter(|found| !is_ours(*found) && failed != Some(*found))
                && let Err(error) = take(merger, statuses, found, &on_branch).await
            {
                tracing::error!(commit = %found, error, "cannot merge an external commit");
                failed = Some(found);
            }
            if let Some((found, asked)) = to_merge.filter(|found| failed_asked != Some(*found)).zip(asked.as_deref())
                && let Err(error) = merge_asked(merger, statuses, &refs, (asked, found)).await
            {
                tracing::error!(reference = asked, commit = %found, error, "cannot merge a push");
                failed_asked = Some(found);
            }
        };
        tokio::select! {
            () = merging => {}
            _ = stopped.wait_for(|stopped| *stopped) => return false,
        }
        let retry = (is_unread || failed.or(failed_asked).is_some()).then_some(RETRY);
        let resting = async {
            match retry {
                Some(retry) => tokio::time::sleep(retry).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = resting => (failed, failed_asked) = (None, None),
            moved = changes.next() => if moved.is_none() { return true },
            // Its end is also that of the changes.
            Ok(()) = unreadable.changed() => {}
            // A flush may have found an external commit before the notification.
            flushed = heads.changed() => if flushed.is_err() { return false },
            _ = stopped.wait_for(|stopped| *stopped) => return false,
        }
    }
}

/// Returns the reference for pushes that are merged whatever commit the branch is at.
fn asked_for(data: &str) -> Option<String> {
    data.strip_prefix("refs/heads/").map(|branch| format!("{FOR}{branch}"))
}

/// Merges a push to `refs/for/BRANCH` in the repository's folder, and deletes the reference, so that the next push creates it
/// again.
async fn merge_asked(
    merger: &Merger,
    statuses: &Statuses,
    refs: &Arc<Refs>,
    (reference, found): (&str, Oid),
) -> Result<(), String> {
    if merger.is_no_commit(found).await {
        tracing::warn!(reference, object = %found, "deleted a pushed reference: it is not a commit; push a commit");
    } else {
        let by = "push to the repository's folder";
        // gitcds do not push here.
        let options = MergeOptions { provenance: Provenance::External, ..options(by) };
        take(merger, statuses, found, &options).await?;
    }
    let (refs, name) = (refs.clone(), reference.to_owned());
    let deleted = blocking(move || refs.delete(&name, found)).await;
    match deleted {
        // Another commit was pushed meanwhile, and is merged next.
        Ok(()) | Err(RefError::Moved { .. }) => Ok(()),
        Err(error) => Err(chain(&error)),
    }
}

/// Merges an external commit without its rejected files.
async fn take(merger: &Merger, statuses: &Statuses, found: Oid, options: &MergeOptions) -> Result<(), String> {
    let reference = &merger.config().data_reference;
    match merger.merge(found, options).await {
        Ok(MergeOutcome::Done { keys, conflicts, rejected }) => {
            let count = conflicts.count;
            tracing::info!(commit = %found, keys, conflicts = count, rejected = rejected.len(), "merged external commits");
            for file in &rejected {
                tracing::warn!(path = file.path, reason = file.reason, "rejected a file; the next commit restores it");
            }
            statuses.settle_rejected(merger, reference, reference, found, &rejected).await;
            statuses.change(reference, |status| {
                status.error = None;
                status.record_merge(found, &conflicts);
            });
            Ok(())
        }
        Ok(
            MergeOutcome::Contained
            | MergeOutcome::NothingNew
            | MergeOutcome::Deferred
            | MergeOutcome::Moved
            | MergeOutcome::Refused(_),
        ) => Ok(()),
        Err(error) => {
            let error = chain(&error);
            statuses.change(reference, |status| status.error = Some(error.clone()));
            Err(error)
        }
    }
}
