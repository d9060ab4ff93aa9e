use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use git2::{Repository, Signature, Time};
use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { objects: 100_000, bytes: 64 << 20 };

/// Creates commits that each change one of a hundred files of a directory, one of them large.
fn history(repository: &Repository, commits: usize) -> Vec<Oid> {
    let author = Signature::new("a", "a@b", &Time::new(1000, 0)).unwrap();
    let (mut all, mut tree): (Vec<Oid>, Option<Oid>) = (Vec::new(), None);
    for number in 0..commits {
        let before = tree.map(|tree| repository.find_tree(tree).unwrap());
        let mut builder = repository.treebuilder(before.as_ref()).unwrap();
        for name in (0..100).filter(|name| number == 0 || *name == number * 7 % 100) {
            let text = format!("{name} {number}\n").repeat(if name == 3 { 20_000 } else { 40 });
            builder.insert(format!("file-{name}"), repository.blob(text.as_bytes()).unwrap(), 0o100_644).unwrap();
        }
        let next = repository.find_tree(builder.write().unwrap()).unwrap();
        tree = Some(next.id());
        let parents: Vec<_> = all.last().map(|oid| repository.find_commit(*oid).unwrap()).into_iter().collect();
        let parents: Vec<_> = parents.iter().collect();
        all.push(repository.commit(None, &author, &author, "a commit", &next, &parents).unwrap());
    }
    all
}

