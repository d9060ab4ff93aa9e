//! The keys of a range at a revision.

use std::collections::BTreeMap;

use git2::Oid;
use gitcd_core::path;
use gitcd_repo::changes;

use super::super::{CommitInfo, History, HistoryError};
use super::record::shown;
use super::{ExactError, ExactMoment};

/// A half-open range of whole keys; unbounded without an end.
#[derive(Clone, Copy, Debug)]
pub struct KeyBounds<'k> {
    /// The first key.
    pub start: &'k [u8],
    /// The first key after it.
    pub end: Option<&'k [u8]>,
}

impl KeyBounds<'_> {
    fn has(&self, key: &[u8]) -> bool {
        key >= self.start && self.end.is_none_or(|end| key < end)
    }

    fn meets(&self, start: &[u8], end: Option<&[u8]>) -> bool {
        end.is_none_or(|end| self.start < end) && self.end.is_none_or(|own| start < own)
    }

    /// Returns the longest string that all keys of the range start with.
    fn common(&self) -> &[u8] {
        let Some(end) = self.end else { return b"" };
        let same = self.start.iter().zip(end).take_while(|(one, other)| one == other).count();
        // A range of one prefix ends with the next byte at the end of the prefix.
        let is_prefix =
            end.len() == same + 1 && self.start.get(same).is_some_and(|byte| byte.checked_add(1) == Some(end[same]));
        &self.start[..if is_prefix { same + 1 } else { same }]
    }

    fn shown(&self) -> String {
        let end = self.end.map_or_else(|| "the last key".to_owned(), shown);
        format!("the keys from {} to {end}", shown(self.start))
    }
}

impl History {
    /// Returns all keys of a range that existed, with the blobs of their values.
    ///
    /// Reads the directories that contain the range.
    ///
    /// # Errors
    /// [`ExactError`].
    pub fn exact_keys(&self, moment: &ExactMoment, range: KeyBounds<'_>) -> Result<BTreeMap<Vec<u8>, Oid>, ExactError> {
        self.proceed()?;
        let ephemeral = self.config.keys.ephemeral_ranges();
        if ephemeral.iter().any(|(start, end)| range.meets(start, end.as_deref())) {
            return Err(ExactError::Ephemeral { what: range.shown() });
        }
        let is_data = range.common().starts_with(&self.config.keys.absolute(b""));
        let tree = match &moment.window {
            None => CommitInfo::read(&self.odb()?, moment.older.data)?.tree,
            // Keys outside the prefix may have been created and deleted in between.
            Some(window) => window.tree.filter(|_| is_data).ok_or_else(|| moment.unrecorded(range.shown()))?,
        };
        let mut keys = self.data_keys(tree, range)?;
        if !is_data {
            keys.extend(self.local_keys(moment.older.tree, range)?);
        }
        Ok(keys)
    }

    fn data_keys(&self, tree: Oid, range: KeyBounds<'_>) -> Result<BTreeMap<Vec<u8>, Oid>, HistoryError> {
        let common = self.relative(range.common()).unwrap_or_default();
        let folder = common.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |slash| &common[..=slash]);
        let Some(tree) = self.directory(tree, folder)? else { return Ok(BTreeMap::new()) };
        let whole = |below: Vec<u8>| self.config.keys.absolute(&[folder, &below].concat());
        Ok(within(self.all(tree)?, range, whole))
    }

    fn local_keys(&self, metadata: Oid, range: KeyBounds<'_>) -> Result<BTreeMap<Vec<u8>, Oid>, HistoryError> {
        match changes::any_entry(&self.odb()?, metadata, b"local")? {
            Some((true, tree)) => Ok(within(self.all(tree)?, range, |key| key)),
            _ => Ok(BTreeMap::new()),
        }
    }

    /// Returns everything below a tree.
    fn all(&self, tree: Oid) -> Result<changes::Changes, HistoryError> {
        changes::between_while(&self.repository, None, Some(tree), || self.proceed())
    }

    /// Returns the tree of a folder of keys, whose name ends with a slash or is empty.
    fn directory(&self, tree: Oid, folder: &[u8]) -> Result<Option<Oid>, HistoryError> {
        let odb = self.odb()?;
        let any = [folder, b"x"].concat();
        let mut names: Vec<_> = path::encode(&any).collect();
        names.pop();
        let mut tree = tree;
        for name in names {
            match changes::any_entry(&odb, tree, &name)? {
                Some((true, below)) => tree = below,
                _ => return Ok(None),
            }
        }
        Ok(Some(tree))
    }
}

/// Returns the keys of a tree that are in a range.
fn within(all: changes::Changes, range: KeyBounds<'_>, whole: impl Fn(Vec<u8>) -> Vec<u8>) -> BTreeMap<Vec<u8>, Oid> {
    let keys = all.keys.into_iter().filter_map(|(key, change)| Some((whole(key), change.to?)));
    keys.filter(|(key, _)| range.has(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_start_of_a_range_is_as_long_as_possible() {
        let common = |start: &'static [u8], end: Option<&'static [u8]>| KeyBounds { start, end }.common().to_vec();
        assert_eq!(common(b"/registry/pods/", Some(b"/registry/pods0")), b"/registry/pods/");
        assert_eq!(common(b"/registry/pods/n/b", Some(b"/registry/pods0")), b"/registry/pods/");
        assert_eq!(common(b"/a", Some(b"/c")), b"/");
        assert_eq!(common(b"/registry/pods/n/b", Some(b"/registry/pods/n/z")), b"/registry/pods/n/");
        assert_eq!(common(b"\0", None), b"");
        assert_eq!(common(b"/a/b", Some(b"/a/c")), b"/a/b");
        assert_eq!(common(b"/a/b", Some(b"/a/b\0")), b"/a/b");
    }
}
