//! Copies of objects between repositories on this machine.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::path::PathBuf;

use git2::{Odb, OdbLookupFlags, Oid, Repository};

use gitcd_repo::boundary::{Boundary, BoundaryError, RecordError};
use gitcd_repo::graph::{self, Graph, GraphError};
use gitcd_repo::object;
use gitcd_repo::refs::Refs;
use gitcd_repo::transfer::{self, TransferError};

use super::progress::FetchProgress;

/// A copier of objects to one repository. Repeated copies extend the same pack while it is small.
#[derive(Debug, Default)]
pub(super) struct Copier {
    pack: transfer::Pack,
    /// The Git directory of that repository.
    to: PathBuf,
    /// Commits that were pushed there: they are complete, even if another server won the race for the reference.
    pushed: HashSet<Oid>,
    progress: FetchProgress,
}

/// Limit on remembered pushed commits.
const REMEMBERED: usize = 100_000;

impl Copier {
    /// Returns a copier that counts the commits here.
    pub(super) fn counted(progress: FetchProgress) -> Self {
        Self { progress, ..Self::default() }
    }

    /// Copies the objects that `wanted` needs and `to` lacks; returns the bytes written.
    ///
    /// Assumes that a commit in `to` is there with everything reachable from it, since packs become visible whole. If that is
    /// wrong, a merge fails on a missing object, and [`Copier::copy_again`] repairs it.
    ///
    /// # Errors
    /// [`TransferError`], with nothing new visible in `to`.
    pub(super) fn copy(&mut self, from: &Repository, to: &Repository, wanted: &[Oid]) -> Result<u64, TransferError> {
        self.turn_to(to);
        let to_odb = odb(to)?;
        let _stale = to_odb.refresh();
        // Without another refresh, which would list the folder of packs for each commit.
        let is_there = |oid| Ok(to_odb.exists_ext(oid, OdbLookupFlags::NO_REFRESH));
        self.add(from, to, wanted, (is_there, is_there)).inspect_err(|_| self.pack.restart())
    }

    /// Copies the objects that `wanted` needs to a repository that other programs write to. There, only commits that are
    /// reachable from references count as complete: a killed program may have left a part of any other. `tips` are some of the
    /// references' commits.
    ///
    /// The cost grows with the number of new commits; it grows with the whole history there, once, if a new commit exists there
    /// and is not reachable from `tips`.
    ///
    /// # Errors
    /// [`TransferError`], with nothing new visible in `to`.
    pub(super) fn push(
        &mut self,
        from: &Repository,
        to: &Repository,
        wanted: &[Oid],
        tips: &[Oid],
    ) -> Result<u64, TransferError> {
        self.turn_to(to);
        let to_odb = odb(to)?;
        let _stale = to_odb.refresh();
        let new = new_commits(from, wanted, tips)?;
        let (pushed, all) = (std::mem::take(&mut self.pushed), OnceCell::new());
        let is_whole = |oid| {
            if !to_odb.exists_ext(oid, OdbLookupFlags::NO_REFRESH) {
                return Ok(false);
            }
            if !pushed.contains(&oid) && all.get().is_none() {
                let _first = all.set(referenced(to)?);
            }
            Ok(pushed.contains(&oid) || all.get().is_some_and(|all: &HashSet<Oid>| all.contains(&oid)))
        };
        let is_there = |oid| if new.contains(&oid) { is_whole(oid) } else { Ok(true) };
        let bytes = self.add(from, to, wanted, (is_there, is_whole)).inspect_err(|_| self.pack.restart())?;
        self.pushed = if pushed.len() < REMEMBERED { pushed } else { HashSet::new() };
        self.pushed.extend(new);
        Ok(bytes)
    }

    fn turn_to(&mut self, to: &Repository) {
        if self.to != to.commondir() {
            self.pack.restart();
            self.pushed.clear();
            to.commondir().clone_into(&mut self.to);
        }
    }

    /// Copies the objects that `wanted` needs even if some exist, as after a crash of an external `git fetch`: only commits in
    /// the history of `whole` count as complete.
    ///
    /// # Errors
    /// [`TransferError`], with nothing new visible in `to`.
    pub(super) fn copy_again(
        &mut self,
        from: &Repository,
        to: &Repository,
        wanted: &[Oid],
        whole: &[Oid],
    ) -> Result<u64, TransferError> {
        self.turn_to(to);
        self.pack.restart();
        let there = history(to, whole).map_err(|error| failed(&error))?;
        let is_there = |oid| Ok(there.contains(&oid));
        self.add(from, to, wanted, (is_there, is_there)).inspect_err(|_| self.pack.restart())
    }

