//! Backups, and snapshots of etcd, that were created or modified by hand (`gitcd::backup`, `docs/design/backup.md`).

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use gitcd::backup::{Backup, Header, MAGIC, ReadError};
use gitcd::journal::record::Record;
use sha2::{Digest, Sha256};

use super::disk;
use super::input::Input;

/// The first page of a database of etcd, after its header: the magic number, what the checksum covers, and the checksum.
const DATABASE: (Range<usize>, Range<usize>, Range<usize>) = (16..20, 16..72, 72..80);
const DATABASE_MAGIC: [u8; 4] = 0xED0C_DAED_u32.to_le_bytes();

/// The digest of each file is right, whatever else is wrong, and so is the checksum of the first page of a database. The first byte selects how much of the file the rest of the input
/// is: all, all after the first line, or a script of header and frames.
pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let content = match kind {
        0 => checked(rest.to_vec()),
        1 => [MAGIC, rest].concat(),
        _ => script(&mut Input(rest)),
    };
    let folder = disk::folder();
    let path = folder.path().join("backup");
    match read(&path, content) {
        Ok(backup) => {
            let records = records_of(&backup);
            promises(&backup);
            let again = read(&path, file(&backup.header, &records)).expect("what was read can be written again");
            assert!(records_of(&again) == records && again.header == backup.header);
        }
        Err(ReadError::Io { path, source }) => panic!("{} exists: {source}", path.display()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Corrects the checksum of the first page, if the content is a database of etcd.
fn checked(mut content: Vec<u8>) -> Vec<u8> {
    let (magic, covered, checksum) = DATABASE;
    if content.get(magic) == Some(&DATABASE_MAGIC) && content.len() >= checksum.end {
        let fnv1a = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let right = content[covered].iter().fold(0xcbf2_9ce4_8422_2325, fnv1a);
        content[checksum].copy_from_slice(&right.to_le_bytes());
    }
    content
}

fn read(path: &Path, mut content: Vec<u8>) -> Result<Backup, ReadError> {
    let digest = Sha256::digest(&content);
    content.extend_from_slice(&digest);
    std::fs::write(path, content).expect("the disk has room");
    Backup::read(path)
}

/// Checks what a restore relies on.
fn promises(backup: &Backup) {
    let Header { revision, base, compact_revision, pairs, .. } = &backup.header;
    assert!(*base >= 1 && base <= revision && compact_revision <= revision);
    assert_eq!(backup.pairs.len(), *pairs);
    for pair in &backup.pairs {
        let [change] = &pair.changes[..] else { panic!("{} changes in a key-value pair", pair.changes.len()) };
        assert!(change.put.is_some(), "a key-value pair without a value");
        assert!((1..=*base).contains(&pair.revision.get()), "a key-value pair of revision {} at {base}", pair.revision);
    }
    let after: Vec<_> = backup.writes.iter().map(|write| write.revision.get()).collect();
    assert!(after.iter().copied().eq(*base + 1..=*revision));
    let newest = backup.newest();
    assert!(newest.is_sorted_by(|(one, ..), (other, ..)| one < other));
    let put: BTreeSet<_> =
        backup.pairs.iter().chain(&backup.writes).flat_map(|write| &write.changes).map(|change| &change.key).collect();
    assert!(newest.iter().all(|(key, at, _)| put.contains(key) && at.get() <= *revision));
}

fn records_of(backup: &Backup) -> Vec<Record> {
    let leases = backup.leases.iter().map(|(id, ttl)| Record::Grant { id: *id, ttl: *ttl });
    let writes = backup.pairs.iter().chain(&backup.writes).cloned().map(Record::Write);
    let mut records: Vec<_> = leases.chain(writes).collect();
    for record in &mut records {
        let Record::Write(write) = record else { continue };
        write.changes.iter_mut().filter_map(|change| change.put.as_mut()).for_each(|put| put.value_offset = 0);
    }
    records
}

fn file(header: &Header, records: &[Record]) -> Vec<u8> {
    let mut content = MAGIC.to_vec();
    serde_json::to_writer(&mut content, header).expect("a header is JSON");
    content.push(b'\n');
    for record in records {
        let mut payload = Vec::new();
        record.encode(&mut payload);
        frame(&mut content, &payload);
    }
    frame(&mut content, &[]);
    content
}

fn frame(content: &mut Vec<u8>, payload: &[u8]) {
    content.extend_from_slice(&u32::try_from(payload.len()).expect("inputs are short").to_le_bytes());
    content.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    content.extend_from_slice(payload);
}

fn script(script: &mut Input) -> Vec<u8> {
    let header = Header {
        revision: script.number(),
        base: script.number(),
        compact_revision: script.number(),
        pairs: script.byte().into(),
        gitcd: String::new(),
    };
    let mut content = file(&header, &[]);
    content.truncate(content.len() - 8);
    while !script.is_empty() {
        frame(&mut content, script.piece());
    }
    frame(&mut content, &[]);
    content
}
