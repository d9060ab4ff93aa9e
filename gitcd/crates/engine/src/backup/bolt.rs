//! Reading and writing a bbolt file, the format of etcd's database.
//!
//! A file is a sequence of pages. The first one names the root of a tree of pages; entries are in its leaves, in key order. A value
//! of the root is a bucket: the root of another tree, or a single leaf that is stored in the value. The numbers are little-endian,
//! as on all machines that etcd supports but one (s390x). Source: `internal/common` of go.etcd.io/bbolt 1.4.

use bytes::Bytes;

pub(super) mod write;

/// Position and value of the magic number, after the header of the first page.
pub(super) const MAGIC: (usize, [u8; 4]) = (HEADER, 0xED0C_DAED_u32.to_le_bytes());

/// Size of a page's header: ID (8 bytes), flags (2), count (2), overflow (4).
const HEADER: usize = 16;
/// Size of an element in a branch or a leaf page.
const ELEMENT: usize = 16;
/// Size of a bucket's header: root page (8 bytes), sequence (8).
const BUCKET: usize = 16;
/// End of what the checksum of the first page covers; the checksum follows.
const CHECKED: usize = 72;
/// Pages are as large as those of memory, and never smaller than this.
const MIN_PAGE: usize = 512;
/// The only version of the format.
const VERSION: u32 = 2;
/// Flags of a page.
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const META: u16 = 4;
const FREELIST: u16 = 16;
/// Flag of an element that is a bucket.
const IS_BUCKET: u32 = 1;
/// A tree of pages is not deeper: at two entries a page, it would have more pages than a file can have.
const MAX_DEPTH: usize = 64;

/// A file in memory.
#[derive(Debug)]
pub(super) struct Bolt {
    content: Bytes,
    page_size: usize,
    root: u64,
}

/// An entry of a leaf.
struct Entry {
    flags: u32,
    key: Bytes,
    value: Bytes,
}

impl Bolt {
    /// Reads the first page. A snapshot has the newest state there; the second page is a copy of it.
    ///
    /// # Errors
    /// What is wrong with the page.
    pub(super) fn open(content: Bytes) -> Result<Self, String> {
        let checksum = content.get(HEADER..CHECKED).map(fnv1a).ok_or("it is shorter than a page")?;
        if u64_at(&content, CHECKED)? != checksum {
            return Err("its first page does not match its checksum".to_owned());
        }
        let (magic, version) = (u32_at(&content, HEADER)?, u32_at(&content, HEADER + 4)?);
        if magic.to_le_bytes() != MAGIC.1 || version != VERSION {
            return Err(format!("its first page has version {version} of the format"));
        }
        let page_size = u32_at(&content, HEADER + 8)? as usize;
        if page_size < MIN_PAGE {
            return Err(format!("its pages have {page_size} bytes"));
        }
        let root = u64_at(&content, HEADER + 16)?;
        Ok(Self { content, page_size, root })
    }

    /// Calls `visit` with each key and value of a bucket, in key order. Does nothing if the bucket does not exist.
    ///
    /// # Errors
    /// What is wrong with a page, or the first error of `visit`.
    pub(super) fn each(
        &self,
        bucket: &str,
        mut visit: impl FnMut(Bytes, Bytes) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut found = None;
        self.walk(&self.page(self.root)?, &mut |entry| {
            if entry.flags & IS_BUCKET != 0 && entry.key == bucket.as_bytes() {
                found = Some(entry.value);
            }
            Ok(())
        })?;
        let Some(header) = found else { return Ok(()) };
        let root = match u64_at(&header, 0)? {
            0 => header.slice(BUCKET.min(header.len())..),
            root => self.page(root)?,
        };
        self.walk(&root, &mut |entry| visit(entry.key, entry.value))
    }

    fn walk(&self, root: &Bytes, visit: &mut impl FnMut(Entry) -> Result<(), String>) -> Result<(), String> {
        // A page belongs to one tree, and once: more pages than there are is a cycle.
        let mut pages = self.content.len() / self.page_size + 1;
        self.descend(root, 0, &mut pages, visit)
    }

    fn descend(
        &self,
        page: &Bytes,
        depth: usize,
        pages: &mut usize,
        visit: &mut impl FnMut(Entry) -> Result<(), String>,
    ) -> Result<(), String> {
        // With those that it extends to, so that a large page that is named often does not multiply the work.
        let size = (page.len() / self.page_size).max(1);
        *pages = pages.checked_sub(size).filter(|_| depth < MAX_DEPTH).ok_or("its pages form a cycle")?;
        let (flags, count) = (u16_at(page, 8)?, u16_at(page, 10)?);
        for element in (0..usize::from(count)).map(|index| HEADER + index * ELEMENT) {
            match flags {
                BRANCH => {
                    let child = self.page(u64_at(page, element + 8)?)?;
                    self.descend(&child, depth + 1, pages, visit)?;
                }
                LEAF => visit(entry(page, element)?)?,
                _ => return Err(format!("a page has the type {flags:#x} in place of a branch or a leaf")),
            }
        }
        Ok(())
    }

    /// Returns a page with the pages that it extends to.
    fn page(&self, id: u64) -> Result<Bytes, String> {
        let missing = || format!("page {id} is missing");
        let start = usize::try_from(id).ok().and_then(|id| id.checked_mul(self.page_size)).ok_or_else(missing)?;
        let overflow = u32_at(self.content.get(start..).ok_or_else(missing)?, 12).map_err(|_| missing())?;
        let length = (overflow as usize + 1).checked_mul(self.page_size).ok_or_else(missing)?;
        let end = start.checked_add(length).filter(|end| *end <= self.content.len()).ok_or_else(missing)?;
        Ok(self.content.slice(start..end))
    }
}

/// Returns an entry of a leaf. Its data is at a position relative to its element.
fn entry(page: &Bytes, element: usize) -> Result<Entry, String> {
    let number = |offset| u32_at(page, element + offset).map(|number| number as usize);
    let (position, key, value) = (number(4)?, number(8)?, number(12)?);
    let start = element.saturating_add(position);
    let (middle, end) = (start.saturating_add(key), start.saturating_add(key).saturating_add(value));
    if end > page.len() {
        return Err("an entry is longer than its page".to_owned());
    }
    Ok(Entry { flags: u32_at(page, element)?, key: page.slice(start..middle), value: page.slice(middle..end) })
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], String> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().ok_or_else(|| "a page ends in the middle of a number".to_owned())
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, String> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, String> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, String> {
    array(bytes, at).map(u64::from_le_bytes)
}
