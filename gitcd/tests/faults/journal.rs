//! A damaged journal.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gitcd::proto::etcdserverpb::{RangeRequest, WatchCreateRequest};
use tonic::Code;

use super::frames::frames;
use super::{explains, holds, key, recovers, value, write};
use crate::support::build::{get, put, watch_prefix};
use crate::support::{Kind, Server, eventually};

const WRITES: usize = 50;

/// Starts a server, writes, and kills it; returns the server and the journal segment with the writes.
async fn killed() -> (Server, PathBuf) {
    let mut server = Server::start(Kind::Gitcd).await;
    write(&server.client().await, 0..WRITES).await;
    server.kill();
    let mut segments = server.repository().journal();
    segments.retain(|segment| frames(segment).len() > WRITES / 2);
    let segment = segments.pop().expect("each awaited write has a frame of its own");
    (server, segment)
}

fn overwrite(segment: &Path, offset: usize, change: impl FnOnce(&mut u8)) {
    let file = OpenOptions::new().read(true).write(true).open(segment).expect("the segment exists");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset as u64).expect("the offset is within the file");
    change(&mut byte[0]);
    file.write_all_at(&byte, offset as u64).expect("the disk is healthy");
}

#[tokio::test]
async fn a_frame_torn_by_a_crash_is_dropped_and_earlier_writes_survive() {
    let (mut server, segment) = killed().await;
    let content = std::fs::read(&segment).unwrap();
    let last = frames(&segment).pop().unwrap();
    // Half of another frame behind the last one, as a crash during a write leaves it.
    let half = last.start..last.start + last.len() / 2;
    let mut torn = content.clone();
    torn.truncate(torn.len().max(last.end + half.len()));
    torn.resize(content.len().max(last.end + half.len()), 0);
    torn[last.end..last.end + half.len()].copy_from_slice(&content[half]);
    std::fs::write(&segment, torn).unwrap();

    recovers(&mut server, 0..WRITES).await;
}

#[tokio::test]
async fn a_cut_off_journal_loses_the_last_frame_only() {
    let (mut server, segment) = killed().await;
    let last = frames(&segment).pop().unwrap();
    OpenOptions::new().write(true).open(&segment).unwrap().set_len(last.end as u64 - 7).unwrap();

    server.restart().await;
    let client = server.client().await;
    holds(&client, 0..WRITES - 1).await;
    let answer = client.range(get(&key(WRITES - 1))).await.ok();
    // The last write may have been committed to Git before the kill, and is then recovered from there.
    let revision = answer.header.unwrap().revision;
    assert_eq!(revision, WRITES as i64 + answer.count);
    write(&client, WRITES..WRITES + 1).await;
    let next = client.range(get(&key(WRITES))).await.ok();
    assert_eq!(next.kvs[0].mod_revision, revision + 1, "the next write must follow without a gap");
    server.kill();
    server.restart().await;
    let again = server.client().await.range(get(&key(WRITES))).await.ok();
    assert_eq!(again.kvs, next.kvs);
    server.repository().fsck();
}

#[tokio::test]
async fn damage_before_the_end_is_refused_with_file_and_offset() {
    let (mut server, segment) = killed().await;
    let damaged = frames(&segment).swap_remove(3);
    let flip = |byte: &mut u8| *byte ^= 0x10;
    overwrite(&segment, damaged.end - 5, flip);
    let before = std::fs::read(&segment).unwrap();

    for _ in 0..2 {
        let exit = server.restart_in_vain().await;
        let offset = damaged.start.to_string();
        explains(&exit, &[segment.to_str().unwrap(), &offset, "restore"]);
    }
    assert_eq!(std::fs::read(&segment).unwrap(), before, "a refused start must change nothing");

    overwrite(&segment, damaged.end - 5, flip);
    recovers(&mut server, 0..WRITES).await;
}

