//! The local snapshot: where replay of the journal starts, and the state that neither Git nor the rest of the journal has.
//!
//! Written when a branch is created and before the journal is trimmed. `docs/design/journal.md` describes the format.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gitcd_core::durable;
use gitcd_core::revision::Revision;
use gitcd_journal::record::{Change, DecodeError, Put, Record, Write};

use crate::version::Version;

const MAGIC: &[u8; 8] = b"gitcdsn1";
const HEADER: usize = 36;

/// Identifies one incarnation of a branch's local state. A cloned or restored repository gets a new one.
pub type Incarnation = [u8; 16];

/// Formats an incarnation as in the metadata.
pub fn hex(incarnation: &Incarnation) -> String {
    incarnation.iter().fold(String::with_capacity(32), |text, byte| text + &format!("{byte:02x}"))
}

/// The content of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The incarnation that it belongs to.
    pub incarnation: Incarnation,
    /// Replay starts after this revision …
    pub revision: Revision,
    /// … on top of the keys of this metadata commit.
    pub metadata: [u8; 20],
    /// The ephemeral keys are as of this revision, the compact revision at that time.
    pub compacted: Revision,
    /// Leases: ID and granted time to live in seconds.
    pub leases: Vec<(i64, i64)>,
    /// The ephemeral keys, each as the write that put it.
    pub ephemeral: Vec<Write>,
}

/// Why a snapshot cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file is damaged.
    #[error(
        "{path:?} is damaged; restore it, or move its folder away to resume from the last commit in Git \
         (writes after it, and ephemeral keys, are lost)"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A newer gitcd wrote it.
    #[error("{path:?}: cannot parse the snapshot")]
    Decode {
        /// The file.
        path: PathBuf,
        /// What cannot be decoded.
        source: DecodeError,
    },
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] durable::Error),
}

impl Snapshot {
    /// Reads the snapshot from a state folder; `None` if there is none.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn read(folder: &Path) -> Result<Option<Self>, SnapshotError> {
        let path = folder.join("snapshot");
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(durable::Error::of("read", &path))?,
        };
        let Some((incarnation, payload)) = open(&bytes) else { return Err(SnapshotError::Damaged { path }) };
        let records =
            Record::decode_all(payload).map_err(|source| SnapshotError::Decode { path: path.clone(), source })?;
        let mut snapshot = Self {
            incarnation,
            revision: Revision::ZERO,
            metadata: [0; 20],
            compacted: Revision::ZERO,
            leases: Vec::new(),
            ephemeral: Vec::new(),
        };
        for record in records {
            match record {
                Record::Committed { revision, metadata } => {
                    (snapshot.revision, snapshot.metadata) = (revision, metadata);
                }
                Record::Compact(revision) => snapshot.compacted = revision,
                Record::Grant { id, ttl } => snapshot.leases.push((id, ttl)),
                Record::Write(write) => snapshot.ephemeral.push(write),
                Record::Revoke { .. } | Record::Merge(_) => {}
            }
        }
        if snapshot.revision == Revision::ZERO {
            return Err(SnapshotError::Damaged { path });
        }
        Ok(Some(snapshot))
    }

    /// Replaces the snapshot durably.
    ///
    /// # Errors
    /// [`SnapshotError::Io`]; the old snapshot is kept, unless only the last fsync failed.
    pub fn write(&self, folder: &Path) -> Result<(), SnapshotError> {
        let path = folder.join("snapshot");
        let mut bytes = vec![0; HEADER];
        Record::Committed { revision: self.revision, metadata: self.metadata }.encode(&mut bytes);
        Record::Compact(self.compacted).encode(&mut bytes);
        self.leases.iter().for_each(|(id, ttl)| Record::Grant { id: *id, ttl: *ttl }.encode(&mut bytes));
        self.ephemeral.iter().for_each(|write| Record::Write(write.clone()).encode(&mut bytes));
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(&self.incarnation);
        let length = (bytes.len() - HEADER) as u64;
        bytes[24..32].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(&bytes);
        bytes[32..36].copy_from_slice(&crc.to_le_bytes());
        Ok(durable::replace(&path, &bytes)?)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..32]);
    hasher.update(&bytes[HEADER..]);
    hasher.finalize()
}

fn open(bytes: &[u8]) -> Option<(Incarnation, &[u8])> {
    let header = bytes.get(..HEADER)?;
    let length = u64::from_le_bytes(header[24..32].try_into().ok()?);
    let crc = u32::from_le_bytes(header[32..36].try_into().ok()?);
    let whole = &header[..8] == MAGIC && length == (bytes.len() - HEADER) as u64 && crc == checksum(bytes);
    whole.then(|| (header[8..24].try_into().expect("16 bytes"), &bytes[HEADER..]))
}

/// Returns a stored version as the record of a separate write.
pub fn write_of(version: &Version, value: bytes::Bytes) -> Write {
    let put = Put {
        create_revision: version.create_revision,
        version: version.version,
        lease: version.lease,
        value,
        value_offset: 0,
    };
    Write {
        revision: version.mod_revision,
        time_ms: 0,
        client: String::new(),
        changes: vec![Change { key: version.key.clone(), put: Some(put) }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let version = Version::put("k".into(), Revision::new(9), Revision::new(3), 4, 5, "v".into());
        Snapshot {
            incarnation: [3; 16],
            revision: Revision::new(7),
            metadata: [9; 20],
            compacted: Revision::new(8),
            leases: vec![(5, 60)],
            ephemeral: vec![write_of(&version, version.value_in_memory())],
        }
    }

    #[test]
    fn a_snapshot_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Snapshot::read(folder.path()).unwrap(), None);
        snapshot().write(folder.path()).unwrap();
        let mut read = Snapshot::read(folder.path()).unwrap().unwrap();
        read.ephemeral[0].changes[0].put.as_mut().unwrap().value_offset = 0;
        assert_eq!(read, snapshot());
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        snapshot().write(folder.path()).unwrap();
        let path = folder.path().join("snapshot");
        let whole = fs::read(&path).unwrap();
        for offset in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[offset] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(Snapshot::read(folder.path()).is_err(), "byte {offset}");
        }
    }
}
