//! Restore of a branch from a backup.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gitcd_core::durable;
use gitcd_core::keyspace::Placement;
use gitcd_core::revision::Revision;
use gitcd_journal::record::{Record, Write};
use gitcd_mvcc::snapshot::{Incarnation, hex};
use gitcd_repo::branch::{self, Action, Branch, Config, Revisions, State};

use super::{OpenError, StateLock, first_snapshot, start_journal, state_folder};
use crate::backup::Backup;

/// Size of the journal's frames.
const FRAME_BYTES: usize = 4 << 20;

/// Half of all revisions; the other half is left for later writes.
const MAX_BUMPED: i64 = i64::MAX / 2;

/// Creates a branch from a backup: keys, history since the compaction, leases with their full time to live.
///
/// With `bump`, the newest revision is raised by it and everything before is compacted: clients that have seen revisions after
/// the backup must then relist, rather than take old states for new ones.
///
/// Takes about 20 µs for each key, and as much memory as the file's size.
///
/// # Errors
/// [`OpenError`], for example if the branch exists. After a crash, the branch is refused until it is removed.
pub fn restore(config: &Config, backup: &Backup, bump: Option<i64>) -> Result<Revision, OpenError> {
    restore_marked(config, backup, bump, &[])
}

/// Restores a branch that has these files in its state folder from its first moment on.
pub(super) fn restore_marked(
    config: &Config,
    backup: &Backup,
    bump: Option<i64>,
    marks: &[(&str, Vec<u8>)],
) -> Result<Revision, OpenError> {
    // Reports a file in the way as such; other obstacles are found when the branch is created.
    branch::is_absent(&config.repository).map_err(Box::new)?;
    durable::make_folder(&config.repository)?;
    // No process can serve a folder that is not a repository yet.
    let _lock = git2::Repository::open(&config.repository).is_ok().then(|| StateLock::take(config)).transpose()?;
    let incarnation: Incarnation = rand::random();
    let (base, compacted, pairs, writes) = match bump {
        None => (backup.header.base, backup.header.compact_revision, backup.pairs.clone(), &backup.writes[..]),
        Some(bump) => {
            let bumped = backup.header.revision.checked_add(bump).filter(|revision| *revision <= MAX_BUMPED);
            let revision = bumped.ok_or(OpenError::Bump { revision: Revision::new(backup.header.revision), bump })?;
            let pair = |(key, revision, put)| Write {
                revision,
                time_ms: 0,
                client: String::new(),
                changes: vec![gitcd_journal::record::Change { key, put: Some(put) }],
            };
            (revision, revision, backup.newest().into_iter().map(pair).collect(), &[][..])
        }
    };
    let state = State {
        revision: base,
        compact_revision: compacted.min(base),
        incarnation: hex(&incarnation),
        leases: backup.leases.clone(),
    };
    let (ephemeral, committed): (Vec<_>, Vec<_>) =
        pairs.into_iter().partition(|write| config.keys.placement(&write.changes[0].key) == Placement::Ephemeral);
    let time = backup.writes.first().map_or(0, |write| write.time_ms);
    let revisions = Revisions {
        first: base,
        last: base,
        time: if time > 0 { UNIX_EPOCH + Duration::from_millis(time as u64) } else { SystemTime::now() },
        clients: vec!["restored from a backup".to_owned()],
        changes: committed.iter().filter_map(change).collect(),
    };
    // While this file exists, the incomplete branch is refused.
    let made = Branch::create_with(config.clone(), &state, &revisions, || {
        let folder = state_folder(config);
        durable::make_folder(&folder)?;
        for (name, content) in marks {
            durable::replace(&folder.join(name), content)?;
        }
        durable::replace(&folder.join(RESTORING), b"a restore that did not finish\n")
    });
    let branch = made.map_err(Box::new)?;
    let folder = state_folder(config);
    let mark = folder.join(RESTORING);
    let newest = Revision::new(backup.header.revision.max(base));
    write_journal(&folder.join("journal"), incarnation, writes)?;
    let mut snapshot = first_snapshot(incarnation, Revision::new(base), branch.head().metadata);
    snapshot.compacted = Revision::new(compacted);
    snapshot.leases.clone_from(&backup.leases);
    snapshot.ephemeral = ephemeral;
    snapshot.write(&folder)?;
    super::prefixes::record(config, &folder)?;
    std::fs::remove_file(&mark).map_err(|source| OpenError::Folder { action: "remove", path: mark.clone(), source })?;
    durable::sync(&folder)?;
    Ok(newest)
}

/// Name of the file that marks an incomplete restore.
pub(super) const RESTORING: &str = "restoring";

fn change(write: &Write) -> Option<branch::Change> {
    let change = &write.changes[0];
    let put = change.put.as_ref()?;
    let record = branch::Record {
        create_revision: put.create_revision.get(),
        mod_revision: write.revision.get(),
        version: put.version,
        lease: put.lease,
    };
    Some(branch::Change { key: change.key.clone(), action: Action::Put { value: put.value.clone(), record } })
}

fn write_journal(folder: &std::path::Path, incarnation: Incarnation, writes: &[Write]) -> Result<(), OpenError> {
    let failed = |source: gitcd_journal::AppendError| OpenError::Folder {
        action: "write",
        path: folder.to_owned(),
        source: std::io::Error::other(source),
    };
    let segment_bytes = if writes.is_empty() { 1 << 12 } else { 32 << 20 };
    let mut journal = start_journal(folder, incarnation, 0, segment_bytes, &Arc::default())?;
    let mut rest = writes.iter().peekable();
    while rest.peek().is_some() {
        let frame = journal.begin();
        let mut last = Revision::ZERO;
        while frame.len() < FRAME_BYTES
            && let Some(write) = rest.next()
        {
            Record::Write(write.clone()).encode(frame);
            last = write.revision;
        }
        journal.commit(last).map_err(failed)?;
    }
    Ok(())
}
