//! Transactions: compare, choose a branch, check it, then change. Pure: index in, versions out.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;

use super::Error;
use super::index::{Index, KeyRange};
use super::lease::Leases;
use super::query::{Found, Range, View};
use super::version::Version;
use written::Written;

#[cfg(test)]
mod tests;
mod written;

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// A range read.
    Range(Range),
    /// A put of one key.
    Put(Put),
    /// A deletion of a range.
    Delete(Delete),
    /// A nested transaction.
    Txn(Txn),
}

/// A put of one key.
#[derive(Clone, Debug)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// The value; `None` keeps the current value (`ignore_value`).
    pub value: Option<Bytes>,
    /// The lease, 0 for none; `None` keeps the current lease (`ignore_lease`).
    pub lease: Option<i64>,
    /// Whether to return the previous version.
    pub previous: bool,
}

/// A deletion of a range.
#[derive(Clone, Debug)]
pub struct Delete {
    /// The keys.
    pub keys: KeyRange,
    /// Whether to return the previous versions.
    pub previous: bool,
}

/// A transaction: `success` if all compares hold, otherwise `failure`.
#[derive(Clone, Debug)]
pub struct Txn {
    /// The compares.
    pub compares: Vec<Compare>,
    /// The operations if all compares hold.
    pub success: Vec<Op>,
    /// The operations otherwise.
    pub failure: Vec<Op>,
}

/// A condition on every key of a range (also on an absent key, if the range is a single key or has no keys).
#[derive(Clone, Debug)]
pub struct Compare {
    /// The keys.
    pub keys: KeyRange,
    /// The required relation of the stored number or value to the given one.
    pub relation: Relation,
    /// What is compared, with the given value.
    pub target: Target,
}

/// The relation of the stored value to the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub enum Relation {
    Equal,
    NotEqual,
    Greater,
    Less,
    /// Always holds: etcd treats unknown relations so.
    Any,
}

/// What is compared, with the given value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub enum Target {
    Version(i64),
    Create(i64),
    Mod(i64),
    Value(Bytes),
    Lease(i64),
    /// Always equal: etcd treats unknown targets so.
    Unknown,
}

/// The result of an [`Op`].
#[derive(Clone, Debug)]
pub enum Done {
    /// The result of a read.
    Range(Found),
    /// The result of a put.
    Put {
        /// The revision of the write.
        revision: Revision,
        /// The previous version, if requested and present.
        previous: Option<Arc<Version>>,
    },
    /// The result of a deletion.
    Delete {
        /// The revision of the write, or the current one if nothing was deleted.
        revision: Revision,
        /// Number of deleted keys.
        deleted: usize,
        /// Their last versions, if requested.
        previous: Vec<Arc<Version>>,
    },
    /// The result of a transaction.
    Txn(TxnDone),
}

/// The result of a [`Txn`].
#[derive(Clone, Debug)]
pub struct TxnDone {
    /// The revision after the transaction.
    pub revision: Revision,
    /// Whether the compares held.
    pub succeeded: bool,
    /// The result of each operation of the chosen branch.
    pub done: Vec<Done>,
}

impl Done {
    /// Returns the revision for the response header.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Range(found) => found.revision,
            Self::Put { revision, .. } | Self::Delete { revision, .. } => *revision,
            Self::Txn(txn) => txn.revision,
        }
    }
}

impl Op {
    /// Returns whether the operation cannot write, whatever the outcome of its compares.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Range(_) => true,
            Self::Put(_) | Self::Delete(_) => false,
            Self::Txn(txn) => txn.success.iter().chain(&txn.failure).all(Self::is_read_only),
        }
    }
}