    /// Adds the commits that are not there. What is before the boundary of a history that was cut in `from` cannot be sent: it must be
    /// whole in `to`.
    fn add(
        &mut self,
        from: &Repository,
        to: &Repository,
        wanted: &[Oid],
        (is_there, is_whole): (
            impl Fn(Oid) -> Result<bool, TransferError>,
            impl Fn(Oid) -> Result<bool, TransferError>,
        ),
    ) -> Result<u64, TransferError> {
        self.pack.distrust(from.commondir().join("objects"));
        let mut graph = Graph::default();
        let there = Boundary::read(to.commondir()).map_err(cut_unknown)?;
        let (mut restored, mut ends) = (Vec::new(), HashSet::new());
        let (mut started, mut done, mut commits) = (HashSet::new(), HashSet::new(), Vec::new());
        let mut stack = wanted.to_vec();
        // Parents first: objects that a commit shares with its parents are left out, so they must be copied before.
        while let Some(oid) = stack.last().copied() {
            // A prune may have started to delete a removed commit that exists.
            let is_removed = there.removed(oid).map_err(cut_unknown)?;
            if done.contains(&oid) || !is_removed && is_there(oid)? {
                stack.pop();
                continue;
            }
            self.pack.check(oid)?;
            let commit = graph.commit(from, oid).map_err(|error| unreadable(oid, error))?;
            if is_removed || there.has(oid) {
                // Another branch continues from it. What is before it does not come back.
                restored.extend(is_removed.then_some(oid));
                ends.insert(oid);
            } else if commit.is_boundary {
                for parent in parents(from, oid)? {
                    // A removed one may exist, but not what is before it.
                    if there.removed(parent).map_err(cut_unknown)? || !is_whole(parent)? {
                        return Err(TransferError::Cut(graph.ended_at(oid)));
                    }
                }
            } else if started.insert(oid) {
                stack.extend(commit.parents.iter().copied());
                continue;
            }
            stack.pop();
            done.insert(oid);
            commits.push((oid, commit));
        }
        if commits.is_empty() {
            return Ok(0);
        }
        self.pack.spill_to(to);
        let from_odb = odb(from)?;
        for (at, (oid, commit)) in commits.iter().enumerate() {
            self.progress.commits(at, commits.len());
            // The trees of the parents of an end may not be there.
            let parents = commit.parents.iter().filter(|_| !ends.contains(oid));
            let before: Vec<Oid> = parents.filter_map(|parent| Some(graph.commit(from, *parent).ok()?.tree)).collect();
            self.pack.tree(&from_odb, &before, commit.tree)?;
            self.pack.commit(&from_odb, *oid)?;
        }
        if !restored.is_empty() {
            // Before they are there: otherwise, a crash could leave commits whose parents are missing.
            let failed = |error: RecordError| TransferError::Read { oid: restored[0], said: error.to_string() };
            Boundary::restore(to.commondir(), &restored).map_err(failed)?;
        }
        self.pack.publish(to)
    }
}

fn unreadable(oid: Oid, error: GraphError) -> TransferError {
    if error.is_cut() { TransferError::Cut(error) } else { TransferError::Read { oid, said: error.to_string() } }
}

fn cut_unknown(error: BoundaryError) -> TransferError {
    TransferError::Cut(error.into())
}

/// Returns the parents of a commit, also those beyond the boundary of the history.
fn parents(repository: &Repository, oid: Oid) -> Result<Vec<Oid>, TransferError> {
    let odb = odb(repository)?;
    let object = object::read(&odb, oid).map_err(|error| failed(&error))?;
    Ok(graph::parse(object.data()).map(|commit| commit.parents).unwrap_or_default())
}

/// Returns the commits reachable from `wanted`, without those reachable from the `tips` that exist here.
fn new_commits(here: &Repository, wanted: &[Oid], tips: &[Oid]) -> Result<HashSet<Oid>, TransferError> {
    let boundary = Boundary::read(here.commondir()).map_err(cut_unknown)?;
    let mut walk = here.revwalk().map_err(|error| failed(&error))?;
    wanted.iter().try_for_each(|oid| walk.push(*oid)).map_err(|error| failed(&error))?;
    for tip in tips.iter().filter(|tip| here.find_commit(**tip).is_ok()) {
        // What is before a removed commit may be gone.
        if !boundary.removed(*tip).map_err(cut_unknown)? {
            walk.hide(*tip).map_err(|error| failed(&error))?;
        }
    }
    walk.collect::<Result<_, _>>().map_err(|error| failed(&error))
}

/// Returns the commits reachable from `tips`.
fn history(repository: &Repository, tips: &[Oid]) -> Result<HashSet<Oid>, git2::Error> {
    let mut walk = repository.revwalk()?;
    tips.iter().try_for_each(|oid| walk.push(*oid))?;
    walk.collect()
}

