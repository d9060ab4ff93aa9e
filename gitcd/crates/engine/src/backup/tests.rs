//! Backups that gitcd wrote are read back; all others are rejected.

use std::fs;
use std::path::PathBuf;

use gitcd_core::revision::Revision;
use gitcd_journal::record::{Change, Put, Record, Write};
use sha2::{Digest, Sha256};

use super::*;

fn put(key: &'static str, revision: i64, value: &'static str) -> Write {
    let put =
        Put { create_revision: Revision::new(revision), version: 1, lease: 0, value: value.into(), value_offset: 0 };
    let changes = vec![Change { key: key.into(), put: Some(put) }];
    Write { revision: Revision::new(revision), time_ms: 0, client: String::new(), changes }
}

fn delete(key: &'static str, revision: i64) -> Write {
    let changes = vec![Change { key: key.into(), put: None }];
    Write { revision: Revision::new(revision), time_ms: 0, client: String::new(), changes }
}

/// Creates a file as `docs/design/backup.md` describes it, without the writer.
fn file(header: &str, records: &[Record]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    let mut bytes = [MAGIC, header.as_bytes(), b"\n"].concat();
    let mut payload = Vec::new();
    for record in records {
        record.encode(&mut payload);
    }
    for payload in [&payload[..], &[]] {
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        bytes.extend_from_slice(payload);
    }
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

const HEADER: &str = r#"{"revision":7,"base":5,"compact_revision":6,"pairs":2,"gitcd":"0.1.0"}"#;

fn records() -> Vec<Record> {
    vec![
        Record::Grant { id: 9, ttl: 60 },
        Record::Write(put("a", 3, "1")),
        Record::Write(put("b", 5, "2")),
        Record::Write(put("c", 6, "3")),
        Record::Write(delete("a", 7)),
    ]
}

#[test]
fn a_file_that_follows_the_description_is_read() {
    let (_folder, path) = file(HEADER, &records());
    let backup = Backup::read(&path).unwrap();
    assert_eq!((backup.header.revision, backup.leases.as_slice()), (7, &[(9, 60)][..]));
    assert_eq!((backup.pairs.len(), backup.writes.len()), (2, 2));
    let newest: Vec<_> = backup.newest().into_iter().map(|(key, revision, _)| (key, revision.get())).collect();
    assert_eq!(newest, [("b".into(), 5), ("c".into(), 6)]);
}

#[test]
fn every_damaged_byte_and_every_cut_is_noticed() {
    let (_folder, path) = file(HEADER, &records());
    let whole = fs::read(&path).unwrap();
    for offset in MAGIC.len()..whole.len() {
        let mut damaged = whole.clone();
        damaged[offset] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let error = Backup::read(&path).unwrap_err();
        assert!(matches!(error, ReadError::Damaged { .. }), "byte {offset}: {error}");
    }
    for length in MAGIC.len()..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(Backup::read(&path).is_err(), "{length} bytes");
    }
}

#[test]
fn what_its_digest_covers_but_makes_no_sense_is_refused_with_the_reason() {
    let refused = |header: &str, records: &[Record], reason: &str| {
        let (_folder, path) = file(header, records);
        let error = Backup::read(&path).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    let without = |left_out: usize| {
        let mut records = records();
        records.remove(left_out);
        records
    };
    refused(HEADER, &without(3), "revision 7 follows 5");
    refused(HEADER, &without(4), "ends at revision 6");
    refused(HEADER, &records()[..2], "1 pairs instead of 2");
    refused(HEADER, &[Record::Revoke { id: 1 }], "unexpected record");
    refused("{}", &records(), "missing field");
}

#[test]
fn pairs_that_are_none_and_revisions_that_cannot_go_on_are_refused() {
    let refused = |header: &str, records: &[Record], reason: &str| {
        let (_folder, path) = file(header, records);
        let error = Backup::read(&path).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    let with = |pair: Write| {
        let mut records = records();
        records[1] = Record::Write(pair);
        records
    };
    refused(HEADER, &with(delete("a", 3)), "a pair of revision 3 has no value of its own");
    refused(
        HEADER,
        &with(Write { changes: Vec::new(), ..put("a", 3, "1") }),
        "a pair of revision 3 has no value of its own",
    );
    let two = [put("a", 3, "1"), put("b", 3, "1")].map(|write| write.changes).concat();
    refused(HEADER, &with(Write { changes: two, ..put("a", 3, "1") }), "a pair of revision 3 has no value of its own");
    refused(HEADER, &with(put("a", 6, "1")), "a pair of revision 6 at revision 5");
    refused(HEADER, &with(put("a", 0, "1")), "a pair of revision 0 at revision 5");
    let last = HEADER.replace(":5", ":9223372036854775807").replace(":7", ":9223372036854775807");
    let last = last.replace("\"pairs\":2", "\"pairs\":0");
    refused(&last, &[Record::Write(put("a", i64::MIN, "1"))], "revision -9223372036854775808 follows");
    refused(&last, &[], "revision 9223372036854775807 leaves no room for writes to come");
    refused(&HEADER.replace(":6", ":-6"), &records(), "revisions are inconsistent");
}

#[test]
fn other_files_are_distinguished_from_damaged_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "something else").unwrap();
    assert!(matches!(Backup::read(&path), Err(ReadError::Foreign { .. })));
    assert!(matches!(Backup::read(&folder.path().join("none")), Err(ReadError::Io { .. })));
}
