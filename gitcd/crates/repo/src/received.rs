//! A received pack, read whole into memory.
//!
//! Source: `gitformat-pack(5)`. The checks are as strict as those of `git index-pack --fix-thin`: the checksum, every length,
//! every delta and its base; IDs are computed. Large packs, and packs with tags, are left to Git ([`Refused::Elsewhere`]).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};
use git2::{ObjectType, Odb, OdbLookupFlags, Oid, Repository};
use sha1::{Digest as _, Sha1};

use super::object;
use super::pack::{self, Kind};
use super::pack_file::WriteError;

/// Limits of what is read.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of objects.
    pub objects: u32,
    /// Bytes of all objects and their deltas.
    pub bytes: usize,
}

/// Why a pack was not read.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The pack exceeds the limits, or has something that only Git supports.
    #[error("it is left to Git")]
    Elsewhere,
    /// The pack is damaged.
    #[error("{0}")]
    Damaged(&'static str),
    /// A delta's base is neither in the pack nor in the repository.
    #[error("the base {0} of a delta is missing")]
    NoBase(Oid),
}

/// The objects of a pack, in the pack's order.
#[derive(Debug)]
pub struct Received {
    objects: Vec<Object>,
    by_id: HashMap<Oid, usize>,
    /// The pack as received.
    pack: Vec<u8>,
}

#[derive(Debug)]
struct Object {
    kind: Kind,
    oid: Oid,
    content: Vec<u8>,
    /// The delta and the number of its base, if that is in this pack.
    delta: Option<(Vec<u8>, usize)>,
    /// The base of its entry, in the pack or elsewhere.
    base: Option<Oid>,
    packed: Packed,
}

/// Position of an entry's deflated content in the pack, and its inflated size.
#[derive(Clone, Debug)]
struct Packed {
    deflated: Range<usize>,
    size: usize,
}

/// An entry of the pack.
struct Entry {
    form: Form,
    content: Vec<u8>,
    packed: Packed,
}

enum Form {
    Whole(Kind),
    /// A delta against the entry with this number.
    Near(usize),
    Against(Oid),
}

/// Limit of the bytes of bases read from the repository, as a multiple of the limit for objects.
const READ_FACTOR: usize = 8;
const HEADER: usize = 12;
/// Passes over the pack: programs write bases before their deltas, other packs are left to Git.
const MOST_PASSES: usize = 64;
const TAG: u8 = 4;
const OFS_DELTA: u8 = 6;
const REF_DELTA: u8 = 7;
/// Git refuses shorter deltas (`DELTA_SIZE_MIN` in `delta.h`).
const MIN_DELTA_BYTES: usize = 4;
const TOO_SHORT: Refused = Refused::Damaged("the pack ends too early");

/// Reads a pack. `odb` has the bases that a thin pack leaves out; packs in `recent` need not be read from it.
///
/// # Errors
/// [`Refused`].
pub fn read(pack: &[u8], odb: &Odb<'_>, recent: &[Arc<Received>], bounds: Bounds) -> Result<Received, Refused> {
    let (content, checksum) = pack.split_last_chunk::<20>().ok_or(TOO_SHORT)?;
    let (head, entries) = content.split_first_chunk::<HEADER>().ok_or(TOO_SHORT)?;
    let count = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    if &head[..8] != b"PACK\0\0\0\x02" || count > bounds.objects {
        return Err(Refused::Elsewhere);
    }
    if Sha1::digest(content)[..] != checksum[..] {
        return Err(Refused::Damaged("the pack's checksum is another one"));
    }
    let mut room = bounds.bytes;
    let entries = unpack(entries, count, &mut room)?;
    let done = entries.iter().map(|_| None).collect();
    let reading = bounds.bytes.saturating_mul(READ_FACTOR);
    let resolver =
        Resolver { odb, recent, room, reading, done, by_id: HashMap::new(), missing: HashSet::new(), is_twice: false };
    let (objects, by_id) = resolver.resolve(entries)?;
    Ok(Received { objects, by_id, pack: pack.to_vec() })
}

/// Builds a pack from entries that [`Received::entry`] returned.
pub fn pack_of(count: u32, entries: &[u8]) -> Vec<u8> {
    let mut bytes = [&b"PACK\0\0\0\x02"[..], &count.to_be_bytes(), entries].concat();
    let checksum = Sha1::digest(&bytes);
    bytes.extend_from_slice(&checksum);
    bytes
}

