//! The base value of a key: its value at the merge bases, of which there may be several.

use bytes::Bytes;
use git2::Oid;
use gitcd_merge::{Outcome, Policy, Side, differ_in_spelling_only, merge};
use gitcd_repo::changes;

use super::edits::Meant;
use super::{PlanError, Planner};

/// Levels of criss-cross merges whose bases are merged recursively. Below, the base is empty, as if each side had created its
/// value: this is deterministic, and terminates. Without a limit, branches in a ring that each decide on their own would pass a
/// value around for ever.
const MAX_CRISSCROSS: usize = 8;

/// A key, with and without the prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyAt<'k> {
    absolute: &'k [u8],
    relative: &'k [u8],
}

/// The base value of a key.
#[derive(Clone, Debug)]
pub(super) enum Base {
    Blob(Option<Oid>),
    /// One of several different values, chosen by merging them.
    Chosen(Option<Oid>),
    /// A new value, made by merging several different ones.
    Value(Option<Bytes>),
}

impl Base {
    /// Returns whether the base is this blob, or absent for `None`.
    pub(super) fn is(&self, wanted: Option<Oid>) -> bool {
        matches!(self, Self::Blob(blob) | Self::Chosen(blob) if *blob == wanted)
    }

    /// Returns whether it was merged from different values, so that its spelling is arbitrary.
    fn is_made(&self) -> bool {
        !matches!(self, Self::Blob(_))
    }

    fn chosen(self) -> Self {
        match self {
            Self::Blob(blob) => Self::Chosen(blob),
            other => other,
        }
    }
}

impl Planner<'_, '_> {
    /// Returns the base of a key, adjusted to the last edits. Keys that an earlier merge left out have other merge bases. The
    /// blobs are those at the first base, in ours and in theirs.
    pub(super) fn base(
        &mut self,
        key: &[u8],
        relative: &[u8],
        [first, ours, theirs]: [Option<Oid>; 3],
    ) -> Result<Meant, PlanError> {
        let bases = self.graph.bases_of_key(self.repository, self.ours, self.theirs, key)?;
        if *bases == *self.meeting.bases && bases.len() < 2 {
            return self.as_edited(relative, Base::Blob(first), [ours, theirs]);
        }
        self.virtual_bases.clear();
        let base = self.at(&bases, KeyAt { absolute: key, relative }, 0)?;
        self.as_edited(relative, base, [ours, theirs])
    }

    /// Returns which of two blobs that differ only in spelling is kept, if the base was merged from several: its spelling is
    /// arbitrary then, and branches with other bases may have the other one. The greater blob id decides, as on all branches.
    pub(super) fn of_two_spellings(
        &self,
        relative: &[u8],
        base: &Base,
        ours: Option<Oid>,
        theirs: Option<Oid>,
    ) -> Result<Option<Outcome>, PlanError> {
        if !base.is_made() || ours == theirs {
            return Ok(None);
        }
        let (Some(our_value), Some(their_value)) = (self.value(relative, ours)?, self.value(relative, theirs)?) else {
            return Ok(None);
        };
        let kept = if ours > theirs { Outcome::Ours } else { Outcome::Theirs };
        Ok(differ_in_spelling_only(&our_value, &their_value).then_some(kept))
    }

    /// Returns a key's value at several commits, merged with one another.
    fn at(&mut self, commits: &[Oid], key: KeyAt<'_>, depth: usize) -> Result<Base, PlanError> {
        if let Some(known) = self.virtual_bases.get(&(commits.to_vec(), depth)) {
            return Ok(known.clone());
        }
        let mut found: Option<(Oid, Base)> = None;
        for commit in commits {
            let tree = self.graph.commit(self.repository, *commit)?.tree;
            let blob = changes::find(self.repository, tree, key.relative)?;
            let next = Base::Blob(blob);
            found = Some(match found.take() {
                None => (*commit, next),
                Some((before, value)) if value.is(blob) => (before, value),
                Some((before, value)) => {
                    let below = if depth < MAX_CRISSCROSS {
                        let bases = self.graph.bases_of_key(self.repository, before, *commit, key.absolute)?;
                        self.at(&bases, key, depth + 1)?
                    } else {
                        Base::Blob(None)
                    };
                    (before, self.merge_bases(key.relative, &below, value, next)?)
                }
            });
        }
        let merged = found.map_or(Base::Blob(None), |(_, base)| base);
        self.virtual_bases.insert((commits.to_vec(), depth), merged.clone());
        Ok(merged)
    }

    fn merge_bases(&self, relative: &[u8], below: &Base, one: Base, other: Base) -> Result<Base, PlanError> {
        let base = self.bytes(relative, below)?;
        let (first, second) = (self.bytes(relative, &one)?, self.bytes(relative, &other)?);
        let merged = merge(
            &self.schemas,
            Policy::Later,
            base.as_deref(),
            first.as_deref().map(Side::of),
            second.as_deref().map(Side::of),
        );
        Ok(match merged.outcome {
            Outcome::Ours => one.chosen(),
            Outcome::Theirs => other.chosen(),
            Outcome::Deleted => Base::Chosen(None),
            Outcome::New(new) => Base::Value(Some(new.into())),
        })
    }

