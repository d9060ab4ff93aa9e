//! Takeover of a branch by a new lease holder, which continues from the remote's state.

use std::sync::Arc;
use std::time::Duration;

use git2::Oid;
use gitcd_core::durable;
use gitcd_core::error::chain;
use gitcd_engine::committer::{self, Committer};
use gitcd_engine::recovery::{self, OpenError, Opened, StateLock};
use gitcd_mvcc::{self as store, Store};
use gitcd_repo::branch::{Branch, FlushError};
use gitcd_repo::refs::Refs;
use tokio::runtime::Handle;

use super::remote::{LIMIT, LeaseRemote, Update};
use super::{Lease, LeaseError, side};
use crate::git_worker::blocking;
use crate::remote::RemoteError;
use crate::status::Condition;

/// Delay before a retry while the lease is held.
const RETRY: Duration = Duration::from_millis(500);

/// The local state of the branch.
#[derive(Debug)]
pub struct Own {
    /// The lock of the state folder: no other process writes the branch here.
    pub(super) lock: StateLock,
    /// Whether another server has written since, and the commits that only we have are on a side branch.
    pub(super) is_saved: bool,
}

/// The remote's references of the branch.
#[derive(Clone, Copy, Debug)]
struct There {
    data: Option<Oid>,
    metadata: Option<Oid>,
}

/// Opens the branch: our state if it continues the remote's, otherwise the remote's. On return, the remote's metadata reference
/// has been moved to a commit of ours, so that no late push of a former writer can move it.
///
/// # Errors
/// [`LeaseError`].
pub async fn open(lease: &Arc<Lease>, segment_bytes: u64, own: Own) -> Result<Opened, LeaseError> {
    let Own { mut lock, mut is_saved } = own;
    let upstream = lease.upstream().clone();
    loop {
        if let Some(by) = lease.lost() {
            return Err(LeaseError::Lost { by });
        }
        let at = upstream.clone();
        let there = match blocking(move || look(&at)).await {
            Ok(there) => there,
            Err(error) => {
                again(&error).await;
                continue;
            }
        };
        lock = match fit(&upstream, there, segment_bytes, Own { lock, is_saved }).await? {
            Ok(lock) => lock,
            Err((error, kept)) => {
                again(&error).await;
                lock = kept;
                continue;
            }
        };
        // The opened branch may have commits that no side branch has.
        is_saved = false;
        let config = upstream.config.clone();
        let opened = blocking(move || recovery::open_locked(&config, segment_bytes, lock).map_err(Box::new)).await;
        let opened = opened?;
        let at = upstream.clone();
        let published = blocking(move || publish(&at, there)).await;
        match published {
            Ok(_) => return Ok(opened),
            // A late push of a former writer has arrived: start again.
            Err(error) if error.condition == Condition::Raced => {}
            Err(error) => again(&error).await,
        }
        lock = opened.lock;
    }
}

async fn again(error: &RemoteError) {
    tracing::warn!(error = chain(error), "holding the lease, but cannot take over the branch yet; retrying");
    tokio::time::sleep(RETRY).await;
}

fn look(upstream: &LeaseRemote) -> Result<There, RemoteError> {
    let config = &upstream.config;
    let [data, metadata] = upstream.find([&config.data_reference, &config.metadata_reference], LIMIT)?;
    upstream.bring(&[(&config.data_reference, data), (&config.metadata_reference, metadata)])?;
    Ok(There { data, metadata })
}

/// Makes the local branch a continuation of the remote's.
async fn fit(
    upstream: &LeaseRemote,
    there: There,
    segment_bytes: u64,
    own: Own,
) -> Result<Result<StateLock, (RemoteError, StateLock)>, LeaseError> {
    let Own { mut lock, is_saved } = own;
    let Some(theirs) = there.metadata else { return Ok(Ok(lock)) };
    let at = upstream.clone();
    let compared = blocking(move || {
        let ours = at.own(&at.config.metadata_reference)?;
        let is_ours = match ours {
            // Our commits are saved only if another server has written: that need not be searched for again, and takes long.
            Some(ours) if !is_saved => at.is_ancestor(theirs, ours)?,
            _ => false,
        };
        Ok::<_, RemoteError>((ours, is_ours))
    });
    let (ours, is_ours) = compared.await?;
    if is_ours {
        // A new metadata commit, so that publishing moves the reference in any case.
        let config = upstream.config.clone();
        blocking(move || touch(config)).await?;
        return Ok(Ok(lock));
    }
    if ours.is_some() && !is_saved {
        let (kept, saved) = leave(upstream, segment_bytes, lock).await?;
        lock = kept;
        if let Err(error) = saved {
            return Ok(Err((error, lock)));
        }
    }
    let at = upstream.clone();
    let adopted = blocking(move || adopt(&at, theirs, there.data, &lock).map(|()| lock)).await;
    Ok(Ok(adopted?))
}

