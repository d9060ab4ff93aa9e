//! Git's delta encoding: a new version of an object as copies from the old one and inserted bytes.
//!
//! There are two sources of deltas: [`Edits`] collects changes at known positions (so that a directory of ten thousand entries is
//! never compared), and [`between`] compares two versions of a value.
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Most bytes that one copy instruction can copy (three size bytes).
const MAX_COPY: usize = 0xff_ffff;
/// Most bytes that one insert instruction can carry.
const MAX_INSERT: usize = 0x7f;
/// A copy costs up to seven bytes, so shorter matches are inserted.
const MIN_COPY: usize = 8;
/// How many equal lines of the old version are considered for one line of the new one.
const MAX_CANDIDATES: usize = 8;

/// Changes of a byte string, as the parts that differ from its starting version.
///
/// A change costs a binary search, plus moving the later parts if the length changes.
#[derive(Debug, Default, Clone)]
pub(super) struct Edits {
    /// Sorted by position; no two touch.
    hunks: Vec<Hunk>,
}

/// `old[old_at..][..old_len]` was replaced by `new[new_at..][..new_len]`.
#[derive(Debug, Clone, Copy)]
struct Hunk {
    old_at: usize,
    old_len: usize,
    new_at: usize,
    new_len: usize,
}

impl Edits {
    /// Makes the current version the starting version.
    pub(super) fn clear(&mut self) {
        self.hunks.clear();
    }

    /// Records that `removed` bytes at `at` of the current version were replaced by `inserted` bytes.
    pub(super) fn splice(&mut self, at: usize, removed: usize, inserted: usize) {
        let end = at + removed;
        let first = self.hunks.partition_point(|h| h.new_at + h.new_len < at);
        let last = first + self.hunks[first..].partition_point(|h| h.new_at <= end);
        let merged = if first == last {
            let old_at = match first.checked_sub(1).map(|before| self.hunks[before]) {
                Some(h) => h.old_at + h.old_len + (at - (h.new_at + h.new_len)),
                None => at,
            };
            Hunk { old_at, old_len: removed, new_at: at, new_len: inserted }
        } else {
            let (low, high) = (self.hunks[first], self.hunks[last - 1]);
            let new_at = low.new_at.min(at);
            let high_end = high.new_at + high.new_len;
            let new_end = high_end.max(end);
            let old_at = low.old_at - (low.new_at - new_at);
            let old_end = high.old_at + high.old_len + (new_end - high_end);
            Hunk { old_at, old_len: old_end - old_at, new_at, new_len: new_end - new_at - removed + inserted }
        };
        match last - first {
            1 => self.hunks[first] = merged,
            _ => drop(self.hunks.splice(first..last, [merged])),
        }
        if removed != inserted {
            for hunk in &mut self.hunks[first + 1..] {
                hunk.new_at = hunk.new_at + inserted - removed;
            }
        }
    }

    /// Appends the delta from the starting version (of `old_len` bytes) to `new` to `out`.
    pub(super) fn encode(&self, old_len: usize, new: &[u8], out: &mut Vec<u8>) {
        header(old_len, new.len(), out);
        let mut done = 0;
        for hunk in &self.hunks {
            copy(done, hunk.old_at - done, out);
            insert(&new[hunk.new_at..hunk.new_at + hunk.new_len], out);
            done = hunk.old_at + hunk.old_len;
        }
        copy(done, old_len - done, out);
    }
}

/// Appends a delta from `old` to `new` to `out`: common start and end by bytes, the rest by lines.
///
/// Effective for pretty-printed JSON with a few changed lines; correct for any bytes. Takes time in proportion to the two
/// lengths.
pub(super) fn between(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    header(old.len(), new.len(), out);
    let head = common(old.iter(), new.iter());
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = common(old_rest.iter().rev(), new_rest.iter().rev());
    let mut program = Program { old, new, start: 0, len: 0, copied_to: 0, out };
    program.keep(0, 0, head);
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    if head < old_end && head < new_end {
        lines(&mut program, head..old_end, head..new_end);
    }
    program.keep(old_end, new_end, tail);
    program.finish();
}

