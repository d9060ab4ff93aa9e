//! A backup that was written as a snapshot of etcd is read back the same. `gitcd/tests/same_as_etcd/export.rs` restores such
//! snapshots with the programs of etcd.

use std::collections::BTreeMap;

use bytes::Bytes;
use gitcd_journal::record::Write as Written;
use proptest::prelude::*;

use super::super::super::Header;
use super::*;

/// A change of a transaction: the key's number, and the size of its value or a deletion.
type Step = (u8, Option<usize>);

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let size = prop_oneof![6 => 0..200_usize, 2 => 900..5000_usize, 1 => Just(300 << 10)];
    let change = (0..12_u8, proptest::option::weighted(0.8, size));
    proptest::collection::vec(proptest::collection::vec(change, 1..5), 0..60)
}

/// Executes transactions like etcd, from revision 2 on.
fn execute(transactions: &[Vec<Step>]) -> Vec<Written> {
    let mut keys = BTreeMap::<u8, (Revision, i64)>::new();
    let mut writes = Vec::<Written>::new();
    for steps in transactions {
        let revision = Revision::new(writes.len() as i64 + 2);
        let mut changes = Vec::<Change>::new();
        for &(number, size) in steps {
            let key = Bytes::from(format!("/registry/{number}"));
            if changes.iter().any(|change| change.key == key) || size.is_none() && !keys.contains_key(&number) {
                continue;
            }
            let put = size.map(|size| {
                let (create_revision, version) = keys.get(&number).copied().unwrap_or((revision, 0));
                keys.insert(number, (create_revision, version + 1));
                let value = vec![revision.get() as u8; size].into();
                Put { create_revision, version: version + 1, lease: i64::from(number / 10), value, value_offset: 0 }
            });
            if put.is_none() {
                keys.remove(&number);
            }
            changes.push(Change { key, put });
        }
        if !changes.is_empty() {
            writes.push(Written { revision, time_ms: 0, client: String::new(), changes });
        }
    }
    writes
}

/// Returns the backup of a store with these writes that was compacted at a revision.
fn backup(writes: &[Written], compact_revision: i64) -> Backup {
    let base = (compact_revision - 1).max(1);
    let (before, after): (Vec<_>, Vec<_>) = writes.iter().cloned().partition(|write| write.revision.get() <= base);
    let mut pairs = BTreeMap::new();
    for write in before {
        for change in &write.changes {
            let pair = Written { changes: vec![change.clone()], ..write.clone() };
            match change.put {
                Some(_) => drop(pairs.insert(change.key.clone(), pair)),
                None => drop(pairs.remove(&change.key)),
            }
        }
    }
    let revision = after.last().map_or(base, |write| write.revision.get());
    let header = Header { revision, base, compact_revision, pairs: pairs.len(), gitcd: String::new() };
    Backup { header, leases: vec![(1, 60), (7, 3600)], pairs: pairs.into_values().collect(), writes: after }
}

fn written(backup: &Backup) -> Vec<u8> {
    let mut file = Vec::new();
    write_etcd(backup, &mut file).unwrap();
    file
}

/// Writes a backup and reads it, without the times.
fn through(backup: &Backup) -> Backup {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), written(backup)).unwrap();
    let mut read = Backup::read(file.path()).unwrap();
    read.pairs.iter_mut().chain(&mut read.writes).for_each(|write| write.time_ms = 0);
    read
}

#[track_caller]
fn same(left: &Backup, right: &Backup) {
    assert_eq!((&left.header, &left.leases), (&right.header, &right.leases));
    assert!(left.pairs == right.pairs && left.writes == right.writes, "{:#?} is not {:#?}", left.pairs, right.pairs);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_backup_is_read_back_from_a_snapshot_of_etcd(transactions in steps(), compacted in 0.0..1.0_f64) {
        let writes = execute(&transactions);
        let last = writes.len() as i64 + 1;
        let compacted = (compacted * (last + 1) as f64) as i64;
        let backup = backup(&writes, compacted);
        same(&through(&backup), &backup);
    }
}

#[test]
fn a_database_with_branches_of_branches_is_read_back() {
    let steps = (0..30_000_u32).map(|index| vec![((index % 251) as u8, Some(index as usize % 300))]);
    let writes = execute(&steps.collect::<Vec<_>>());
    for compacted in [0, 15_000] {
        let mut backup = backup(&writes, compacted);
        backup.leases = (1..20_000).map(|id| (id, id)).collect();
        same(&through(&backup), &backup);
    }
}

#[test]
fn a_file_consists_of_whole_pages_and_a_digest() {
    let file = written(&backup(&[], 0));
    assert_eq!(file.len(), 4 * 4096 + 32, "an empty store has no pages besides the first ones and the root");
    let file = written(&backup(&execute(&[vec![(1, Some(300 << 10))]]), 0));
    assert_eq!(file.len(), (4 + 76) * 4096 + 32);
}

#[test]
fn a_newest_revision_without_a_write_is_kept() {
    let writes = execute(&[vec![(1, Some(1))], vec![(1, None)], vec![(2, Some(1))]]);
    // As after a restore with `--bump-revision`.
    let mut bumped = backup(&writes, 4);
    bumped.pairs = std::mem::take(&mut bumped.writes);
    bumped.header = Header { revision: 1000, base: 1000, compact_revision: 1000, pairs: 1, gitcd: String::new() };
    same(&through(&bumped), &bumped);
    // Also if all keys were deleted.
    bumped.pairs.clear();
    bumped.header.pairs = 0;
    same(&through(&bumped), &bumped);
    assert!(written(&bumped).windows(17).any(|bytes| bytes == bucket_key(1000, 0, false)), "etcdutl sees the revision");
}

#[test]
fn revisions_before_the_base_count_as_compacted() {
    let writes = execute(&[vec![(1, Some(1))], vec![(2, Some(1))], vec![(1, None)]]);
    let mut resumed = backup(&writes, 4);
    resumed.header.compact_revision = 0;
    let read = through(&resumed);
    assert_eq!((read.header.compact_revision, read.header.revision), (3, 4));
    assert_eq!(read.newest(), resumed.newest());
}

#[test]
fn a_base_at_the_compact_revision_has_the_same_keys() {
    let writes = execute(&[vec![(1, Some(1))], vec![(3, Some(1)), (2, Some(1))], vec![(1, None)]]);
    let mut resumed = backup(&writes, 4);
    resumed.header.compact_revision = 3;
    let read = through(&resumed);
    assert_eq!((read.header.compact_revision, read.header.revision), (3, 4));
    assert_eq!(read.newest(), resumed.newest());
    // The keys of one revision get positions in key order.
    let keys = read.writes[0].changes.iter().map(|change| &change.key[..]).collect::<Vec<_>>();
    assert_eq!(keys, [b"/registry/2", b"/registry/3"]);
}

#[test]
fn what_no_etcd_can_have_is_refused() {
    let refused = |backup: &Backup, reason: &str| {
        let error = write_etcd(backup, io::sink()).unwrap_err();
        assert!(error.kind() == io::ErrorKind::InvalidInput && error.to_string().contains(reason), "{error}");
    };
    let whole = backup(&execute(&[vec![(1, Some(1))], vec![(2, Some(1))]]), 0);
    let mut missing = whole.clone();
    missing.writes.remove(0);
    refused(&missing, "revision 3 follows 1");
    let mut empty = whole;
    empty.writes[1].changes.clear();
    refused(&empty, "revision 3 has no changes");
}
