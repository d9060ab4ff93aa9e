use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;

use git2::Oid;

use super::super::{Change, Lock, RefError, Refs};
use super::{MAIN, git, open, repository, walk};

fn change(name: &str, expected: Option<Oid>, new: Option<Oid>) -> Change {
    Change { name: name.to_owned(), expected, new }
}

/// Returns all references as Git lists them.
fn listed(folder: &std::path::Path) -> BTreeMap<String, Oid> {
    let lines = git(folder, &["for-each-ref", "--format=%(refname) %(objectname)"]);
    let entry = |line: &str| {
        let (name, id) = line.split_once(' ').expect("the format has a space");
        (name.to_owned(), Oid::from_str(id).expect("git prints ids"))
    };
    lines.lines().map(entry).collect()
}

#[test]
fn all_changes_are_made_or_none() {
    let (folder, ids) = repository(3);
    let refs = open(&folder);
    let (old, new) = (Some(ids[0]), Some(ids[1]));
    refs.update_all(&[change(MAIN, None, old), change("refs/heads/a/b", None, old), change("refs/tags/t", None, old)])
        .unwrap();
    let before = refs.list().unwrap();
    assert_eq!(before.len(), 3);
    assert_eq!(before, listed(folder.path()));
    for (bad, at) in [
        (change("refs/heads/z", old, new), 1),
        (change("refs/heads/a", None, new), 1),
        (change("refs/heads/main/x", None, new), 1),
        (change("refs/heads/new/x", None, new), 1),
        (change("refs/heads/bad..name", None, new), 1),
        (change("refs/tags/t", new, None), 1),
    ] {
        let all = [
            change(MAIN, old, new),
            bad.clone(),
            change("refs/heads/new", None, new),
            change("refs/heads/a/b", old, None),
        ];
        let refused = refs.update_all(&all).unwrap_err();
        assert_eq!(refused.at, at, "{bad:?}: {refused:?}");
        assert_eq!(refs.list().unwrap(), before, "{bad:?}");
        assert!(!walk(folder.path()).iter().any(|path| path.contains(".lock")), "{bad:?}");
    }
    refs.update_all(&[
        change(MAIN, old, new),
        change("refs/heads/new", None, new),
        change("refs/heads/a/b", old, None),
    ])
    .unwrap();
    let after = refs.list().unwrap();
    assert_eq!(after.keys().collect::<Vec<_>>(), [MAIN, "refs/heads/new", "refs/tags/t"]);
    assert_eq!(after, listed(folder.path()));
    git(folder.path(), &["fsck", "--full", "--strict"]);
}

#[test]
fn deletions_reach_packed_references_and_leave_the_others() {
    let (folder, ids) = repository(2);
    let refs = open(&folder);
    for name in ["refs/heads/a", "refs/heads/ab", "refs/heads/c/d", "refs/heads/e"] {
        refs.update(name, ids[0], None).unwrap();
    }
    git(folder.path(), &["tag", "--annotate", "--message=t", "t", &ids[0].to_string()]);
    git(folder.path(), &["pack-refs", "--all"]);
    let tag = refs.read("refs/tags/t").unwrap();
    refs.update("refs/heads/e", ids[1], Some(ids[0])).unwrap();
    refs.update_all(&[
        change("refs/heads/a", Some(ids[0]), None),
        change("refs/heads/e", Some(ids[1]), None),
        change("refs/tags/t", tag, None),
    ])
    .unwrap();
    assert_eq!(listed(folder.path()).keys().collect::<Vec<_>>(), ["refs/heads/ab", "refs/heads/c/d"]);
    let packed = fs::read_to_string(folder.path().join("packed-refs")).unwrap();
    assert!(packed.starts_with("# pack-refs") && packed.lines().count() == 3, "{packed}");
    refs.delete("refs/heads/c/d", ids[0]).unwrap();
    assert!(matches!(refs.delete("refs/heads/ab", ids[1]), Err(RefError::Moved { .. })));
    assert!(matches!(refs.delete("refs/heads/none", ids[1]), Err(RefError::Moved { .. })));
    // A former folder can be a reference now.
    refs.update("refs/heads/c", ids[0], None).unwrap();
    assert_eq!(refs.list().unwrap(), listed(folder.path()));
    git(folder.path(), &["fsck", "--full", "--strict"]);
}

#[test]
fn symbolic_references_are_followed_by_batches_and_lists() {
    let (folder, ids) = repository(2);
    let refs = open(&folder);
    refs.update(MAIN, ids[0], None).unwrap();
    git(folder.path(), &["symbolic-ref", "refs/heads/link", MAIN]);
    git(folder.path(), &["symbolic-ref", "refs/heads/round", "refs/heads/round"]);
    refs.update_all(&[change("refs/heads/link", Some(ids[0]), Some(ids[1]))]).unwrap();
    assert_eq!(refs.read(MAIN).unwrap(), Some(ids[1]));
    fs::write(folder.path().join("refs/heads/broken"), "").unwrap();
    let listed = refs.list().unwrap();
    assert_eq!(listed.keys().collect::<Vec<_>>(), ["refs/heads/link", MAIN]);
    let refused = refs.update_all(&[change("refs/heads/round", None, Some(ids[0]))]).unwrap_err();
    assert!(matches!(refused.source, RefError::Symbolic { .. }), "{refused:?}");
}

#[test]
fn of_batches_with_the_same_references_one_wins_and_none_waits_for_ever() {
    let (folder, ids) = repository(1);
    let names: Vec<_> = (0..4).map(|at| format!("refs/heads/{at}")).collect();
    for name in &names {
        open(&folder).update(name, ids[0], None).unwrap();
    }
    let push = |at: usize| {
        let refs = Refs::open(folder.path()).unwrap();
        let new = Oid::from_bytes(&[at as u8 + 1; 20]).unwrap();
        // Each thread starts with another name.
        let order = (0..4).map(|step| &names[(at + step) % 4]);
        let batch: Vec<_> = order.map(|name| change(name, Some(ids[0]), Some(new))).collect();
        refs.update_all(&batch).is_ok()
    };
    let wins = thread::scope(|scope| {
        let push = &push;
        let threads = [0, 1, 2, 3].map(|at| scope.spawn(move || push(at)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(wins.iter().filter(|won| **won).count(), 1, "{wins:?}");
    let values: BTreeSet<_> = open(&folder).list().unwrap().into_values().collect();
    assert_eq!(values.len(), 1, "all values are of one batch");
}

#[test]
fn all_locks_of_dead_processes_are_released_and_no_others() {
    let (folder, ids) = repository(1);
    let refs = open(&folder);
    for name in ["refs/heads/dead", "refs/heads/deep/er/dead", "packed-refs"] {
        Lock::acquire(&refs, name, ids[0]).unwrap().abandon();
    }
    let alive = Lock::acquire(&refs, "refs/heads/alive", ids[0]).unwrap();
    let foreign = folder.path().join("refs/heads/foreign.lock");
    fs::write(&foreign, "").unwrap();
    assert_eq!(refs.release_all().unwrap(), 3);
    assert_eq!(refs.release_all().unwrap(), 0);
    let left = walk(&folder.path().join("refs"));
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(foreign.exists() && folder.path().join("refs/heads/alive.lock").exists());
    drop(alive);
    refs.update("refs/heads/dead", ids[0], None).unwrap();
    git(folder.path(), &["pack-refs", "--all"]);
}