/// Returns the commits reachable from `tip`, without `known` ones and their history.
fn beyond(repository: &Repository, tip: Oid, known: &HashSet<Oid>) -> Result<HashSet<Oid>, git2::Error> {
    let (mut found, mut stack) = (HashSet::new(), vec![tip]);
    while let Some(oid) = stack.pop() {
        if !known.contains(&oid) && found.insert(oid) {
            stack.extend(repository.find_commit(oid)?.parent_ids());
        }
    }
    Ok(found)
}

/// Returns the commits reachable from a repository's references; damaged histories are left out.
fn referenced(repository: &Repository) -> Result<HashSet<Oid>, TransferError> {
    let unreadable =
        |error: &dyn std::fmt::Display| TransferError::Read { oid: Oid::ZERO_SHA1, said: error.to_string() };
    let refs = Refs::open(repository.commondir()).and_then(|refs| refs.list()).map_err(|error| unreadable(&error))?;
    let mut all: HashSet<Oid> = HashSet::new();
    for tip in refs.into_values() {
        // A reference with a missing commit in its history contributes nothing.
        all.extend(beyond(repository, tip, &all).unwrap_or_default());
    }
    Ok(all)
}

fn odb(repository: &Repository) -> Result<Odb<'_>, TransferError> {
    repository.odb().map_err(|error| failed(&error))
}

fn failed(error: &git2::Error) -> TransferError {
    TransferError::Read { oid: Oid::ZERO_SHA1, said: error.message().to_owned() }
}

#[cfg(test)]
mod tests {
    use git2::{Signature, Time};
    use gitcd_repo::boundary::Cut;

    use super::*;

    fn commit(repository: &Repository, files: &[&str], parents: &[Oid]) -> Oid {
        let mut tree = repository.treebuilder(None).unwrap();
        for file in files {
            let blob = repository.blob(file.as_bytes()).unwrap();
            tree.insert(file, blob, 0o100_644).unwrap();
        }
        let tree = repository.find_tree(tree.write().unwrap()).unwrap();
        let author = Signature::new("a", "a@b", &Time::new(1000, 0)).unwrap();
        let parents: Vec<_> = parents.iter().map(|parent| repository.find_commit(*parent).unwrap()).collect();
        let parents: Vec<_> = parents.iter().collect();
        repository.commit(None, &author, &author, &files.join(" "), &tree, &parents).unwrap()
    }

    /// A tree returns to an earlier content, and a merge reaches the earlier commit on a shorter path than the change in between.
    #[test]
    fn a_tree_that_returns_to_an_earlier_content_is_copied_completely() {
        let folder = tempfile::tempdir().unwrap();
        let from = Repository::init_bare(folder.path().join("from")).unwrap();
        let to = Repository::init_bare(folder.path().join("to")).unwrap();
        let first = commit(&from, &["e"], &[]);
        let more = commit(&from, &["e", "f"], &[first]);
        let back = commit(&from, &["e"], &[more]);
        let last = commit(&from, &["e", "g"], &[back]);
        let merged = commit(&from, &["e", "g"], &[first, last]);
        Copier::default().copy(&from, &to, &[merged]).unwrap();
        for name in ["e", "f", "g"] {
            let blob = Oid::hash_object(git2::ObjectType::Blob, name.as_bytes()).unwrap();
            assert!(to.find_blob(blob).is_ok(), "{name} is missing");
        }
        let missing = Copier::default().copy(&from, &to, &[merged]).unwrap();
        assert_eq!(missing, 0, "everything is copied");
    }

    fn cut(repository: &Repository, oldest: Oid) {
        let plan = Graph::lenient().plan_cut(repository, &[oldest], &[oldest]).unwrap();
        let cut = Cut { reference: "refs/heads/main".into(), revision: 1, data: oldest, at: 0, archive: String::new() };
        plan.record(repository.path(), &cut).unwrap();
        plan.apply(repository.path()).unwrap();
    }

    /// Its object may still exist, but what is before it is about to be pruned.
    #[test]
    fn a_parent_that_was_removed_does_not_count_as_whole() {
        let folder = tempfile::tempdir().unwrap();
        let from = Repository::init_bare(folder.path().join("from")).unwrap();
        let to = Repository::init_bare(folder.path().join("to")).unwrap();
        let first = commit(&from, &["e"], &[]);
        let second = commit(&from, &["e", "f"], &[first]);
        let [third, other] = ["g", "h"].map(|file| commit(&from, &["e", "f", file], &[second]));
        Copier::default().copy(&from, &to, &[other]).unwrap();
        cut(&from, third);
        cut(&to, other);
        let copied = Copier::default().copy(&from, &to, &[third]);
        assert!(matches!(copied, Err(TransferError::Cut(_))), "{copied:?}");
    }

