//! What another branch brings, and how it enters the store.
//!
//! What is merged was computed from a commit; whatever was written since is merged again here, under the writer, so that
//! a merge never undoes a write and never holds writes up while it is computed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;
use gitcd_core::scope::escape;
use gitcd_journal::record;
use gitcd_merge::schema::Schemas;
use gitcd_merge::{Conflict, Outcome, Policy, Side, blob_hash, merge, uid};

use super::index::Index;
use super::query::View;
use super::version::Version;
use super::{Error, Store, writer};

/// A merge that was computed from a commit of this branch.
#[derive(Clone, Debug)]
pub struct Request {
    /// The revision that is in that commit.
    pub at: Revision,
    /// The commit to be merged.
    pub theirs: [u8; 20],
    /// The keys that it brings.
    pub keys: Vec<Key>,
    /// Who wins.
    pub policy: Policy,
    /// What is known of kinds.
    pub schemas: Schemas,
    /// Whether their commit may become ours.
    pub fast_forward: bool,
    /// Whether nothing is merged if anything is in conflict.
    pub no_conflicts: bool,
    /// Whether nothing is merged if any of the keys was written since that commit.
    pub only_as_planned: bool,
    /// Trailers for the merge commit.
    pub trailers: String,
    /// Whom watchers and commits are told as the writer.
    pub by: Arc<str>,
}

/// A key that theirs changed.
#[derive(Clone, Debug)]
pub struct Key {
    /// The whole key.
    pub key: Bytes,
    /// Its value where the histories meet.
    pub base: Option<Bytes>,
    /// Whether it is in our commit.
    pub in_ours: bool,
    /// Its value and blob in theirs.
    pub theirs: Option<(Bytes, [u8; 20])>,
    /// Whether the blob has the value as it is, so that it need not be written again.
    pub as_is: bool,
    /// What the merge with our commit gives.
    pub outcome: Outcome,
    /// What had to be decided for that.
    pub conflicts: Vec<Conflict>,
}

/// A merge that is durable.
pub type Merge = record::Merge;

/// Commits with the same tree as ours, whose histories other branches are to join with it. A write that comes first knows of them: if it took back what all
/// had changed alike, and did not have them as ancestors, it would lose against their change.
#[derive(Clone, Debug)]
pub struct Left {
    /// The commit of this branch.
    pub ours: git2::Oid,
    /// The others, each with the trailers for the merge commit.
    pub theirs: BTreeMap<git2::Oid, String>,
}

/// What a merge has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The revision of its first write, if there is one.
    pub first: Revision,
    /// The revision after it.
    pub last: Revision,
    /// Keys and fields that both sides had changed.
    pub conflicts: Conflicts,
}

/// Keys and fields that both sides of a merge had changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// How many.
    pub count: usize,
    /// The first of them, in the order of keys and fields: at most [`Conflicts::LISTED`].
    pub first: Vec<(Bytes, Conflict)>,
}

impl Conflicts {
    /// Conflicts that are reported one by one; the merge commit lists more.
    pub const LISTED: usize = 20;

    /// Of all conflicts of a merge, in order.
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

/// What a merge will write.
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
    /// Takes in what another branch brings, atomically to readers. Returns when that is durable; Git has it later, see
    /// [`Store::merged`].
    ///
    /// # Errors
    /// [`Error`]; nothing has changed then.
    pub async fn merge(&self, request: Request) -> Result<Done, Error> {
        self.send(|reply| writer::Command::Merge { request: Box::new(request), reply }).await
    }

    /// The oldest merge that is not in Git.
    pub fn next_merge(&self) -> Option<Arc<Merge>> {
        self.progress.lock().merges.front().cloned()
    }

    /// Whether there are merges that are not in Git.
    pub fn has_merges(&self) -> bool {
        !self.progress.lock().merges.is_empty()
    }

    /// The oldest merge is in Git.
    pub fn merged(&self) {
        self.progress.lock().merges.pop_front();
    }

    /// Leaves the join of two commits to the other side. Forgotten at the end of this process.
    pub fn leave(&self, ours: git2::Oid, theirs: git2::Oid, trailers: String) {
        let mut progress = self.progress.lock();
        let left = progress.left.get_or_insert_with(|| Left { ours, theirs: BTreeMap::new() });
        if left.ours != ours {
            *left = Left { ours, theirs: BTreeMap::new() };
        }
        left.theirs.insert(theirs, trailers);
    }

    /// What was left at a commit of this branch.
    pub fn left_at(&self, ours: git2::Oid) -> Option<Left> {
        self.progress.lock().left.clone().filter(|left| left.ours == ours)
    }

    /// It was joined, or cannot be.
    pub fn forget_left(&self, ours: git2::Oid) {
        self.progress.lock().left.take_if(|left| left.ours == ours);
    }

    pub(super) fn add_merge(&self, merge: Arc<Merge>) {
        self.progress.lock().merges.push_back(merge);
    }
}

/// A merge commit names so many conflicts; the rest is counted.
const TOLD: usize = 200;

