//! Blame of keys that are stored with the metadata, each version with its flush.

use std::rc::Rc;

use git2::Oid;
use gitcd_repo::lookup::Lookup;

use super::carry::Fields;
use super::flushes::Flushes;
use super::versions::Versions;
use super::walk::{Walked, missing};
use crate::flush::Flush;
use crate::moment::Stored;
use crate::versions::local;
use crate::{CommitInfo, History, HistoryError};

impl History {
    /// Finds the metadata commits that wrote the fields of a key outside the prefix. Reads one small commit for each flush, and the
    /// key's record at each version.
    pub(super) fn walk_local(
        &self,
        key: &[u8],
        stored: &Stored,
        mut fields: Fields,
        flushes: &mut Flushes<'_>,
        versions: &mut Versions<'_>,
    ) -> Result<Walked, HistoryError> {
        let odb = self.odb()?;
        let (mut walked, mut lookup) = (Walked::default(), Lookup::new(key));
        let mut at = 0;
        while flushes.get(&odb, at)?.is_some_and(|flush| flush.metadata != stored.commit) {
            at += 1;
        }
        let mut blob = stored.blob;
        while let Some(newer) = flushes.get(&odb, at)?.cloned() {
            let known = crate::known(&mut lookup, &odb, &newer)?.map(|known| known.record);
            let since = known.map(|record| record.mod_revision);
            // The first flush that has this version.
            while let Some(older) = flushes.get(&odb, at + 1)?
                && since.is_some_and(|since| (since..=newer.revision).contains(&older.revision))
            {
                at += 1;
            }
            let Some(first) = flushes.get(&odb, at)?.cloned() else { break };
            let older = flushes.get(&odb, at + 1)?.cloned();
            let is_boundary = older.is_none() && first.previous.is_some();
            // The key may have been deleted and created again between the two.
            let is_new = |older: &Flush| known.is_some_and(|record| record.create_revision > older.revision);
            let older = older.filter(|older| !is_new(older)).map(|older| older.tree);
            let before: Option<Oid> = older.map(|older| local(&self.repository, older, key)).transpose()?.flatten();
            let carried = versions.carried(blob, before, &fields)?;
            let commit = Rc::new(CommitInfo::read(&odb, first.metadata)?);
            walked.blame(&commit, [before, Some(blob)], missing(&fields, &carried), Some(at), is_boundary);
            match before {
                Some(before) if !carried.is_empty() => (blob, fields, at) = (before, carried, at + 1),
                _ => break,
            }
        }
        Ok(walked)
    }
}
