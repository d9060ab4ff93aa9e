use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use git2::Oid;
use tempfile::TempDir;

use super::{RefError, Refs};

mod batch;

const MAIN: &str = "refs/heads/main";

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("git starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("git prints text").trim().to_owned()
}

/// Creates a bare repository with some commits.
fn repository(commits: usize) -> (TempDir, Vec<Oid>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    git(folder.path(), &["init", "-q", "--bare"]);
    let tree = git(folder.path(), &["write-tree"]);
    let commit = |number: usize| {
        let id = git(folder.path(), &["commit-tree", "-m", &number.to_string(), &tree]);
        Oid::from_str(&id).expect("git prints ids")
    };
    let commits = (0..commits).map(commit).collect();
    (folder, commits)
}

fn open(folder: &TempDir) -> Refs {
    let refs = Refs::open(folder.path()).expect("a repository");
    refs.with_patience(Duration::from_millis(20))
}

#[test]
fn a_reference_is_created_moved_and_seen_by_git() {
    let (folder, ids) = repository(2);
    let refs = open(&folder);
    assert_eq!(refs.read(MAIN).unwrap(), None);
    refs.update(MAIN, ids[0], None).unwrap();
    refs.update(MAIN, ids[1], Some(ids[0])).unwrap();
    refs.update("refs/gitcd/metadata/a/b", ids[0], None).unwrap();
    assert_eq!(refs.read(MAIN).unwrap(), Some(ids[1]));
    assert_eq!(git(folder.path(), &["rev-parse", MAIN]), ids[1].to_string());
    assert_eq!(git(folder.path(), &["rev-parse", "refs/gitcd/metadata/a/b"]), ids[0].to_string());
    git(folder.path(), &["fsck", "--full", "--strict"]);
    let left = walk(folder.path());
    assert!(!left.iter().any(|path| path.contains(".lock")), "{left:?}");
}

/// Returns all files below `folder`.
fn walk(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path.display().to_string()] }).collect()
}

#[test]
fn an_unexpected_value_stays_and_is_named() {
    let (folder, ids) = repository(3);
    let refs = open(&folder);
    let moved = |result: Result<(), RefError>, want_expected, want_found| match result {
        Err(RefError::Moved { name, expected, found }) => {
            assert_eq!((name.as_str(), expected, found), (MAIN, want_expected, want_found));
        }
        other => panic!("{other:?}"),
    };
    moved(refs.update(MAIN, ids[1], Some(ids[0])), Some(ids[0]), None);
    refs.update(MAIN, ids[0], None).unwrap();
    moved(refs.update(MAIN, ids[1], None), None, Some(ids[0]));
    git(folder.path(), &["update-ref", MAIN, &ids[2].to_string()]);
    moved(refs.update(MAIN, ids[1], Some(ids[0])), Some(ids[0]), Some(ids[2]));
    assert_eq!(refs.read(MAIN).unwrap(), Some(ids[2]));
}

#[test]
fn packed_references_are_read_and_overridden() {
    let (folder, ids) = repository(3);
    let refs = open(&folder);
    refs.update(MAIN, ids[0], None).unwrap();
    refs.update("refs/heads/other/one", ids[2], None).unwrap();
    git(folder.path(), &["tag", "-a", "-m", "a line with ^ follows", "v1", MAIN]);
    for round in 0..2 {
        git(folder.path(), &["pack-refs", "--all"]);
        assert!(!folder.path().join(MAIN).exists());
        assert_eq!(refs.read(MAIN).unwrap(), Some(ids[round]));
        assert_eq!(refs.read("refs/heads/other/one").unwrap(), Some(ids[2]));
        assert!(refs.update(MAIN, ids[2], None).is_err());
        refs.update(MAIN, ids[round + 1], Some(ids[round])).unwrap();
        assert_eq!(git(folder.path(), &["rev-parse", MAIN]), ids[round + 1].to_string());
    }
}

