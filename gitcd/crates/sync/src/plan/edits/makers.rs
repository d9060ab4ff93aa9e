//! Search for the commits that made a value.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use git2::Oid;
use gitcd_merge::value::Value;
use gitcd_repo::changes;

use crate::plan::{PlanError, Planner};

/// Limit on commits to search. Beyond it, or at the boundary of a shallow clone, the value counts as seen by no edit.
const LOOKED_AT: usize = 1024;

impl Planner<'_, '_> {
    /// Returns whether a side's value of a key or field (side 0 is ours) was made by a commit that none of the commits in
    /// `touching` has in its history.
    ///
    /// Costs a tree lookup for each commit since the value was made, and a history search for each commit that made it.
    pub(super) fn is_made_by_a_last_edit(
        &mut self,
        side: usize,
        relative: &[u8],
        path: Option<&[String]>,
        touching: &[Oid],
    ) -> Result<bool, PlanError> {
        match self.made_by_a_last_edit(side, relative, path, touching) {
            Err(_) if self.repository.is_shallow() && !self.graph.is_cut() => Ok(true),
            found => found,
        }
    }

    fn made_by_a_last_edit(
        &mut self,
        side: usize,
        relative: &[u8],
        path: Option<&[String]>,
        touching: &[Oid],
    ) -> Result<bool, PlanError> {
        let mut seen: BTreeSet<Oid> = BTreeSet::new();
        let mut waiting = vec![[self.ours, self.theirs][side]];
        let mut read: HashMap<Option<Oid>, Option<Value>> = HashMap::new();
        let wanted = self.field_at(waiting[0], relative, path, &mut read)?;
        while let Some(at) = waiting.pop() {
            if !seen.insert(at) {
                continue;
            }
            if seen.len() > LOOKED_AT {
                return Ok(true);
            }
            let mut same = Vec::new();
            let commit = self.graph.commit(self.repository, at)?;
            for parent in &commit.parents {
                if self.field_at(*parent, relative, path, &mut read)? == wanted {
                    same.push(*parent);
                }
            }
            if same.is_empty() && !touching.contains(&at) {
                let mut is_seen = false;
                for later in touching {
                    is_seen = is_seen || self.is_behind(at, *later)?;
                }
                if !is_seen && commit.is_boundary {
                    // A removed commit made it, and its history is not known.
                    return Err(self.graph.ended_at(at).into());
                }
                if !is_seen {
                    return Ok(true);
                }
            }
            waiting.extend(same);
        }
        Ok(false)
    }

    /// Returns whether `earlier` is in the history of `later`. Cached, because many fields and keys need it.
    fn is_behind(&mut self, earlier: Oid, later: Oid) -> Result<bool, PlanError> {
        if let Some(known) = self.behind.get(&(earlier, later)) {
            return Ok(*known);
        }
        let found = self.graph.is_ancestor(self.repository, earlier, later)?;
        self.behind.insert((earlier, later), found);
        Ok(found)
    }

    fn field_at(
        &mut self,
        commit: Oid,
        relative: &[u8],
        path: Option<&[String]>,
        read: &mut HashMap<Option<Oid>, Option<Value>>,
    ) -> Result<Made, PlanError> {
        let tree = self.graph.commit(self.repository, commit)?.tree;
        let blob = changes::find(self.repository, tree, relative)?;
        let Some(path) = path else { return Ok(Made::Whole(blob)) };
        let value = match read.entry(blob) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.object(relative, blob)?),
        };
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        Ok(Made::Field(value.as_ref().and_then(|value| value.at(&path)).cloned()))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Made {
    Whole(Option<Oid>),
    Field(Option<Value>),
}