fn unpack(mut rest: &[u8], count: u32, room: &mut usize) -> Result<Vec<Entry>, Refused> {
    let whole = rest.len();
    let (mut entries, mut numbers): (Vec<Entry>, HashMap<usize, usize>) = (Vec::new(), HashMap::new());
    let mut inflater = Decompress::new(true);
    for number in 0..count as usize {
        let offset = whole - rest.len();
        let (kind, size) = head(&mut rest)?;
        *room = room.checked_sub(size).ok_or(Refused::Elsewhere)?;
        let form = match kind {
            1 => Form::Whole(Kind::Commit),
            2 => Form::Whole(Kind::Tree),
            3 => Form::Whole(Kind::Blob),
            TAG => return Err(Refused::Elsewhere),
            OFS_DELTA => {
                let base = offset.checked_sub(distance(&mut rest)?).and_then(|base| numbers.get(&base));
                Form::Near(*base.ok_or(Refused::Damaged("a delta is against no object"))?)
            }
            REF_DELTA => {
                let (id, after) = rest.split_first_chunk::<20>().ok_or(TOO_SHORT)?;
                rest = after;
                Form::Against(Oid::from_bytes(id).map_err(|_| TOO_SHORT)?)
            }
            _ => return Err(Refused::Damaged("an object is of no known kind")),
        };
        // One more byte, so that the inflater reaches the end.
        let mut content = vec![0; size + 1];
        inflater.reset(true);
        let status = inflater.decompress(rest, &mut content, FlushDecompress::Finish);
        if !matches!(status, Ok(Status::StreamEnd)) || inflater.total_out() != size as u64 {
            return Err(Refused::Damaged("an object cannot be inflated"));
        }
        content.truncate(size);
        let start = HEADER + whole - rest.len();
        rest = rest.get(inflater.total_in() as usize..).ok_or(TOO_SHORT)?;
        numbers.insert(offset, number);
        let packed = Packed { deflated: start..HEADER + whole - rest.len(), size };
        entries.push(Entry { form, content, packed });
    }
    if rest.is_empty() { Ok(entries) } else { Err(Refused::Damaged("something follows the last object")) }
}

struct Resolver<'o, 'r> {
    odb: &'o Odb<'r>,
    recent: &'o [Arc<Received>],
    room: usize,
    /// Bytes of bases that may still be read.
    reading: usize,
    done: Vec<Option<Object>>,
    by_id: HashMap<Oid, usize>,
    /// Bases that are not in the repository: only the pack can have them.
    missing: HashSet<Oid>,
    /// Whether an object is duplicate, which no program sends.
    is_twice: bool,
}

impl<'o> Resolver<'o, '_> {
    fn resolve(mut self, entries: Vec<Entry>) -> Result<(Vec<Object>, HashMap<Oid, usize>), Refused> {
        let mut waiting: Vec<(usize, Entry)> = entries.into_iter().enumerate().collect();
        for _ in 0..MOST_PASSES {
            let before = waiting.len();
            let mut later = Vec::new();
            for (number, entry) in waiting {
                if let Some(entry) = self.one(number, entry)? {
                    later.push((number, entry));
                }
            }
            // A base may come later in a pack, but not in a cycle.
            if later.len() == before && before > 0 {
                let base = later.iter().find_map(|(_, entry)| match entry.form {
                    Form::Against(base) => Some(base),
                    _ => None,
                });
                return Err(base.map_or(Refused::Damaged("deltas are against one another"), Refused::NoBase));
            }
            waiting = later;
            if self.is_twice {
                return Err(Refused::Elsewhere);
            }
            if waiting.is_empty() {
                return Ok((self.done.into_iter().flatten().collect(), self.by_id));
            }
        }
        Err(Refused::Elsewhere)
    }

    /// Resolves an entry; returns it if its base is not known yet.
    fn one(&mut self, number: usize, entry: Entry) -> Result<Option<Entry>, Refused> {
        let (kind, content, near, base) = match &entry.form {
            Form::Whole(kind) => {
                self.put(number, *kind, entry.content, None, None, entry.packed)?;
                return Ok(None);
            }
            Form::Near(near) => match &self.done[*near] {
                Some(object) => {
                    let content = patched(&object.content, &entry.content, &mut self.room)?;
                    (object.kind, content, Some(*near), object.oid)
                }
                None => return Ok(Some(entry)),
            },
            Form::Against(id) => match self.by_id.get(id) {
                Some(near) => {
                    let object = self.done[*near].as_ref().expect("objects with an ID are resolved");
                    let content = patched(&object.content, &entry.content, &mut self.room)?;
                    (object.kind, content, Some(*near), *id)
                }
                None if self.missing.contains(id) => return Ok(Some(entry)),
                None => {
                    let Some(base) = self.elsewhere(*id)? else {
                        self.missing.insert(*id);
                        return Ok(Some(entry));
                    };
                    let (kind, data) = base.get(*id);
                    self.reading = self.reading.checked_sub(data.len()).ok_or(Refused::Elsewhere)?;
                    let kind = self::kind(kind).ok_or(Refused::Elsewhere)?;
                    (kind, patched(data, &entry.content, &mut self.room)?, None, *id)
                }
            },
        };
        self.put(number, kind, content, near.map(|near| (entry.content, near)), Some(base), entry.packed)?;
        Ok(None)
    }

    /// Returns an object that is not in the pack.
    fn elsewhere(&self, id: Oid) -> Result<Option<Elsewhere<'o>>, Refused> {
        if let Some(received) = self.recent.iter().find(|received| received.get(id).is_some()) {
            return Ok(Some(Elsewhere::Recent(received)));
        }
        // If many are missing, do not refresh the object database for each.
        if !self.missing.is_empty() && !self.odb.exists_ext(id, OdbLookupFlags::NO_REFRESH) {
            return Ok(None);
        }
        // A stored object may have any size, so look at that first.
        if self.odb.read_header(id).is_ok_and(|(size, _)| size > self.reading) {
            return Err(Refused::Elsewhere);
        }
        Ok(object::read(self.odb, id).ok().map(Elsewhere::Stored))
    }

    fn put(
        &mut self,
        number: usize,
        kind: Kind,
        content: Vec<u8>,
        delta: Option<(Vec<u8>, usize)>,
        base: Option<Oid>,
        packed: Packed,
    ) -> Result<(), Refused> {
        // By libgit2, whose SHA-1 detects collisions: an object of this pack must not replace another one.
        let oid = Oid::hash_object(object_type(kind), &content)
            .map_err(|_| Refused::Damaged("an object is part of an attack on SHA-1"))?;
        self.is_twice |= self.by_id.insert(oid, number).is_some();
        self.done[number] = Some(Object { kind, oid, content, delta, base, packed });
        Ok(())
    }
}