/// Bytes of keys and values in a merge: its record, with what goes round them, has to fit into a frame of the journal, whose length
/// has 32 bits.
pub(super) const MOST: u64 = 3 << 30;

/// Decides every key on the newest state.
///
/// # Errors
/// [`Error::ValueLost`]; [`Error::Conflict`] if there must be none; [`Error::MergeTooLarge`].
pub(super) fn decide(request: Request, newest: View) -> Result<Decided, Error> {
    let (mut changed, mut replaced, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    let mut conflicts: Vec<(Bytes, Conflict)> = Vec::new();
    for Key { key, base, in_ours, theirs, as_is, outcome, conflicts: known } in request.keys {
        let current = newest.index.newest(&key);
        let is_as_planned = match current {
            None => !in_ours,
            Some(version) => in_ours && version.mod_revision <= request.at,
        };
        if request.only_as_planned && !is_as_planned {
            return Err(Error::Conflict(String::from_utf8_lossy(&key).into_owned()));
        }
        let value = current.map(|version| version.value(newest.segments)).transpose()?;
        let (outcome, found) = if is_as_planned {
            (outcome, known)
        } else {
            let hash = value.as_deref().map(blob_hash);
            let ours = value.as_deref().zip(hash).map(|(value, hash)| Side { value, hash });
            let side = theirs.as_ref().map(|(value, hash)| Side { value, hash: *hash });
            let merged = merge(&request.schemas, request.policy, base.as_deref(), ours, side);
            (merged.outcome, merged.conflicts)
        };
        if request.no_conflicts && !found.is_empty() {
            return Err(Error::Conflict(String::from_utf8_lossy(&key).into_owned()));
        }
        conflicts.extend(found.into_iter().map(|conflict| (key.clone(), conflict)));
        let (wanted, blob) = match outcome {
            Outcome::Ours => continue,
            Outcome::Deleted => (None, None),
            Outcome::New(value) => (Some(Bytes::from(value)), None),
            Outcome::Theirs => match theirs {
                None => (None, None),
                Some((value, blob)) => (Some(value), as_is.then_some(blob)),
            },
        };
        if wanted == value {
            continue;
        }
        let is_another = match (&value, &wanted) {
            (Some(before), Some(after)) => {
                let (before, after) = (uid(before), uid(after));
                before.is_some() && after.is_some() && before != after
            }
            _ => false,
        };
        if is_another {
            replaced.push(Write { key: key.clone(), value: None, blob: None });
        }
        let write = Write { key, value: wanted, blob };
        match write.value {
            None => deleted.push(write),
            Some(_) if is_another => replaced.push(write),
            Some(_) => changed.push(write),
        }
    }
    changed.extend(replaced);
    changed.extend(deleted);
    let by = request.by.len();
    fits(changed.iter().map(|write| write.key.len() + write.value.as_ref().map_or(0, Bytes::len) + by))?;
    let (theirs, fast_forward, by) = (request.theirs, request.fast_forward, request.by);
    conflicts.sort_by(|one, other| (&one.0, &one.1.field).cmp(&(&other.0, &other.1.field)));
    let notes = notes(&conflicts, &request.trailers);
    Ok(Decided { writes: changed, by, conflicts: Conflicts::of(conflicts), theirs, fast_forward, notes })
}

/// `sizes`: of each write.
fn fits(sizes: impl Iterator<Item = usize>) -> Result<(), Error> {
    // What goes round a key and its value, and the blob that it is.
    const AROUND: u64 = 128;
    let bytes: u64 = sizes.map(|size| size as u64 + AROUND).sum();
    if bytes > MOST { Err(Error::MergeTooLarge(bytes)) } else { Ok(()) }
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

/// The next version of a key.
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

/// What the merge commit says below its subject, of sorted conflicts. The same for the same merge on whatever branch.
fn notes(conflicts: &[(Bytes, Conflict)], trailers: &str) -> String {
    let mut text = String::new();
    for (key, Conflict { field, kept, lost }) in conflicts.iter().take(TOLD) {
        let told = |value: &Option<String>| match value {
            Some(value) => escape(value.as_bytes()),
            None => "nothing".to_owned(),
        };
        let space = if field.is_empty() { "" } else { " " };
        let (key, field) = (escape(key), escape(field.as_bytes()));
        writeln!(text, "Conflict: {key}{space}{field}: kept {}, lost {}", told(kept), told(lost))
            .expect("a string takes everything");
    }
    if conflicts.len() > TOLD {
        writeln!(text, "And {} more conflicts", conflicts.len() - TOLD).expect("a string takes everything");
    }
    if !trailers.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(trailers);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_fits_into_a_frame_of_the_journal() {
        let large = 1 << 30;
        assert_eq!(fits([large, large].into_iter()), Ok(()));
        assert_eq!(fits([large, large, large].into_iter()), Err(Error::MergeTooLarge(MOST + 384)));
        let many = usize::try_from(MOST).unwrap() / 128;
        assert!(fits(std::iter::repeat_n(0, many)).is_ok() && fits(std::iter::repeat_n(1, many)).is_err());
    }
}
