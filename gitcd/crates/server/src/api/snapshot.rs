//! `Maintenance.Snapshot`: the store in a temporary file, sent piece by piece.
//!
//! The file is complete before its first byte is sent, so writers wait only while the keys are listed, and a slow client costs
//! space on the disk, not memory. The file has no name: its space is free once it is closed, also after a crash.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{Stream, stream};
use gitcd_core::blocking;
use gitcd_engine::backup;
use gitcd_mvcc::Store;
use gitcd_mvcc::work::Timed;
use tokio::sync::{Mutex, mpsc};
use tonic::Status;

use super::{Backend, CLUSTER_VERSION};
use crate::proto::etcdserverpb as pb;

/// Size of a message.
const PART_BYTES: usize = 64 << 10;
/// Limit on the bytes of the disk that a snapshot leaves free for the journal and Git; otherwise, it leaves as much as it takes.
const RESERVE_BYTES: u64 = 64 << 20;
/// How long a client may take for one message before its snapshot is abandoned, so that its space is free again.
const STALL: Duration = Duration::from_mins(5);

/// Writes snapshots one after the other, so that each sees how much room the others have left. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Spooler(Arc<Mutex<()>>);

/// The messages of a snapshot.
pub(super) type Parts = Pin<Box<dyn Stream<Item = Result<pb::SnapshotResponse, Status>> + Send>>;

/// Why a snapshot cannot be written.
#[derive(Debug, thiserror::Error)]
enum SpoolError {
    #[error(
        "a snapshot of about {} MiB needs {} MiB of free space in {folder}, which has {} MiB; free some, or clone the repository \
         with Git instead",
        mib(*bytes), mib(needed(*bytes)), free >> 20
    )]
    NoRoom { folder: String, bytes: u64, free: u64 },
    #[error("cannot determine the free space of {folder}: {source}")]
    Measure { folder: String, source: io::Error },
    #[error("cannot write it to a temporary file in {folder}: {source}")]
    Write { folder: String, source: io::Error },
}

