//! Fuzzing seeds: the files in `gitcd/fuzz/seeds/`, most of which are generated here.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use gitcd::backup::{Header, MAGIC};
use gitcd::journal::record::{Change, Put, Record, Write};
use gitcd::proto::etcdserverpb as pb;
use gitcd::proto::etcdserverpb::request_op::Request as Inner;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::store::revision::Revision;
use prost::Message;

use super::targets;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Backup,
    Journal,
    Json,
    Pack,
    Path,
    Request,
}

impl Target {
    const ALL: [Self; 6] = [Self::Backup, Self::Journal, Self::Json, Self::Pack, Self::Path, Self::Request];

    pub(crate) fn run(self, data: &[u8]) {
        match self {
            Self::Backup => targets::backup::run(data),
            Self::Journal => targets::journal::run(data),
            Self::Json => targets::json::run(data),
            Self::Pack => targets::pack::run(data),
            Self::Path => targets::path::run(data),
            Self::Request => targets::request::run(data),
        }
    }

    fn folder(self) -> PathBuf {
        let name = format!("{self:?}").to_lowercase();
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name)
    }

    /// Names and contents of all seeds.
    pub(crate) fn seeds(self) -> Vec<(String, Vec<u8>)> {
        let files = fs::read_dir(self.folder())
            .expect("the folder exists")
            .map(|file| file.expect("the file is readable").path());
        let mut seeds: Vec<_> = files
            .map(|path| {
                let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
                (name, fs::read(path).expect("the file is readable"))
            })
            .collect();
        seeds.sort();
        seeds
    }

    fn made(self) -> Vec<(&'static str, Vec<u8>)> {
        match self {
            Self::Backup => backups(),
            Self::Journal => journals(),
            Self::Json | Self::Path => Vec::new(),
            Self::Pack => packs(),
            Self::Request => requests(),
        }
    }
}

/// Generated seeds match the current formats. After a format change, `GITCD_WRITE_SEEDS=1` writes them again.
#[test]
fn seeds_that_are_made_are_the_files() {
    for target in Target::ALL {
        let files = target.seeds();
        for (name, bytes) in target.made() {
            if std::env::var_os("GITCD_WRITE_SEEDS").is_some() {
                fs::write(target.folder().join(name), bytes).expect("the folder exists");
            } else {
                assert!(
                    files.contains(&(name.to_owned(), bytes)),
                    "{target:?}: {name} differs from the generated seed"
                );
            }
        }
    }
}

fn put(key: &'static str, revision: i64, value: &'static str) -> Change {
    let revision = Revision::new(revision);
    let put = Put { create_revision: revision, version: 1, lease: 0, value: value.into(), value_offset: 0 };
    Change { key: key.into(), put: Some(put) }
}

fn write(revision: i64, changes: Vec<Change>) -> Record {
    let client = "kube-apiserver".to_owned();
    Record::Write(Write { revision: Revision::new(revision), time_ms: 1_767_225_600_000, client, changes })
}

fn payload(records: &[Record]) -> Vec<u8> {
    let mut payload = Vec::new();
    for record in records {
        record.encode(&mut payload);
    }
    payload
}

/// One piece of a script: two bytes of length, then the bytes.
fn piece(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("seeds are short");
    [&length.to_le_bytes(), bytes].concat()
}

