//! Removed commits from which other branches continue, and former boundaries.

use super::*;

/// Returns commits of which each is the parent of the next one.
fn line(repository: &Repository, count: i64) -> Vec<Oid> {
    let mut line = vec![commit(repository, &[], 1, "root")];
    for time in 2..=count {
        line.push(commit(repository, &[line[line.len() - 1]], time, "more"));
    }
    line
}

/// What another branch sent is no ancestor of ours, although it continues from a removed commit.
#[test]
fn whether_a_commit_is_an_ancestor_is_known_unless_it_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let line = line(&repository, 10);
    let (old, oldest, tip) = (line[2], line[5], line[9]);
    cut(&repository, &[oldest], &[tip]);
    let side = commit(&repository, &[old], 20, "side");
    let merge = commit(&repository, &[tip, side], 30, "merge");
    let mut graph = Graph::default();
    for is_restored in [false, true] {
        let mut is_ancestor = |one: Oid, other: Oid| graph.is_ancestor(&repository, one, other);
        for (ancestor, of) in [(tip, merge), (side, merge), (oldest, tip), (merge, merge)] {
            assert!(is_ancestor(ancestor, of).unwrap(), "{ancestor} {of} {is_restored}");
        }
        for (one, other) in [(merge, tip), (side, tip), (tip, side), (merge, side)] {
            assert!(!is_ancestor(one, other).unwrap(), "{one} {other} {is_restored}");
        }
        for removed in [old, line[3]] {
            assert!(is_ancestor(removed, tip).unwrap_err().is_cut(), "{removed} {is_restored}");
        }
        Boundary::restore(repository.path(), &[old]).unwrap();
    }
}

/// Each of two branches merged another one that was idle. Merges of them look for the base of each key.
#[test]
fn the_bases_of_a_key_are_found_if_both_have_the_cut_and_each_a_restored_commit() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let line = line(&repository, 10);
    let [one, other] = [2, 3].map(|at| commit(&repository, &[line[at]], 20, &format!("idle since {at}")));
    let [ours, theirs] = [one, other].map(|side| commit(&repository, &[line[9], side], 30, "merge"));
    cut(&repository, &[line[5]], &[line[9]]);
    Boundary::restore(repository.path(), &line[2..4]).unwrap();
    let mut graph = Graph::default();
    assert_eq!(graph.meeting(&repository, ours, theirs).unwrap().bases, [line[9]]);
    for key in KEYS {
        assert_eq!(*graph.bases_of_key(&repository, ours, theirs, key).unwrap(), [line[9]]);
    }
}

/// For the keys that it left out, the commits before the cut may have a common ancestor that the cut does not have.
#[test]
fn a_removed_merge_that_left_keys_out_is_an_explicit_error_for_them_only() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let at = |parents: &[Oid], time: i64| commit(&repository, parents, time, &time.to_string());
    let (root, own) = (at(&[], 1), at(&[], 2));
    let sides = [3, 4].map(|time| at(&[root], time));
    let parents = [own, at(&sides, 5)];
    let oldest = commit(&repository, &parents, 6, &message(6, &parents, Some(true)));
    let [ours, theirs] = sides.map(|side| at(&[oldest, at(&[side], 7)], 8));
    let [pods, secrets] = KEYS;
    let mut graph = Graph::default();
    let mut both = vec![root, oldest];
    both.sort();
    assert_eq!(*graph.bases_of_key(&repository, ours, theirs, pods).unwrap(), [oldest]);
    assert_eq!(graph.bases_of_key(&repository, ours, theirs, secrets).unwrap().to_vec(), both);
    let plan = cut(&repository, &[oldest], &[ours, theirs]);
    assert_eq!((plan.boundary, plan.older.scopes.len()), ([oldest, sides[0], sides[1]].into(), 1));
    assert_eq!(graph.meeting(&repository, ours, theirs).unwrap().bases, [oldest]);
    assert_eq!(*graph.bases_of_key(&repository, ours, theirs, pods).unwrap(), [oldest]);
    assert!(graph.bases_of_key(&repository, ours, theirs, secrets).unwrap_err().is_cut());
    // A later cut knows it as well.
    cut(&repository, &[oldest], &[ours, theirs]);
    assert_eq!(Boundary::read(repository.path()).unwrap().scopes().len(), 1);
}

/// A reference may be made to a commit between two cuts.
#[test]
fn a_former_boundary_stays_one_until_its_object_is_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let line = line(&repository, 10);
    let first = cut(&repository, &[line[2]], &[line[9]]);
    assert!(first.former.is_empty());
    let second = cut(&repository, &[line[5]], &[line[9]]);
    assert_eq!((second.boundary, second.former), ([line[2], line[5]].into(), [line[2]].into()));
    assert_eq!(second.removed, [line[3], line[4]].into());
    let name = line[2].to_string();
    std::fs::remove_file(folder.path().join("objects").join(&name[..2]).join(&name[2..])).unwrap();
    // Another one, because objects are cached.
    let repository = Repository::open_bare(folder.path()).unwrap();
    let error = Graph::default().meeting(&repository, line[2], line[9]).unwrap_err();
    assert!(error.is_cut(), "{error}");
    let third = cut(&repository, &[line[7]], &[line[9]]);
    assert_eq!((third.boundary, third.former), ([line[5], line[7]].into(), [line[5]].into()));
    assert!(Boundary::read(repository.path()).unwrap().removed(line[2]).unwrap());
}
