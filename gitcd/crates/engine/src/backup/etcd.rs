//! Reading and writing a snapshot of etcd: its database, in which a bucket has all revisions since the compaction.
//!
//! Source: `server/storage/mvcc` and `server/storage/schema` of etcd 3.6; the buckets that are read here are those of etcd 3.0 to
//! 3.7. [`write`] writes those of 3.6.

use std::collections::BTreeMap;

use bytes::Bytes;
use gitcd_core::revision::Revision;
use gitcd_journal::record::{Change, Put, Write};
use prost::Message;

use super::bolt::Bolt;
use super::{Backup, Header};

pub(super) mod write;

/// Names of the buckets with content, and of entries in them.
const KEY: &str = "key";
const LEASE: &str = "lease";
const META: &str = "meta";
const AUTH: &str = "auth";
const FINISHED_COMPACTION: &[u8] = b"finishedCompactRev";
const SCHEDULED_COMPACTION: &[u8] = b"scheduledCompactRev";

/// `mvccpb.KeyValue`; that of a deletion has only the key.
#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(int64, tag = "2")]
    create_revision: i64,
    #[prost(int64, tag = "3")]
    mod_revision: i64,
    #[prost(int64, tag = "4")]
    version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    value: Bytes,
    #[prost(int64, tag = "6")]
    lease: i64,
}

/// `leasepb.Lease`, without the time that remained when etcd last recorded it.
#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    ttl: i64,
}

/// Returns whether the etcd authenticated users.
pub(super) fn has_users(database: &Bolt) -> Result<bool, String> {
    let mut enabled = false;
    database.each(AUTH, |key, value| {
        enabled |= key[..] == *b"authEnabled" && value[..] == [1];
        Ok(())
    })?;
    Ok(enabled)
}

/// Returns what a database contains. etcd does not record when and by whom a revision was written: all get `time_ms`.
pub(super) fn read(database: &Bolt, time_ms: i64) -> Result<Backup, String> {
    let compacted = compact_revision(database)?;
    // A watch may start at the compact revision itself: compaction keeps what was written then. It keeps the newest version of each
    // key before that, and all later revisions.
    let base = (compacted - 1).max(Revision::INITIAL.get());
    let (mut pairs, mut writes) = (BTreeMap::new(), Vec::<Write>::new());
    database.each(KEY, |key, value| {
        let (revision, is_deletion) = revision_of(&key)?;
        let change = change(value, revision, is_deletion)?;
        let of = |changes| Write { revision: Revision::new(revision), time_ms, client: String::new(), changes };
        match writes.last_mut() {
            // `etcdutl snapshot restore --bump-revision` marks the revision to which it skips with an empty key.
            _ if revision <= compacted && change.key.is_empty() => {}
            _ if revision <= base && is_deletion => drop(pairs.remove(&change.key)),
            _ if revision <= base => drop(pairs.insert(change.key.clone(), of(vec![change]))),
            Some(write) if write.revision.get() == revision => write.changes.push(change),
            _ => writes.push(of(vec![change])),
        }
        Ok(())
    })?;
    let mut leases = Vec::new();
    database.each(LEASE, |_, value| {
        let Lease { id, ttl } = Lease::decode(value).map_err(|error| format!("a lease: {error}"))?;
        leases.push((id, ttl));
        Ok(())
    })?;
    // If compaction kept nothing that was written then, as an older etcd that drops deletions, the log starts later.
    let is_kept = writes.first().is_some_and(|write| write.revision.get() == base + 1);
    let base = if is_kept { base } else { compacted.max(base) };
    let header = Header {
        revision: writes.last().map_or(base, |write| write.revision.get()),
        base,
        compact_revision: compacted,
        pairs: pairs.len(),
        gitcd: String::new(),
    };
    Ok(Backup { header, leases, pairs: pairs.into_values().collect(), writes })
}

/// Returns the compact revision, or 0. A compaction that etcd has begun, but not finished, counts: it may have removed some
/// revisions already.
fn compact_revision(database: &Bolt) -> Result<i64, String> {
    let mut compacted = 0;
    database.each(META, |key, value| {
        if matches!(&key[..], FINISHED_COMPACTION | SCHEDULED_COMPACTION) {
            compacted = compacted.max(revision_of(&value)?.0);
        }
        Ok(())
    })?;
    Ok(compacted)
}

/// Returns the key of the bucket for a revision: the revision (8 bytes), `_`, the position in the transaction (8 bytes), and for
/// deletions `t`. The numbers are big-endian.
fn bucket_key(revision: i64, position: i64, is_deletion: bool) -> Vec<u8> {
    let mark: &[u8] = if is_deletion { b"t" } else { b"" };
    [&revision.to_be_bytes()[..], b"_", &position.to_be_bytes(), mark].concat()
}

/// Returns the revision in a [`bucket_key`], and whether it is a deletion.
fn revision_of(key: &[u8]) -> Result<(i64, bool), String> {
    let is_deletion = key.len() == 18 && key[17] == b't';
    let revision = key.first_chunk().map(|bytes| i64::from_be_bytes(*bytes));
    match revision {
        Some(revision) if key.len() == 17 || is_deletion => Ok((revision, is_deletion)),
        _ => Err("a revision is malformed".to_owned()),
    }
}

fn change(value: Bytes, revision: i64, is_deletion: bool) -> Result<Change, String> {
    let KeyValue { key, create_revision, mod_revision, version, value, lease } =
        KeyValue::decode(value).map_err(|error| format!("a key-value pair: {error}"))?;
    if !is_deletion && !key.is_empty() && mod_revision != revision {
        return Err(format!("a key-value pair of revision {mod_revision} at revision {revision}"));
    }
    let create_revision = Revision::new(create_revision);
    let put = (!is_deletion).then_some(Put { create_revision, version, lease, value, value_offset: 0 });
    Ok(Change { key, put })
}

#[cfg(test)]
mod tests;