#[tokio::test]
async fn a_damaged_segment_header_is_refused_with_the_file() {
    let (mut server, segment) = killed().await;
    let flip = |byte: &mut u8| *byte ^= 0x10;
    overwrite(&segment, 20, flip);
    explains(&server.restart_in_vain().await, &[segment.to_str().unwrap(), "restore"]);
    overwrite(&segment, 20, flip);
    recovers(&mut server, 0..WRITES).await;
}

#[tokio::test]
async fn a_missing_segment_is_refused_with_its_name() {
    let (mut server, _) = killed().await;
    // Every start begins a segment; two more give one between two others, to be removed.
    for _ in 0..2 {
        server.restart().await;
        write(&server.client().await, 0..1).await;
        server.kill();
    }
    let segments = server.repository().journal();
    assert!(segments.len() >= 3, "{segments:?}");
    let middle = &segments[segments.len() - 2];
    let aside = middle.with_extension("aside");
    std::fs::rename(middle, &aside).unwrap();
    let number = middle.file_stem().unwrap().to_str().unwrap().trim_start_matches('0').to_owned();
    explains(&server.restart_in_vain().await, &["journal", &format!("segment {number}"), "restore"]);
    std::fs::rename(&aside, middle).unwrap();
    server.restart().await;
    holds(&server.client().await, 1..WRITES).await;
}

/// Reserved when the journal is missing: more revisions than a journal can hold, so none is assigned twice.
const RESERVED: i64 = 1 << 32;

#[tokio::test]
async fn a_missing_journal_ends_a_life_and_no_revision_comes_again() {
    let mut server = Server::start(Kind::Gitcd).await;
    let repository = server.repository();
    let journal = repository.path().join("gitcd/default/journal");
    let mut known: i64 = 0;
    let mut written = 0;
    // The journal's folder is removed; then only its files; then the folder again, right after a start without writes.
    for (round, only_files) in [false, true, false].into_iter().enumerate() {
        let client = server.client().await;
        if round < 2 {
            let last = client.put(put(&key(written), &value(written))).await.ok().header.unwrap().revision;
            written += 1;
            eventually("the commit", async || (repository.committed_revision() == last).then_some(())).await;
            // Acknowledged, and possibly not yet in Git when the journal is removed.
            let endangered = client.put(put("/registry/tests/endangered", "1")).await.ok();
            known = endangered.header.unwrap().revision;
        }
        server.kill();
        let committed = repository.described_revision();
        if only_files {
            repository.journal().iter().for_each(|segment| std::fs::remove_file(segment).unwrap());
        } else {
            std::fs::remove_dir_all(&journal).unwrap();
        }

        server.restart().await;
        let client = server.client().await;
        let now = client.range(get("/none")).await.ok().header.unwrap().revision;
        assert_eq!(now, committed + RESERVED, "round {round}");
        for number in 0..written {
            let pair = client.range(get(&key(number))).await.ok().kvs.remove(0);
            assert_eq!(pair.value, value(number), "commits in Git must survive");
        }
        for old in [2, known, known + 1, now - 1] {
            client.range(RangeRequest { revision: old, ..get("/none") }).await.refused(Code::OutOfRange);
            let mut watching = client.watch();
            watching.create(WatchCreateRequest { start_revision: old, ..watch_prefix("/") }).await;
            let cancelled = watching.control().await;
            assert!(cancelled.canceled, "round {round}, from {old}: {cancelled:?}");
            assert_eq!(cancelled.compact_revision, now, "round {round}, from {old}");
        }
        known = now;
    }
    let next = server.client().await.put(put("/registry/tests/next", "1")).await.ok().header.unwrap().revision;
    assert_eq!(next, known + 1);
    server.kill();
    server.restart().await;
    let pair = server.client().await.range(get("/registry/tests/next")).await.ok().kvs.remove(0);
    assert_eq!(pair.mod_revision, next, "later writes must work as usual");
    server.terminate().await;
    repository.fsck();
}
