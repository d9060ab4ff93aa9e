//! Entries of tree objects, and their differences.

use std::cmp::Ordering;

use git2::Oid;

use super::TreeError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// A commit of another repository, whose objects are not in this one.
    Submodule,
    Other,
}

pub(super) struct Item<'t> {
    pub(super) kind: Kind,
    /// Whether it uses an old mode that Git reads but no longer writes.
    pub(super) is_old: bool,
    pub(super) name: &'t [u8],
    pub(super) oid: Oid,
}

/// Entries that another tree lacks or has otherwise.
pub(super) type Items = Vec<(Kind, Vec<u8>, Oid)>;

pub(super) fn parse(oid: Oid, data: &[u8]) -> Result<Vec<Item<'_>>, TreeError> {
    let malformed = || TreeError { oid, problem: "it is malformed".into() };
    let mut items = Vec::with_capacity(data.len() / 40);
    let mut rest = data;
    while !rest.is_empty() {
        let space = rest.iter().take(8).position(|byte| *byte == b' ').ok_or_else(malformed)?;
        let name_end = space + 1 + rest[space + 1..].iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
        let id = rest.get(name_end + 1..name_end + 21).ok_or_else(malformed)?;
        let mode = &rest[..space];
        let kind = match mode {
            // Very old programs wrote the second form.
            b"40000" | b"040000" => Kind::Directory,
            b"160000" => Kind::Submodule,
            b"100644" | b"100755" | b"100664" => Kind::File,
            _ => Kind::Other,
        };
        let oid = Oid::from_bytes(id).map_err(|_| malformed())?;
        let is_old = mode == b"040000" || mode == b"100664";
        items.push(Item { kind, is_old, name: &rest[space + 1..name_end], oid });
        rest = &rest[name_end + 21..];
    }
    Ok(items)
}

/// Returns the first entry with this name and kind.
pub(super) fn entry(oid: Oid, data: &[u8], name: &[u8], kind: Kind) -> Result<Option<Oid>, TreeError> {
    let malformed = || TreeError { oid, problem: "it is malformed".into() };
    let (mut at, end) = (0, data.len());
    while at < end {
        let space = data[at..].iter().take(8).position(|byte| *byte == b' ').ok_or_else(malformed)?;
        let begin = at + space + 1;
        let next = entry_end(data, at).ok_or_else(malformed)?;
        let found = data.get(begin..next - 21).ok_or_else(malformed)?;
        if found == name && parse(oid, &data[at..next])?[0].kind == kind {
            return Oid::from_bytes(&data[next - 20..next]).map(Some).map_err(|_| malformed());
        }
        at = next;
    }
    Ok(None)
}

/// Compares in Git's order: directories as if their names ended with a slash.
pub(super) fn compare(one: &Item<'_>, other: &Item<'_>) -> Ordering {
    let end = |item: &Item<'_>| (item.kind == Kind::Directory).then_some(b'/');
    one.name.iter().copied().chain(end(one)).cmp(other.name.iter().copied().chain(end(other)))
}

/// Returns the entries of each tree that the other lacks or has otherwise. Equal entries, nearly all, are skipped without a copy.
pub(super) fn differing(one: &[Item<'_>], other: &[Item<'_>]) -> (Items, Items) {
    let owned = |item: &Item<'_>| (item.kind, item.name.to_vec(), item.oid);
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    let (mut at, mut by) = (0, 0);
    loop {
        match (one.get(at), other.get(by)) {
            (None, None) => return (removed, added),
            (Some(item), None) => {
                removed.push(owned(item));
                at += 1;
            }
            (None, Some(item)) => {
                added.push(owned(item));
                by += 1;
            }
            (Some(before), Some(after)) => match compare(before, after) {
                Ordering::Less => {
                    removed.push(owned(before));
                    at += 1;
                }
                Ordering::Greater => {
                    added.push(owned(after));
                    by += 1;
                }
                Ordering::Equal => {
                    if before.oid != after.oid || before.kind != after.kind {
                        removed.push(owned(before));
                        added.push(owned(after));
                    }
                    at += 1;
                    by += 1;
                }
            },
        }
    }
}

