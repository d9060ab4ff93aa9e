//! Packs that a Git host sent (`gitcd_repo::received`, `gitformat-pack(5)`).

use std::io::Write as _;
use std::process::{Command, Stdio};

use git2::{ObjectType, Oid, Repository};
use gitcd::git::received::{self, Bounds, Received};

use super::disk;
use super::input::Input;

const BOUNDS: Bounds = Bounds { objects: 64, bytes: 1 << 20 };
/// Blobs in the repository, for deltas of thin packs.
const BASES: [&[u8]; 2] = [b"the base of a thin pack's deltas\n", b""];

/// The checksum of each pack is right, whatever else is wrong. The first byte selects how much of the pack the rest of the
/// input is: the entries after a byte with their number, or a script of entries.
pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let mut input = Input(rest);
    let pack = match kind {
        0 => {
            let count = input.byte().into();
            received::pack_of(count, input.0)
        }
        _ => script(&mut input),
    };
    let folder = disk::folder();
    let repository = Repository::init_bare(folder.path()).expect("the disk has room");
    for base in BASES {
        repository.blob(base).expect("the disk has room");
    }
    match received::read(&pack, &repository.odb().expect("the repository has objects"), &[], BOUNDS) {
        Ok(received) => {
            as_git(&pack, &received, &repository);
            again(&received);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Git reads the same objects from the pack. libgit2 is no judge: its indexer does not end for some thin packs.
fn as_git(pack: &[u8], received: &Received, repository: &Repository) {
    let mut git = Command::new("git");
    git.arg("-C").arg(repository.path()).args(["index-pack", "--stdin", "--fix-thin"]);
    git.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut git = git.spawn().expect("git is installed");
    // If Git ends early, its status and its message say more than a closed pipe.
    let _ = git.stdin.take().expect("it is piped").write_all(pack);
    let output = git.wait_with_output().expect("git ends");
    assert!(output.status.success(), "Git refuses the pack: {}", String::from_utf8_lossy(&output.stderr));
    has_all(received, repository);
}

/// The pack that is written from what was read has the same objects.
fn again(received: &Received) {
    let folder = disk::folder();
    let repository = Repository::init_bare(folder.path()).expect("the disk has room");
    received.draft(&folder.path().join("objects/pack")).expect("the disk has room");
    has_all(received, &repository);
}

fn has_all(received: &Received, repository: &Repository) {
    let odb = repository.odb().expect("the repository has objects");
    for (kind, oid, content) in received.objects() {
        let object = odb.read(oid).expect("the object is there");
        assert_eq!((object.kind(), object.data()), (kind, content), "{oid}");
    }
}

fn script(script: &mut Input) -> Vec<u8> {
    let wrong = u32::from(script.byte() == 1);
    let (mut count, mut entries, mut offsets) = (0, Vec::new(), Vec::new());
    while !script.is_empty() && count < 64 {
        let at = entries.len();
        let kind = script.byte() % 8;
        match kind {
            6 => {
                let to: usize = offsets.get(usize::from(script.byte())).copied().unwrap_or(at);
                let delta = delta(script);
                head(&mut entries, kind, delta.len());
                distance(&mut entries, at - to);
                deflated(&mut entries, &delta);
            }
            7 => {
                let base = match script.byte() {
                    number @ 0..=1 => Oid::hash_object(ObjectType::Blob, BASES[usize::from(number)]),
                    _ => Oid::hash_object(ObjectType::Blob, script.piece()),
                };
                let delta = delta(script);
                head(&mut entries, kind, delta.len());
                entries.extend_from_slice(base.expect("a short blob has an ID").as_bytes());
                deflated(&mut entries, &delta);
            }
            _ => {
                let content = script.piece();
                head(&mut entries, kind, content.len());
                deflated(&mut entries, content);
            }
        }
        offsets.push(at);
        count += 1;
    }
    received::pack_of(count + wrong, &entries)
}

/// A delta whose sizes are right as long as its copies are inside a base of the given size.
fn delta(script: &mut Input) -> Vec<u8> {
    let (base, mut target, mut instructions) = (usize::from(script.byte()), 0, Vec::new());
    for _ in 0..script.byte() % 8 {
        match script.byte() {
            0 => instructions.push(script.byte()),
            length @ 1..=0x7F => {
                let piece = script.take(length.into());
                instructions.push(u8::try_from(piece.len()).expect("at most 127 bytes"));
                instructions.extend_from_slice(piece);
                target += piece.len();
            }
            0x80.. => {
                let (from, length) = (script.byte(), script.byte());
                instructions.extend_from_slice(&[0x91, from, length]);
                target += if length == 0 { 0x1_0000 } else { length.into() };
            }
        }
    }
    let mut delta = Vec::new();
    number(&mut delta, base);
    number(&mut delta, target);
    delta.extend_from_slice(&instructions);
    delta
}

/// Appends a size of a delta: seven bits in a byte, the lowest first.
fn number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the head of an entry: its kind, and its size with the lowest four bits first.
fn head(out: &mut Vec<u8>, kind: u8, size: usize) {
    let first = kind << 4 | (size & 0xF) as u8;
    if size < 0x10 {
        out.push(first);
    } else {
        out.push(first | 0x80);
        number(out, size >> 4);
    }
}

/// Appends the distance to the base of a delta.
fn distance(out: &mut Vec<u8>, mut distance: usize) {
    let mut bytes = vec![distance as u8 & 0x7F];
    while distance >= 0x80 {
        distance = (distance >> 7) - 1;
        bytes.push(distance as u8 & 0x7F | 0x80);
    }
    out.extend(bytes.iter().rev());
}

/// Appends bytes as a zlib stream of one stored block (RFC 1950, RFC 1951).
fn deflated(out: &mut Vec<u8>, content: &[u8]) {
    let length = u16::try_from(content.len()).expect("pieces are short");
    out.extend_from_slice(&[0x78, 0x01, 0x01]);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(content);
    let (low, high) = content.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    out.extend_from_slice(&(high << 16 | low).to_be_bytes());
}