/// Returns Git's pack of the commits after another one.
fn packed(repository: &Repository, options: &[&str], last: Oid, after: Option<Oid>) -> Vec<u8> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository.path()).args([
        "pack-objects",
        "--revs",
        "--stdout",
        "-q",
        "--window=50",
        "--depth=50",
    ]);
    let mut child = command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let wanted = format!("{last}\n{}", after.map(|oid| format!("^{oid}\n")).unwrap_or_default());
    child.stdin.take().unwrap().write_all(wanted.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn packs_of_git_are_read_and_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let from = Repository::init_bare(folder.path().join("from")).unwrap();
    let commits = history(&from, 150);
    let (first, last) = (commits[0], commits[149]);
    for options in [&[][..], &["--delta-base-offset"], &["--thin"], &["--thin", "--delta-base-offset"]] {
        let to = tempfile::tempdir().unwrap();
        let to = Repository::init_bare(to.path()).unwrap();
        let whole = packed(&from, &["--delta-base-offset"], first, None);
        read(&whole, &to.odb().unwrap(), &[], BOUNDS).unwrap().draft(&to.path().join("objects/pack")).unwrap();
        let pack = packed(&from, options, last, Some(first));
        let odb = to.odb().unwrap();
        let received = read(&pack, &odb, &[], BOUNDS).unwrap();
        let theirs = from.odb().unwrap();
        let mut count = 0;
        for (kind, oid, content) in received.objects() {
            let object = theirs.read(oid).unwrap();
            assert_eq!((object.kind(), object.data()), (kind, content), "{oid}");
            count += 1;
        }
        assert_eq!(count, u32::from_be_bytes(pack[8..12].try_into().unwrap()), "{options:?}");
        assert!(to.find_commit(last).is_err());
        let seen = Repository::open(to.path()).unwrap();
        received.show(&seen).unwrap();
        assert_eq!(seen.find_commit(last).unwrap().tree().unwrap().len(), 100);
        assert!(Repository::open(to.path()).unwrap().find_commit(last).is_err(), "nothing is written");
        received.draft(&to.path().join("objects/pack")).unwrap();
        to.reference("refs/heads/main", last, true, "test").unwrap();
        let checked =
            Command::new("git").arg("-C").arg(to.path()).args(["fsck", "--full", "--strict"]).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn a_thin_pack_for_other_bases_and_one_with_a_tag_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let from = Repository::init_bare(folder.path().join("from")).unwrap();
    let commits = history(&from, 3);
    let nothing = Odb::new().unwrap();
    let thin = packed(&from, &["--thin"], commits[2], Some(commits[1]));
    assert!(matches!(read(&thin, &nothing, &[], BOUNDS), Err(Refused::NoBase(_))));
    let author = Signature::new("a", "a@b", &Time::new(1000, 0)).unwrap();
    let tag = from.tag("a-tag", from.find_commit(commits[2]).unwrap().as_object(), &author, "words", false).unwrap();
    let tagged = packed(&from, &[], tag, None);
    assert!(matches!(read(&tagged, &nothing, &[], BOUNDS), Err(Refused::Elsewhere)));
}

fn entry(kind: u8, size: usize, before: &[u8], content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = kind << 4 | (size & 0xf) as u8;
    let mut rest = size >> 4;
    while rest > 0 {
        bytes.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    bytes.push(byte);
    bytes.extend_from_slice(before);
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut deflated = vec![0; compressor.zlib_compress_bound(content.len())];
    let length = compressor.zlib_compress(content, &mut deflated).unwrap();
    bytes.extend_from_slice(&deflated[..length]);
    bytes
}

fn pack(entries: &[Vec<u8>]) -> Vec<u8> {
    let count = (entries.len() as u32).to_be_bytes();
    signed([&b"PACK\0\0\0\x02"[..], &count, &entries.concat()].concat())
}

fn signed(mut content: Vec<u8>) -> Vec<u8> {
    let checksum = Sha1::digest(&content);
    content.extend_from_slice(&checksum);
    content
}

/// Returns the number of objects read with this limit of bytes.
fn within(pack: &[u8], bytes: usize) -> Option<usize> {
    let bounds = Bounds { objects: 10, bytes };
    read(pack, &Odb::new().unwrap(), &[], bounds).ok().map(|received| received.objects().count())
}

#[test]
fn nothing_makes_room_for_more_than_is_allowed() {
    let (blob, other) = (entry(3, 1000, &[], &[0; 1000]), entry(3, 5, &[], b"hello"));
    let two = pack(&[blob.clone(), other.clone()]);
    assert_eq!((within(&two, 1005), within(&two, 1004)), (Some(2), None));
    // A delta of nine bytes that expands to a billion.
    let delta = [&[5][..], &[0x80, 0x94, 0xeb, 0xdc, 0x03], &[0x90, 5]].concat();
    let back = other.len() as u8;
    for bomb in [entry(7, delta.len(), &[1; 20], &delta), entry(6, delta.len(), &[back], &delta)] {
        assert_eq!(within(&pack(&[other.clone(), bomb]), 100_000_000), None);
    }
    assert_eq!(within(&pack(&[other.clone(), other.clone()]), 100), None, "no program sends an object twice");
    let modest = [&[5][..], &[6], &[0x90, 5], &[1, b'x']].concat();
    assert_eq!(within(&pack(&[other.clone(), entry(6, modest.len(), &[back], &modest)]), 200), Some(2));
    // Wrong size, truncated, self-referential or missing base, too many, another version, trailing bytes.
    let itself = entry(6, modest.len(), &[0], &modest);
    let mut newer = pack(std::slice::from_ref(&other));
    newer.truncate(newer.len() - 20);
    newer[7] = 4;
    for wrong in [
        pack(&[entry(3, 10, &[], &[0; 1000])]),
        pack(&[vec![0xff; 40]]),
        pack(&[itself]),
        pack(&(0..11_u8).map(|number| entry(3, 1, &[], &[number])).collect::<Vec<_>>()),
        signed(newer),
        pack(&[[other.clone(), b"more".to_vec()].concat()]),
        signed(b"PACK\0\0\0\x02\0\0\0\x02".to_vec()),
    ] {
        assert_eq!(within(&wrong, 1 << 40), None);
    }
    assert_eq!(within(&two[..two.len() - 3], 1 << 20), None, "the checksum is wrong");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// However a pack is modified, the IDs match the contents, and nothing panics.
    #[test]
    fn damage_is_an_error_or_other_objects(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let words: Vec<Vec<u8>> = (0..4_u8).map(|number| vec![b'a' + number; 50 + usize::from(number)]).collect();
        let mut entries: Vec<Vec<u8>> = words.iter().map(|word| entry(3, word.len(), &[], word)).collect();
        let delta = [&[53, 60, 0x90, 53][..], &[7], b"goes on"].concat();
        entries.push(entry(6, delta.len(), &[entries[3].len() as u8], &delta));
        let mut bytes = pack(&entries);
        bytes.truncate(bytes.len() - 20);
        for (at, value) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        if let Some(end) = end {
            bytes.truncate(end.index(bytes.len()));
        }
        let is_as_it_was = changes.is_empty() && end.is_none();
        let found = read(&signed(bytes), &Odb::new().unwrap(), &[], Bounds { objects: 100, bytes: 1 << 20 });
        prop_assert!(found.is_ok() || !is_as_it_was, "{:?}", found.err());
        let by_id: BTreeMap<Oid, &[u8]> = found.iter().flat_map(Received::objects).map(|(_, oid, content)| (oid, content)).collect();
        for (oid, content) in by_id {
            prop_assert!([ObjectType::Blob, ObjectType::Tree, ObjectType::Commit]
                .iter()
                .any(|kind| Oid::hash_object(*kind, content).unwrap() == oid));
        }
    }
}

/// The two beginnings of files with the same SHA-1 that were published with the attack `SHAttered` (shattered.io, 2017).
const COLLIDING: [&str; 3] = [
    "255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f4865696768742033203020522f547970652034\
     203020522f537562747970652035203020522f46696c7465722036203020522f436f6c6f7253706163652037203020522f4c656e677468203820\
     3020522f42697473506572436f6d706f6e656e7420383e3e0a73747265616d0affd8fffe00245348412d3120697320646561642121212121852f\
     ec092339759c39b1a1c63c4c97e1fffe01",
    "7f46dc93a6b67e013b029aaa1db2560b45ca67d688c7f84b8c4c791fe02b3df614f86db1690901c56b45c1530afedfb76038e972722fe7ad728f\
     0e4904e046c230570fe9d41398abe12ef5bc942be33542a4802d98b5d70f2a332ec37fac3514e74ddc0f2cc1a874cd0c78305a21566461309789\
     606bd0bf3f98cda8044629a1",
    "7346dc9166b67e118f029ab621b2560ff9ca67cca8c7f85ba84c79030c2b3de218f86db3a90901d5df45c14f26fedfb3dc38e96ac22fe7bd728f\
     0e45bce046d23c570feb141398bb552ef5a0a82be331fea48037b8b5d71f0e332edf93ac3500eb4ddc0decc1a864790c782c76215660dd309791\
     d06bd0af3f98cda4bc4629b1",
];

#[test]
fn files_with_the_same_sha_1_are_two_objects() {
    let bytes = |text: &str| -> Vec<u8> {
        text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    };
    let [start, one, other] = COLLIDING.map(bytes);
    let (one, other) = ([&start[..], &one].concat(), [&start[..], &other].concat());
    assert_eq!(Sha1::digest(&one), Sha1::digest(&other));
    let folder = tempfile::tempdir().unwrap();
    let from = Repository::init_bare(folder.path()).unwrap();
    let ids = [&one, &other].map(|content| from.blob(content).unwrap());
    let mut builder = from.packbuilder().unwrap();
    ids.iter().for_each(|oid| builder.insert_object(*oid, None).unwrap());
    let mut pack = git2::Buf::new();
    builder.write_buf(&mut pack).unwrap();
    let received = read(&pack, &Odb::new().unwrap(), &[], BOUNDS).unwrap();
    for (oid, content) in ids.iter().zip([&one, &other]) {
        assert_eq!(received.get(*oid).map(|(_, found)| found), Some(&**content));
    }
}
