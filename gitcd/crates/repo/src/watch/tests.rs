use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use git2::Oid;
use tempfile::TempDir;

use super::{Changes, RefChange, RefWatcher, shared};
use crate::refs::{Change, Refs};

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git").arg("-C").arg(folder).args(arguments).stderr(Stdio::null()).status();
    assert!(status.expect("git starts").success(), "git {arguments:?}");
}

fn id(number: u8) -> Oid {
    Oid::from_bytes(&[number; 20]).unwrap()
}

fn repository() -> (TempDir, Refs) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    git2::Repository::init_bare(folder.path()).expect("the folder is empty");
    let refs = Refs::open(folder.path()).expect("a repository");
    (folder, refs)
}

/// Returns the next changes, which must come long before the next poll.
async fn next(changes: &mut Changes) -> Vec<RefChange> {
    let next = tokio::time::timeout(Duration::from_secs(8), changes.next());
    next.await.expect("the change is noticed").expect("the repository exists")
}

fn change(reference: &str, old: Option<Oid>, new: Option<Oid>) -> RefChange {
    RefChange { reference: reference.to_owned(), old, new }
}

/// Reads changes until `reference` is at `new`, in any number of steps; nothing else may change.
async fn until(changes: &mut Changes, reference: &str, new: Option<Oid>) {
    while changes.seen().get(reference).copied() != new {
        assert!(next(changes).await.iter().all(|change| change.reference == reference));
    }
}

#[tokio::test]
async fn changes_of_files_folders_and_packed_references_are_reported() {
    let (folder, refs) = repository();
    refs.update("refs/heads/main", id(1), None).unwrap();
    let watcher = RefWatcher::new(folder.path(), |_| true).unwrap();
    let mut changes = watcher.changes();
    assert_eq!(changes.seen().len(), 1);
    refs.update("refs/heads/main", id(2), Some(id(1))).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/heads/main", Some(id(1)), Some(id(2)))]);
    refs.update("refs/new/folder/deep", id(1), None).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/new/folder/deep", None, Some(id(1)))]);
    // In a folder that was just created.
    refs.update("refs/new/folder/deep", id(3), Some(id(1))).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/new/folder/deep", Some(id(1)), Some(id(3)))]);
    refs.delete("refs/new/folder/deep", id(3)).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/new/folder/deep", Some(id(3)), None)]);
    refs.update("refs/new", id(4), None).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/new", None, Some(id(4)))]);
}

#[tokio::test]
async fn packing_changes_nothing_and_neither_do_locks() {
    let (folder, refs) = repository();
    let tree = Command::new("git").arg("-C").arg(folder.path()).arg("write-tree").output().unwrap();
    let tree = Oid::from_str(String::from_utf8(tree.stdout).unwrap().trim()).unwrap();
    for name in ["refs/tags/a", "refs/tags/b", "refs/tags/c/d"] {
        refs.update(name, tree, None).unwrap();
    }
    let watcher = RefWatcher::new(folder.path(), |_| true).unwrap();
    let mut changes = watcher.changes();
    for round in 0..10 {
        git(folder.path(), &["pack-refs", "--all"]);
        std::fs::write(folder.path().join("refs/tags/b.lock"), "").unwrap();
        std::fs::remove_file(folder.path().join("refs/tags/b.lock")).unwrap();
        let sign = format!("refs/tags/sign{round}");
        git(folder.path(), &["update-ref", &sign, &tree.to_string()]);
        until(&mut changes, &sign, Some(tree)).await;
        git(folder.path(), &["update-ref", "refs/tags/a", &tree.to_string()]);
    }
    git(folder.path(), &["pack-refs", "--all"]);
    git(folder.path(), &["update-ref", "-d", "refs/tags/a"]);
    until(&mut changes, "refs/tags/a", None).await;
}

#[tokio::test]
async fn only_wanted_references_are_notified_and_bursts_are_coalesced() {
    let (folder, refs) = repository();
    let watcher = RefWatcher::new(folder.path(), |name| name.starts_with("refs/heads/")).unwrap();
    let (mut changes, mut slow) = (watcher.changes(), watcher.changes());
    refs.update("refs/tags/v1", id(1), None).unwrap();
    let all =
        ["a", "b", "c"].map(|name| Change { name: format!("refs/heads/{name}"), expected: None, new: Some(id(1)) });
    refs.update_all(&all).unwrap();
    while changes.seen().len() < 3 {
        assert!(next(&mut changes).await.iter().all(|change| change.reference.starts_with("refs/heads/")));
    }
    for number in 2..20 {
        refs.update("refs/heads/a", id(number), Some(id(number - 1))).unwrap();
    }
    until(&mut changes, "refs/heads/a", Some(id(19))).await;
    let received = next(&mut slow).await;
    let expected = [("a", 19), ("b", 1), ("c", 1)];
    assert_eq!(received, expected.map(|(name, at)| change(&format!("refs/heads/{name}"), None, Some(id(at)))));
}