/// The first byte selects bare entries or a script; the second is the number of entries, or whether that is wrong.
fn packs() -> Vec<(&'static str, Vec<u8>)> {
    let blob = [&[3][..], &piece(b"the first object\n")].concat();
    let commit = [&[1][..], &piece(b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\n")].concat();
    // A copy of four bytes from the ninth on, and three new bytes; 17 and 33 are the sizes of the bases.
    let near = [6, 0, 17, 2, 0x80, 9, 4, 3, b'n', b'e', b'w'];
    let against = [7, 0, 33, 2, 0x80, 9, 4, 3, b'n', b'e', b'w'];
    let stored = [&[0x33, 0x78, 0x01, 0x01, 3, 0, 0xFC, 0xFF][..], b"abc", &[0x02, 0x4D, 0x01, 0x27]].concat();
    vec![
        ("bare", [&[0, 1][..], &stored].concat()),
        ("objects", [&[1, 0][..], &blob, &commit, &near].concat()),
        ("thin", [&[1, 0][..], &against, &blob].concat()),
        ("missing", [&[1, 1][..], &blob].concat()),
        // Of an empty object to an empty object, which is too short for Git.
        ("tiny", vec![1, 0, 7, 1, 0, 0]),
    ]
}

fn first() -> Vec<Record> {
    vec![
        Record::Grant { id: 7, ttl: 3600 },
        write(2, vec![put("/registry/pods/default/a", 2, "{\"kind\":\"Pod\"}\n"), put("b", 2, "")]),
    ]
}

fn second() -> Vec<Record> {
    let deleted = Change { key: "b".into(), put: None };
    let revision = Revision::new(3);
    vec![
        write(3, vec![deleted]),
        Record::Revoke { id: 7 },
        Record::Compact(revision),
        Record::Committed { revision, metadata: [9; 20] },
    ]
}

/// The first byte selects a raw payload or a script; the second byte of a script is the number of the first segment.
fn journals() -> Vec<(&'static str, Vec<u8>)> {
    let script = |steps: &[&[u8]]| [&[1, 1], steps.concat().as_slice()].concat();
    let whole = |records: &[Record]| [&[0][..], &piece(&payload(records))].concat();
    let torn = |records: &[Record]| [&[2][..], &piece(&payload(records)), &[5]].concat();
    let (zeros, cut, next): (&[u8], &[u8], &[u8]) = (&[4, 200], &[5, 9], &[7, 0]);
    vec![
        ("records", [&[0][..], &payload(&first()), &payload(&second())].concat()),
        ("segments", script(&[&whole(&first()), zeros, next, &whole(&second()), &whole(&[])])),
        ("torn", script(&[&whole(&first()), &whole(&second()), cut])),
        ("damaged", script(&[&torn(&first()), &whole(&second()), zeros])),
        ("unfinished", script(&[&whole(&first()), next, cut, &[5, 255], zeros])),
        ("gap", script(&[&whole(&first()), &[7, 255], &whole(&second())])),
    ]
}

/// The first byte selects what the input holds: a whole file, the lines after the first, or a script.
fn backups() -> Vec<(&'static str, Vec<u8>)> {
    let (revision, base, compact_revision) = (3, 2, 2);
    let pair = |change| payload(&[write(2, vec![change])]);
    let pairs = [pair(put("a", 2, "1")), pair(put("b", 2, "2"))];
    let header = Header { revision, base, compact_revision, pairs: pairs.len(), gitcd: "0.1.0".to_owned() };
    let frames = [&payload(&first()[..1]), &pairs[0], &pairs[1], &payload(&second()[..1])];
    let mut file = serde_json::to_vec(&header).expect("a header is JSON");
    file.push(b'\n');
    for payload in frames.into_iter().chain([&Vec::new()]) {
        file.extend_from_slice(&u32::try_from(payload.len()).expect("seeds are short").to_le_bytes());
        file.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        file.extend_from_slice(payload);
    }
    let numbers = [revision, base, compact_revision].map(i64::to_le_bytes).concat();
    let script = [numbers, vec![2], frames.map(|payload| piece(payload)).concat()].concat();
    vec![
        ("whole", [&[0], MAGIC, &file].concat()),
        ("lines", [&[1], &file[..]].concat()),
        ("script", [&[2], &script[..]].concat()),
    ]
}

fn step(method: u8, message: &impl Message) -> Vec<u8> {
    [&[method][..], &piece(&message.encode_to_vec())].concat()
}

fn range(key: &'static str, end: &'static str) -> pb::RangeRequest {
    pb::RangeRequest { key: key.into(), range_end: end.into(), ..pb::RangeRequest::default() }
}

fn put_of(key: &'static str, value: &'static str) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), ..pb::PutRequest::default() }
}