/// Returns both tree objects without their common entries at the start and at the end: typically one of ten thousand entries has
/// changed.
pub(super) fn apart<'t>(one: &'t [u8], other: &'t [u8]) -> (&'t [u8], &'t [u8]) {
    let (mut start, same) = (0, common_start(one, other));
    while let Some(end) = entry_end(one, start).filter(|end| *end <= same) {
        start = end;
    }
    let (one, other) = (&one[start..], &other[start..]);
    let tail = common_start_reversed(one, other);
    let (mut at, mut by) = (0, 0);
    // Advance to a point in each from which the entries are equal.
    loop {
        let (left, right) = (one.len() - at, other.len() - by);
        if left == right && left <= tail {
            return (&one[..at], &other[..by]);
        }
        let moved = if left >= right {
            entry_end(one, at).map(|end| at = end)
        } else {
            entry_end(other, by).map(|end| by = end)
        };
        if moved.is_none() {
            // The parser reports what is wrong.
            return (one, other);
        }
    }
}

/// Returns the end of the entry that starts at `at`.
fn entry_end(tree: &[u8], at: usize) -> Option<usize> {
    let name = at + 1 + tree.get(at..)?.iter().position(|byte| *byte == 0)?;
    Some(name + 20).filter(|end| *end <= tree.len())
}

const CHUNK: usize = 64;

fn common_start(one: &[u8], other: &[u8]) -> usize {
    let equal = one.chunks_exact(CHUNK).zip(other.chunks_exact(CHUNK)).take_while(|(one, other)| one == other).count();
    let at = equal * CHUNK;
    at + one[at..].iter().zip(&other[at..]).take_while(|(one, other)| one == other).count()
}

fn common_start_reversed(one: &[u8], other: &[u8]) -> usize {
    let chunks = one.rchunks_exact(CHUNK).zip(other.rchunks_exact(CHUNK));
    let equal = chunks.take_while(|(one, other)| one == other).count() * CHUNK;
    let rest = one[..one.len() - equal].iter().rev().zip(other[..other.len() - equal].iter().rev());
    equal + rest.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(entries: &std::collections::BTreeMap<String, u8>) -> Vec<u8> {
        // IDs that look like names, modes and ends of names.
        let id = |value: u8| [[0; 20], [b'1'; 20], *b"100644 a\0 100644 b\0\0", [b'a'; 20]][usize::from(value)];
        entries.iter().flat_map(|(name, value)| [b"100644 ", name.as_bytes(), b"\0", &id(*value)].concat()).collect()
    }

    proptest! {
        #[test]
        fn what_both_begin_and_end_with_makes_no_difference(
            one in proptest::collection::btree_map("[ab1]{1,3}", 0..4_u8, 0..9),
            other in proptest::collection::btree_map("[ab1]{1,3}", 0..4_u8, 0..9),
        ) {
            let (one, other) = (tree(&one), tree(&other));
            let all = |one: &[u8], other: &[u8]| {
                let parse = |tree| parse(Oid::ZERO_SHA1, tree);
                Ok::<_, TreeError>(differing(&parse(one)?, &parse(other)?))
            };
            let (left, right) = apart(&one, &other);
            prop_assert_eq!(all(left, right).unwrap(), all(&one, &other).unwrap());
            prop_assert!(one != other || left.is_empty() && right.is_empty());
        }
    }

    #[test]
    fn of_many_entries_only_those_around_a_change_are_left_and_what_is_malformed_stays() {
        let mut entries: std::collections::BTreeMap<_, _> = (0..1000).map(|n| (format!("{n:04}"), 1)).collect();
        let one = tree(&entries);
        entries.insert("0500".into(), 3);
        entries.remove("0501");
        let other = tree(&entries);
        let (left, right) = apart(&one, &other);
        assert_eq!((left.len(), right.len()), (2 * 32, 32));
        let cut = &other[..other.len() - 3];
        let (_, right) = apart(&one, cut);
        assert!(parse(Oid::ZERO_SHA1, right).is_err());
    }
}