/// Prepares a takeover while waiting: fetches the remote's branch, and if another server has written since, saves the commits
/// that only we have on a side branch. Returns whether the remote's metadata commit is another server's.
///
/// # Errors
/// [`LeaseError`] if the local branch cannot be read or committed.
pub(super) async fn prepare(
    upstream: LeaseRemote,
    data: Option<Oid>,
    theirs: Oid,
    segment_bytes: u64,
    own: Own,
) -> Result<(Own, Result<bool, RemoteError>), LeaseError> {
    let (at, is_saved) = (upstream.clone(), own.is_saved);
    let compared = blocking(move || -> Result<Written, RemoteError> {
        let config = &at.config;
        at.bring(&[(&config.data_reference, data), (&config.metadata_reference, Some(theirs))])?;
        match at.own(&config.metadata_reference)? {
            Some(ours) if !is_saved && at.is_ancestor(theirs, ours)? => Ok(Written::Here),
            Some(_) if !is_saved => Ok(Written::Since),
            _ => Ok(Written::There),
        }
    });
    match compared.await {
        Ok(Written::Here) => Ok((own, Ok(false))),
        Ok(Written::There) => Ok((own, Ok(true))),
        Ok(Written::Since) => {
            let (lock, saved) = leave(&upstream, segment_bytes, own.lock).await?;
            Ok((Own { lock, is_saved: saved.is_ok() }, saved.map(|()| true)))
        }
        Err(error) => Ok((own, Err(error))),
    }
}

/// The writer of the remote's metadata commit.
enum Written {
    /// This server, which may have written more since.
    Here,
    /// Another server, and none of our commits needs to be saved.
    There,
    /// Another server, and commits that only we have are not saved yet.
    Since,
}

/// Commits the journal, and pushes all commits that the remote lacks to side branches, because another server writes the branch
/// now.
async fn leave(
    upstream: &LeaseRemote,
    segment_bytes: u64,
    lock: StateLock,
) -> Result<(StateLock, Result<(), RemoteError>), LeaseError> {
    let at = upstream.clone();
    let repaired = blocking(move || repair(&at, &lock).map(|()| lock)).await;
    let lock = repaired?;
    let (head, lock) = commit_all(upstream, segment_bytes, lock).await?;
    let at = upstream.clone();
    let saved = blocking(move || {
        // The reference may be at an external commit that is not merged yet.
        let found = at.own(&at.config.data_reference)?.filter(|found| *found != head);
        for commit in [head].into_iter().chain(found) {
            if !side::is_empty(&at, commit)
                && let Some(side) = side::save(&at, commit)?
            {
                tracing::warn!(side, "another server has written since; our unpushed writes are on a side branch");
            }
        }
        Ok(())
    });
    Ok((lock, saved.await))
}

/// Adds a metadata commit with the content of the last one.
fn touch(config: gitcd_repo::branch::Config) -> Result<(), LeaseError> {
    if let Some(mut branch) = Branch::open(config).map_err(|error| Box::new(OpenError::from(Box::new(error))))? {
        let state = branch.state().clone();
        branch.flush(&state).map_err(|error: FlushError| Box::new(OpenError::from(error)))?;
    }
    Ok(())
}

/// Commits the writes that are only in the journal; returns the data commit.
async fn commit_all(
    upstream: &LeaseRemote,
    segment_bytes: u64,
    lock: StateLock,
) -> Result<(Oid, StateLock), LeaseError> {
    let config = upstream.config.clone();
    // One piece of work: its threads must not outlive the lock, even if the caller is dropped.
    let committed = blocking(move || -> Result<_, LeaseError> {
        let opened = recovery::open_locked(&config, segment_bytes, lock).map_err(Box::new)?;
        let (store, writer) = Store::start(opened.start, store::Limits::default()).map_err(LeaseError::Thread)?;
        let (settings, counters) = (committer::Settings::default(), Arc::default());
        let (branch, incarnation, bases) = (opened.branch, opened.incarnation, opened.bases);
        let committer = Committer::new(store.clone(), branch, config, settings, incarnation, bases, counters);
        let (heads, committer) = (committer.heads(), committer.spawn());
        Handle::current().block_on(store.stop());
        writer.join();
        if !committer.map_err(LeaseError::Thread)?.join().unwrap_or(false) {
            return Err(LeaseError::Uncommitted);
        }
        let head = heads.borrow().data;
        Ok((head, opened.lock))
    });
    committed.await
}

