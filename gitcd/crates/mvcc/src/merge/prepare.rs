//! The writes of a merge, computed before the writer gets it.
//!
//! To merge and to identify objects means to parse them, which would take the writer, and readers who wait for its lock, a second
//! for 10,000 objects of 10 KB. So every key is prepared for the version that the store has now. The writer only compares
//! revisions, and prepares keys again that were written in the last moment.

use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;
use gitcd_merge::{Conflict, Outcome, Side, blob_hash, merge, uid};

use super::{Key, Request};
use crate::version::Version;
use crate::{Error, Store};

/// Keys that are looked up under one lock.
const AT_ONCE: usize = 1024;
/// Keys that may have been written again since: so many are left to the writer.
const LEFT_TO_WRITER: usize = 64;
/// How often keys that were written meanwhile are prepared again before the writer gets the rest.
const ROUNDS: usize = 8;

/// A merge that is ready for the writer.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(super) request: Request,
    /// What each of the request's keys needs, in their order.
    pub(super) ready: Vec<Ready>,
    /// About how many bytes the writes take in the journal.
    bytes: usize,
}

/// What a key needs if it still has the version for which this was computed.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    /// The mod revision of that version; `None` if there is none.
    pub(super) seen: Option<Revision>,
    pub(super) change: Change,
    pub(super) conflicts: Vec<Conflict>,
}

/// The change of a key.
#[derive(Clone, Debug)]
pub(super) enum Change {
    None,
    Delete,
    Put {
        value: Bytes,
        /// The blob that has this value.
        blob: Option<[u8; 20]>,
        /// Whether this is another object than that of the version: watchers have to see the first one deleted.
        replaces: bool,
    },
}

impl Prepared {
    /// Returns about how many bytes the writes take in the journal.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Store {
    /// Prepares a merge. Parses values, so it blocks for about 10 ms for each megabyte; takes locks only to look keys up.
    ///
    /// # Errors
    /// [`Error::ValueLost`]; [`Error::Conflict`] if the request forbids conflicts, or other versions than planned.
    pub(crate) fn prepare(&self, request: Request) -> Result<Prepared, Error> {
        let mut ready = Vec::with_capacity(request.keys.len());
        for keys in request.keys.chunks(AT_ONCE) {
            for (key, current) in keys.iter().zip(self.newest_of(keys)) {
                ready.push(self.ready(&request, key, current.as_deref())?);
            }
        }
        for _ in 0..ROUNDS {
            let stale = self.stale(&request.keys, &ready);
            if stale.len() <= LEFT_TO_WRITER {
                break;
            }
            for at in stale {
                let key = &request.keys[at];
                let current = self.newest_of(std::slice::from_ref(key)).pop().flatten();
                ready[at] = self.ready(&request, key, current.as_deref())?;
            }
        }
        // The encoding of a write takes up to this much beside its key, value and writer.
        let around = 64 + request.by.len();
        let sizes = request.keys.iter().zip(&ready).map(|(key, ready)| match &ready.change {
            Change::None => 0,
            Change::Delete => around + key.key.len(),
            Change::Put { value, .. } => around + key.key.len() + value.len(),
        });
        let bytes = sizes.sum();
        Ok(Prepared { request, ready, bytes })
    }

    fn ready(&self, request: &Request, key: &Key, current: Option<&Version>) -> Result<Ready, Error> {
        ready(request, key, current, |version| Ok(version.value(self.segments())?))
    }

    fn newest_of(&self, keys: &[Key]) -> Vec<Option<Arc<Version>>> {
        let index = self.index.read();
        keys.iter().map(|key| index.newest(&key.key).cloned()).collect()
    }

    /// Returns which keys have another version than the one that they were prepared for.
    fn stale(&self, keys: &[Key], ready: &[Ready]) -> Vec<usize> {
        let mut stale = Vec::new();
        for (chunk, keys) in keys.chunks(AT_ONCE).enumerate() {
            let index = self.index.read();
            let places = (chunk * AT_ONCE..).zip(keys);
            stale.extend(places.filter(|(at, key)| !ready[*at].fits(index.newest(&key.key))).map(|(at, _)| at));
        }
        stale
    }
}

impl Ready {
    /// Returns whether this was computed for the version that the key has.
    pub(super) fn fits(&self, current: Option<&Arc<Version>>) -> bool {
        self.seen == current.map(|version| version.mod_revision)
    }
}

/// Computes what a key needs if `current` is its version.
pub(super) fn ready(
    request: &Request,
    key: &Key,
    current: Option<&Version>,
    read: impl Fn(&Version) -> Result<Bytes, Error>,
) -> Result<Ready, Error> {
    let is_as_planned = match current {
        None => !key.in_ours,
        Some(version) => key.in_ours && version.mod_revision <= request.at,
    };
    let refused = || Error::Conflict(String::from_utf8_lossy(&key.key).into_owned());
    if request.only_as_planned && !is_as_planned {
        return Err(refused());
    }
    let value = current.map(read).transpose()?;
    let (outcome, conflicts) = if is_as_planned {
        (key.outcome.clone(), key.conflicts.clone())
    } else {
        let ours = value.as_deref().map(|value| Side { value, hash: blob_hash(value) });
        let theirs = key.theirs.as_ref().map(|(value, hash)| Side { value, hash: *hash });
        let merged = merge(&request.schemas, request.policy, key.base.as_deref(), ours, theirs);
        (merged.outcome, merged.conflicts)
    };
    if request.no_conflicts && !conflicts.is_empty() {
        return Err(refused());
    }
    let wanted = match outcome {
        Outcome::Ours => None,
        Outcome::Deleted => Some(None),
        Outcome::New(value) => Some(Some((Bytes::from(value), None))),
        Outcome::Theirs => Some(key.theirs.as_ref().map(|(value, blob)| (value.clone(), key.as_is.then_some(*blob)))),
    };
    let change = match (wanted, &value) {
        (None, _) | (Some(None), None) => Change::None,
        (Some(None), Some(_)) => Change::Delete,
        (Some(Some((wanted, _))), Some(value)) if wanted == value => Change::None,
        (Some(Some((wanted, blob))), before) => {
            let replaces = before.as_ref().is_some_and(|before| is_another(before, &wanted));
            Change::Put { value: wanted, blob, replaces }
        }
    };
    Ok(Ready { seen: current.map(|version| version.mod_revision), change, conflicts })
}

/// Returns whether two values are objects with different UIDs.
fn is_another(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (uid(one), uid(other));
    one.is_some() && other.is_some() && one != other
}
