//! Walks that end at the boundary of a history that gitcd cut.
//!
//! Every commit that is older than the boundary is removed or a part of the boundary itself (`docs/design/retention.md`). So a walk of
//! two histories that ends there is exact, unless both end there with commits that the other one does not have: then a common ancestor
//! may be beyond. In a clone with a limited depth, this is not known. There, a walk reads the parents that commits name, and fails if
//! one is missing.

use std::collections::{HashMap, HashSet};

use git2::{Odb, Oid, Repository};
use gitcd_core::scope::Scope;

use super::{Commit, Graph, GraphError, ONE, OTHER, none_left_out};
use crate::boundary::Boundary;

/// Which parents a graph shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ParentView {
    /// Those that were not cut off. A removed commit is an error.
    #[default]
    Kept,
    /// Those that were not cut off. A removed commit that is here is shown without parents.
    Here,
    /// All that commits name.
    All,
}

impl Graph {
    /// Forgets everything if the boundary was moved since it was read. Costs one `stat`.
    pub(super) fn refresh(&mut self, repository: &Repository) -> Result<(), GraphError> {
        let git_dir = repository.commondir();
        if self.boundary.as_ref().is_none_or(|boundary| boundary.is_outdated(git_dir)) {
            *self = Self { boundary: Some(Boundary::read(git_dir)?), parents: self.parents, ..Self::default() };
        }
        Ok(())
    }

    /// Fails if a commit was removed. Its object may still exist.
    pub(super) fn check_removed(&mut self, repository: &Repository, oid: Oid) -> Result<bool, GraphError> {
        if self.parents == ParentView::All {
            return Ok(false);
        }
        if self.boundary.is_none() {
            self.refresh(repository)?;
        }
        let Some(boundary) = &self.boundary else { return Ok(false) };
        let is_removed = boundary.removed(oid)?;
        if is_removed && self.parents == ParentView::Kept { Err(self.ended_at(oid)) } else { Ok(is_removed) }
    }

    /// Removes the parents of a commit on the boundary.
    pub(super) fn end_at_boundary(&self, oid: Oid, is_removed: bool, commit: &mut Commit) {
        let is_end = is_removed || self.ends_at(oid);
        if self.parents != ParentView::All && is_end && !commit.parents.is_empty() {
            commit.is_boundary = true;
            commit.parents.clear();
            commit.partial = None;
        }
    }

    /// Returns whether the repository has a boundary that gitcd made.
    pub fn is_cut(&self) -> bool {
        self.boundary.as_ref().is_some_and(|boundary| boundary.cut().is_some())
    }

    /// Returns the error for a walk that ends at this commit of the boundary.
    pub fn ended_at(&self, oid: Oid) -> GraphError {
        match self.boundary.as_ref().map_or(Ok(None), |boundary| boundary.cut_at(oid)) {
            Ok(Some(cut)) => GraphError::ended(oid, cut),
            Ok(None) => GraphError::unreadable(oid, "its parents are not here"),
            Err(error) => error.into(),
        }
    }

    /// Returns the error for a commit that cannot be read. A former boundary stays in the file `shallow` for a while after its objects
    /// were pruned; another branch that continues from it can send it again.
    pub(super) fn pruned_or(&self, error: GraphError, odb: &Odb<'_>, oid: Oid) -> GraphError {
        let Some(boundary) = self.boundary.as_ref().filter(|boundary| boundary.has(oid)) else { return error };
        let is_former = boundary.cut().is_some_and(|cut| cut.data != oid);
        if is_former && self.parents != ParentView::All && !odb.exists(oid) { self.ended_at(oid) } else { error }
    }

    /// Returns whether a commit is an ancestor of another one if a walk of both failed with this error. All commits beyond the boundary
    /// were removed or are on it. So one that is neither can be an ancestor only on this side.
    pub(super) fn is_kept_ancestor(
        &self,
        repository: &Repository,
        ancestor: Oid,
        commit: Oid,
        error: GraphError,
    ) -> Result<bool, GraphError> {
        let Some(boundary) = self.boundary.as_ref() else { return Err(error) };
        if boundary.has(ancestor) || boundary.removed(ancestor)? {
            return Err(error);
        }
        // If a removed commit is not here at all, the first error says more.
        let painted = Self::lenient().paint(repository, [ancestor, commit], &none_left_out);
        let Ok((_, flags)) = painted else { return Err(error) };
        Ok(flags[&ancestor] & OTHER != 0)
    }

    /// Marks the commits of the boundary as common that both histories have, although a walk finds them in one only: sides of a merge
    /// that began before the cut, and removed commits that were restored because another branch continues from them. They are before the
    /// cut, so a history that has the cut has them, unless merges beyond the boundary left keys out that are walked for.
    ///
    /// If there are such commits, reads the histories back to the cut.
    pub(super) fn share_ends(
        &mut self,
        repository: &Repository,
        tips: [Oid; 2],
        left_out: &impl Fn(&Scope) -> bool,
        flags: &mut HashMap<Oid, u8>,
    ) -> Result<(), GraphError> {
        let Some(boundary) = self.boundary.clone() else { return Ok(()) };
        if boundary.cuts().is_empty() || is_left_out_beyond(&boundary, left_out) {
            return Ok(());
        }
        for (number, cut) in boundary.cuts().iter().enumerate() {
            let mut shared = Vec::new();
            for oid in boundary.commits() {
                let is_single = flags.get(&oid).is_some_and(|flags| flags & (ONE | OTHER) != ONE | OTHER);
                if is_single && boundary.is_before_cut(number, oid)? {
                    shared.push(oid);
                }
            }
            if !shared.is_empty() && self.both_lead_to(repository, tips, cut.data, left_out)? {
                for oid in shared {
                    flags.entry(oid).and_modify(|flags| *flags |= ONE | OTHER);
                }
            }
        }
        Ok(())
    }

