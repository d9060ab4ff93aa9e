//! Effects of commands on index and leases, before any of it is durable.

use std::sync::Arc;
use std::time::Instant;

use gitcd_core::revision::Revision;
use gitcd_journal::record::{PutRef, Record, encode_write};
use gitcd_journal::{Position, Segments};

use super::{Answer, Batch, Command, LeaseChange};
use crate::Error;
use crate::index::Index;
use crate::lease::{Leases, MIN_TTL};
use crate::merge;
use crate::query::View;
use crate::txn::{self, Done, Op};
use crate::version::Version;

/// The client that is recorded for deletions by an expired lease.
pub(crate) const EXPIRY: &str = "lease expiry";

/// The part of a batch that runs under the locks.
pub(super) struct Round<'a> {
    pub(super) index: &'a mut Index,
    pub(super) leases: &'a mut Leases,
    pub(super) segments: &'a Segments,
    pub(super) frame: &'a mut Vec<u8>,
    pub(super) batch: &'a mut Batch,
    pub(super) segment: u64,
    /// File offset of byte 0 of the frame.
    pub(super) base: u64,
    pub(super) now_ms: i64,
}

impl Round<'_> {
    /// Executes a command. All answers, also errors, wait for the fsync: they may depend on writes that are not durable yet.
    pub(super) fn command(&mut self, command: Command, refused: Option<&Error>) {
        let allowed = refused.map_or(Ok(()), |error| Err(error.clone()));
        let answer = match command {
            Command::Write { op, client, reply } => {
                Answer::Write(reply, allowed.and_then(|()| self.write(&op, client)))
            }
            Command::Merge { prepared, reply } => Answer::Merge(reply, allowed.and_then(|()| self.merge(*prepared))),
            Command::Grant { id, ttl, reply } => Answer::Grant(reply, allowed.and_then(|()| self.grant(id, ttl))),
            Command::Revoke { id, only_if_due, client, reply } => {
                Answer::Revision(reply, allowed.and_then(|()| self.revoke(id, only_if_due, client)))
            }
            Command::KeepAlive { id, reply } => {
                // Do not report an expired lease as gone while its keys exist: revoke it first.
                let ended = if self.is_overdue(id) {
                    allowed.and_then(|()| self.revoke(id, true, Some(EXPIRY.into())))
                } else {
                    Ok(Revision::ZERO)
                };
                Answer::KeptAlive(reply, ended.map(|_| self.leases.keep_alive(id, Instant::now())))
            }
            Command::Lease { id, keys, reply } => Answer::Lease(reply, Ok(self.leases.report(id, keys))),
            Command::Leases { reply } => Answer::Leases(reply, Ok(self.leases.list())),
            Command::Compact { revision, reply } => {
                // A compaction frees space, so it is accepted even if other writes are refused, but only from the writer.
                let is_writer = if refused == Some(&Error::NoLease) { Err(Error::NoLease) } else { Ok(()) };
                Answer::Revision(reply, is_writer.and_then(|()| self.compact(revision)))
            }
            Command::Committed { .. } | Command::Trim { .. } | Command::Resume | Command::Stop { .. } => return,
        };
        self.batch.answers.push(answer);
    }

    fn write(&mut self, op: &Op, client: Option<Arc<str>>) -> Result<Done, Error> {
        let view = View { index: self.index, at: self.index.revision(), segments: self.segments };
        let (done, versions) = txn::write(op, view, self.leases)?;
        if !versions.is_empty() {
            self.apply(versions, client);
        }
        Ok(done)
    }

    /// Each key gets its own revision, since clients may resume between any two; none is visible before all are durable.
    fn merge(&mut self, prepared: merge::Prepared) -> Result<merge::Done, Error> {
        let view = View { index: self.index, at: self.index.revision(), segments: self.segments };
        let decided = merge::decide(prepared, view)?;
        let first = self.index.revision().next();
        let merge = decided.record(first, self.now_ms);
        Record::Merge(merge.clone()).encode(self.frame);
        for write in decided.writes {
            self.merged(write, &decided.by);
        }
        let last = self.index.revision();
        self.batch.merges.push(Arc::new(merge));
        Ok(merge::Done { first, last, conflicts: decided.conflicts })
    }

    /// Applies one write of a merge.
    pub(super) fn merged(&mut self, write: merge::Write, by: &Arc<str>) {
        let version = merge::version(write, self.index);
        self.apply(vec![version], Some(by.clone()));
    }

    /// Applies one revision to the frame and the index.
    fn apply(&mut self, versions: Vec<Arc<Version>>, client: Option<Arc<str>>) {
        let revision = self.index.revision().next();
        self.batch.first.get_or_insert(revision);
        let values: Vec<_> = versions.iter().map(|version| version.value_in_memory()).collect();
        let changes = versions.iter().zip(&values).map(|(version, value)| {
            let put = (!version.is_tombstone()).then(|| PutRef {
                create_revision: version.create_revision,
                version: version.version,
                lease: version.lease,
                value,
            });
            (&version.key[..], put)
        });
        let (segment, base, positions) = (self.segment, self.base, &mut self.batch.positions);
        let name = client.as_deref().unwrap_or_default();
        encode_write(self.frame, revision, self.now_ms, name, changes, |index, offset| {
            let length = values[index].len() as u32;
            positions.push((versions[index].clone(), Position { segment, offset: base + offset as u64, length }));
        });
        let entry = self.index.apply(versions, self.now_ms, client);
        for change in entry.changes() {
            let before = change.previous.as_ref().map_or(0, |previous| previous.lease);
            self.leases.attach(&change.version.key, before, change.version.lease);
        }
    }

    fn is_overdue(&self, id: i64) -> bool {
        self.leases.find(id).is_some_and(|lease| lease.deadline <= Instant::now())
    }

    fn grant(&mut self, id: i64, ttl: i64) -> Result<(i64, i64), Error> {
        let id = match id {
            0 => std::iter::repeat_with(|| rand::random::<i64>() & i64::MAX)
                .find(|id| *id != 0 && self.leases.find(*id).is_none())
                .expect("the iterator is infinite"),
            id if self.leases.find(id).is_some() => return Err(Error::LeaseExists),
            id => id,
        };
        let ttl = ttl.max(MIN_TTL);
        Record::Grant { id, ttl }.encode(self.frame);
        self.leases.grant(id, ttl, Instant::now());
        self.batch.leases.push(LeaseChange::Granted(id));
        Ok((id, ttl))
    }

    fn revoke(&mut self, id: i64, only_if_due: bool, client: Option<Arc<str>>) -> Result<Revision, Error> {
        let lease = self.leases.find(id).ok_or(Error::LeaseNotFound)?;
        if only_if_due && lease.deadline > Instant::now() {
            // Kept alive since the deadline passed.
            return Err(Error::LeaseNotFound);
        }
        let revision = self.index.revision().next();
        let lease = self.leases.end(id, revision).expect("the lease was found");
        Record::Revoke { id }.encode(self.frame);
        let tombstones: Vec<_> =
            lease.keys.iter().map(|key| Arc::new(Version::tombstone(key.clone(), revision))).collect();
        self.batch.leases.push(LeaseChange::Revoked(id, lease));
        self.batch.expired += u64::from(only_if_due);
        if !tombstones.is_empty() {
            self.apply(tombstones, client);
        }
        Ok(self.index.revision())
    }

    fn compact(&mut self, revision: Revision) -> Result<Revision, Error> {
        if revision > self.index.revision() {
            return Err(Error::Future);
        }
        let compacted = self.batch.compact.unwrap_or(Revision::ZERO).max(self.index.compacted());
        // As in etcd, a store that was never compacted can be compacted at 0, which has no effect.
        let nothing = revision == Revision::ZERO && compacted == Revision::ZERO;
        if revision <= compacted && !nothing {
            return Err(Error::Compacted);
        }
        Record::Compact(revision).encode(self.frame);
        self.batch.compact = Some(revision);
        Ok(self.index.revision())
    }
}
