//! What a key was where two histories meet, which may be at several commits.

use bytes::Bytes;
use git2::Oid;
use gitcd_merge::{Outcome, Policy, Side, differ_in_spelling_only, merge};
use gitcd_repo::changes;

use super::edits::Meant;
use super::{PlanError, Planner};

/// Deepest criss-cross of merges whose bases are merged with one another. Below it there is no base, and what both sides have is
/// compared as if both had made it: deterministic, and it ends. With ever deeper ones, branches in a ring that each decide for
/// themselves hand a value round for ever.
const MAX_CRISSCROSS: usize = 8;

/// A key, whole and without the prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyAt<'k> {
    absolute: &'k [u8],
    relative: &'k [u8],
}

/// A key where two histories meet.
#[derive(Clone, Debug)]
pub(super) enum Base {
    Blob(Option<Oid>),
    /// The one of several different ones that merging them has chosen.
    Chosen(Option<Oid>),
    /// What merging several different ones made of it.
    Value(Option<Bytes>),
}

impl Base {
    /// Whether it is this blob, or nothing.
    pub(super) fn is(&self, wanted: Option<Oid>) -> bool {
        matches!(self, Self::Blob(blob) | Self::Chosen(blob) if *blob == wanted)
    }

    /// Whether it was merged from different values, so that how it is spelled is a chance.
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
    /// What a key was where the histories meet; they meet elsewhere for keys that an earlier merge left out. Given what it is at the first
    /// base, in ours and in theirs.
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

    /// Which of two blobs that mean the same is kept, if the base cannot tell: it was made of several, and which of the two it is like is a chance. Other
    /// branches, with other bases, may have made the other one. So the ids decide, which are the same for everybody.
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

    /// A key at several commits: what merging them with one another makes of it.
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
    use crate::plan::{Plan, Rules, plan};
    use git2::{Repository, Signature, Time};
    use gitcd_core::keyspace::KeySpace;
    use gitcd_core::scope::Scope;
    use gitcd_merge::secrecy::SecretKinds;
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
        let keys = KeySpace::new("/registry", [""; 0]);
        let (scope, secret_kinds) = (&Scope::default(), &SecretKinds::default());
        let rules =
            Rules { keys: &keys, policy: Policy::Later, scope, fast_forward: true, secret_kinds, verdicts: None };
        plan(repository, &mut Graph::default(), &rules, ours, theirs).unwrap().unwrap()
    }

    /// Which of two spellings is kept must not depend on where the histories met: branches that merge them elsewhere would keep the other.
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
                // One of them may be what the base is like.
                let [key] = &plan.keys[..] else {
                    assert!(plan.keys.is_empty(), "{:?}", plan.keys);
                    kept.insert(spellings[at]);
                    continue;
                };
                let their_value = key.theirs.as_ref().map(|(value, _)| value);
                assert_eq!(key.base.as_ref(), their_value, "whatever is written here meanwhile stays");
                kept.insert(match key.outcome {
                    Outcome::Ours => spellings[at],
                    Outcome::Theirs => spellings[1 - at],
                    ref other => panic!("{other:?}"),
                });
            }
        }
        assert_eq!(kept.len(), 1, "{kept:?}");
    }

    /// Each side merges what the other was before it merged, again and again, and both go on writing: far deeper than bases are
    /// merged with one another.
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