impl Compare {
    fn holds(&self, view: View) -> Result<bool, Error> {
        let mut pairs = view.index.range(&self.keys, view.at).peekable();
        if pairs.peek().is_none() {
            // As in etcd: an absent key compares as all zeros, but no value compare holds for it.
            return Ok(!matches!(self.target, Target::Value(_)) && self.holds_for(None, view)?);
        }
        for version in pairs {
            if !self.holds_for(Some(version), view)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn holds_for(&self, stored: Option<&Version>, view: View) -> Result<bool, Error> {
        let ordering = match &self.target {
            Target::Version(given) => stored.map_or(0, |v| v.version).cmp(given),
            Target::Create(given) => stored.map_or(0, |v| v.create_revision.get()).cmp(given),
            Target::Mod(given) => stored.map_or(0, |v| v.mod_revision.get()).cmp(given),
            Target::Lease(given) => stored.map_or(0, |v| v.lease).cmp(given),
            Target::Value(given) => {
                let value = stored.map(|version| version.value(view.segments)).transpose()?;
                value.unwrap_or_default().cmp(given)
            }
            Target::Unknown => Ordering::Equal,
        };
        Ok(match self.relation {
            Relation::Equal => ordering.is_eq(),
            Relation::NotEqual => ordering.is_ne(),
            Relation::Greater => ordering.is_gt(),
            Relation::Less => ordering.is_lt(),
            Relation::Any => true,
        })
    }
}

/// An operation with all branches chosen. As in etcd, every compare, also a nested one, is evaluated against the state before the
/// transaction.
enum Chosen<'a> {
    Range(&'a Range),
    Put(&'a Put),
    Delete(&'a Delete),
    Txn(bool, Vec<Chosen<'a>>),
}

fn choose<'a>(op: &'a Op, view: View) -> Result<Chosen<'a>, Error> {
    Ok(match op {
        Op::Range(range) => Chosen::Range(range),
        Op::Put(put) => Chosen::Put(put),
        Op::Delete(delete) => Chosen::Delete(delete),
        Op::Txn(txn) => {
            let mut succeeded = true;
            for compare in &txn.compares {
                succeeded = succeeded && compare.holds(view)?;
            }
            let branch = if succeeded { &txn.success } else { &txn.failure };
            Chosen::Txn(succeeded, branch.iter().map(|op| choose(op, view)).collect::<Result<_, _>>()?)
        }
    })
}

/// Executes a read-only operation.
///
/// # Errors
/// [`Error::Future`] or [`Error::Compacted`] for a revision that cannot be read, [`Error::ValueLost`].
pub(super) fn read(op: &Op, view: View) -> Result<Done, Error> {
    let chosen = choose(op, view)?;
    check(&chosen, view.index, view.at, None)?;
    let mut run = Run { view, now: view.at, written: Written::default() };
    run.execute(chosen)
}

/// Computes the changes of an operation on top of the newest state, without applying them. The caller applies the returned
/// versions, if any, as one revision.
///
/// # Errors
/// Checked before anything is computed: a revision that cannot be read, an unknown lease, a missing key whose value is to be
/// kept.
pub(super) fn write(op: &Op, newest: View, leases: &Leases) -> Result<(Done, Vec<Arc<Version>>), Error> {
    let chosen = choose(op, newest)?;
    check(&chosen, newest.index, newest.at, Some(leases))?;
    let mut run = Run { view: newest, now: newest.at.next(), written: Written::default() };
    let done = run.execute(chosen)?;
    Ok((done, run.written.into_order()))
}

fn check(op: &Chosen, index: &Index, at: Revision, leases: Option<&Leases>) -> Result<(), Error> {
    match op {
        Chosen::Range(range) => range.check(at, index.compacted()),
        // The order of etcd's checks, which is another in a transaction.
        Chosen::Put(put) => has_lease(put, leases).and_then(|()| has_key(put, index)),
        Chosen::Delete(_) => Ok(()),
        Chosen::Txn(_, ops) => ops.iter().try_for_each(|op| match op {
            Chosen::Put(put) => has_key(put, index).and_then(|()| has_lease(put, leases)),
            op => check(op, index, at, leases),
        }),
    }
}

/// Checks that the lease of a put exists.
fn has_lease(put: &Put, leases: Option<&Leases>) -> Result<(), Error> {
    let lease = put.lease.filter(|id| *id != 0);
    let is_unknown = lease.is_some_and(|id| leases.is_some_and(|leases| leases.find(id).is_none()));
    if is_unknown { Err(Error::LeaseNotFound) } else { Ok(()) }
}

/// Checks that the key exists whose value or lease a put keeps.
fn has_key(put: &Put, index: &Index) -> Result<(), Error> {
    let keeps = put.value.is_none() || put.lease.is_none();
    if keeps && index.newest(&put.key).is_none() { Err(Error::KeyNotFound) } else { Ok(()) }
}

struct Run<'a> {
    view: View<'a>,
    /// The revision of the changes.
    now: Revision,
    /// The changes so far, visible to later operations.
    written: Written,
}

impl Run<'_> {
    fn execute(&mut self, op: Chosen) -> Result<Done, Error> {
        Ok(match op {
            Chosen::Range(range) => Done::Range(self.range(range)?),
            Chosen::Put(put) => self.put(put),
            Chosen::Delete(delete) => self.delete(delete),
            Chosen::Txn(succeeded, ops) => {
                let done = ops.into_iter().map(|op| self.execute(op)).collect::<Result<_, _>>()?;
                Done::Txn(TxnDone { revision: self.revision(), succeeded, done })
            }
        })
    }

    /// Returns the revision that a read inside the transaction sees.
    fn revision(&self) -> Revision {
        if self.written.is_empty() { self.view.at } else { self.now }
    }

    fn newest(&self, key: &[u8]) -> Option<Arc<Version>> {
        match self.written.find(key) {
            Some(version) => (!version.is_tombstone()).then(|| version.clone()),
            None => self.view.index.newest(key).cloned(),
        }
    }

    /// Returns the newest versions of a range, including own changes.
    fn pairs(&self, keys: &KeyRange) -> BTreeMap<Bytes, Arc<Version>> {
        let mut pairs: BTreeMap<_, _> =
            self.view.index.range(keys, self.view.at).map(|version| (version.key.clone(), version.clone())).collect();
        for version in self.written.within(keys) {
            if version.is_tombstone() {
                pairs.remove(&version.key);
            } else {
                pairs.insert(version.key.clone(), version.clone());
            }
        }
        pairs
    }

    fn range(&self, range: &Range) -> Result<Found, Error> {
        let own_changes_matter = range.requested().is_none() && !self.written.is_empty();
        if own_changes_matter {
            return range.select(self.revision(), self.pairs(&range.keys).values(), self.view.segments);
        }
        Ok(Found { revision: self.revision(), ..range.answer(self.view)? })
    }

    fn put(&mut self, put: &Put) -> Done {
        let previous = self.newest(&put.key);
        let before = previous.as_deref();
        // The request's bytes are slices of the connection's buffer: copy what is stored. All versions of a key share the key's
        // bytes.
        let key = before.map_or_else(|| Bytes::copy_from_slice(&put.key), |before| before.key.clone());
        let value = match &put.value {
            Some(value) => Bytes::copy_from_slice(value),
            None => before.map_or_else(Bytes::new, Version::value_in_memory),
        };
        let create = before.map_or(self.now, |before| before.create_revision);
        let version = before.map_or(1, |before| before.version + 1);
        let lease = put.lease.unwrap_or_else(|| before.map_or(0, |before| before.lease));
        self.written.put(Version::put(key, self.now, create, version, lease, value));
        Done::Put { revision: self.now, previous: previous.filter(|_| put.previous) }
    }

    fn delete(&mut self, delete: &Delete) -> Done {
        let pairs = match &delete.keys {
            KeyRange::One(key) => self.newest(key).into_iter().collect::<Vec<_>>(),
            keys if self.written.is_empty() => self.view.index.range(keys, self.view.at).cloned().collect(),
            keys => self.pairs(keys).into_values().collect(),
        };
        self.written.delete(&pairs, self.now);
        let deleted = pairs.len();
        let previous = if delete.previous { pairs } else { Vec::new() };
        Done::Delete { revision: self.revision(), deleted, previous }
    }
}
