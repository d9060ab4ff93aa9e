//! Writing a backup of a store.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;
use gitcd_journal::record::{Change, Put, Record, Write as Written};
use gitcd_mvcc::Store;
use gitcd_mvcc::index::{Index, KeyRange};
use gitcd_mvcc::log::Entry;
use gitcd_mvcc::snapshot::write_of;
use gitcd_mvcc::version::Version;
use sha2::{Digest, Sha256};

use super::{BLOCK, FRAME_BYTES, Header, MAGIC};

/// The store's content at one revision, shared with the store.
struct View {
    header: Header,
    pairs: Vec<Arc<Version>>,
    entries: Vec<Entry>,
}

/// Writes a backup of the store's current state. Writers wait while the keys are listed (about 100 ns each), not while values are
/// written.
///
/// # Errors
/// Errors of `out`, or an old value cannot be read back from the journal.
pub fn write(store: &Store, out: impl Write) -> io::Result<Header> {
    let leases = store.leases();
    let View { header, pairs, entries } = store.with_index(view);
    let mut out = Digesting::new(out);
    out.write_all(MAGIC)?;
    serde_json::to_writer(&mut out, &header)?;
    out.write_all(b"\n")?;
    let mut frames = Frames { out, payload: Vec::with_capacity(FRAME_BYTES + (64 << 10)) };
    let value = |version: &Version| version.value(store.segments()).map_err(io::Error::other);
    for (id, ttl) in leases {
        frames.add(&Record::Grant { id, ttl })?;
    }
    for version in pairs {
        frames.add(&Record::Write(write_of(&version, value(&version)?)))?;
    }
    for entry in entries {
        let change = |change: &gitcd_mvcc::log::Change| -> io::Result<Change> {
            let version = &change.version;
            let put = if version.is_tombstone() {
                None
            } else {
                Some(Put {
                    create_revision: version.create_revision,
                    version: version.version,
                    lease: version.lease,
                    value: value(version)?,
                    value_offset: 0,
                })
            };
            Ok(Change { key: version.key.clone(), put })
        };
        let changes = entry.changes().iter().map(change).collect::<io::Result<_>>()?;
        let client = entry.client.as_deref().unwrap_or_default().to_owned();
        frames.add(&Record::Write(Written { revision: entry.revision, time_ms: entry.time_ms, client, changes }))?;
    }
    frames.finish()?.finish()?;
    Ok(header)
}

/// Returns the log since the compaction, and the key-value pairs right before it.
fn view(index: &Index, revision: Revision) -> View {
    let compacted = index.compacted();
    let entries: Vec<_> = index.log_from(compacted).take_while(|entry| entry.revision <= revision).cloned().collect();
    let all = KeyRange::From(Bytes::new());
    let (base, pairs) = match entries.first() {
        // The state before the compact revision: the previous versions of what that write changed, and all other keys as they
        // are.
        Some(first) if first.revision == compacted => {
            let before = first.changes().iter().filter_map(|change| change.previous.clone());
            let others = index.range(&all, compacted).filter(|version| version.mod_revision < compacted).cloned();
            (Revision::new(compacted.get() - 1), others.chain(before).collect::<Vec<_>>())
        }
        first => {
            let base = first.map_or(revision, |first| Revision::new(first.revision.get() - 1));
            (base, index.range(&all, base).cloned().collect())
        }
    };
    let header = Header {
        revision: revision.get(),
        base: base.get(),
        compact_revision: compacted.get(),
        pairs: pairs.len(),
        gitcd: env!("CARGO_PKG_VERSION").to_owned(),
    };
    View { header, pairs, entries }
}

/// Writes records in frames: length, checksum, payload.
struct Frames<W: Write> {
    out: Digesting<W>,
    payload: Vec<u8>,
}

impl<W: Write> Frames<W> {
    fn add(&mut self, record: &Record) -> io::Result<()> {
        record.encode(&mut self.payload);
        if self.payload.len() >= FRAME_BYTES { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.payload.len()).map_err(io::Error::other)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&crc32fast::hash(&self.payload).to_le_bytes())?;
        self.out.write_all(&self.payload)?;
        self.payload.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<Digesting<W>> {
        if !self.payload.is_empty() {
            self.close()?;
        }
        // An empty frame marks the end.
        self.close()?;
        Ok(self.out)
    }
}

/// Writes content, and at its end the padding and the digest that snapshots have.
pub(super) struct Digesting<W: Write> {
    out: W,
    hasher: Sha256,
    length: u64,
}

impl<W: Write> Digesting<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, hasher: Sha256::new(), length: 0 }
    }

    /// Pads the content, appends its digest and flushes.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let rest = (BLOCK - self.length % BLOCK) % BLOCK;
        self.write_all(&vec![0; rest as usize])?;
        self.out.write_all(&self.hasher.finalize())?;
        self.out.flush()
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
