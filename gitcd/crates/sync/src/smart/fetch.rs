//! Fetches: receiving packs.

use std::io::Write as _;
use std::path::Path;

use bytes::Bytes;
use git2::{Indexer, Odb, Oid, Repository};
use gitcd_repo::pkt_line;
use gitcd_repo::received::{self, Bounds, Received, Refused};
use tempfile::TempDir;

use super::Exchange;
use super::lines::{Line, Lines};
use crate::progress::FetchProgress;
use crate::status::Condition;
use crate::wire::{TransportError, is_full};

/// A received pack that is not part of the repository yet, and may be incomplete.
#[derive(Debug)]
pub(crate) struct Incoming {
    place: Place,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
enum Place {
    Memory(Received),
    Folder(TempDir),
}

/// `git prune` removes folders with this prefix that a crash leaves behind.
const PREFIX: &str = "tmp_objdir-fetch-";
/// A larger pack is received into a file.
const IN_MEMORY: usize = 8 << 20;
const BOUNDS: Bounds = Bounds { objects: 65_536, bytes: 64 << 20 };
const DATA: u8 = 1;
const ERROR: u8 = 3;
/// Limit on the bytes of the remote's messages that are kept.
const MAX_MESSAGES: usize = 4 << 10;

impl Exchange<'_> {
    /// Receives the objects that `wanted` needs, in one round trip. The remote omits objects in the history of the commits that
    /// we `have` and that it knows. `None` if the remote is shallow, which the program can handle.
    pub(crate) async fn fetch(
        &self,
        here: &Repository,
        wanted: &[Oid],
        have: &[Oid],
        progress: &FetchProgress,
    ) -> Result<Option<Incoming>, TransportError> {
        let mut body = Vec::new();
        pkt_line::put(&mut body, b"command=fetch");
        body.extend_from_slice(pkt_line::DELIMITER);
        for option in ["thin-pack", "no-progress", "ofs-delta"] {
            pkt_line::put(&mut body, option.as_bytes());
        }
        for (word, oids) in [("want", wanted), ("have", have)] {
            for oid in oids {
                pkt_line::put(&mut body, format!("{word} {oid}\n").as_bytes());
            }
        }
        pkt_line::put(&mut body, b"done\n");
        body.extend_from_slice(pkt_line::FLUSH);
        let mut lines = self.call(body).await?;
        loop {
            match lines.text().await? {
                Some(line) if line == "packfile" => break,
                // The remote is shallow.
                Some(line) if line == "shallow-info" => return Ok(None),
                Some(_) => {}
                None => {
                    return Err(TransportError::new(Condition::Unreachable, "it sent no pack"));
                }
            }
        }
        Incoming::receive(here, lines, progress).await.map(Some)
    }
}

impl Incoming {
    async fn receive(here: &Repository, mut lines: Lines, progress: &FetchProgress) -> Result<Self, TransportError> {
        let odb = here.odb().map_err(|error| failed(&error))?;
        let (mut messages, mut pack) = (String::new(), Vec::new());
        let mut is_whole = false;
        while pack.len() <= IN_MEMORY && !is_whole {
            match part(&mut lines, &mut messages).await? {
                Some(part) => {
                    progress.received(part.len());
                    pack.extend_from_slice(&part);
                }
                None => is_whole = true,
            }
        }
        if is_whole {
            match received::read(&pack, &odb, &[], BOUNDS) {
                Ok(received) => return Ok(Self { bytes: pack.len() as u64, place: Place::Memory(received) }),
                Err(Refused::Elsewhere) => {}
                Err(error) => return Err(full_or_damaged(&error.to_string())),
            }
        }
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(here.commondir().join("objects"));
        let folder = folder.and_then(|folder| std::fs::create_dir(folder.path().join("pack")).map(|()| folder));
        let folder = folder.map_err(|error| not_stored(&error))?;
        let mut indexer =
            Indexer::new(Some(&odb), &folder.path().join("pack"), 0, false).map_err(|error| failed(&error))?;
        let counted = progress.clone();
        indexer.progress(move |indexed| {
            counted.objects(indexed.received_objects() as u64, indexed.total_objects() as u64);
            true
        });
        let mut bytes = pack.len() as u64;
        indexer.write_all(&pack).map_err(|error| full_or_damaged(&error.to_string()))?;
        while !is_whole {
            match part(&mut lines, &mut messages).await? {
                Some(part) => {
                    bytes += part.len() as u64;
                    progress.received(part.len());
                    indexer.write_all(&part).map_err(|error| full_or_damaged(&error.to_string()))?;
                }
                None => is_whole = true,
            }
        }
        indexer.commit().map_err(|error| full_or_damaged(error.message()))?;
        Ok(Self { place: Place::Folder(folder), bytes })
    }

