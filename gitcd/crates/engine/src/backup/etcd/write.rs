//! Writing a snapshot of etcd 3.6.

use std::collections::BTreeMap;
use std::io::{self, Write};

use gitcd_journal::record::{Change, Put};
use prost::Message;

use super::super::bolt::write::{Bucket, Entries, Entry, write};
use super::super::write::Digesting;
use super::{
    AUTH, Backup, FINISHED_COMPACTION, KEY, KeyValue, LEASE, Lease, META, Revision, SCHEDULED_COMPACTION, bucket_key,
};

/// The format of the buckets. A newer etcd migrates it.
const STORAGE_VERSION: &[u8] = b"3.6.0";
/// Index and term of the last entry in the write-ahead log. `etcdutl snapshot restore` makes a new log and replaces both.
const LOG_START: u64 = 1;

/// Writes a snapshot of etcd 3.6, which `etcdutl snapshot restore` accepts.
///
/// An etcd restored from it serves the same keys, values, versions, create and mod revisions, leases, compact revision and history
/// since then. [`Backup::read`] reads the same content back. The snapshot has no times, names of clients, members or users. The
/// granted time to live of each lease starts again.
///
/// The position of a change in its transaction is known since the base only. Pairs at the base with the same mod revision get the
/// positions 0, 1, 2… in key order, so `HashKV` may differ from that of the etcd that wrote them. If the base is after the
/// compact revision, nothing is known about the revisions before the base, so the base becomes the compact revision.
///
/// Writes one page after the other (4 KiB, more for a large value), so `out` needs no buffer. Encodes each value twice. Besides
/// the backup, it needs memory for the largest value, 32 bytes per pair at the base, and about 2 % of the file.
///
/// Source: `server/storage/schema/bucket.go`, `server/storage/mvcc/kvstore.go` and `etcdutl/snapshot/v3_snapshot.go` of etcd 3.6.
///
/// # Errors
/// Errors of `out`; [`io::ErrorKind::InvalidInput`] if [`Backup::read`] would refuse the backup, a write has no changes, or a value
/// has more than 4 GiB.
pub fn write_etcd(backup: &Backup, out: impl Write) -> io::Result<()> {
    backup.check().map_err(|problem| invalid(&problem))?;
    if let Some(empty) = backup.writes.iter().find(|write| write.changes.is_empty()) {
        // As a transaction of etcd without changes has no revision.
        return Err(invalid(&format!("revision {} has no changes", empty.revision)));
    }
    let content = Content::of(backup);
    let none = |name| Bucket { name, entries: Box::new(|| Box::new(std::iter::empty()) as Entries<'_>) };
    // All buckets that etcd creates, in the order of their names.
    let buckets = [
        none("alarm"),
        none(AUTH),
        none("authRoles"),
        none("authUsers"),
        none("cluster"),
        Bucket { name: KEY, entries: Box::new(|| content.revisions()) },
        Bucket { name: LEASE, entries: Box::new(|| content.leases()) },
        none("members"),
        none("members_removed"),
        Bucket { name: META, entries: Box::new(|| content.meta()) },
    ];
    let mut out = Digesting::new(out);
    write(&buckets, &mut out)?;
    out.finish()
}

/// A backup, in the order of a database.
struct Content<'a> {
    backup: &'a Backup,
    /// Revision, position in the transaction, and change.
    pairs: Vec<(Revision, i64, &'a Change)>,
    leases: BTreeMap<[u8; 8], Lease>,
    /// 0 if there was no compaction.
    compact_revision: i64,
}

impl<'a> Content<'a> {
    fn of(backup: &'a Backup) -> Self {
        let changes = backup.pairs.iter().flat_map(|pair| pair.changes.iter().map(|change| (pair.revision, 0, change)));
        let mut pairs = changes.collect::<Vec<_>>();
        pairs.sort_by(|(revision, _, change), (other, _, other_change)| {
            revision.cmp(other).then_with(|| change.key.cmp(&other_change.key))
        });
        let mut last = (Revision::INITIAL, -1);
        for (revision, position, _) in &mut pairs {
            *position = if *revision == last.0 { last.1 + 1 } else { 0 };
            last = (*revision, *position);
        }
        let leases = backup.leases.iter().map(|&(id, ttl)| (id.to_be_bytes(), Lease { id, ttl }));
        let header = &backup.header;
        let is_known = header.base <= header.compact_revision.max(Revision::INITIAL.get());
        let compact_revision = if is_known { header.compact_revision } else { header.base };
        Self { backup, pairs, leases: leases.collect(), compact_revision }
    }

    /// Returns the entries of the bucket `key`.
    fn revisions(&self) -> Entries<'_> {
        let writes = self.backup.writes.iter().flat_map(|write| {
            (0..).zip(&write.changes).map(move |(position, change)| (write.revision, position, change))
        });
        let all = self.pairs.iter().copied().chain(writes).map(|(revision, position, change)| {
            let key = bucket_key(revision.get(), position, change.put.is_none());
            (key, pair(revision, change).encode_to_vec())
        });
        Box::new(all.chain(self.marker()))
    }

    /// Returns an empty key at the newest revision if that has no change, as `etcdutl snapshot restore --bump-revision` writes it.
    /// etcd itself would continue from the compact revision, but etcdutl sees only the revisions in this bucket. A client cannot
    /// ask for an empty key.
    fn marker(&self) -> Option<Entry> {
        let newest = self.backup.header.revision;
        let last = self.backup.writes.last().map(|write| write.revision);
        let last = last.or_else(|| self.pairs.last().map(|(revision, ..)| *revision)).unwrap_or(Revision::INITIAL);
        (last.get() < newest).then(|| (bucket_key(newest, 0, false), KeyValue::default().encode_to_vec()))
    }

    /// Returns the entries of the bucket `lease`.
    fn leases(&self) -> Entries<'_> {
        Box::new(self.leases.iter().map(|(id, lease)| (id.to_vec(), lease.encode_to_vec())))
    }

    /// Returns the entries of the bucket `meta`.
    fn meta(&self) -> Entries<'_> {
        let compacted = (self.compact_revision > 0).then(|| bucket_key(self.compact_revision, 0, false));
        let log_start = Some(LOG_START.to_be_bytes().to_vec());
        let entries = [
            (&b"consistent_index"[..], log_start.clone()),
            (FINISHED_COMPACTION, compacted.clone()),
            (SCHEDULED_COMPACTION, compacted),
            (b"storageVersion", Some(STORAGE_VERSION.to_vec())),
            (b"term", log_start),
        ];
        Box::new(entries.into_iter().filter_map(|(key, value)| Some((key.to_vec(), value?))))
    }
}

/// Returns what the bucket `key` has for a change; of a deletion, only the key.
fn pair(revision: Revision, Change { key, put }: &Change) -> KeyValue {
    let key = key.clone();
    match put {
        Some(Put { create_revision, version, lease, value, .. }) => KeyValue {
            key,
            create_revision: create_revision.get(),
            mod_revision: revision.get(),
            version: *version,
            value: value.clone(),
            lease: *lease,
        },
        None => KeyValue { key, ..KeyValue::default() },
    }
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("the backup cannot be written as a snapshot of etcd: {problem}"),
    )
}

#[cfg(test)]
mod tests;
