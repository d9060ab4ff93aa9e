//! The fuzz targets as ordinary tests: on their seeds, and on mutations of those. `make fuzz` searches further.

mod seeds;
#[path = "../../fuzz/src/lib.rs"]
pub mod targets;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use sha2::{Digest as _, Sha256};

use self::seeds::Target;

/// A mutation of an input.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        let place = |at: &Index, length: usize| at.index(length + 1);
        match self {
            Self::Flip(at, mask) => {
                let at = place(at, to.len());
                to.get_mut(at).into_iter().for_each(|byte| *byte ^= mask);
            }
            Self::Insert(at, bytes) => {
                let at = place(at, to.len());
                to.splice(at..at, bytes.iter().copied());
            }
            Self::Remove(at, length) => {
                let at = place(at, to.len());
                to.drain(at..(at + length).min(to.len()));
            }
            Self::Repeat(at, length) => {
                let at = place(at, to.len());
                let again = to[at..(at + length).min(to.len())].to_vec();
                to.splice(at..at, again);
            }
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let special = prop::sample::select(vec![0, 1, 9, 10, 0x20, b'%', b'.', b'/', b'"', b'{', 0x7F, 0x80, 0xFF]);
    let byte = prop_oneof![any::<u8>(), special];
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, mask)| Change::Flip(at, mask)),
        2 => (at(), prop::collection::vec(byte, 1..12)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (at(), 1..40_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        1 => (at(), 1..300_usize).prop_map(|(at, length)| Change::Repeat(at, length)),
    ]
}

/// Runs a target on its seeds, then on `cases` mutations of them.
fn run(target: Target, cases: u32) {
    let inputs: Vec<Vec<u8>> = target.seeds().into_iter().map(|(_, bytes)| bytes).collect();
    assert!(!inputs.is_empty(), "{target:?} has no seeds");
    for input in &inputs {
        target.run(input);
    }
    // A failing input belongs into the seeds, not into a regression file.
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let input =
        (prop::sample::select(inputs), prop::collection::vec(change(), 0..6)).prop_map(|(mut input, changes)| {
            for change in &changes {
                change.apply(&mut input);
            }
            // `Bytes` shows a failing input as a byte string.
            Bytes::from(input)
        });
    let outcome = TestRunner::new(config).run(&input, |input| {
        target.run(&input);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn keys_and_paths_are_each_others_inverse_whatever_they_are() {
    run(Target::Path, 4000);
}

#[test]
fn values_come_back_from_blobs_and_json_is_what_another_parser_takes_for_it() {
    run(Target::Json, 4000);
}

#[test]
fn any_pack_is_read_as_git_reads_it_or_refused() {
    run(Target::Pack, 1000);
}

#[test]
fn any_journal_is_recovered_or_refused_and_then_left_alone() {
    run(Target::Journal, 1000);
}

/// Otherwise the mutations of it would say nothing about the reader.
#[test]
fn the_seed_of_an_etcd_is_a_snapshot_with_keys_leases_and_a_compaction() {
    let seeds = Target::Backup.seeds();
    let (_, seed) = seeds.iter().find(|(name, _)| name == "etcd").expect("there is one");
    assert!(seed.len() < 64 << 10, "{} bytes", seed.len());
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let path = folder.path().join("snapshot");
    // The first byte selects what the input holds.
    let content = &seed[1..];
    std::fs::write(&path, [content, &Sha256::digest(content)[..]].concat()).expect("the folder is writable");
    let backup = gitcd::backup::Backup::read(&path).expect("it is a snapshot");
    let gitcd::backup::Header { revision, base, compact_revision, .. } = backup.header;
    assert_eq!((revision, base, compact_revision), (9, 4, 5));
    assert_eq!((backup.pairs.len(), backup.leases.len(), backup.writes.len()), (1, 1, 5));
}

#[test]
fn any_file_is_a_backup_that_can_be_restored_or_refused() {
    run(Target::Backup, 2000);
}

#[test]
fn after_any_requests_watchers_journal_and_backup_agree_with_the_store() {
    run(Target::Request, 200);
}
