//! What is known of a commit that wrote fields: who, when, and on which branch.

use git2::Oid;
use gitcd_repo::history_link::HistoryLink;
use gitcd_repo::lookup::Lookup;

use super::flushes::Flushes;
use super::walk::Maker;
use crate::flush::Flush;
use crate::who::Who;
use crate::{CommitInfo, History, HistoryError, Revisions};

/// A commit that wrote fields.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The commit.
    pub commit: CommitInfo,
    /// Its revisions on this branch, if known.
    pub revisions: Option<Revisions>,
    /// Who made the change.
    pub who: Who,
    /// The branch that has the commit on its own line: this branch, or the only other reference that has it in its history, or the
    /// name of the gitcd that made the commit. `None` if none of these is known.
    pub branch: Option<String>,
    /// Whether this branch made the commit.
    pub is_own: bool,
    /// Whether a shallow clone ends here, so that an earlier commit may have written the fields.
    pub is_boundary: bool,
}

/// Limit on other references in which commits are searched for.
const REFERENCES: usize = 16;

impl History {
    pub(super) fn origin(&self, key: &[u8], maker: &Maker, flushes: &mut Flushes<'_>) -> Result<Origin, HistoryError> {
        let Maker { commit, values, flush, is_boundary } = maker;
        let mut bytes = Vec::new();
        for value in values {
            bytes.push(value.map(|blob| self.value(blob, None)).transpose()?);
        }
        let bytes: [Option<&[u8]>; 2] = [bytes[0].as_deref(), bytes[1].as_deref()];
        // Of a merge, the managers of both sides changed the object.
        let who = Who::of(commit, if commit.parents.len() > 1 { [None, None] } else { bytes });
        let commit = CommitInfo::clone(commit);
        let (is_own, revisions) = match flush {
            Some(at) => self.on_this_branch(key, &commit, *at, flushes)?,
            None => (false, None),
        };
        let branch =
            if is_own { Some(short(&self.config.data_reference).to_owned()) } else { self.other_branch(&commit)? };
        Ok(Origin { commit, revisions, who, branch, is_own, is_boundary: *is_boundary })
    }

    /// Returns whether a commit is this branch's own, and its revisions here, given the flush with which it came.
    fn on_this_branch(
        &self,
        key: &[u8],
        commit: &CommitInfo,
        at: usize,
        flushes: &mut Flushes<'_>,
    ) -> Result<(bool, Option<Revisions>), HistoryError> {
        let odb = self.odb()?;
        let older = flushes.get(&odb, at + 1)?.cloned();
        let Some(newer) = flushes.get(&odb, at)?.cloned() else { return Ok((false, None)) };
        if newer.metadata == commit.oid {
            return Ok((true, self.only_revision(key, older.as_ref(), &newer)?));
        }
        let is_adopted = newer.joins.iter().any(|join| matches!(join, HistoryLink::Adopted { .. }));
        let is_linear = older.is_some() && newer.joins.is_empty();
        let (is_own, revisions) = if is_linear {
            (true, commit.revisions())
        } else if is_adopted {
            (false, None)
        } else {
            let steps = self.line(&odb, older.as_ref(), Some(&newer), newer.data, usize::MAX)?;
            let step = steps.iter().find(|step| step.commit.oid == commit.oid);
            let is_merged = |step: &&crate::line::Step| step.commit.parents.len() > 1;
            (
                step.is_some_and(|step| step.revisions().is_some() || is_merged(&step)),
                step.and_then(crate::line::Step::revisions),
            )
        };
        if revisions.is_some_and(|own| own.first == own.last) {
            return Ok((is_own, revisions));
        }
        Ok((is_own, self.only_revision(key, older.as_ref(), &newer)?.or(revisions)))
    }

    /// Returns the revision of the change of a key between two flushes, if there is only one.
    fn only_revision(
        &self,
        key: &[u8],
        older: Option<&Flush>,
        newer: &Flush,
    ) -> Result<Option<Revisions>, HistoryError> {
        let (odb, mut lookup) = (self.odb()?, Lookup::new(key));
        let Some(now) = crate::known(&mut lookup, &odb, newer)? else { return Ok(None) };
        let before = match older {
            Some(older) => crate::known(&mut lookup, &odb, older)?,
            None => None,
        };
        let (now, before) = (now.record, before.map(|before| before.record));
        let is_only = match before {
            Some(before) => before.create_revision == now.create_revision && now.version == before.version + 1,
            None => now.version == 1 && older.is_some(),
        };
        Ok(is_only.then_some(Revisions { first: now.mod_revision, last: now.mod_revision }))
    }

    /// Returns the name of the branch of a commit that this branch did not make.
    fn other_branch(&self, commit: &CommitInfo) -> Result<Option<String>, HistoryError> {
        let failed = |error: git2::Error| HistoryError::object(commit.oid, error.message());
        let mut tips: Vec<(String, Oid)> = Vec::new();
        for pattern in ["refs/heads/*", "refs/remotes/*"] {
            for reference in self.repository.references_glob(pattern).map_err(failed)?.flatten() {
                if let (Ok(name), Some(tip)) = (reference.name(), reference.target())
                    && name != self.config.data_reference
                    && name != self.config.metadata_reference
                {
                    tips.push((short(name).to_owned(), tip));
                }
            }
        }
        let by_store = Some(commit.author.clone()).filter(|_| commit.revisions().is_some());
        if tips.len() > REFERENCES {
            return Ok(by_store);
        }
        let has = |tip: Oid| tip == commit.oid || self.repository.graph_descendant_of(tip, commit.oid).unwrap_or(false);
        let mut having = tips.into_iter().filter(|(_, tip)| has(*tip)).map(|(name, _)| name);
        Ok(match (having.next(), having.next()) {
            (Some(only), None) => Some(only),
            _ => by_store,
        })
    }
}

/// Returns the name of a reference as Git prints it.
fn short(reference: &str) -> &str {
    let kinds = ["refs/heads/", "refs/remotes/", "refs/"];
    kinds.iter().find_map(|kind| reference.strip_prefix(kind)).unwrap_or(reference)
}