#[test]
fn symbolic_references_are_followed() {
    let (folder, ids) = repository(2);
    let refs = open(&folder);
    git(folder.path(), &["symbolic-ref", "HEAD", MAIN]);
    assert_eq!(refs.read("HEAD").unwrap(), None);
    refs.update("HEAD", ids[0], None).unwrap();
    assert_eq!(refs.read(MAIN).unwrap(), Some(ids[0]));
    assert_eq!(git(folder.path(), &["symbolic-ref", "HEAD"]), MAIN);
    git(folder.path(), &["symbolic-ref", "refs/heads/a", "refs/heads/b"]);
    git(folder.path(), &["symbolic-ref", "refs/heads/b", "refs/heads/a"]);
    assert!(matches!(refs.read("refs/heads/a"), Err(RefError::Symbolic { .. })));
    let update = refs.update("refs/heads/a", ids[0], None);
    assert!(matches!(update, Err(RefError::Symbolic { .. })));
}

#[test]
fn a_lock_of_another_process_is_an_error_with_its_path() {
    let (folder, ids) = repository(1);
    let refs = open(&folder);
    refs.update(MAIN, ids[0], None).unwrap();
    let lock = folder.path().join("refs/heads/main.lock");
    fs::write(&lock, "").unwrap();
    match refs.update(MAIN, ids[0], Some(ids[0])) {
        Err(RefError::Locked { path }) => {
            assert_eq!(path.canonicalize().unwrap(), lock.canonicalize().unwrap());
        }
        other => panic!("{other:?}"),
    }
    assert!(!refs.release(MAIN).unwrap(), "the lock is not gitcd's");
    assert!(lock.exists());
    fs::remove_file(&lock).unwrap();
    refs.update(MAIN, ids[0], Some(ids[0])).unwrap();
}

#[test]
fn a_lock_that_gitcd_left_in_a_crash_is_released() {
    let (folder, ids) = repository(2);
    let refs = open(&folder);
    refs.update(MAIN, ids[0], None).unwrap();
    let lock = super::Lock::acquire(&refs, MAIN, ids[1]).unwrap();
    assert!(!refs.release(MAIN).unwrap(), "its holder is running");
    let update = || refs.update(MAIN, ids[1], Some(ids[0]));
    assert!(matches!(update(), Err(RefError::Locked { .. })), "its holder is running");
    lock.abandon();
    assert!(refs.release(MAIN).unwrap());
    assert!(!refs.release(MAIN).unwrap());
    update().unwrap();
    // An update itself releases a stale lock.
    super::Lock::acquire(&refs, MAIN, ids[0]).unwrap().abandon();
    refs.update(MAIN, ids[0], Some(ids[1])).unwrap();
    // A kill after the rename leaves the reference and its staged link.
    let lock = super::Lock::acquire(&refs, MAIN, ids[0]).unwrap();
    fs::rename(folder.path().join("refs/heads/main.lock"), folder.path().join(MAIN)).unwrap();
    lock.abandon();
    assert!(!refs.release(MAIN).unwrap());
    assert_eq!(refs.read(MAIN).unwrap(), Some(ids[0]));
    assert_eq!(walk(&folder.path().join("gitcd-refs")), Vec::<String>::new());
}

#[test]
fn a_name_that_is_a_folder_of_another_is_refused() {
    let (folder, ids) = repository(1);
    let refs = open(&folder);
    let conflict = |name: &str, with: &str| match refs.update(name, ids[0], None) {
        Err(RefError::Conflict { existing, .. }) => assert_eq!(existing, with),
        other => panic!("{name}: {other:?}"),
    };
    refs.update("refs/heads/a/b", ids[0], None).unwrap();
    for _ in 0..2 {
        conflict("refs/heads/a", "refs/heads/a/b");
        conflict("refs/heads/a/b/c", "refs/heads/a/b");
        conflict("refs/heads/a/b/c/d", "refs/heads/a/b");
        git(folder.path(), &["pack-refs", "--all"]);
    }
    git(folder.path(), &["update-ref", "-d", "refs/heads/a/b"]);
    fs::create_dir_all(folder.path().join("refs/heads/a/b/c")).unwrap();
    refs.update("refs/heads/a", ids[0], None).expect("empty folders are no obstacle");
}