    /// Opens the local repository with the received objects added.
    pub(crate) fn with(&self, here: &Path) -> Result<Repository, git2::Error> {
        let repository = Repository::open(here)?;
        match &self.place {
            Place::Memory(received) => received.show(&repository)?,
            Place::Folder(folder) => repository.odb()?.add_disk_alternate(&folder.path().to_string_lossy())?,
        }
        Ok(repository)
    }
}

/// Returns the next part of a pack. Collects the remote's messages in `messages`, since they explain a following error.
async fn part(lines: &mut Lines, messages: &mut String) -> Result<Option<Bytes>, TransportError> {
    while let Some(line) = lines.next().await? {
        let Line::Data(mut line) = line else { return Ok(None) };
        if line.is_empty() {
            continue;
        }
        let band = line.split_to(1)[0];
        match band {
            DATA => return Ok(Some(line)),
            ERROR => return Err(TransportError::of(&format!("{messages}{}", String::from_utf8_lossy(&line)))),
            _ if messages.len() < MAX_MESSAGES => messages.push_str(&String::from_utf8_lossy(&line)),
            _ => {}
        }
    }
    // A flush ends the pack; it is missing.
    Err(TransportError::new(Condition::Unreachable, "the response was truncated"))
}

fn failed(error: &git2::Error) -> TransportError {
    TransportError::new(Condition::Failed, error.message())
}

fn not_stored(error: &std::io::Error) -> TransportError {
    let condition = if is_full(error) { Condition::NoSpace } else { Condition::Failed };
    TransportError::new(condition, format!("cannot store the received pack: {error}"))
}

fn full_or_damaged(said: &str) -> TransportError {
    let condition = if names_full_disk(said) { Condition::NoSpace } else { Condition::Damaged };
    TransportError::new(condition, format!("the received pack cannot be used: {said}"))
}

/// Returns whether a message of libgit2 is about a full disk: its errors do not keep the number of the system's error.
fn names_full_disk(said: &str) -> bool {
    said.contains("No space left") || said.contains("quota exceeded")
}

/// Returns the commits for the `have` lines: those last seen on the remote, or else commits of our own history at growing
/// distances.
pub(crate) fn have(here: &Repository, odb: &Odb<'_>, seen: &[Oid], own: &[Oid]) -> Vec<Oid> {
    let mut have: Vec<Oid> = seen.iter().copied().filter(|oid| odb.exists(*oid)).collect();
    if have.is_empty() {
        for tip in own {
            have.extend(back(here, *tip));
        }
    }
    have.sort_unstable();
    have.dedup();
    have
}

/// Returns a commit and its first-parent ancestors at the distances 1, 2, 4, …
fn back(here: &Repository, tip: Oid) -> Vec<Oid> {
    const FARTHEST: usize = 1 << 14;
    let (mut found, mut at, mut next) = (Vec::new(), tip, 0_usize);
    for distance in 0..=FARTHEST {
        let Ok(commit) = here.find_commit(at) else { break };
        if distance == next {
            found.push(at);
            next = (next * 2).max(1);
        }
        let Ok(parent) = commit.parent_id(0) else { break };
        at = parent;
    }
    found
}
