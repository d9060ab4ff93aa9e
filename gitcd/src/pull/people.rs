//! Takes in what people commit on the data reference itself: by a push into the repository's folder, or by a merge in it.

use std::sync::Arc;
use std::time::Duration;

use git2::Oid;
use tokio::sync::watch;

use super::join::{Histories, How, Joined, Joiner};
use super::status::Statuses;
use crate::error::chain;
use crate::git::refs::Refs;
use crate::git::watch::RefWatcher;
use crate::merge::Policy;
use crate::merge::scope::Scope;
use crate::recovery::git_dir;

/// After a failure.
const RETRY: Duration = Duration::from_secs(2);

/// How what people commit is merged.
pub fn how(by: &str) -> How {
    How {
        policy: Policy::Later,
        scope: Scope::default(),
        fast_forward: true,
        impatient: true,
        histories: Histories::Now,
        on_top_of: None,
        strict: false,
        by: by.into(),
    }
}

/// Follows the branch's data reference until told to stop.
pub(crate) async fn follow(joiner: Arc<Joiner>, statuses: Statuses, mut stopped: watch::Receiver<bool>) {
    let (folder, reference) = (git_dir(&joiner.config().repository), joiner.config().data_reference.clone());
    let own = reference.clone();
    let opened = tokio::task::spawn_blocking(move || {
        Ok::<_, String>((
            RefWatcher::new(&folder, move |name| name == own).map_err(|error| chain(&error))?,
            Refs::open(&folder).map_err(|error| chain(&error))?,
        ))
    });
    let (following, refs) = match opened.await.expect("reading references does not panic") {
        Ok((following, refs)) => (following, Arc::new(refs)),
        Err(error) => {
            tracing::error!(error, "commits of others on the branch are only noticed when it is written to");
            return;
        }
    };
    let mut changes = following.changes();
    let mut heads = joiner.heads();
    let mut failed: Option<Oid> = None;
    loop {
        let head = *heads.borrow_and_update();
        let (again, name) = (refs.clone(), reference.clone());
        let found = tokio::task::spawn_blocking(move || again.read(&name).ok().flatten());
        let found = found.await.expect("reading references does not panic");
        let mut retry = None;
        // Our own commits are on the reference a moment before they are told of.
        // Borrowed once: who borrows twice at a time waits for the committer in between, which waits for the first to end.
        let now = *heads.borrow();
        let is_ours = |found: Oid| [head.data, head.next, now.data, now.next].contains(&found);
        let found = found.filter(|found| !is_ours(*found) && failed != Some(*found));
        if let Some(found) = found {
            match joiner.join(found, &how("commit of a person")).await {
                Ok(Joined::Done { keys, conflicts, rejected }) => {
                    tracing::info!(commit = %found, keys, conflicts, rejected = rejected.len(), "took in a commit of somebody else's");
                    for file in &rejected {
                        tracing::warn!(
                            path = file.path,
                            reason = file.reason,
                            "file not taken; the next commit restores it"
                        );
                    }
                    statuses.taken(&joiner, &reference, &reference, found, &rejected).await;
                    statuses.change(&reference, |status| {
                        status.error = None;
                        status.joined(found, conflicts);
                    });
                }
                Ok(Joined::Contained | Joined::NothingNew | Joined::Left | Joined::Moved | Joined::Refused(_)) => {}
                Err(error) => {
                    tracing::error!(commit = %found, error = chain(&error), "a commit of somebody else's cannot be merged");
                    statuses.change(&reference, |status| status.error = Some(chain(&error)));
                    failed = Some(found);
                    retry = Some(RETRY);
                }
            }
        }
        let resting = async {
            match retry {
                Some(retry) => tokio::time::sleep(retry).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = resting => failed = None,
            moved = changes.next() => if moved.is_none() { return },
            // A flush may have found one before the system told.
            flushed = heads.changed() => if flushed.is_err() { return },
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}