#[test]
fn names_that_are_no_references_are_refused() {
    let (folder, ids) = repository(1);
    let refs = open(&folder);
    for name in ["", "main", "refs/heads/../x", "refs/heads/", "objects/ab/cd", "refs/a.lock", "/x", "a b"] {
        assert!(matches!(refs.read(name), Err(RefError::Invalid { .. })), "{name:?}");
        assert!(matches!(refs.update(name, ids[0], None), Err(RefError::Invalid { .. })));
    }
}

#[test]
fn garbage_in_place_of_a_reference_is_an_error_with_its_path() {
    let (folder, ids) = repository(1);
    let refs = open(&folder);
    for garbage in ["", "\0\0\0\0", "abc\n", "ref: ../../etc/passwd\n", "ref: main\n"] {
        fs::write(folder.path().join(MAIN), garbage).unwrap();
        assert!(matches!(refs.read(MAIN), Err(RefError::Corrupt { .. })), "{garbage:?}");
        assert!(matches!(refs.update(MAIN, ids[0], None), Err(RefError::Corrupt { .. })));
    }
    fs::remove_file(folder.path().join(MAIN)).unwrap();
    fs::write(folder.path().join("packed-refs"), "torn").unwrap();
    assert!(matches!(refs.read(MAIN), Err(RefError::Corrupt { .. })));
}

#[test]
fn repositories_that_keep_references_elsewhere_are_refused() {
    let (folder, _) = repository(0);
    git(folder.path(), &["config", "core.repositoryFormatVersion", "1"]);
    git(folder.path(), &["config", "extensions.refStorage", "reftable"]);
    match Refs::open(folder.path()) {
        Err(RefError::Storage { storage, .. }) => assert_eq!(storage, "reftable"),
        other => panic!("{other:?}"),
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(Refs::open(empty.path()), Err(RefError::Open { .. })));
}

#[test]
fn the_folder_around_a_repository_will_do() {
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["init", "-q"]);
    git(folder.path(), &["commit", "-q", "--allow-empty", "-m", "first"]);
    let id = Oid::from_str(&git(folder.path(), &["rev-parse", "HEAD"])).unwrap();
    assert_eq!(open(&folder).read("HEAD").unwrap(), Some(id));
    let main = Refs::open(&folder.path().join(".git")).unwrap();
    main.update("refs/heads/copy", id, None).unwrap();
    assert_eq!(git(folder.path(), &["rev-parse", "copy"]), id.to_string());
}

/// Each thread moves the reference from the value it reads to the next one. If two moves from one value both succeeded, the sum
/// would be too large.
#[test]
fn of_racing_updates_from_one_value_exactly_one_succeeds() {
    let (folder, ids) = repository(40);
    open(&folder).update(MAIN, ids[0], None).unwrap();
    let race = || {
        let refs = Refs::open(folder.path()).unwrap();
        let mut won = 0;
        loop {
            let now = refs.read(MAIN).unwrap().expect("the reference exists");
            let at = ids.iter().position(|id| *id == now).expect("the value is one of the commits");
            let Some(&next) = ids.get(at + 1) else {
                return won;
            };
            match refs.update(MAIN, next, Some(now)) {
                Ok(()) => won += 1,
                Err(RefError::Moved { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    let won = std::thread::scope(|scope| {
        let threads = [scope.spawn(race), scope.spawn(race), scope.spawn(race)];
        // Packing concurrently moves the value between its two locations.
        for _ in 0..10 {
            git(folder.path(), &["pack-refs", "--all"]);
        }
        threads.map(|thread| thread.join().expect("no panic"))
    });
    assert_eq!(won.iter().sum::<usize>(), ids.len() - 1, "{won:?}");
    assert_eq!(git(folder.path(), &["rev-parse", MAIN]), ids[39].to_string());
}

#[test]
fn several_may_set_a_reference_at_once() {
    let (folder, ids) = repository(4);
    std::thread::scope(|scope| {
        for id in &ids {
            let (folder, ids) = (&folder, &ids);
            scope.spawn(move || {
                let refs = Refs::open(folder.path()).unwrap();
                for other in ids.iter().chain([id]).cycle().take(50) {
                    refs.set(MAIN, *other).unwrap();
                }
            });
        }
    });
    assert!(ids.contains(&open(&folder).read(MAIN).unwrap().unwrap()));
}
