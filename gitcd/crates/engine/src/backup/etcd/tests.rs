//! Databases of etcd are read as etcd reads them; all other content is rejected. `gitcd/tests/serve/restore.rs` has snapshots of a
//! real etcd.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::super::{BLOCK, ReadError};
use super::*;

const PAGE: usize = 1024;
const IS_BUCKET: u32 = 1;

/// Creates a page: its elements, then their data.
fn page(id: u64, flags: u16, entries: &[(u32, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut page = [&id.to_le_bytes()[..], &flags.to_le_bytes(), &(entries.len() as u16).to_le_bytes()].concat();
    page.extend([0; 4]);
    let mut position = entries.len() * 16;
    for (index, (flags, key, value)) in entries.iter().enumerate() {
        let start = (position - index * 16) as u32;
        for number in [*flags, start, key.len() as u32, value.len() as u32] {
            page.extend(number.to_le_bytes());
        }
        position += key.len() + value.len();
    }
    for (_, key, value) in entries {
        page.extend([&key[..], value].concat());
    }
    page
}

/// Creates a branch page to pages with these first keys.
fn branch(id: u64, children: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let mut page = [&id.to_le_bytes()[..], &1_u16.to_le_bytes(), &(children.len() as u16).to_le_bytes()].concat();
    page.extend([0; 4]);
    let mut position = children.len() * 16;
    for (index, (key, child)) in children.iter().enumerate() {
        page.extend(((position - index * 16) as u32).to_le_bytes());
        page.extend((key.len() as u32).to_le_bytes());
        page.extend(child.to_le_bytes());
        position += key.len();
    }
    for (key, _) in children {
        page.extend(key);
    }
    page
}

fn first(root: u64) -> Vec<u8> {
    let mut page = [&0_u64.to_le_bytes()[..], &4_u16.to_le_bytes(), &[0; 6]].concat();
    for number in [0xED0C_DAED, 2, PAGE as u32, 0] {
        page.extend(number.to_le_bytes());
    }
    for number in [root, 0, u64::MAX, 6, 7] {
        page.extend(number.to_le_bytes());
    }
    let checksum = page[16..]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    page.extend(checksum.to_le_bytes());
    page
}

fn revision(revision: i64, sub: i64, mark: &str) -> Vec<u8> {
    [&revision.to_be_bytes()[..], b"_", &sub.to_be_bytes(), mark.as_bytes()].concat()
}

fn pair(key: &'static str, at: i64, version: i64, value: &'static str) -> Vec<u8> {
    let (key, value) = (key.into(), value.into());
    KeyValue { key, create_revision: at - version + 1, mod_revision: at, version, value, lease: 9 }.encode_to_vec()
}

fn deletion(key: &'static str) -> Vec<u8> {
    KeyValue { key: key.into(), ..KeyValue::default() }.encode_to_vec()
}

/// A bucket whose leaf is in its value.
fn small(name: &str, entries: &[(u32, Vec<u8>, Vec<u8>)]) -> (u32, Vec<u8>, Vec<u8>) {
    (IS_BUCKET, name.into(), [vec![0; 16], page(0, 2, entries)].concat())
}

/// Creates a database that was compacted at revision 4, with `meta` and `auth` as given.
fn database(meta: &[(u32, Vec<u8>, Vec<u8>)], auth: &[(u32, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let lease = Lease { id: 9, ttl: 60 }.encode_to_vec();
    let key = [&3_u64.to_le_bytes()[..], &[0; 8]].concat();
    let root = [
        small("auth", auth),
        (IS_BUCKET, b"key".into(), key),
        small("lease", &[(0, 9_i64.to_be_bytes().into(), lease)]),
        small("meta", meta),
    ];
    let old = [
        (0, revision(2, 0, ""), pair("a", 2, 1, "1")),
        (0, revision(3, 0, ""), pair("b", 3, 1, "2")),
        (0, revision(4, 0, "t"), deletion("b")),
    ];
    let new = [
        (0, revision(5, 0, ""), pair("c", 5, 1, "3")),
        (0, revision(5, 1, ""), pair("a", 5, 2, "4")),
        (0, revision(6, 0, "t"), deletion("c")),
    ];
    let pages = [
        first(2),
        first(2),
        page(2, 2, &root),
        branch(3, &[(revision(2, 0, ""), 4), (revision(5, 0, ""), 5)]),
        page(4, 2, &old),
        page(5, 2, &new),
    ];
    let mut database = Vec::new();
    for mut page in pages {
        page.resize(PAGE, 0);
        database.extend(page);
    }
    database
}

fn whole() -> Vec<u8> {
    database(&[(0, b"finishedCompactRev".into(), revision(4, 0, ""))], &[])
}

fn save(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot");
    write(&path, content);
    (folder, path)
}

fn write(path: &Path, content: &[u8]) {
    std::fs::write(path, [content, &Sha256::digest(content)[..]].concat()).unwrap();
}

#[test]
fn a_snapshot_of_etcd_is_read_with_its_revisions_since_the_compaction() {
    let (_folder, path) = save(&whole());
    let backup = Backup::read(&path).unwrap();
    let Header { revision, base, compact_revision, pairs, .. } = backup.header;
    // The log starts with the deletion at the compact revision.
    assert_eq!((revision, base, compact_revision, pairs), (6, 3, 4, 2));
    assert_eq!(backup.leases, [(9, 60)]);
    let Put { create_revision, version, lease, value, .. } = backup.pairs[0].changes[0].put.clone().unwrap();
    assert_eq!((backup.pairs[0].revision.get(), create_revision.get(), version, lease), (2, 2, 1, 9));
    assert_eq!(value, "1");
    let writes = backup.writes.iter().map(|write| {
        let changes =
            write.changes.iter().map(|change| (change.key.clone(), change.put.as_ref().map(|put| put.version)));
        assert!(write.time_ms > 0);
        (write.revision.get(), changes.collect::<Vec<_>>())
    });
    assert_eq!(
        writes.collect::<Vec<_>>(),
        [
            (4, vec![("b".into(), None)]),
            (5, vec![("c".into(), Some(1)), ("a".into(), Some(2))]),
            (6, vec![("c".into(), None)])
        ]
    );
}

#[test]
fn a_compaction_that_etcd_has_only_begun_counts() {
    let meta =
        [(0, b"finishedCompactRev".into(), revision(2, 0, "")), (0, b"scheduledCompactRev".into(), revision(4, 0, ""))];
    let (_folder, path) = save(&database(&meta, &[]));
    assert_eq!(Backup::read(&path).unwrap().header.compact_revision, 4);
}

#[test]
fn revisions_that_are_missing_are_noticed() {
    // Without the compaction, revision 1 must be followed by 2.
    let (_folder, path) = save(&database(&[(0, b"finishedCompactRev".into(), revision(3, 0, ""))], &[]));
    assert_eq!(Backup::read(&path).unwrap().header.base, 2);
    let (_folder, path) = save(&database(&[(0, b"finishedCompactRev".into(), revision(7, 0, ""))], &[]));
    let header = Backup::read(&path).unwrap().header;
    assert_eq!((header.revision, header.base), (7, 7), "the last revisions were all compacted");
    let mut content = whole();
    let at = content.windows(9).position(|bytes| bytes == &revision(6, 0, "")[..9]).unwrap();
    content[at + 7] = 8;
    let (_folder, path) = save(&content);
    let error = Backup::read(&path).unwrap_err().to_string();
    assert!(error.contains("revision 8 follows 5"), "{error}");
}

#[test]
fn the_mark_of_a_skipped_range_of_revisions_is_no_key() {
    let content = |marked: bool| {
        let meta = [(0, b"scheduledCompactRev".into(), revision(7, 0, ""))];
        let mut content = database(&meta, &[]);
        let at = content.windows(9).position(|bytes| bytes == &revision(6, 0, "")[..9]).unwrap();
        if marked {
            // The deletion becomes a put of an empty value, as etcdutl writes it.
            content[at + 7] = 7;
            let element = 5 * PAGE + 16 + 2 * 16;
            content[element + 8..][..4].copy_from_slice(&17_u32.to_le_bytes());
            content[element + 12..][..4].copy_from_slice(&0_u32.to_le_bytes());
        }
        content
    };
    let keys = |content: &[u8]| {
        let (_folder, path) = save(content);
        let backup = Backup::read(&path).unwrap();
        assert_eq!((backup.header.revision, backup.header.compact_revision), (7, 7));
        backup.newest().into_iter().map(|(key, ..)| key).collect::<Vec<_>>()
    };
    assert_eq!(keys(&content(false)), ["a"]);
    assert_eq!(keys(&content(true)), ["a", "c"]);
}

#[test]
fn an_etcd_with_users_is_refused() {
    let (_folder, path) = save(&database(&[], &[(0, b"authEnabled".into(), vec![1])]));
    assert!(matches!(Backup::read(&path), Err(ReadError::Users { .. })));
    let (_folder, path) = save(&database(&[], &[(0, b"authEnabled".into(), vec![0])]));
    assert_eq!(Backup::read(&path).unwrap().header.base, 1);
}

#[test]
fn a_database_without_a_digest_is_no_snapshot() {
    let (_folder, path) = save(&[]);
    let database = whole();
    assert_eq!(database.len() as u64 % BLOCK, 0);
    std::fs::write(&path, &database).unwrap();
    let error = Backup::read(&path).unwrap_err();
    assert!(matches!(error, ReadError::Database { .. }), "{error}");
    assert!(error.to_string().contains("etcdctl snapshot save"), "{error}");
}

#[test]
fn every_damaged_byte_and_every_cut_is_noticed() {
    let (_folder, path) = save(&whole());
    let file = std::fs::read(&path).unwrap();
    for offset in (0..file.len()).filter(|offset| !(16..20).contains(offset)) {
        let mut damaged = file.clone();
        damaged[offset] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let error = Backup::read(&path).unwrap_err();
        assert!(matches!(error, ReadError::Damaged { .. }), "byte {offset}: {error}");
    }
    for length in 20..file.len() {
        std::fs::write(&path, &file[..length]).unwrap();
        assert!(Backup::read(&path).is_err(), "{length} bytes");
    }
}

#[test]
fn what_its_digest_covers_but_makes_no_sense_is_refused_without_a_panic() {
    let (_folder, path) = save(&whole());
    let refused = |content: &[u8], reason: &str| {
        write(&path, content);
        let error = Backup::read(&path).unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains(reason), "{error}");
    };
    let with = |page: usize, offset: usize, bytes: &[u8]| {
        let mut content = whole();
        content[page * PAGE + offset..][..bytes.len()].copy_from_slice(bytes);
        content
    };
    refused(&whole()[..PAGE], "page 2 is missing");
    refused(&whole()[..20], "shorter than a page");
    refused(&with(0, 24, &[1]), "does not match its checksum");
    refused(&with(3, 24, &3_u64.to_le_bytes()), "cycle");
    refused(&with(3, 24, &u64::MAX.to_le_bytes()), "is missing");
    refused(&with(4, 12, &u32::MAX.to_le_bytes()), "page 4 is missing");
    refused(&with(4, 8, &[16]), "has the type 0x10");
    refused(&with(4, 10, &[0xff, 0xff]), "longer than its page");
    refused(&with(4, 24, &u32::MAX.to_le_bytes()), "longer than its page");
    refused(&with(4, 28, &[0xff]), "a key-value pair: ");
    refused(&with(5, 16 + 3 * 16, &6_i64.to_be_bytes()), "a key-value pair of revision 5 at revision 6");
    // Any byte may have any value: the result is an error, or a backup that has passed all checks.
    let used = (2 * PAGE..whole().len()).filter(|offset| offset % PAGE < 300);
    for (offset, value) in used.flat_map(|offset| [0, 1, 0xff].map(|value| (offset, value))) {
        let mut content = whole();
        content[offset] = value;
        write(&path, &content);
        drop(Backup::read(&path));
    }
}
