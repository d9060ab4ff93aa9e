//! The exact record and value of one key.

use git2::Oid;
use gitcd_core::keyspace::Placement;
use gitcd_merge::form::{self, Form};
use gitcd_repo::branch::Record;
use gitcd_repo::lookup::{Known, Lookup};
use gitcd_repo::{changes, object};

use super::super::named::Named;
use super::super::versions::local;
use super::super::{CommitInfo, History, HistoryError, known};
use super::{ExactError, ExactMoment, Flush, Window};

/// What a store knew of a key at a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactRecord {
    /// The revision that created the key.
    pub create_revision: i64,
    /// The revision that last wrote it.
    pub mod_revision: i64,
    /// The number of writes since the creation.
    pub version: i64,
    /// Its lease; 0 for none.
    pub lease: i64,
    form: Form,
}

impl ExactRecord {
    fn of(known: Known) -> Self {
        let Known { record, form, .. } = known;
        Self {
            create_revision: record.create_revision,
            mod_revision: record.mod_revision,
            version: record.version,
            lease: record.lease,
            form,
        }
    }
}

impl History {
    /// Returns the record of a whole key and the blob of its value; `None` if the key did not exist. Reads a few small objects,
    /// and between two flushes the names of the keys in each commit.
    ///
    /// # Errors
    /// [`ExactError`].
    pub fn exact_key(&self, moment: &ExactMoment, key: &[u8]) -> Result<Option<(ExactRecord, Oid)>, ExactError> {
        if self.config.keys.placement(key) == Placement::Ephemeral {
            return Err(ExactError::Ephemeral { what: shown(key) });
        }
        let Some((flush, known)) = self.exact_flush(moment, key)? else { return Ok(None) };
        let blob = self.stored_at(flush, key, known)?;
        Ok(Some((ExactRecord::of(known), blob)))
    }

    /// Returns the record of a whole key that exists.
    ///
    /// # Errors
    /// [`ExactError`].
    pub fn exact_record(&self, moment: &ExactMoment, key: &[u8]) -> Result<ExactRecord, ExactError> {
        let found = self.exact_flush(moment, key)?;
        let missing = || HistoryError::object(moment.older.metadata, format!("it has no record of {}", shown(key)));
        Ok(found.map(|(_, known)| ExactRecord::of(known)).ok_or_else(missing)?)
    }

    /// Returns the value of a key, as it was put.
    ///
    /// # Errors
    /// [`HistoryError`] if the blob does not exist, or is not in the form of the record.
    pub fn exact_value(&self, record: &ExactRecord, blob: Oid) -> Result<Vec<u8>, HistoryError> {
        self.proceed()?;
        let odb = self.odb()?;
        let object = object::read(&odb, blob).map_err(|error| HistoryError::object(blob, error.message()))?;
        form::decode(record.form, object.data()).map_err(|error| HistoryError::object(blob, error))
    }

    /// Returns the flush whose record of the key is that at the moment, and the record; `None` if the key did not exist.
    fn exact_flush<'m>(&self, moment: &'m ExactMoment, key: &[u8]) -> Result<Option<(&'m Flush, Known)>, ExactError> {
        self.proceed()?;
        let odb = self.odb()?;
        let mut lookup = Lookup::new(key);
        let before = known(&mut lookup, &odb, &moment.older)?;
        let older = before.map(|before| (&moment.older, before));
        let Some(window) = &moment.window else { return Ok(older) };
        let after = known(&mut lookup, &odb, &window.newer)?;
        if let Some(after) = after.filter(|after| after.record.mod_revision <= moment.revision) {
            return Ok(Some((&window.newer, after)));
        }
        let is_next = |after: Known| before.is_some_and(|before| is_next(before.record, after.record));
        if after.is_some_and(is_next) {
            return Ok(older);
        }
        match self.relative(key).filter(|_| self.config.keys.placement(key) == Placement::Data) {
            Some(relative) if older.is_some() && is_untouched(window, relative) => Ok(older),
            Some(relative) if self.is_absent(window, relative)? => Ok(None),
            _ => Err(moment.unrecorded(shown(key))),
        }
    }

    /// Returns whether the tree at the revision is known, and lacks a key.
    fn is_absent(&self, window: &Window, relative: &[u8]) -> Result<bool, HistoryError> {
        let Some(tree) = window.tree else { return Ok(false) };
        Ok(changes::find(&self.repository, tree, relative)?.is_none())
    }

    /// Returns the blob of a key that a flush has.
    fn stored_at(&self, flush: &Flush, key: &[u8], known: Known) -> Result<Oid, HistoryError> {
        let found = match self.relative(key).filter(|_| !known.is_local) {
            Some(relative) => {
                let tree = CommitInfo::read(&self.odb()?, flush.data)?.tree;
                changes::find(&self.repository, tree, relative)?
            }
            None => local(&self.repository, flush.tree, key)?,
        };
        found.ok_or_else(|| HistoryError::object(flush.metadata, format!("it has no value of {}", shown(key))))
    }
}

/// Returns whether exactly one write is between two records of a key.
fn is_next(before: Record, after: Record) -> bool {
    before.create_revision == after.create_revision && before.version + 1 == after.version
}

/// Returns whether no commit up to the revision can have written a key that the earlier flush has. Every such write is in the
/// subject of a commit, also one that does not change the value.
fn is_untouched(window: &Window, relative: &[u8]) -> bool {
    let (Some(until), Some(named)) = (&window.until, Named::new(relative)) else {
        return window.until.as_ref().is_some_and(Vec::is_empty);
    };
    !until.iter().any(|step| step.may_have(&named))
}

/// Returns a key for people.
pub(super) fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(key))
}
