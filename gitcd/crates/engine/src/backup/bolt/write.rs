//! Writing a bbolt file, as if one transaction had filled an empty database.
//!
//! The pages are written in the order of the file, without seeking: the first pages, the free list, the trees of the buckets, and
//! the root page. The first page names the root page and the number of pages, so a first pass over the entries plans the pages,
//! and a second one writes them. Source: `tx.go`, `node.go` and `internal/common` of go.etcd.io/bbolt 1.4.

use std::io::{self, Write};

use super::{BRANCH, BUCKET, CHECKED, ELEMENT, FREELIST, HEADER, IS_BUCKET, LEAF, MAGIC, META, VERSION, fnv1a};

/// Size of a page, as on most machines that etcd runs on. bbolt reads it from the first page.
const PAGE: usize = 4096;
/// The first page, and its older copy. bbolt reads the one with the greater transaction ID, and writes the next transaction to the
/// other one if the ID of the newest is even, like its page.
const METAS: [(u64, u64); 2] = [(0, 2), (1, 1)];
/// The page with the free list. Its list is empty: no page is free.
const FREELIST_PAGE: u64 = 2;
/// A bucket with a single leaf is stored in its value up to this size.
const MAX_INLINE: usize = PAGE / 4;
/// A longer key is refused, so that each branch page has room for [`FAN_OUT`] keys.
const MAX_KEY: usize = 32;
/// Children of a branch page at most.
const FAN_OUT: usize = (PAGE - HEADER) / (ELEMENT + MAX_KEY);

/// A key and its value.
pub(in crate::backup) type Entry = (Vec<u8>, Vec<u8>);
/// Entries in key order.
pub(in crate::backup) type Entries<'a> = Box<dyn Iterator<Item = Entry> + 'a>;

/// A bucket to write.
pub(in crate::backup) struct Bucket<'a> {
    pub(in crate::backup) name: &'static str,
    /// Returns all entries, in ascending order of their keys. It is called twice, and must return the same ones.
    pub(in crate::backup) entries: Box<dyn Fn() -> Entries<'a> + 'a>,
}

/// Writes a database with these buckets, which are in the order of their names. Needs memory for the first key of each leaf (about
/// 2 % of the file) and for the largest page.
///
/// # Errors
/// Errors of `out`; [`io::ErrorKind::InvalidInput`] if a key has more than 32 bytes, or a page more than 4 GiB.
pub(in crate::backup) fn write(buckets: &[Bucket<'_>], out: &mut impl Write) -> io::Result<()> {
    let mut next = FREELIST_PAGE + 1;
    let (mut root, mut trees) = (Vec::new(), Vec::new());
    for bucket in buckets {
        let leaves = plan((bucket.entries)())?;
        let is_inline = leaves.len() < 2 && leaves.iter().all(|leaf| leaf.size <= MAX_INLINE);
        let value = if is_inline {
            [vec![0; BUCKET], leaf(0, &elements((bucket.entries)()))?].concat()
        } else {
            // The root of a tree is its last page.
            next += leaves.iter().map(|leaf| pages(leaf.size)).sum::<u64>() + branches(leaves.len());
            trees.push((bucket, leaves));
            [(next - 1).to_le_bytes(), [0; BUCKET - 8]].concat()
        };
        root.push(Element { flags: IS_BUCKET, key: bucket.name.into(), value });
    }
    let root_page = leaf(next, &root)?;
    let end = next + pages(root_page.len());
    let mut pages = Pages { out, next: 0 };
    for (id, transaction) in METAS {
        pages.append(meta(id, transaction, next, end))?;
    }
    pages.append(header(FREELIST_PAGE, FREELIST, 0, HEADER)?)?;
    for (bucket, leaves) in trees {
        pages.append_tree(&leaves, (bucket.entries)())?;
    }
    pages.append(root_page)?;
    Ok(())
}

/// The size of a leaf page and the number of its entries.
struct Leaf {
    count: usize,
    size: usize,
}

/// Divides entries into leaf pages: as many as fit. A larger entry has a page of its own, which extends to the next ones.
fn plan(entries: Entries<'_>) -> io::Result<Vec<Leaf>> {
    let mut leaves = Vec::<Leaf>::new();
    for (key, value) in entries {
        if key.len() > MAX_KEY {
            return Err(too_large("a key", key.len()));
        }
        let size = ELEMENT + key.len() + value.len();
        match leaves.last_mut() {
            Some(leaf) if leaf.size + size <= PAGE => {
                leaf.count += 1;
                leaf.size += size;
            }
            _ => leaves.push(Leaf { count: 1, size: HEADER + size }),
        }
    }
    Ok(leaves)
}

/// Returns the number of branch pages above this number of leaves.
fn branches(leaves: usize) -> u64 {
    let mut count = 0;
    let mut level = leaves;
    while level > 1 {
        level = level.div_ceil(FAN_OUT);
        count += level as u64;
    }
    count
}

/// Returns the number of pages that content of this size takes.
fn pages(size: usize) -> u64 {
    size.div_ceil(PAGE) as u64
}

/// Writes pages one after the other.
struct Pages<'a, W> {
    out: &'a mut W,
    next: u64,
}