enum Elsewhere<'o> {
    Recent(&'o Received),
    Stored(git2::OdbObject<'o>),
}

impl Elsewhere<'_> {
    fn get(&self, id: Oid) -> (ObjectType, &[u8]) {
        match self {
            Self::Recent(received) => received.get(id).expect("the received pack has the object"),
            Self::Stored(object) => (object.kind(), object.data()),
        }
    }
}

impl Received {
    /// Returns type, ID and content of each object.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectType, Oid, &[u8])> {
        self.objects.iter().map(|object| (object_type(object.kind), object.oid, &*object.content))
    }

    /// Returns type and content of an object.
    pub fn get(&self, oid: Oid) -> Option<(ObjectType, &[u8])> {
        let object = &self.objects[*self.by_id.get(&oid)?];
        Some((object_type(object.kind), &object.content))
    }

    /// Returns the approximate bytes in memory.
    pub fn bytes(&self) -> usize {
        let contents = self.objects.iter().map(|object| object.content.len());
        let deltas = self.objects.iter().filter_map(|object| Some(object.delta.as_ref()?.0.len()));
        contents.chain(deltas).sum::<usize>() + self.pack.len()
    }

    /// Returns an object's number in the pack.
    pub fn position(&self, oid: Oid) -> Option<usize> {
        self.by_id.get(&oid).copied()
    }

    /// Returns the base of an object's entry, in the pack or elsewhere.
    pub fn base(&self, oid: Oid) -> Option<Oid> {
        self.objects[*self.by_id.get(&oid)?].base
    }

    /// Appends an object's entry as received, for another pack. Its base, if any, is given by ID.
    pub fn entry(&self, oid: Oid, out: &mut Vec<u8>) {
        let Some(object) = self.by_id.get(&oid).map(|number| &self.objects[*number]) else { return };
        let kind = if object.base.is_some() { REF_DELTA } else { object.kind as u8 };
        pack::entry_head(out, kind, object.packed.size);
        out.extend(object.base.iter().flat_map(Oid::as_bytes));
        out.extend_from_slice(&self.pack[object.packed.deflated.clone()]);
    }

    /// Makes the objects visible to readers of an opened repository, without writing anything.
    ///
    /// # Errors
    /// Errors of libgit2.
    pub fn show(&self, repository: &Repository) -> Result<(), git2::Error> {
        let odb = Odb::new()?;
        let _memory = odb.add_new_mempack_backend(1000)?;
        // Write while the database has no other backend: otherwise each write would search and refresh them all.
        self.objects().try_for_each(|(kind, _, content)| odb.write(kind, content).map(drop))?;
        odb.add_disk_alternate(&repository.commondir().join("objects").to_string_lossy())?;
        repository.set_odb(&odb)
    }

    /// Writes the objects as a pack into a folder without readers; the caller makes it durable. The pack is self-contained.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn draft(&self, folder: &Path) -> Result<(), WriteError> {
        let mut writer = pack::Writer::default();
        let mut placed = HashMap::new();
        // A base may come after its delta.
        let mut waiting: Vec<usize> = (0..self.objects.len()).collect();
        while !waiting.is_empty() {
            waiting.retain(|number| {
                let object = &self.objects[*number];
                let base = object.delta.as_ref().map(|(delta, base)| (delta, placed.get(base)));
                let place = match base {
                    Some((_, None)) => return true,
                    Some((delta, Some(base))) => writer.delta(object.oid, delta, *base),
                    None => None,
                };
                let place = place.unwrap_or_else(|| writer.whole(object.kind, object.oid, &object.content));
                placed.insert(*number, place);
                false
            });
        }
        writer.draft(folder)
    }
}