/// Does the same for two versions of a tree: entry by entry, in Git's order. Correct for any bytes; takes time in proportion to
/// the two lengths.
pub(super) fn trees(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    header(old.len(), new.len(), out);
    let mut program = Program { old, new, start: 0, len: 0, copied_to: 0, out };
    let (mut before, mut after) = (entry(old, 0), entry(new, 0));
    while let (Some(one), Some(other)) = (&before, &after) {
        match one.place(old).cmp(other.place(new)) {
            Ordering::Less => before = entry(old, one.end),
            Ordering::Greater => after = entry(new, other.end),
            Ordering::Equal => {
                let (was, is) = (&old[one.start..one.end], &new[other.start..other.end]);
                // Nearly always only the ID has changed.
                let same = if was == is { is.len() } else { common(was.iter(), is.iter()) };
                if same > 0 {
                    program.keep(one.start, other.start, same);
                }
                (before, after) = (entry(old, one.end), entry(new, other.end));
            }
        }
    }
    program.finish();
}

/// Position of a tree's entry: `mode name NUL id`.
struct Entry {
    start: usize,
    name: usize,
    nul: usize,
    end: usize,
}

impl Entry {
    /// Returns the sort key of the entry.
    fn place<'t>(&self, tree: &'t [u8]) -> impl Iterator<Item = &'t u8> + use<'t> {
        let is_directory = tree[self.start] == b'4';
        tree[self.name..self.nul].iter().chain(is_directory.then_some(&b'/'))
    }
}

/// Parses the entry that starts here; `None` at the end, or if it is malformed.
fn entry(tree: &[u8], start: usize) -> Option<Entry> {
    let rest = tree.get(start..)?;
    let name = start + rest.iter().take(8).position(|byte| *byte == b' ')? + 1;
    let nul = name + tree[name..].iter().position(|byte| *byte == 0)?;
    let end = nul + 21;
    (end <= tree.len()).then_some(Entry { start, name, nul, end })
}

fn common<'a>(old: impl Iterator<Item = &'a u8>, new: impl Iterator<Item = &'a u8>) -> usize {
    old.zip(new).take_while(|(a, b)| a == b).count()
}

/// Matches lines of `new[new_part]` in `old[old_part]`: first where the last match ended, then anywhere.
fn lines(program: &mut Program<'_>, old_part: std::ops::Range<usize>, new_part: std::ops::Range<usize>) {
    let mut places: HashMap<&[u8], Vec<usize>, BuildHasherDefault<DefaultHasher>> = HashMap::default();
    let mut at = old_part.start;
    for line in program.old[old_part.clone()].split_inclusive(|b| *b == b'\n') {
        let found = places.entry(line).or_default();
        if found.len() < MAX_CANDIDATES {
            found.push(at);
        }
        at += line.len();
    }
    let (mut at, mut cursor) = (new_part.start, old_part.start);
    for line in program.new[new_part].split_inclusive(|b| *b == b'\n') {
        let here = &program.old[cursor..old_part.end];
        let found = if here.starts_with(line) {
            Some(cursor)
        } else {
            let candidates = places.get(line).map_or(&[][..], Vec::as_slice);
            // The nearest line ahead keeps both versions in step.
            candidates.iter().find(|place| **place >= cursor).or(candidates.first()).copied()
        };
        if let Some(place) = found {
            program.keep(place, at, line.len());
            cursor = place + line.len();
        } else {
            // Treat it as a changed line: the next line probably follows the old one.
            cursor += here.iter().position(|b| *b == b'\n').map_or(here.len(), |end| end + 1);
        }
        at += line.len();
    }
}