/// Returns the free space that a snapshot of this size requires.
fn needed(bytes: u64) -> u64 {
    bytes.saturating_add(bytes.min(RESERVE_BYTES))
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl SpoolError {
    fn status(&self) -> Status {
        let text = format!("gitcd: no snapshot: {self}");
        let is_full =
            |source: &io::Error| matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        match self {
            Self::NoRoom { .. } => Status::resource_exhausted(text),
            Self::Write { source, .. } if is_full(source) => Status::resource_exhausted(text),
            _ => Status::internal(text),
        }
    }
}

impl Backend {
    /// Writes a snapshot, and returns the stream of its messages.
    pub(super) async fn spool(&self) -> Result<Parts, Status> {
        let timed = Timed::begin(self.store.counters.work.clone(), |work| &work.snapshots);
        let turn = self.snapshots.0.clone().lock_owned().await;
        let (store, folder) = (self.store.clone(), self.repository.clone());
        let abandoned = Abandoned::default();
        let is_abandoned = abandoned.0.clone();
        let written = blocking::run("write the snapshot", move || {
            let _turn = turn;
            write(&store, &folder, &is_abandoned)
        });
        let failed = |error: &dyn std::fmt::Display| Status::internal(format!("gitcd: no snapshot: {error}"));
        let (file, length) = written.await.map_err(|error| failed(&error))?.map_err(|error| error.status())?;
        // The file belongs to a task of its own: the stream is not polled while the client reads nothing.
        let (parts, received) = mpsc::channel(1);
        tokio::spawn(send(file, length, parts, STALL));
        let parts = stream::try_unfold((received, length, timed), |(mut received, rest, timed)| async move {
            if rest == 0 {
                return Ok(None);
            }
            let Some(part) = received.recv().await else {
                return Err(Status::aborted(
                    "gitcd: the snapshot was abandoned because the client read nothing for five minutes; save it again",
                ));
            };
            let part: pb::SnapshotResponse = part?;
            let rest = part.remaining_bytes;
            Ok(Some((part, (received, rest, timed))))
        });
        Ok(Box::pin(parts))
    }
}

/// Stops the writing of a snapshot once the request is dropped.
#[derive(Default)]
struct Abandoned(Arc<AtomicBool>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes a snapshot to a file without a name; returns it at its start, and its length.
fn write(store: &Store, folder: &Path, is_abandoned: &AtomicBool) -> Result<(File, u64), SpoolError> {
    let shown = || folder.display().to_string();
    let space =
        rustix::fs::statvfs(folder).map_err(|error| SpoolError::Measure { folder: shown(), source: error.into() })?;
    // Of every version, the size counts more than a snapshot has besides key and value.
    let bytes = store.data_size().total as u64;
    check(shown, bytes, space.f_bavail.saturating_mul(space.f_frsize))?;
    let write = || {
        let mut file = tempfile::tempfile_in(folder)?;
        let out = Abandonable { out: &file, is_abandoned };
        let header = backup::write(store, BufWriter::with_capacity(1 << 20, out))?;
        let length = file.stream_position()?;
        file.rewind()?;
        tracing::info!(revision = header.revision, bytes = length, "sending a snapshot");
        Ok((file, length))
    };
    write().map_err(|source| SpoolError::Write { folder: shown(), source })
}

/// Checks that there is room for a snapshot.
fn check(folder: impl Fn() -> String, bytes: u64, free: u64) -> Result<(), SpoolError> {
    if free < needed(bytes) {
        return Err(SpoolError::NoRoom { folder: folder(), bytes, free });
    }
    Ok(())
}

/// A writer that fails once the request is dropped.
struct Abandonable<'a, W> {
    out: W,
    is_abandoned: &'a AtomicBool,
}

impl<W: Write> Write for Abandonable<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_abandoned.load(Ordering::Relaxed) {
            return Err(io::Error::other("the client has disconnected"));
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Sends a file, until it has been sent, the client has disconnected, or has taken nothing for `patience`.
async fn send(
    mut file: File,
    mut rest: u64,
    parts: mpsc::Sender<Result<pb::SnapshotResponse, Status>>,
    patience: Duration,
) {
    while rest > 0 {
        let room = match tokio::time::timeout(patience, parts.reserve()).await {
            Ok(Ok(room)) => room,
            // The client has disconnected.
            Ok(Err(_)) => break,
            Err(_) => {
                tracing::warn!(unsent_bytes = rest, "abandoned a snapshot: its client reads nothing");
                break;
            }
        };
        let length = PART_BYTES.min(usize::try_from(rest).unwrap_or(PART_BYTES));
        let read = blocking::run("read the snapshot", move || {
            let mut blob = vec![0; length];
            file.read_exact(&mut blob).map(|()| (blob, file))
        });
        let failed =
            |error: &dyn std::fmt::Display| Status::internal(format!("gitcd: cannot read the snapshot: {error}"));
        let (blob, back) = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => return room.send(Err(failed(&error))),
            Err(error) => return room.send(Err(failed(&error))),
        };
        file = back;
        rest -= blob.len() as u64;
        let version = CLUSTER_VERSION.to_owned();
        room.send(Ok(pb::SnapshotResponse { header: None, remaining_bytes: rest, blob: blob.into(), version }));
    }
    // Frees the space of the file.
    let _closed = blocking::run("close the snapshot", move || drop(file)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(length: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; length]).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn a_snapshot_leaves_room_for_the_journal_and_says_how_much_it_needs() {
        let check = |bytes: u64, free| check(|| "/data".to_owned(), bytes, free);
        check(0, 0).unwrap();
        check(10 << 20, 20 << 20).unwrap();
        check(1 << 30, (1 << 30) + RESERVE_BYTES).unwrap();
        assert!(check(1 << 30, (1 << 30) + RESERVE_BYTES - 1).is_err());
        let refused = check(10 << 20, (20 << 20) - 1).unwrap_err().status();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        for words in ["of about 10 MiB", "needs 20 MiB", "in /data", "has 19 MiB", "clone the repository"] {
            assert!(refused.message().contains(words), "{refused}");
        }
        assert!(check(u64::MAX, u64::MAX - 1).is_err());
    }

    #[tokio::test]
    async fn a_file_is_sent_as_fast_as_it_is_read_and_not_faster() {
        let length = 10 * PART_BYTES + 100;
        let (parts, mut received) = mpsc::channel(1);
        let mut file = file(length);
        let copy = file.try_clone().unwrap();
        let sending = tokio::spawn(send(copy, length as u64, parts, STALL));
        let mut rest = length;
        while let Some(part) = received.recv().await {
            let part = part.unwrap();
            rest -= part.blob.len();
            assert_eq!(part.remaining_bytes, rest as u64);
            tokio::time::sleep(Duration::from_millis(5)).await;
            // Both have the same position.
            let read = usize::try_from(file.stream_position().unwrap()).unwrap();
            assert!(read <= length - rest + 2 * PART_BYTES, "{read} bytes were read, and {} taken", length - rest);
        }
        sending.await.unwrap();
        assert_eq!(rest, 0);
    }

    #[tokio::test]
    async fn a_snapshot_is_closed_when_its_client_reads_nothing_or_disconnects() {
        for disconnects in [false, true] {
            let (parts, received) = mpsc::channel(1);
            let patience = if disconnects { STALL } else { Duration::from_millis(50) };
            let sending = tokio::spawn(send(file(10 * PART_BYTES), 10 * PART_BYTES as u64, parts, patience));
            let kept = (!disconnects).then_some(received);
            tokio::time::timeout(Duration::from_secs(20), sending).await.expect("it is closed").unwrap();
            drop(kept);
        }
    }

    #[test]
    fn writing_stops_when_the_request_is_dropped() {
        let abandoned = Abandoned::default();
        let is_abandoned = abandoned.0.clone();
        let mut out = Abandonable { out: Vec::new(), is_abandoned: &is_abandoned };
        out.write_all(b"all").unwrap();
        drop(abandoned);
        assert!(out.write_all(b"more").unwrap_err().to_string().contains("disconnected"));
    }
}