fn kind(of: ObjectType) -> Option<Kind> {
    match of {
        ObjectType::Commit => Some(Kind::Commit),
        ObjectType::Tree => Some(Kind::Tree),
        ObjectType::Blob => Some(Kind::Blob),
        _ => None,
    }
}

fn object_type(kind: Kind) -> ObjectType {
    match kind {
        Kind::Commit => ObjectType::Commit,
        Kind::Tree => ObjectType::Tree,
        Kind::Blob => ObjectType::Blob,
    }
}

fn take(rest: &mut &[u8]) -> Result<u8, Refused> {
    let (first, after) = rest.split_first().ok_or(TOO_SHORT)?;
    *rest = after;
    Ok(*first)
}

/// Parses type and size of an entry.
fn head(rest: &mut &[u8]) -> Result<(u8, usize), Refused> {
    let first = take(rest)?;
    let size = if first & 0x80 == 0 { 0 } else { number(rest)? };
    let size = size.checked_mul(16).and_then(|size| size.checked_add(usize::from(first & 0xf)));
    Ok((first >> 4 & 7, size.ok_or(Refused::Elsewhere)?))
}

/// Parses a number in groups of seven bits, lowest first.
fn number(rest: &mut &[u8]) -> Result<usize, Refused> {
    let (mut number, mut shift) = (0_usize, 0_u32);
    loop {
        let byte = take(rest)?;
        // No size in a pack within the limits has so many bits.
        if shift > 49 {
            return Err(Refused::Elsewhere);
        }
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
        shift += 7;
    }
}

/// Parses the distance to a base: highest group first, and each continued group counts from one.
fn distance(rest: &mut &[u8]) -> Result<usize, Refused> {
    let mut byte = take(rest)?;
    let mut back = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = take(rest)?;
        back = back.checked_add(1).and_then(|back| back.checked_mul(128)).ok_or(TOO_SHORT)? + usize::from(byte & 0x7f);
    }
    Ok(back)
}

/// Applies a delta to its base.
fn patched(base: &[u8], mut delta: &[u8], room: &mut usize) -> Result<Vec<u8>, Refused> {
    const WRONG: Refused = Refused::Damaged("a delta does not fit its base");
    if delta.len() < MIN_DELTA_BYTES || number(&mut delta)? != base.len() {
        return Err(WRONG);
    }
    let size = number(&mut delta)?;
    *room = room.checked_sub(size).ok_or(Refused::Elsewhere)?;
    let mut new = Vec::with_capacity(size);
    while let Some((command, after)) = delta.split_first() {
        delta = after;
        let part = if command & 0x80 == 0 {
            let (part, after) = delta.split_at_checked(usize::from(*command)).ok_or(WRONG)?;
            delta = after;
            // The instruction 0 is reserved.
            if part.is_empty() {
                return Err(WRONG);
            }
            part
        } else {
            let (mut from, mut length) = (0_usize, 0_usize);
            for bit in 0..4 {
                if command >> bit & 1 != 0 {
                    from |= usize::from(take(&mut delta)?) << (8 * bit);
                }
            }
            for bit in 0..3 {
                if command >> (4 + bit) & 1 != 0 {
                    length |= usize::from(take(&mut delta)?) << (8 * bit);
                }
            }
            let length = if length == 0 { 0x1_0000 } else { length };
            base.get(from..).and_then(|rest| rest.get(..length)).ok_or(WRONG)?
        };
        if new.len() + part.len() > size {
            return Err(WRONG);
        }
        new.extend_from_slice(part);
    }
    if new.len() == size { Ok(new) } else { Err(WRONG) }
}

#[cfg(test)]
mod tests;
