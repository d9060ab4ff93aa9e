//! Makes a fork independent: it gets a copy of every object that it shares with other repositories.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use gitcd_core::durable;
use gitcd_core::program::Program;
use gitcd_repo::forks::{self, Fork, ForkState, ForksLock};
use tokio::sync::watch;

use super::join::{BOUNDS, run};
use super::retain::{BranchLocks, RetainError, refuse};
use super::{MaintenanceLock, is_being_collected};

/// Copies all objects that the repository in this folder needs into it, and stops sharing. Returns false if it shares none.
///
/// Takes as long as `git repack -a`, and the space of all reachable objects. Blocks while one of the repositories deletes objects.
///
/// # Errors
/// [`RetainError`]; the repository still shares the objects. Notably [`RetainError::Served`] while it is used, and
/// [`RetainError::Forks`] while forks of its own may need objects that it does not reach: make those independent first.
pub async fn make_independent(
    git: &Program,
    repository: &Path,
    stopped: &watch::Receiver<bool>,
) -> Result<bool, RetainError> {
    let alternates = repository.join("objects/info/alternates");
    let aside = repository.join("objects/info/alternates.gitcd");
    if is_being_collected(repository, SystemTime::now()) {
        return Err(RetainError::Collected(repository.join("gc.pid")));
    }
    let Some(turn) = MaintenanceLock::take(repository)? else {
        return Err(RetainError::Busy(repository.to_owned()));
    };
    if aside.exists() && !alternates.exists() {
        // Left by a run that was killed during the check.
        durable::rename(&aside, &alternates)?;
    }
    if !alternates.exists() {
        return Ok(false);
    }
    let _unused_meanwhile = BranchLocks::take(repository)?;
    refuse(ForksLock::take(repository)?.clean()?)?;
    // Nothing that it needs is deleted meanwhile. If the origin cannot be changed, this is no worse than before.
    let _registered = forks::renew(repository);
    // What is unreachable stays.
    let words = ["repack", "-a", "-d", "--keep-unreachable", "-q"];
    run(git.command(&[&BOUNDS[..], &words].concat()), &turn.place, "repack", Vec::new(), stopped).await?;
    // While the check runs, the repository looks as if it shared nothing.
    let locks = forks::lock_all(repository)?;
    refuse(own_forks(repository)?)?;
    durable::rename(&alternates, &aside)?;
    let words = ["rev-list", "--objects", "--quiet", "--all", "--reflog", "--indexed-objects"];
    let mut check = git.command(&[&BOUNDS[..], &words].concat());
    check.env("GIT_REF_PARANOIA", "1");
    if let Err(source) = run(check, &turn.place, "rev-list", Vec::new(), stopped).await {
        durable::rename(&aside, &alternates)?;
        return Err(RetainError::Incomplete { repository: repository.to_owned(), source });
    }
    fs::remove_file(&aside).map_err(durable::Error::of("remove", &aside))?;
    durable::sync(&repository.join("objects/info"))?;
    for lock in &locks {
        // Otherwise, the next prune removes the record.
        let _removed = lock.clean();
    }
    Ok(true)
}

fn own_forks(repository: &Path) -> Result<Vec<Fork>, RetainError> {
    let mut forks = forks::registered(repository)?;
    forks.retain(|fork| fork.state != ForkState::Gone);
    Ok(forks)
}

#[cfg(test)]
mod tests;
