//! Reading and checking a backup of a gitcd, or a snapshot of an etcd.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use gitcd_core::path;
use gitcd_core::revision::Revision;
use gitcd_journal::record::{Change, Put, Record, Write};
use sha2::{Digest, Sha256};

use super::bolt::{self, Bolt};
use super::{BLOCK, DIGEST, Header, MAGIC, etcd};

/// A backup's checked content.
#[derive(Clone, Debug)]
pub struct Backup {
    /// The file's second line.
    pub header: Header,
    /// Leases: ID and granted time to live in seconds.
    pub leases: Vec<(i64, i64)>,
    /// The key-value pairs at the base, each as the write that put it.
    pub pairs: Vec<Write>,
    /// All writes after the base, in order and without gaps.
    pub writes: Vec<Write>,
}

/// Why a file cannot be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {path:?}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is of an etcd with users, whose rights would be lost.
    #[error(
        "{path:?} is of an etcd that authenticates users, and gitcd does not; run `etcdctl auth disable`, save another snapshot, \
         and protect gitcd with client certificates"
    )]
    Users {
        /// The file.
        path: PathBuf,
    },
    /// The file is a database of etcd that no etcd has completed as a snapshot.
    #[error(
        "{path:?} is a database of etcd, but no snapshot, or it is truncated: it does not end with its SHA-256; save one with `etcdctl snapshot save`"
    )]
    Database {
        /// The file.
        path: PathBuf,
    },
    /// The file has another format, or a newer gitcd wrote it.
    #[error("{path:?} is no snapshot of etcd, nor one that this gitcd can read: it does not start with {:?}", String::from_utf8_lossy(MAGIC.trim_ascii_end()))]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was modified or truncated.
    #[error("{path:?} is damaged: {problem}; use another copy")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl Backup {
    /// Reads and checks a file, all of it into memory: one that [`write`](super::write()) wrote, or one that `etcdctl snapshot save`
    /// saved of an etcd. The writes of an etcd get the time of the file.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let mut file = BufReader::with_capacity(1 << 20, file);
        let start = file.fill_buf().map_err(io)?;
        if !start.starts_with(MAGIC) {
            let (at, magic) = bolt::MAGIC;
            if start.get(at..at + magic.len()) == Some(&magic) {
                return of_etcd(path, file);
            }
            return Err(ReadError::Foreign { path: path.to_owned() });
        }
        let content = length.saturating_sub(DIGEST as u64);
        let mut content = Digesting { inner: file.take(content), hasher: Sha256::new() };
        let parsed = parse(&mut content);
        // Check the digest first: damage may look like another error to the parser.
        let digested = io::copy(&mut content, &mut io::sink()).and_then(|_| {
            let mut digest = [0; DIGEST];
            content.inner.into_inner().read_exact(&mut digest)?;
            Ok(digest[..] == content.hasher.finalize()[..])
        });
        let damaged = |problem: String| ReadError::Damaged { path: path.to_owned(), problem };
        if !digested.map_err(io)? {
            return Err(damaged("its content does not match its SHA-256".to_owned()));
        }
        let backup = parsed.map_err(damaged)?;
        backup.check().map_err(damaged)?;
        Ok(backup)
    }

    /// Returns all key-value pairs at the newest revision, in key order.
    pub fn newest(&self) -> Vec<(Bytes, Revision, Put)> {
        let mut newest = BTreeMap::new();
        for write in self.pairs.iter().chain(&self.writes) {
            for Change { key, put } in &write.changes {
                match put {
                    Some(put) => drop(newest.insert(key.clone(), (write.revision, put.clone()))),
                    None => drop(newest.remove(key)),
                }
            }
        }
        newest.into_iter().map(|(key, (revision, put))| (key, revision, put)).collect()
    }

    /// Checks that the revisions are consistent, and that a branch can have the keys.
    pub(super) fn check(&self) -> Result<(), String> {
        let header = &self.header;
        if self.pairs.len() != header.pairs {
            return Err(format!("{} pairs instead of {}", self.pairs.len(), header.pairs));
        }
        for pair in &self.pairs {
            if !matches!(&pair.changes[..], [Change { put: Some(_), .. }]) {
                return Err(format!("a pair of revision {} has no value of its own", pair.revision));
            }
            if !(1..=header.base).contains(&pair.revision.get()) {
                return Err(format!("a pair of revision {} at revision {}", pair.revision, header.base));
            }
        }
        let mut last = header.base;
        for write in &self.writes {
            if last.checked_add(1) != Some(write.revision.get()) {
                return Err(format!("revision {} follows {last}", write.revision));
            }
            last = write.revision.get();
        }
        if last != header.revision {
            return Err(format!("it ends at revision {last} instead of {}", header.revision));
        }
        if header.base < 1 || !(0..=header.revision).contains(&header.compact_revision) {
            return Err("its revisions are inconsistent".to_owned());
        }
        if header.revision > Revision::MAX_STORED.get() {
            return Err(format!("revision {} leaves no room for writes to come", header.revision));
        }
        for write in self.pairs.iter().chain(&self.writes) {
            write.changes.iter().try_for_each(|change| check_change(change, write.revision))?;
        }
        Ok(())
    }
}