    /// Returns whether a commit on the boundary is an ancestor of another one: it is before the cut, which the other one has.
    pub(super) fn is_before_cut_of(
        &mut self,
        repository: &Repository,
        oid: Oid,
        other: Oid,
        left_out: &impl Fn(&Scope) -> bool,
    ) -> Result<bool, GraphError> {
        let Some(boundary) = self.boundary.clone() else { return Ok(false) };
        if !boundary.has(oid) || is_left_out_beyond(&boundary, left_out) {
            return Ok(false);
        }
        for (number, cut) in boundary.cuts().iter().enumerate() {
            if boundary.is_before_cut(number, oid)? && self.leads_to(repository, other, cut.data, left_out)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn both_lead_to(
        &mut self,
        repository: &Repository,
        tips: [Oid; 2],
        wanted: Oid,
        left_out: &impl Fn(&Scope) -> bool,
    ) -> Result<bool, GraphError> {
        for tip in tips {
            if !self.leads_to(repository, tip, wanted, left_out)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the history ends at this commit because gitcd cut it.
    pub(super) fn ends_at(&self, oid: Oid) -> bool {
        self.boundary.as_ref().is_some_and(|boundary| boundary.has(oid))
    }

    /// Returns whether a commit leads to another one, as far as the history and the clocks show that.
    fn leads_to(
        &mut self,
        repository: &Repository,
        tip: Oid,
        wanted: Oid,
        left_out: &impl Fn(&Scope) -> bool,
    ) -> Result<bool, GraphError> {
        let oldest = match self.commit(repository, wanted) {
            Ok(commit) => commit.time,
            // No reference leads to it any more.
            Err(_) => return Ok(false),
        };
        let (mut seen, mut waiting) = (HashSet::new(), vec![tip]);
        while let Some(oid) = waiting.pop() {
            if oid == wanted {
                return Ok(true);
            }
            if seen.insert(oid) {
                match self.commit(repository, oid) {
                    Ok(commit) if commit.time < oldest => {}
                    Ok(commit) => {
                        waiting.extend(commit.parents.iter().filter(|parent| !commit.leaves_out(**parent, left_out)));
                    }
                    Err(error) if error.is_cut() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(false)
    }

    /// Returns the commits of the boundary that are in one history only: those of the first, and those of the second.
    pub(super) fn ends(&self, flags: &HashMap<Oid, u8>) -> [Option<Oid>; 2] {
        let of = |side: u8| {
            let is_of = |oid: &Oid| flags.get(oid).is_some_and(|flags| flags & (ONE | OTHER) == side);
            self.boundary.iter().flat_map(Boundary::commits).find(is_of)
        };
        [of(ONE), of(OTHER)]
    }

    /// Fails if a common ancestor may be beyond the boundary.
    pub(super) fn check_ends(&self, flags: &HashMap<Oid, u8>) -> Result<(), GraphError> {
        match self.ends(flags) {
            [Some(oid), Some(_)] => Err(self.ended_at(oid)),
            _ => Ok(()),
        }
    }

    /// Fails if the first commit of a walk may be an ancestor of the second one beyond the boundary. For that, it must be on the
    /// boundary itself, because all ancestors of the boundary are removed or a part of it.
    pub(super) fn check_before_ends(&self, oid: Oid, flags: &HashMap<Oid, u8>) -> Result<(), GraphError> {
        let Some(boundary) = self.boundary.as_ref().filter(|boundary| boundary.has(oid)) else { return Ok(()) };
        let cut = boundary.cuts().iter().rposition(|cut| cut.data == oid);
        let is_theirs = |end: &Oid| flags.get(end).is_some_and(|flags| flags & (ONE | OTHER) == OTHER);
        for end in boundary.commits().filter(is_theirs) {
            // What is before the cut is not after it.
            let is_before = cut.map_or(Ok(false), |number| boundary.is_before_cut(number, end))?;
            if !is_before {
                return Err(self.ended_at(oid));
            }
        }
        Ok(())
    }

    /// Fails if a commit that only one history has is on the boundary.
    pub(super) fn check_whole(&self, flags: &HashMap<Oid, u8>) -> Result<(), GraphError> {
        match self.ends(flags) {
            [Some(oid), _] | [None, Some(oid)] => Err(self.ended_at(oid)),
            [None, None] => Ok(()),
        }
    }
}

/// Returns whether a merge beyond the boundary may have left out what is walked for.
fn is_left_out_beyond(boundary: &Boundary, left_out: &impl Fn(&Scope) -> bool) -> bool {
    boundary.scopes().iter().any(left_out)
}