impl<W: Write> Pages<'_, W> {
    /// Pads and writes a page with those that it extends to.
    fn append(&mut self, mut page: Vec<u8>) -> io::Result<()> {
        page.resize(page.len().next_multiple_of(PAGE), 0);
        self.next += pages(page.len());
        self.out.write_all(&page)
    }

    /// Writes the leaves of a tree, and then each level of branches.
    fn append_tree(&mut self, leaves: &[Leaf], mut entries: Entries<'_>) -> io::Result<()> {
        let mut level = Vec::with_capacity(leaves.len());
        for planned in leaves {
            let elements = elements(entries.by_ref().take(planned.count));
            level.push(Child {
                key: elements.first().map(|first| first.key.clone()).unwrap_or_default(),
                id: self.next,
            });
            self.append(leaf(self.next, &elements)?)?;
        }
        while level.len() > 1 {
            // Evenly, because bbolt panics at a branch page with a single child when that child gets smaller.
            let (children, count) = (level.len(), level.len().div_ceil(FAN_OUT));
            let mut above = Vec::with_capacity(count);
            for index in 0..count {
                let children = &level[index * children / count..(index + 1) * children / count];
                above.push(Child { key: children[0].key.clone(), id: self.next });
                self.append(branch(self.next, children)?)?;
            }
            level = above;
        }
        Ok(())
    }
}

/// An element of a leaf page.
struct Element {
    flags: u32,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// An element of a branch page: a page and its first key.
struct Child {
    key: Vec<u8>,
    id: u64,
}

fn elements(entries: impl Iterator<Item = Entry>) -> Vec<Element> {
    entries.map(|(key, value)| Element { flags: 0, key, value }).collect()
}

fn leaf(id: u64, elements: &[Element]) -> io::Result<Vec<u8>> {
    let data = elements.iter().map(|element| element.key.len() + element.value.len()).sum::<usize>();
    let mut page = header(id, LEAF, elements.len(), HEADER + elements.len() * ELEMENT + data)?;
    let mut position = elements.len() * ELEMENT;
    for Element { flags, key, value } in elements {
        page.extend(flags.to_le_bytes());
        for number in [position, key.len(), value.len()] {
            page.extend(number_of(number)?.to_le_bytes());
        }
        position = position + key.len() + value.len() - ELEMENT;
    }
    for Element { key, value, .. } in elements {
        page.extend_from_slice(key);
        page.extend_from_slice(value);
    }
    Ok(page)
}

fn branch(id: u64, children: &[Child]) -> io::Result<Vec<u8>> {
    let data = children.iter().map(|child| child.key.len()).sum::<usize>();
    let mut page = header(id, BRANCH, children.len(), HEADER + children.len() * ELEMENT + data)?;
    let mut position = children.len() * ELEMENT;
    for Child { key, id } in children {
        for number in [position, key.len()] {
            page.extend(number_of(number)?.to_le_bytes());
        }
        page.extend(id.to_le_bytes());
        position = position + key.len() - ELEMENT;
    }
    children.iter().for_each(|child| page.extend_from_slice(&child.key));
    Ok(page)
}

/// Returns the header of a page that will have this size.
fn header(id: u64, flags: u16, count: usize, size: usize) -> io::Result<Vec<u8>> {
    let count = u16::try_from(count).map_err(|_| too_large("a page", count))?;
    let overflow = u32::try_from(pages(size) - 1).map_err(|_| too_large("a page", size))?;
    let mut page = Vec::with_capacity(size.next_multiple_of(PAGE));
    page.extend(id.to_le_bytes());
    page.extend(flags.to_le_bytes());
    page.extend(count.to_le_bytes());
    page.extend(overflow.to_le_bytes());
    Ok(page)
}

/// Returns a first page, or its copy. `root` is the root page, and `end` the number of pages.
fn meta(id: u64, transaction: u64, root: u64, end: u64) -> Vec<u8> {
    let mut page = [&id.to_le_bytes()[..], &META.to_le_bytes(), &[0; 6]].concat();
    page.extend(MAGIC.1);
    // Without flags.
    for number in [VERSION, PAGE as u32, 0] {
        page.extend(number.to_le_bytes());
    }
    let sequence = 0;
    for number in [root, sequence, FREELIST_PAGE, end, transaction] {
        page.extend(number.to_le_bytes());
    }
    debug_assert_eq!(page.len(), CHECKED, "the checksum covers what precedes it");
    page.extend(fnv1a(&page[HEADER..]).to_le_bytes());
    page
}

fn number_of(size: usize) -> io::Result<u32> {
    u32::try_from(size).map_err(|_| too_large("an entry", size))
}

fn too_large(what: &str, size: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what} of size {size} is too large for a database of etcd"))
}