/// Checks what the metadata and the paths of a branch can have.
fn check_change(Change { key, put }: &Change, revision: Revision) -> Result<(), String> {
    let name = || String::from_utf8_lossy(key).chars().take(200).collect::<String>();
    if key.is_empty() {
        return Err(format!("a key at revision {revision} is empty"));
    }
    if !path::fits(key) {
        return Err(format!("the key {:?} is too long for a path in Git", name()));
    }
    match put {
        Some(put) if put.version < 1 || !(1..=revision.get()).contains(&put.create_revision.get()) => Err(format!(
            "the key {:?} has version {} and create revision {} at revision {revision}",
            name(),
            put.version,
            put.create_revision
        )),
        _ => Ok(()),
    }
}

fn of_etcd(path: &Path, mut file: BufReader<File>) -> Result<Backup, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let damaged = |problem: String| ReadError::Damaged { path: path.to_owned(), problem };
    let mut content = Vec::new();
    file.read_to_end(&mut content).map_err(io)?;
    let saved = file.get_ref().metadata().and_then(|metadata| metadata.modified()).map_err(io)?;
    let time_ms = saved.duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(0));
    let mut content = Bytes::from(content);
    let digest = content.split_off(content.len().saturating_sub(DIGEST));
    if digest[..] != Sha256::digest(&content)[..] {
        // A snapshot has whole blocks and the digest. A database has only blocks.
        let is_database = (content.len() + digest.len()).is_multiple_of(BLOCK as usize);
        let different = || damaged("its content does not match its SHA-256".to_owned());
        return Err(if is_database { ReadError::Database { path: path.to_owned() } } else { different() });
    }
    let database = Bolt::open(content).map_err(damaged)?;
    if etcd::has_users(&database).map_err(damaged)? {
        return Err(ReadError::Users { path: path.to_owned() });
    }
    let backup = etcd::read(&database, time_ms).map_err(damaged)?;
    backup.check().map_err(damaged)?;
    Ok(backup)
}

fn parse(content: &mut impl Read) -> Result<Backup, String> {
    let text = |error: io::Error| error.to_string();
    content.read_exact(&mut [0; MAGIC.len()]).map_err(text)?;
    let header: Header = serde_json::from_slice(&line(content).map_err(text)?).map_err(|error| error.to_string())?;
    let (mut leases, mut pairs, mut writes) = (Vec::new(), Vec::new(), Vec::new());
    let mut frame = Vec::new();
    while let Some(()) = next_frame(content, &mut frame).map_err(text)? {
        for record in Record::decode_all(&frame).map_err(|error| error.to_string())? {
            match record {
                Record::Grant { id, ttl } => leases.push((id, ttl)),
                Record::Write(write) if pairs.len() < header.pairs => pairs.push(write),
                Record::Write(write) => writes.push(write),
                other => return Err(format!("unexpected record {other:?}")),
            }
        }
    }
    Ok(Backup { header, leases, pairs, writes })
}

/// Reads a short line, byte by byte: what follows is binary.
fn line(content: &mut impl Read) -> io::Result<Vec<u8>> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < 4096 {
        content.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return Ok(line);
        }
        line.push(byte[0]);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the second line is unterminated"))
}

fn next_frame(content: &mut impl Read, frame: &mut Vec<u8>) -> io::Result<Option<()>> {
    let (mut length, mut crc) = ([0; 4], [0; 4]);
    content.read_exact(&mut length)?;
    content.read_exact(&mut crc)?;
    let length = u64::from(u32::from_le_bytes(length));
    if length == 0 {
        return Ok(None);
    }
    frame.clear();
    // Allocate for the bytes that exist, not for the length that the frame claims.
    content.by_ref().take(length).read_to_end(frame)?;
    if frame.len() as u64 == length && crc32fast::hash(frame) == u32::from_le_bytes(crc) {
        return Ok(Some(()));
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "a frame does not match its checksum"))
}

struct Digesting<R> {
    inner: R,
    hasher: Sha256,
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}
