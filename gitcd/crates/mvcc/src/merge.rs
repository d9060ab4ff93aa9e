//! Merges of other branches into the store.
//!
//! A merge is computed from a commit. Keys written since are merged again here: so a merge never undoes a write, and never blocks
//! writes while it is computed.

mod prepare;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;
use gitcd_core::scope::escape;
use gitcd_journal::record;
use gitcd_merge::schema::Schemas;
use gitcd_merge::{Conflict, Outcome, Policy};

pub(super) use self::prepare::Prepared;
use self::prepare::{Change, ready};
use super::index::Index;
use super::query::View;
use super::version::Version;
use super::{Error, Store};

/// A merge that was computed from a commit of this branch.
#[derive(Clone, Debug)]
pub struct Request {
    /// The revision of that commit.
    pub at: Revision,
    /// The commit to merge.
    pub theirs: [u8; 20],
    /// The keys that the merge changes.
    pub keys: Vec<Key>,
    /// Which side wins conflicts.
    pub policy: Policy,
    /// The schemas of kinds.
    pub schemas: Schemas,
    /// Whether the branch may fast-forward to their commit.
    pub fast_forward: bool,
    /// Whether to merge nothing if there is any conflict.
    pub no_conflicts: bool,
    /// Whether to merge nothing if any of the keys was written since the commit.
    pub only_as_planned: bool,
    /// Trailers for the merge commit.
    pub trailers: String,
    /// The writer to report to watchers and in commits.
    pub by: Arc<str>,
}

/// A key that their branch changed.
#[derive(Clone, Debug)]
pub struct Key {
    /// The whole key.
    pub key: Bytes,
    /// Its value at the merge base.
    pub base: Option<Bytes>,
    /// Whether our commit has the key.
    pub in_ours: bool,
    /// Its value and blob in their commit.
    pub theirs: Option<(Bytes, [u8; 20])>,
    /// Whether the blob has exactly this value, so that it need not be written again.
    pub as_is: bool,
    /// The result of the merge with our commit.
    pub outcome: Outcome,
    /// The conflicts that the merge resolved.
    pub conflicts: Vec<Conflict>,
}

/// A durable merge.
pub type Merge = record::Merge;

/// Deferred history links: commits with the same tree as ours, which other branches are to merge. The next write here merges them
/// first: if it reverted a change that all branches made, but did not have their commits as ancestors, it would lose against
/// their change.
#[derive(Clone, Debug)]
pub struct DeferredLinks {
    /// The commit of this branch.
    pub ours: git2::Oid,
    /// The commits of others, each with the trailers for the merge commit.
    pub theirs: BTreeMap<git2::Oid, String>,
}

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The revision of its first write, if there is one.
    pub first: Revision,
    /// The store's revision after the merge.
    pub last: Revision,
    /// Conflicts that were resolved.
    pub conflicts: Conflicts,
}

/// The conflicts of a merge: keys and fields that both sides changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// Number of conflicts.
    pub count: usize,
    /// The first conflicts, ordered by key and field: at most [`Conflicts::LISTED`].
    pub first: Vec<(Bytes, Conflict)>,
}

impl Conflicts {
    /// Limit of conflicts reported individually; the merge commit lists more.
    pub const LISTED: usize = 20;

    /// Creates it from all conflicts of a merge, in order.
    fn of(sorted: Vec<(Bytes, Conflict)>) -> Self {
        let count = sorted.len();
        Self { count, first: sorted.into_iter().take(Self::LISTED).collect() }
    }
}

/// One write of a merge.
#[derive(Clone, Debug)]
pub(super) struct Write {
    key: Bytes,
    value: Option<Bytes>,
    blob: Option<[u8; 20]>,
}

/// The planned writes of a merge.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) writes: Vec<Write>,
    pub(super) by: Arc<str>,
    pub(super) conflicts: Conflicts,
    theirs: [u8; 20],
    fast_forward: bool,
    notes: String,
}

impl Store {
    /// Returns the oldest merge that is not in Git.
    pub fn next_merge(&self) -> Option<Arc<Merge>> {
        self.progress.lock().merges.front().cloned()
    }

    /// Returns whether there are merges that are not in Git.
    pub fn has_merges(&self) -> bool {
        !self.progress.lock().merges.is_empty()
    }

    /// Records that the oldest merge is in Git.
    pub fn merged(&self) {
        self.progress.lock().merges.pop_front();
    }

    /// Leaves the merge of two commits to the other side. Kept in memory only.
    pub fn leave(&self, ours: git2::Oid, theirs: git2::Oid, trailers: String) {
        let mut progress = self.progress.lock();
        let left = progress.left.get_or_insert_with(|| DeferredLinks { ours, theirs: BTreeMap::new() });
        if left.ours != ours {
            *left = DeferredLinks { ours, theirs: BTreeMap::new() };
        }
        left.theirs.insert(theirs, trailers);
    }

