//! Walks that end at the boundary of the history.
//!
//! A walk of two histories is exact although it ends at the boundary, unless both of them end there with commits that the other one
//! does not have: then a common ancestor may be beyond. In a repository that gitcd cut, every commit that is older than the boundary
//! is known to be removed or to be part of the boundary (`docs/design/retention.md`), so no other case exists. In a clone with a
//! limited depth, one end is enough for doubt.

use std::collections::HashMap;

use git2::{Oid, Repository};

use super::{Commit, Graph, GraphError, ONE, OTHER};
use crate::boundary::Boundary;

impl Graph {
    /// Forgets everything if the boundary was moved since it was read.
    pub(super) fn refresh(&mut self, repository: &Repository) -> Result<(), GraphError> {
        let git_dir = repository.path();
        if self.boundary.as_ref().is_none_or(|boundary| boundary.is_outdated(git_dir)) {
            *self = Self { boundary: Some(Boundary::read(git_dir)?), is_raw: self.is_raw, ..Self::default() };
        }
        Ok(())
    }

    /// Removes the parents of a commit on the boundary.
    pub(super) fn end_at_boundary(
        &mut self,
        repository: &Repository,
        oid: Oid,
        commit: &mut Commit,
    ) -> Result<(), GraphError> {
        if self.is_raw {
            return Ok(());
        }
        if self.boundary.is_none() {
            self.refresh(repository)?;
        }
        let Some(boundary) = &self.boundary else { return Ok(()) };
        if boundary.removed(oid)? {
            return Err(GraphError::ended(oid, boundary.cut()));
        }
        if boundary.has(oid) && !commit.parents.is_empty() {
            commit.is_boundary = true;
            commit.parents.clear();
            commit.partial = None;
        }
        Ok(())
    }

    /// Returns the commits of the boundary that are in one history only: those of the first, and those of the second.
    fn ends(&self, flags: &HashMap<Oid, u8>) -> [Option<Oid>; 2] {
        let of = |side: u8| {
            let is_of = |oid: &&Oid| flags.get(*oid).is_some_and(|flags| flags & (ONE | OTHER) == side);
            self.boundary.iter().flat_map(Boundary::commits).find(is_of).copied()
        };
        [of(ONE), of(OTHER)]
    }

    /// Returns the error for a walk that ends at this commit of the boundary.
    pub fn ended_at(&self, oid: Oid) -> GraphError {
        GraphError::ended(oid, self.boundary.as_ref().and_then(Boundary::cut))
    }

    fn is_own_cut(&self) -> bool {
        self.boundary.as_ref().is_some_and(|boundary| boundary.cut().is_some())
    }

    /// Fails if a common ancestor may be beyond the boundary.
    pub(super) fn check_ends(&self, flags: &HashMap<Oid, u8>) -> Result<(), GraphError> {
        match self.ends(flags) {
            [Some(oid), Some(_)] => Err(self.ended_at(oid)),
            [Some(oid), None] | [None, Some(oid)] if !self.is_own_cut() => Err(self.ended_at(oid)),
            _ => Ok(()),
        }
    }

    /// Fails if a commit that only one history has is on the boundary.
    pub(super) fn check_whole(&self, flags: &HashMap<Oid, u8>) -> Result<(), GraphError> {
        match self.ends(flags) {
            [Some(oid), _] | [None, Some(oid)] => Err(self.ended_at(oid)),
            [None, None] => Ok(()),
        }
    }
}