/// Moves the local references to the remote's, and sets local state aside: recovery then continues from Git, with a new block of
/// revisions.
fn adopt(upstream: &LeaseRemote, metadata: Oid, data: Option<Oid>, lock: &StateLock) -> Result<(), LeaseError> {
    let config = &upstream.config;
    let described = described(upstream, metadata)?;
    // The remote's data may be behind its metadata, if its writer crashed during a push, or ahead of it by external commits.
    let data = match data {
        Some(data) if !upstream.is_ancestor(data, described)? => data,
        _ => described,
    };
    let open = |error: OpenError| LeaseError::Open(Box::new(error));
    recovery::set_aside(lock.folder()).map_err(open)?;
    let pair = lock.folder().join("pair");
    match std::fs::remove_file(&pair) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(open(durable::Error::of("remove", &pair)(error).into()));
        }
        _ => durable::sync(lock.folder()).map_err(|error| open(error.into()))?,
    }
    let refs = Refs::open(&upstream.git_dir()).map_err(|error| open(error.into()))?;
    for (name, oid) in [(&config.data_reference, data), (&config.metadata_reference, metadata)] {
        let before = refs.read(name).map_err(|error| open(error.into()))?;
        if before != Some(oid) {
            refs.update(name, oid, before).map_err(|error| open(error.into()))?;
        }
    }
    tracing::info!(%data, "the branch continues from the remote");
    Ok(())
}

/// Moves the data reference back to the commit that our metadata describes, if it is behind that commit after a crash between the
/// two moves of [`adopt`].
fn repair(upstream: &LeaseRemote, lock: &StateLock) -> Result<(), LeaseError> {
    let config = &upstream.config;
    let (data, metadata) = (upstream.own(&config.data_reference)?, upstream.own(&config.metadata_reference)?);
    let (Some(data), Some(metadata)) = (data, metadata) else { return Ok(()) };
    if lock.folder().join("pair").exists() {
        return Ok(());
    }
    let described = described(upstream, metadata)?;
    if data != described && upstream.is_ancestor(data, described)? {
        let moved =
            Refs::open(&upstream.git_dir()).and_then(|refs| refs.update(&config.data_reference, described, Some(data)));
        moved.map_err(|error| Box::new(OpenError::from(error)))?;
    }
    Ok(())
}

/// Returns the data commit that a metadata commit describes: its last parent.
fn described(upstream: &LeaseRemote, metadata: Oid) -> Result<Oid, RemoteError> {
    let here = upstream.here()?;
    let parents = here.find_commit(metadata).map(|commit| commit.parent_ids().next_back());
    let problem = match parents {
        Ok(Some(data)) => return Ok(data),
        Ok(None) => "it has no parents".to_owned(),
        Err(error) => error.message().to_owned(),
    };
    Err(upstream.failed(Condition::Damaged, &format!("its metadata {metadata} cannot be used: {problem}")))
}

/// Pushes the local branch if it continues the remote's. Returns whether the remote then has its data. Pushes nothing if the
/// remote's metadata is another server's, even if that server has pushed no data yet.
fn publish(upstream: &LeaseRemote, there: There) -> Result<bool, RemoteError> {
    let config = &upstream.config;
    let Some(metadata) = upstream.own(&config.metadata_reference)? else { return Ok(true) };
    let data = described(upstream, metadata)?;
    let continues = |there: Option<Oid>, ours: Oid| there.map_or(Ok(true), |theirs| upstream.is_ancestor(theirs, ours));
    if !continues(there.metadata, metadata)? {
        return there.data.map_or(Ok(false), |theirs| upstream.is_ancestor(data, theirs));
    }
    let mut updates: Vec<Update> = Vec::new();
    let follows = continues(there.data, data)?;
    if follows && there.data != Some(data) {
        updates.push((config.data_reference.clone(), data, there.data));
    }
    if there.metadata != Some(metadata) {
        updates.push((config.metadata_reference.clone(), metadata, there.metadata));
    }
    if !updates.is_empty() {
        upstream.push(updates, LIMIT)?;
    }
    Ok(follows)
}

/// Pushes the data commit that our metadata describes to a side branch, unless the remote's branch has it.
pub(super) fn save(upstream: &LeaseRemote) -> Result<Option<String>, RemoteError> {
    let Some(metadata) = upstream.own(&upstream.config.metadata_reference)? else { return Ok(None) };
    side::save(upstream, described(upstream, metadata)?)
}

/// Pushes everything before the lease is handed over: to the branch, or to a side branch if the branch has diverged.
pub(super) fn push_last(upstream: &LeaseRemote) -> Result<(), RemoteError> {
    let mut races = 0;
    loop {
        let is_there = look(upstream).and_then(|there| publish(upstream, there));
        match is_there {
            Ok(true) => return Ok(()),
            Ok(false) => {
                if let Some(side) = save(upstream)? {
                    tracing::warn!(
                        side,
                        "the branch was pushed to at the last moment; our unpushed writes are on a side branch"
                    );
                }
                return Ok(());
            }
            Err(error) if error.condition == Condition::Raced && races < 8 => races += 1,
            Err(error) => return Err(error),
        }
    }
}