    /// Simulates a crash of a program that unpacks objects in any order.
    #[test]
    fn a_partial_copy_is_copied_again_completely() {
        let folder = tempfile::tempdir().unwrap();
        let from = Repository::init_bare(folder.path().join("from")).unwrap();
        let to = Repository::init_bare(folder.path().join("to")).unwrap();
        let whole = commit(&from, &["e"], &[]);
        Copier::default().copy(&from, &to, &[whole]).unwrap();
        let first = commit(&from, &["e", "f"], &[whole]);
        let second = commit(&from, &["e", "f", "g"], &[first]);
        for oid in [first, second] {
            let object = from.odb().unwrap();
            let object = object.read(oid).unwrap();
            to.odb().unwrap().write(object.kind(), object.data()).unwrap();
        }
        assert_eq!(Copier::default().copy(&from, &to, &[second]).unwrap(), 0, "the commit exists");
        Copier::default().copy_again(&from, &to, &[second], &[whole]).unwrap();
        for oid in [first, second] {
            let tree = to.find_commit(oid).unwrap().tree().unwrap();
            for entry in &tree {
                assert!(to.find_blob(entry.id()).is_ok(), "{} of {oid} is missing", entry.name().unwrap());
            }
        }
    }

    /// Simulates a crash of a program that unpacks objects in any order, in a repository that other programs write to.
    #[test]
    fn only_commits_reachable_from_references_count_as_complete_in_a_shared_repository() {
        let folder = tempfile::tempdir().unwrap();
        let from = Repository::init_bare(folder.path().join("from")).unwrap();
        let to = Repository::init_bare(folder.path().join("to")).unwrap();
        let whole = commit(&from, &["e"], &[]);
        let first = commit(&from, &["e", "f"], &[whole]);
        let second = commit(&from, &["e", "f", "g"], &[first]);
        let third = commit(&from, &["e", "f", "g", "h"], &[second]);
        let mut copier = Copier::default();
        copier.push(&from, &to, &[whole], &[]).unwrap();
        to.reference("refs/heads/main", whole, false, "").unwrap();
        for oid in [first, second] {
            let object = from.odb().unwrap();
            let object = object.read(oid).unwrap();
            to.odb().unwrap().write(object.kind(), object.data()).unwrap();
        }
        for (wanted, tips) in [(second, &[][..]), (third, &[second])] {
            copier.push(&from, &to, &[wanted], tips).unwrap();
            assert_eq!(copier.push(&from, &to, &[wanted], &[wanted]).unwrap(), 0, "a reference leads to it");
        }
        for oid in [whole, first, second, third] {
            let tree = to.find_commit(oid).unwrap().tree().unwrap();
            assert!(tree.iter().all(|entry| to.find_blob(entry.id()).is_ok()), "{oid}");
        }
        to.reference("refs/heads/main", third, true, "").unwrap();
        assert_eq!(Copier::default().push(&from, &to, &[second], &[]).unwrap(), 0, "a reference leads to it");
    }

    /// Entries that are not values are copied too, because a commit must be there with everything that it needs.
    #[test]
    fn symbolic_links_are_copied_and_submodules_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let from = Repository::init_bare(folder.path().join("from")).unwrap();
        let to = Repository::init_bare(folder.path().join("to")).unwrap();
        let first = commit(&from, &["e"], &[]);
        let mut tree = from.treebuilder(Some(&from.find_commit(first).unwrap().tree().unwrap())).unwrap();
        let link = from.blob(b"e").unwrap();
        let target = from.blob(b"somewhere else").unwrap();
        tree.insert("link", target, 0o120_000).unwrap();
        tree.insert("same", link, 0o120_000).unwrap();
        tree.insert("module", first, 0o160_000).unwrap();
        let tree = from.find_tree(tree.write().unwrap()).unwrap();
        let author = Signature::new("a", "a@b", &Time::new(1000, 0)).unwrap();
        let parent = from.find_commit(first).unwrap();
        let second = from.commit(None, &author, &author, "links", &tree, &[&parent]).unwrap();
        for (wanted, start) in [(second, false), (second, true)] {
            let to = if start { &to } else { &Repository::init_bare(folder.path().join("other")).unwrap() };
            if start {
                Copier::default().copy(&from, to, &[first]).unwrap();
            }
            Copier::default().copy(&from, to, &[wanted]).unwrap();
            assert_eq!(to.find_blob(target).unwrap().content(), b"somewhere else");
        }
    }
}