/// Turns matches, given in the order of the new version, into instructions.
struct Program<'a> {
    old: &'a [u8],
    new: &'a [u8],
    /// The pending match: `old[start..start + len]`.
    start: usize,
    len: usize,
    /// The new version before this position is in `out`; the pending match starts here.
    copied_to: usize,
    out: &'a mut Vec<u8>,
}

impl Program<'_> {
    fn keep(&mut self, old_at: usize, new_at: usize, len: usize) {
        if self.len > 0 && self.start + self.len == old_at && self.copied_to + self.len == new_at {
            self.len += len;
            return;
        }
        self.emit(new_at);
        (self.start, self.len) = (old_at, len);
    }

    /// Writes the pending match, and the new bytes between its end and `until`.
    fn emit(&mut self, until: usize) {
        if self.len >= MIN_COPY {
            copy(self.start, self.len, self.out);
            self.copied_to += self.len;
        }
        // A match that is too short to copy becomes part of the inserted bytes.
        insert(&self.new[self.copied_to..until], self.out);
        self.copied_to = until;
        self.len = 0;
    }

    fn finish(mut self) {
        debug_assert!(self.start + self.len <= self.old.len());
        self.emit(self.new.len());
    }
}

fn header(old_len: usize, new_len: usize, out: &mut Vec<u8>) {
    for mut length in [old_len, new_len] {
        while length > 0x7f {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
    }
}

fn copy(mut at: usize, mut len: usize, out: &mut Vec<u8>) {
    while len > 0 {
        let part = len.min(MAX_COPY);
        let opcode_at = out.len();
        out.push(0);
        let mut opcode = 0x80;
        for (bit, byte) in (at as u32).to_le_bytes().into_iter().enumerate() {
            if byte != 0 {
                opcode |= 1 << bit;
                out.push(byte);
            }
        }
        for (bit, byte) in (part as u32).to_le_bytes().into_iter().take(3).enumerate() {
            if byte != 0 {
                opcode |= 0x10 << bit;
                out.push(byte);
            }
        }
        out[opcode_at] = opcode;
        at += part;
        len -= part;
    }
}

fn insert(bytes: &[u8], out: &mut Vec<u8>) {
    for part in bytes.chunks(MAX_INSERT) {
        out.push(part.len() as u8);
        out.extend_from_slice(part);
    }
}

/// Applies a delta to `old`; `None` if it does not fit `old` or is malformed.
///
/// gitcd reads through libgit2; tests use this to check the encoder.
#[cfg(test)]
fn apply(old: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = delta.iter().copied();
    let mut length = || {
        let (mut value, mut shift) = (0usize, 0);
        loop {
            let byte = bytes.next()?;
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return Some(value);
            }
        }
    };
    let (old_len, new_len) = (length()?, length()?);
    let mut new = Vec::with_capacity(new_len);
    while let Some(opcode) = bytes.next() {
        if opcode & 0x80 == 0 {
            for _ in 0..opcode {
                new.push(bytes.next()?);
            }
            continue;
        }
        let (mut at, mut len) = (0usize, 0usize);
        if opcode & 0x70 == 0 {
            len = 0x1_0000;
        }
        for bit in 0..7 {
            if opcode & (1 << bit) != 0 {
                let byte = usize::from(bytes.next()?);
                match bit {
                    0..4 => at |= byte << (8 * bit),
                    _ => len |= byte << (8 * (bit - 4)),
                }
            }
        }
        new.extend_from_slice(old.get(at..at.checked_add(len)?)?);
    }
    (old_len == old.len() && new_len == new.len()).then_some(new)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha1::{Digest as _, Sha1};

    use super::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof!["  \"[a-c]\": [0-9]{1,12},\n", "  \\}\n", "[a-z]{0,20}\n", "x"];
        proptest::collection::vec(line, 0..20).prop_map(|lines| lines.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn a_delta_between_any_two_texts_gives_the_second(old in text(), new in text()) {
            let mut delta = Vec::new();
            between(&old, &new, &mut delta);
            prop_assert_eq!(apply(&old, &delta), Some(new));
        }

        #[test]
        fn edits_give_the_same_bytes_as_the_splices_they_record(
            old in proptest::collection::vec(any::<u8>(), 0..200),
            splices in proptest::collection::vec((any::<prop::sample::Index>(), 0..30usize, proptest::collection::vec(any::<u8>(), 0..30)), 0..20),
        ) {
            let mut new = old.clone();
            let mut edits = Edits::default();
            for (at, removed, inserted) in splices {
                let at = at.index(new.len() + 1);
                let removed = removed.min(new.len() - at);
                edits.splice(at, removed, inserted.len());
                new.splice(at..at + removed, inserted);
            }
            let mut delta = Vec::new();
            edits.encode(old.len(), &new, &mut delta);
            prop_assert_eq!(apply(&old, &delta), Some(new));
        }
    }

    fn tree() -> impl Strategy<Value = Vec<u8>> {
        let entry = ("[a-c]{1,3}", prop_oneof![Just("100644"), Just("40000")], 0..3_u8);
        proptest::collection::btree_map("[a-d]{1,3}", entry, 0..40).prop_map(|entries| {
            let entry = |(name, (_, mode, id)): (String, (String, &str, u8))| {
                [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &[id; 20]].concat()
            };
            entries.into_iter().flat_map(entry).collect()
        })
    }

    proptest! {
        #[test]
        fn a_delta_between_any_two_trees_gives_the_second(old in tree(), new in tree()) {
            let mut delta = Vec::new();
            trees(&old, &new, &mut delta);
            prop_assert_eq!(apply(&old, &delta), Some(new));
        }

        #[test]
        fn what_is_no_tree_is_right_too(
            old in proptest::collection::vec(0..50_u8, 0..100), new in proptest::collection::vec(0..50_u8, 0..100)
        ) {
            let mut delta = Vec::new();
            trees(&old, &new, &mut delta);
            prop_assert_eq!(apply(&old, &delta), Some(new));
        }
    }

    #[test]
    fn a_changed_entry_of_a_tree_costs_its_id() {
        let tree = |changed: usize| {
            let entry = |n: usize| {
                let id = Sha1::digest(format!("{n} {}", n % 97 == changed));
                [b"100644 ", format!("name{n:05}").as_bytes(), b"\0", &id].concat()
            };
            (0..10_000).flat_map(entry).collect::<Vec<u8>>()
        };
        let (old, new) = (tree(200), tree(5));
        let mut delta = Vec::new();
        trees(&old, &new, &mut delta);
        assert!(delta.len() < 104 * 32, "{} bytes", delta.len());
        assert_eq!(apply(&old, &delta), Some(new));
    }

    #[test]
    fn a_copy_longer_than_one_instruction_is_split() {
        let mut old = vec![7u8; MAX_COPY + 300];
        old[MAX_COPY] = 9;
        let mut new = old.clone();
        new.push(1);
        let mut delta = Vec::new();
        between(&old, &new, &mut delta);
        assert!(delta.len() < 40, "{} bytes", delta.len());
        assert_eq!(apply(&old, &delta), Some(new));
    }

    #[test]
    fn several_changed_lines_cost_little_more_than_the_lines() {
        let lines: Vec<String> = (0..100).map(|n| format!("  \"field{n}\": {n},\n")).collect();
        let old = lines.concat();
        let new = old.replace("\"field10\": 10", "\"field10\": 7777").replace("\"field90\": 90", "\"field90\": 8888");
        let mut delta = Vec::new();
        between(old.as_bytes(), new.as_bytes(), &mut delta);
        assert!(delta.len() < 80, "{} bytes", delta.len());
        assert_eq!(apply(old.as_bytes(), &delta), Some(new.into_bytes()));
    }
}