fn watch(create: pb::WatchCreateRequest) -> pb::WatchRequest {
    pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

fn delete(key: &'static str, end: &'static str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: key.into(), range_end: end.into(), prev_kv: true }
}

/// As kube-apiserver does: compare, then put or read.
fn guarded(key: &'static str, revision: i64, value: &'static str) -> pb::TxnRequest {
    let op = |request| pb::RequestOp { request: Some(request) };
    let target_union = Some(pb::compare::TargetUnion::ModRevision(revision));
    let (result, target) = (pb::compare::CompareResult::Equal.into(), pb::compare::CompareTarget::Mod.into());
    let compare = pb::Compare { result, target, key: key.into(), range_end: Bytes::new(), target_union };
    let nested =
        pb::TxnRequest { success: vec![op(Inner::RequestDeleteRange(delete("c", "d")))], ..Default::default() };
    pb::TxnRequest {
        compare: vec![compare],
        success: vec![op(Inner::RequestPut(put_of(key, value))), op(Inner::RequestTxn(nested))],
        failure: vec![op(Inner::RequestRange(range(key, "")))],
    }
}

/// The first byte sets the largest response size; each step after it starts with its method.
fn requests() -> Vec<(&'static str, Vec<u8>)> {
    const WATCH: u8 = 0;
    const COMMITTED: u8 = 1;
    let all = pb::WatchCreateRequest { key: "a".into(), range_end: "\0".into(), ..Default::default() };
    let old = pb::WatchCreateRequest { start_revision: 2, prev_kv: true, fragment: true, watch_id: 5, ..all.clone() };
    let cancel = pb::WatchCancelRequest { watch_id: 5 };
    let cancel = pb::WatchRequest { request_union: Some(RequestUnion::CancelRequest(cancel)) };
    let grant = pb::LeaseGrantRequest { ttl: 60, id: 7 };
    let leased = pb::PutRequest { lease: 7, prev_kv: true, ..put_of("a/b", "3") };
    let sorted = pb::RangeRequest { sort_order: 2, sort_target: 4, limit: 2, ..range("a", "z") };
    let past = pb::RangeRequest { revision: 2, keys_only: true, ..range("a", "\0") };
    let small = |steps: &[Vec<u8>]| [&[1][..], &steps.concat()].concat();
    vec![
        (
            "pairs",
            small(&[
                step(10, &put_of("a", "1")),
                step(10, &put_of("a", "2")),
                step(10, &put_of("b", "2")),
                step(2, &sorted),
                step(2, &past),
                step(3, &delete("a", "b")),
                step(2, &range("a", "z")),
            ]),
        ),
        (
            "transactions",
            small(&[step(4, &guarded("a", 0, "1")), step(4, &guarded("a", 2, "2")), step(4, &guarded("a", 9, "3"))]),
        ),
        (
            "leases",
            small(&[
                step(6, &grant),
                step(10, &leased),
                step(8, &pb::LeaseKeepAliveRequest { id: 7 }),
                step(9, &pb::LeaseTimeToLiveRequest { id: 7, keys: true }),
                step(7, &pb::LeaseRevokeRequest { id: 7 }),
            ]),
        ),
        (
            "watchers",
            small(&[
                step(WATCH, &watch(all)),
                step(10, &put_of("a", "1")),
                step(10, &put_of("b", "a value that is longer than the others, so that memory has no room for it")),
                step(10, &put_of("b", "2")),
                step(WATCH, &watch(old)),
                step(3, &delete("b", "")),
                vec![COMMITTED],
                step(5, &pb::CompactionRequest { revision: 4, physical: true }),
                step(WATCH, &cancel),
                step(10, &put_of("a", "2")),
            ]),
        ),
    ]
}