    pub(super) fn bytes(&self, relative: &[u8], base: &Base) -> Result<Option<Bytes>, PlanError> {
        match base {
            Base::Blob(blob) | Base::Chosen(blob) => self.value(relative, *blob),
            Base::Value(value) => Ok(value.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::{Plan, fixtures};
    use git2::{Repository, Signature, Time};
    use gitcd_repo::graph::Graph;

    const KEY: &str = "/registry/configmaps/n/k";

    fn commit(repository: &Repository, data: &serde_json::Value, time: i64, parents: &[Oid]) -> Oid {
        let object = serde_json::json!({
            "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "k", "namespace": "n", "uid": "u"}, "data": data,
        });
        commit_text(repository, &object.to_string(), time, parents)
    }

    fn commit_text(repository: &Repository, text: &str, time: i64, parents: &[Oid]) -> Oid {
        let mut below = repository.blob(text.as_bytes()).unwrap();
        for (name, mode) in [("k", 0o100_644), ("n", 0o040_000), ("configmaps", 0o040_000)] {
            let mut tree = repository.treebuilder(None).unwrap();
            tree.insert(name, below, mode).unwrap();
            below = tree.write().unwrap();
        }
        let tree = repository.find_tree(below).unwrap();
        let author = Signature::new("a", "a@b", &Time::new(time, 0)).unwrap();
        let parents: Vec<_> = parents.iter().map(|parent| repository.find_commit(*parent).unwrap()).collect();
        let parents: Vec<_> = parents.iter().collect();
        repository.commit(None, &author, &author, "a commit", &tree, &parents).unwrap()
    }

    fn merged(repository: &Repository, ours: Oid, theirs: Oid) -> Plan {
        fixtures::merged(repository, &mut Graph::default(), ours, theirs).unwrap()
    }

    /// Which of two spellings is kept must not depend on the merge bases: branches with other bases would keep the other one.
    #[test]
    fn of_two_spellings_the_same_is_kept_whatever_the_bases_are() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let text = |fields: &[&str]| {
            let fields: Vec<_> = fields.iter().map(|field| format!("\"{field}\":\"1\"")).collect();
            format!(
                "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"k\",\"namespace\":\"n\",\"uid\":\"u\"}},\"data\":{{{}}}}}\n",
                fields.join(",")
            )
        };
        let spellings = [["x", "y", "z"], ["y", "z", "x"]];
        let mut kept = BTreeSet::new();
        for bases in
            [[&["x"][..], &["y", "z"]], [&["x", "y"], &["y", "z"]], [&["y"], &["z", "x"]], [&["z"], &["y", "x"]]]
        {
            let bases = bases.map(|fields| commit_text(&repository, &text(fields), 1000, &[]));
            let [one, other] = spellings.map(|fields| commit_text(&repository, &text(&fields), 1001, &bases));
            for (at, (ours, theirs)) in [(one, other), (other, one)].into_iter().enumerate() {
                let plan = merged(&repository, ours, theirs);
                // One of the spellings may equal the base.
                let [key] = &plan.keys[..] else {
                    assert!(plan.keys.is_empty(), "{:?}", plan.keys);
                    kept.insert(spellings[at]);
                    continue;
                };
                let their_value = key.theirs.as_ref().map(|(value, _)| value);
                assert_eq!(key.base.as_ref(), their_value, "a concurrent write here wins");
                kept.insert(match key.outcome {
                    Outcome::Ours => spellings[at],
                    Outcome::Theirs => spellings[1 - at],
                    ref other => panic!("{other:?}"),
                });
            }
        }
        assert_eq!(kept.len(), 1, "{kept:?}");
    }

    /// Each side repeatedly merges the other's commit from before its last merge, and both keep writing: far deeper than bases
    /// are merged recursively.
    #[test]
    fn both_sides_come_to_the_same_at_the_end_of_any_criss_cross() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let root = commit(&repository, &serde_json::json!({"a": "0", "b": "0", "gone": "x"}), 1000, &[]);
        let at = |a: usize, b: usize| serde_json::json!({"a": a.to_string(), "b": b.to_string()});
        let mut one = commit(&repository, &at(1, 0), 1001, &[root]);
        let mut other = commit(&repository, &at(0, 1), 1001, &[root]);
        for round in 2..3 * MAX_CRISSCROSS {
            let time = 1000 + round as i64;
            let next = commit(&repository, &at(round, round - 1), time, &[one, other]);
            other = commit(&repository, &at(round - 1, round), time, &[other, one]);
            one = next;
            let (here, there) = (merged(&repository, one, other), merged(&repository, other, one));
            let both = serde_json::to_value(at(round, round)).unwrap();
            for plan in [&here, &there] {
                let [key] = &plan.keys[..] else { panic!("{:?}", plan.keys) };
                assert_eq!((&*key.key, key.conflicts.len()), (KEY.as_bytes(), 0), "round {round}");
                let Outcome::New(value) = &key.outcome else { panic!("{:?}", key.outcome) };
                let value: serde_json::Value = serde_json::from_slice(value).unwrap();
                assert_eq!(value["data"], both, "round {round}");
            }
        }
    }
}