    /// Returns the history links deferred at a commit of this branch.
    pub fn deferred_at(&self, ours: git2::Oid) -> Option<DeferredLinks> {
        self.progress.lock().left.clone().filter(|left| left.ours == ours)
    }

    /// Removes the history links deferred at a commit: they were made, or cannot be made.
    pub fn forget_left(&self, ours: git2::Oid) {
        self.progress.lock().left.take_if(|left| left.ours == ours);
    }

    pub(super) fn add_merge(&self, merge: Arc<Merge>) {
        self.progress.lock().merges.push_back(merge);
    }
}

/// Limit of conflicts listed in a merge commit; further ones are only counted.
const LISTED_CONFLICTS: usize = 200;

/// Decides the writes of a merge on top of the newest state. Parses only the values of keys that were written in the last moment.
///
/// # Errors
/// [`Error::ValueLost`]; [`Error::Conflict`] if the request forbids conflicts.
pub(super) fn decide(prepared: Prepared, newest: View) -> Result<Decided, Error> {
    let (mut changed, mut replaced, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    let mut conflicts: Vec<(Bytes, Conflict)> = Vec::new();
    let Prepared { mut request, ready: prepared, .. } = prepared;
    let keys = std::mem::take(&mut request.keys);
    for (key, mut prepared) in keys.into_iter().zip(prepared) {
        let current = newest.index.newest(&key.key);
        if !prepared.fits(current) {
            let read = |version: &Version| Ok(version.value(newest.segments)?);
            prepared = ready(&request, &key, current.map(|version| &**version), read)?;
        }
        let key = key.key;
        conflicts.extend(prepared.conflicts.into_iter().map(|conflict| (key.clone(), conflict)));
        match prepared.change {
            Change::None => {}
            Change::Delete => deleted.push(Write { key, value: None, blob: None }),
            Change::Put { value, blob, replaces } => {
                if replaces {
                    replaced.push(Write { key: key.clone(), value: None, blob: None });
                }
                let write = Write { key, value: Some(value), blob };
                if replaces { &mut replaced } else { &mut changed }.push(write);
            }
        }
    }
    changed.extend(replaced);
    changed.extend(deleted);
    let (theirs, fast_forward, by) = (request.theirs, request.fast_forward, request.by);
    conflicts.sort_by(|one, other| (&one.0, &one.1.field).cmp(&(&other.0, &other.1.field)));
    let notes = notes(&conflicts, &request.trailers);
    Ok(Decided { writes: changed, by, conflicts: Conflicts::of(conflicts), theirs, fast_forward, notes })
}

impl Decided {
    pub(super) fn record(&self, first: Revision, time_ms: i64) -> record::Merge {
        let blobs = self.writes.iter().enumerate().filter_map(|(at, write)| Some((at as i64, write.blob?)));
        record::Merge {
            first,
            writes: self.writes.len() as i64,
            theirs: self.theirs,
            time_ms,
            fast_forward: self.fast_forward,
            notes: self.notes.clone(),
            blobs: blobs.collect(),
        }
    }
}

/// Returns the version that a write of a merge creates.
pub(super) fn version(write: Write, index: &Index) -> Arc<Version> {
    let now = index.revision().next();
    let before = index.newest(&write.key);
    let key = before.map_or_else(|| write.key.clone(), |before| before.key.clone());
    let Some(value) = write.value else { return Arc::new(Version::tombstone(key, now)) };
    let create = before.map_or(now, |before| before.create_revision);
    let number = before.map_or(1, |before| before.version + 1);
    let lease = before.map_or(0, |before| before.lease);
    Arc::new(Version::put(key, now, create, number, lease, value))
}

/// Formats the merge commit's message below its subject, from sorted conflicts. The same merge gets the same text on every
/// branch.
fn notes(conflicts: &[(Bytes, Conflict)], trailers: &str) -> String {
    let mut text = String::new();
    for (key, Conflict { field, kept, lost }) in conflicts.iter().take(LISTED_CONFLICTS) {
        let escaped = |value: &Option<String>| match value {
            Some(value) => escape(value.as_bytes()),
            None => "nothing".to_owned(),
        };
        let space = if field.is_empty() { "" } else { " " };
        let (key, field) = (escape(key), escape(field.as_bytes()));
        writeln!(text, "Conflict: {key}{space}{field}: kept {}, lost {}", escaped(kept), escaped(lost))
            .expect("writing to a string does not fail");
    }
    if conflicts.len() > LISTED_CONFLICTS {
        writeln!(text, "And {} more conflicts", conflicts.len() - LISTED_CONFLICTS)
            .expect("writing to a string does not fail");
    }
    if !trailers.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(trailers);
    }
    text
}