#[tokio::test]
async fn it_ends_with_the_repository() {
    let (folder, refs) = repository();
    refs.update("refs/heads/main", id(1), None).unwrap();
    let watcher = RefWatcher::new(folder.path(), |_| true).unwrap();
    let mut changes = watcher.changes();
    let waiting = tokio::spawn(async move { while changes.next().await.is_some() {} });
    drop(folder);
    tokio::time::timeout(Duration::from_secs(8), waiting).await.expect("the removal is noticed").unwrap();
    assert!(!watcher.is_alive());
}

#[tokio::test]
async fn a_reader_is_enough_to_keep_it_alive() {
    let (folder, refs) = repository();
    let watcher = RefWatcher::new(folder.path(), |_| true).unwrap();
    let mut changes = watcher.changes();
    drop(watcher);
    refs.update("refs/heads/main", id(1), None).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/heads/main", None, Some(id(1)))]);
}

#[tokio::test]
async fn without_notifications_it_polls() {
    let (folder, refs) = repository();
    let nothing = std::io::Error::from(std::io::ErrorKind::Unsupported);
    let watcher = shared::start(Refs::open(folder.path()).unwrap(), Err(nothing), Box::new(|_| true)).unwrap();
    let mut changes = watcher.changes();
    refs.update("refs/heads/main", id(1), None).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/heads/main", None, Some(id(1)))]);
    watcher.look();
    refs.update("refs/heads/main", id(2), Some(id(1))).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/heads/main", Some(id(1)), Some(id(2)))]);
}

#[tokio::test]
async fn watchers_of_a_repository_share_a_thread_and_each_receives_what_it_wants() {
    let (folder, refs) = repository();
    let watch = |name: &'static str| RefWatcher::new(folder.path(), move |other| other == name).unwrap();
    let one = watch("refs/heads/one");
    let mut ones = one.changes();
    // No watcher wants it yet.
    refs.update("refs/heads/other", id(1), None).unwrap();
    let other = watch("refs/heads/other");
    assert!(Arc::ptr_eq(&one.subscription.watched, &other.subscription.watched));
    assert_eq!(other.latest().get("refs/heads/other"), Some(&id(1)));
    let mut others = other.changes();
    refs.update("refs/heads/one", id(2), None).unwrap();
    refs.update("refs/heads/other", id(3), Some(id(1))).unwrap();
    assert_eq!(next(&mut ones).await, [change("refs/heads/one", None, Some(id(2)))]);
    assert_eq!(next(&mut others).await, [change("refs/heads/other", Some(id(1)), Some(id(3)))]);
    drop((one, ones));
    refs.update("refs/heads/other", id(4), Some(id(3))).unwrap();
    assert_eq!(next(&mut others).await, [change("refs/heads/other", Some(id(3)), Some(id(4)))]);
    let watched = Arc::downgrade(&other.subscription.watched);
    drop((other, others));
    let ended = tokio::time::timeout(Duration::from_secs(8), async {
        while watched.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    });
    ended.await.expect("the thread ends with its last watcher");
    let again = watch("refs/heads/other");
    let mut changes = again.changes();
    refs.update("refs/heads/other", id(5), Some(id(4))).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/heads/other", Some(id(4)), Some(id(5)))]);
}

#[tokio::test]
async fn a_repository_at_the_path_of_another_has_a_watcher_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("repository.git");
    git2::Repository::init_bare(&path).unwrap();
    let one = RefWatcher::new(&path, |_| true).unwrap();
    std::fs::rename(&path, place.path().join("moved.git")).unwrap();
    git2::Repository::init_bare(&path).unwrap();
    let other = RefWatcher::new(&path, |_| true).unwrap();
    assert!(!Arc::ptr_eq(&one.subscription.watched, &other.subscription.watched));
    let mut changes = other.changes();
    Refs::open(&path).unwrap().update("refs/heads/main", id(1), None).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/heads/main", None, Some(id(1)))]);
}

#[tokio::test]
async fn the_target_of_a_symbolic_reference_is_followed() {
    let (folder, refs) = repository();
    refs.update("refs/heads/main", id(1), None).unwrap();
    git(folder.path(), &["symbolic-ref", "refs/heads/alias", "refs/heads/main"]);
    let watcher = RefWatcher::new(folder.path(), |name| name == "refs/heads/alias").unwrap();
    let mut changes = watcher.changes();
    refs.update("refs/heads/main", id(2), Some(id(1))).unwrap();
    assert_eq!(next(&mut changes).await, [change("refs/heads/alias", Some(id(1)), Some(id(2)))]);
}
